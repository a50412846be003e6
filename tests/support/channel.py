"""A channel without a platform: a small adapter, written as those of real platforms are, and what was said on it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from skynet.gateway.channel import Accepted, Answered, ChannelAddress, ChannelMessage, Outcome, Room, Waiting
from skynet.gateway.ingress import Ingress
from skynet_agent.messages import ImageBlock
from skynet_memory.ids import now_ms
from tests.support.polling import until


@dataclass(frozen=True, slots=True)
class Said:
    """What the gateway said: in a room, or to somebody alone."""

    where: str
    text: str


@dataclass
class FakeChannel:
    """People write with :meth:`write`; all that the gateway says is in ``said``, in its order.

    A real adapter gets messages from its platform and sends there. All else is as it should be: it says what
    ``receive`` answers, and what it is given to deliver.
    """

    ingress: Ingress
    name: str = "testchat"
    said: list[Said] = field(default_factory=list)
    fails: bool = False
    """Saying something fails, as on a platform that is down."""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.disconnect = self.ingress.connect(self.name, self._deliver)

    async def write(
        self,
        account: str,
        text: str,
        *,
        room: str = "",
        display_name: str = "",
        message_id: str = "",
        images: tuple[ImageBlock, ...] = (),
    ) -> Outcome:
        """Somebody writes, to the assistant alone or in a room; returns what became of it."""
        message = ChannelMessage(
            channel=self.name,
            external_id=account,
            display_name=display_name or account,
            text=text,
            message_id=message_id or f"m{next(self._numbers)}",
            at_ms=now_ms(),
            images=images,
            room=Room(channel=self.name, external_id=room, name=f"#{room}") if room else None,
        )
        outcome = await self.ingress.receive(message)
        match outcome:
            case Answered(text=answer):
                await self._deliver(message.address, answer)
            case Waiting(text=answer, is_new=True):
                await self._deliver(message.address, answer)
            case _:
                pass
        return outcome

    async def ask(self, account: str, text: str, *, room: str = "", **more: str) -> str:
        """Write, and wait for the answer to it."""
        before = len(self.heard(room or account))
        outcome = await self.write(account, text, room=room, **more)
        assert isinstance(outcome, Accepted | Answered), outcome
        await until(lambda: len(self.heard(room or account)) > before, f"an answer to {text}")
        return self.heard(room or account)[-1]

    def heard(self, where: str) -> list[str]:
        """What was said in a room, or to an account."""
        return [said.text for said in self.said if said.where == where]

    async def _deliver(self, address: ChannelAddress, text: str) -> None:
        if self.fails:
            raise ConnectionError("the platform is down")
        self.said.append(Said(address.room.external_id if address.room else address.external_id, text))
