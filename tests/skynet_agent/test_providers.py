"""The registry of vendors, and what it costs to have it."""

import subprocess
import sys
from urllib.parse import urlsplit

from skynet_agent.providers import KNOWN_PROVIDERS, OFFLINE, known_provider
from skynet_agent.router import Router


def test_rows_are_complete() -> None:
    Router(KNOWN_PROVIDERS)  # names are unique, wire APIs exist
    for row in KNOWN_PROVIDERS:
        url = urlsplit(row.base_url)
        local = url.hostname == "127.0.0.1"
        assert url.scheme == ("http" if local else "https")
        assert bool(row.env_key) is not local
        assert not row.api_key
        # a vendor that a key alone configures needs a model to begin with
        assert bool(row.models) is not local


def test_known_providers() -> None:
    openai = known_provider("openai")
    assert openai is not None
    assert (openai.env_key, openai.max_tokens_field) == ("OPENAI_API_KEY", "max_completion_tokens")
    assert known_provider("offline") is OFFLINE
    assert known_provider("nobody") is None


def test_nothing_heavy_is_imported_before_the_first_request() -> None:
    program = (
        "import sys, skynet_agent.turn as turn\n"
        "from skynet_agent.providers import KNOWN_PROVIDERS\n"
        "turn.Router(KNOWN_PROVIDERS)\n"
        "print(sorted({'aiohttp', 'openai', 'httpx', 'httpx2', 'pydantic', 'yarl'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
