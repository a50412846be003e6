"""The one way in for what people write on channels: who it is, what they may, where it belongs, and the run.

An adapter knows its platform and nothing of people, permissions or sessions. It calls :meth:`Ingress.receive` and says
what it gets back; answers that take their time come to what it gave to :meth:`Ingress.connect`.
"""

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from skynet.gateway.approvals import Approvals, Record
from skynet.gateway.channel import (
    Accepted,
    Answered,
    ChannelAddress,
    ChannelMessage,
    Deliver,
    Ignored,
    Outcome,
    Room,
    Waiting,
)
from skynet.gateway.commands import RESTARTS, Commands, Parsed, parse_command
from skynet.gateway.keys import owner_of, render_key
from skynet.gateway.people_commands import Sender
from skynet.gateway.rooms import Rooms
from skynet.gateway.run import Inbound, Repeat, Run
from skynet.gateway.run_answer import RunResult
from skynet.gateway.runs import Runs
from skynet.logs import log_context
from skynet.supervisor import Supervisor
from skynet_agent.errors import CallRefused
from skynet_agent.messages import ImageBlock, TextBlock
from skynet_memory.errors import StorageUnavailable
from skynet_memory.ids import DEFAULT_AGENT, Role, RunId, SessionKey, new_id
from skynet_memory.keys import build_key
from skynet_protocol.chat import add_time_prefix, is_stop_word, normalize_message
from skynet_protocol.errors import ErrorCode, RequestError
from skynet_protocol.scopes import greatest_scopes
from skynet_users.approvals import Approval, ApprovalStore
from skynet_users.caller import Caller
from skynet_users.errors import Forbidden, GroupInactive, InvalidProfile
from skynet_users.groups import Group
from skynet_users.people import User
from skynet_users.permissions import Permission, PermissionPolicy
from skynet_users.resolver import RefusedSender, UserResolver
from skynet_users.resolver import Waiting as Unregistered

log = logging.getLogger(__name__)

SEEN_MESSAGES: Final = 10_000
"""Messages that are known again without asking the database, those that began no run among them."""
LONGEST_TEXT: Final = 100_000
"""Characters of one message; no channel has longer ones."""
LONGEST_MESSAGE_ID: Final = 512
SESSION: Final = "main"

WAIT: Final = (
    "I do not know you yet. I have asked somebody who runs this assistant whether we may talk, and I answer you as "
    "soon as they say yes."
)
NOT_ALLOWED: Final = "You may not talk with me here. Somebody who runs this assistant can change that."
ASK_A_GROWN_UP: Final = "I may not talk with you in this room yet. Please ask a grown-up to add you to it."
CANNOT_STORE: Final = "I cannot keep messages at the moment, so I did not take this one. Please try again later."
TOO_LONG: Final = f"This is too long for me: a message may have {LONGEST_TEXT:,} characters."


class Ingress:
    """Takes messages of all channels.

    Args:
        approval_store: where what strangers write is kept until somebody decides.
        record: where it is written down who joined which room.
    """

    def __init__(
        self,
        *,
        resolver: UserResolver,
        policy: PermissionPolicy,
        approvals: Approvals,
        approval_store: ApprovalStore,
        rooms: Rooms,
        commands: Commands,
        runs: Runs,
        tasks: Supervisor,
        record: Record,
    ) -> None:
        self._resolver = resolver
        self._policy = policy
        self._approvals = approvals
        self._approval_store = approval_store
        self.rooms = rooms
        self._commands = commands
        self._runs = runs
        self._tasks = tasks
        self._record = record
        self._channels: dict[str, Deliver] = {}
        self._seen: OrderedDict[tuple[str, ...], None] = OrderedDict()

    def connect(self, channel: str, deliver: Deliver) -> Callable[[], None]:
        """Answers on ``channel`` go to ``deliver`` from now on; returns what ends that.

        Raises:
            ValueError: the channel is connected already.
        """
        if channel in self._channels:
            raise ValueError(f"the channel {channel} is connected already")
        self._channels[channel] = deliver

        def disconnect() -> None:
            if self._channels.get(channel) is deliver:
                del self._channels[channel]

        return disconnect

    async def receive(self, message: ChannelMessage) -> Outcome:
        """Take a message. When this returns it is stored, answered, waiting or ignored; a repeated one is ignored.

        Raises:
            ValueError: the adapter names no message, or a room of another channel.
        """
        if not 1 <= len(message.message_id) <= LONGEST_MESSAGE_ID:
            raise ValueError(f"a message needs an id of 1 to {LONGEST_MESSAGE_ID} characters")
        if message.room is not None and message.room.channel != message.channel:
            raise ValueError(f"{message.channel} delivers no messages of {message.room.channel}")
        identity = _identity(message)
        if identity in self._seen:
            return Ignored("repeated")
        self._seen[identity] = None
        if len(self._seen) > SEEN_MESSAGES:
            self._seen.popitem(last=False)
        try:
            return await self._receive(message)
        except StorageUnavailable:
            self._seen.pop(identity, None)
            return Answered(CANNOT_STORE)
        except BaseException:  # the channel may deliver it again
            self._seen.pop(identity, None)
            raise

    async def left(self, channel: str, room_external_id: str, external_id: str) -> None:
        """The channel says that this account is no longer in the room."""
        user = await self._resolver.known(channel, external_id)
        group = await self.rooms.of_channel(channel, room_external_id)
        if user is not None and group is not None and await self.rooms.leave(group.id, user.id):
            details = {"change": "left", "member": user.id}
            await self._record("group.changed", actor=user.id, subject=group.id, details=details)

    async def registered(self, approval: Approval, user: User) -> None:
        """A stranger was let in as ``user``: what they wrote while they waited is answered now, in its order."""
        for message in _kept(approval):
            try:
                outcome = await self._receive(message)
            except Exception:  # the decision stands, and the next message is answered
                log.exception("a message that waited for %s could not be taken", approval.id)
                continue
            if isinstance(outcome, Answered):
                self._tasks.start(self.deliver(message.address, outcome.text), name=f"deliver to {message.channel}")

    async def deliver(self, address: ChannelAddress, text: str) -> None:
        """Say ``text`` on a channel; if that fails it is logged and lost."""
        deliver = self._channels.get(address.channel)
        if deliver is None:
            log.warning("nothing can be said on %s: it is not connected", address.channel)
            return
        try:
            await deliver(address, text)
        except Exception:
            log.exception("an answer could not be delivered on %s", address.channel)

    # Who

    async def _receive(self, message: ChannelMessage) -> Outcome:
        try:
            text = _clean(message.text)
        except RequestError as exc:
            return Answered(str(exc))
        if len(text) > LONGEST_TEXT:
            return Answered(TOO_LONG)
        if not text.strip() and not message.images:
            return Ignored("empty")
        command = parse_command(text)
        if command is not None and command.name == "/link" and command.argument:
            # Before anything is known of the sender: somebody who links an account is no stranger.
            return Answered(await self._commands.claim(command.argument, _sender(message)))
        found = await self._resolver.resolve(message.channel, message.external_id, display_name=message.display_name)
        if isinstance(found, RefusedSender):
            log.info("ignored a message on %s: %s", message.channel, found.reason)
            return Ignored(found.reason)
        if isinstance(found, Unregistered):
            return await self._wait(message, text, found)
        with log_context(user_id=found.user.id):
            return await self._take(found.user, message, text, command)

    async def _wait(self, message: ChannelMessage, text: str, found: Unregistered) -> Outcome:
        if found.is_new and (approval := await self._approval_store.get(found.approval_id)) is not None:
            await self._approvals.announce(approval)
        room = message.room
        await self._approval_store.add_message(
            found.approval_id,
            text,
            message.at_ms,
            message_id=message.message_id,
            room=None if room is None else (room.external_id, room.name),
        )
        return Waiting(found.approval_id, WAIT, found.is_new)

    # What

    async def _take(self, user: User, message: ChannelMessage, text: str, command: Parsed | None) -> Outcome:
        caller = self._caller(user, message.channel)
        try:
            caller.require(Permission.MESSAGES_SEND)
            group = None if message.room is None else await self._enter(user, message.room)
            return await self._answer(caller, group, message, text, command)
        except Forbidden as exc:
            return Answered(NOT_ALLOWED if exc.permission == Permission.MESSAGES_SEND else str(exc))
        except _NotAMember:
            return Answered(ASK_A_GROWN_UP)
        except InvalidProfile:
            return Ignored("not_a_room")
        except RequestError as exc:
            is_busy = exc.code == ErrorCode.UNAVAILABLE
            return Answered(f"I cannot take this now: {exc}. Please try again in a moment." if is_busy else str(exc))
        except (CallRefused, GroupInactive) as exc:
            return Answered(str(exc))

    async def _enter(self, user: User, room: Room) -> Group:
        """The room's group, which is made when it is first heard of (BA-272). Who talks there is in it.

        Raises:
            GroupInactive: it takes no messages.
            _NotAMember: a child, who is added by a grown-up.
            InvalidProfile: it is no room.
        """
        group = await self.rooms.ensure(room.channel, room.external_id, room.name, user.id)
        if not group.active:
            raise GroupInactive(group.name)
        if not self.rooms.is_member(group.id, user.id):
            if user.role is Role.CHILD:
                raise _NotAMember
            await self.rooms.join(group.id, user.id)
            details = {"change": "joined", "member": user.id}
            await self._record("group.changed", actor=user.id, subject=group.id, details=details)
        return group

    async def _answer(
        self, caller: Caller, group: Group | None, message: ChannelMessage, text: str, command: Parsed | None
    ) -> Outcome:
        """
        Raises:
            Forbidden, RequestError, CallRefused: it is not answered, in words for the sender.
        """
        key = _session(caller, group)
        owner, run_id = owner_of(key), _run_id(message)
        if is_stop_word(text):
            stopped = await self._runs.abort(owner, key, stop_reason="stop")
            return Answered("Stopped." if stopped else "Nothing is running.")
        if command is not None and command.name in RESTARTS:
            if not await self._runs.is_new(caller.user_id, key, "channel", run_id):
                return Ignored("repeated")
            text = await self._commands.restart(caller, key, command)
        elif command is not None:
            return Answered(await self._commands.answer(caller, key, command, _sender(message)))
        submitted = await self._runs.submit(
            Inbound(
                caller=caller,
                key=key,
                run_id=run_id,
                kind="channel",
                content=_content(text, message.images, message.at_ms),
                origin={
                    "label": message.channel,
                    "provider": message.channel,
                    "surface": message.channel,
                    "chatType": "direct" if group is None else "group",
                },
                wire_key=render_key(key),
                group=None if group is None else group.id,
                room_name="" if group is None else group.name,
            )
        )
        if isinstance(submitted, Repeat):
            return Ignored("repeated")
        self._tasks.start(self._deliver_end(submitted, message.address), name=f"deliver {run_id}")
        return Accepted(submitted)

    async def _deliver_end(self, run: Run, address: ChannelAddress) -> None:
        if text := answer_text(await run.wait()):
            await self.deliver(address, text)

    def _caller(self, user: User, channel: str) -> Caller:
        return Caller(
            user_id=user.id,
            role=user.role,
            scopes=greatest_scopes(user.role),
            grants=self._policy.grants(user.role, user.flags),
            correlation_id=new_id(),
            display_name=user.display_name,
            client_id=channel,
            client_name=channel,
            client_mode="channel",
        )


class _NotAMember(Exception):  # noqa: N818
    """Does not come into a room by talking there."""


def answer_text(result: RunResult) -> str:
    """What is said on a channel of how a run ended; "" if there is nothing to say."""
    if result.status == "ok" or result.status == "aborted":
        return result.text
    return "\n\n".join(part for part in (result.text, f"Sorry, that did not work: {result.error}") if part)


def _session(caller: Caller, group: Group | None) -> SessionKey:
    """A person has one conversation, whichever channel it goes on (SK-159); a room has its own."""
    if group is None:
        return build_key(caller.user_id, DEFAULT_AGENT, SESSION)
    return build_key(group.id, DEFAULT_AGENT, SESSION, "group")


def _content(text: str, images: Sequence[ImageBlock], at_ms: int) -> tuple[TextBlock | ImageBlock, ...]:
    at = datetime.fromtimestamp(at_ms / 1000).astimezone()
    return (TextBlock(add_time_prefix(text, at)), *images)


def _clean(text: str) -> str:
    """
    Raises:
        RequestError: it holds what is never typed.
    """
    return normalize_message(text.encode("utf-8", "replace").decode())


def _sender(message: ChannelMessage) -> Sender:
    return Sender(message.channel, message.external_id)


def _identity(message: ChannelMessage) -> tuple[str, ...]:
    """What a message that is delivered again has in common with the first."""
    room = "" if message.room is None else message.room.external_id
    return (message.channel, room, message.external_id, message.message_id)


def _run_id(message: ChannelMessage) -> RunId:
    """The same for the same message, and of a fixed length whatever the channel's ids are."""
    parts = "\0".join(_identity(message)).encode("utf-8", "surrogatepass")
    return RunId(f"channel-{hashlib.sha256(parts).hexdigest()[:40]}")


def _kept(approval: Approval) -> list[ChannelMessage]:
    """What a stranger wrote while they waited."""
    subject = approval.subject
    channel, external_id = str(subject["channel"]), str(subject["external_id"])
    found = subject.get("messages")
    messages = []
    for number, kept in enumerate(found if isinstance(found, list) else []):
        if not isinstance(kept, dict):
            continue
        room, at_ms = kept.get("room"), kept.get("at_ms")
        messages.append(
            ChannelMessage(
                channel=channel,
                external_id=external_id,
                display_name=str(subject.get("display_name", "")),
                text=str(kept.get("text", "")),
                message_id=str(kept.get("id") or f"{approval.id}:{number}"),
                at_ms=at_ms if isinstance(at_ms, int) else approval.created_at_ms,
                room=Room(channel=channel, external_id=str(room[0]), name=str(room[1]))
                if isinstance(room, list) and len(room) == 2
                else None,
            )
        )
    return messages
