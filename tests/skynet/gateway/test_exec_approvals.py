"""Questions whether a command may run: who is asked, who may answer, and what an answer is good for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skynet.gateway.command_gate import ExecQuestion
from skynet.gateway.exec_approvals import LATE_MS, MOST_OPEN, MOST_SHOWN, OPEN_MS, TIMEOUT_MS, Asked
from skynet_memory.ids import Role
from skynet_protocol.errors import RequestError
from skynet_protocol.exec_approvals import ExecApprovalRequestParams
from skynet_terminal.errors import CommandBlocked
from skynet_users.caller import Caller
from skynet_users.errors import Forbidden
from skynet_users.people import UserChanges
from skynet_users.permissions import Permission
from tests.skynet.methods.people import People, open_people
from tests.skynet.methods.world import FakeConnection
from tests.support.polling import until

PUSH = ExecQuestion(
    command="git push",
    commands=(("git", "push"),),
    cwd="/files",
    rule="network.push",
    reason="it changes what others have",
)
ADMINS = {Role.ADMIN: "self", Role.USER: "admin"}


@pytest.fixture
async def people(tmp_path: Path) -> AsyncIterator[People]:
    async with open_people(tmp_path, wait_s=0.01) as opened:
        yield opened


@pytest.fixture
async def strict(tmp_path: Path) -> AsyncIterator[People]:
    """Admins decide about users' commands."""
    async with open_people(tmp_path, wait_s=0.01, approver=ADMINS) as opened:  # type: ignore[arg-type]
        yield opened


@asynccontextmanager
async def asking(people: People, caller: Caller, question: ExecQuestion = PUSH) -> AsyncIterator[asyncio.Task[Any]]:
    """A command of ``caller`` that waits for its answer."""
    task = asyncio.ensure_future(people.exec_approvals.ask(await people.user(caller), question))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def asked_of(peer: FakeConnection, number: int = 1) -> dict[str, Any]:
    """The last of ``number`` questions that a client was told of."""
    await until(lambda: len(peer.named("exec.approval.requested")) >= number)
    payload = peer.named("exec.approval.requested")[number - 1]["payload"]
    assert isinstance(payload, dict)
    return payload


async def decide(people: People, caller: Caller, approval_id: str, decision: str) -> Asked:
    return await people.exec_approvals.resolve(caller, approval_id, decision)


def write_file(people: People, **defaults: Any) -> None:
    agents = defaults.pop("agents", {})
    (people.world.home / "exec-approvals.json").write_text(
        json.dumps({"version": 1, "defaults": defaults, "agents": agents})
    )


async def wire(people: People, caller: Caller, **fields: Any) -> Asked:
    return await people.exec_approvals.request(caller, ExecApprovalRequestParams(**({"command": "ls"} | fields)))


# Who is asked


async def test_a_person_is_asked_on_their_own_clients_alone(people: People) -> None:
    world = people.world
    mine, admins, childs = (world.listen(each) for each in (world.user, world.admin, world.child))
    narrow = world.listen(replace(world.user, scopes=frozenset({"operator.read", "operator.write"})))
    async with asking(people, world.user) as task:
        event = await asked_of(mine)
        assert event["expiresAtMs"] - event["createdAtMs"] == TIMEOUT_MS
        request = event["request"]
        assert (request["command"], request["commandArgv"]) == ("git push", ["git", "push"])
        assert (request["host"], request["cwd"], request["nodeId"]) == ("sandbox", "/files", None)
        assert (request["rule"], request["reason"]) == (PUSH.rule, PUSH.reason)
        await decide(people, world.user, event["id"], "allow-once")
        assert await task == "allow-once"
    (resolved,) = mine.named("exec.approval.resolved")
    assert resolved["payload"]["decision"] == "allow-once" and resolved["payload"]["resolvedBy"] == world.user.user_id
    assert admins.events == childs.events == narrow.events == []
    assert [each[0] for each in await people.actions()] == ["approval.requested", "approval.decided"]


async def test_where_admins_decide_nobody_decides_for_themselves(strict: People) -> None:
    world = strict.world
    mine, admins, guardians = (world.listen(each) for each in (world.user, world.admin, strict.guardian))
    async with asking(strict, world.user) as task:
        event = await asked_of(admins)
        assert event["request"]["askedBy"] == (await strict.user(world.user)).display_name
        assert mine.events == guardians.events == []
        with pytest.raises(RequestError, match="somebody else has to decide about this request"):
            await decide(strict, world.user, event["id"], "allow-once")
        with pytest.raises(RequestError, match="unknown approval id"):
            await decide(strict, strict.guardian, event["id"], "allow-once")
        assert not task.done()
        await decide(strict, world.admin, event["id"], "deny")
        assert await task == "deny"
    assert [each["payload"]["decision"] for each in mine.named("exec.approval.resolved")] == ["deny"]
    assert world.events.queued(world.admin.user_id) == [
        f"A command waits for this person's decision (…{event['id'][-8:]}): /approvals"
    ]


async def test_a_childs_go_to_admins_and_guardians(people: People) -> None:
    """Children run no commands; should one ever, others decide."""
    world = people.world
    admins, guardians, others = (world.listen(each) for each in (world.admin, people.guardian, world.user))
    async with asking(people, world.child) as task:
        event = await asked_of(guardians)
        assert await asked_of(admins) == event
        with pytest.raises(RequestError):
            await decide(people, replace(world.child, scopes=world.user.scopes), event["id"], "allow-once")
        await decide(people, people.guardian, event["id"], "allow-once")
        assert await task == "allow-once"
    assert others.events == []


async def test_who_lost_the_permission_to_decide_has_others_decide(people: People) -> None:
    world = people.world
    await world.users.set(world.user.user_id, UserChanges(flags={"approvals.decide": False}))
    admins = world.listen(world.admin)
    async with asking(people, world.user) as task:
        event = await asked_of(admins)
        await decide(people, world.admin, event["id"], "allow-once")
        assert await task == "allow-once"


# How long


async def test_without_a_client_the_person_is_told_how_to_answer(people: People) -> None:
    world = people.world
    user = await people.user(world.user)
    with pytest.raises(CommandBlocked) as blocked:
        await people.exec_approvals.ask(user, PUSH)
    (open_one,) = await people.exec_approvals.pending(world.user)
    ending = open_one.id[-8:]
    assert f"/approve {ending} allow-once" in str(blocked.value) and f"/deny {ending}" in str(blocked.value)
    assert await people.commands.list_approvals(world.user) == f"{ending} - run: git push"
    assert await people.commands.approve(world.user, f"{ending} maybe") == (
        "maybe: the answer is one of allow-once, allow-always, deny"
    )
    assert await people.commands.approve(world.user, f"…{ending.upper()}") == "Allowed once: git push"
    # The same command is let through once, in any other form it is not
    for other in (
        replace(PUSH, command="git push #"),
        replace(PUSH, commands=(("git", "push", "-f"),)),
        replace(PUSH, cwd="/files/other"),
        replace(PUSH, host="gateway"),
    ):
        with pytest.raises(CommandBlocked):
            await people.exec_approvals.ask(user, other)
    with pytest.raises(CommandBlocked):
        await people.exec_approvals.ask(await people.user(people.guardian), PUSH)
    assert await people.exec_approvals.ask(user, PUSH) == "allow-once"
    with pytest.raises(CommandBlocked):
        await people.exec_approvals.ask(user, PUSH)


async def test_a_late_answer_is_forgotten_in_time(people: People) -> None:
    user = await people.user(people.world.user)
    with pytest.raises(CommandBlocked):
        await people.exec_approvals.ask(user, PUSH)
    (open_one,) = await people.exec_approvals.pending(people.world.user)
    people.clock.now_ms += OPEN_MS - 1
    assert (await people.commands.deny(people.world.user, open_one.id)) == "Denied: git push"
    people.clock.now_ms += LATE_MS - 1
    assert await people.exec_approvals.ask(user, PUSH) == "deny"
    with pytest.raises(CommandBlocked):
        await people.exec_approvals.ask(user, PUSH)
    (open_one,) = await people.exec_approvals.pending(people.world.user)
    await decide(people, people.world.user, open_one.id, "allow-once")
    people.clock.now_ms += LATE_MS
    with pytest.raises(CommandBlocked):
        await people.exec_approvals.ask(user, PUSH)


async def test_an_open_question_is_not_asked_twice_and_expires(people: People) -> None:
    user = await people.user(people.world.user)
    for _ in range(3):
        with pytest.raises(CommandBlocked):
            await people.exec_approvals.ask(user, PUSH)
    (open_one,) = await people.exec_approvals.pending(people.world.user)
    people.clock.now_ms += OPEN_MS
    assert await people.exec_approvals.pending(people.world.user) == []
    with pytest.raises(RequestError, match="unknown approval id"):
        await decide(people, people.world.user, open_one.id, "allow-once")


async def test_somebody_else_who_is_away_is_waited_for_a_little(strict: People) -> None:
    with pytest.raises(CommandBlocked, match="somebody else has to allow it, was asked and has not answered"):
        await strict.exec_approvals.ask(await strict.user(strict.world.user), PUSH)
    (open_one,) = await strict.exec_approvals.pending(strict.world.admin)
    assert await strict.commands.list_approvals(strict.world.admin) == (
        f"{open_one.id[-8:]} - {(await strict.user(strict.world.user)).display_name}: run: git push"
    )
    assert "(yours)" in await strict.commands.list_approvals(strict.world.user)


async def test_two_that_wait_for_one_answer_share_it_only_if_it_holds_for_good(people: People) -> None:
    world = people.world
    mine = world.listen(world.user)
    async with asking(people, world.user) as first, asking(people, world.user) as second:
        event = await asked_of(mine)
        for _ in range(20):
            await asyncio.sleep(0)
        await decide(people, world.user, event["id"], "allow-once")
        outcomes = await asyncio.gather(first, second, return_exceptions=True)
    assert outcomes.count("allow-once") == 1
    assert [str(each) for each in outcomes if isinstance(each, CommandBlocked)] == [
        "it was allowed once, which another call has used (rule approval.used)"
    ]


async def test_a_question_ends_with_the_run_that_asked(people: People) -> None:
    mine = people.world.listen(people.world.user)
    async with asking(people, people.world.user) as task:
        event = await asked_of(mine)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert [each["payload"]["decision"] for each in mine.named("exec.approval.resolved")] == ["deny"]
    with pytest.raises(RequestError, match="unknown approval id"):
        await decide(people, people.world.user, event["id"], "allow-once")


async def test_too_many_and_too_long(people: People) -> None:
    user = await people.user(people.world.user)
    for number in range(MOST_OPEN):
        with pytest.raises(CommandBlocked, match="this person has to allow it"):
            await people.exec_approvals.ask(user, replace(PUSH, command=f"git push {number}"))
    with pytest.raises(CommandBlocked, match="20 requests are waiting already"):
        await people.exec_approvals.ask(user, PUSH)
    other = await people.user(people.guardian)
    with pytest.raises(CommandBlocked, match="this person has to allow it"):
        await people.exec_approvals.ask(other, PUSH)
    with pytest.raises(CommandBlocked, match="nobody is asked about more than"):
        await people.exec_approvals.ask(other, replace(PUSH, command="x" * (MOST_SHOWN + 1)))


# What was allowed for good


async def test_always_is_kept_as_words_for_that_place(people: People) -> None:
    world = people.world
    mine = world.listen(world.user)
    question = replace(PUSH, command="git push && make", commands=(("git", "push"), ("make",)))
    async with asking(people, world.user, question) as task:
        await decide(people, world.user, (await asked_of(mine))["id"], "allow-always")
        assert await task == "allow-always"
    allows = people.exec_approvals.allows
    assert await allows(world.user.user_id, [("git", "push")])
    assert await allows(world.user.user_id, [["make"], ["git", "push"]])
    for commands in ([], [()], [("git", "push"), ("rm",)], [("git", "push", "-f")], [("git push",)], [("git",)]):
        assert not await allows(world.user.user_id, commands), commands
    assert not await allows(world.user.user_id, [("make",)], host="gateway")
    assert not await allows(world.user.user_id, [("make",)], host="node", node_id="n")
    assert not await allows(people.guardian.user_id, [("make",)])
    assert not await allows(world.admin.user_id, [("make",)])
    grants = await people.exec_approvals.grants(world.user.user_id)
    assert {(each.pattern, each.uses) for each in grants} == {('["git","push"]', 2), ('["make"]', 1)}


async def test_what_cannot_be_told_apart_into_words_is_allowed_once(people: People) -> None:
    world = people.world
    mine = world.listen(world.user)
    async with asking(people, world.user, replace(PUSH, command="eval $x", commands=())) as task:
        await decide(people, world.user, (await asked_of(mine))["id"], "allow-always")
        assert await task == "allow-always"
    assert await people.exec_approvals.grants(world.user.user_id) == []


async def test_a_star_that_was_allowed_is_a_star(people: People) -> None:
    world = people.world
    mine = world.listen(world.user)
    odd = ("echo", "*", "**", "\\*", "\udcff", "")
    async with asking(people, world.user, replace(PUSH, command="odd", commands=(odd,))) as task:
        await decide(people, world.user, (await asked_of(mine))["id"], "allow-always")
        await task
    assert await people.exec_approvals.allows(world.user.user_id, [odd])
    assert not await people.exec_approvals.allows(world.user.user_id, [("echo", "x", "**", "\\*", "\udcff", "")])
    assert not await people.exec_approvals.allows(world.user.user_id, [("echo", "*", "a", "b")])
    async with asking(people, world.user, replace(PUSH, command="rm $x", commands=(("rm", "\0"),))) as task:
        await decide(people, world.user, (await asked_of(mine, 2))["id"], "allow-always")
        await task
    assert not await people.exec_approvals.allows(world.user.user_id, [("rm", "\0")])


async def test_the_houses_list_of_words(people: People) -> None:
    allows, user = people.exec_approvals.allows, people.world.user.user_id
    write_file(people, agents={"*": {"allowlist": [{"pattern": '["git","push","*"]'}, {"pattern": '["make","**"]'}]}})
    for argv in [("git", "push", "origin"), ("make",), ("make", "a", "b")]:
        assert await allows(user, [argv]) and await allows(user, [argv], host="node", node_id="n")
    for argv in [("git", "push"), ("git", "push", "a", "b"), ("/usr/bin/make",), ("git push *",)]:
        assert not await allows(user, [argv]), argv


async def test_what_one_allowed_oneself_does_not_hold_where_others_decide(tmp_path: Path) -> None:
    async with open_people(tmp_path, wait_s=0.01) as people:
        world = people.world
        mine = world.listen(world.user)
        async with asking(people, world.user) as task:
            await decide(people, world.user, (await asked_of(mine))["id"], "allow-always")
            await task
        assert await people.exec_approvals.allows(world.user.user_id, [("git", "push")])
        await world.users.set(world.user.user_id, UserChanges(flags={"approvals.decide": False}))
        assert not await people.exec_approvals.allows(world.user.user_id, [("git", "push")])
        admins = world.listen(world.admin)
        async with asking(people, world.user) as task:
            await decide(people, world.admin, (await asked_of(admins))["id"], "allow-always")
            assert await task == "allow-always"
        assert await people.exec_approvals.allows(world.user.user_id, [("git", "push")])


async def test_a_grant_that_is_removed_is_asked_about_again(people: People) -> None:
    world = people.world
    mine = world.listen(world.user)
    async with asking(people, world.user) as task:
        await decide(people, world.user, (await asked_of(mine))["id"], "allow-always")
        await task
    (grant,) = (await people.call(world.user, "exec.approval.grants"))["grants"]
    assert grant | {"createdAt": 0} == {
        "id": grant["id"],
        "pattern": '["git","push"]',
        "host": "sandbox",
        "nodeId": None,
        "createdAt": 0,
        "lastUsedAt": None,
        "uses": 0,
        "decidedBy": world.user.user_id,
    }
    remove = {"id": grant["id"]}
    assert await people.call(people.guardian, "exec.approval.grants.remove", remove) == {"removed": False}
    assert await people.call(world.user, "exec.approval.grants.remove", remove) == {"removed": True}
    assert not await people.exec_approvals.allows(world.user.user_id, [("git", "push")])
    assert (await people.actions())[-1] == ("approval.revoked", world.user.user_id, grant["id"])


# What the house says


async def test_the_houses_list_is_of_programs_or_of_words(people: People) -> None:
    allows, user = people.exec_approvals.allows, people.world.user.user_id
    write_file(
        people,
        agents={
            "*": {"allowlist": [{"pattern": "/usr/bin/env"}]},
            "main": {"allowlist": [{"pattern": "**/bin/sh"}]},
            "other": {"allowlist": [{"pattern": "/usr/bin/sort"}]},
        },
    )
    assert await allows(user, [("env",)]) and await allows(user, [("/usr/bin/env", "x"), ("sh", "-c", "x")])
    assert not await allows(user, [("sort",)]) and await allows(user, [("sort",)], agent_id="other")
    for argv in [("./env",), ("bin/env",), ("/files/env",), ("env\0",), ("ENV",), ("/usr/bin/env/",), ("no-such",)]:
        assert not await allows(user, [argv]), argv
    assert not await allows(user, [("env",)], host="node", node_id="n"), "there it is another program"
    shown = (await people.exec_approvals._file.snapshot()).file.agents
    assert shown
    (entry,) = shown["*"].allowlist or ()
    assert (entry.last_used_at, entry.last_used_command) == (people.clock.now_ms, "/usr/bin/env …")
    assert entry.last_resolved_path == "/usr/bin/env"


@pytest.mark.parametrize(
    ("security", "ask", "runs", "asks"),
    [
        ("", "", False, True),
        ("allowlist", "on-miss", False, True),
        ("allowlist", "off", False, False),
        ("full", "on-miss", False, True),
        ("full", "off", True, False),
        ("deny", "off", False, False),
        ("deny", "always", False, False),
    ],
)
async def test_how_strict_the_house_is(people: People, security: str, ask: str, runs: bool, asks: bool) -> None:
    user = await people.user(people.world.user)
    write_file(people, **({"security": security, "ask": ask} if security else {}))
    assert await people.exec_approvals.allows(user.id, [("git", "push")]) is runs
    assert bool(await people.exec_approvals.forbids()) is (security == "deny")
    if runs:
        assert await people.exec_approvals.ask(user, PUSH) == "allow-once"
        always = replace(PUSH, rule="session.always")
        with pytest.raises(CommandBlocked, match="this person has to allow it"):
            await people.exec_approvals.ask(user, always)
        child = await people.user(people.world.child)
        assert not await people.exec_approvals.allows(child.id, [("git", "push")])
        return
    with pytest.raises(CommandBlocked) as blocked:
        await people.exec_approvals.ask(user, PUSH)
    assert ("this person has to allow it" in str(blocked.value)) is asks


async def test_always_asks_about_what_was_allowed_for_good(people: People) -> None:
    user = people.world.user.user_id
    agents = {"main": {"allowlist": [{"pattern": "/usr/bin/env"}]}}
    write_file(people, agents=agents)
    assert await people.exec_approvals.allows(user, [("env",)])
    write_file(people, ask="always", agents=agents)
    assert not await people.exec_approvals.allows(user, [("env",)])


@pytest.mark.parametrize(("fallback", "runs"), [("deny", False), ("allowlist", False), ("full", True)])
async def test_what_happens_when_nobody_answers(people: People, fallback: str, runs: bool) -> None:
    write_file(people, askFallback=fallback)
    user = await people.user(people.world.user)
    if runs:
        assert await people.exec_approvals.ask(user, PUSH) == "allow-once"
        assert ("approval.used", user.id, "askFallback") in await people.actions()
        assert await people.exec_approvals.pending(people.world.user) == []
    else:
        with pytest.raises(CommandBlocked):
            await people.exec_approvals.ask(user, PUSH)


@pytest.mark.parametrize("text", ["{", "[]", '{"version":2}', '{"version":1,"defaults":{"security":"fulll"}}', "\x00"])
async def test_a_broken_file_lets_nothing_run_that_needs_a_yes(people: People, text: str) -> None:
    write_file(people, security="full", ask="off")
    user = await people.user(people.world.user)
    assert await people.exec_approvals.allows(user.id, [("git", "push")])
    (people.world.home / "exec-approvals.json").write_text(text)
    assert not await people.exec_approvals.allows(user.id, [("git", "push")])
    assert "an admin has to mend" in await people.exec_approvals.forbids()
    with pytest.raises(CommandBlocked, match="an admin has to mend"):
        await people.exec_approvals.ask(user, PUSH)


# Clients that ask


async def test_a_client_chooses_its_id_within_the_persons_own(people: People) -> None:
    world = people.world
    world.listen(world.user), world.listen(world.admin)
    mine = await wire(people, world.user, id="same")
    theirs = await wire(people, world.admin, id="same")
    with pytest.raises(RequestError, match="approval id already pending"):
        await wire(people, world.user, id="same")
    await decide(people, world.user, "same", "allow-once")
    assert (mine.decision, theirs.decision) == ("allow-once", None)
    for decision, why in (("allow-once", "unknown approval id"), ("ALLOW-ONCE", "invalid decision")):
        with pytest.raises(RequestError, match=why):
            await decide(people, world.user, "same", decision)
    with pytest.raises(RequestError, match="approval expired or not found"):
        await people.exec_approvals.wait_decision(people.guardian, "same")


async def test_of_two_questions_with_one_id_an_admin_decides_none(strict: People) -> None:
    """Else who chooses the id of another's question would have it decided for theirs."""
    world = strict.world
    world.listen(world.admin)
    first = await wire(strict, world.user, id="same", command="ls")
    second = await wire(strict, strict.guardian, id="same", command="rm -rf /")
    with pytest.raises(RequestError, match="unknown approval id"):
        await decide(strict, world.admin, "same", "allow-once")
    assert first.is_open and second.is_open


async def test_nobody_connected_is_at_once_expired(people: People) -> None:
    asked = await wire(people, people.world.user)
    assert (await people.exec_approvals.answer(asked)).decision is None
    assert not asked.is_open


async def test_what_is_shown_is_what_runs(people: People) -> None:
    """The text that a client sends with an argv is not what is decided about."""
    world = people.world
    mine = world.listen(world.user)
    await wire(people, world.user, command="echo hi", command_argv=["rm", "-rf", "a b"], host="node", node_id="n")
    request = (await asked_of(mine))["request"]
    assert request["command"] == "rm -rf 'a b'"
    assert request["systemRunBindingV1"] == {
        "version": 1,
        "argv": ["rm", "-rf", "a b"],
        "cwd": None,
        "agentId": None,
        "sessionKey": None,
        "envHash": None,
    }


async def test_who_may_run_no_commands_asks_about_none(people: People) -> None:
    world = people.world
    grants = people.policy.grants(Role.USER, {"commands.run": False})
    with pytest.raises(Forbidden, match=Permission.COMMANDS_RUN):
        await wire(people, replace(world.user, grants=grants))
    with pytest.raises(Forbidden, match=Permission.COMMANDS_RUN):
        await wire(people, world.child)


async def approved(people: People, caller: Caller, decision: str = "allow-once", **fields: Any) -> Asked:
    people.world.listen(caller)
    values = {"command": "ls", "command_argv": ["ls", "-l"], "host": "node", "node_id": "n1", "cwd": "/x"}
    asked = await wire(people, caller, **(values | fields))
    return await decide(people, caller, asked.id, decision)


async def test_a_node_runs_what_was_allowed_and_nothing_else(people: People) -> None:
    """SP-121: a decision is for one command, node and client, and is used once."""
    caller = people.world.user
    asked = await approved(people, caller, env={"A": "1"})

    def check(**changes: Any) -> str | None:
        values: dict[str, Any] = {
            "owner": caller.user_id,
            "run_id": asked.id,
            "node_id": "n1",
            "argv": ["ls", "-l"],
            "cwd": "/x",
            "env": {"A": "1"},
            "device_id": None,
            "conn_id": caller.conn_id,
        }
        return people.exec_approvals.check(**(values | changes))

    assert check(run_id="") == "MISSING_RUN_ID"
    assert check(run_id="other") == check(owner=people.world.admin.user_id) == "UNKNOWN_APPROVAL_ID"
    assert check(node_id="n2") == "APPROVAL_NODE_MISMATCH"
    assert check(conn_id="other") == check(conn_id=None) == "APPROVAL_CLIENT_MISMATCH"
    for changed in (
        {"argv": ["ls"]},
        {"argv": ["ls -l"]},
        {"cwd": None},
        {"env": None},
        {"env": {"A": "2"}},
        {"agent_id": "main"},
        {"session_key": "main"},
    ):
        assert check(**changed) == "APPROVAL_REQUEST_MISMATCH", changed
    assert check() is None
    assert check() == "APPROVAL_REQUIRED", "it was allowed once"
    people.clock.now_ms += TIMEOUT_MS
    assert check() == "APPROVAL_EXPIRED"
    people.clock.now_ms += TIMEOUT_MS
    await people.exec_approvals.pending(caller)
    assert check() == "UNKNOWN_APPROVAL_ID"


async def test_other_decisions_and_bindings_of_a_node(people: People) -> None:
    user = people.world.user
    here = {"conn_id": user.conn_id, "cwd": "/x"}
    check = people.exec_approvals.check
    denied = await approved(people, user, "deny")
    assert check(user.user_id, denied.id, "n1", ["ls", "-l"], **here) == "APPROVAL_REQUIRED"
    always = await approved(people, user, "allow-always")
    for _ in range(2):
        assert check(user.user_id, always.id, "n1", ["ls", "-l"], **here) is None
    loose = await approved(people, user, host="gateway", node_id=None)
    assert check(user.user_id, loose.id, "n1", ["ls", "-l"], **here) == "APPROVAL_NODE_BINDING_MISSING"
    open_one = await wire(
        people, user, command_argv=["ls", "-l"], host="node", node_id="n1", cwd="/x", timeout_ms=60_000
    )
    assert check(user.user_id, open_one.id, "n1", ["ls", "-l"], **here) == "APPROVAL_REQUIRED"
    device = replace(user, device_id="d" * 64)
    bound = await approved(people, device)
    assert check(user.user_id, bound.id, "n1", ["ls", "-l"], **here) == "APPROVAL_DEVICE_MISMATCH"
    assert check(user.user_id, bound.id, "n1", ["ls", "-l"], cwd="/x", device_id=device.device_id) is None
    textual = await approved(people, user, command_argv=[], host="gateway")
    assert check(user.user_id, textual.id, "n1", [], **here) == "APPROVAL_REQUEST_MISMATCH"


# What ends it


async def test_who_may_run_no_commands_any_more_is_denied(people: People) -> None:
    world = people.world
    mine = world.listen(world.user)
    allowed = await approved(people, world.user)
    async with asking(people, world.user) as task:
        await asked_of(mine, 2)
        await people.exec_approvals.person_changed(world.user.user_id)
        assert not task.done(), "a change that takes nothing of it changes nothing"
        await world.users.set(world.user.user_id, UserChanges(flags={"commands.run": False}))
        await people.exec_approvals.person_changed(world.user.user_id)
        assert await task == "deny"
    assert mine.named("exec.approval.resolved")[-1]["payload"]["resolvedBy"] is None
    code = people.exec_approvals.check(
        world.user.user_id, allowed.id, "n1", ["ls", "-l"], cwd="/x", conn_id=world.user.conn_id
    )
    assert code == "UNKNOWN_APPROVAL_ID"


async def test_two_who_decide_at_once_decide_once(strict: People) -> None:
    world = strict.world
    user = await world.users.add("Second", Role.ADMIN)
    second = await strict.caller(user.id)
    mine = world.listen(world.user)
    world.listen(world.admin)
    asked = await wire(strict, world.user)
    outcomes = await asyncio.gather(
        decide(strict, world.admin, asked.id, "allow-once"),
        decide(strict, second, asked.id, "deny"),
        return_exceptions=True,
    )
    assert sorted(type(each).__name__ for each in outcomes) == ["Asked", "RequestError"]
    assert len(mine.named("exec.approval.resolved")) == 1


@pytest.mark.parametrize("steps", range(12))
async def test_giving_up_at_any_moment_leaves_nothing_behind(people: People, steps: int) -> None:
    people.world.listen(people.world.user)
    task = asyncio.ensure_future(people.exec_approvals.ask(await people.user(people.world.user), PUSH))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await people.exec_approvals.pending(people.world.user) == []
    async with asking(people, people.world.user) as again:
        await until(lambda: bool(people.exec_approvals._open()))
        await decide(people, people.world.user, people.exec_approvals._open()[0].id, "allow-once")
        assert await again == "allow-once"
