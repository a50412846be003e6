"""Wire APIs, one module each: a pure reader and ``stream()``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Protocol

from skynet_agent import offline
from skynet_agent.apis import openai_completions
from skynet_agent.events import Part
from skynet_agent.http_client import HttpClient
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.requests import ModelRequest


class StreamFunction(Protocol):
    """One model call. Yields deltas and at last ``Ended``, or raises a ``ProviderError``."""

    def __call__(self, row: ProviderRow, model: ModelInfo, request: ModelRequest, /) -> AsyncGenerator[Part, None]: ...


def wire_apis(
    http: HttpClient, clock: Callable[[], datetime], *, models_configured: bool
) -> Mapping[str, StreamFunction]:
    """Every wire API by the name that rows and the configuration use."""
    return {
        "openai-completions": partial(openai_completions.stream, http, clock),
        "offline": partial(offline.stream, clock, models_configured),
    }
