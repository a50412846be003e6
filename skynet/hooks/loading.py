"""Where hooks come from: installed packages, and files in ``SKYNET_HOME/hooks``.

A hook that cannot be loaded may be one that should have stopped something. So by default the gateway does not start
without it, and says everything that is wrong at once.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from skynet.hooks.bus import HookBus, wishes
from skynet.hooks.calls import Handler
from skynet.hooks.events import EVENTS, Event
from skynet.hooks.files import HookRefused, names_in, read_trusted, trusted_folder, trusted_program
from skynet.paths import Folder, shown

log = logging.getLogger(__name__)

DIRECTORY = "hooks"
"""Under the state directory."""
GROUP = "skynet.hooks"
"""Of the entry points of installed packages."""
MODULES = "skynet_hooks"
"""The files are modules ``skynet_hooks.<name>``."""
LONGEST_WORDS = 1000

_ENTRY_POINTS = "entry_points.txt"
_METADATA = (".dist-info", ".egg-info")


@dataclass(frozen=True, slots=True)
class HookProblem:
    """Why a hook is not there. ``where`` is its file, with the line if there is one, or its entry point."""

    where: str
    words: str

    def __str__(self) -> str:
        return f"{self.where}: {self.words}"


class HooksRefused(Exception):  # noqa: N818 - the hooks are refused, and the words say why
    """Hooks cannot be loaded; ``str()`` names all that are wrong, for the person who starts the gateway."""

    def __init__(self, problems: Sequence[HookProblem]) -> None:
        lines = [*map(str, problems), 'to start without what cannot be loaded: on_error = "skip" under [hooks]']
        super().__init__("\n".join(lines))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class _Found:
    """A handler, where it was found."""

    name: str
    event_type: type[Event]
    handler: Handler
    priority: int = 0


def load_hooks(bus: HookBus, directory: Path, *, on_error: Literal["refuse", "skip"] = "refuse") -> None:
    """Register what installed packages and the files in ``directory`` have, each in the order of their names.

    Python files are run. Nothing is registered of a file or entry point with which something is wrong.

    Raises:
        HooksRefused: something cannot be loaded, and ``on_error`` is ``refuse``. Nothing is registered then.
    """
    found: list[_Found] = []
    problems: list[HookProblem] = []
    for source in (_from_packages(), _from_folder(directory)):
        for each in source:
            if isinstance(each, HookProblem):
                problems.append(each)
            else:
                found += each
    if problems and on_error == "refuse":
        raise HooksRefused(problems)
    for problem in problems:
        log.error("left out a hook: %s", problem)
    for hook in found:
        bus.register(hook.event_type, hook.handler, hook.priority, name=hook.name)
    if found:
        log.info("hooks: %s", ", ".join(dict.fromkeys(hook.name for hook in found)))


def _from_packages() -> Iterator[list[_Found] | HookProblem]:
    if not _any_entry_points():
        return
    from importlib.metadata import entry_points  # 25 ms

    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        where = f"entry point {point.name} ({point.value})"
        try:
            loaded = point.load()
            values = vars(loaded) if isinstance(loaded, ModuleType) else {point.attr: loaded}
            yield _marked(values, prefix=f"{point.name}:")
        except (Exception, SystemExit) as exc:
            log.debug("the %s cannot be loaded", where, exc_info=exc)
            yield HookProblem(where, _words(exc))


def _any_entry_points() -> bool:
    """Whether any installed package has some: those who have none do not pay for finding out properly."""
    for directory in dict.fromkeys(sys.path):
        try:
            with os.scandir(directory or ".") as entries:
                names = [entry.name for entry in entries if entry.name.endswith(_METADATA)]
        except OSError:
            continue
        for name in names:
            try:
                if GROUP.encode() in Path(directory, name, _ENTRY_POINTS).read_bytes():
                    return True
            except OSError:
                continue
    return False


def _from_folder(directory: Path) -> Iterator[list[_Found] | HookProblem]:
    try:
        folder = trusted_folder(directory)
        names = names_in(folder) if folder is not None else []
    except (HookRefused, OSError) as exc:
        yield HookProblem(str(directory), _words(exc))
        return
    for name in names:
        assert folder is not None
        path = folder.path / name
        stem, extension = path.stem, path.suffix
        try:
            if extension == ".py":
                yield _from_python(folder, name)
            elif extension == ".sh":
                yield [_program(folder, name, stem)]
            elif extension == ".d":
                yield from _from_programs(folder, name, stem)
            elif stem in EVENTS:  # somebody meant something, and must not think that it works
                raise HookRefused(f"a program for this event is called {stem}.sh, or lies in {stem}.d")
        except (Exception, SystemExit) as exc:
            log.debug("%s cannot be loaded", path, exc_info=exc)
            yield HookProblem(_place(exc, path), _words(exc))


def _from_python(folder: Folder, name: str) -> list[_Found]:
    """What a file has, run as a module of its own. Any exception is the file's."""
    path = folder.path / name
    module = ModuleType(f"{MODULES}.{name.removesuffix('.py')}")
    module.__file__ = str(path)
    # From what was read when it was checked, and not by its name once more.
    code = compile(read_trusted(folder, name), str(path), "exec", dont_inherit=True)
    sys.modules[module.__name__] = module  # dataclasses look for it there
    try:
        exec(code, module.__dict__)  # noqa: S102 - this is what the folder is for
        return _marked(vars(module), prefix=f"{folder.path.name}/{name}:")
    except BaseException:
        del sys.modules[module.__name__]
        raise


def _marked(values: Mapping[str, Any], prefix: str) -> list[_Found]:
    """The functions that ``on`` has marked, in the order in which they were defined.

    Raises:
        HookRefused: there is none.
    """
    functions: dict[int, tuple[str, Any]] = {}
    for name, value in values.items():
        if wishes(value):
            functions.setdefault(id(value), (name, value))
    found = [
        _Found(f"{prefix}{name}", wish.event_type, function, wish.priority)
        for name, function in functions.values()
        for wish in wishes(function)
    ]
    if not found:
        raise HookRefused("there is no hook in it: no function is marked with @on(…)")
    return found


def _from_programs(folder: Folder, name: str, stem: str) -> Iterator[list[_Found] | HookProblem]:
    _event(stem)
    for program in names_in(folder, name):
        try:
            yield [_program(folder, f"{name}/{program}", stem)]
        except (HookRefused, OSError) as exc:
            yield HookProblem(str(folder.path / name / program), _words(exc))


def _program(folder: Folder, path: str, event: str) -> _Found:
    from skynet.hooks.shell import ShellHook

    event_type = _event(event)
    trusted_program(folder, path)
    return _Found(f"{folder.path.name}/{path}", event_type, ShellHook(folder, path))


def _event(name: str) -> type[Event]:
    """
    Raises:
        HookRefused: there is none with this name.
    """
    if name not in EVENTS:
        from difflib import get_close_matches

        near = get_close_matches(name, EVENTS, n=1)
        meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(EVENTS)}"
        raise HookRefused(f"there is no event {shown(name)}; {meant}")
    return EVENTS[name]


def _place(error: BaseException, path: Path) -> str:
    """The file, with the line where ``error`` is from, if that is in it."""
    line: int | None = None
    if isinstance(error, SyntaxError):
        line = error.lineno if error.filename == str(path) else None
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == str(path):
            line = frame.lineno
    return shown(str(path) if line is None else f"{path}:{line}", LONGEST_WORDS)


def _words(error: BaseException) -> str:
    match error:
        case HookRefused():
            words = str(error)
        case SyntaxError():
            words = f"{type(error).__name__}: {error.msg}"
        case OSError() if error.strerror:
            words = error.strerror
        case _:
            words = f"{type(error).__name__}: {error}"
    return shown(words, LONGEST_WORDS)
