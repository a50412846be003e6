"""Files in the hooks' folder: believed only if nobody else can have written them.

Whoever can write a hook runs code as the gateway, so what others can write is refused, and so is what lies elsewhere.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from skynet.paths import Folder, PathRefused

FILE_BYTES = 1024 * 1024
"""A Python file that is larger is refused."""


class HookRefused(Exception):  # noqa: N818 - it is refused, and the words say why
    """A hook cannot be believed or understood, in words for the person who put it there."""


def trusted_folder(directory: Path) -> Folder | None:
    """The hooks' folder; None if there is none.

    Raises:
        HookRefused: others can write it.
        OSError: it cannot be read.
    """
    try:
        folder = Folder(directory)
    except FileNotFoundError:
        return None
    _require_trusted(folder.path.stat())
    return folder


def names_in(folder: Folder, path: str = "") -> list[str]:
    """The names in a folder in their order; those that begin with ``.`` or ``_`` or end with ``~`` are not meant.

    Raises:
        HookRefused: others can write it, or it is elsewhere.
        OSError: it cannot be read.
    """
    try:
        with folder.place(path) as place, place.entered() as directory:
            _require_trusted(os.fstat(directory))
            _require_trusted_parents(folder, place.path)
            with os.scandir(directory) as entries:
                names = sorted(entry.name for entry in entries)
    except PathRefused as exc:
        raise HookRefused(str(exc)) from exc
    return [name for name in names if name[0] not in "._" and not name.endswith("~")]


def read_trusted(folder: Folder, path: str) -> bytes:
    """What is in a file.

    Raises:
        HookRefused: others can write it or the way to it, it is elsewhere, no file or too large.
        OSError: it cannot be read.
    """
    with _opened(folder, path) as (descriptor, _), os.fdopen(descriptor, "rb", closefd=False) as file:
        data = file.read(FILE_BYTES + 1)
    if len(data) > FILE_BYTES:
        raise HookRefused(f"it is larger than {FILE_BYTES} bytes")
    return data


def trusted_program(folder: Folder, path: str) -> Path:
    """Where a program is, all links resolved.

    Raises:
        HookRefused: others can write it or the way to it, it is elsewhere, or not executable.
        OSError: it cannot be read.
    """
    with _opened(folder, path) as (_, real):
        if not os.access(real, os.X_OK):
            raise HookRefused("it cannot be run; make it executable (chmod u+x)")
        return real


@contextmanager
def _opened(folder: Folder, path: str) -> Iterator[tuple[int, Path]]:
    try:
        with folder.place(path) as place, place.opened() as (descriptor, status):
            _require_trusted(status)
            _require_trusted_parents(folder, path)  # of the link, if it is one
            _require_trusted_parents(folder, place.path)
            yield descriptor, folder.path / place.path
    except PathRefused as exc:
        raise HookRefused(str(exc)) from exc


def _require_trusted_parents(folder: Folder, path: str) -> None:
    for parent in PurePosixPath(path).parents:
        _require_trusted((folder.path / parent).stat())


def _require_trusted(status: os.stat_result) -> None:
    what = "the folder" if stat.S_ISDIR(status.st_mode) else "it"
    if status.st_uid not in (0, os.geteuid()):
        raise HookRefused(f"{what} belongs to the user {status.st_uid}, and not to the gateway's ({os.geteuid()})")
    if status.st_mode & 0o022:
        mode = stat.S_IMODE(status.st_mode)
        raise HookRefused(f"{what} can be written by others (its mode is {mode:04o}); chmod go-w")
