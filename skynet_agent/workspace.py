"""The files that make the assistant who it is: ``SOUL.md`` and its siblings.

They are the same for everybody and the beginning of every prompt, so their text changes only when they do. Where they
are looked for, first match wins (SK-114 to SK-117): the configured directory; the one file that is configured as its
soul; the state directory, once it holds a ``SOUL.md``; and without any the built-in text.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import stat
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias

from skynet_agent.cutting import cut_middle

log = logging.getLogger(__name__)

FILES: Final = {
    "SOUL.md": "your personality and tone",
    "IDENTITY.md": "who you are: your name, your manner, your emoji",
    "AGENTS.md": "the rules you work by",
    "USER.md": "the people you work for",
    "TOOLS.md": "how tools are used here",
    "MEMORY.md": "your notes, which everybody may know",
}
"""The files an assistant is made of, in the order of the prompt (SK-107, SK-108), with what each is to it."""
BOOTSTRAP: Final = "BOOTSTRAP.md"
"""What to do at the first start; it comes last, and only while ``FIRST_RUN`` is there (SK-109)."""
FIRST_RUN: Final = ".first-run"

FILE_CHARS: Final = 20_000
TOTAL_CHARS: Final = 100_000
"""Characters of all files together, headings included."""
FILE_BYTES: Final = 1024 * 1024
"""A file that is larger is no prompt and left out."""
MOST_FILES: Final = 100
"""So many get a share of ``TOTAL_CHARS`` that is worth reading. More are left out, the last in the alphabet first."""

BUILT_IN: Final = (
    "You are Skynet, the assistant of a household or a small team, reached through a self-hosted gateway.\n"
    "Answer in the language of the person who writes, briefly and to the point.\n"
    "Say when you do not know something or cannot do it; never claim to have done what you have not."
)
"""Who the assistant is without any file (SK-117)."""

_UNSETTLED_NS = 100_000_000
"""A file that was written this recently may be written again without its time or size showing it."""
_SEPARATOR = "\n\n"

_Fingerprint: TypeAlias = tuple[str, int, int, int]
"""Path, mtime_ns, size, inode."""


class WorkspaceMode(StrEnum):
    """Where the assistant's text comes from, in words."""

    DIRECTORY = "workspace directory"
    SOUL = "one soul file"
    HOME = "state directory"
    BUILT_IN = "built-in prompt"


@dataclass(frozen=True, slots=True)
class _Found:
    mode: WorkspaceMode
    files: tuple[_Fingerprint, ...] = ()


class Workspace:
    """The workspace of one gateway.

    Every question looks at the files again: a few calls of stat(2), well under 100 µs; they are read again when one
    of them changed, came or went.

    Args:
        home: the state directory.
        workspace_dir: the directory that is configured, if one is.
        soul_path: the one file that is configured, if one is; the directory wins.
    """

    def __init__(self, home: Path, *, workspace_dir: Path | None = None, soul_path: Path | None = None) -> None:
        self._directory = workspace_dir or home
        self._is_configured = workspace_dir is not None
        self._soul_path = soul_path
        self._found: _Found | None = None
        self._is_settled = False
        self._mode = WorkspaceMode.BUILT_IN
        self._text = ""
        self._names: tuple[str, ...] = ()
        self._complaints: set[str] = set()

    @property
    def text(self) -> str:
        """What the assistant is told of itself, the same text until a file changes; at most ``TOTAL_CHARS``."""
        self._refresh()
        return self._text

    @property
    def mode(self) -> WorkspaceMode:
        """Where the text comes from."""
        self._refresh()
        return self._mode

    @property
    def files(self) -> Sequence[str]:
        """The names of the files in the text, in its order."""
        self._refresh()
        return self._names

    @property
    def directory(self) -> Path:
        """Where the files are or would be."""
        return self._directory

    @property
    def is_first_run(self) -> bool:
        """Whether the bootstrap is still to be gone through."""
        return (self._directory / FIRST_RUN).exists()

    def protects(self, directory: os.stat_result, name: str) -> bool:
        """Whether ``name`` in a directory is the workspace's, so that only its own tool may write it."""
        folded = name.casefold()
        is_prompt = folded.endswith(".md") or folded == FIRST_RUN
        if is_prompt and _is(directory, self._directory):
            return True
        soul = self._soul_path
        return soul is not None and folded == soul.name.casefold() and _is(directory, soul.parent)

    def read(self, name: str) -> str:
        """One of ``FILES``, whole.

        Raises:
            OSError: it is not there or cannot be read.
        """
        return _read(self._path(name), self._directory)

    def write(self, name: str, text: str) -> None:
        """Replace one of ``FILES``, whole or not at all; it is in the next prompt.

        Raises:
            ValueError: the text is longer than what of it would be read, or the file would not be read at all.
            OSError: it cannot be written.
        """
        if len(text) > FILE_CHARS:
            raise ValueError(f"{name} would have {len(text)} characters, the limit is {FILE_CHARS}")
        path = self._path(name)
        soul = self._directory / "SOUL.md"
        if not self._is_configured and path != soul and path != self._soul_path and not soul.exists():
            raise ValueError(f"there is no workspace yet: write SOUL.md first, then {name}")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(path, text.encode())

    def finish_first_run(self) -> bool:
        """The bootstrap is done: its file leaves the prompt. False if it was done before."""
        try:
            (self._directory / FIRST_RUN).unlink()
        except FileNotFoundError:
            return False
        return True

    def create(self) -> Sequence[str]:
        """Begin a workspace with the seven files and the mark of the first run; returns what was written.

        Files that are there stay as they are. A workspace that has a soul has had its first run.

        Raises:
            OSError: it cannot be written.
        """
        from skynet_agent.workspace_templates import TEMPLATES

        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        texts = dict(TEMPLATES)
        if not (self._directory / "SOUL.md").exists():
            texts[FIRST_RUN] = ""
        missing = [name for name in texts if not (self._directory / name).exists()]
        for name in missing:
            _write(self._directory / name, texts[name].encode())
        return missing

    def _path(self, name: str) -> Path:
        """
        Raises:
            ValueError: there is no such file in this workspace.
        """
        if name not in FILES:
            raise ValueError(f"there is no workspace file {name}; there are: {', '.join(FILES)}")
        if self._is_configured or self._soul_path is None:
            return self._directory / name
        if name != "SOUL.md":
            raise ValueError("this assistant is made of one file alone, SOUL.md")
        return self._soul_path

    def _refresh(self) -> None:
        found = self._look()
        if found == self._found and self._is_settled:
            return
        now_ns = time.time_ns()
        sections = self._sections(found)
        self._names = tuple(name for name, _ in sections)
        self._text = assembled(sections) if sections else BUILT_IN
        self._is_settled = all(abs(now_ns - changed_ns) > _UNSETTLED_NS for _, changed_ns, _, _ in found.files)
        mode = found.mode if sections else WorkspaceMode.BUILT_IN
        if self._found is None or self._mode is not mode:
            log.info("the assistant is made of: %s", mode)
        self._mode = mode
        self._found = found

    def _look(self) -> _Found:
        if self._soul_path is not None and not self._is_configured:
            files = _fingerprints([str(self._soul_path)])
            return _Found(WorkspaceMode.SOUL, files) if files else _Found(WorkspaceMode.BUILT_IN)
        try:
            with os.scandir(self._directory) as entries:
                present = {entry.name for entry in entries}
        except OSError:
            return _Found(WorkspaceMode.BUILT_IN)
        if not self._is_configured and "SOUL.md" not in present:
            return _Found(WorkspaceMode.BUILT_IN)
        files = _fingerprints(os.path.join(self._directory, name) for name in _ordered(present))  # noqa: PTH118
        if not files:
            return _Found(WorkspaceMode.BUILT_IN)
        return _Found(WorkspaceMode.DIRECTORY if self._is_configured else WorkspaceMode.HOME, files)

    def _sections(self, found: _Found) -> list[tuple[str, str]]:
        """The names and texts of the files that can be read and are not empty."""
        sections, complaints = [], set()
        for path, *_ in found.files:
            name = Path(path).name if found.mode is not WorkspaceMode.SOUL else "SOUL.md"
            try:
                text = _read(Path(path), None if found.mode is WorkspaceMode.SOUL else self._directory)
            except OSError as exc:
                complaints.add(f"{name}: {exc.strerror or exc}")
            else:
                if text:
                    sections.append((name, text))
        if len(sections) > MOST_FILES:
            complaints.add(f"of {len(sections)} files only {MOST_FILES} are in the prompt")
            kept = sections[:MOST_FILES]
            if sections[-1][0] == BOOTSTRAP:
                kept[-1] = sections[-1]
            sections = kept
        for complaint in sorted(complaints - self._complaints):
            log.warning("left out of the prompt: %s", complaint)
        self._complaints = complaints
        return sections


def assembled(sections: Sequence[tuple[str, str]]) -> str:
    """Texts under headings that tell what each is, at most ``TOTAL_CHARS`` together.

    A text of more than ``FILE_CHARS`` is cut. If all are too long together, the longest are cut further, to the one
    length at which they fit, so that none is lost for the others.
    """
    headings = [_heading(name) for name, _ in sections]
    room = TOTAL_CHARS - sum(len(heading) for heading in headings) - len(_SEPARATOR) * (2 * len(sections) - 1)
    share = fair_share([min(len(text), FILE_CHARS) for _, text in sections], room)
    return _SEPARATOR.join(
        f"{heading}{_SEPARATOR}{cut_middle(text, min(share, FILE_CHARS))}"
        for heading, (_, text) in zip(headings, sections, strict=True)
    )


def fair_share(lengths: Iterable[int], room: int) -> int:
    """The greatest length to cut to with which all fit in ``room``; ``room`` itself if they fit as they are."""
    waiting = sorted(lengths)
    if sum(waiting) <= room:
        return room
    for position, length in enumerate(waiting):
        share = room // (len(waiting) - position)
        if length > share:
            return share
        room -= length
    raise AssertionError("lengths that do not fit have one that is longer than its share")


def _heading(name: str) -> str:
    role = "what to do now, at your first start" if name == BOOTSTRAP else FILES.get(name, "further notes")
    return f"# {name[:64]}: {role}"


def _ordered(present: set[str]) -> list[str]:
    others = sorted(
        name
        for name in present
        if name.endswith(".md") and not name.startswith(".") and name not in FILES and name != BOOTSTRAP
    )
    last = [BOOTSTRAP] if BOOTSTRAP in present and FIRST_RUN in present else []
    return [*(name for name in FILES if name in present), *others, *last]


def _fingerprints(paths: Iterable[str]) -> tuple[_Fingerprint, ...]:
    found = []
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116 - on every turn, and several times as fast
        except OSError:  # a link to nothing, or gone just now
            continue
        found.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)


def _read(path: Path, directory: Path | None) -> str:
    """The text of a file, without a byte order mark and blank ends; what is no UTF-8 is replaced.

    Raises:
        OSError: it cannot be read; it is no file, too large, or a link out of ``directory``.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    if directory is not None and path.is_symlink():
        target = path.resolve(strict=True)
        if not target.is_relative_to(directory.resolve()):
            raise OSError(errno.EPERM, "it is a link out of the workspace")
        path = target
    descriptor = os.open(path, flags if directory is None else flags | os.O_NOFOLLOW)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no file")
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(FILE_BYTES + 1)
    if len(data) > FILE_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {FILE_BYTES} bytes")
    return data.decode("utf-8-sig", "replace").strip()


def _write(path: Path, data: bytes) -> None:
    """Put a file there whole or not at all, 0600."""
    fresh = path.with_name(f".{secrets.token_hex(8)}.tmp")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        fresh.replace(path)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise


def _is(directory: os.stat_result, path: Path) -> bool:
    try:
        return os.path.samestat(directory, path.stat())
    except OSError:
        return False
