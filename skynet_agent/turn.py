"""One turn: what is asked, and an assistant message whatever happens."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from skynet_agent.draft import Draft
from skynet_agent.errors import ProviderError, UnknownModel
from skynet_agent.events import Finished, ModelEvent
from skynet_agent.requests import ModelRequest
from skynet_agent.router import Router

log = logging.getLogger(__name__)


async def run_turn(
    router: Router, request: ModelRequest, *, draft: Draft | None = None
) -> AsyncGenerator[ModelEvent, None]:
    """Run a turn. The last event is always ``Finished``, so that every transcript is complete.

    A failure ends the turn with ``stop_reason`` ``error``: the message holds the words of the failure and the text so
    far, ``Finished.error`` the exception. Cancelling the turn, or closing this generator (use ``aclosing``), closes the
    provider's stream at once and yields nothing more; pass a ``draft`` (``router.draft()``) and store
    ``draft.message("aborted")`` then.
    """
    draft = draft or router.draft()
    try:
        async with aclosing(router.stream(request, draft=draft)) as events:
            async for event in events:
                yield event
    except (ProviderError, UnknownModel) as error:
        log.warning("the turn failed (%s): %s", type(error).__name__, error)
        yield Finished(draft.message("error", error_message=str(error)), error)
