"""``docs/openai.md`` is complete."""

import re
from pathlib import Path

from skynet import http
from skynet.http.chat_request import ChatRequest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "openai.md").read_text(encoding="utf-8")
SOURCES = [file.read_text(encoding="utf-8") for file in Path(http.__file__).parent.glob("*.py")]


def test_every_error_code_is_in_the_table() -> None:
    code = re.compile(r'code="(\w+)"|_upstream\(\d+, "(\w+)"|"(context_length_exceeded|secret_in_url|provider_\w+)"')
    codes = {name for source in SOURCES for match in code.findall(source) for name in match if name}
    assert len(codes) > 20
    assert [name for name in sorted(codes) if f"`{name}`" not in PAGE] == []


def test_every_parameter_is_named() -> None:
    known = set(ChatRequest.__struct_fields__) - {"messages", "modalities"}
    assert [name for name in sorted(known) if f"`{name}" not in PAGE] == []


def test_every_path_is_named() -> None:
    for path in ("/v1/chat/completions", "/v1/models", "/v1/models/{id}", "/health", "/healthz", "/readyz"):
        assert f"`{path}`" in PAGE or f" {path}`" in PAGE
