"""What a channel's adapter hands to the gateway, and what it gets back."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from skynet.gateway.run import Run
from skynet_agent.messages import ImageBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A place on a channel where several people talk."""

    channel: str
    external_id: str
    name: str = ""
    """As the channel calls it now; the room keeps the name that it had when it was first heard of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelMessage:
    """What somebody wrote on a channel.

    ``external_id`` is the account that the channel says it is from: the adapter vouches for it, and nothing else in the
    message says who somebody is. ``message_id`` is the channel's own, the same if it delivers the message again; it
    needs to be unique only among the messages of this account, or of this room. ``at_ms`` is when it was sent.
    """

    channel: str
    external_id: str
    display_name: str
    text: str
    message_id: str
    at_ms: int
    images: tuple[ImageBlock, ...] = ()
    room: Room | None = None

    @property
    def address(self) -> "ChannelAddress":
        """Where an answer goes."""
        return ChannelAddress(
            channel=self.channel, external_id=self.external_id, room=self.room, message_id=self.message_id
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelAddress:
    """Where to say something: in the room, or else to the account. ``message_id`` is the message that it answers."""

    channel: str
    external_id: str
    room: Room | None = None
    message_id: str = ""


Deliver: TypeAlias = Callable[[ChannelAddress, str], Awaitable[None]]
"""Says something on a channel."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The message is stored, and the assistant answers; the answer is delivered when it is complete."""

    run: Run


@dataclass(frozen=True, slots=True)
class Answered:
    """The gateway answers by itself. The adapter says ``text``; nothing else is delivered."""

    text: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """A stranger, about whom somebody decides first; then this message is answered, if it could be kept.

    ``text`` is for the stranger. ``is_new`` is true once: later it need not be said again.
    """

    approval_id: str
    text: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class Ignored:
    """Nothing is said: ``reason`` is for the log."""

    reason: str


Outcome: TypeAlias = Accepted | Answered | Waiting | Ignored
