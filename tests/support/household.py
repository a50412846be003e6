"""People on one gateway whose every word is known, and a witness of all that each of them is shown.

Whatever somebody says, names or writes down holds a word like ``quaggachat17x``: whose it is (``quagga``), what kind of
thing it is (``chat``) and a number, so that it occurs nowhere else. The gateway's own ids are learned from what it
answers. So one look at a frame tells whether it holds what is somebody else's.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2

from skynet.gateway.channel import Accepted
from skynet.logs import ContextFilter, JsonLineFormatter, PrivateRotatingFileHandler
from skynet_memory.ids import Role, UserId
from skynet_protocol.device import DeviceIdentity
from skynet_users.credentials import CredentialStore
from skynet_users.identities import IdentityStore
from skynet_users.people import UserChanges, UserStore
from tests.support.channel import FakeChannel
from tests.support.client import WireClient
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.model_server import ModelServer

COMMON: Final = "zebra"
"""A word in everything that anybody says: whoever searches for it would find everybody's."""
TAGS: Final[Mapping[str, Role]] = {"quagga": Role.ADMIN, "okapi": Role.USER, "tapir": Role.CHILD}
KINDS: Final = (
    "chat",
    "memory",
    "topic",
    "file",
    "session",
    "label",
    "run",
    "device",
    "token",
    "ask",
    "profile",
    "name",
    "event",
    "account",
    "room",
)
_WORD: Final = re.compile(rf"({'|'.join(TAGS)})([a-z]*)\d*x?", re.IGNORECASE)
_ID: Final = re.compile(
    r"(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})(?![0-9a-f])"
)
_PROMPT_OF: Final = re.compile(rf"- Name: ({'|'.join(TAGS)})name")
ID: Final = "id"
CHANNELS: Final = ("alpha", "beta")
ROOM: Final = "kitchen"
_ROOM_PROMPT: Final = "# The room you talk in"

EVERYBODY_SEES: Final[Mapping[str, frozenset[str]]] = {
    # Who read one's memory, and who decided what one asked for
    "memory.read": frozenset({ID, "name"}),
    "approvals.resolved": frozenset({ID}),
    "approvals.list": frozenset({ID, "name"}),
    "approvals.request": frozenset({ID, "name"}),
    # Of whom an event that waits for the next message tells
    "prompt": frozenset({"name"}),
    "status": frozenset({"name"}),
}
"""By method, event or ``prompt``: the kinds of words of others that are told."""
_PERSON: Final = frozenset({ID, "name", "profile", "device", "account"})
ADMINS_SEE: Final[Mapping[str, frozenset[str]]] = {
    "hello": frozenset({ID, "device", "name"}),
    "presence": frozenset({ID, "device", "name"}),
    "system-presence": frozenset({ID, "device", "name"}),
    "device.pair.list": frozenset({ID, "device"}),
    "device.pair.requested": frozenset({ID, "device"}),
    "device.pair.resolved": frozenset({ID, "device"}),
    "users.list": _PERSON,
    "users.get": _PERSON,
    "users.set": _PERSON,
    "users.budget": _PERSON,
    "usage.cost": frozenset({ID, "name"}),
    "agent.status": frozenset({ID, "name"}),
    # Whoever decides is told what: a question in the person's words, or a call with its arguments
    "approvals.list": frozenset({ID, "name", "ask", "file"}),
    "approvals.requested": frozenset({ID, "name", "ask", "file"}),
    "approvals.resolved": frozenset({ID, "name", "ask", "file"}),
    "approvals.decide": frozenset({ID, "name", "ask", "file"}),
    "guardian.alert": frozenset({ID, "name"}),
    # Who manages rooms sees all of them, and who made each; not what is said there
    "groups.list": frozenset({ID, "name"}),
    "groups.members": frozenset({ID, "name"}),
    "audit.list": frozenset({ID, "token", "name"}),
    # Lines say whose session and run it was, never what was said
    "logs.tail": frozenset({ID, "session", "run", "token", "device"}),
    "memory.list of another": frozenset({ID, "memory", "name"}),
    "memory.search of another": frozenset({ID, "memory", "name"}),
}
"""What admins are told of others beyond that (docs/people.md)."""


@dataclass(frozen=True, slots=True)
class Leak:
    """Something of ``of`` that ``to`` was shown in ``where``."""

    to: str
    of: str
    what: str
    where: str
    text: str

    def __str__(self) -> str:
        at = self.text.lower().find(self.what.lower())
        return f"{self.to} got {self.what} of {self.of} in {self.where}: …{self.text[max(0, at - 200) : at + 200]}…"


@dataclass
class Resident:
    """A person with all their ways in, by the tag that their words have."""

    tag: str
    role: Role
    user: str
    token: str
    clients: list[WireClient] = field(default_factory=list)
    gone: list[WireClient] = field(default_factory=list)
    """Those that were closed; what they got is looked at too."""
    typed: list[str] = field(default_factory=list)
    """What they wrote themselves that holds words of others: it may come back to them."""
    sessions: list[str] = field(default_factory=lambda: ["main"])
    names: dict[str, list[str]] = field(
        default_factory=lambda: {kind: [] for kind in (*KINDS, "memory id", "token id")}
    )
    """What others could try: all their words by kind, and ids."""
    read: dict[WireClient, int] = field(default_factory=dict)
    requires_approval: bool = False
    in_room: bool = False
    """Whether they are in the household's room: what is said there is everybody's who is in it."""

    @property
    def client(self) -> WireClient:
        """The first, which proves no device."""
        return self.clients[0]

    @property
    def main_key(self) -> str:
        return f"user:{self.user}:agent:main:main"


class Witness:
    """Knows whose each word and id is, and finds them where they do not belong."""

    def __init__(self, residents: Mapping[str, Resident]) -> None:
        self._residents = residents
        self.owners: dict[str, str] = {each.user: each.tag for each in residents.values()}

    def look(self, to: Resident, where: str, text: str, *, learns: bool = True) -> Leak | None:
        """The first thing of somebody else in ``text``, which ``to`` gets; ids that are new are theirs from now on.

        Args:
            learns: False where ids of others belong.
        """
        allowed = EVERYBODY_SEES.get(where, frozenset())
        if to.role is Role.ADMIN:
            allowed = allowed | ADMINS_SEE.get(where, frozenset())
        if to.in_room:
            allowed = allowed | {"room"}
            if "group:" in text or where.startswith("groups."):  # a room's ids, and the names of who is in it
                allowed, learns = allowed | {"name", ID}, False
        for match in _WORD.finditer(text):
            tag, kind = match[1].lower(), match[2].lower().removesuffix("x")
            if tag != to.tag and kind not in allowed and not self._typed(to, match[0]):
                return Leak(to.tag, tag, match[0], where, text)
        if "internal error" in text:
            return Leak(to.tag, "nobody", "internal error", where, text)
        for match in _ID.finditer(text):
            owner = self.owners.get(match[0])
            if owner is None and learns and ID not in allowed:
                self.owners[match[0]] = to.tag
            elif owner not in (None, to.tag) and ID not in allowed and not self._typed(to, match[0]):
                assert owner is not None
                return Leak(to.tag, owner, match[0], where, text)
        return None

    def look_at_prompt(self, text: str) -> Leak | None:
        """The same for a request to the model. It is the prompt of one person, named or not."""
        named = _PROMPT_OF.search(text)
        if _ROOM_PROMPT in text:
            return self.look_at_room(text)
        people = [self._residents[named[1]]] if named else [*self._residents.values()]
        leaks = [self.look(who, "prompt", text, learns=False) for who in people]
        return None if None in leaks else leaks[0]

    def look_at_room(self, text: str) -> Leak | None:
        """What is said in the room, and what the model is told there: nobody's own things, not even the speaker's."""
        for match in _WORD.finditer(text):
            kind = match[2].lower().removesuffix("x")
            if kind not in ("room", "name") and not any(self._typed(who, match[0]) for who in self._residents.values()):
                return Leak("the room", match[1], match[0], "room", text)
        return None

    @staticmethod
    def _typed(to: Resident, what: str) -> bool:
        return any(what.lower() in typed for typed in to.typed)


class Household:
    """The people, the gateway they live with, and what the witness has seen."""

    def __init__(self, gateway: RunningGateway, models: ModelServer, home: Path, residents: Mapping[str, Resident]):
        self.gateway, self.models, self.home = gateway, models, home
        self.residents = residents
        self.witness = Witness(residents)
        self._numbers = itertools.count(1)
        self._stack = AsyncExitStack()
        self._bodies: list[tuple[Resident, str]] = []
        self._http: httpx2.AsyncClient | None = None
        self.channels = [FakeChannel(gateway.app.ingress, name=name) for name in CHANNELS]

    # Words

    def word(self, who: Resident, kind: str) -> str:
        """A new word of somebody's."""
        word = f"{who.tag}{kind}{next(self._numbers)}x"
        who.names[kind].append(word)
        return word

    # Connections

    async def connect(self, who: Resident, *, device: bool = False, node: bool = False) -> WireClient:
        """One more connection of somebody's."""
        described = {"version": "dev", "platform": "linux", "displayName": self.word(who, "device")}
        options: dict[str, Any] = {"token": who.token, "client": {"id": "cli", "mode": "cli", **described}}
        if device:
            options |= {"device": DeviceIdentity.generate(), "client": {"id": "gateway-client", "mode": "backend"}}
            options["client"] |= described
        if node:
            options |= {"device": DeviceIdentity.generate(), "role": "node", "scopes": ()}
            options["client"] = {"id": "node-host", "mode": "node", **described}
        client: WireClient = await self._stack.enter_async_context(self.gateway.client(**options))
        who.clients.append(client)
        return client

    async def come_back(self, who: Resident) -> None:
        """Wait until the gateway has put somebody out, and connect them anew."""
        for client in who.clients:
            await client.closed()
        who.gone += who.clients
        who.clients = []
        await self.connect(who)
        await self.connect(who, device=True)

    async def aclose(self) -> None:
        """Disconnect everybody."""
        await self._stack.aclose()

    # Doing things

    async def ask(
        self, who: Resident, method: str, params: Mapping[str, Any] | None = None, *, on: int = 0, note: str = ""
    ) -> dict[str, Any]:
        """The first response frame to a call of ``who``. ``note`` is added to the method where the witness looks."""
        client = who.clients[on % len(who.clients)]
        number = next(self._numbers)
        request_id = await client.send_frame(method, params or {}, request_id=f"{method}{note}/{number}")
        return await client.response(request_id)

    async def say(self, who: Resident, message: str, *, session: str = "main", waits: bool = True) -> str:
        """Have ``who`` send a message; the run's id."""
        run_id = self.word(who, "run")
        params = {"sessionKey": session, "message": message, "idempotencyKey": run_id}
        answer = await self.ask(who, "chat.send", params)
        if waits and answer["ok"]:
            await self.ask(who, "agent.wait", {"runId": run_id, "timeoutMs": 20_000})
        return run_id

    async def post(self, who: Resident, body: Mapping[str, Any], **headers: str) -> int:
        """A request of ``who`` to ``/v1``; the status."""
        if self._http is None:
            client = httpx2.AsyncClient(base_url=self.gateway.http_url, timeout=20, trust_env=False, verify=False)
            self._http = await self._stack.enter_async_context(client)
        answer = await self._http.post(
            "/v1/chat/completions",
            json={"model": "skynet", **body},
            headers={"authorization": f"Bearer {who.token}", **headers},
        )
        self._bodies.append((who, answer.text + str(dict(answer.headers))))
        return answer.status_code

    async def write(self, who: Resident, text: str, *, channel: int, in_room: bool = False) -> None:
        """Have ``who`` write on a channel, alone or in the room, and wait for the answer if there will be one."""
        outcome = await self.channels[channel].write(
            account_of(who), text, room=ROOM if in_room else "", display_name=f"{who.tag}name0x"
        )
        if isinstance(outcome, Accepted):
            await outcome.run.wait()
            await asyncio.sleep(0)

    # Looking

    async def settle(self) -> None:
        """Return when everything that was sent to anybody has come."""
        waiting = []
        for who in self.residents.values():
            for client in who.clients:
                if client.socket.close_code is None:
                    request_id = await client.send_frame("ping", request_id=f"ping/{next(self._numbers)}")
                    waiting.append(client.response(request_id))
        await asyncio.gather(*waiting)

    async def quiet(self, who: Resident) -> None:
        """The same, once everything that ``who`` asked the assistant is answered."""
        for run in self.gateway.app.runs.active(UserId(who.user)):
            await run.wait()
        await self.settle()

    def leak(self) -> Leak | None:
        """The first thing that somebody was shown since the last look, and that is not theirs."""
        # Admins last: what they see of others has its owner by then.
        for who in sorted(self.residents.values(), key=lambda each: each.role is Role.ADMIN):
            for client in (*who.gone, *who.clients):
                first = who.read.get(client, 0)
                who.read[client] = len(client.frames)
                for frame in client.frames[first:]:
                    where = frame.get("event") or str(frame["id"]).partition("/")[0]
                    where = "hello" if len(where) == 36 else where  # the handshake's own id
                    if (leak := self.witness.look(who, where, json.dumps(frame, ensure_ascii=False))) is not None:
                        return leak
        bodies, self._bodies = self._bodies, []
        for who, text in bodies:
            if (leak := self.witness.look(who, "/v1", text)) is not None:
                return leak
        for channel in self.channels:
            heard, channel.said = channel.said, []
            for said in heard:
                to = next((who for who in self.residents.values() if account_of(who) == said.where), None)
                leak = (
                    self.witness.look_at_room(said.text) if to is None else self.witness.look(to, "channel", said.text)
                )
                if leak is not None:
                    return leak
        prompts = list(self.models.requests)
        self.models.requests.clear()
        for seen in prompts:
            if (leak := self.witness.look_at_prompt(f"{seen.raw.decode()} {dict(seen.headers)}")) is not None:
                return leak
        return None


def account_of(who: Resident) -> str:
    """The account that somebody has on every channel."""
    return f"{who.tag}account0x"


@contextmanager
def logged_in(home: Path, level: int = logging.INFO) -> Iterator[Path]:
    """Everything is logged where the gateway of ``home`` looks for its log."""
    file = home / "logs" / "skynet.log"
    file.parent.mkdir(parents=True, exist_ok=True)
    handler = PrivateRotatingFileHandler(file, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(JsonLineFormatter())
    handler.addFilter(ContextFilter())
    root = logging.getLogger()
    names = ("skynet", "skynet_agent", "skynet_memory", "skynet_users")
    levels = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(level)
    root.addHandler(handler)
    try:
        yield file
    finally:
        root.removeHandler(handler)
        handler.close()
        for name, before in levels.items():
            logging.getLogger(name).setLevel(before)


@asynccontextmanager
async def household(home: Path, *, toml: str = "") -> AsyncIterator[Household]:
    """A gateway with an admin, a user and a child, each with a client, a device and a node."""
    approvals = "[approvals]\nwait_s = 0.01\n"
    async with ModelServer() as models, running_gateway(home, models=models, toml=approvals + toml) as gateway:
        users, credentials = UserStore(gateway.app.database), CredentialStore(gateway.app.database)
        residents: dict[str, Resident] = {}
        for tag, role in TAGS.items():
            name = f"{tag}name0x"
            if role is Role.ADMIN:
                user = await users.ensure_owner()
                await users.set(user.id, UserChanges(display_name=name))
                token = gateway.token
            else:
                user = await users.add(name, role)
                token = (await credentials.create_token(user.id, f"{tag}token0x")).token.reveal()
            gateway.app.resolver.forget()
            residents[tag] = Resident(tag, role, user.id, token)
        house = Household(gateway, models, home, residents)
        identities = IdentityStore(gateway.app.database)
        for who in residents.values():
            for channel in CHANNELS:
                await identities.link(UserId(who.user), channel, account_of(who))
        try:
            for who in residents.values():
                await house.connect(who)
                await house.connect(who, device=True)
            await house.connect(residents["okapi"], node=True)
            yield house
        finally:
            await house.aclose()
