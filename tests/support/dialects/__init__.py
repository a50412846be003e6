"""Wire formats that the scripted server speaks, one module each."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.dialects.anthropic_messages import AnthropicMessages
from tests.support.dialects.bedrock import Bedrock
from tests.support.dialects.ollama import Ollama
from tests.support.dialects.openai_completions import OpenAICompletions
from tests.support.dialects.openai_responses import OpenAIResponses
from tests.support.dialects.vertex import GoogleTokens, VertexClaude, VertexGemini
from tests.support.script import Dialect

DIALECTS: tuple[Callable[[], Dialect], ...] = (
    AnthropicMessages,
    OpenAICompletions,
    OpenAIResponses,
    Ollama,
    Bedrock,
    VertexGemini,
    VertexClaude,
    GoogleTokens,
)
"""Asked in this order whether a request is theirs. They import nothing heavy: benches start servers too."""
