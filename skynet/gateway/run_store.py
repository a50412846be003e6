"""What a run leaves in the database: each round when it is done, and its one end."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from skynet.gateway.model_calls import usage_records
from skynet.gateway.run import Run
from skynet.gateway.run_answer import RunResult, agent_result
from skynet.supervisor import Supervisor
from skynet_agent.messages import AssistantMessage, Message, ToolResultMessage, encode_message
from skynet_memory.errors import SessionNotFound, StorageUnavailable
from skynet_memory.transcripts import NewEntry
from skynet_memory.turns import TurnStore

log = logging.getLogger(__name__)


class RunStore:
    """
    Args:
        window: tokens that a model holds, by its name.
    """

    def __init__(
        self,
        turns: TurnStore,
        tasks: Supervisor,
        *,
        window: Callable[[str], int | None],
        clock: Callable[[], int],
    ) -> None:
        self._turns = turns
        self._tasks = tasks
        self._window = window
        self._clock = clock

    async def round(self, run: Run) -> None:
        """Keep what tools did, before the model is asked again: a process that dies now has done it all the same.

        What the storage refuses is stored with the end.
        """
        assert run.turn is not None
        known, count = _told(run, run.turn.messages), len(run.turn.messages)
        writing = self._tasks.start(
            self._turns.add(
                owner=run.owner,
                spender=run.person,
                kind=run.inbound.kind,
                run_id=run.run_id,
                entries=_entries(known),
                usage=usage_records(known, self._clock()),
                now_ms=self._clock(),
            ),
            name=f"round of {run.run_id}",
        )
        try:
            await asyncio.shield(writing)
        except StorageUnavailable as exc:
            log.warning("a round of run %s is stored with its end: %s", run.run_id, exc)
            return
        except asyncio.CancelledError:
            await asyncio.wait({writing})
            if not writing.cancelled() and writing.exception() is None:
                run.stored = count
            raise
        run.stored = count

    async def end(self, run: Run, result: RunResult) -> None:
        """
        Raises:
            StorageUnavailable: nothing was stored.
        """
        message, new = result.message, _told(run, result.messages)
        if run.entry_id is None and result.status != "ok":
            new = []  # a command that failed: nobody's message is answered by that
        with suppress(SessionNotFound):  # deleted meanwhile; the run is closed and its usage kept all the same
            run.session = await self._turns.finish(
                owner=run.owner,
                spender=run.person,
                kind=run.inbound.kind,
                run_id=run.run_id,
                entries=_entries(new),
                usage=usage_records(new, result.ended_at_ms),
                status=result.status,
                response=msgspec.json.encode(agent_result(result)),
                model=message.model,
                provider=message.provider,
                context_tokens=self._window(f"{message.provider}/{message.model}") if message.provider else None,
                now_ms=result.ended_at_ms,
            )


def _told(run: Run, messages: Sequence[Message]) -> list[Message]:
    """Those that are not stored yet; the first answer says what the model was asked, if not what was written."""
    new = list(messages[run.stored :])
    if run.asked is not None and not run.stored:
        place = next(place for place, message in enumerate(new) if isinstance(message, AssistantMessage))
        new[place] = msgspec.structs.replace(new[place], asked=run.asked)
    return new


def _entries(messages: Sequence[Message]) -> list[NewEntry]:
    return [
        NewEntry("tool_result" if isinstance(message, ToolResultMessage) else "message", encode_message(message))
        for message in messages
    ]
