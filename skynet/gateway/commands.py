"""Messages that begin with a known ``/command``: answered by the gateway, without the model (OPENCLAW-V3 7.7)."""

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from skynet.gateway.keys import owner_of, render_key, room_of
from skynet.gateway.people_commands import PeopleCommands, Sender, describe_caller
from skynet.gateway.run_hooks import SessionEnd, not_told
from skynet.gateway.session_levels import normalise
from skynet.version import VERSION
from skynet_agent.errors import UnknownModel
from skynet_agent.router import Router
from skynet_memory.errors import SessionNotFound
from skynet_memory.ids import SessionId, SessionKey, UserId
from skynet_memory.sessions import Session, SessionChanges, SessionStore
from skynet_protocol.errors import RequestError
from skynet_users.caller import Caller
from skynet_users.errors import Forbidden
from skynet_users.permissions import Permission

GREETING = "A new conversation begins. Greet me in one or two sentences and ask what I would like to do."
"""What the model is told when a bare ``/new`` or ``/reset`` starts a session."""

SETTINGS: Mapping[str, str] = {
    "/think": "thinkingLevel",
    "/verbose": "verboseLevel",
    "/reasoning": "reasoningLevel",
    "/elevated": "elevatedLevel",
    "/usage": "responseUsage",
}
"""Commands that set a level of the session, and the setting's name."""

HELP = """Commands:
/help - this text
/status - model, session and tokens
/whoami - who the gateway thinks you are, and what you may not do
/budget - what you used today and this month
/approvals - what waits for your decision, or for somebody's about you
/approve ID [user or child], /deny ID [reason] - decide one of them
/link [code] - link another account of yours: without a code you get one
/model [name] - show or set the model of this session
/models - the models there are
/think, /verbose, /reasoning, /elevated, /usage [level] - show or set a level of this session
/new, /reset [message] - begin a new conversation, with a message if you give one
/stop - stop what is running"""

EVERYBODY = UserId("")
"""Nobody's id: a permission over it reaches everybody."""

_COMMAND = re.compile(r"(?P<name>/[^\s:]+)(?:[\s:]\s*(?P<argument>.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A message that is a command: its name with the slash, lower case, and what follows it."""

    name: str
    argument: str


def parse_command(message: str) -> Parsed | None:
    """The command that ``message`` begins with; ``None`` for anything else, unknown ``/words`` included."""
    match = _COMMAND.fullmatch(message.strip())
    if match is None or (name := match["name"].lower()) not in NAMES:
        return None
    return Parsed(name, match["argument"] or "")


NO_PEOPLE = "This gateway has no such command."
IN_PRIVATE = "Others read this room: ask me that in private."


class Commands:
    """Answers commands. A command changes only the caller's own session, and only what the caller may change.

    In a room nothing is told that is a person's own, and the session, which is everybody's there, is changed only by
    who manages all groups.

    Args:
        ended: told of a session that was reset.
        archived: told of the transcript that such a session leaves.
        people: what answers the commands about people; None where there are none.
        refused: told of whom a command was not permitted to.
    """

    def __init__(
        self,
        *,
        sessions: SessionStore,
        router: Router,
        abort_session: Callable[[UserId, SessionKey], Awaitable[bool]],
        ended: SessionEnd = not_told,
        archived: Callable[[UserId, SessionKey, SessionId], None] | None = None,
        people: PeopleCommands | None = None,
        refused: Callable[[Caller, str, Forbidden], None] = lambda caller, command, refusal: None,
    ) -> None:
        self._sessions = sessions
        self._router = router
        self._abort_session = abort_session
        self._ended = ended
        self._archived = archived
        self._people = people
        self._refused = refused

    async def answer(self, caller: Caller, key: SessionKey, command: Parsed, sender: Sender | None = None) -> str:
        """The text that answers ``command``, after doing what it says.

        Args:
            sender: the account on a channel that it came from; None for everything that is no channel.
        """
        if room_of(key) is not None and command.name in PRIVATE:
            return IN_PRIVATE
        try:
            if command.name in PEOPLE:
                return await self._about_people(caller, command, sender)
            return await _HANDLERS[command.name](self, caller, key, command)
        except Forbidden as exc:
            self._refused(caller, command.name, exc)
            return f"You may not do that: it needs the permission {exc.permission}."

    async def claim(self, code: str, sender: Sender) -> str:
        """``/link CODE`` from an account that nobody needs to have yet."""
        return NO_PEOPLE if self._people is None else await self._people.claim(code, sender)

    async def restart(self, caller: Caller, key: SessionKey, command: Parsed) -> str:
        """Begin a new conversation; returns the message its first run gets.

        Raises:
            Forbidden: it is a room's, and the caller does not manage groups.
        """
        _require_room(caller, key)
        caller.require(Permission.SESSIONS_WRITE)
        await self._abort_session(owner_of(key), key)
        before = await self._sessions.get(owner_of(key), key)
        with suppress(SessionNotFound):
            await self._sessions.reset(owner_of(key), key)
            self._ended(caller, key, was_reset=True)
            if before is not None and self._archived is not None:
                self._archived(owner_of(key), key, before.session_id)
        return command.argument or GREETING

    async def _help(self, caller: Caller, key: SessionKey, command: Parsed) -> str:
        return HELP

    async def _status(self, caller: Caller, key: SessionKey, command: Parsed) -> str:
        session = await self._sessions.get(owner_of(key), key)
        lines = [f"Skynet {VERSION}", f"Session: {render_key(key)}", f"Model: {self._model_of(session)}"]
        if session is not None:
            lines.append(f"Tokens: {session.input_tokens} in, {session.output_tokens} out")
            lines += [f"{name}: {session.settings[name]}" for name in SETTINGS.values() if name in session.settings]
        return "\n".join(lines)

    async def _whoami(self, caller: Caller, key: SessionKey, command: Parsed) -> str:
        return describe_caller(caller)

    async def _about_people(self, caller: Caller, command: Parsed, sender: Sender | None) -> str:
        if self._people is None:
            return NO_PEOPLE
        match command.name:
            case "/approvals":
                return await self._people.list_approvals(caller)
            case "/approve":
                return await self._people.approve(caller, command.argument)
            case "/deny":
                return await self._people.deny(caller, command.argument)
            case "/link":
                return await self._people.link(caller, command.argument, sender)
            case _:
                return await self._people.budget(caller)

    async def _model(self, caller: Caller, key: SessionKey, command: Parsed) -> str:
        if not command.argument:
            return f"Model: {self._model_of(await self._sessions.get(owner_of(key), key))}"
        try:
            resolved = self._router.resolve(command.argument)
        except UnknownModel as exc:
            return str(exc)
        caller.require(Permission.SESSIONS_WRITE)
        _require_room(caller, key)
        await self._sessions.patch(owner_of(key), key, SessionChanges(model=command.argument))
        return f"Model: {resolved.provider}/{resolved.model}"

    async def _models(self, caller: Caller, key: SessionKey, command: Parsed) -> str:
        models = [model.name for model in self._router.models()]
        return "Models:\n" + "\n".join(models) if models else "No model is configured."

    async def _level(self, caller: Caller, key: SessionKey, command: Parsed) -> str:
        setting = SETTINGS[command.name]
        if not command.argument:
            session = await self._sessions.get(owner_of(key), key)
            return f"{setting}: {session.settings.get(setting, 'default') if session else 'default'}"
        try:
            level = normalise(setting, command.argument)
        except RequestError as exc:
            return str(exc)
        if command.name == "/elevated":
            caller.require(Permission.COMMANDS_RUN, EVERYBODY)
        caller.require(Permission.SESSIONS_WRITE)
        _require_room(caller, key)
        await self._sessions.patch(owner_of(key), key, SessionChanges(settings={setting: level}))
        return f"{setting}: {level or 'off'}"

    def _model_of(self, session: Session | None) -> str:
        try:
            resolved = self._router.resolve(session.model if session is not None else "")
        except UnknownModel as exc:
            return f"{exc.name} (unknown)"
        return f"{resolved.provider}/{resolved.model}"


def _require_room(caller: Caller, key: SessionKey) -> None:
    """A room's session is everybody's who is in it."""
    if room_of(key) is not None:
        caller.require(Permission.GROUPS_MANAGE, EVERYBODY)


_HANDLERS: Mapping[str, Callable[[Commands, Caller, SessionKey, Parsed], Awaitable[str]]] = {
    "/help": Commands._help,
    "/commands": Commands._help,
    "/status": Commands._status,
    "/whoami": Commands._whoami,
    "/model": Commands._model,
    "/models": Commands._models,
    **dict.fromkeys(SETTINGS, Commands._level),
}
DECISIONS = frozenset({"/approvals", "/approve", "/deny"})
"""What is answered at once, beside a run of the session: it may wait for just that."""
PEOPLE = ("/approvals", "/approve", "/deny", "/link", "/budget")
"""Commands about people, not about the session."""
PRIVATE = (*PEOPLE, "/whoami")
"""Commands whose answers are for their caller alone."""
RESTARTS = ("/new", "/reset")
"""Commands that begin a new conversation; what follows is its first message."""
NAMES = frozenset((*_HANDLERS, *PEOPLE, *RESTARTS))
