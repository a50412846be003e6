"""``terminal.*`` over real sockets, in the real sandbox: commands, jobs, and terminals that several look at."""

import asyncio
import json
import os
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from websockets.asyncio.client import connect

from skynet_memory.ids import Role
from tests.end_to_end.scene import add_person, files_of, owner_of
from tests.support.client import Refused, WireClient, connect_params
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.polling import until
from tests.support.programs import needs

pytestmark = needs("bwrap")

MB = 1024 * 1024


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path) as running:
        yield running


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[WireClient]:
    async with gateway.client() as connected:
        yield connected


async def refusal(client: WireClient, method: str, params: dict[str, Any]) -> dict[str, Any]:
    with pytest.raises(Refused) as refused:
        await client.call(method, params)
    return refused.value.error


async def opened(client: WireClient, *, watch: bool = True, **params: Any) -> str:
    terminal_id: str = (await client.call("terminal.create", params))["terminalId"]
    if watch:
        await client.call("terminal.subscribe", {"terminalId": terminal_id})
    return terminal_id


def shown(client: WireClient, terminal_id: str) -> str:
    return "".join(
        event["payload"]["data"]
        for event in client.events
        if event["event"] == "terminal.output" and event["payload"]["terminalId"] == terminal_id
    )


def end(terminal_id: str) -> Any:
    return lambda event: event["event"] == "terminal.exit" and event["payload"]["terminalId"] == terminal_id


async def type_line(client: WireClient, terminal_id: str, text: str) -> None:
    await client.call("terminal.write", {"terminalId": terminal_id, "data": f"{text}\n"})


# Commands


async def test_a_command(client: WireClient, gateway: RunningGateway, tmp_path: Path) -> None:
    """SK-182, SK-175."""
    command = "printf '\\033[31mrot\\033[0m\\n'; echo war >&2; pwd > here; exit 3"
    result = await client.call("terminal.exec", {"command": command, "raw": True})
    took = result.pop("durationMs")
    assert 0 <= took < 40_000
    assert result == {
        "stdout": "rot\n",
        "stderr": "war\n",
        "output": result["output"],
        "exitCode": 3,
        "timedOut": False,
        "truncated": False,
        "omittedChars": 0,
        "sandbox": "bubblewrap",
        "raw": {"stdout": "\x1b[31mrot\x1b[0m\n", "stderr": "war\n"},
    }
    assert sorted(result["output"].split()) == ["rot", "war"]
    folder = files_of(tmp_path, await owner_of(gateway))
    assert (folder / "here").read_text() == "/files\n"
    (folder / "sub").mkdir()
    for cwd in ("sub", "/files/sub"):
        assert (await client.call("terminal.exec", {"command": "pwd", "cwd": cwd}))["stdout"] == "/files/sub\n"
    for cwd in ("../..", "/etc/..", "/root", "nowhere"):
        error = await refusal(client, "terminal.exec", {"command": "pwd", "cwd": cwd})
        assert (error["code"], error["details"]["code"]) == ("INVALID_REQUEST", "INVALID_PARAMS"), error


async def test_one_that_takes_too_long_is_killed_with_its_children(client: WireClient) -> None:
    """SK-175, BA-026: what it had written is kept."""
    command = "echo begun; sleep 4321 & sleep 4321"
    result = await client.call("terminal.exec", {"command": command, "timeoutMs": 700})
    assert (result["timedOut"], result["stdout"]) == (True, "begun\n")
    await until(lambda: not processes("4321"))
    error = await refusal(client, "terminal.exec", {"command": "true", "timeoutMs": 300_001})
    assert error["message"] == "invalid terminal.exec params: at /timeoutMs: must be <= 300000"


async def test_much_output_loses_its_middle(client: WireClient) -> None:
    """SK-180, SK-181."""
    result = await client.call(
        "terminal.exec", {"command": "for i in $(seq 100); do printf '🙂%.0s' $(seq 1000); done"}
    )
    assert result["truncated"]
    kept = result["stdout"].count("🙂")
    assert kept + result["omittedChars"] == 100_000
    assert len(result["stdout"]) <= 30_000 + 100
    assert "\N{REPLACEMENT CHARACTER}" not in result["stdout"]


async def test_closing_the_connection_ends_what_it_waits_for(gateway: RunningGateway) -> None:
    async with gateway.client() as client:
        await client.send_frame("terminal.exec", {"command": "sleep 4322"})
        await until(lambda: processes("4322"))
    await until(lambda: not processes("4322"))


async def test_the_same_key_runs_nothing_again(client: WireClient, gateway: RunningGateway) -> None:
    params = {"command": "echo x >> count; sleep 0.2; wc -l < count", "idempotencyKey": "k"}
    async with gateway.client() as other:
        answers = await asyncio.gather(client.call("terminal.exec", params), other.call("terminal.exec", params))
        assert answers[0] == answers[1]
        await other.send_frame("terminal.exec", {"command": "sleep 1; echo y >> goes-on", "idempotencyKey": "l"})
        await other.call("ping")
    again = await client.call("terminal.exec", {"command": "whatever", "idempotencyKey": "l"})
    assert again["exitCode"] == 0
    assert (await client.call("terminal.exec", {"command": "cat count goes-on"}))["stdout"] == "x\ny\n"


async def test_nothing_skips_the_rules(client: WireClient) -> None:
    """SK-184."""
    for flags in ({"force": True}, {"skipSafety": True}, {"force": True, "skipSafety": True}, {"by_hand": False}):
        error = await refusal(client, "terminal.exec", {"command": "rm -rf /", **flags})
        assert error["details"]["code"] == "INVALID_PARAMS"
        assert "unexpected property" in error["message"]
    for method in ("terminal.exec", "terminal.exec_bg", "terminal.create"):
        error = await refusal(client, method, {"command": "rm -rf /"})
        assert error["code"] == "INVALID_REQUEST"
        assert error["details"]["code"] == "COMMAND_BLOCKED"
        assert error["details"]["rule"]
        assert error["details"]["reason"] in error["message"]
    error = await refusal(client, "terminal.exec", {"command": "echo ok; rm -rf ~"})
    assert error["details"]["code"] == "COMMAND_BLOCKED"
    async with asyncio.timeout(40):  # recorded soon after
        while len((await client.call("audit.list", {"action": "command.blocked"}))["entries"]) < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


# Jobs


async def test_a_job(client: WireClient) -> None:
    """SK-183, SK-176."""
    command = "echo begun; until [ -e go ]; do sleep 0.05; done; echo done >&2"
    job = (await client.call("terminal.exec_bg", {"command": command, "title": "a job"}))["job"]
    assert (job["status"], job["title"], job["command"]) == ("running", "a job", command)
    which = {"jobId": job["jobId"]}
    piece = await client.call("terminal.job_output", {**which, "waitMs": 30_000})
    assert (piece["data"], piece["ended"]) == ("begun\n", False)
    assert (await client.call("terminal.job_list", {"status": "running"}))["jobs"][0]["jobId"] == job["jobId"]
    await client.call("terminal.exec", {"command": "touch go"})
    rest = {"data": "", "cursor": piece["cursor"], "ended": False}
    while not rest["ended"]:
        rest = await client.call("terminal.job_output", {**which, "cursor": rest["cursor"], "waitMs": 30_000})
    assert rest["exitCode"] == 0
    whole = await client.call("terminal.job_output", which)
    assert (whole["data"], whole["dropped"]) == ("begun\ndone\n", 0)
    ended = (await client.call("terminal.job_status", which))["job"]
    assert (ended["status"], ended["exitCode"]) == ("completed", 0)
    assert ended["endedAt"] >= ended["startedAt"]
    assert [each["jobId"] for each in (await client.call("terminal.job_list"))["jobs"]] == [job["jobId"]]
    assert (await client.call("terminal.job_kill", which))["job"]["status"] == "completed"


async def test_killing_a_job_ends_its_whole_group(client: WireClient) -> None:
    """SK-183."""
    job = (await client.call("terminal.exec_bg", {"command": "sleep 4323 & sleep 4323"}))["job"]
    await until(lambda: len(processes("4323")) >= 2)
    killed = (await client.call("terminal.job_kill", {"jobId": job["jobId"]}))["job"]
    assert killed["status"] == "killed"
    await until(lambda: not processes("4323"))


# Terminals


async def test_a_terminal(client: WireClient) -> None:
    """SK-182, SK-173: each method once."""
    made = await client.call("terminal.create", {"title": "work", "env": {"GREETING": "hello there"}})
    assert (made["cols"], made["rows"], made["running"], made["title"]) == (220, 50, True, "work")
    which = {"terminalId": made["terminalId"]}
    assert [each["terminalId"] for each in (await client.call("terminal.list"))["terminals"]] == [made["terminalId"]]
    await client.call("terminal.subscribe", which)
    await type_line(client, made["terminalId"], "echo $GREETING; stty size; tty -s && echo a t''ty")
    await until(lambda: "a tty\r\n" in shown(client, made["terminalId"]))
    assert "hello there\r\n50 220\r\n" in shown(client, made["terminalId"])
    await client.call("terminal.resize", {**which, "cols": 100, "rows": 30})
    await client.call("terminal.write", {**which, "dataBase64": b64encode("stty size; echo Z''oë\n".encode()).decode()})
    await until(lambda: "30 100\r\nZoë" in shown(client, made["terminalId"]))
    assert (await client.call("terminal.unsubscribe", which))["ok"]
    assert not (await client.call("terminal.unsubscribe", which))["ok"]
    before = await client.call("terminal.read", which)
    while before["data"]:
        before = await client.call("terminal.read", {**which, "cursor": before["cursor"]})
    await type_line(client, made["terminalId"], "sleep 4324")
    await until(lambda: processes("4324"))
    await client.call("terminal.signal", {**which, "signal": "INT"})
    await until(lambda: not processes("4324"))
    await type_line(client, made["terminalId"], "echo $((6 * 7)); exit 5")
    read, text = before, ""
    while not read["ended"]:
        read = await client.call("terminal.read", {**which, "cursor": read["cursor"], "waitMs": 30_000})
        text += read["data"]
    assert "42\r\n" in text
    assert read["exitCode"] == 5
    assert not shown(client, made["terminalId"]).count("42\r\n")
    assert (await refusal(client, "terminal.write", {**which, "data": "x"}))["details"]["code"] == "NOT_FOUND"
    killed = await opened(client)
    ended = await client.call("terminal.kill", {"terminalId": killed})
    assert ended["terminal"]["running"] is False
    exit_event = (await client.event(end(killed)))["payload"]
    assert (exit_event["exitCode"], exit_event["signal"]) == (None, "SIGKILL")


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("terminal.write", {}),
        ("terminal.write", {"data": "x", "dataBase64": "eA=="}),
        ("terminal.write", {"dataBase64": "no base64"}),
        ("terminal.read", {"cursor": 10_000_000}),
        ("terminal.subscribe", {"cursor": 10_000_000}),
        ("terminal.resize", {"cols": 0, "rows": 10}),
        ("terminal.signal", {"signal": "SEGV"}),
    ],
)
async def test_what_makes_no_sense(client: WireClient, method: str, params: dict[str, Any]) -> None:
    terminal_id = await opened(client, watch=False)
    error = await refusal(client, method, {"terminalId": terminal_id, **params})
    assert error["details"]["code"] == "INVALID_PARAMS", error


async def test_limits(tmp_path: Path) -> None:
    toml = "[terminal]\nmax_terminals = 1\nmax_jobs = 1\n"
    async with running_gateway(tmp_path, toml=toml) as gateway, gateway.client() as client:
        await opened(client)
        assert (await refusal(client, "terminal.create", {}))["details"]["code"] == "LIMIT_REACHED"
        await client.call("terminal.exec_bg", {"command": "sleep 100"})
        error = await refusal(client, "terminal.exec_bg", {"command": "sleep 100"})
        assert error["details"]["code"] == "LIMIT_REACHED"


async def test_two_look_at_one_and_one_comes_back(client: WireClient, gateway: RunningGateway) -> None:
    terminal_id = await opened(client, command="while read line; do echo got $line; done", cols=80, rows=24)
    async with gateway.client() as other:
        await other.call("terminal.subscribe", {"terminalId": terminal_id})
        await type_line(other, terminal_id, "one")
        for each in (client, other):
            await until(lambda each=each: "got one\r\n" in shown(each, terminal_id))
        cursor = [e for e in other.events if e["event"] == "terminal.output"][-1]["payload"]["cursor"]
    await type_line(client, terminal_id, "two")
    await until(lambda: "got two\r\n" in shown(client, terminal_id))
    async with gateway.client() as again:
        await again.call("terminal.subscribe", {"terminalId": terminal_id, "cursor": cursor})
        await until(lambda: "got two\r\n" in shown(again, terminal_id))
        assert "one" not in shown(again, terminal_id)
    async with gateway.client() as fresh:
        await fresh.call("terminal.subscribe", {"terminalId": terminal_id})
        await until(lambda: "got two\r\n" in shown(fresh, terminal_id))
        assert "got one\r\n" in shown(fresh, terminal_id)
        await type_line(fresh, terminal_id, "three")
        await until(lambda: "got three\r\n" in shown(client, terminal_id))


async def test_a_flood_for_who_does_not_read(client: WireClient, gateway: RunningGateway) -> None:
    """Memory does not grow, nobody else waits, and the connection is not closed."""
    me = psutil.Process()
    terminal_id = await opened(client, watch=False, command="exec yes 'the same line again and again'")
    async with connect(gateway.url, max_queue=1, compression=None, max_size=None) as lazy:
        challenge = json.loads(await lazy.recv())
        params = connect_params(token=gateway.token, nonce=challenge["payload"]["nonce"])
        for number, (method, given) in enumerate(
            (("connect", params), ("terminal.subscribe", {"terminalId": terminal_id}))
        ):
            await lazy.send(json.dumps({"type": "req", "id": str(number), "method": method, "params": given}))
        await asyncio.sleep(0.5)  # it floods what buffers there are
        before = me.memory_info().rss
        slowest = 0.0
        for _ in range(100):
            asked = time.monotonic()
            await client.call("ping")
            slowest = max(slowest, time.monotonic() - asked)
            await asyncio.sleep(0.01)
        assert me.memory_info().rss - before < 40 * MB
        assert slowest < 2
        # It reads again: nothing was closed
        seen = ""
        async with asyncio.timeout(40):
            while "and again\\r\\n" not in seen:
                seen = str(await lazy.recv())
        await client.call("terminal.kill", {"terminalId": terminal_id})
        async with asyncio.timeout(40):
            while "terminal.exit" not in str(await lazy.recv()):
                pass


async def test_a_flood_can_be_stopped_by_a_key(client: WireClient) -> None:
    terminal_id = await opened(client)
    await type_line(client, terminal_id, "yes")
    await until(lambda: "y\r\ny\r\n" in shown(client, terminal_id)[-100:])
    await client.call("terminal.write", {"terminalId": terminal_id, "data": "\x03"})
    await type_line(client, terminal_id, "echo st''opped")
    await until(lambda: "stopped\r\n" in shown(client, terminal_id)[-2000:])


# Whose it is


async def test_what_is_anothers_is_not_there(client: WireClient, gateway: RunningGateway) -> None:
    """SK-182: not even for who may do everything."""
    _, token = await add_person(gateway, Role.USER)
    job = (await client.call("terminal.exec_bg", {"command": "sleep 100"}))["job"]["jobId"]
    terminal_id = await opened(client)
    async with gateway.client(token=token) as other:
        theirs = await opened(other)
        for who, terminal in ((other, terminal_id), (client, theirs)):
            for method, more in (
                ("write", {"data": "x"}),
                ("read", {}),
                ("resize", {"cols": 10, "rows": 10}),
                ("signal", {"signal": "INT"}),
                ("kill", {}),
                ("subscribe", {}),
                ("unsubscribe", {}),
            ):
                error = await refusal(who, f"terminal.{method}", {"terminalId": terminal, **more})
                assert error["details"]["code"] == "NOT_FOUND", (method, error)
        for method in ("job_status", "job_kill", "job_output"):
            error = await refusal(other, f"terminal.{method}", {"jobId": job})
            assert error["details"]["code"] == "NOT_FOUND", (method, error)
        assert (await other.call("terminal.job_list"))["jobs"] == []
        assert [each["terminalId"] for each in (await other.call("terminal.list"))["terminals"]] == [theirs]
        await type_line(client, terminal_id, "echo mine")
        await until(lambda: "mine\r\n" in shown(client, terminal_id))
        await other.call("ping")
        assert not shown(other, terminal_id)
    assert (await client.call("terminal.job_status", {"jobId": job}))["job"]["status"] == "running"


async def test_children_have_no_terminals(gateway: RunningGateway, tmp_path: Path) -> None:
    _, token = await add_person(gateway, Role.CHILD)
    async with gateway.client(token=token) as child:
        for method, params in (("exec", {"command": "ls"}), ("create", {}), ("list", {}), ("job_list", {})):
            error = await refusal(child, f"terminal.{method}", params)
            assert error["details"]["code"] == "FORBIDDEN", error


@pytest.mark.parametrize("approve", [True, False])
async def test_who_needs_approval_is_asked_for_it(tmp_path: Path, approve: bool) -> None:
    async with running_gateway(tmp_path, toml="[approvals]\nwait_s = 30\n") as gateway:
        user_id, token = await add_person(gateway, Role.USER)
        async with gateway.client() as admin, gateway.client(token=token) as person:
            await admin.call("users.set", {"userId": user_id, "requiresApproval": True})
            await person.closed()
        async with gateway.client() as admin, gateway.client(token=token) as person:
            asked = await person.send_frame("terminal.create", {})
            event = await admin.event(lambda each: each["event"] == "approvals.requested")
            assert processes_of(tmp_path) == []
            await admin.call("approvals.decide", {"id": event["payload"]["approval"]["id"], "approve": approve})
            answer = await person.response(asked)
            assert answer["ok"] == approve, answer
            if not approve:
                assert answer["error"]["details"]["code"] == "COMMAND_BLOCKED"


async def test_who_is_put_out_loses_everything_within_a_second(client: WireClient, gateway: RunningGateway) -> None:
    user_id, token = await add_person(gateway, Role.USER)
    async with gateway.client(token=token) as person:
        await opened(person, command="sleep 4325")
        await person.call("terminal.exec_bg", {"command": "sleep 4325"})
        await person.send_frame("terminal.exec", {"command": "sleep 4325", "idempotencyKey": "k"})
        await until(lambda: len(processes("4325")) >= 3)
        put_out = time.monotonic()
        await client.call("users.set", {"userId": user_id, "disabled": True})
        await until(lambda: not processes("4325"))
        await person.closed()
        assert time.monotonic() - put_out < 5  # a second, where nothing else is done


async def test_without_a_sandbox_only_admins_run_anything(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, toml='[terminal]\nsandbox = "none"\n') as gateway:
        _, token = await add_person(gateway, Role.USER)
        async with gateway.client() as admin, gateway.client(token=token) as person:
            assert (await admin.call("terminal.exec", {"command": "echo x"}))["sandbox"] == "none"
            for method, params in (("exec", {"command": "echo x"}), ("exec_bg", {"command": "echo x"}), ("create", {})):
                error = await refusal(person, f"terminal.{method}", params)
                assert error["details"]["code"] == "COMMAND_BLOCKED", error
            error = await refusal(person, "terminal.exec", {"command": "echo x", "host": "gateway"})
            assert error["details"]["code"] == "COMMAND_BLOCKED", error


def processes(word: str) -> list[int]:
    """Processes of this machine that were given ``word``."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        command = process.info["cmdline"] or ()
        if word in command and process.info["status"] != psutil.STATUS_ZOMBIE and command[0].endswith("sleep"):
            found.append(process.pid)
    return found


def processes_of(home: Path) -> list[str]:
    """Command lines of the sandboxes of this gateway."""
    return [
        " ".join(process.info["cmdline"])
        for process in psutil.process_iter(["cmdline"])
        if process.pid != os.getpid() and str(home) in " ".join(process.info["cmdline"] or ())
    ]
