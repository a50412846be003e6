"""``exec-approvals.json``: what the house lets run without asking. OpenClaw's format (OPENCLAW-V3 6.12), for admins."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import secrets
import shlex
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, get_args

import msgspec

from skynet.gateway.exec_patterns import InvalidPattern, Pattern, parse_pattern
from skynet_memory.ids import new_id
from skynet_protocol.errors import DetailCode, ErrorCode, RequestError
from skynet_protocol.exec_approvals import (
    Ask,
    ExecApprovalsAgent,
    ExecApprovalsDefaults,
    ExecApprovalsFile,
    ExecApprovalsFileParams,
    ExecApprovalsSnapshot,
    Security,
)
from skynet_protocol.params import describe, invalid_params

log = logging.getLogger(__name__)

Json: TypeAlias = Any

EVERY_AGENT: Final = "*"
"""What stands for all agents, as ``openclaw approvals allowlist add`` writes it."""
MAX_BYTES: Final = 1_000_000
BASE_HASH_REQUIRED: Final = "exec approvals base hash required; re-run exec.approvals.get and retry"
CHANGED: Final = "exec approvals changed since last load; re-run exec.approvals.get and retry"

_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "security": get_args(Security),
    "ask": get_args(Ask),
    "askFallback": get_args(Security),
}
_DEFAULTS: Final = frozenset((*_WORDS, "autoAllowSkills"))
_KNOWN: Final[Mapping[str, frozenset[str]]] = {
    "file": frozenset(("version", "socket", "defaults", "agents")),
    "socket": frozenset(("path", "token")),
    "defaults": _DEFAULTS,
    "agent": _DEFAULTS | {"allowlist"},
    "entry": frozenset(("pattern", "id", "lastUsedAt", "lastUsedCommand", "lastResolvedPath")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    agent: str
    pattern: str
    parsed: Pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class HouseRules:
    """What the file says for one agent. "" where it says nothing."""

    security: Security | str = ""
    ask: Ask | str = ""
    ask_fallback: Security | str = ""
    allowlist: Sequence[Entry] = ()
    broken: str = ""
    """Why the file cannot be read as what it should be."""


@dataclass(slots=True)
class _Use:
    at_ms: int
    command: str
    path: str


class ExecFile:
    """Reads the file when it has changed, and replaces it as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = asyncio.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._raw: bytes | None = None
        self._file: ExecApprovalsFileParams | None = None
        self._broken = ""
        self._uses: dict[tuple[str, str], _Use] = {}

    async def rules(self, agent: str) -> HouseRules:
        """What holds for ``agent``: what the file says of it, then of all agents, then by default."""
        await self._load()
        if self._broken:
            return HouseRules(broken=self._broken)
        file = self._file
        if file is None:
            return HouseRules()
        agents = file.agents or {}
        found = [each for each in (agents.get(agent), agents.get(EVERY_AGENT), file.defaults or None) if each]
        said = {
            name: next((value for each in found if (value := getattr(each, name))), "")
            for name in ("security", "ask", "ask_fallback")
        }
        names = dict.fromkeys((agent, EVERY_AGENT))
        allowlist = [
            Entry(agent=name, pattern=entry.pattern, parsed=parse_pattern(entry.pattern))
            for name in names
            if (each := agents.get(name)) is not None
            for entry in each.allowlist or ()
        ]
        return HouseRules(**said, allowlist=allowlist)

    def used(self, entry: Entry, program: Sequence[str], path: str, at_ms: int) -> None:
        """A command ran because of ``entry``. It stands in the file after the next :meth:`snapshot`.

        Of the command only the program is kept: its arguments are the person's own, the file is the admins'.
        """
        command = shlex.quote(program[0]) + (" …" if len(program) > 1 else "")
        self._uses[entry.agent, entry.pattern] = _Use(at_ms, command[:500], path)

    async def snapshot(self) -> ExecApprovalsSnapshot:
        """The file as it is; an empty one when it is missing or makes no sense. Secrets in it are not shown.

        Raises:
            RequestError: it cannot be read.
        """
        async with self._lock:
            with _told(self.path):
                await self._write_uses()
                return self._shown(await asyncio.to_thread(_read, self.path))

    async def replace(
        self,
        file: ExecApprovalsFileParams,
        base_hash: str | None,
        *,
        before: Callable[[], Awaitable[None]],
    ) -> ExecApprovalsSnapshot:
        """Write the file. What this version does not know of it is kept, and so are the socket's secrets.

        Args:
            before: called when nothing but the writing is left to do.

        Raises:
            RequestError: it has changed since ``base_hash`` was read, is too long, or cannot be written.
        """
        async with self._lock:
            with _told(self.path):
                raw = await asyncio.to_thread(_read, self.path)
                if raw is not None and base_hash is None:
                    raise RequestError(BASE_HASH_REQUIRED)
                if base_hash is not None and base_hash != digest(raw):
                    raise RequestError(CHANGED)
                merged = merge(_object(raw), msgspec.to_builtins(file))
                text = (json.dumps(merged, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")
                if len(text) > MAX_BYTES:
                    raise invalid_params("exec.approvals.set", f"file: is {len(text)} bytes, the limit is {MAX_BYTES}")
                await before()
                await self._write(text)
                return self._shown(text)

    def _shown(self, raw: bytes | None) -> ExecApprovalsSnapshot:
        return ExecApprovalsSnapshot(path=str(self.path), exists=raw is not None, hash=digest(raw), file=_shown(raw))

    async def _load(self) -> None:
        """Read and check the file again if it is another now."""
        async with self._lock:
            seen = await asyncio.to_thread(_stamp, self.path)
            if seen is not None and seen == self._seen:
                return
            self._file, self._broken = None, ""
            try:
                raw = await asyncio.to_thread(_read, self.path)
                if raw is not None:
                    self._file = _checked(raw)
            except (OSError, ValueError) as exc:
                # What an admin forbade must not run because a comma is missing
                self._broken = f"{self.path.name} cannot be used, which an admin has to mend: {exc}"
                log.error("%s", self._broken)
            self._seen = seen

    async def _write(self, text: bytes) -> None:
        """Who is cancelled meanwhile waits all the same: the next writer must not be overtaken."""
        writing = asyncio.get_running_loop().run_in_executor(None, _write, self.path, text)
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])
            raise

    async def _write_uses(self) -> None:
        uses, self._uses = self._uses, {}
        if not uses:
            return
        raw = await asyncio.to_thread(_read, self.path)
        file = _object(raw)
        for (agent, pattern), use in uses.items():
            entries = _under(_under(file, "agents"), agent).get("allowlist")
            for entry in entries if isinstance(entries, list) else ():
                if isinstance(entry, dict) and entry.get("pattern") == pattern:
                    entry |= {"lastUsedAt": use.at_ms, "lastUsedCommand": use.command}
                    if use.path:
                        entry["lastResolvedPath"] = use.path
        text = (json.dumps(file, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")
        if raw is not None and file:
            try:
                await self._write(text)
            except OSError as exc:
                log.warning("when entries of %s were used last is not written down: %s", self.path, exc)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What the disk refuses is told to the client as that."""
    try:
        yield
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else str(exc)
        details = {"code": DetailCode.IO_ERROR}
        raise RequestError(f"{path.name}: {why}", code=ErrorCode.UNAVAILABLE, details=details) from exc


def check_file(file: ExecApprovalsFileParams, method: str) -> None:
    """
    Raises:
        RequestError: naming the field that makes no sense.
    """
    problem = _problem(file)
    if problem:
        raise invalid_params(method, problem)


def digest(raw: bytes | None) -> str:
    """The file's hash; a missing one has that of nothing."""
    return hashlib.sha256(raw or b"").hexdigest()


def merge(old: Mapping[str, Json], new: Mapping[str, Json]) -> dict[str, Json]:
    """``new`` with what only ``old`` knows: keys of another version at every level, and the socket."""
    merged = _with_unknown(old, new, "file")
    if isinstance(old.get("socket"), dict) or "socket" in new:
        merged["socket"] = {**_under(old, "socket"), **_under(new, "socket")}
    if "defaults" in new:
        merged["defaults"] = _with_unknown(_under(old, "defaults"), new["defaults"], "defaults")
    agents = {}
    for name, agent in _under(new, "agents").items():
        before = _under(_under(old, "agents"), name)
        agent = _with_unknown(before, agent, "agent")
        if "allowlist" in agent:
            agent["allowlist"] = [_entry(before.get("allowlist"), entry) for entry in agent["allowlist"]]
        agents[name] = agent
    if "agents" in merged:
        merged["agents"] = agents
    return merged


def _entry(before: Json, entry: Mapping[str, Json]) -> dict[str, Json]:
    for old in before if isinstance(before, list) else ():
        if isinstance(old, dict) and (
            old.get("id") == entry["id"] if "id" in entry else old.get("pattern") == entry["pattern"]
        ):
            kept = _with_unknown(old, entry, "entry")
            return {**({"id": old["id"]} if "id" in old else {"id": new_id()}), **kept}
    return {"id": new_id(), **entry}


def _with_unknown(old: Mapping[str, Json], new: Mapping[str, Json], level: str) -> dict[str, Json]:
    return {**new, **{name: value for name, value in old.items() if name not in _KNOWN[level]}}


def _under(value: Mapping[str, Json], name: str) -> dict[str, Json]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _object(raw: bytes | None) -> dict[str, Json]:
    try:
        value = json.loads(raw or b"{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _checked(raw: bytes) -> ExecApprovalsFileParams:
    """
    Raises:
        ValueError: saying what is wrong. Keys of another version are none of it.
    """
    try:
        value = json.loads(raw)
    except RecursionError as exc:
        raise ValueError("it is nested too deeply") from exc
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    known: dict[str, Json] = {name: part for name, part in value.items() if name in _KNOWN["file"]}
    if isinstance(known.get("socket"), dict):
        known["socket"] = _only(known["socket"], "socket")
    if isinstance(known.get("defaults"), dict):
        known["defaults"] = _only(known["defaults"], "defaults")
    if isinstance(known.get("agents"), dict):
        known["agents"] = {name: _only_agent(agent) for name, agent in known["agents"].items()}
    try:
        file = msgspec.convert(known, ExecApprovalsFileParams)
    except msgspec.ValidationError as exc:
        raise ValueError(describe(exc)) from exc
    problem = _problem(file)
    if problem:
        raise ValueError(problem)
    return file


def _only(value: Mapping[str, Json], level: str) -> dict[str, Json]:
    return {name: part for name, part in value.items() if name in _KNOWN[level]}


def _only_agent(agent: Json) -> Json:
    if not isinstance(agent, dict):
        return agent
    known = _only(agent, "agent")
    if isinstance(known.get("allowlist"), list):
        known["allowlist"] = [_only(each, "entry") if isinstance(each, dict) else each for each in known["allowlist"]]
    return known


def _problem(file: ExecApprovalsFileParams) -> str:
    """The first thing that is wrong with what the types allow; "" for nothing."""
    parts = [("/file/defaults", file.defaults)] if file.defaults else []
    parts += [(f"/file/agents/{name}", agent) for name, agent in (file.agents or {}).items()]
    for where, part in parts:
        for name, words in _WORDS.items():
            value = getattr(part, "ask_fallback" if name == "askFallback" else name)
            if value and value not in words:
                return f"at {where}/{name}: must be one of {', '.join(words)}"
        for number, entry in enumerate(getattr(part, "allowlist", ()) or ()):
            try:
                parse_pattern(entry.pattern)
            except InvalidPattern as exc:
                return f"at {where}/allowlist/{number}/pattern: {exc}"
    return ""


def _shown(raw: bytes | None) -> ExecApprovalsFile:
    try:
        file = msgspec.json.decode(raw or b"", type=ExecApprovalsFile)
    except (msgspec.DecodeError, RecursionError):
        return ExecApprovalsFile(version=1, defaults=ExecApprovalsDefaults(), agents={})
    # OpenClaw's client edits what it is given, and needs these to be there
    file.defaults = file.defaults or ExecApprovalsDefaults()
    file.agents = file.agents or dict[str, ExecApprovalsAgent]()
    return file


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(raw) > MAX_BYTES:
        raise ValueError(f"{path} is longer than {MAX_BYTES} bytes")
    return raw


def _write(path: Path, text: bytes) -> None:
    """All of it or nothing, readable by the gateway alone."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
