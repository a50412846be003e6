"""What a run asks its model: the prompt, the conversation that fits, the options and the tools."""

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from skynet.gateway.context import in_turns, opening, within_window
from skynet.gateway.heartbeat import SystemEvents
from skynet.gateway.run_hooks import hook_user
from skynet.gateway.tool_calls import ToolCalls, ToolUser
from skynet_agent.errors import UnknownModel
from skynet_agent.messages import Message, Speaker, UserBlock, UserMessage, decode_message
from skynet_agent.prompt import PersonFacts, Prompts, SessionFacts, client_text
from skynet_agent.requests import ModelOptions, ModelRequest
from skynet_agent.router import Router
from skynet_agent.speakers import with_names
from skynet_agent.thinking import thinking_level
from skynet_agent.tokens import message_tokens
from skynet_agent.tools import ToolContext
from skynet_agent.turn import ToolRunner
from skynet_agent.turn_order import as_told, reworded
from skynet_memory.compactions import CompactionStore
from skynet_memory.ids import DEFAULT_AGENT, EntryId, Role, UserId
from skynet_memory.keys import parse_key
from skynet_users.caller import Caller
from skynet_users.people import User
from skynet_users.permissions import ROLE_GRANTS, Permission

if TYPE_CHECKING:
    from skynet.gateway.run import Inbound, Run

log = logging.getLogger(__name__)

MAIN_SESSION = "main"
DEFAULT_WINDOW_TOKENS = 128_000
HISTORY_MESSAGES = 80
"""At most this many stored messages go to the model (DESIGN 12), where nothing keeps conversations short."""
COMPACTED_MESSAGES = 1_000
"""The same where conversations are summarised: far more than that leaves, so that nothing is missing between the
summaries and the messages."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and who carries out its calls: None if they are the client's own."""

    request: ModelRequest
    tools: ToolRunner | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _History:
    """What was said before. ``is_limited``: it is as much as is ever looked at, and there is more."""

    messages: Sequence[Message] = field(kw_only=False)
    is_whole: bool
    is_limited: bool
    opening: Sequence[UserBlock] = ()


class RunRequests:
    """Makes the request of a run at the moment it begins.

    Args:
        memory: what the prompt tells of an owner of sessions: a person, or a room.
        max_output_tokens: of an answer, where the message does not say; None leaves it to the model.
        history_messages: at most so many of the stored messages that no summary stands for are told.
    """

    def __init__(
        self,
        *,
        compactions: CompactionStore,
        router: Router,
        system_events: SystemEvents,
        tools: ToolCalls,
        prompts: Prompts,
        memory: Callable[[UserId], Awaitable[str]] | None = None,
        max_output_tokens: int | None = None,
        history_messages: int = COMPACTED_MESSAGES,
    ) -> None:
        self._compactions = compactions
        self._router = router
        self._system_events = system_events
        self._tools = tools
        self._toolbox = tools.toolbox
        self._memory = memory
        self._prompts = prompts
        self._max_output_tokens = max_output_tokens
        self._history_messages = history_messages

    async def make(
        self, run: "Run", user: User | None, *, waiting: Collection[EntryId | None], text: str | None = None
    ) -> Asked:
        """The request of ``run``.

        Args:
            user: who asked, as they are now.
            text: what the message says to the model, if that is not what was written.
            waiting: the person's entries of this session that are not answered yet, the run's own among them.
        """
        await self._toolbox.refresh()
        inbound = run.inbound
        model = inbound.model or run.session.model
        own = _reworded(own_message(inbound, run.accepted_at_ms), inbound.text, text)
        if inbound.history is None:
            history = await self._stored_history(run, waiting)
        else:  # a client that keeps the conversation itself knows of no session
            history = _History(inbound.history, is_whole=False, is_limited=False)
        options, tools = self._options(run, user, model)
        before = history.messages
        conversation = before if before and before[-1] is own else [*before, own]
        if inbound.group is not None:
            conversation = with_names(conversation)
        person = _facts(inbound.caller, user if inbound.group is None else None)
        person = replace(
            person,
            refused_tools=self._toolbox.refused(_context(run)) if tools else (),
            memory="" if self._memory is None else await self._memory(run.owner),
            room="" if inbound.group is None else inbound.room_name or "a room",
        )
        session = SessionFacts(
            channel=inbound.origin.get("label", "") if inbound.history is None else "",
            turn=sum(isinstance(message, UserMessage) for message in conversation) if history.is_whole else 0,
            # Last, because it takes them: nothing can fail between here and the model.
            events=self._events(run),
        )
        tiers = self._prompts.tiers(person, session, options.tools if tools else ())
        system, volatile = (*tiers.system, client_text(inbound.system, inbound.caller.role)), tiers.volatile
        request = ModelRequest(
            model=model,
            system=system,
            volatile=volatile,
            messages=within_window(
                conversation,
                system=(*system, volatile),
                tools=options.tools,
                window_tokens=self.window(model) or DEFAULT_WINDOW_TOKENS,
                is_cut=history.is_limited,
                opening=history.opening,
            ),
            options=options,
            cache_key=_cache_key(run),
            purpose=inbound.kind,
        )
        return Asked(request, tools)

    def window(self, model: str) -> int | None:
        """Tokens that the model holds; None for one that nobody described."""
        try:
            return self._router.resolve(model).context_window
        except UnknownModel:  # the turn says so
            return None

    async def _stored_history(self, run: "Run", waiting: Collection[EntryId | None]) -> "_History":
        """What was said before ``run``, without the messages that came after it and wait."""
        limit = self._history_messages + len(waiting)
        window = await self._compactions.window(run.owner, run.session.session_id, limit=limit)
        entries = window.entries
        messages: list[Message] = []
        is_later = False
        for entry in entries:
            is_later = is_later or entry.id == run.entry_id
            if entry.kind not in ("message", "tool_result") or entry.id in waiting:
                continue
            try:
                message = decode_message(entry.payload)
            except ValueError as exc:  # of a newer version: the session is not lost for one message
                log.warning("left out entry %s of the conversation, it cannot be read: %s", entry.id, exc)
                continue
            # One that was stored just now is not in the lane yet. Answers stand after what was said meanwhile.
            if not (is_later and isinstance(message, UserMessage)):
                messages.append(message)
        is_cut = bool(entries) and entries[0].parent_id is not None
        return _History(
            as_told(in_turns(messages, is_cut=is_cut)),
            is_whole=not is_cut,
            is_limited=window.is_cut,
            opening=opening(window),
        )

    def _events(self, run: "Run") -> Sequence[str]:
        """What happened since the last message of the person's main session; told once."""
        parsed = parse_key(run.key)
        is_main = (parsed.agent, parsed.name) == (DEFAULT_AGENT, MAIN_SESSION)
        return self._system_events.take(run.owner) if is_main else ()

    def _options(self, run: "Run", user: User | None, model: str) -> tuple[ModelOptions, ToolRunner | None]:
        """The request's options, and who carries out the tools.

        A model that thinks is told how much, by the message or by the session. A client that brings tools of its own
        carries them out itself, and gets no others. A model that cannot call tools answers without the gateway's:
        nobody takes its place for their sake.
        """
        options = run.inbound.options
        level = run.inbound.thinking or run.session.settings.get("thinkingLevel")
        if options.thinking is None and level:
            options = replace(options, thinking=thinking_level(str(level)))
        if options.max_tokens is None and self._max_output_tokens is not None:
            options = replace(options, max_tokens=self._max_output_tokens)
        if options.tools or options.tool_choice == "none" or not self._router.offers_tools(model):
            return options, None
        definitions = self._toolbox.definitions()
        if not definitions:
            return options, None
        return replace(options, tools=definitions, tools_optional=True), self._runner(run, user)

    def _runner(self, run: "Run", user: User | None) -> ToolRunner:
        under_approval = user if user is not None and user.requires_approval else None
        return self._tools.runner(
            _context(run), ToolUser(told=hook_user(run.inbound.caller), under_approval=under_approval)
        )


def _context(run: "Run") -> ToolContext:
    caller, room = run.inbound.caller, run.inbound.group
    # The words of all who are in a room stand in its prompts: they move nobody's model to what is for few
    allowed = set(Permission if room is None else ROLE_GRANTS[Role.USER])
    if room is not None and caller.role is Role.CHILD:
        allowed -= {Permission.MEMORY_WRITE}  # what is remembered there stands in grown-ups' prompts
    return ToolContext(
        user_id=run.person,
        role=Role.USER if room is not None and caller.role is Role.ADMIN else caller.role,
        session_key=run.key,
        run_id=run.run_id,
        permissions=frozenset(permission for permission in allowed if caller.may(permission)),
        group=room,
    )


def _facts(caller: Caller, user: User | None) -> PersonFacts:
    """What the prompt tells of a person; in a room, where others read, no more than the name and the role."""
    if user is None:
        return PersonFacts(display_name=caller.display_name, role=caller.role)
    return PersonFacts(
        display_name=user.display_name,
        role=user.role,
        language=user.language,
        tone=user.tone,
        interests=user.interests,
        age=user.age,
        time_zone=user.time_zone,
        content_filter=user.content_filter if user.role is Role.CHILD else "",
        is_new=user.needs_welcome,
    )


def _reworded(message: Message, was: str, text: str | None) -> Message:
    """``message`` with another text; its images stay."""
    if text is None or text == was or not isinstance(message, UserMessage):
        return message
    return reworded(message, text)


def _cache_key(run: "Run") -> str:
    """What a provider's cache finds the conversation by; "" for one that may never go on.

    A client of HTTP that names no session has a new one with each request. A key of its own would keep each of them
    from what the others, with the same beginning, left in the cache.
    """
    is_new = run.inbound.kind == "http" and not run.session.system_sent
    return "" if is_new else run.session.session_id


def own_message(inbound: "Inbound", at_ms: int) -> Message:
    """What ``inbound`` adds to its session."""
    if not inbound.content and inbound.history:
        return inbound.history[-1]
    caller = inbound.caller
    return UserMessage(
        content=list(inbound.content),
        timestamp=at_ms,
        channel=caller.client_id,
        speaker=None if inbound.group is None else Speaker(id=caller.user_id, name=caller.display_name),
    )


def shorter(messages: Sequence[Message]) -> Sequence[Message] | None:
    """The newest turns of a conversation, at most half of it unless it is one turn; None when only that is left."""
    starts = [number for number, message in enumerate(messages) if number and isinstance(message, UserMessage)]
    sizes = [*accumulate(map(message_tokens, reversed(messages)))][::-1]  # each with all that follows it
    fitting = [start for start in starts if 2 * sizes[start] <= sizes[0]] or starts[-1:]
    return messages[fitting[0] :] if fitting else None
