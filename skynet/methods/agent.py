"""``agent`` and ``agent.wait``: one turn, answered when it is over (OPENCLAW-V3 6.6, 7)."""

from datetime import datetime

from msgspec import UNSET, Raw

from skynet.gateway.broadcast import Broadcaster
from skynet.gateway.commands import RESTARTS, Commands, parse_command
from skynet.gateway.dispatch import TwoPhase, Waiting, method
from skynet.gateway.keys import key_part, render_key, resolve_key
from skynet.gateway.rooms import Rooms
from skynet.gateway.run import Inbound, Repeat, Run
from skynet.gateway.run_answer import agent_result, user_content
from skynet.gateway.runs import Runs
from skynet.gateway.session_levels import thinking_level
from skynet_memory.ids import DEFAULT_AGENT, RunId, SessionId, SessionKey
from skynet_memory.keys import build_key
from skynet_memory.sessions import SessionStore
from skynet_protocol.agent import AgentAccepted, AgentParams, AgentWaitParams, AgentWaitResult
from skynet_protocol.chat import decode_attachments, normalize_message, require_content
from skynet_protocol.errors import ErrorCode, RequestError
from skynet_protocol.params import invalid_params
from skynet_protocol.session_keys import FullKey, parse_wire_key
from skynet_users.caller import Caller

MAX_WAIT_S = 86_400.0
"""Longer than any run: what a client that asks for more waits at most."""


class RunMethods:
    """``agent``, ``agent.wait``."""

    def __init__(
        self,
        *,
        runs: Runs,
        sessions: SessionStore,
        broadcaster: Broadcaster,
        commands: Commands,
        rooms: Rooms | None = None,
    ) -> None:
        self._rooms = rooms
        self._runs = runs
        self._sessions = sessions
        self._broadcaster = broadcaster
        self._commands = commands

    @method("agent")
    async def agent(self, caller: Caller, params: AgentParams) -> object:
        """Run one turn: ``accepted`` once the message is stored, the result when the run is over.

        A key that was used before answers with what is known of its run, and runs nothing.
        """
        self._check_agent(params)
        if params.deliver:
            self._refuse_delivery(params)
        key, session_id = await self._session(caller, params)
        room = None if self._rooms is None else await self._rooms.admit(caller.user_id, key)
        message = normalize_message(params.message)
        attachments = decode_attachments(params.attachments)
        require_content(message, attachments)
        run_id, thinking = RunId(params.idempotency_key), thinking_level(params.thinking)
        command = parse_command(message)
        if (
            command is not None
            and command.name in RESTARTS
            and await self._runs.is_new(caller.user_id, key, "agent", run_id)
        ):
            message = await self._commands.restart(caller, key, command)
        # A session that is known by its id alone has no key on the wire: its runs have no chat events.
        wire_key = "" if session_id else params.session_key or render_key(key)
        if wire_key and (connection := self._broadcaster.get(caller.conn_id)) is not None:
            connection.hold(key, wire_key)
        submitted = await self._runs.submit(
            Inbound(
                caller=caller,
                key=key,
                run_id=run_id,
                kind="agent",
                content=user_content(message, attachments, datetime.now().astimezone()),
                system=params.extra_system_prompt,
                thinking=thinking,
                timeout_s=None if params.timeout is UNSET else float(params.timeout),
                origin={"label": caller.client_name, "chatType": "direct" if room is None else "group"},
                wire_key=wire_key,
                session_id=session_id,
                group=None if room is None else room.id,
                room_name="" if room is None else room.name,
            )
        )
        if not isinstance(submitted, Repeat):
            accepted = AgentAccepted(run_id=run_id, accepted_at=submitted.accepted_at_ms, status="accepted")
            return TwoPhase(accepted, _final(submitted))
        if submitted.response is not None:
            return Raw(submitted.response)
        if submitted.run is not None:
            return AgentAccepted(run_id=run_id, accepted_at=submitted.started_at_ms, status="accepted")
        raise RequestError("the run was interrupted", code=ErrorCode.UNAVAILABLE)

    @method("agent.wait")
    def wait(self, caller: Caller, params: AgentWaitParams) -> Waiting:
        """Wait for the end of a run, begun or not; an aborted run answers ``timeout``, as in OpenClaw."""
        return Waiting(self._wait(caller, params))

    async def _wait(self, caller: Caller, params: AgentWaitParams) -> AgentWaitResult:
        timeout_s = min(params.timeout_ms / 1000, MAX_WAIT_S)
        run_id = RunId(params.run_id)
        rooms = [] if self._rooms is None else self._rooms.of(caller.user_id)
        owner = next((room for room in rooms if self._runs.knows(room, run_id)), caller.user_id)
        result = await self._runs.result(owner, run_id, timeout_s=timeout_s)
        if result is None or result.status in ("aborted", "timeout"):
            return AgentWaitResult(run_id=params.run_id, status="timeout")
        return AgentWaitResult(
            run_id=params.run_id,
            status="ok" if result.status == "ok" else "error",
            started_at=result.started_at_ms,
            ended_at=result.ended_at_ms,
            error=result.error or UNSET,
        )

    def _check_agent(self, params: AgentParams) -> None:
        if params.agent_id and params.agent_id != DEFAULT_AGENT:
            raise invalid_params("agent", f'unknown agent id "{params.agent_id}"')
        if not params.session_key:
            return
        try:
            parsed = parse_wire_key(params.session_key)
        except RequestError as exc:
            raise invalid_params("agent", str(exc)) from exc
        if isinstance(parsed, FullKey):
            return
        if params.agent_id and parsed.agent_id != params.agent_id:
            raise invalid_params(
                "agent", f'agent "{params.agent_id}" does not match session key agent "{parsed.agent_id}"'
            )
        if parsed.agent_id != DEFAULT_AGENT:
            raise invalid_params("agent", f'unknown agent id "{parsed.agent_id}"')

    def _refuse_delivery(self, params: AgentParams) -> None:
        """No chat channel is served yet, so there is nowhere to deliver to; in OpenClaw's words."""
        channel = params.reply_channel or params.channel
        if channel and channel != "last":
            raise invalid_params("agent", f"unknown channel: {channel}")
        raise RequestError("Error: Channel is required (no configured channels detected).")

    async def _session(self, caller: Caller, params: AgentParams) -> tuple[SessionKey, SessionId | None]:
        """The session of the turn, and its id if that is what names it: key, else id, else the main session."""
        if params.session_key:
            return resolve_key(caller, params.session_key, self._rooms), None
        if params.session_id:
            session_id = SessionId(params.session_id)
            known = await self._sessions.by_session_id(caller.user_id, session_id)
            key = (
                known.key
                if known is not None
                else build_key(caller.user_id, DEFAULT_AGENT, f"id:{key_part(session_id)}")
            )
            return key, session_id
        return resolve_key(caller, "main"), None


async def _final(run: Run) -> object:
    return agent_result(await run.wait())
