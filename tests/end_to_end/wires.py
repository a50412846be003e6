"""A provider for every wire API, as somebody would configure it, all of them at one scripted server."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.support.dialects.bedrock import AwsKey, Bedrock
from tests.support.dialects.vertex import share_account
from tests.support.model_server import ModelServer
from tests.support.service_account import service_account, written

AWS_KEY, AWS_SECRET = "AKIDHOUSE", "aws+secret/of-the-house"
KEY = "sk-key-of-the-house"
LIMIT = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """``settings`` are the provider's, besides its models. ``caches``: its usage tells of a cache."""

    provider: str
    api: str
    model: str
    settings: Callable[[ModelServer, Path], Mapping[str, Any]]
    caches: bool = True

    def __str__(self) -> str:
        return f"{self.api}-{self.provider}"

    @property
    def name(self) -> str:
        """What a session or a request calls its model."""
        return f"{self.provider}/{self.model}"

    def toml(self, server: ModelServer, folder: Path, *, provider: str = "", **model: Any) -> str:
        """The section of the configuration. ``provider``: another name for it; ``model``: more of its model."""
        name = provider or self.provider
        lines = [f"[providers.{name}]", *_lines({"api": self.api, **self.settings(server, folder)})]
        known = {"id": self.model, "context_window": LIMIT, "reasoning": True, "input": ["text", "image"]}
        price = {"input": 2.0, "output": 10.0, "cache_read": 0.2, "cache_write": 2.5}
        lines += [f"[[providers.{name}.models]]"]
        lines += _lines({**known, "price": price, **model})
        return "\n".join([*lines, ""])


def _lines(values: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in values.items()]


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_lines(value)) + " }"
    return msgspec.json.encode(value).decode()


def _bedrock(server: ModelServer, folder: Path) -> Mapping[str, Any]:
    server.dialect(Bedrock).keys[AWS_KEY] = AwsKey(AWS_SECRET)
    return {"base_url": server.origin, "region": "us-east-1"}


def _vertex(server: ModelServer, folder: Path) -> Mapping[str, Any]:
    share_account(server.dialects)
    account = written(folder / "account.json", service_account(f"{server.origin}/token"))
    return {"base_url": server.origin, "region": "us-central1", "credentials_file": str(account)}


WIRES = (
    Wire(
        provider="lab",
        api="openai-completions",
        model="mock-1",
        settings=lambda server, _: {"base_url": server.url, "api_key": KEY, "supports_prompt_cache_key": True},
    ),
    Wire(
        provider="openai",
        api="openai-responses",
        model="mock-1",
        settings=lambda server, _: {"base_url": server.url, "api_key": KEY},
    ),
    Wire(
        provider="anthropic",
        api="anthropic-messages",
        model="mock-1",
        settings=lambda server, _: {"base_url": server.origin, "api_key": KEY},
    ),
    Wire(
        provider="ollama",
        api="ollama",
        model="mock-1:8b",
        settings=lambda server, _: {"base_url": server.origin},
        caches=False,
    ),
    Wire(
        provider="bedrock",
        api="bedrock",
        model="us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        settings=_bedrock,
    ),
    Wire(
        provider="vertex",
        api="vertex",
        model="gemini-3-pro",
        settings=_vertex,
    ),
    Wire(
        provider="cloud",
        api="vertex",
        model="claude-sonnet-4-5@20250929",
        settings=_vertex,
    ),
)
"""The names of the registry where it has one; Vertex AI serves models of two makers, each in its own format."""

AWS_ENV: Mapping[str, str] = {
    "AWS_ACCESS_KEY_ID": AWS_KEY,
    "AWS_SECRET_ACCESS_KEY": AWS_SECRET,
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""AWS credentials as every AWS tool finds them; botocore reads the process's own environment."""


def all_wires(server: ModelServer, folder: Path, **model: Any) -> str:
    """The sections of all of them."""
    return "\n".join(wire.toml(server, folder, **model) for wire in WIRES)
