"""The default system prompt."""

import hashlib

from skynet_agent.prompt import DEFAULT_SYSTEM


def test_its_bytes_change_only_on_purpose() -> None:
    digest = hashlib.sha256(DEFAULT_SYSTEM.encode()).hexdigest()
    assert digest.startswith("64433c95c3027a22"), (
        "every change costs every conversation its provider's prompt cache once"
    )
