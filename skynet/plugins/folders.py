"""Which plugins there are: in their folders, believed if nobody else can have written them, watched for changes."""

from __future__ import annotations

import asyncio
import errno
import logging
import operator
import os
import stat
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from skynet.config.problems import quoted
from skynet.paths import shown
from skynet.plugins.file import Files, PluginRefused, parse
from skynet_memory.secrets import Secret

log = logging.getLogger(__name__)

DIRECTORY = "tools"
"""Under the state directory."""
FILE_NAME = "tool.toml"
MOST_PLUGINS = 1000
"""So many folders are looked at, in the order of their names."""
FILE_BYTES = 65_536
"""A ``tool.toml`` that is larger is left out."""
MANY = 100
"""So many plugins are looked at in a thread, which takes milliseconds."""
LONGEST_REASON = 2000

_UNSETTLED_NS = 100_000_000
"""What was written this recently may be written again without its time or size showing it."""

Fingerprint: TypeAlias = tuple[int, ...]
LookAt: TypeAlias = Callable[[Path], os.stat_result]
"""lstat(2), by somebody who remembers that the answer matters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A plugin that counts.

    ``id`` is the name of its folder, ``name`` that of its tool. ``parameters`` is a JSON schema of type object.
    ``env`` are its own variables, with what it was given of the gateway's.
    """

    id: str
    folder: Path
    name: str
    description: str
    command: Sequence[str]
    timeout_s: float
    parameters: Mapping[str, Any]
    env: Mapping[str, Secret]
    files: Files = "none"
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Entry:
    """What came of a folder, and what that depends on: ``watched`` paths, its ``tool.toml`` first, as in ``seen``."""

    watched: Sequence[str]
    seen: Sequence[Fingerprint | None]
    is_settled: bool
    plugin: Plugin | None = None
    reason: str = ""

    def is_of(self, folder: Path) -> bool:
        return self.watched[0] == str(folder / FILE_NAME)


@dataclass(frozen=True, slots=True)
class _State:
    directory: Fingerprint | None = None
    is_settled: bool = True
    entries: Mapping[str, _Entry] = field(default_factory=dict)
    plugins: Sequence[Plugin] = ()
    complaints: Mapping[str, str] = field(default_factory=dict)


class Plugins:
    """The plugins of one gateway, as they are now.

    Args:
        directory: where their folders are; it need not exist.
        env: the gateway's environment, of which a plugin gets what its ``env`` names.
        taken: names that no plugin may have.
    """

    def __init__(self, directory: Path, *, env: Mapping[str, str], taken: Collection[str] = ()) -> None:
        self._directory = directory
        self._env = env
        self._taken = frozenset(taken)
        self._state = _State()
        self._lock = asyncio.Lock()

    async def current(self) -> Sequence[Plugin]:
        """The plugins in the order of their folders' names; the same object until one changes, comes or goes.

        Looking whether anything changed takes a few calls of stat(2) for each plugin, and a single one where there is
        no directory. What changed is read in a thread.
        """
        if not await self._has_not_changed():
            async with self._lock:
                if not await self._has_not_changed():
                    before = self._state
                    self._state = await asyncio.to_thread(self._loaded, before)
                    _tell(before, self._state)
        return self._state.plugins

    def is_current(self, plugin: Plugin) -> bool:
        """Whether all that ``plugin`` depends on still is as it was when it was read."""
        entry = self._state.entries.get(plugin.folder.name)
        return entry is not None and entry.plugin is plugin and _look(entry.watched) == entry.seen

    async def _has_not_changed(self) -> bool:
        state = self._state
        return self._is_now(state) if len(state.entries) < MANY else await asyncio.to_thread(self._is_now, state)

    def _is_now(self, state: _State) -> bool:
        if not state.is_settled or _look_at_directory(self._directory) != state.directory:
            return False
        return all(_look(entry.watched) == entry.seen for entry in state.entries.values())

    def _loaded(self, before: _State) -> _State:
        """Read what is new or changed; what is not stays the same object."""
        now_ns = time.time_ns()
        directory = _look_at_directory(self._directory)
        if directory is None:
            return _State()
        complaints: dict[str, str] = {}
        try:
            real = Path(os.path.realpath(self._directory, strict=True))
            _require_trusted(real, real.stat())
            names = _folders(real)
        except (OSError, PluginRefused) as exc:
            return _State(directory, complaints={"": _reason(exc)})
        if len(names) > MOST_PLUGINS:
            first = ", ".join(map(shown, names[MOST_PLUGINS : MOST_PLUGINS + 3]))
            complaints[""] = f"of {len(names)} folders only {MOST_PLUGINS} are looked at, and not {first} and so on"
        entries = {name: self._entry(real / name, before.entries.get(name)) for name in names[:MOST_PLUGINS]}
        plugins = self._chosen(entries, complaints)
        is_same = len(plugins) == len(before.plugins) and all(map(operator.is_, plugins, before.plugins))
        is_settled = _is_settled(directory, now_ns) and all(entry.is_settled for entry in entries.values())
        return _State(directory, is_settled, entries, before.plugins if is_same else plugins, complaints)

    def _entry(self, folder: Path, before: _Entry | None) -> _Entry:
        if before is not None and before.is_of(folder) and before.is_settled and _look(before.watched) == before.seen:
            return before
        now_ns = time.time_ns()
        watch = _Watch()
        plugin, reason = None, ""
        try:
            plugin = read_plugin(folder, self._env, watch.look)
        except (OSError, PluginRefused) as exc:
            reason = _reason(exc)
        if before is not None and before.plugin == plugin:
            plugin = before.plugin
        is_settled = watch.seen[0] is None or _is_settled(watch.seen[0], now_ns)
        return _Entry(watch.paths, watch.seen, is_settled, plugin, reason)

    def _chosen(self, entries: Mapping[str, _Entry], complaints: dict[str, str]) -> list[Plugin]:
        """The plugins, each name once."""
        chosen: dict[str, Plugin] = {}
        for folder, entry in entries.items():
            plugin = entry.plugin
            if plugin is None:
                complaints[folder] = entry.reason
            elif plugin.name in self._taken:
                complaints[folder] = f"the name {plugin.name} is that of a tool of the gateway itself"
            elif plugin.name in chosen:
                complaints[folder] = f"the name {plugin.name} is that of the plugin {chosen[plugin.name].id} already"
            else:
                chosen[plugin.name] = plugin
        return list(chosen.values())


def read_plugin(folder: Path, env: Mapping[str, str], look_at: LookAt) -> Plugin:
    """The plugin in ``folder``, whose directory is trusted and has no links in its path.

    Args:
        env: what ``${NAME}`` in its variables stands for.
        look_at: called for everything that the answer depends on, first for the ``tool.toml``.

    Raises:
        PluginRefused: it does not count.
        OSError: it cannot be read.
    """
    path = folder / FILE_NAME
    with suppress(FileNotFoundError):  # _read says so, after what is wrong with the folder
        look_at(path)
    status = look_at(folder)
    if stat.S_ISLNK(status.st_mode):
        raise PluginRefused("the folder is a link; put the folder itself here")
    _require_trusted(folder, status)
    file = parse(_read(path), path, env)
    _check_files(folder, file.command, look_at)
    return Plugin(
        id=shown(folder.name),
        folder=folder,
        name=file.name,
        description=file.description,
        command=file.command,
        timeout_s=file.timeout_s,
        parameters=file.parameters,
        env={name: Secret(value) for name, value in file.env.items()},
        files=file.files,
        hosts=file.hosts,
    )


def _check_files(folder: Path, command: Sequence[str], look_at: LookAt) -> None:
    """That nobody else can have written the files that ``command`` names.

    Raises:
        PluginRefused: somebody can; or they are elsewhere, or what is to be run is no program.
        OSError: it cannot be read.
    """
    program, *arguments = command
    if "/" in program:  # or it is looked for in PATH, when it is run
        real = _trusted(folder, program, look_at)
        if not real.is_file() or not os.access(real, os.X_OK):
            raise PluginRefused(f"command: {quoted(program)} cannot be run; make it executable (chmod +x)")
    for argument in arguments:
        is_file = False
        with suppress(OSError, ValueError):  # there is no such file, or it is no name of one
            look_at(folder / argument)
            is_file = (folder / argument).is_file()
        if is_file:
            _trusted(folder, argument, look_at)


def _trusted(folder: Path, argument: str, look_at: LookAt) -> Path:
    """Where a file that a command names is, all links resolved.

    Raises:
        PluginRefused: others can write it, or the way to it inside the tools' directory; or it leads out of that.
        OSError: there is nothing.
    """
    directory, path = folder.parent, folder / argument
    if ".." in path.parts:
        raise PluginRefused(f"command: {quoted(argument)}: leave out ..")
    real = Path(os.path.realpath(path))
    if path.is_relative_to(directory) and not real.is_relative_to(directory):
        raise PluginRefused(f"command: {quoted(argument)} is a link that leads out of {directory}")
    for end in dict.fromkeys((path, real)):
        for each in (end, *end.parents):
            if each == end or (each != folder and directory in each.parents):
                status = look_at(each)
                if not stat.S_ISLNK(status.st_mode):
                    _require_trusted(each, status)
    return real


def _require_trusted(path: Path, status: os.stat_result) -> None:
    """
    Raises:
        PluginRefused: somebody else than the gateway's user and root can have written it.
    """
    if status.st_uid not in (0, os.geteuid()):
        raise PluginRefused(f"{path} belongs to the user {status.st_uid}, and not to the gateway's ({os.geteuid()})")
    if status.st_mode & 0o022:
        mode = stat.S_IMODE(status.st_mode)
        raise PluginRefused(f"{path} can be written by others (its mode is {mode:04o}); chmod go-w")


def _read(path: Path) -> bytes:
    """
    Raises:
        PluginRefused: it is a link, no file or too large, or others can write it.
        OSError: it cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as exc:
        if exc.errno in (errno.ELOOP, errno.ENXIO):
            raise PluginRefused(f"{path} is no file") from exc
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise PluginRefused(f"{path} is no file")
        _require_trusted(path, status)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > FILE_BYTES:
        raise PluginRefused(f"{path} is larger than {FILE_BYTES} bytes")
    return data


def _folders(directory: Path) -> list[str]:
    """The names of the folders, and of links to some, in their order; those that begin with . or _ are not meant."""
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if entry.name[0] not in "._" and entry.is_dir())


class _Watch:
    """Remembers what was looked at, and how it looked."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.seen: list[Fingerprint | None] = []

    def look(self, path: Path) -> os.stat_result:
        name = str(path)
        if name not in self.paths:
            self.paths.append(name)
            self.seen += _look([name], is_first=not self.seen)
        return path.lstat()


def _look(watched: Sequence[str], *, is_first: bool = True) -> list[Fingerprint | None]:
    """What there is now. Only of the first does it matter what is in it."""
    seen: list[Fingerprint | None] = []
    for path in watched:
        try:
            status = os.lstat(path)
        except (OSError, ValueError):
            seen.append(None)
        else:
            whose = (status.st_mode, status.st_uid, status.st_ino, status.st_dev)
            seen.append(_fingerprint(status) if is_first and not seen else whose)
    return seen


def _look_at_directory(directory: Path) -> Fingerprint | None:
    try:
        return _fingerprint(os.stat(directory))  # noqa: PTH116 - before each message, and several times as fast
    except OSError:
        return None


def _fingerprint(status: os.stat_result) -> Fingerprint:
    """It begins with the time of the last change, which nobody can set."""
    whose = (status.st_mode, status.st_uid, status.st_ino, status.st_dev)
    return status.st_ctime_ns, status.st_mtime_ns, status.st_size, *whose


def _is_settled(fingerprint: Fingerprint, now_ns: int) -> bool:
    return abs(now_ns - fingerprint[0]) > _UNSETTLED_NS


def _reason(error: OSError | PluginRefused) -> str:
    """On one line, printable whatever the names in it are."""
    words = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
    return shown(words, LONGEST_REASON)


def _tell(before: _State, now: _State) -> None:
    """Log what came, what went, and what was left out."""
    for folder, reason in now.complaints.items():
        if before.complaints.get(folder) != reason:
            log.warning("left out %s: %s", f"the plugin {shown(folder)}" if folder else "plugins", reason)
    if now.plugins is not before.plugins:
        log.info("plugins: %s", ", ".join(plugin.name for plugin in now.plugins) or "none")
