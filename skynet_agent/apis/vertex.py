"""``vertex``: Google Vertex AI, with Google's Gemini and Anthropic's Claude. Each has its own format, and its module.

``GoogleAuth`` puts host, project and location before the path.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import quote

import msgspec

from skynet_agent import anthropic, gemini
from skynet_agent.endpoint import Endpoint, read_parts
from skynet_agent.events import Part
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.reading import AnswerReader, Source
from skynet_agent.requests import ModelRequest
from skynet_agent.sse import SseEvent

ANTHROPIC_VERSION = "vertex-2023-10-16"

_encoder = msgspec.json.Encoder()


async def stream(endpoint: Endpoint, model: ModelInfo, request: ModelRequest) -> AsyncGenerator[Part, None]:
    """See ``StreamFunction``."""
    path, body = build_request(endpoint.row, model, request)
    async with (
        endpoint.send(path, body) as answer,
        # made after it was signed: only then is the token known that no failure may show
        aclosing(read_parts(answer, reader(endpoint.source, model))) as parts,
    ):
        async for part in parts:
            yield part


def build_request(row: ProviderRow, model: ModelInfo, request: ModelRequest) -> tuple[str, bytes]:
    """Path, without project and location, and body.

    Raises:
        BadRequest: the request has something that the model's API has no form for.
    """
    name = quote(model.id, safe="@")
    if is_claude(model):
        body = {"anthropic_version": ANTHROPIC_VERSION, "stream": True, **anthropic.build_body(row, model, request)}
        return f"/publishers/anthropic/models/{name}:streamRawPredict", _encoder.encode(body)
    body = gemini.build_body(row, model, request)
    return f"/publishers/google/models/{name}:streamGenerateContent?alt=sse", _encoder.encode(body)


def reader(source: Source, model: ModelInfo) -> AnswerReader[SseEvent]:
    """A reader of one streamed answer of ``model``."""
    return anthropic.reader(source) if is_claude(model) else gemini.reader(source)


def is_claude(model: ModelInfo) -> bool:
    """Whether it is one of Anthropic's."""
    return model.id.startswith("claude")
