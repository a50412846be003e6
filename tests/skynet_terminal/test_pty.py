"""Programs under a terminal: what they and their people see of each other, and how they end."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from skynet_terminal.errors import InputRefused, TerminalEnded
from skynet_terminal.pty import FAR_BEHIND_BYTES, INPUT_BYTES, SIGNALS, TURN_BYTES, LoopShare, Terminal
from skynet_terminal.replay import RING_BYTES
from skynet_terminal.sandbox.bubblewrap import Bubblewrap
from skynet_terminal.sandbox.unconfined import Unconfined
from tests.support.polling import until
from tests.support.programs import LIBRARY_SIGNALS, needs
from tests.support.terminals import Place, Watcher, all_of, place


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Place]:
    async with place(tmp_path / "files") as there:
        yield there


@pytest.fixture(params=["none", pytest.param("bubblewrap", marks=needs("bwrap"))])
async def confined(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """In each sandbox."""
    sandbox = Unconfined() if request.param == "none" else Bubblewrap(tmp_path / "bubblewrap")
    async with place(tmp_path / "files", sandbox) as there:
        yield there


async def says(terminal: Terminal, text: str, since: int = 0) -> int:
    """Wait until it has written ``text``; where it then is."""
    seen, cursor = "", since
    async with asyncio.timeout(40):
        while text not in seen:
            chunk = await terminal.read(cursor, 30)
            assert not chunk.ended or text in seen + chunk.text, seen + chunk.text
            seen, cursor = seen + chunk.text, chunk.cursor
    return cursor


def foreground(terminal: Terminal) -> str:
    """The process group that has the terminal (tpgid of proc_pid_stat(5))."""
    return Path(f"/proc/{terminal.pid}/stat").read_text().rpartition(")")[2].split()[5]


async def test_a_conversation_with_python(confined: Place) -> None:
    """SK-173."""
    terminal = await confined.open(["python3", "-i", "-q"])
    at = await says(terminal, ">>> ")
    terminal.write(b"6 * 7\n")
    at = await says(terminal, "42\r\n>>> ", at)
    terminal.write(b"input('who? ')\n")
    at = await says(terminal, "who? ", at)
    terminal.write("Zoë 🙂\n".encode())
    at = await says(terminal, "'Zoë 🙂'\r\n>>> ", at)
    terminal.write(b"raise SystemExit(5)\n")
    await terminal.ended.wait()
    assert (terminal.exit_code, terminal.signal, terminal.running) == (5, None, False)
    with pytest.raises(TerminalEnded):
        terminal.write(b"more")


async def test_a_flood_keeps_the_last_of_it(there: Place) -> None:
    """SK-174. Nobody looks: it runs on, and the oldest goes."""
    terminal = await there.open(["yes"])
    await until(lambda: terminal.ring.end > 20 * RING_BYTES)
    assert len(terminal.ring) <= RING_BYTES == 131_072
    chunk = await terminal.read(0, most_bytes=1_000_000)
    assert chunk.dropped > 19 * RING_BYTES - TURN_BYTES
    assert RING_BYTES - 10 <= len(chunk.text) <= RING_BYTES
    assert chunk.text.lstrip("\r\n").replace("y\r\n", "").strip("y\r") == ""


async def test_the_program_controls_its_terminal(confined: Place) -> None:
    terminal = await confined.open(["sh", "-c", "tty < /dev/tty; stty size; test -t 0 -a -t 1 -a -t 2 && echo all"])
    text = await all_of(terminal)
    assert "not a tty" not in text
    assert text.endswith("50 220\r\nall\r\n"), text
    assert terminal.exit_code == 0


async def test_it_sees_another_size_at_once(confined: Place) -> None:
    script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done"
    terminal = await confined.open(["bash", "-c", script], cols=80, rows=24)
    at = await says(terminal, "ready")
    terminal.resize(132, 43)
    await says(terminal, "43 132\r\n", at)
    assert (terminal.cols, terminal.rows) == (132, 43)
    for cols, rows, name in ((0, 1, "cols"), (1001, 1, "cols"), (1, 0, "rows"), (1, 1001, "rows")):
        with pytest.raises(ValueError, match=f"{name} is .*, allowed are 1 to 1000"):
            terminal.resize(cols, rows)


@pytest.mark.parametrize("name", ["INT", "TERM", "QUIT", "HUP", "USR1", "USR2"])
async def test_signals(confined: Place, name: str) -> None:
    script = (
        f"import signal, sys, time\nsignal.signal(signal.SIG{name}, lambda *a: sys.exit(33))\nprint('ready')\n"
        "while True: time.sleep(0.05)\n"
    )
    terminal = await confined.open(["python3", "-c", script])
    await says(terminal, "ready")
    terminal.send_signal(name)
    await terminal.ended.wait()
    assert terminal.exit_code == 33


async def test_a_program_that_is_no_shell_hears_keys(confined: Place) -> None:
    """SK-173: they are for the program and not for what confines it."""
    terminal = await confined.open(["python3", "-i", "-q"])
    at = await says(terminal, ">>> ")
    terminal.write(b"import time; print('now', flush=True); any(time.sleep(0.05) for _ in iter(int, 1))\n")
    at = await says(terminal, "now\r\n", at)
    terminal.write(b"\x03")
    at = await says(terminal, "KeyboardInterrupt\r\n>>> ", at)
    terminal.write(b"6 * 7\n")
    await says(terminal, "42\r\n", at)


async def test_signals_act_as_they_do_everywhere(confined: Place) -> None:
    """None is ignored, whatever the sandbox does for itself."""
    terminal = await confined.open(["grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"])
    masks = [int(line.split()[1], 16) for line in (await all_of(terminal)).splitlines()]
    assert [mask & ~LIBRARY_SIGNALS for mask in masks] == [0, 0]


@pytest.mark.parametrize("by", ["key", "signal"])
async def test_a_program_that_stops_and_goes_on(confined: Place, by: str) -> None:
    """^Z on one that is no shell: its group has nobody to go back to, so the kernel stops it only for STOP."""
    script = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTSTP, lambda *a: os.write(1, b'asked '))\n"
        "signal.signal(signal.SIGCONT, lambda *a: os.write(1, b'again '))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.05)\n"  # Python does not hear what comes just before it waits
    )
    terminal = await confined.open(["python3", "-c", script])
    at = await says(terminal, "ready")
    if by == "key":
        terminal.write(b"\x1a")
    else:
        terminal.send_signal("TSTP")
    at = await says(terminal, "asked", at)
    terminal.send_signal("STOP")
    terminal.send_signal("CONT")
    await says(terminal, "again", at)
    assert terminal.running


async def test_how_it_ended(there: Place) -> None:
    terminal = await there.open(["sleep", "100"])
    await until(lambda: b"sleep" in Path(f"/proc/{terminal.pid}/cmdline").read_bytes().split(b"\0")[0])
    terminal.send_signal("KILL")
    chunk = await terminal.read(0, 30)
    assert chunk.ended
    assert (terminal.exit_code, terminal.signal) == (None, "SIGKILL")
    with pytest.raises(TerminalEnded):
        terminal.send_signal("INT")
    with pytest.raises(TerminalEnded):
        terminal.resize(10, 10)
    terminal.kill()
    await terminal.close()


async def test_signals_that_nobody_may_send(there: Place) -> None:
    terminal = await there.open(["cat"])
    for name in ("SEGV", "SIGINT", "9", "int", ""):
        with pytest.raises(ValueError, match="allowed are INT, TERM"):
            terminal.send_signal(name)
    assert set(SIGNALS) >= {"INT", "TERM", "KILL", "HUP", "QUIT", "TSTP", "CONT", "WINCH", "USR1", "USR2"}


@pytest.mark.parametrize("by", ["key", "signal"])
async def test_jobs_of_a_shell(confined: Place, by: str) -> None:
    """^Z, fg, ^C: the shell goes on."""
    terminal = await confined.open(["bash", "--norc", "-i"])

    def press(name: str, key: bytes) -> None:
        if by == "key":
            terminal.write(key)
        else:
            terminal.send_signal(name)

    at = await says(terminal, "bash-")
    shell = foreground(terminal)
    terminal.write(b"sh -c 'echo up-$((1+1)); exec sleep 100'\n")
    at = await says(terminal, "up-2", at)
    press("TSTP", b"\x1a")
    at = await says(terminal, "Stopped", at)
    terminal.write(b"jobs\n")
    at = await says(terminal, "Stopped", at)
    terminal.write(b"fg\n")
    at = await says(terminal, "exec sleep 100'\r\n", at)
    await until(lambda: foreground(terminal) != shell)  # bash says that it goes on before it does
    press("INT", b"\x03")
    terminal.write(b"echo code-$?\n")
    at = await says(terminal, "code-130", at)
    terminal.write(b"exit 3\n")
    await terminal.ended.wait()
    assert terminal.exit_code == 3


async def test_the_foreground_is_killed_with_it(there: Place) -> None:
    terminal = await there.open(["bash", "--norc", "-i"])
    terminal.write(b"sh -c 'trap \"\" HUP INT TERM; echo pid-$$-; sleep 100; sleep 100'\n")
    found: list[str] = []
    while not found:
        found = re.findall(r"pid-(\d+)-", (await terminal.read(0)).text)
        await asyncio.sleep(0.01)
    pid = int(found[0])
    await terminal.close(0.1)
    assert not terminal.running
    await until(lambda: not psutil.pid_exists(pid))


async def test_a_window_that_is_closed(confined: Place) -> None:
    """The program may tidy up."""
    script = "trap 'echo tidy > tidied; exit' HUP; echo ready; while :; do sleep 0.05; done"
    terminal = await confined.open(["bash", "-c", script])
    await says(terminal, "ready")
    await terminal.close(30)
    assert (confined.profile.folder / "tidied").read_text() == "tidy\n"


async def test_a_window_of_a_shell_that_is_closed(confined: Place) -> None:
    """Whatever is in front, the shell keeps what was typed."""
    terminal = await confined.open(["bash", "--norc", "-i"])
    at = await says(terminal, "bash-")
    terminal.write(b"HISTFILE=~/typed; echo r''eady; sleep 1000\n")
    await says(terminal, "ready\r\n", at)
    await terminal.close(30)
    assert "sleep 1000" in (confined.profile.folder / "typed").read_text()


async def test_nothing_of_it_outlives_it(there: Place) -> None:
    """Neither what it left in its own group nor jobs of their own."""
    script = "set -m; for i in 1 2 3; do (trap '' HUP; sleep 100 & sleep 100) & done; echo pids $(jobs -p)"
    terminal = await there.open(["bash", "-c", script])
    text = await all_of(terminal)
    assert terminal.exit_code == 0
    groups = [int(pid) for pid in text.split()[1:]]
    assert len(groups) == 3
    await until(lambda: not any(psutil.pid_exists(pid) for pid in groups))


async def test_all_output_comes_before_the_end(there: Place) -> None:
    terminal = await there.open(["sh", "-c", "seq 1 9999; exit 4"])
    watcher = Watcher(terminal.attach())
    await until(lambda: watcher.ended)
    assert watcher.text == "".join(f"{number}\r\n" for number in range(1, 10_000))
    assert terminal.exit_code == 4
    assert [chunk.ended for chunk in watcher.chunks][-1]


async def test_reading_waits_for_something(there: Place) -> None:
    terminal = await there.open(["sh", "-c", "stty -echo; echo a; read line; echo got $line"])
    at = await says(terminal, "a\r\n")
    assert (await terminal.read(at)).text == ""
    reading = asyncio.create_task(terminal.read(at, 30))
    await asyncio.sleep(0)
    assert not reading.done()
    terminal.write(b"it\n")
    assert (await reading).text.startswith("g")
    await terminal.ended.wait()
    chunk = await terminal.read(at, 30)
    assert (chunk.text, chunk.ended) == ("got it\r\n", True)
    assert (await terminal.read(chunk.cursor, 30)).ended
    with pytest.raises(ValueError, match="cursor is 9999"):
        await terminal.read(9999)


async def test_small_pieces_are_whole_characters(there: Place) -> None:
    terminal = await there.open(["printf", "a€𝄞\\xff\\xe2\\x82ß"])
    await terminal.ended.wait()
    texts, cursor = [], 0
    while True:
        chunk = await terminal.read(cursor, most_bytes=1)
        texts.append(chunk.text)
        cursor = chunk.cursor
        if chunk.ended:
            break
    assert "".join(texts) == "a€𝄞\ufffd\ufffdß"
    assert len(texts) >= 4


async def test_what_it_does_not_read(there: Place) -> None:
    """It waits for the program, up to a bound, and the loop does not."""
    terminal = await there.open(["sh", "-c", "stty raw -echo; echo ready; read go; exec head -c 1000000 | md5sum"])
    await says(terminal, "ready")
    data = b"0123456789abcdef" * 62_500
    terminal.write(b"\n")
    terminal.write(data)
    with pytest.raises(InputRefused, match="the most is 1048576"):
        terminal.write(b"x" * INPUT_BYTES)
    assert "  -" in await all_of(terminal)


async def test_several_look_on_and_come_and_go(there: Place) -> None:
    terminal = await there.open(["cat"])
    first = Watcher(terminal.attach())
    terminal.write(b"one\n")
    await until(lambda: "one\r\none\r\n" in first.text)
    second = Watcher(terminal.attach())
    await until(lambda: second.text == first.text)
    assert terminal.viewers == 2
    await first.close()
    terminal.write("zwölf\n".encode())
    await until(lambda: second.text.count("zwölf") == 2)
    assert "zwölf" not in first.text
    third = Watcher(terminal.attach(first.chunks[-1].cursor))
    await until(lambda: first.text + third.text == second.text)
    await second.close()
    await second.close()
    assert terminal.viewers == 1
    with pytest.raises(ValueError, match="cursor is 999"):
        terminal.attach(999)
    terminal.write(b"\x04")
    await until(lambda: third.ended)
    assert terminal.viewers == 0
    assert not terminal.running
    late = Watcher(terminal.attach())
    await until(lambda: late.ended)
    assert late.text == second.text


async def test_the_program_waits_for_those_who_look_on(there: Place) -> None:
    """Nothing is lost to a viewer that is slow, and memory does not grow."""
    terminal = await there.open(["seq", "1", "200000"])
    seen, positions = "", []
    async for chunk in terminal.attach():
        assert not chunk.dropped
        seen += chunk.text
        positions.append(terminal.ring.end - chunk.cursor)
        for _ in range(20):
            await asyncio.sleep(0)
    assert seen == "".join(f"{number}\r\n" for number in range(1, 200_001))
    assert max(positions) <= FAR_BEHIND_BYTES + TURN_BYTES


async def test_one_dead_viewer_does_not_stop_it_for_ever(there: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It misses something, is told how much, and gets a new screen."""
    monkeypatch.setattr("skynet_terminal.pty.PATIENCE_S", 0.2)
    terminal = await there.open(["sh", "-c", "printf '\\033[31m\\033[?25l'; exec yes"])
    dead, alive = terminal.attach(), Watcher(terminal.attach())
    first = await anext(dead)
    await until(lambda: terminal.ring.end > 4 * RING_BYTES)
    assert not dead.patient
    second = await anext(dead)
    assert second.dropped > 0
    assert second.text.startswith("\x18")
    assert "\x1b[?25l" in second.text[:300]
    assert "\x1b[31m" in second.text[:300]
    assert set(second.text[300:].strip()) == {"y", "\r", "\n"}
    assert first.cursor + second.dropped < second.cursor
    assert all(not chunk.dropped for chunk in alive.chunks)
    dead.detach()
    await alive.close()


async def test_floods_leave_the_loop_to_others(there: Place) -> None:
    """Five of them: everybody else has their turn, and nothing grows."""
    terminals = [await there.open(["yes", "x" * 70]) for _ in range(5)]
    await until(lambda: all(terminal.ring.end > RING_BYTES for terminal in terminals))
    before = psutil.Process().memory_info().rss
    begin = [terminal.ring.end for terminal in terminals]
    await until(
        lambda: all(
            terminal.ring.end > start + 20 * RING_BYTES for terminal, start in zip(terminals, begin, strict=True)
        )
    )
    # More than that was read meanwhile.
    assert psutil.Process().memory_info().rss - before < 8 * 1024 * 1024
    assert all(len(terminal.ring) <= RING_BYTES for terminal in terminals)


def test_who_took_much_of_the_loop_leaves_it_for_long() -> None:
    share = LoopShare(0.25)
    assert share.rest_s(100.0, 0.01) == pytest.approx(0.04)
    assert share.rest_s(100.0, 0.01) == pytest.approx(0.08)
    assert share.rest_s(200.0, 0.001) == pytest.approx(0.004)


async def test_it_inherits_what_its_launch_passes_and_nothing_else(there: Place) -> None:
    reader, writer = os.pipe()
    other, another = os.pipe()
    os.set_inheritable(other, True)
    launch = await there.sandbox.prepare(there.profile, ["bash", "-c", f"echo hello >&{writer}; ls /proc/self/fd"])
    launch.pass_fds = (writer,)  # type: ignore[misc]
    terminal = await there.terminals.create("anna", launch)
    text = await all_of(terminal)
    # 3 is the directory that ls reads
    assert set(text.split()) <= {"0", "1", "2", "3", str(writer)}
    assert os.read(reader, 100) == b"hello\n"
    for descriptor in (reader, writer, other, another):
        os.close(descriptor)


async def test_signals_are_as_in_any_shell(there: Place) -> None:
    """Python ignores SIGPIPE; what it starts must not."""
    terminal = await there.open(["bash", "-c", "yes | head -n 1 > /dev/null; echo ${PIPESTATUS[0]}"])
    assert (await all_of(terminal)).strip() == str(128 + signal.SIGPIPE)
