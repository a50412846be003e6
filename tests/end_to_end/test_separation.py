"""*Nothing of one person reaches another*, whatever people do, in whatever order.

A walk of random steps: a person does something with one of their ways in, and then everything that anybody was sent is
looked at (:mod:`tests.support.household`). ``SKYNET_SEPARATION_STEPS`` says how many steps (2,000 if nothing is said),
``SKYNET_SEPARATION_SEED`` which walks (the same ones if nothing is said, ``random`` for others); see
docs/development.md.
"""

import asyncio
import json
import os
import random
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import hypothesis
import pytest
import uvloop
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from skynet.hooks import BeforeModelCall
from skynet.logs import log_context
from skynet_memory.ids import Role, UserId
from tests.end_to_end.scene import tool
from tests.support.forgery import forged
from tests.support.household import COMMON, KINDS, TAGS, Household, Resident, household, logged_in

STEPS = int(os.environ.get("SKYNET_SEPARATION_STEPS", "2000"))
STEPS_A_WALK = 100
LONGEST_STEP_S = 30
"""What takes longer will not end, however slow the machine is."""
_SEED = os.environ.get("SKYNET_SEPARATION_SEED", "4711")
SEED = random.SystemRandom().randrange(2**32) if _SEED == "random" else int(_SEED)
MOST_CONNECTIONS = 5
REACHES_OTHERS = ("users.", "identities.", "approvals.", "device.", "groups.", "memory.", "knowledge.", "config.")
"""What admins may name others in: not tried at random by them, for it works."""
ENDS_THE_WALK = frozenset({"users.remove", "users.set", "identities.unlink", "connect"})
"""Not tried by anybody at random where it would change the people whom the walk is about."""

LOOKS = (
    *("memory.list", "memory.export", "memory.show", "knowledge.list", "sessions.list", "usage.cost", "users.list"),
    *("users.get", "users.tokens.list", "users.budget", "identities.list", "approvals.list", "status", "health"),
    *("system-presence", "device.pair.list", "node.list", "logs.tail", "audit.list", "agent.status", "cron.list"),
    *("cron.status", "last-heartbeat", "tools.catalog", "skills.status", "config.get", "providers.list"),
    *("usage.status", "groups.list", "channels.status", "agents.list"),
)
"""What tells of the own things, and could tell of others'."""

T = TypeVar("T")
people = st.sampled_from(sorted(TAGS))
numbers = st.integers(0, 7)


class Walk(RuleBasedStateMachine):
    """One gateway, from its start to its end."""

    steps: ClassVar[int] = 0
    plant: ClassVar[Callable[[Household], None] | None] = None
    """What makes the gateway leak, for a walk that has to find it."""

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._folder = tempfile.TemporaryDirectory(prefix="skynet-walk-")
        self._home = Path(self._folder.name)
        self._log = logged_in(self._home)
        self._log.__enter__()
        self._opened = household(self._home)
        self.house = self._run(self._opened.__aenter__())
        if self.plant is not None:
            type(self).plant(self.house)  # type: ignore[misc]
        self._is_sound = False

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def _do(self, work: Coroutine[Any, Any, object]) -> None:
        async def step() -> None:
            async with asyncio.timeout(LONGEST_STEP_S):
                await work
                await self.house.settle()

        Walk.steps += 1
        self._run(step())

    def who(self, tag: str) -> Resident:
        return self.house.residents[tag]

    def _session(self, who: Resident, number: int) -> str:
        """One of the person's sessions, or a new one."""
        if number >= len(who.sessions) and len(who.sessions) < 5:
            who.sessions.append(self.house.word(who, "session"))
        return who.sessions[number % len(who.sessions)]

    def _known(self, who: Resident, kind: str, number: int) -> str:
        """Something of the person's, as far as they have it."""
        names = who.names[kind]
        return names[number % len(names)] if names else self.house.word(who, kind)

    # Talking

    @rule(tag=people, number=numbers, waits=st.sampled_from([True, True, False]))
    def chat(self, tag: str, number: int, waits: bool) -> None:
        who = self.who(tag)
        said = f"say={COMMON} {self.house.word(who, 'chat')}"
        self._do(self.house.say(who, said, session=self._session(who, number), waits=waits))

    @rule(tag=people, number=numbers)
    def begin_what_does_not_end(self, tag: str, number: int) -> None:
        who = self.who(tag)
        said = f"say={COMMON} {self.house.word(who, 'chat')} hang"

        async def begin_and_stop() -> None:
            session = self._session(who, number)
            run_id = await self.house.say(who, said, session=session, waits=False)
            await self.house.ask(who, "chat.abort", {"sessionKey": session, "runId": run_id}, on=1)

        self._do(begin_and_stop())

    @rule(tag=people, number=numbers, extra=st.booleans())
    def agent(self, tag: str, number: int, extra: bool) -> None:
        who = self.who(tag)
        params = {
            "sessionKey": self._session(who, number),
            "message": f"say={COMMON} {self.house.word(who, 'chat')}",
            "idempotencyKey": self.house.word(who, "run"),
        }
        if extra:
            params["extraSystemPrompt"] = f"{COMMON} {self.house.word(who, 'chat')}"
        self._do(self.house.ask(who, "agent", params, on=number))

    @rule(tag=people, names_session=st.booleans())
    def talk_by_http(self, tag: str, names_session: bool) -> None:
        who = self.who(tag)
        message = {"role": "user", "content": f"say={COMMON} {self.house.word(who, 'chat')}"}
        body = {"messages": [message]} | ({"user": self.house.word(who, "session")} if names_session else {})
        self._do(self.house.post(who, body))

    @rule(tag=people, text=st.sampled_from(["/status", "/whoami", "/approvals", "/budget", "/new", "/models", "/link"]))
    def command(self, tag: str, text: str) -> None:
        # Admins are told there what waits for them, which is seen in approvals.list
        self._do(self.house.say(self.who(tag), "/status" if (tag, text) == ("quagga", "/approvals") else text))

    @rule(tag=people, channel=st.integers(0, 1), text=st.sampled_from(["", "/status", "/whoami", "/budget", "/new"]))
    def write_on_a_channel(self, tag: str, channel: int, text: str) -> None:
        who = self.who(tag)
        self._do(self.house.write(who, text or f"say={COMMON} {self.house.word(who, 'chat')}", channel=channel))

    @rule(
        tag=people,
        text=st.sampled_from(
            ["say", "memory_learn", "memory_search", "history_search", "knowledge_search", "list_files"]
        ),
    )
    def write_in_the_room(self, tag: str, text: str) -> None:
        """A child is in no room before a grown-up adds it; grown-ups are once they talk there."""
        who = self.who(tag)
        who.in_room = who.in_room or who.role is not Role.CHILD
        word = f"{COMMON} {self.house.word(who, 'room')}"
        match text:
            case "say":
                text = f"say={word}"
            case "memory_learn":
                text = tool(text, category="fact", key=word, value=word)
            case "list_files":
                text = tool(text)
            case _:
                text = tool(text, query=COMMON)
        self._do(self.house.write(who, text, channel=0, in_room=True))

    @rule(number=numbers)
    def a_stranger_writes(self, number: int) -> None:
        """Somebody who is nobody's account, and says that they are the admin."""
        channel = self.house.channels[number % 2]
        self._do(channel.write(f"stranger{number}", f"say={COMMON}", display_name="quagganame0x"))

    @rule()
    def a_child_says_what_is_filtered(self) -> None:
        who = self.who("tapir")
        self._do(self.house.say(who, f"I want to kill myself {self.house.word(who, 'chat')}"))

    # Remembering

    @rule(tag=people, by_tool=st.booleans())
    def learn(self, tag: str, by_tool: bool) -> None:
        who = self.who(tag)
        memory: dict[str, Any] = {
            "category": "fact",
            "key": f"{COMMON} {self.house.word(who, 'memory')}",
            "value": f"The {COMMON} is called {self.house.word(who, 'memory')}",
        }
        if by_tool:
            self._do(self.house.say(who, tool("memory_learn", **memory)))
        else:
            self._do(self._keep_id(who, "memory id", "memory.learn", memory, "memory"))

    async def _keep_id(self, who: Resident, kind: str, method: str, params: dict[str, Any], *path: str) -> None:
        frame = await self.house.ask(who, method, params)
        if frame["ok"]:
            found = frame["payload"]
            for name in path:
                found = found[name]
            who.names[kind].append(found["id"])

    @rule(tag=people)
    def write_a_topic(self, tag: str) -> None:
        who = self.who(tag)
        params = {
            "topic": f"{COMMON} {self.house.word(who, 'topic')}",
            "content": f"All about the {COMMON} {self.house.word(who, 'topic')}",
            "tags": ["list_files"],
        }
        self._do(self.house.ask(who, "knowledge.write", params))

    @rule(
        tag=people,
        of=people,
        kind=st.sampled_from(["chat", "memory", "topic", "file", "session"]),
        where=st.sampled_from(
            (
                *("memory.search", "knowledge.search", "history.search", "sessions.list"),
                *("memory_search", "knowledge_search", "history_search", "search_files"),
            )
        ),
        number=numbers,
    )
    def search(self, tag: str, of: str, kind: str, where: str, number: int) -> None:
        """For what everybody says, what is the own, or a word of somebody else."""
        who, other = self.who(tag), self.who(of)
        query = COMMON if number < 4 else self._known(other, kind, number)
        who.typed.append(query.lower())
        if where == "sessions.list":
            self._do(self.house.ask(who, where, {"search": query, "includeLastMessage": True}))
        elif where == "search_files":
            self._do(self.house.say(who, tool("search_files", pattern=query)))
        elif "_" in where:
            self._do(self.house.say(who, tool(where, query=query)))
        else:
            self._do(self.house.ask(who, where, {"query": query, "limit": 50}))

    @rule(tag=people, method=st.sampled_from(LOOKS), on=st.integers(0, 1))
    def look(self, tag: str, method: str, on: int) -> None:
        self._do(self._look(self.who(tag), method, on=on))

    @rule(tag=people)
    def look_at_everything(self, tag: str) -> None:
        self._do(self._look_at_everything(self.who(tag)))

    async def _look(self, who: Resident, method: str, *, on: int = 0) -> None:
        params = {"logs.tail": {"limit": 5000, "maxBytes": 1_000_000}, "sessions.list": {"includeLastMessage": True}}
        await self.house.ask(who, method, params.get(method, {}), on=on)

    async def _look_at_everything(self, who: Resident) -> None:
        for method in LOOKS:
            await self._look(who, method)
        for method in ("memory.search", "knowledge.search", "history.search"):
            await self.house.ask(who, method, {"query": COMMON, "limit": 50})

    @rule(tag=people, number=numbers)
    def forget(self, tag: str, number: int) -> None:
        who = self.who(tag)
        if who.names["memory id"]:
            memory_id = who.names["memory id"][number % len(who.names["memory id"])]
            self._do(self.house.ask(who, "memory.forget", {"id": memory_id}))

    @rule(tag=people)
    def export_and_import(self, tag: str) -> None:
        who = self.who(tag)

        async def both() -> None:
            exported = await self.house.ask(who, "memory.export")
            await self.house.ask(who, "memory.import", {"memories": exported["payload"]["memories"]})

        self._do(both())

    @rule(of=st.sampled_from(["okapi", "tapir"]), method=st.sampled_from(["memory.list", "memory.search"]))
    def an_admin_reads_what_is_remembered(self, of: str, method: str) -> None:
        params = {"userId": self.who(of).user} | ({"query": COMMON} if method == "memory.search" else {})
        self._do(self.house.ask(self.who("quagga"), method, params, note=" of another"))

    # Sessions

    @rule(tag=people, number=numbers, method=st.sampled_from(["history", "patch", "preview", "reset", "delete"]))
    def session(self, tag: str, number: int, method: str) -> None:
        who = self.who(tag)
        key = self._session(who, number)
        match method:
            case "history":
                self._do(self.house.ask(who, "chat.history", {"sessionKey": key, "limit": 1000}, on=number))
            case "patch":
                self._do(self.house.ask(who, "sessions.patch", {"key": key, "label": self.house.word(who, "label")}))
            case "preview":
                self._do(self.house.ask(who, "sessions.preview", {"keys": [key, "main"], "maxChars": 2000}))
            case _:
                self._do(self.house.ask(who, f"sessions.{method}", {"key": key}))

    # Files

    @rule(tag=people)
    def write_a_file(self, tag: str) -> None:
        who = self.who(tag)
        path = f"{self.house.word(who, 'file')}.txt"
        call = tool("write_file", path=path, content=f"{COMMON} {self.house.word(who, 'file')}")
        self._do(self.house.say(who, call))

    @rule(tag=people, of=people, number=numbers, way=st.integers(0, 4))
    def read_a_file(self, tag: str, of: str, number: int, way: int) -> None:
        who, other = self.who(tag), self.who(of)
        name = f"{self._known(other, 'file', number)}.txt"
        home = f"{self._home}/users/{other.user}/files"
        path = (name, f"../../{other.user}/files/{name}", f"{home}/{name}", home, "../..")[way]
        who.typed.append(path.lower())
        self._do(self.house.say(who, tool("list_files" if way > 2 else "read_file", path=path)))

    # The rest

    @rule(tag=people, method=st.sampled_from(["wake", "system-event"]))
    def tell_the_assistant(self, tag: str, method: str) -> None:
        who = self.who(tag)
        text = f"{COMMON} {self.house.word(who, 'event')}"
        if method == "wake":
            self._do(self.house.ask(who, "wake", {"text": text, "mode": "now"}))
        else:
            params = {"text": f"Node: {text}", "host": self.house.word(who, "device")}
            self._do(self.house.ask(who, method, params))

    @rule(tag=people, device=st.booleans())
    def listen(self, tag: str, device: bool) -> None:
        who = self.who(tag)
        if len(who.clients) < MOST_CONNECTIONS:
            self._do(self.house.connect(who, device=device))

    @rule(tag=people)
    def hang_up(self, tag: str) -> None:
        who = self.who(tag)
        if len(who.clients) > 3:
            self._do(who.clients.pop().aclose())

    @rule(tag=people, revokes=st.booleans())
    def tokens(self, tag: str, revokes: bool) -> None:
        who = self.who(tag)
        if revokes and who.names["token id"]:
            self._do(self.house.ask(who, "users.tokens.revoke", {"id": who.names["token id"].pop()}))
        else:
            params = {"name": self.house.word(who, "token")}
            self._do(self._keep_id(who, "token id", "users.tokens.create", params))

    @rule(tag=people)
    def change_the_profile(self, tag: str) -> None:
        who = self.who(tag)
        params = {"tone": self.house.word(who, "profile"), "interests": [self.house.word(who, "profile")]}
        self._do(self.house.ask(who, "users.set", params))

    @rule(tag=st.sampled_from(["okapi", "tapir"]))
    def ask_for_something(self, tag: str) -> None:
        who = self.who(tag)
        self._do(self.house.ask(who, "approvals.request", {"summary": self.house.word(who, "ask")}))

    @rule(needed=st.booleans())
    def need_approval(self, needed: bool) -> None:
        who = self.who("okapi")
        params = {"userId": who.user, "requiresApproval": needed}

        async def change() -> None:
            await self.house.ask(self.who("quagga"), "users.set", params)
            if needed != who.requires_approval:  # their connections end, for they may do something else now
                who.requires_approval = needed
                await self.house.come_back(who)

        self._do(change())

    @rule(tag=people, approve=st.booleans())
    def decide(self, tag: str, approve: bool) -> None:
        who = self.who(tag)

        async def first() -> None:
            found = await self.house.ask(who, "approvals.list", {"status": "pending"})
            for approval in found["payload"]["approvals"][:1]:
                await self.house.ask(who, "approvals.decide", {"id": approval["id"], "approve": approve})

        self._do(first())

    # Trying what is others'

    @rule(
        tag=people,
        of=people,
        method=st.integers(0, 10_000),
        choice=st.integers(0, 10_000),
        kind=st.sampled_from([*KINDS, "memory id", "token id", "user", "key"]),
        number=numbers,
    )
    def try_anothers_names(self, tag: str, of: str, method: int, choice: int, kind: str, number: int) -> None:
        """Any method, with something of somebody else in any field."""
        who, other = self.who(tag), self.who(of)
        if who is other:
            return
        methods = [
            name for name in sorted(self.house.gateway.app.gateway.dispatcher._table) if _may_be_tried(who, name)
        ]
        name = methods[method % len(methods)]
        text = {"user": other.user, "key": other.main_key}.get(kind) or self._named(other, kind, number)
        params = self.house.gateway.app.gateway.dispatcher._table[name].decoder.type
        probes = list(forged(params, lambda field: [text]))
        if not probes:
            return
        who.typed.append(text.lower())
        probe = probes[choice % len(probes)]
        if "timeoutMs" in probe or name == "agent.wait":
            probe = {**probe, "timeoutMs": 1}
        self._do(self.house.ask(who, name, probe, on=number % 2))

    def _named(self, other: Resident, kind: str, number: int) -> str:
        names = other.names[kind]
        return names[number % len(names)] if names else other.user

    # What holds after every step

    @invariant()
    def nothing_of_one_is_shown_to_another(self) -> None:
        leak, self._is_sound = self.house.leak(), False
        assert leak is None, f"{leak}\nseed {SEED}"
        self._is_sound = True

    def teardown(self) -> None:
        try:
            if self._is_sound:
                for tag in TAGS:
                    self._do(self._look_at_everything(self.who(tag)))
                    self.nothing_of_one_is_shown_to_another()
                self.look_at_the_log()
        finally:
            self._run(self._opened.__aexit__(None, None, None))
            self._log.__exit__(None, None, None)
            self._runner.close()
            self._folder.cleanup()

    def look_at_the_log(self) -> None:
        """Nobody's words are in it at all, though an admin may read it."""
        for line in (self._home / "logs" / "skynet.log").read_text().splitlines():
            for kind in ("chat", "memory", "topic", "file", "ask", "profile", "event"):
                for tag in TAGS:
                    assert f"{tag}{kind}" not in line, line


def _may_be_tried(who: Resident, method: str) -> bool:
    if method in ENDS_THE_WALK:
        return False
    return who.role is not Role.ADMIN or not method.startswith(REACHES_OTHERS)


def walk(machine: type[Walk], steps: int, *, shrink: bool = True) -> None:
    """Take ``steps`` steps in walks of 100.

    Raises:
        AssertionError: what was leaked, after the shortest walk that leads there.
    """
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    run_state_machine_as_test(
        hypothesis.seed(SEED)(machine),
        settings=settings(
            max_examples=max(1, steps // STEPS_A_WALK),
            stateful_step_count=min(steps, STEPS_A_WALK),
            deadline=None,
            database=None,
            phases=phases,
            print_blob=True,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(max(600, STEPS))
def test_nothing_of_one_person_reaches_another() -> None:
    """SK-134: whatever three people do with all their devices, none is shown anything of another's."""
    before = Walk.steps
    walk(Walk, STEPS)
    taken = Walk.steps - before
    assert taken >= 0.8 * STEPS, "steps that did nothing are few"


# The walk finds leaks: each of these makes one


def _broadcaster_tells_everybody(house: Household) -> None:
    broadcaster = house.gateway.app.gateway.broadcaster
    broadcaster.of = lambda owner: broadcaster.all()  # type: ignore[method-assign]


def _prompt_holds_what_others_said(house: Household) -> None:
    said: list[str] = []

    def gossip(gate: BeforeModelCall) -> BeforeModelCall:
        from dataclasses import replace

        said.append(gate.last_user_text[-200:])
        return replace(gate, system_suffix=said[0])

    house.gateway.app.hooks.register(BeforeModelCall, gossip)


def _log_is_about_somebody_else(house: Household) -> None:
    import logging

    user, child = house.residents["okapi"], house.residents["tapir"]

    def mislead(gate: BeforeModelCall) -> None:
        with log_context(user_id=UserId(user.user)):
            logging.getLogger("skynet.misled").warning("a message: %s", f"{child.tag}session0x")

    house.gateway.app.hooks.register(BeforeModelCall, mislead)


def _sessions_are_everybodys(house: Household) -> None:
    methods = house.gateway.app.gateway.dispatcher._table
    bound = methods["memory.list"].call
    owner = house.residents["quagga"].user

    def of_the_owner(caller: Any, params: Any) -> Any:
        from dataclasses import replace

        return bound(replace(caller, user_id=UserId(owner)), params)

    import msgspec  # noqa: F401

    table: Any = methods
    from dataclasses import replace as replaced

    table["memory.list"] = replaced(methods["memory.list"], call=of_the_owner)


PLANTS: Sequence[Callable[[Household], None]] = (
    _broadcaster_tells_everybody,
    _prompt_holds_what_others_said,
    _log_is_about_somebody_else,
    _sessions_are_everybodys,
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__.strip("_"))
def test_the_walk_finds_a_leak(plant: Callable[[Household], None]) -> None:
    """A gateway that tells what it should not does not pass."""
    machine = type("LeakingWalk", (Walk,), {"plant": staticmethod(plant)})
    with pytest.raises(AssertionError, match=r"got [\w-]+ of \w+ in"):
        walk(machine, 1000, shrink=False)


def test_the_witness_knows_whose_a_word_is() -> None:
    """Words in a log line, in JSON, in a part of a word; what somebody typed may come back to them."""
    from tests.support.household import Witness

    okapi = Resident("okapi", Role.USER, "0199aaaa-0000-7000-8000-000000000001", "")
    tapir = Resident("tapir", Role.CHILD, "0199aaaa-0000-7000-8000-000000000002", "")
    witness = Witness({"okapi": okapi, "tapir": tapir})
    assert witness.look(okapi, "chat", json.dumps({"text": "okapichat1x and my " + okapi.user})) is None
    assert witness.look(okapi, "chat", "…TAPIRCHAT3") is not None
    assert witness.look(okapi, "chat", f"a run of {tapir.user}") is not None
    okapi.typed.append("tapirchat3x")
    assert witness.look(okapi, "chat", "nothing is remembered about tapirchat3x") is None
    assert witness.look(okapi, "chat", "tapirchat31x") is not None
