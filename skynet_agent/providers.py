"""Providers: which wire API each speaks, where, and how it differs from the others.

A vendor is a row. What a vendor does differently is a named field of its row, so that no wire API ever asks for a
provider's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from skynet_agent.requests import ThinkingLevel
from skynet_memory.secrets import Secret

AuthKind: TypeAlias = Literal["bearer", "x-api-key", "api-key", "anthropic", "copilot", "qwen", "aws", "google"]
ThinkingField: TypeAlias = Literal[
    "reasoning_effort", "reasoning", "reasoning_enabled", "thinking", "thinking_effort", "enable_thinking", ""
]
"""Where a chat completion says how much to think:

- ``reasoning_effort``: a word (OpenAI).
- ``reasoning``: an object with the word, or with ``enabled`` false (OpenRouter).
- ``reasoning_enabled``: an object that only switches (Together).
- ``thinking``: an object with the type ``enabled`` or ``disabled`` (Moonshot).
- ``thinking_effort``: that, and the word as ``reasoning_effort`` (DeepSeek, Z.AI).
- ``enable_thinking``: a switch (DashScope, SiliconFlow).
- empty: nowhere.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Micro-dollars per million tokens: 3 dollars per million are ``3_000_000``.

    Where a cache price is None, those tokens are charged as input. A request whose prompt has more than
    ``long_prompt_tokens``, cached ones included, is charged as ``long_prompt`` says, all of it; which may know of
    still longer ones.
    """

    input: int
    output: int
    cache_read: int | None = None
    cache_write: int | None = None
    long_prompt_tokens: int | None = None
    long_prompt: Price | None = None

    def at(self, prompt_tokens: int) -> Price:
        """What holds for a request with a prompt of this size."""
        if self.long_prompt is None or self.long_prompt_tokens is None or prompt_tokens <= self.long_prompt_tokens:
            return self
        return self.long_prompt.at(prompt_tokens)


FREE = Price(input=0, output=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """A model as its provider offers it; None and empty mean unknown.

    ``max_output_tokens`` is told to the provider with every request, which some count against a quota: only who
    configures a model sets it. ``output_limit`` is what it can write at most: a request for more is cut to it, and it
    is told where a wire API has to be told something.
    """

    id: str
    name: str = ""
    context_window: int | None = None
    max_output_tokens: int | None = None
    output_limit: int | None = None
    reasoning: bool = False
    thinking_form: Literal["budget", "effort"] = "budget"
    """How a model that thinks is told how much, where its wire API knows both: a number of tokens, or a word."""
    thinking_levels: tuple[ThinkingLevel, ...] = ()
    """The levels it knows, ``off`` only if it can do without thinking; empty: as its row says."""
    thinking_field: ThinkingField | None = None
    """Where its row's is not right for it: one provider may serve models of several makers."""
    sampling: bool = True
    """Whether it takes ``temperature`` and ``top_p``; one that does not refuses a request that has them."""
    tools: bool = True
    """Whether it can call tools. One that cannot is refused requests that have some."""
    input: tuple[Literal["text", "image"], ...] = ("text",)
    price: Price | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProviderRow:
    """One provider.

    ``priority``: the highest is asked first; equal ones in the order they are listed. ``models``: the first is the one
    used when only the provider is meant.
    """

    name: str
    base_url: str = ""
    """Empty where the wire API makes it from ``region`` and ``project`` (Bedrock, Vertex)."""
    api: str = "openai-completions"
    auth: AuthKind = "bearer"
    """How a request proves who asks; with an empty ``api_key`` nothing is sent for the first three."""
    api_key: Secret = field(default_factory=lambda: Secret(""))
    priority: int = 0
    models: tuple[ModelInfo, ...] = ()
    title: str = ""
    """The vendor's own name of itself, for people."""
    env_key: str = ""
    """The environment variable that holds the key of a known vendor, for people."""
    local: bool = False
    """It runs in the house: no key is needed, and the answers cost nothing."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request besides those of the wire API; may hold secrets."""
    unlisted_models: bool = False
    """``provider/model`` is passed on although ``models`` does not have it; always so while ``models`` is empty."""
    catalogue: str = ""
    """The provider of the catalogue that its models are looked up under; empty: they are not."""
    list_prices: bool = False
    """Its models cost what the catalogue says: the address is the vendor's own."""
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 120.0
    """The longest silence: before the answer begins and between two reads of it."""
    requests_per_minute: int | None = None
    """So many requests may begin in any minute; more wait their turn."""

    # What only some kinds need

    region: str = ""
    """AWS region or Google Cloud location."""
    project: str = ""
    """Google Cloud project; empty: the credentials' own."""
    profile: str = ""
    """Profile of the AWS configuration files; empty: the default chain."""
    credentials_file: str = ""
    """A Google service account's JSON file; empty: the application default credentials."""

    # Differences of those that speak OpenAI's chat completions

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    supports_stream_options: bool = True
    """Whether ``stream_options.include_usage`` may be sent; without it most vendors report no usage."""
    supports_prompt_cache_key: bool = False
    thinking_field: ThinkingField = "reasoning_effort"
    thinking_levels: tuple[ThinkingLevel, ...] = ("minimal", "low", "medium", "high")
    """The words that the field takes; others become the nearest one. ``off`` only where a vendor can be told so."""
    tool_call_ids: Literal["any", "nine"] = "any"
    """``nine``: exactly nine letters and digits (Mistral)."""
    wants_thinking_back: bool = False
    """Between two rounds of a turn the model's own ``reasoning_content`` has to be sent back (DeepSeek, Moonshot)."""
    cache_marks: bool = False
    """It takes Anthropic's ``cache_control`` marks in the messages (OpenRouter)."""


OFFLINE = ProviderRow(
    name="offline",
    api="offline",
    models=(ModelInfo(id="assistant", name="Offline assistant", price=FREE),),
)
