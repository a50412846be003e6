"""``wake``, ``last-heartbeat``, ``set-heartbeats``."""

from skynet.gateway.dispatch import method
from skynet.gateway.heartbeat import Heartbeats, SystemEvents
from skynet_protocol.errors import DetailCode, RequestError
from skynet_protocol.events import HeartbeatEvent
from skynet_protocol.heartbeat import (
    LastHeartbeatParams,
    SetHeartbeatsParams,
    SetHeartbeatsResult,
    WakeParams,
    WakeResult,
)
from skynet_users.caller import Caller


class HeartbeatMethods:
    """What a person tells the assistant to look at by itself, and whether it does so at all."""

    def __init__(self, heartbeats: Heartbeats, events: SystemEvents) -> None:
        self._heartbeats = heartbeats
        self._events = events

    @method("wake")
    def wake(self, caller: Caller, params: WakeParams) -> WakeResult:
        """Queue a text for the caller's main session."""
        text = params.text.strip()
        if text:
            self._events.add(caller.user_id, text)
        return WakeResult(ok=bool(text))

    @method("last-heartbeat")
    def last_heartbeat(self, caller: Caller, params: LastHeartbeatParams) -> HeartbeatEvent | None:
        """How the caller's last heartbeat ended; null when there was none."""
        return self._heartbeats.last(caller.user_id)

    @method("set-heartbeats")
    def set_heartbeats(self, caller: Caller, params: SetHeartbeatsParams) -> SetHeartbeatsResult:
        """Switch heartbeats on or off for the whole gateway, until it is restarted."""
        if not isinstance(params.enabled, bool):
            raise RequestError(
                "invalid set-heartbeats params: enabled (boolean) required",
                details={"code": DetailCode.INVALID_PARAMS},
            )
        self._heartbeats.enabled = params.enabled
        return SetHeartbeatsResult(ok=True, enabled=params.enabled)
