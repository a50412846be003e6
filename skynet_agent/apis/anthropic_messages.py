"""``anthropic-messages``: Anthropic's own API and its imitators. The format is in ``skynet_agent.anthropic``."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec

from skynet_agent.anthropic import VERSION, build_body, reader
from skynet_agent.endpoint import Endpoint, ask
from skynet_agent.events import Part
from skynet_agent.providers import ModelInfo
from skynet_agent.requests import ModelRequest

_encoder = msgspec.json.Encoder()


def stream(endpoint: Endpoint, model: ModelInfo, request: ModelRequest) -> AsyncGenerator[Part, None]:
    """See ``StreamFunction``."""
    body = {"model": model.id, "stream": True, **build_body(endpoint.row, model, request)}
    headers = {"anthropic-version": VERSION}
    return ask(endpoint, "/v1/messages", _encoder.encode(body), reader(endpoint.source), headers)
