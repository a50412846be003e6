"""The unmodified OpenClaw terminal interface in a tmux of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interop.openclaw import OpenClaw
from interop.processes import until

WIDTH, HEIGHT = 120, 100
SCREEN_TIMEOUT_S = 30.0
TARGET = "tui"


class Terminal:
    """A tmux server with one pane, known by its socket file."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), "-f", "/dev/null", *arguments],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
        return done.stdout

    @property
    def screen(self) -> str:
        """What a person sees, blank lines left out."""
        return "\n".join(
            line.rstrip() for line in self.tmux("capture-pane", "-p", "-t", TARGET).splitlines() if line.strip()
        )

    @property
    def alive(self) -> bool:
        """Whether the program in the pane still runs."""
        return self.tmux("display-message", "-p", "-t", TARGET, "#{pane_dead}").strip() == "0"

    def press(self, key: str) -> None:
        """Press a key by its tmux name (``Enter``, ``Escape``)."""
        self.tmux("send-keys", "-t", TARGET, key)

    @property
    def input(self) -> str:
        """What stands in the input line: between the last two rules on the screen."""
        lines = self.screen.splitlines()
        rules = [number for number, line in enumerate(lines) if line.startswith("\u2500" * 40)]
        return "\n".join(lines[rules[-2] + 1 : rules[-1]]).strip() if len(rules) > 1 else ""

    def type(self, text: str) -> None:
        """Type ``text`` and press Enter, once more when that only chose a completion."""
        self.tmux("send-keys", "-t", TARGET, "-l", text)
        until(lambda: self.input == text, SCREEN_TIMEOUT_S, lambda: f"{text!r} typed\n{self.screen}")
        for _ in range(2):
            self.press("Enter")
            try:
                until(lambda: text not in self.input or not self.alive, 2, "")
            except AssertionError:
                continue
            return
        raise AssertionError(f"{text!r} does not leave the input line\n{self.screen}")

    def see(self, *texts: str, timeout_s: float = SCREEN_TIMEOUT_S) -> str:
        """Wait until all of ``texts`` are on the screen; the screen then."""

        def condition() -> str:
            screen = self.screen
            return screen if all(text in screen for text in texts) else ""

        return until(condition, timeout_s, lambda: f"{texts} on the screen\n{self.screen}")

    def see_gone(self, text: str) -> str:
        """Wait until ``text`` is not on the screen any more; the screen then."""

        def condition() -> str:
            screen = self.screen
            return "" if text in screen else screen

        return until(condition, SCREEN_TIMEOUT_S, lambda: f"{text!r} off the screen\n{self.screen}")


@contextmanager
def running_tui(client: OpenClaw, directory: Path, *options: str, width: int = WIDTH) -> Iterator[Terminal]:
    """``openclaw tui`` in a pane of its own while the block lasts. What is typed has to fit into a line."""
    terminal = Terminal(directory / "tmux")
    settings = [f"{name}={value}" for name, value in client.env().items()]
    # fmt: off
    terminal.tmux(
        "new-session", "-d", "-s", TARGET, "-x", str(width), "-y", str(HEIGHT), "-c", str(client.home),
        "env", "-i", *settings, "TERM=screen-256color", *client.argv("tui", *options),
        ";", "set-option", "-w", "remain-on-exit", "on",
    )
    # fmt: on
    try:
        yield terminal
    finally:
        terminal.tmux("kill-server")
