"""What the tests of this package ask, and whom."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from skynet_agent.messages import Message, TextBlock, UserMessage
from skynet_agent.providers import ModelInfo, Price, ProviderRow
from skynet_agent.requests import ModelOptions, ModelRequest
from skynet_memory.secrets import Secret
from tests.support.dialects.bedrock import AwsKey, Bedrock
from tests.support.dialects.vertex import share_account
from tests.support.model_server import ModelServer
from tests.support.service_account import service_account, written

LAB = ProviderRow(
    name="lab",
    api_key=Secret("key-of-lab"),
    models=(ModelInfo(id="mock-1", context_window=8192, price=Price(input=1_000_000, output=10_000_000)),),
)


def ask(text: str, model: str = "", history: Sequence[Message] = (), **options: object) -> ModelRequest:
    """A request whose last message is ``text``."""
    messages = [*history, UserMessage([TextBlock(text)], 1)]
    return ModelRequest(messages=messages, model=model, options=ModelOptions(**options))  # type: ignore[arg-type]


def row_of(server: ModelServer, **fields: object) -> ProviderRow:
    """``LAB`` at ``server``."""
    return replace(LAB, base_url=server.url, **fields)  # type: ignore[arg-type]


async def until(condition: Callable[[], bool]) -> None:
    """Wait until ``condition`` holds, at most five seconds."""
    async with asyncio.timeout(40):
        while not condition():  # noqa: ASYNC110 - a real server announces nothing
            await asyncio.sleep(0.002)


# Every wire API

MakeRow = Callable[[ModelServer, Path], ProviderRow]
"""The row of a provider at the server; the folder is for files that it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A wire API as the scenarios meet it: a row, and what is different on the wire."""

    name: str
    row: MakeRow
    proof: Mapping[str, str]
    """Headers that show who asks, and patterns of what is in them."""
    length: str = "length"
    """How the wire format says that an answer reached its limit."""
    caches: bool = True
    """Whether usage tells what a cache had."""
    env: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def thinking_row(server: ModelServer, model: str = "mock-1", **fields: Any) -> ProviderRow:
    """``LAB`` at the server's own address, with a model that thinks and sees."""
    info = replace(LAB.models[0], id=model, reasoning=True, input=("text", "image"))
    return replace(LAB, **{"base_url": server.origin, "models": (info,), **fields})


def openai_row(server: ModelServer, api: str) -> ProviderRow:
    return thinking_row(server, base_url=server.url, api=api, supports_prompt_cache_key=True)


def bedrock_row(server: ModelServer, model: str) -> ProviderRow:
    server.dialect(Bedrock).keys["AKIDLAB"] = AwsKey("s3cret/of+lab")
    return thinking_row(server, model, api="bedrock", auth="aws", api_key=Secret(""))


def vertex_row(server: ModelServer, folder: Path, model: str) -> ProviderRow:
    share_account(server.dialects)
    account = written(folder / "account.json", service_account(f"{server.origin}/token"))
    fields = {"api": "vertex", "auth": "google", "api_key": Secret(""), "credentials_file": str(account)}
    return thinking_row(server, model, region="us-central1", **fields)


AWS_ENV = {
    "AWS_ACCESS_KEY_ID": "AKIDLAB",
    "AWS_SECRET_ACCESS_KEY": "s3cret/of+lab",
    "AWS_REGION": "us-east-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}
BEARER = {"authorization": r"Bearer key-of-lab"}
SIGNED = {"authorization": r"AWS4-HMAC-SHA256 Credential=AKIDLAB/\d+/us-east-1/bedrock/aws4_request, .*"}
TOKEN = {"authorization": r"Bearer ya29\.token-\d"}

LABS = (
    Lab(name="openai-completions", row=lambda server, _: openai_row(server, "openai-completions"), proof=BEARER),
    Lab(name="openai-responses", row=lambda server, _: openai_row(server, "openai-responses"), proof=BEARER),
    Lab(
        name="anthropic-messages",
        row=lambda server, _: thinking_row(server, api="anthropic-messages", auth="anthropic"),
        proof={"x-api-key": "key-of-lab"},
        length="max_tokens",
    ),
    Lab(name="ollama", row=lambda server, _: thinking_row(server, api="ollama"), proof=BEARER, caches=False),
    Lab(
        name="bedrock-claude",
        row=lambda server, _: bedrock_row(server, "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        proof=SIGNED,
        length="max_tokens",
        env=AWS_ENV,
    ),
    Lab(
        name="bedrock-nova",
        row=lambda server, _: bedrock_row(server, "us.amazon.nova-pro-v1:0"),
        proof=SIGNED,
        length="max_tokens",
        env=AWS_ENV,
    ),
    Lab(
        name="vertex-gemini",
        row=lambda server, folder: vertex_row(server, folder, "gemini-3-pro"),
        proof=TOKEN,
        length="MAX_TOKENS",
    ),
    Lab(
        name="vertex-claude",
        row=lambda server, folder: vertex_row(server, folder, "claude-sonnet-4-5@20250929"),
        proof=TOKEN,
        length="max_tokens",
    ),
)
"""Each has to pass all scenarios; an API that speaks to models in two ways is here twice."""
