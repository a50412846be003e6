"""Writing requests: what the bodies of several wire APIs have in common.

The conversation has been made to fit the model by then (``history``). What is left are things that a wire API has no
form for, and the words that stand for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from skynet_agent.errors import BadRequest
from skynet_agent.messages import ImageBlock, Message, UserMessage
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.requests import ModelOptions

EARLIER = "(what was said before is left out)"
"""The first words of the user, where a conversation would begin with the model's."""
NO_OUTPUT = "(no output)"
"""The result of a tool that gave nothing: most providers refuse empty ones."""
SEE_IMAGES = "(see the image)"
"""The result of a tool that gave only images, where results are texts. The images follow in a message of the user's."""
IMAGES = "Images of the tool results:"
"""How that message begins."""


def unseen(image: ImageBlock) -> str:
    """What stands for an image of a type that the provider does not take."""
    return f"[{image.mime_type}: an image of a kind that this model cannot see]"


def last_of_user(messages: Sequence[Message]) -> UserMessage | None:
    """The message that is being answered; what is volatile stands at its end."""
    return next((message for message in reversed(messages) if isinstance(message, UserMessage)), None)


def output_limit(model: ModelInfo) -> int | None:
    """The most tokens that the model can or may write; None if nobody knows."""
    return min(filter(None, (model.max_output_tokens, model.output_limit)), default=None)


def answer_tokens(model: ModelInfo, options: ModelOptions) -> int | None:
    """How long the answer may be: as was asked, never longer than the model can write. None leaves it to the provider.

    What a model can write is by itself no reason to tell a limit: some providers count it against a quota.
    """
    asked = options.max_tokens or model.max_output_tokens
    return asked and min(asked, output_limit(model) or asked)


def unsupported_format(row: ProviderRow, options: ModelOptions, allowed: str) -> BadRequest:
    """The refusal of a ``response_format`` that a wire API has no form for."""
    kind = str((options.response_format or {}).get("type"))
    text = f"{row.name}: response_format {kind[:40]!r} is not supported; allowed: {allowed}"
    return BadRequest(text, provider=row.name)
