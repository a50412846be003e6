"""The gateway's log: JSON lines in a file, plain lines on stderr.

A line of the file has the shape that OpenClaw's ``logs`` command and Control UI parse (OPENCLAW-V3 6.11), and names the
connection, the person and the run it belongs to. Those come from a context that :func:`log_context` sets, or from the
``extra`` of the call; see Synapse's log contexts. Message contents are logged at ``DEBUG`` at most, and shortened.

The level is that of the gateway's own packages. Libraries have no such rules: at ``DEBUG`` botocore writes down the
credentials that it gets. They are heard from ``WARNING`` on, whatever the level.
"""

import logging
import logging.handlers
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

import msgspec

ROTATE_BYTES = 10 * 1024 * 1024
"""The file is rotated before it outgrows this."""
KEPT_FILES = 5
"""Rotated files that are kept, as ``<file>.1`` (the newest) to ``<file>.5``."""
CONTEXT_FIELDS = ("conn_id", "user_id", "run_id")

_LEVEL_IDS = {"DEBUG": 2, "INFO": 3, "WARN": 4, "ERROR": 5, "FATAL": 6}
_LEVEL_NAMES = {"WARNING": "WARN", "CRITICAL": "FATAL"}
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)}
_CONTROLS_IN_LINES = {code: shown for code, shown in _CONTROLS.items() if code != 0x0A}
_OWN = ("skynet", "skynet_protocol", "skynet_agent", "skynet_users", "skynet_terminal", "skynet_memory")
_LOUD = ("uvicorn", "asyncio", "websockets")
"""Libraries that may have set a level of their own."""


@dataclass(frozen=True, slots=True)
class LogContext:
    """What the lines of one piece of work belong to; "" where it does not apply."""

    conn_id: str = ""
    user_id: str = ""
    run_id: str = ""


_context: ContextVar[LogContext] = ContextVar("skynet_log_context", default=LogContext())  # noqa: B039  (frozen)


@contextmanager
def log_context(*, conn_id: str = "", user_id: str = "", run_id: str = "") -> Iterator[None]:
    """Mark every line logged within, also by tasks started within. What is not given stays as it was outside."""
    given = {name: value for name, value in (("conn_id", conn_id), ("user_id", user_id), ("run_id", run_id)) if value}
    token = _context.set(replace(_context.get(), **given))
    try:
        yield
    finally:
        _context.reset(token)


class ContextFilter(logging.Filter):
    """Gives each record ``conn_id``, ``user_id`` and ``run_id``; a value from the call's ``extra`` wins."""

    def filter(self, record: logging.LogRecord) -> bool:
        context = _context.get()
        for name in CONTEXT_FIELDS:
            if not getattr(record, name, ""):
                setattr(record, name, getattr(context, name))
        return True


class JsonLineFormatter(logging.Formatter):
    """One record as one line of JSON: message and traceback in ``1``, the rest in ``_meta``.

    OpenClaw's own lines have the subsystem in ``0`` as well. Its Control UI takes it from ``_meta.name`` when that is
    missing, and its command line, which prints every numbered key, then prints the message alone.
    """

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        level = _LEVEL_NAMES.get(record.levelname, record.levelname)
        subsystem = msgspec.json.encode({"subsystem": _subsystem(record.name)}).decode()
        line: dict[str, object] = {
            "1": record.getMessage() + _traceback(self, record),
            "_meta": {
                "name": subsystem,
                "date": time,
                "logLevelId": _LEVEL_IDS.get(level, 3),
                "logLevelName": level,
            },
            "time": time,
        }
        for name, key in (("conn_id", "connId"), ("user_id", "userId"), ("run_id", "runId")):
            if value := getattr(record, name, ""):
                line[key] = str(value)
        try:
            return msgspec.json.encode(line).decode()
        except UnicodeEncodeError:  # a lone surrogate, for example of a file name
            line["1"] = str(line["1"]).encode(errors="replace").decode()
            return msgspec.json.encode(line).decode()


class PlainFormatter(logging.Formatter):
    """One record for a person at a terminal or a service manager's journal."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        run_id = getattr(record, "run_id", "")
        about = f" run={run_id}" if run_id else ""
        # A record is one line: what a client sent may not pass for another one.
        line = f"{time} {record.levelname.lower():7} {_subsystem(record.name)}: {record.getMessage()}{about}"
        # So is what an exception quotes: the lines of a traceback are all indented.
        traceback = _traceback(self, record).translate(_CONTROLS_IN_LINES).replace("\n", "\n  ")
        return line.translate(_CONTROLS) + traceback


class PrivateRotatingFileHandler(logging.handlers.RotatingFileHandler):
    """Rotates by size; the files are readable by their owner alone."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, errors=self.errors, opener=_open_private)


def configure_logging(
    level: str, file: Path | None = None, *, stream: TextIO | None = None, rotate_bytes: int = ROTATE_BYTES
) -> None:
    """Set up the process's logging; called by the command line once, never by a library. A later call replaces it.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``.
        file: The JSON-lines file; its directory is made. ``None`` for commands that only talk to a gateway.
        stream: Where the plain lines go, by default ``sys.stderr``.
        rotate_bytes: The size the file does not outgrow.

    Raises:
        OSError: the file or its directory cannot be made.
    """
    plain = logging.StreamHandler(stream or sys.stderr)
    plain.setFormatter(PlainFormatter())
    handlers: list[logging.Handler] = [plain]
    if file is not None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lines = PrivateRotatingFileHandler(
            file, maxBytes=rotate_bytes, backupCount=KEPT_FILES, encoding="utf-8", errors="backslashreplace"
        )
        lines.setFormatter(JsonLineFormatter())
        handlers.append(lines)
    root = logging.getLogger()
    for old in tuple(root.handlers):
        root.removeHandler(old)
        old.close()
    for handler in handlers:
        handler.addFilter(ContextFilter())
        root.addHandler(handler)
    for name in _OWN:
        logging.getLogger(name).setLevel(level.upper())
    for name in ("", *_LOUD):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger(_OWN[0]).level))
    logging.captureWarnings(True)


def _subsystem(logger_name: str) -> str:
    """``skynet.gateway.runs`` as ``gateway/runs``, ``skynet_agent.router`` as ``agent/router``."""
    name = logger_name.removeprefix("skynet.").removeprefix("skynet_")
    return name.replace(".", "/")


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[0] is None:
        return ""
    return "\n" + formatter.formatException(record.exc_info)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
