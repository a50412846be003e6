"""``ping``: is anybody there."""

from skynet.gateway.dispatch import method
from skynet_memory.ids import now_ms
from skynet_protocol.params import LenientParams, Result
from skynet_users.caller import Caller


class PingParams(LenientParams, frozen=True):
    """Nothing."""


class PingResult(Result):
    """``ts`` is the gateway's clock, epoch milliseconds."""

    ok: bool
    ts: int


class PingMethods:
    """``ping``."""

    @method("ping")
    def ping(self, caller: Caller, params: PingParams) -> PingResult:
        """Answer at once; any connection may ask."""
        return PingResult(ok=True, ts=now_ms())
