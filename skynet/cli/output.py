"""What commands print: tables and colours for a terminal, plain lines for a pipe, JSON for a script."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TextIO

import msgspec

from skynet.cli.errors import CliError

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def is_terminal(stream: TextIO | None = None) -> bool:
    """Whether a person looks at it."""
    return (stream or sys.stdout).isatty()


def printable(text: str) -> str:
    """Text from elsewhere without the control characters that could drive the terminal; tab and newline stay."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def write(text: str) -> None:
    """Print a piece of streamed text at once."""
    sys.stdout.write(printable(text))
    sys.stdout.flush()


def print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode(), flush=True)


def print_error(error: CliError, *, as_json: bool) -> None:
    """Say what went wrong: on stderr for a person, as the one JSON document on stdout with ``--json``."""
    if as_json:
        fields = {"code": error.code, "message": str(error), "exitCode": int(error.exit_code)}
        print_json({"error": {**fields, "hint": error.hint} if error.hint else fields})
        return
    print(f"error: {printable(str(error))}", file=sys.stderr)
    if error.hint:
        print(f"  {printable(error.hint)}", file=sys.stderr, flush=True)


def print_notice(text: str) -> None:
    """A remark beside the result, so on stderr."""
    print(printable(text), file=sys.stderr, flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table for a terminal; for a pipe a line a row, fields separated by a tab, without the heading.

    Where there are no rows, a person is told so.
    """
    rows = list(rows)
    if not is_terminal():
        print_rows(rows)
        return
    if not rows:
        print_notice("nothing to show")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(cell)) for cell in row))
    Console().print(table)


def print_rows(rows: Iterable[Sequence[str]]) -> None:
    """A line a row, fields separated by a tab."""
    for row in rows:
        print("\t".join(map(_cell, row)))
    sys.stdout.flush()


def _cell(text: str) -> str:
    return printable(text).replace("\t", " ").replace("\n", " ")


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Names and values, one a line."""
    pairs = [(name, printable(value)) for name, value in fields if value]
    if not is_terminal():
        for name, value in pairs:
            print(f"{name}\t{value}")
        sys.stdout.flush()
        return
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        print(f"{name:{width}}  {value}", flush=True)


def ago(then_ms: object, now_ms: int) -> str:
    """How long ago, in one unit: ``5m ago``; "" when it is not known."""
    if not isinstance(then_ms, int) or isinstance(then_ms, bool):
        return ""
    seconds = max(0, now_ms - then_ms) // 1000
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit} ago"
    return f"{seconds}s ago"


def clock(time_ms: object) -> str:
    """A time of the wire as local date and time; "" when it is none."""
    if not isinstance(time_ms, int) or not 0 <= time_ms < 253_402_300_800_000:
        return ""
    return datetime.fromtimestamp(time_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")
