"""That the configuration is another than at the last start: the file is edited by hand, so nobody else would say it."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from skynet.config import Config, config_to_public
from skynet_users.audit import Action, AuditLog

SUBJECT: Final = "configuration"
_LEFT_OUT: Final = frozenset({"logging", "database"})
"""Where things are kept says nothing of what anybody may."""


async def record_configuration(audit: AuditLog, config: Config) -> None:
    """Record which sections changed since the last start, by their digests; the first start records them all.

    Secrets count as there or not there, so a new one in place of another is no change. A full disk keeps nobody from
    starting: then it is recorded at the next start.
    """
    sections = _digests(config)
    last = await audit.list(1, action=Action.CONFIG_CHANGED, subject=SUBJECT)
    before: Mapping[str, Any] = last[0].details.get("sections", {}) if last else {}
    changed = sorted(name for name in sections.keys() | before.keys() if sections.get(name) != before.get(name))
    if changed:
        await audit.note(
            Action.CONFIG_CHANGED, actor="", subject=SUBJECT, details={"changed": changed, "sections": sections}
        )


def _digests(config: Config) -> dict[str, str]:
    public = config_to_public(config)
    return {
        name: hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:16]
        for name, value in public.items()
        if name not in _LEFT_OUT
    }
