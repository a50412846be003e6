"""A provider for each wire API, at the scripted server of ``services.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from skynet_agent import anthropic
from skynet_agent.apis import bedrock, ollama, openai_completions, openai_responses, vertex
from skynet_agent.providers import AuthKind, ModelInfo, Price, ProviderRow
from skynet_agent.reading import AnswerReader, Source
from skynet_memory.secrets import Secret

REGION = "us-east-1"
AWS_KEY_ID = "AKIDBENCH"
AWS_SECRET = "secret-of-the-bench"  # the server checks what it signs
PRICE = Price(input=1_000_000, output=10_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A wire API as it is measured. ``name`` begins the names of its rows."""

    name: str
    api: str
    reader: Callable[[Source, ModelInfo], AnswerReader[Any]]
    auth: AuthKind = "bearer"
    path: str = ""
    """Of the base URL."""
    model: str = "mock-1"
    api_key: str = "key-of-the-bench"
    uses_account: bool = False
    """It asks as Google's service account."""
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def model_info(self) -> ModelInfo:
        return ModelInfo(id=self.model, context_window=128_000, output_limit=4096, price=PRICE)

    def row(self, origin: str, account: Path) -> ProviderRow:
        """The provider at ``origin``; ``account`` is the file of Google's service account."""
        return ProviderRow(
            name="lab",
            api=self.api,
            auth=self.auth,
            base_url=origin + self.path,
            api_key=Secret(self.api_key),
            region=REGION,
            credentials_file=str(account) if self.uses_account else "",
            models=(self.model_info,),
        )


def _plain(make: Callable[[Source], AnswerReader[Any]]) -> Callable[[Source, ModelInfo], AnswerReader[Any]]:
    """For readers that are the same for every model."""
    return lambda source, model: make(source)


_vertex = partial(Lab, api="vertex", auth="google", api_key="", uses_account=True, reader=vertex.reader)

LABS: Mapping[str, Lab] = {
    lab.name: lab
    for lab in (
        Lab(
            name="openai-completions",
            api="openai-completions",
            path="/v1",
            reader=_plain(openai_completions.reader),
        ),
        Lab(
            name="openai-responses",
            api="openai-responses",
            path="/v1",
            reader=_plain(openai_responses.reader),
        ),
        Lab(
            name="anthropic-messages",
            api="anthropic-messages",
            auth="anthropic",
            reader=_plain(anthropic.reader),
        ),
        Lab(name="ollama", api="ollama", reader=_plain(ollama.reader)),
        Lab(
            name="bedrock",
            api="bedrock",
            auth="aws",
            api_key="",  # or it would be sent as a bearer token, unsigned
            reader=_plain(bedrock.reader),
            env={"AWS_ACCESS_KEY_ID": AWS_KEY_ID, "AWS_SECRET_ACCESS_KEY": AWS_SECRET},
        ),
        _vertex(name="vertex"),
        _vertex(name="vertex-claude", model="claude-sonnet-4-5"),
    )
}
"""By name, in the order of the table."""
