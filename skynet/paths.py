"""Directory trees that those who use them cannot leave.

A path that a model or a client gives is walked from the tree's own directory, one component at a time, each opened
relative to the one before and never through a link (openat(2), ``O_NOFOLLOW``). A link is read and walked by the same
rules: one that stays inside is followed, one that leaves is refused. Nothing is checked first and then opened by its
whole name, so whoever exchanges a directory for a link meanwhile gets an error and never a file outside.
"""

import errno
import os
import secrets
import stat
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeAlias

Identity: TypeAlias = tuple[int, int]
"""Device and inode: the same for a directory or a file by whatever name it is reached."""

LONGEST_PATH_BYTES = 4096
LONGEST_NAME_BYTES = 255
DEEPEST = 64
"""So many directories below the top can be reached; each is held open while a path is walked."""
MOST_LINKS = 40
"""Links that one path may lead through, as in Linux (path_resolution(7))."""
LONGEST_SHOWN = 200

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without waiting for who writes to a FIFO, and without a terminal becoming the gateway's own.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class PathRefused(Exception):  # noqa: N818 - the path is refused, and the words say why
    """A path leads where it must not, or to what is no file or folder."""


class Folder:
    """A directory tree. Whatever is asked of it stays inside.

    Args:
        path: its top, which exists; links on the way to it are the operator's and followed.
        sealed: directories that are not entered, and files that are neither read nor replaced, even where they lie
            inside.

    Raises:
        OSError: there is no such directory.
    """

    def __init__(self, path: Path, *, sealed: Collection[Identity] = ()) -> None:
        self.path = Path(os.path.realpath(path, strict=True))
        self._given = PurePosixPath(path)
        self._sealed = sealed

    def holds(self, path: str) -> bool:
        """Whether an absolute path names something in this tree, by its text."""
        return self._relative(path) is not None

    @contextmanager
    def place(self, path: str, *, make_parents: bool = False) -> Iterator["Place"]:
        """Where ``path`` leads, with its directory open. Nothing need be there; blocks.

        Args:
            path: relative to the top, or absolute and in the tree. Empty for the top itself.
            make_parents: missing directories on the way are made, 0700.

        Raises:
            PathRefused: it leads out of the tree, into a sealed directory, or is no path.
            OSError: a directory on the way is missing or cannot be opened.
        """
        walk = _Walk(self, _checked(path), make_parents=make_parents, sealed=self._sealed)
        try:
            yield walk.to_the_end()
        finally:
            walk.close()

    def _relative(self, path: str) -> str | None:
        for top in (self.path, self._given):
            with suppress(ValueError):
                return str(PurePosixPath(path).relative_to(top))
        return None

    def inside(self, path: str) -> str:
        """An absolute path as one that is relative to the top.

        Raises:
            PathRefused: it is outside.
        """
        relative = self._relative(path)
        if relative is None:
            raise PathRefused("it leads out of the folder")
        return relative


@dataclass(frozen=True, slots=True)
class Place:
    """A name in an open directory. It was no link when it was found; it is never followed as one.

    ``path`` is relative to the top, with all links resolved; the top itself has the name and the path ``.``.
    """

    directory: int
    name: str
    path: str
    sealed: Collection[Identity]

    def stat(self) -> os.stat_result | None:
        """What is there now; None for nothing."""
        try:
            return os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            return None

    @contextmanager
    def opened(self) -> Iterator[tuple[int, os.stat_result]]:
        """The file, open for reading, and what it is. Raises as :func:`open_file`."""
        descriptor, status = open_file(self.directory, self.name, self.sealed)
        try:
            yield descriptor, status
        finally:
            os.close(descriptor)

    @contextmanager
    def entered(self) -> Iterator[int]:
        """The directory, open. Raises as :func:`open_folder`."""
        descriptor = open_folder(self.directory, self.name, self.sealed)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def replace(self, data: bytes, *, ready: Callable[[], None] = lambda: None) -> os.stat_result:
        """Put a file with ``data`` here, whole or not at all; one that is there keeps its mode, a new one has 0600.

        Args:
            ready: called when all is written and only the exchange is left; what it raises leaves things as they were.

        Raises:
            PathRefused: something else than a file is there, or a sealed one.
            OSError: there is no room, no right, …
        """
        before = self.stat()
        if before is not None:
            _require_file(before, self.sealed)
        fresh = f".{secrets.token_hex(8)}.tmp"
        descriptor = os.open(fresh, _FRESH, 0o600, dir_fd=self.directory)
        try:
            try:
                left = memoryview(data)
                while left:
                    left = left[os.write(descriptor, left) :]
                if before is not None:
                    os.fchmod(descriptor, before.st_mode & 0o777)
                os.fsync(descriptor)
                written = os.fstat(descriptor)
            finally:
                os.close(descriptor)
            ready()
            os.rename(fresh, self.name, src_dir_fd=self.directory, dst_dir_fd=self.directory)
        except BaseException:
            with suppress(OSError):
                os.unlink(fresh, dir_fd=self.directory)
            raise
        with suppress(OSError):  # the new name survives a power cut, where the file system can promise that
            os.fsync(self.directory)
        return written


class _Walk:
    """One walk from the top of a folder to where a path leads."""

    def __init__(self, folder: Folder, path: str, *, make_parents: bool, sealed: Collection[Identity]) -> None:
        self._folder = folder
        self._make_parents = make_parents
        self._sealed = sealed
        self._left = deque(_components(folder.inside(path) if path.startswith("/") else path))
        self._links = 0
        self._names: list[str] = []
        self._open = [os.open(folder.path, _DIRECTORY)]

    def close(self) -> None:
        for descriptor in self._open:
            os.close(descriptor)

    def to_the_end(self) -> Place:
        while self._left:
            name = self._left.popleft()
            if name == "..":
                self._up()
                continue
            status = self._status(name)
            if status is not None and stat.S_ISLNK(status.st_mode):
                self._follow(name)
            elif not self._left:
                return Place(self._open[-1], name, "/".join([*self._names, name]), self._sealed)
            else:
                self._down(name)
        return Place(self._open[-1], ".", "/".join(self._names) or ".", self._sealed)

    def _status(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self._open[-1], follow_symlinks=False)
        except FileNotFoundError:
            if self._left:
                if not self._make_parents or ".." in self._left:
                    raise
                with suppress(FileExistsError):  # somebody else made it, and _down() looks at what it is
                    os.mkdir(name, 0o700, dir_fd=self._open[-1])
            return None

    def _up(self) -> None:
        # Not by the name "..", which is another directory once this one was moved.
        if not self._names:
            raise PathRefused("it leads out of the folder")
        os.close(self._open.pop())
        self._names.pop()

    def _down(self, name: str) -> None:
        if len(self._names) == DEEPEST:
            raise PathRefused(f"it is more than {DEEPEST} folders deep")
        self._open.append(open_folder(self._open[-1], name, self._sealed))
        self._names.append(name)

    def _follow(self, name: str) -> None:
        self._links += 1
        if self._links > MOST_LINKS:
            raise PathRefused(f"it leads through more than {MOST_LINKS} links")
        try:
            target = os.readlink(name, dir_fd=self._open[-1])
        except OSError as exc:
            if exc.errno == errno.EINVAL:
                raise PathRefused("it changed while it was opened") from exc
            raise
        if target.startswith("/"):
            target = self._folder.inside(target)
            while self._names:
                self._up()
        self._left.extendleft(reversed(_components(target)))


def open_folder(directory: int, name: str, sealed: Collection[Identity] = ()) -> int:
    """A directory in an open one, opened itself, not through a link.

    Raises:
        PathRefused: it is sealed, or a link.
        OSError: it is missing, no directory, or cannot be opened.
    """
    try:
        descriptor = os.open(name, _DIRECTORY, dir_fd=directory)
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise PathRefused("it changed while it was opened") from exc
        raise
    if sealed and identity(os.fstat(descriptor)) in sealed:
        os.close(descriptor)
        raise PathRefused("it belongs to the gateway itself")
    return descriptor


def open_file(directory: int, name: str, sealed: Collection[Identity] = ()) -> tuple[int, os.stat_result]:
    """A regular file in an open directory, open for reading, not through a link; and what it is.

    Never waits: other kinds of files are not opened, and one that takes a file's place meanwhile is closed unread.

    Raises:
        PathRefused: it is something else than a file, or sealed.
        OSError: it is missing or cannot be opened.
    """
    _require_file(os.stat(name, dir_fd=directory, follow_symlinks=False))
    try:
        descriptor = os.open(name, _FILE, dir_fd=directory)
    except OSError as exc:
        if exc.errno in (errno.ELOOP, errno.ENXIO):
            raise PathRefused("it changed while it was opened") from exc
        raise
    try:
        status = os.fstat(descriptor)
        _require_file(status, sealed)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status


def identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def kind(mode: int) -> str:
    """What a mode of stat(2) says something is, in words."""
    if stat.S_ISREG(mode):
        return "a file"
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISLNK(mode):
        return "a link"
    return "no file but a device, a socket or a pipe"


def shown(path: str, longest: int = LONGEST_SHOWN) -> str:
    """A path of somebody else's making, for people and models: on one line, printable, shortened."""
    text = "".join(letter if letter.isprintable() else _escaped(letter) for letter in path[: longest + 1])
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _escaped(letter: str) -> str:
    code = ord(letter)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8 (PEP 383)
        return f"\\x{code - 0xDC00:02x}"
    return letter.encode("unicode_escape").decode("ascii")


def _require_file(status: os.stat_result, sealed: Collection[Identity] = ()) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise PathRefused(f"it is {kind(status.st_mode)}")
    if sealed and identity(status) in sealed:
        raise PathRefused("it belongs to the gateway itself")


def _checked(path: str) -> str:
    if "\0" in path:
        raise PathRefused("it holds a NUL character")
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError as exc:
        raise PathRefused("it is no valid text") from exc
    if size > LONGEST_PATH_BYTES:
        raise PathRefused(f"it is {size} bytes long, the limit is {LONGEST_PATH_BYTES}")
    return path


def _components(path: str) -> list[str]:
    names = [name for name in path.split("/") if name not in ("", ".")]
    for name in names:
        if len(os.fsencode(name)) > LONGEST_NAME_BYTES:
            raise PathRefused(f"a name in it is longer than {LONGEST_NAME_BYTES} bytes")
    return names
