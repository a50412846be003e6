"""Plugins as tools: what a program gets of a call, and what the model is told of it."""

import asyncio
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from skynet.plugins import Plugins
from skynet.tools.plugins import INPUT_BYTES, OUTPUT_CHARS, PluginTools
from skynet_agent.messages import ToolCallBlock, text_of
from skynet_agent.tools import Toolbox, ToolContext
from tests.skynet.tools.conftest import ADA
from tests.support.polling import until

ENV = {"OPENAI_API_KEY": "sk-gateway", "SKYNET_GATEWAY_AUTH_TOKEN": "t-gateway", "WEATHER_KEY": "w-123"}
ANYTHING = '[parameters]\ntype = "object"\n'


class Bench:
    """A directory of plugins, and a toolbox with nothing else in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700)
        plugins = Plugins(directory, env=ENV)
        self.toolbox = Toolbox([], permits=lambda context, tool: None, more=PluginTools(plugins).tools)

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


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "tools")


def is_gone(pid: int) -> bool:
    """Ended; whether somebody has waited for it or not."""
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


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
    assert await bench.does("where") == f"{folder}\n{folder}\nmine"


async def test_its_environment_is_clean(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    lines = "import os, json\nprint(json.dumps(dict(os.environ)))"
    bench.put("dump", lines, f'env = {{ KEY = "${{WEATHER_KEY}}" }}\n{ANYTHING}', interpreter=sys.executable)
    seen = json.loads(await bench.does("dump"))
    for name in ("PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE", "__CF_USER_TEXT_ENCODING"):  # the shell's and Python's own
        seen.pop(name, None)
    assert seen == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "HOME": str(bench.directory / "dump"),
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
    script = "trap '' TERM; sleep 99 & echo $! >pids; echo $$ >>pids; wait"
    folder = bench.put("slow", script, f"timeout_s = {seconds}\n")
    began_s = time.monotonic()
    assert await bench.fails("slow") == f"slow was stopped after {seconds} seconds"
    assert seconds <= time.monotonic() - began_s < seconds + 2
    started = [int(line) for line in (folder / "pids").read_text().split()]
    assert len(started) == 2
    await until(lambda: all(map(is_gone, started)))


async def test_thirty_seconds_is_the_default(bench: Bench) -> None:
    bench.put("slow", "sleep 31")
    (tool,) = await bench.toolbox.refresh()
    assert tool.timeout_s == 30


async def test_cancelling_a_call_kills_it_with_its_children(bench: Bench) -> None:
    folder = bench.put("slow", "trap '' TERM; sleep 99 & echo $! >pids; echo $$ >>pids; wait")
    pids = folder / "pids"
    task = asyncio.create_task(bench.call("slow"))
    await until(lambda: pids.exists() and pids.read_text().count("\n") == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: all(is_gone(int(line)) for line in pids.read_text().split()))


async def test_one_that_cannot_be_run(bench: Bench) -> None:
    bench.put("odd", "", interpreter="/no/such/thing")
    folder = bench.put("bare", "")
    (folder / "tool.toml").write_text('description = "a"\ncommand = ["no-such-program"]')
    assert "odd failed with exit code 127:\nodd: " in await bench.fails("odd")
    assert "no-such-program" in await bench.fails("bare")


async def test_one_whose_variables_are_too_long(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    plugins = Plugins(bench.directory, env={"LONG": "x" * 200_000})
    bench.toolbox = Toolbox([], permits=lambda context, tool: None, more=PluginTools(plugins).tools)
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
