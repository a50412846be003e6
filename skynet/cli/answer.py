"""Showing one answer while it is written: the ``agent`` events of one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skynet.cli.client import Event


class AnswerPrinter:
    """Prints the text of one run as it comes.

    Args:
        run_id: the run to follow; events of others are ignored.
        write: where the text goes.

    ``text`` is what the current assistant message says so far, ``error`` the model's failure if there was one.
    """

    def __init__(self, run_id: str, write: Callable[[str], None]) -> None:
        self._run_id = run_id
        self._write = write
        self._at_line_start = True
        self.text = ""
        self.error = ""
        self.has_written = False

    def take(self, event: Event) -> None:
        """Look at an event of the connection, whatever it is about."""
        payload = event.payload
        if event.name != "agent" or not isinstance(payload, dict) or payload.get("runId") != self._run_id:
            return
        data = payload.get("data")
        if not isinstance(data, dict):
            return
        match payload.get("stream"):
            case "assistant":
                self._text_so_far(str(data.get("text") or ""))
            case "tool" if data.get("phase") == "start":
                self._note(f"[{data.get('name')}]")
            case "lifecycle" if data.get("phase") in ("start", "error"):
                self.error = str(data.get("error") or "the run failed") if data["phase"] == "error" else ""

    def finish(self, text: str) -> None:
        """The whole text as the gateway ends it: print what no event has shown yet, and end the line."""
        if text:
            self._text_so_far(text)
        self.end_line()

    def end_line(self) -> None:
        if not self._at_line_start:
            self._put("\n")

    def _text_so_far(self, text: str) -> None:
        if text.startswith(self.text):
            self._put(text[len(self.text) :])
        elif not self.text.startswith(text):  # the next assistant message of the turn
            self.end_line()
            self._put(text)
        else:
            return  # older than what is shown
        self.text = text

    def _note(self, text: str) -> None:
        self.end_line()
        self._put(f"{text}\n")
        self.text = ""

    def _put(self, text: str) -> None:
        if text:
            self._write(text)
            self._at_line_start = text.endswith("\n")
            self.has_written = True


def final_text(payload: Any) -> str:
    """The text of the final answer to ``agent``."""
    result = payload.get("result") if isinstance(payload, dict) else None
    parts = result.get("payloads") if isinstance(result, dict) else None
    return "\n\n".join(str(part["text"]) for part in parts or () if isinstance(part, dict) and part.get("text"))
