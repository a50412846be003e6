"""What hooks are asked and told in the life of a run."""

from typing import Protocol

from skynet.gateway.model_calls import hook_usage
from skynet.gateway.run import Inbound, Run
from skynet.gateway.run_answer import RunResult
from skynet.hooks import (
    AgentCompleted,
    AgentStarted,
    BeforeMessage,
    Gate,
    HookBus,
    HookUser,
    MessageReceived,
    MessageSent,
    SessionEnded,
    SessionStarted,
    Stopped,
)
from skynet_agent.errors import CallRefused
from skynet_agent.messages import ImageBlock, text_of
from skynet_memory.ids import SessionKey
from skynet_users.caller import Caller


class SessionEnd(Protocol):
    """Told of a session that has ended; one that was reset begins anew."""

    def __call__(self, caller: Caller, key: SessionKey, *, was_reset: bool) -> None: ...


def not_told(caller: Caller, key: SessionKey, *, was_reset: bool) -> None:
    """Where nobody wants to know."""


def hook_user(caller: Caller) -> HookUser:
    """A caller, as hooks are told."""
    return HookUser(id=caller.user_id, role=caller.role, display_name=caller.display_name)


class RunHooks:
    """Nothing here costs anything where nobody listens."""

    def __init__(self, bus: HookBus) -> None:
        self._bus = bus

    async def received(self, inbound: Inbound) -> str:
        """Ask the gates of a message; returns its text as they left it.

        Raises:
            Stopped: one of them said no. The reason is the answer.
        """
        text = inbound.text
        if not (self._bus.has(BeforeMessage) or self._bus.has(MessageReceived)):
            return text
        user, source = hook_user(inbound.caller), inbound.origin.get("label", "")
        images = sum(isinstance(block, ImageBlock) for block in inbound.content)
        gate = BeforeMessage(
            user=user, session=inbound.key, run=inbound.run_id, text=text, images=images, source=source
        )
        try:
            gate = await self._bus.ask(gate)
        except Stopped as stopped:
            self._announce_received(inbound, stopped.event, stopped.reason)
            raise
        self._announce_received(inbound, gate)
        return gate.text

    def _announce_received(self, inbound: Inbound, gate: Gate, blocked: str = "") -> None:
        assert isinstance(gate, BeforeMessage), "a gate is asked with its own event"
        self._bus.announce(
            MessageReceived(
                user=gate.user,
                session=inbound.key,
                run=inbound.run_id,
                text=gate.text,
                images=gate.images,
                source=gate.source,
                blocked=blocked,
            )
        )

    def session_started(self, run: Run) -> None:
        """The message was the first of its session."""
        self._bus.announce(SessionStarted(user=hook_user(run.inbound.caller), session=run.key, run=run.run_id))

    def session_ended(self, caller: Caller, key: SessionKey, *, was_reset: bool) -> None:
        """A session was reset or deleted; one that was reset begins anew."""
        if was_reset:
            self._bus.announce(SessionEnded(user=hook_user(caller), session=key, reason="reset"))
            self._bus.announce(SessionStarted(user=hook_user(caller), session=key, reason="reset"))
        else:
            self._bus.announce(SessionEnded(user=hook_user(caller), session=key, reason="deleted"))

    def started(self, run: Run) -> None:
        """The assistant sets to work."""
        run.is_announced = True
        if self._bus.has(AgentStarted):
            model = run.inbound.model or run.session.model
            self._bus.announce(
                AgentStarted(user=hook_user(run.inbound.caller), session=run.key, run=run.run_id, model=model)
            )

    def ended(self, run: Run, result: RunResult) -> None:
        """The run has its end, which is stored, if it can be."""
        user = hook_user(run.inbound.caller)
        if self._bus.has(MessageSent) and (text := text_of(result.message)):
            self._bus.announce(MessageSent(user=user, session=run.key, run=run.run_id, text=text))
        if run.is_announced and self._bus.has(AgentCompleted):
            self._bus.announce(
                AgentCompleted(
                    user=user,
                    session=run.key,
                    run=run.run_id,
                    status="blocked" if _was_blocked(result) else result.status,
                    usage=hook_usage(*(answer.usage for answer in result.answers)),
                    rounds=len(result.answers),
                    duration_ms=result.ended_at_ms - result.started_at_ms,
                )
            )


def _was_blocked(result: RunResult) -> bool:
    return isinstance(result.exception, CallRefused) and result.exception.code == "BLOCKED"
