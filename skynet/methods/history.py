"""``history.search``."""

from collections.abc import Callable

from skynet.gateway.dispatch import method
from skynet.gateway.keys import render_key
from skynet_memory.ids import now_ms
from skynet_memory.search import Hit, TranscriptSearch
from skynet_protocol.history import HistoryEntry, HistoryHit, HistorySearchParams, HistorySearchResult
from skynet_users.caller import Caller

SHOWN_CHARS = 2000
"""What is shown of one message."""


class HistoryMethods:
    """The caller's own conversations, those before a reset included."""

    def __init__(self, search: TranscriptSearch, *, clock: Callable[[], int] = now_ms) -> None:
        self._search = search
        self._clock = clock

    @method("history.search")
    async def search(self, caller: Caller, params: HistorySearchParams) -> HistorySearchResult:
        """Find messages by their words, each with those around it. What tools answered is not searched."""
        hits = await self._search.search(
            caller.user_id, params.query, limit=params.limit, window=params.window, now_ms=self._clock()
        )
        return HistorySearchResult(hits=[_hit(hit) for hit in hits])


def _hit(hit: Hit) -> HistoryHit:
    return HistoryHit(
        session_key=render_key(hit.key),
        session_id=hit.session_id,
        entry_id=hit.entry_id,
        score=round(hit.score, 4),
        entries=[
            HistoryEntry(
                id=entry.id,
                role=entry.role,
                text=entry.text[:SHOWN_CHARS],
                timestamp=entry.at_ms,
                matched=entry.matched,
            )
            for entry in hit.entries
        ],
    )
