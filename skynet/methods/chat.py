"""``chat.*``: talking in a session (OPENCLAW-V3 6.5)."""

import logging
from datetime import datetime
from functools import partial

from msgspec import UNSET

from skynet.gateway.broadcast import Broadcaster
from skynet.gateway.commands import DECISIONS, RESTARTS, Commands, parse_command
from skynet.gateway.dispatch import method
from skynet.gateway.keys import owner_of, resolve_key
from skynet.gateway.rooms import Rooms
from skynet.gateway.run import Inbound, Repeat
from skynet.gateway.run_answer import gateway_message, user_content
from skynet.gateway.runs import Runs
from skynet.gateway.session_levels import thinking_level
from skynet.gateway.transcript import history_messages
from skynet.gateway.transcript_access import TranscriptAccess
from skynet_agent.messages import encode_message
from skynet_memory.errors import SessionNotFound
from skynet_memory.ids import RunId, SessionKey, now_ms
from skynet_memory.sessions import SessionStore
from skynet_memory.transcripts import TranscriptStore
from skynet_protocol.chat import (
    ChatAbortParams,
    ChatAbortResult,
    ChatHistoryParams,
    ChatHistoryResult,
    ChatInjectParams,
    ChatInjectResult,
    ChatSendParams,
    ChatSendResult,
    decode_attachments,
    is_stop_word,
    normalize_message,
    require_content,
)
from skynet_protocol.errors import DetailCode, RequestError
from skynet_protocol.events import ChatEvent, assistant_message
from skynet_users.caller import Caller

log = logging.getLogger(__name__)

NO_TIMEOUT_MS = 2_147_000_000
"""``timeoutMs`` 0 in OpenClaw's arithmetic: some 24 days."""


class ChatMethods:
    """``chat.send``, ``.abort``, ``.history``, ``.inject``. All but the last in rooms too, for who is in them."""

    def __init__(
        self,
        *,
        runs: Runs,
        sessions: SessionStore,
        transcripts: TranscriptStore,
        broadcaster: Broadcaster,
        commands: Commands,
        rooms: Rooms | None = None,
        others: TranscriptAccess | None = None,
    ) -> None:
        """
        Args:
            others: lets guardians read; without it nobody reads another's conversation.
        """
        self._rooms = rooms
        self._others = others
        self._runs = runs
        self._sessions = sessions
        self._transcripts = transcripts
        self._broadcaster = broadcaster
        self._commands = commands

    @method("chat.send")
    async def send(self, caller: Caller, params: ChatSendParams) -> ChatSendResult | ChatAbortResult:
        """Take a message for a session; answers once, as soon as the message is stored.

        A stop word stops the session's runs instead, and a known ``/command`` is answered without the model.

        Raises:
            GroupInactive: the session is of a room that takes no messages.
        """
        key = self._key(caller, params.session_key, self._rooms)
        room = None if self._rooms is None else await self._rooms.admit(caller.user_id, key)
        message = normalize_message(params.message)
        attachments = decode_attachments(params.attachments)
        require_content(message, attachments)
        if attachments.dropped:
            log.info("dropped attachments that are no images: %s", ", ".join(attachments.dropped))
        if is_stop_word(message):
            return await self._stop(key, stop_reason="stop")
        run_id, thinking = RunId(params.idempotency_key), thinking_level(params.thinking)
        command = parse_command(message)
        reply = None
        if command is not None and command.name in RESTARTS:
            if await self._runs.is_new(caller.user_id, key, "chat", run_id):
                message = await self._commands.restart(caller, key, command)
        elif command is not None:
            reply = partial(self._commands.answer, caller, key, command)
        submitted = await self._runs.submit(
            Inbound(
                caller=caller,
                key=key,
                run_id=run_id,
                kind="chat",
                content=user_content(message, attachments, datetime.now().astimezone()),
                reply=reply,
                beside=command is not None and command.name in DECISIONS,
                thinking=thinking,
                timeout_s=_timeout_s(params),
                origin={
                    "label": caller.client_name,
                    "provider": "webchat",
                    "surface": "webchat",
                    "chatType": "direct" if room is None else "group",
                },
                wire_key=params.session_key,
                group=None if room is None else room.id,
                room_name="" if room is None else room.name,
            )
        )
        if not isinstance(submitted, Repeat):
            if (connection := self._broadcaster.get(caller.conn_id)) is not None:
                connection.hold_events()
            return ChatSendResult(run_id=run_id, status="started")
        if submitted.status == "running":
            return ChatSendResult(run_id=run_id, status="in_flight")
        return ChatSendResult(run_id=run_id, status="ok")

    @method("chat.abort")
    async def abort(self, caller: Caller, params: ChatAbortParams) -> ChatAbortResult:
        """Stop the session's runs, or one of them; the ``aborted`` events precede the answer."""
        key = resolve_key(caller, params.session_key, self._rooms)
        run_id = None if params.run_id is UNSET else params.run_id
        return await self._stop(key, stop_reason="rpc", run_id=run_id)

    @method("chat.history")
    async def history(self, caller: Caller, params: ChatHistoryParams) -> ChatHistoryResult:
        """The last messages of a session, oldest first, as OPENCLAW-V3 8.4 trims them.

        Of a room those since the caller joined it, unless it shows its members all (BA-273). Guardians whom a setting
        lets read a child's conversations name them by their full key; each reading is recorded.
        """
        try:
            key = self._key(caller, params.session_key, self._rooms)
        except SessionNotFound:
            opened = None if self._others is None else await self._others.open(caller, params.session_key)
            if opened is None:
                raise
            key = opened
        from_ms = 0 if self._rooms is None else await self._rooms.visible_from_ms(caller.user_id, key)
        session = await self._sessions.get(owner_of(key), key)
        if session is None:
            return ChatHistoryResult(session_key=params.session_key, messages=[], thinking_level="off")
        entries = await self._transcripts.history(
            owner_of(key), session.session_id, limit=params.limit, include_covered=True
        )
        return ChatHistoryResult(
            session_key=params.session_key,
            session_id=session.session_id,
            messages=history_messages(entry for entry in entries if entry.created_at_ms >= from_ms),
            thinking_level=str(session.settings.get("thinkingLevel", "off")),
            verbose_level=str(session.settings["verboseLevel"]) if "verboseLevel" in session.settings else UNSET,
        )

    @method("chat.inject")
    async def inject(self, caller: Caller, params: ChatInjectParams) -> ChatInjectResult:
        """Add an assistant message that no model wrote to the session, and show it.

        Raises:
            RequestError: ``session not found``.
        """
        key = self._key(caller, params.session_key)
        text = f"[{params.label}]\n\n{params.message}" if params.label else params.message
        at_ms = now_ms()
        message = gateway_message(text, at_ms)
        if await self._sessions.get(caller.user_id, key) is None:
            raise RequestError("session not found", details={"code": DetailCode.NOT_FOUND})
        entry = await self._transcripts.append(caller.user_id, key, encode_message(message))
        self._broadcaster.publish_to_session(
            "chat",
            key,
            lambda form: ChatEvent(
                run_id=f"inject-{entry.id}",
                session_key=form,
                seq=0,
                state="final",
                message=assistant_message(text, at_ms),
            ),
            owner=caller.user_id,
        )
        return ChatInjectResult(ok=True, message_id=entry.id)

    def _key(self, caller: Caller, wire_key: str, rooms: Rooms | None = None) -> SessionKey:
        """The session meant; events about it go to this connection under the key as it was written."""
        key = resolve_key(caller, wire_key, rooms)
        if (connection := self._broadcaster.get(caller.conn_id)) is not None:
            connection.hold(key, wire_key)
        return key

    async def _stop(self, key: SessionKey, *, stop_reason: str, run_id: str | None = None) -> ChatAbortResult:
        stopped = await self._runs.abort(owner_of(key), key, stop_reason=stop_reason, run_id=run_id)
        return ChatAbortResult(ok=True, aborted=bool(stopped), run_ids=stopped)


def _timeout_s(params: ChatSendParams) -> float | None:
    if params.timeout_ms is UNSET:
        return None
    return (params.timeout_ms or NO_TIMEOUT_MS) / 1000
