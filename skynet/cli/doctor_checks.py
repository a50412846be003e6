"""What ``skynet doctor`` looks at. Every check only reads, and none of them raises for what it finds."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from skynet.cli.target import local_url
from skynet.config import TOKEN_FILE_NAME, Config, ConfigError, find_config_file, load_config
from skynet.version import VERSION

State: TypeAlias = Literal["ok", "warn", "fail"]

LOW_DISK_BYTES = 1024**3
NO_DISK_BYTES = 100 * 1024**2
DATABASE_CHECK_S = 120.0
"""After so long the check of the database is given up: it reads the whole file."""
GATEWAY_TIMEOUT_S = 3.0
PRIVATE_FILES = (TOKEN_FILE_NAME, "skynet.toml", "secrets.vault", "identity/device.json")
PRIVATE_DIRECTORIES = ("credentials", "identity", "users")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the report. ``hint`` says what to do, a command if there is one."""

    check: str
    state: State
    message: str
    hint: str = ""


def configuration(path: Path | None, env: dict[str, str]) -> tuple[Config | None, list[Finding]]:
    """The configuration, if it can be used."""
    file, _ = find_config_file(path, env)
    try:
        config = load_config(path, env=env)
    except ConfigError as exc:
        told = [Finding(check="configuration", state="fail", message=str(problem)) for problem in exc.problems]
        return None, told or [Finding(check="configuration", state="fail", message=str(exc))]
    message = str(config.file) if config.file else f"built-in defaults ({file} does not exist)"
    warnings = [Finding(check="configuration", state="warn", message=warning) for warning in config.warnings]
    return config, [Finding(check="configuration", state="ok", message=message), *warnings]


def state_directory(home: Path) -> Iterator[Finding]:
    """Whether the directory is there, ours, writable, and nobody else's to read."""
    check = "state directory"
    try:
        status = home.stat()
    except FileNotFoundError:
        yield Finding(check=check, state="ok", message=f"{home} is not there yet; the first start makes it")
        return
    except OSError as exc:
        yield Finding(check=check, state="fail", message=f"{home}: {exc.strerror}")
        return
    if not stat.S_ISDIR(status.st_mode):
        yield Finding(check=check, state="fail", message=f"{home} is no directory", hint="move it, or set SKYNET_HOME")
        return
    if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        yield Finding(
            check=check,
            state="fail",
            message=f"{home} cannot be written by you",
            hint="run this as the user that the gateway runs as, or change the directory's owner",
        )
        return
    exposed = bool(stat.S_IMODE(status.st_mode) & 0o011)  # others come to what is inside
    found = list(_readable_by_others(home))
    for path, mode in found:
        is_directory = path.is_dir()
        yield Finding(
            check=check,
            state="fail" if exposed and not is_directory else "warn",
            message=f"{path} is open to others (mode {mode:04o})",
            hint=f"chmod {'700' if is_directory else '600'} {path}",
        )
    if not found:
        yield Finding(check=check, state="ok", message=f"{home}, yours alone")


def _readable_by_others(home: Path) -> Iterator[tuple[Path, int]]:
    databases = sorted(path.name for path in home.glob("*.db*"))
    for name in ("", *PRIVATE_DIRECTORIES, *PRIVATE_FILES, *databases):
        path = home / name
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue
        if mode & 0o077:
            yield path, mode


def database(path: Path, *, clock: Callable[[], float] = time.monotonic) -> Iterator[Finding]:
    """Whether the file can be read, was written by this version or an older one, and is whole.

    Read-only, and while a gateway has it open too. Without one nothing is left beside the file either.
    """
    check = "database"
    if not path.exists():
        yield Finding(check=check, state="ok", message=f"{path} is not there yet; the first start makes it")
        return
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as exc:
        yield Finding(check=check, state="fail", message=f"{path}: {exc.strerror}", hint="is it yours to read?")
        return
    if head not in (b"", b"SQLite format 3\0"):  # SQLite takes any file of less than a page for an empty one
        yield Finding(check=check, state="fail", message=f"{path} is no database", hint=_DAMAGED)
        return
    # Where nobody has it open there is no -wal file, and SQLite must not make one that may be another user's
    how = "mode=ro" if path.with_name(path.name + "-wal").exists() else "mode=ro&immutable=1"
    deadline = clock() + DATABASE_CHECK_S
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=5)) as connection:
            connection.set_progress_handler(lambda: clock() > deadline, 100_000)
            problem = _version_problem(connection)
            if problem is not None:
                yield Finding(check=check, state="fail", message=f"{path}: {problem}", hint="use the newer version")
                return
            said = [str(row[0]) for row in connection.execute("PRAGMA quick_check(10)")]
    except sqlite3.OperationalError as exc:
        if str(exc) == "interrupted":
            yield Finding(
                check=check,
                state="warn",
                message=f"{path}: not all of it was checked in {DATABASE_CHECK_S:.0f} s",
                hint=f'check the rest with: sqlite3 {path} "PRAGMA integrity_check"',
            )
        else:
            yield Finding(check=check, state="fail", message=f"{path}: {exc}", hint="is it yours to read?")
        return
    except sqlite3.DatabaseError as exc:
        yield Finding(check=check, state="fail", message=f"{path}: {exc}", hint=_DAMAGED)
        return
    if said != ["ok"]:
        yield Finding(check=check, state="fail", message=f"{path} is damaged: {'; '.join(said[:3])}", hint=_DAMAGED)
        return
    files = (path, path.with_name(path.name + "-wal"))
    size = sum(each.stat().st_size for each in files if each.exists())
    yield Finding(check=check, state="ok", message=f"{path}, {_bytes(size)}, whole")


_DAMAGED = "stop the gateway, keep a copy of the file, and go back to a backup"


def _version_problem(connection: sqlite3.Connection) -> str | None:
    from skynet.tables import TABLES

    known = {component.name: len(component.migrations) for component in TABLES}
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migrations'").fetchone() is None:
        return None
    for name, number in connection.execute("SELECT component, max(number) FROM migrations GROUP BY component"):
        if number > known.get(name, 0):
            return f"was written by a newer version: {name} is at schema {number}, this one knows {known.get(name, 0)}"
    return None


def disk(home: Path) -> Iterator[Finding]:
    """Whether there is room on the disk of the state directory."""
    place = next(path for path in (home, *home.parents) if path.exists())
    try:
        free = shutil.disk_usage(place).free
    except OSError as exc:
        yield Finding(check="disk", state="warn", message=f"{place}: {exc.strerror}")
        return
    message = f"{_bytes(free)} free at {place}"
    if free < NO_DISK_BYTES:
        yield Finding(check="disk", state="fail", message=message, hint="make room: nothing can be stored soon")
    elif free < LOW_DISK_BYTES:
        yield Finding(check="disk", state="warn", message=message, hint="make room before it is full")
    else:
        yield Finding(check="disk", state="ok", message=message)


def gateway(config: Config) -> Iterator[Finding]:
    """Whether a gateway answers where the configuration says, and which."""
    check, url = "gateway", local_url(config)
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=GATEWAY_TIMEOUT_S)
    try:
        with closing(connection):
            connection.request("GET", "/health")
            answer = json.loads(connection.getresponse().read(65_536))
            version = str(answer["version"])
    except ConnectionRefusedError:
        yield Finding(check=check, state="ok", message=f"not running at {url}", hint="start it: skynet gateway run")
        return
    except OSError as exc:
        message = f"{url} does not answer: {exc.strerror or exc or type(exc).__name__}"
        yield Finding(
            check=check, state="fail", message=message, hint="see: skynet logs, and whether it is the gateway"
        )
        return
    except (http.client.HTTPException, ValueError, TypeError, KeyError):
        yield Finding(
            check=check,
            state="fail",
            message=f"something else answers at {url}",
            hint="end it, or choose another port in gateway.port",
        )
        return
    if version != VERSION:
        yield Finding(
            check=check,
            state="warn",
            message=f"runs at {url}, version {version}; this command is {VERSION}",
            hint="restart the gateway",
        )
        return
    yield Finding(check=check, state="ok", message=f"runs at {url}, version {version}")


async def isolation(config: Config) -> list[Finding]:
    """What keeps commands from the machine: found out by running one."""
    from skynet_terminal.errors import SandboxUnavailable
    from skynet_terminal.sandbox.choose import choose, isolation_report

    check, settings = "isolation", config.terminal
    with tempfile.TemporaryDirectory(prefix="skynet-doctor-") as directory:
        try:
            sandbox = await choose(settings.sandbox, directory=Path(directory), image=settings.image)
            report = await isolation_report(sandbox)
        except SandboxUnavailable as exc:
            message = f"terminal.sandbox is {settings.sandbox!r}: {exc}"
            return [Finding(check=check, state="fail", message=message, hint=_SANDBOX)]
    if report.name == "none":
        return [
            Finding(
                check=check,
                state="warn",
                message=f"none: {warning}; only admins run any",
                hint='install bubblewrap and set terminal.sandbox = "auto"',
            )
            for warning in report.warnings
        ]
    in_force = ", ".join(feature.name for feature in report.features if feature.in_force)
    name = f"{report.name} {report.version}".strip()
    warnings = [Finding(check=check, state="warn", message=warning, hint=_SANDBOX) for warning in report.warnings]
    return [Finding(check=check, state="ok", message=f"{name}: {in_force}"), *warnings]


_SANDBOX = "see docs/sandbox.md"


def providers(config: Config) -> Iterator[Finding]:
    """Which models answer. Nobody is asked: that is what `skynet providers test` is for."""
    from skynet.models import provider_rows, unprotected
    from skynet_agent.router import Router

    rows = provider_rows(config)
    if not rows:
        yield Finding(
            check="providers",
            state="warn",
            message="none: the offline assistant answers",
            hint="set a provider's key, see: skynet providers list",
        )
        return
    router = Router(rows, default_model=config.agent.model, aliases=config.models.aliases, pools=config.pools)
    names = ", ".join(row.name for row in rows)
    yield Finding(check="providers", state="ok", message=f"{names}; the model is {config.default_model}")
    for problem in (*router.problems(), *unprotected(rows)):
        yield Finding(check="providers", state="warn", message=problem)


def worst(findings: Sequence[Finding]) -> State:
    """The worst of their states."""
    order: tuple[State, ...] = ("ok", "warn", "fail")
    return max((finding.state for finding in findings), key=order.index, default="ok")


def _bytes(number: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TB"
