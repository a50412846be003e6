"""Wire APIs, one module each: a pure reader and ``stream()``."""

from __future__ import annotations

from collections.abc import Mapping

from skynet_agent import offline
from skynet_agent.apis import anthropic_messages, bedrock, ollama, openai_completions, openai_responses, vertex
from skynet_agent.endpoint import StreamFunction

WIRE_APIS: Mapping[str, StreamFunction] = {
    "openai-completions": openai_completions.stream,
    "openai-responses": openai_responses.stream,
    "anthropic-messages": anthropic_messages.stream,
    "ollama": ollama.stream,
    "bedrock": bedrock.stream,
    "vertex": vertex.stream,
    "offline": offline.stream,
}
"""Every wire API by the name that rows and the configuration use."""
