"""What goes into the audit log and happens whether it gets there or not: logins, refusals."""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from skynet.supervisor import Supervisor
from skynet_memory.ids import UserId
from skynet_users.audit import AuditLog

log = logging.getLogger(__name__)

MAX_WAITING = 10_000


class AuditNotes:
    """Writes notes down one after the other, in a task of its own. Leaving writes down those that wait."""

    def __init__(self, audit: AuditLog, tasks: Supervisor) -> None:
        self._audit = audit
        self._tasks = tasks
        self._waiting: deque[tuple[str, str, str, Mapping[str, str]]] = deque()
        self._writer: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._writer is not None:
            await asyncio.wait({self._writer})

    def add(self, action: str, actor: str, subject: str, details: Mapping[str, str]) -> None:
        """Note it soon. Returns at once and never raises; beyond :data:`MAX_WAITING` it is in the log file alone."""
        if len(self._waiting) >= MAX_WAITING:
            log.error("not in the audit log, too much is waiting: %s by %s on %s", action, actor or "nobody", subject)
            return
        self._waiting.append((action, actor, subject, details))
        if self._writer is None or self._writer.done():
            self._writer = self._tasks.start(self._write(), name="audit notes")

    async def _write(self) -> None:
        while self._waiting:
            action, actor, subject, details = self._waiting.popleft()
            await self._audit.note(action, actor=UserId(actor), subject=subject, details=details)
