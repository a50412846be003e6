"""What somebody sees who comes late, of programs that draw: the same as somebody who was there at once."""

import random
import re
from collections.abc import AsyncIterator, Sequence
from functools import lru_cache
from pathlib import Path

import pyte
import pytest

from skynet_terminal.pty import Terminal
from skynet_terminal.replay import RING_BYTES
from tests.support.polling import until
from tests.support.programs import needs
from tests.support.terminals import Place, Watcher, place

COLS, ROWS = 80, 24

# A program like htop: it draws what has changed, and says at the end of each drawing how many there were.
REFRESHER = """
import curses, random, sys
def draw(screen):
    curses.curs_set(0)
    curses.start_color()
    for pair in range(1, 7):
        curses.init_pair(pair, pair, curses.COLOR_BLACK)
    dice, count = random.Random(1), 0
    screen.timeout(0)
    while True:
        most = int(open('frames').read() or 0)
        if count >= most:
            screen.timeout(20)
        else:
            screen.timeout(0)
            rows, cols = screen.getmaxyx()
            for _ in range(40):
                row, col = dice.randrange(rows - 1), dice.randrange(cols - 12)
                word = dice.choice(['cpu', 'Ünïcode', '||||||'])
                screen.addstr(row, col, word, curses.color_pair(dice.randrange(7)))
            count += 1
            screen.addstr(rows - 1, 0, f'frame {count:6d}', curses.A_REVERSE)
            screen.refresh()
            open('drawn', 'w').write(str(count))
        key = screen.getch()
        if key == curses.KEY_RESIZE:
            screen.refresh()
        elif key == ord('q'):
            break
curses.wrapper(draw)
"""


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Place]:
    async with place(tmp_path / "files") as there:
        (there.profile.folder / "text").write_text(
            "".join(f"{number}: {'größer ' * (number % 13)}漢字 {number * 7919}\n" for number in range(5000))
        )
        yield there


# What pyte takes for something else: questions, what is for one kind of terminal alone, strings for the terminal.
_UNKNOWN = re.compile(
    r"\x1b\[\?[\d;]*m|\x1b\[[<>=][^@-~]*[@-~]|\x1b\[[?\d;]*[ !\"$'][@-~]|\x1bP.*?\x1b\\|\x1b_.*?\x1b\\", re.DOTALL
)
Shown = tuple[list[str], int, int, bool]


@lru_cache(maxsize=8)
def shown(text: str) -> Shown:
    """What a terminal shows that was given ``text``, where its cursor is, and whether that is hidden."""
    screen = pyte.Screen(COLS, ROWS)
    # pyte has one screen: the second one is empty at first.
    text = _UNKNOWN.sub("", text).replace("\x18", "").replace("\x1b[?1049h", "\x1b[?1049h\x1b[2J")
    pyte.Stream(screen).feed(text)
    lines = ["".join(screen.buffer[row][col].data for col in range(COLS)) for row in range(ROWS)]
    return lines, screen.cursor.x, screen.cursor.y, screen.cursor.hidden


async def shows(watcher: Watcher, text: str) -> None:
    await until(lambda: any(text in line for line in shown(watcher.text)[0]), f"{text!r} on the screen")


async def compare(terminal: Terminal, first: Watcher, text: str) -> None:
    """Somebody who comes now sees what the first one sees; ``text`` is a part of that."""
    late = Watcher(terminal.attach())
    await until(
        lambda: late.chunks and late.chunks[-1].cursor == first.chunks[-1].cursor == terminal.ring.end,
        "all of it is there",
    )
    # Drawing anew it clears the screen first.
    await shows(first, text)
    await until(lambda: shown(late.text) == shown(first.text), "both show the same")
    await shows(late, text)
    await late.close()


async def opened(there: Place, argv: Sequence[str]) -> tuple[Terminal, Watcher]:
    terminal = await there.open(argv, cols=COLS, rows=ROWS)
    return terminal, Watcher(terminal.attach())


@needs("vim")
@pytest.mark.parametrize("seed", range(3))
async def test_vim(there: Place, seed: int) -> None:
    dice = random.Random(seed)
    terminal, first = await opened(there, ["vim", "-u", "NONE", "-N", "--cmd", "set ruler number", "text"])
    await shows(first, "  1 0: ")
    for step in range(8):
        line = dice.randrange(1, 5000)
        terminal.write(f"\x1b:{line}\rO".encode() + f"mark{step} grün".encode() + b"\x1b")
        await shows(first, f"mark{step} gr")
        if dice.random() < 0.6:
            await compare(terminal, first, f"mark{step}")
    terminal.write(b":q!\r")
    await terminal.ended.wait()


@needs("less")
@pytest.mark.parametrize("seed", range(3))
async def test_less(there: Place, seed: int) -> None:
    dice = random.Random(seed)
    terminal, first = await opened(there, ["less", "text"])
    await shows(first, "0: ")
    for _ in range(8):
        line = dice.randrange(100, 4900)
        terminal.write(f"{line}g".encode())
        await shows(first, f"{line - 1}: ")
        terminal.write(b"/" + str(line + 30).encode() + b":\r")
        await shows(first, f"{line + 30}: ")
        if dice.random() < 0.6:
            await compare(terminal, first, f"{line + 30}: ")
    terminal.write(b"q")
    await terminal.ended.wait()


@needs("less")
async def test_less_after_more_than_is_kept(there: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skynet_terminal.pty.REPAINT_S", 20)
    terminal, first = await opened(there, ["less", "text"])
    while terminal.ring.end < 2 * RING_BYTES:
        at = terminal.ring.end
        terminal.write(b"\x06\x06\x06\x06\x06\x06\x06\x06g")
        await until(lambda at=at: terminal.ring.end > at)  # type: ignore[misc]
    terminal.write(b"4000g")
    await shows(first, "3999: ")
    await compare(terminal, first, "3999: ")


@pytest.mark.parametrize("frames", [5, 20, 300])
async def test_a_program_that_draws_what_has_changed(
    there: Place, frames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 300 frames it has drawn much more since it cleared the screen than is kept."""
    monkeypatch.setattr("skynet_terminal.pty.REPAINT_S", 20)
    (there.profile.folder / "refresher.py").write_text(REFRESHER)
    count = there.profile.folder / "frames"
    count.write_text(str(frames))
    terminal, first = await opened(there, ["python3", "refresher.py"])
    drawn = there.profile.folder / "drawn"
    await until(lambda: drawn.exists() and drawn.read_text() == str(frames))
    await shows(first, f"frame {frames:6d}")
    assert terminal.ring.screen_lost is (frames == 300)
    await compare(terminal, first, f"frame {frames:6d}")
    assert not terminal.ring.screen_lost
    (there.profile.folder / "new").write_text(str(frames + 7))
    (there.profile.folder / "new").rename(count)
    await shows(first, f"frame {frames + 7:6d}")
    await compare(terminal, first, f"frame {frames + 7:6d}")
    terminal.write(b"q")
    await terminal.ended.wait()


@needs("tmux")
async def test_tmux(there: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that draws for others, with a scroll region."""
    monkeypatch.setattr("skynet_terminal.pty.REPAINT_S", 20)
    argv = ["tmux", "-S", str(there.profile.folder / "tmux"), "-f", "/dev/null", "new-session", "sh"]
    terminal, first = await opened(there, argv)
    terminal.write(b"PS1='at: '; seq 1 60; echo e$((1+1))nd\r")
    await shows(first, "e2nd")
    await compare(terminal, first, "e2nd")
    terminal.write(b"seq 1 40000; echo a$((1+1))nd\r")
    await shows(first, "a2nd")
    await compare(terminal, first, "a2nd")
    terminal.write(b"exit\r")
    await terminal.ended.wait()


async def test_text_that_scrolls(there: Place) -> None:
    """More than is kept, of a program that does not draw."""
    terminal, first = await opened(there, ["sh", "-c", "seq 1 25000; printf '\\033[31mlast'; exec cat"])
    await until(lambda: first.text.endswith("last"))
    assert not terminal.ring.screen_lost
    await compare(terminal, first, "last")


async def test_one_that_does_not_answer_is_not_waited_for_long(there: Place) -> None:
    """It draws, and knows nothing of sizes."""
    script = (
        "printf '\\033[?1049h'; i=0; while test $i -lt 12000; do printf '\\033[5;5Hdraws '; i=$((i+1)); done; exec cat"
    )
    terminal, first = await opened(there, ["sh", "-c", script])
    await until(lambda: terminal.ring.end == 8 + 12_000 * 12)
    assert terminal.ring.screen_lost
    await compare(terminal, first, "draws")
