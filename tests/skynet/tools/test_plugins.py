"""Plugins as tools: what a program gets of a call, and what the model is told of it."""

import asyncio
import json
import os
import shutil
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from skynet.plugins import Plugins
from skynet.plugins.running import PluginRunner
from skynet.supervisor import Supervisor
from skynet.tools.plugins import INPUT_BYTES, OUTPUT_CHARS, PluginTools
from skynet_agent.messages import ToolCallBlock, text_of
from skynet_agent.tools import Toolbox, ToolContext
from skynet_terminal.errors import SandboxUnavailable
from skynet_terminal.sandbox import Limits, Sandbox
from skynet_terminal.sandbox.bubblewrap import Bubblewrap
from skynet_terminal.sandbox.egress import EgressProxy
from skynet_terminal.sandbox.unconfined import Unconfined
from tests.skynet.tools.conftest import ADA
from tests.support.polling import until
from tests.support.programs import needs

ENV = {"OPENAI_API_KEY": "sk-gateway", "SKYNET_GATEWAY_AUTH_TOKEN": "t-gateway", "WEATHER_KEY": "w-123"}
ANYTHING = '[parameters]\ntype = "object"\n'


class Bench:
    """A directory of plugins, and a toolbox with nothing else in it."""

    def __init__(self, home: Path, sandbox: Sandbox) -> None:
        self.home = home
        self.directory = home / "tools"
        self.directory.mkdir(mode=0o700)
        self.sandbox: Sandbox | None = sandbox
        self.limits = Limits()
        self.use(ENV)

    @property
    def is_confined(self) -> bool:
        return self.sandbox is None or self.sandbox.name != "none"

    def use(self, env: Mapping[str, str]) -> None:
        """Begin anew, with plugins that get their variables of these."""
        runner = PluginRunner(self._sandbox, nothing=self.home / "nothing", limits=self.limits)
        tools = PluginTools(Plugins(self.directory, env=env), runner, folder_of=self.files_of)
        self.toolbox = Toolbox([], permits=lambda context, tool: None, more=tools.tools)

    def files_of(self, context: ToolContext) -> Path:
        return self.home / "users" / context.owner / "files"

    async def _sandbox(self) -> Sandbox:
        if self.sandbox is None:
            raise SandboxUnavailable("bubblewrap is not installed")
        return self.sandbox

    def put(self, name: str, script: str, more: str = ANYTHING, *, interpreter: str = "/bin/sh") -> Path:
        """A plugin with this script; ``more`` are lines of its ``tool.toml``."""
        folder = self.directory / name
        folder.mkdir(mode=0o700, exist_ok=True)
        program = folder / "run"
        program.write_text(f"#!{interpreter}\n{script}\n")
        program.chmod(0o700)
        (folder / "tool.toml").write_text(f'description = "Does {name}."\ncommand = ["./run"]\n{more}')
        (folder / "tool.toml").chmod(0o600)
        return folder

    async def call(self, name: str, context: ToolContext = ADA, **arguments: Any) -> tuple[str, bool]:
        await self.toolbox.refresh()
        result = await self.toolbox.run(ToolCallBlock("call", name, arguments), context)
        return text_of(result), result.is_error

    async def does(self, name: str, **arguments: Any) -> str:
        text, is_error = await self.call(name, **arguments)
        assert not is_error, text
        return text

    async def fails(self, name: str, **arguments: Any) -> str:
        text, is_error = await self.call(name, **arguments)
        assert is_error, text
        return text


@pytest.fixture(params=["none", pytest.param("bubblewrap", marks=needs("bwrap"))])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(tmp_path, Unconfined() if request.param == "none" else Bubblewrap(tmp_path / "system"))


def running(word: str) -> int:
    """How many processes of the machine have this argument."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += word.encode() in path.read_bytes().split(b"\0")
    return found


def kill(word: str) -> None:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if word.encode() in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)


async def test_input_and_output(bench: Bench) -> None:
    bench.put("echo", 'printf "%s by %s" "$SKYNET_INPUT" "$SKYNET_USER"')
    assert await bench.does("echo", text="grün\0 'a'", n=[1]) == '{"text":"grün\\u0000 \'a\'","n":[1]} by ada'


async def test_what_the_model_is_told_of_it(bench: Bench) -> None:
    schema = '[parameters]\ntype = "object"\nproperties.place.type = "string"\nrequired = ["place"]\n'
    bench.put("weather", "echo", f"timeout_s = 7\n{schema}")
    (tool,) = await bench.toolbox.refresh()
    assert (tool.name, tool.description, tool.timeout_s) == ("weather", "Does weather.", 7)
    assert (tool.permission, tool.needs_sandbox, tool.plugin) == ("plugins.run", True, "weather")
    (definition,) = bench.toolbox.definitions()
    assert definition.parameters == {
        "type": "object",
        "properties": {"place": {"type": "string"}},
        "required": ["place"],
    }
    assert "'place' is a required property" in await bench.fails("weather")


async def test_it_runs_in_its_folder(bench: Bench) -> None:
    folder = bench.put("where", 'pwd; echo "$HOME"; cat data')
    (folder / "data").write_text("mine\n")
    seen = "/plugin" if bench.is_confined else folder
    assert await bench.does("where") == f"{seen}\n{seen}\nmine"


async def test_files_of_its_own_that_it_names_with_their_whole_path(bench: Bench) -> None:
    folder = bench.put("whole", "echo $1; cat $1")
    (folder / "data").write_text("mine\n")
    command = json.dumps([str(folder / "run"), str(folder / "data")])
    (folder / "tool.toml").write_text(f'description = "a"\ncommand = {command}\n')
    assert (await bench.does("whole")).endswith("/data\nmine")


async def test_its_environment_is_clean(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    lines = "import os, json\nprint(json.dumps(dict(os.environ)))"
    bench.put("dump", lines, f'env = {{ KEY = "${{WEATHER_KEY}}" }}\n{ANYTHING}', interpreter="/usr/bin/env python3")
    seen = json.loads(await bench.does("dump"))
    for name in ("PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE", "__CF_USER_TEXT_ENCODING"):  # the shell's and Python's own
        seen.pop(name, None)
    assert seen == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "HOME": "/plugin" if bench.is_confined else str(bench.directory / "dump"),
        "SKYNET_INPUT": "{}",
        "SKYNET_USER": "ada",
        "KEY": "w-123",
    }


@pytest.mark.parametrize("more", [0, 1], ids=["in the variable", "on stdin"])
async def test_long_input(bench: Bench, more: int) -> None:
    bench.put("long", 'echo "${SKYNET_INPUT+variable} $(printenv SKYNET_INPUT | wc -c) $(wc -c)"')
    said = (await bench.does("long", text="x" * (INPUT_BYTES - len('{"text":""}') + more))).split()
    assert said == (["variable", str(INPUT_BYTES + 1), "0"] if not more else ["0", str(INPUT_BYTES + 1)])


async def test_an_input_that_is_no_text(bench: Bench) -> None:
    bench.put("echo", "echo")
    assert "half a character" in await bench.fails("echo", text="\ud800")


async def test_an_error_is_told_with_stderr(bench: Bench) -> None:
    bench.put("fail", 'echo so far; echo "no such place" >&2; exit 3')
    assert await bench.fails("fail") == "fail failed with exit code 3:\nno such place"


async def test_an_error_that_is_only_on_stdout_or_not_told(bench: Bench) -> None:
    bench.put("a", "echo no such place; exit 1")
    bench.put("b", "exit 1")
    bench.put("c", "kill -KILL $$")
    bench.put("d", "kill -40 $$")
    assert await bench.fails("a") == "a failed with exit code 1:\nno such place"
    assert await bench.fails("b") == "b failed with exit code 1"
    assert await bench.fails("c") == "c was ended by SIGKILL"
    assert await bench.fails("d") == "d was ended by signal 40"


async def test_what_a_success_says_on_stderr_is_not_told(bench: Bench) -> None:
    bench.put("warns", "echo careful >&2; echo done")
    bench.put("silent", "echo careful >&2")
    assert await bench.does("warns") == "done"
    assert await bench.does("silent") == "(no output)"


async def test_much_output_is_cut_in_the_middle(bench: Bench) -> None:
    bench.put("long", "echo begin; yes | head -n 100000; echo end")
    bench.put("endless", "yes | head -c 3000000")
    bench.put("fails", "yes wrong | head -n 100000 >&2; exit 1")
    said = await bench.does("long")
    assert len(said) <= OUTPUT_CHARS and said.startswith("begin\n") and said.endswith("y\nend")
    assert "characters left out" in said
    assert (await bench.does("endless")).endswith("[of 3000000 bytes the first 1048576 were read]")
    assert len(await bench.fails("fails")) <= OUTPUT_CHARS


async def test_binary_output(bench: Bench) -> None:
    bench.put("noise", "head -c 5000 /dev/urandom; head -c 100 /dev/urandom >&2")
    said = await bench.does("noise")
    assert "�" in said
    json.dumps(said).encode()


@pytest.mark.parametrize("seconds", [1, 2])
async def test_a_call_that_takes_too_long_is_killed_with_its_children(bench: Bench, seconds: int) -> None:
    word = f"{seconds}9.{id(bench)}"
    bench.put("slow", f"trap '' TERM; sleep {word} & setsid sleep {word} & wait", f"timeout_s = {seconds}\n")
    began_s = time.monotonic()
    task = asyncio.create_task(bench.fails("slow"))
    await until(lambda: running(word) >= 2 or task.done())
    assert await task == f"slow was stopped after {seconds} seconds"
    assert seconds <= time.monotonic() - began_s
    if bench.is_confined:
        await until(lambda: not running(word))
    else:  # one that leaves the group is nobody's any more
        await until(lambda: running(word) == 1)
        kill(word)


async def test_thirty_seconds_is_the_default(bench: Bench) -> None:
    bench.put("slow", "sleep 31")
    (tool,) = await bench.toolbox.refresh()
    assert tool.timeout_s == 30


async def test_cancelling_a_call_kills_it_with_its_children(bench: Bench) -> None:
    word = f"99.{id(bench)}"
    bench.put("slow", f"trap '' TERM; sleep {word} & sleep {word} & wait")
    task = asyncio.create_task(bench.call("slow"))
    await until(lambda: running(word) >= 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not running(word))


async def test_one_that_cannot_be_run(bench: Bench) -> None:
    bench.put("odd", "", interpreter="/no/such/thing")
    folder = bench.put("bare", "")
    (folder / "tool.toml").write_text('description = "a"\ncommand = ["no-such-program"]')
    assert "odd failed with exit code 127:\nodd: " in await bench.fails("odd")
    assert "no-such-program" in await bench.fails("bare")


async def test_one_whose_variables_are_too_long(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.use({"LONG": "x" * 200_000})
    bench.put("large", "", 'env = { A = "${LONG}" }\n')
    assert await bench.fails("large") == "large could not be started: Argument list too long"
    assert "the plugin large could not be started" in caplog.text


async def test_what_changes_between_two_messages(bench: Bench) -> None:
    folder = bench.put("a", "echo one")
    assert await bench.does("a") == "one"
    bench.put("a", "echo two")  # the program may change as it likes
    assert await bench.does("a") == "two"
    bench.put("b", "echo three")
    assert await bench.does("b") == "three"
    shutil.rmtree(folder)
    assert await bench.fails("a") == "there is no tool 'a'; there are: b"


async def test_what_changes_within_a_message(bench: Bench) -> None:
    folder = bench.put("a", "echo one")
    await bench.toolbox.refresh()
    call = ToolCallBlock("call", "a", {})
    words = "a has just been changed or removed; what it is now holds from the next message"
    (folder / "run").chmod(0o722)  # somebody else could have written it since
    assert text_of(await bench.toolbox.run(call, ADA)) == words
    (folder / "run").chmod(0o700)
    assert text_of(await bench.toolbox.run(call, ADA)) == "one"
    bench.put("a", "echo two", "timeout_s = 5\n")
    assert text_of(await bench.toolbox.run(call, ADA)) == words
    shutil.rmtree(folder)
    assert text_of(await bench.toolbox.run(call, ADA)) == words


async def test_definitions_are_the_same_until_something_changes(bench: Bench) -> None:
    bench.put("a", "")
    bench.put("b", "")
    await bench.toolbox.refresh()
    first = bench.toolbox.definitions()
    await bench.toolbox.refresh()
    assert bench.toolbox.definitions() is first
    bench.put("c", "")
    await bench.toolbox.refresh()
    assert bench.toolbox.definitions()[:2] == first
    assert [each.name for each in bench.toolbox.definitions()] == ["a", "b", "c"]


async def test_many_calls_at_once(bench: Bench) -> None:
    bench.put("echo", 'sleep 0.1; printf "%s" "$SKYNET_INPUT"')
    await bench.toolbox.refresh()
    calls = [ToolCallBlock(f"c{number}", "echo", {"n": number}) for number in range(30)]
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(bench.toolbox.run(call, ADA)) for call in calls]
    assert [text_of(task.result()) for task in running] == [f'{{"n":{number}}}' for number in range(30)]


async def test_without_a_sandbox_none_runs(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """W11: unless somebody has asked for none."""
    bench.put("mark", "echo ran >marks; echo ran")
    bench.sandbox = None
    said = await bench.fails("mark")
    assert said == "mark was not run, as there is no sandbox for it: bubblewrap is not installed"
    assert "the plugin mark was not run" in caplog.text
    assert not (bench.directory / "mark" / "marks").exists()


@needs("bwrap")
class TestConfined:
    """W11: what a plugin cannot do in the sandbox, and what it can where its ``tool.toml`` says so."""

    @pytest.fixture
    def bench(self, tmp_path: Path) -> Bench:
        return Bench(tmp_path, Bubblewrap(tmp_path / "system"))

    async def test_it_reads_nothing_of_the_gateway_or_of_others(self, bench: Bench) -> None:
        (bench.home / "skynet.db").write_text("s3cr3t-word")
        others = bench.home / "users" / "bob" / "files"
        own = bench.files_of(ADA)
        for folder in (others, own):
            folder.mkdir(parents=True)
            (folder / "diary").write_text("s3cr3t-word")
        bench.put("other", "", 'env = { KEY = "s3cr3t-word" }\n')
        script = (
            f"ls {bench.home} {others} {own} {bench.directory}; cat {bench.home}/skynet.db {own}/diary /files/diary; "
            "ls -A /files; cat /proc/*/environ | tr '\\0' '\\n' | grep -c s3cr3t-word; "
            "grep -rl s3cr3t-word /etc /home /root /run /srv /tmp /var /files; cat /etc/shadow; echo end"
        )
        bench.put("look", f"exec 2>&1; {script}")
        said = (await bench.does("look")).splitlines()
        refused = ("No such file or directory", "Permission denied")
        assert [line for line in said if not line.endswith(refused)] == ["0", "end"]
        assert len(said) > 8

    async def test_it_writes_nothing_but_its_temporary_files(self, bench: Bench) -> None:
        script = "for d in /plugin /files / /etc /usr /run; do echo x >$d/x; done; ls /tmp; echo x >/tmp/x; cat /tmp/x"
        folder = bench.put("write", script)
        assert await bench.does("write") == "x"
        assert sorted(path.name for path in folder.iterdir()) == ["run", "tool.toml"]
        assert await bench.does("write") == "x"

    async def test_it_has_no_network(self, bench: Bench) -> None:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        bench.put("net", f"curl -sS http://127.0.0.1:{port}/ 2>&1; tail -n +3 /proc/net/dev; true")
        said = await bench.does("net")
        server.close()
        assert f"connect to 127.0.0.1 port {port}" in said
        assert [line.split(":")[0].strip() for line in said.splitlines() if ":" in line][-1:] == ["lo"]

    async def test_it_sees_no_processes_of_others(self, bench: Bench) -> None:
        bench.put("ps", "ls /proc | grep -c '^[0-9]'; kill -0 $PPID; tr '\\0' ' ' </proc/1/cmdline")
        said = await bench.does("ps")
        assert int(said.split()[0]) < 8 and "pytest" not in said

    async def test_files_that_it_may_read(self, bench: Bench) -> None:
        own = bench.files_of(ADA)
        own.mkdir(parents=True)
        (own / "list").write_text("milk")
        bench.put("read", "cat /files/list; echo x >/files/new; echo eggs >>/files/list", 'files = "read"\n')
        assert (await bench.fails("read")).count("Read-only file system") == 2
        bench.put("read", "cat /files/list", 'files = "read"\n')
        assert await bench.does("read") == "milk"
        assert (own / "list").read_text() == "milk" and not (own / "new").exists()

    async def test_files_that_it_may_write(self, bench: Bench) -> None:
        """Of whoever asks, in a room the room's; they are made where there are none."""
        bench.put("note", "echo $SKYNET_USER >>/files/notes; cat /files/notes", 'files = "write"\n')
        assert await bench.does("note") == "ada"
        assert await bench.does("note") == "ada\nada"
        assert (bench.files_of(ADA) / "notes").read_text() == "ada\nada\n"

    async def test_hosts_that_it_may_reach(self, bench: Bench, tmp_path: Path) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nsun")
            await writer.drain()
            writer.close()

        async def resolve(host: str, port: int) -> list[str]:
            return ["127.0.0.1"]

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with Supervisor() as tasks:
            egress = EgressProxy(tasks, directory=tmp_path / "egress", resolve=resolve, may_reach=lambda address: True)
            bench.sandbox = Bubblewrap(tmp_path / "system", egress=egress)
            hosts = f'hosts = ["weather.example:{port}"]\n'
            bench.put("weather", f"curl -sS http://weather.example:{port}/", hosts)
            bench.put("other", f"curl -sS http://other.example:{port}/", hosts)
            assert await bench.does("weather") == "sun"
            assert (await bench.does("other")).startswith("other.example is not among the hosts that may be reached")
            await egress.close()
        server.close()

    async def test_a_limit_that_it_reaches(self, bench: Bench) -> None:
        bench.limits = Limits(file_bytes=1024 * 1024)
        bench.use({})
        bench.put("fill", "head -c 5M /dev/zero >/tmp/big")
        assert "SIGXFSZ" in await bench.fails("fill")
