"""``cron.status`` and ``cron.list``."""

from skynet.gateway.dispatch import method
from skynet_protocol.cron import CronListParams, CronListResult, CronStatusParams, CronStatusResult
from skynet_users.caller import Caller

DEFAULT_LIMIT = 50
"""What ``limit`` reads when nothing was asked for and there is nothing (OPENCLAW-V3 6.9)."""


class CronMethods:
    """Scheduled jobs. This version runs none."""

    def __init__(self, store_path: str) -> None:
        self._store_path = store_path

    @method("cron.status")
    def status(self, caller: Caller, params: CronStatusParams) -> CronStatusResult:
        """Whether the scheduler is on, and when it will do something next."""
        return CronStatusResult(enabled=False, store_path=self._store_path, jobs=0, next_wake_at_ms=None)

    @method("cron.list")
    def list_jobs(self, caller: Caller, params: CronListParams) -> CronListResult:
        """A page of the caller's jobs."""
        return CronListResult(
            jobs=[], total=0, offset=0, limit=params.limit or DEFAULT_LIMIT, has_more=False, next_offset=None
        )
