"""Ends at once what somebody may no longer do: connections, running answers, and what is remembered of them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from skynet.gateway.broadcast import Broadcaster
from skynet.supervisor import Supervisor
from skynet_memory.ids import DeviceId, UserId, now_ms
from skynet_protocol.errors import CLOSE_POLICY
from skynet_users.caller import Caller

log = logging.getLogger(__name__)

ANSWER_FIRST_S = 0.1
"""A connection that ends its own credentials is told so before it is closed."""
SWEEP_S = 0.5
"""How often tokens are looked at that end by themselves."""


class Revocation:
    """
    Args:
        forget: called with whoever has changed, before anything else: nobody is remembered as they were.
        stop_runs: ends the runs of a person.
        withdraw: ends what else a person has under way that they may not be allowed any more.
    """

    def __init__(
        self,
        broadcaster: Broadcaster,
        tasks: Supervisor,
        *,
        forget: Callable[[UserId], None],
        stop_runs: Callable[[UserId], Awaitable[object]],
        withdraw: Sequence[Callable[[UserId], Awaitable[object]]] = (),
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._broadcaster = broadcaster
        self._tasks = tasks
        self._forget = forget
        self._stop_runs = stop_runs
        self._withdraw_all = withdraw
        self._clock = clock

    async def person_changed(self, user_id: UserId, *, may_less: bool = True) -> None:
        """A person's role, permissions or state is another now.

        Connections are closed, so that clients come back as who the person is now; runs that were begun with more are
        stopped.

        Args:
            may_less: False for changes that take nothing (a name, a language, a budget): nothing is closed then.
        """
        self._forget(user_id)
        if may_less:
            self._withdraw(lambda caller: caller.user_id == user_id, "permissions changed")
            for withdraw in self._withdraw_all:
                await withdraw(user_id)
            await self._stop_runs(user_id)

    async def credential_revoked(self, credential_id: str) -> None:
        """A personal token is gone; the connections that came with it go too."""
        self._withdraw(lambda caller: caller.credential_id == credential_id, "token revoked")

    async def device_revoked(self, device_id: DeviceId, role: str | None = None) -> None:
        """A device's token, of one role or of all, is gone."""
        self._withdraw(
            lambda caller: caller.device_id == device_id and role in (None, caller.gateway_role), "device token revoked"
        )

    async def keep_time(self) -> None:
        """Close connections whose token has come to its end; runs until it is cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self._close(self._is_over, "token expired")

    def _is_over(self, caller: Caller) -> bool:
        return caller.expires_at_ms is not None and caller.expires_at_ms <= self._clock()

    def _withdraw(self, concerned: Callable[[Caller], bool], reason: str) -> None:
        """Close connections, and have those looked at again that are in their handshake."""
        self._broadcaster.withdrawals += 1
        self._close(concerned, reason)

    def _close(self, concerned: Callable[[Caller], bool], reason: str) -> None:
        connections = [connection for connection in self._broadcaster.all() if concerned(connection.caller)]
        if not connections:
            return
        log.info("closing %d connections: %s", len(connections), reason)
        for connection in connections:
            connection.withdraw()

        async def close() -> None:
            await asyncio.sleep(ANSWER_FIRST_S)
            for connection in connections:
                connection.close(CLOSE_POLICY, reason)

        self._tasks.start(close(), name=f"close: {reason}")
