"""What guardians are told of the children they look after."""

from __future__ import annotations

from skynet_protocol.params import Result


class GuardianAlert(Result):
    """``guardian.alert``: a child's message met the content filter. ``text`` is there only if a setting lets this
    guardian read the child's transcripts, and then the reading is in the audit log. ``at`` is epoch milliseconds."""

    child_id: str
    child_name: str
    category: str
    at: int
    text: str = ""
