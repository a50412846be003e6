"""The heartbeat's switch and its last result, and the system events that wait for a person's main session."""

from collections import deque

from skynet_memory.ids import UserId
from skynet_protocol.events import HeartbeatEvent
from skynet_protocol.heartbeat import HeartbeatSummary

PROMPT = (
    "Read HEARTBEAT.md if it exists (workspace context). Follow it strictly. Do not infer or repeat old tasks from "
    "prior chats. If nothing needs attention, reply HEARTBEAT_OK."
)
"""What a heartbeat run asks; clients show it."""
ACK_MAX_CHARS = 300
"""An answer that is an acknowledgement and no longer than this is not delivered."""
MAX_QUEUED_EVENTS = 20
"""System events kept for one person; the oldest goes first."""
MAX_EVENT_CHARS = 4000


class Heartbeats:
    """Whether the assistant looks after its tasks by itself, how often, and how that went last.

    Args:
        every_ms: The time between two heartbeats; ``None`` when this gateway runs none.
    """

    def __init__(self, *, every_ms: int | None = None) -> None:
        self.enabled = True
        self._every_ms = every_ms
        self._last: dict[UserId, HeartbeatEvent] = {}

    @property
    def every_ms(self) -> int | None:
        """The interval in force; ``None`` while there are no heartbeats."""
        return self._every_ms if self.enabled else None

    def summary(self) -> HeartbeatSummary:
        """The settings as ``health`` and ``status`` show them."""
        every_ms = self.every_ms
        return HeartbeatSummary(
            enabled=every_ms is not None,
            every="disabled" if every_ms is None else _duration(every_ms),
            every_ms=every_ms,
            prompt=PROMPT,
            target="none",
            ack_max_chars=ACK_MAX_CHARS,
        )

    def ended(self, owner: UserId, event: HeartbeatEvent) -> None:
        """A heartbeat run of this person's assistant ended."""
        self._last[owner] = event

    def last(self, owner: UserId) -> HeartbeatEvent | None:
        """How this person's last heartbeat ended since the gateway started."""
        return self._last.get(owner)


class SystemEvents:
    """Texts that a person's main session is told with its next message. In memory: they do not survive a restart."""

    def __init__(self) -> None:
        self._queued: dict[UserId, deque[str]] = {}

    def add(self, owner: UserId, text: str) -> None:
        """Queue ``text`` as one line, cut to :data:`MAX_EVENT_CHARS`; the same text twice in a row is kept once.

        One line, so that what a command or a machine wrote cannot look like another event.
        """
        queue = self._queued.setdefault(owner, deque(maxlen=MAX_QUEUED_EVENTS))
        text = " | ".join(line for line in text.splitlines() if line.strip())[:MAX_EVENT_CHARS]
        if not queue or queue[-1] != text:
            queue.append(text)

    def queued(self, owner: UserId) -> list[str]:
        """What waits, oldest first."""
        return list(self._queued.get(owner, ()))

    def take(self, owner: UserId) -> list[str]:
        """What waits, oldest first; it waits no longer."""
        return list(self._queued.pop(owner, ()))


def _duration(ms: int) -> str:
    """``1800000`` as ``30m``, in the largest unit that leaves a whole number."""
    for unit, size_ms in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if ms % size_ms == 0:
            return f"{ms // size_ms}{unit}"
    return f"{ms}ms"
