"""What nodes tell by themselves (``node.event``, OPENCLAW-V3 6.13): messages of their person, and how commands ended.

A node speaks for its person and reaches that person's own sessions, none of a room.
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from typing import Final

import msgspec

from skynet.gateway.broadcast import MAX_SUBSCRIPTIONS, Broadcaster
from skynet.gateway.heartbeat import SystemEvents
from skynet.gateway.keys import resolve_key
from skynet.gateway.run import Inbound
from skynet.gateway.run_answer import user_content
from skynet.gateway.run_request import MAIN_SESSION
from skynet.gateway.session_levels import thinking_level
from skynet_memory.ids import DEFAULT_AGENT, RunId, SessionKey, new_id
from skynet_memory.keys import build_key
from skynet_protocol.chat import decode_attachments, normalize_message, require_content
from skynet_protocol.errors import DetailCode, RequestError
from skynet_protocol.nodes import AgentRequest, ChatSubscription, ExecNotice, VoiceTranscript
from skynet_protocol.params import decode_params
from skynet_protocol.scopes import greatest_scopes
from skynet_users.caller import Caller
from skynet_users.permissions import Permission

log = logging.getLogger(__name__)

LONGEST_TEXT: Final = 20_000
"""Characters of a spoken or a written message of a node."""
SHOWN_OUTPUT: Final = 2000
"""Characters of a command's output that a system event tells, of its end."""

_VOICE = msgspec.json.Decoder(VoiceTranscript)
_AGENT = msgspec.json.Decoder(AgentRequest)
_CHAT = msgspec.json.Decoder(ChatSubscription)
_EXEC = msgspec.json.Decoder(ExecNotice)


class NodeEvents:
    """Takes the events of nodes. Unknown ones are ignored.

    Args:
        submit: takes a message as :meth:`skynet.gateway.runs.Runs.submit` does.
    """

    def __init__(
        self,
        *,
        submit: Callable[[Inbound], Awaitable[object]],
        events: SystemEvents,
        broadcaster: Broadcaster,
    ) -> None:
        self._submit = submit
        self._events = events
        self._broadcaster = broadcaster

    async def receive(self, caller: Caller, event: str, payload: bytes) -> None:
        """Take one event.

        Args:
            payload: JSON; empty for none.

        Raises:
            RequestError: the payload makes no sense, or the message is not taken now.
            SessionNotFound: it names a session of somebody else.
            Forbidden: its person may not.
        """
        match event:
            case "voice.transcript":
                await self._heard(caller, decode_params(payload or None, _VOICE, event))
            case "agent.request":
                await self._asked(caller, decode_params(payload or None, _AGENT, event))
            case "chat.subscribe" | "chat.unsubscribe":
                subscription = decode_params(payload or None, _CHAT, event)
                self._subscribe(caller, subscription, ends=event == "chat.unsubscribe")
            case "exec.started" | "exec.finished" | "exec.denied":
                self._executed(caller, event, decode_params(payload or None, _EXEC, event))
            case _:
                log.debug("ignored the event %.64r of a node", event)

    async def _heard(self, caller: Caller, heard: VoiceTranscript) -> None:
        if not heard.text.strip():
            return
        event_id = f"{caller.device_id}\0{heard.event_id}" if heard.event_id else new_id()
        run_id = "voice-" + hashlib.sha256(event_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        await self._say(caller, heard.text, heard.session_key or "main", RunId(run_id))

    async def _asked(self, caller: Caller, asked: AgentRequest) -> None:
        session_key = asked.session_key or f"node-{caller.device_id}"
        await self._say(caller, asked.message, session_key, RunId(f"node-{new_id()}"), asked)

    async def _say(
        self, caller: Caller, text: str, session_key: str, run_id: RunId, asked: AgentRequest | None = None
    ) -> None:
        """Take a message of the node's person: it is stored when this returns. Nothing waits for the answer."""
        caller.require(Permission.MESSAGES_SEND)
        if len(text) > LONGEST_TEXT:
            raise RequestError(
                f"message is {len(text)} characters, limit is {LONGEST_TEXT}",
                details={"code": DetailCode.INVALID_PARAMS},
            )
        key, message = resolve_key(caller, session_key), normalize_message(text)
        attachments = decode_attachments(asked.attachments or () if asked else ())
        require_content(message, attachments)
        await self._submit(
            Inbound(
                caller=_speaking(caller),
                key=key,
                run_id=run_id,
                kind="agent",
                content=user_content(message, attachments, datetime.now().astimezone()),
                thinking=thinking_level(asked.thinking or "") if asked else "",
                timeout_s=float(asked.timeout_seconds) if asked and asked.timeout_seconds else None,
                origin={"label": caller.client_name, "provider": "node", "surface": "node", "chatType": "direct"},
                wire_key=session_key,
            )
        )

    def _subscribe(self, caller: Caller, subscription: ChatSubscription, *, ends: bool) -> None:
        key = resolve_key(caller, subscription.session_key)
        connection = self._broadcaster.get(caller.conn_id)
        if connection is None:
            return
        if ends:
            self._broadcaster.unsubscribe(connection, key)
            return
        caller.require(Permission.SESSIONS_READ)
        connection.hold(key, subscription.session_key)
        if not self._broadcaster.subscribe(connection, key):
            raise RequestError(f"a node subscribes to {MAX_SUBSCRIPTIONS} sessions at most")

    def _executed(self, caller: Caller, event: str, notice: ExecNotice) -> None:
        """Tell the person's main session of a command that was begun for it. Others are told by their results alone."""
        key = resolve_key(caller, notice.session_key)
        if key == _main(caller):
            self._events.add(caller.user_id, _told(caller.client_name, event, notice))


def _speaking(caller: Caller) -> Caller:
    """The person for whom a node speaks."""
    return replace(
        caller,
        gateway_role="operator",
        scopes=greatest_scopes(caller.role),
        conn_id=None,
        correlation_id=new_id(),
    )


def _main(caller: Caller) -> SessionKey:
    return build_key(caller.user_id, DEFAULT_AGENT, MAIN_SESSION)


def _told(node: str, event: str, notice: ExecNotice) -> str:
    about = [f"node={node}", *([f"id={notice.run_id}"] if notice.run_id else [])]
    command = f": {notice.command}" if notice.command else ""
    if event == "exec.started":
        return f"Exec started ({' '.join(about)}){command}"
    if event == "exec.denied":
        return f"Exec denied ({' '.join(about)}, {notice.reason or 'no reason given'}){command}"
    how = "timed out" if notice.timed_out else f"code {'?' if notice.exit_code is None else notice.exit_code}"
    output = (notice.output or "").strip()
    return f"Exec finished ({' '.join(about)}, {how})" + (f"\n{output[-SHOWN_OUTPUT:]}" if output else "")
