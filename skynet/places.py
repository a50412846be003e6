"""Which files the tools of a person may touch."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from skynet.paths import Folder, Identity, PathRefused, Place, identity, shown
from skynet_agent.tools import ToolContext, ToolFailed
from skynet_memory.ids import Role

LEAST_FREE_BYTES = 256 * 1024 * 1024
"""What tools leave free of a disk: the gateway stores everybody's messages on the same one."""


class Places:
    """Where the tools of a person may work: their own folder, and for admins the other roots there are.

    Args:
        folder_of: a person's own folder; made, 0700, when it is first used.
        roots: directories that admins reach by absolute paths.
        sealed: directories that nobody enters from outside, the gateway's own above all, and files that nobody reads
            or replaces. A person's folder may lie in such a directory: it is opened itself.
        protected: whether a name in a directory is not for these tools to write; what :meth:`Workspace.protects` says.
        least_free_bytes: nothing is written to a disk that has less.
    """

    def __init__(
        self,
        folder_of: Callable[[ToolContext], Path],
        *,
        roots: Sequence[Path] = (),
        sealed: Sequence[Path] = (),
        protected: Callable[[os.stat_result, str], bool] = lambda directory, name: False,
        least_free_bytes: int = LEAST_FREE_BYTES,
    ) -> None:
        self._folder_of = folder_of
        self._roots = roots
        self._sealed = sealed
        self._protected = protected
        self._least_free_bytes = least_free_bytes

    @contextmanager
    def place(self, context: ToolContext, path: str, *, make_parents: bool = False) -> Iterator[Place]:
        """Where ``path`` leads for this person. Blocks; made for ``with`` around all that is done there.

        Raises:
            ToolFailed: it leads outside, or what is done within failed with a ``PathRefused`` or an ``OSError``. The
                words name the path as it was given and none of the machine's.
        """
        with _told(path), self._folder(context, path).place(path, make_parents=make_parents) as place:
            yield place

    @contextmanager
    def writable(self, context: ToolContext, path: str, *, make_parents: bool = False) -> Iterator[Place]:
        """As :meth:`place`, for what is to be written.

        Raises:
            ToolFailed: also for a file that the assistant itself is made of, and where the disk is nearly full.
        """
        if not path or path.endswith("/"):
            raise ToolFailed(f"{shown(path) or 'the path'} is the name of a folder; name a file")
        with self.place(context, path, make_parents=make_parents) as place:
            if self._protected(os.fstat(place.directory), place.name):
                raise ToolFailed(f"{shown(path)} is a file of the assistant's own workspace: use workspace_update")
            space = os.fstatvfs(place.directory)
            if space.f_bavail * space.f_frsize < self._least_free_bytes:
                raise ToolFailed(f"{shown(path)} was not written: the disk is nearly full")
            yield place

    def directory(self, context: ToolContext, path: str) -> Path:
        """The directory that ``path`` leads to for this person, by its real path on this machine.

        For what has to be told a name, such as a command's working directory. It was checked a moment ago: who can
        exchange directories must be held by more than this.

        Raises:
            ToolFailed: it leads outside, or to no directory.
        """
        with _told(path):
            folder = self._folder(context, path)
            with folder.place(path) as place, place.entered():
                return folder.path / place.path

    def _folder(self, context: ToolContext, path: str) -> Folder:
        own = self._folder_of(context)
        _make_private(own)
        sealed = [identity(status) for status in map(_status_of, self._sealed) if status is not None]
        folder = Folder(own, sealed=sealed)
        if not path.startswith("/") or folder.holds(path):
            return folder
        if context.role is Role.ADMIN:
            holding = [root for root in self._folders(self._roots, sealed) if root.holds(path)]
            if holding:  # the innermost: it may be inside of what is sealed to the others
                return max(holding, key=lambda root: len(root.path.parts))
        raise PathRefused("it leads out of your folder; give a path that is relative to it")

    def _folders(self, roots: Sequence[Path], sealed: Collection[Identity]) -> Iterator[Folder]:
        for root in roots:
            with suppress(OSError):  # it is not there
                if identity(root.stat()) not in sealed:
                    yield Folder(root, sealed=sealed)


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Failures in words for a model."""
    try:
        yield
    except PathRefused as exc:
        raise ToolFailed(f"{shown(path) or '.'} was refused: {exc}") from exc
    except OSError as exc:
        raise ToolFailed(f"{shown(path) or '.'}: {exc.strerror or 'failed'}") from exc


def _make_private(path: Path) -> None:
    """Make ``path`` and what is missing above it, 0700."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        with suppress(FileExistsError):  # another call of the same person was quicker
            directory.mkdir(mode=0o700)


def _status_of(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
