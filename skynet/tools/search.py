"""``list_files`` and ``search_files``: what there is in a person's own folder."""

import asyncio
import os
import stat
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import islice
from typing import BinaryIO, TypeAlias

from skynet.paths import DEEPEST, LONGEST_PATH_BYTES, Identity, PathRefused, Place, open_file, open_folder, shown
from skynet.places import Places
from skynet.threads import Stop, in_thread
from skynet_agent.messages import Json
from skynet_agent.tools import Tool, ToolContext, ToolFailed

MOST_ENTRIES = 1000
"""Entries of one listing (SK-092)."""
LIST_CHARS = 100_000
"""Characters of one listing: entries with very long names are fewer."""
MOST_COUNTED = 20_000
"""A listing that is cut says how many entries there are, up to this."""
MOST_NAMES = 100_000
"""What is looked at of one folder."""
MOST_MATCHES = 100
"""Matching lines of one search (SK-093)."""
SEARCHED_BYTES = 8 * 1024 * 1024
"""What of one file is searched."""
WALK_S = 30.0
"""Seconds after which a listing or a search ends with what it has found."""
LINE_CHARS = 300
"""What is shown of a matching line."""
MOST_WALKS = 2
"""Listings and searches at one time; the others wait. Threads are shared with all that blocks in the gateway."""

_SNIFFED_BYTES = 8192
_LINES_A_CHECK = 1000
_NOT_ENTERED = frozenset({".git"})

Finder: TypeAlias = Callable[[bytes], str | None]
"""What of a line to show if it matches; None if it does not."""


class SearchTools:
    """The tools, which take turns: ``MOST_WALKS`` at one time, and of each person one."""

    def __init__(self, places: Places, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._places = places
        self._clock = clock
        self._turns = asyncio.Semaphore(MOST_WALKS)
        self._own_turns: dict[str, asyncio.Lock] = {}

    def tools(self) -> Sequence[Tool]:
        glob: Json = {
            "type": "string",
            "minLength": 1,
            "maxLength": 500,
            "description": "Only names like this, as *.py; with a / it is for the path: **/test_*.py, src/*.c.",
        }
        return (
            Tool(
                name="list_files",
                description=(
                    "List a folder: name, type, size and time of last change (UTC) of each entry, hidden ones "
                    f"included, at most {MOST_ENTRIES}. What is in .git is left out of recursive listings."
                ),
                parameters={
                    "type": "object",
                    "properties": {
                        "path": {
                            "type": "string",
                            "description": "The folder, relative to the person's own folder. Default: that folder.",
                        },
                        "recursive": {
                            "type": "boolean",
                            "description": "Also list what is in the folders in it. Default false.",
                        },
                        "depth": {
                            "type": "integer",
                            "minimum": 1,
                            "maximum": DEEPEST,
                            "description": f"How many levels, if recursive. Default {DEEPEST}.",
                        },
                        "glob": glob,
                    },
                    "additionalProperties": False,
                },
                permission="files.read",
                run=self.list,
            ),
            Tool(
                name="search_files",
                description=(
                    "Find a text in the files of a folder and the folders in it. Gives path, line number and line of "
                    f"at most {MOST_MATCHES} matches. The text is taken literally. Binary files and what is in .git "
                    "are left out, links are not followed."
                ),
                parameters={
                    "type": "object",
                    "properties": {
                        "query": {
                            "type": "string",
                            "minLength": 1,
                            "maxLength": 1000,
                            "description": "The text, without line breaks.",
                        },
                        "path": {
                            "type": "string",
                            "description": "The folder or the file, relative to the person's own folder. Default: that "
                            "folder.",
                        },
                        "ignore_case": {"type": "boolean", "description": "Default false."},
                        "glob": glob,
                    },
                    "required": ["query"],
                    "additionalProperties": False,
                },
                permission="files.read",
                run=self.search,
            ),
        )

    @asynccontextmanager
    async def _turn(self, context: ToolContext) -> AsyncIterator[None]:
        """Who asks for many at once waits for their own, and not the others for them."""
        async with self._own_turns.setdefault(context.user_id, asyncio.Lock()), self._turns:
            yield

    async def list(self, context: ToolContext, arguments: Mapping[str, Json]) -> str:
        path, glob = arguments.get("path", ""), arguments.get("glob")
        is_deep = arguments.get("recursive", False) or (glob is not None and "/" in glob)
        depth = int(arguments.get("depth", DEEPEST)) if is_deep else 1

        def work(stop: Stop) -> str:
            listing = _Listing(glob)
            walk = _Walk(stop, depth=depth, ends_at_s=self._clock() + WALK_S, clock=self._clock)
            with self._places.place(context, path) as place, closing(walk.entries_at(place)) as entries:
                for entry in entries:
                    if not listing.add(entry):
                        break
            return listing.text(path, walk.cut)

        async with self._turn(context):
            return await in_thread(work)

    async def search(self, context: ToolContext, arguments: Mapping[str, Json]) -> str:
        path, query, glob = arguments.get("path", ""), arguments["query"], arguments.get("glob")
        find = finder(query, ignore_case=bool(arguments.get("ignore_case", False)))

        def work(stop: Stop) -> str:
            search = _Search(find, glob, "" if path in ("", ".", "./") else f"{path.rstrip('/')}/")
            walk = _Walk(stop, depth=DEEPEST, ends_at_s=self._clock() + WALK_S, clock=self._clock)
            with self._places.place(context, path) as place, closing(walk.entries_at(place)) as entries:
                for entry in entries:
                    if not search.look(entry, walk):
                        break
            return search.text(query, walk.cut)

        async with self._turn(context):
            return await in_thread(work)


@dataclass(frozen=True, slots=True)
class _Entry:
    """``path`` is relative to where the walk began, and empty for a walk of one file."""

    directory: int
    name: str
    path: str
    status: os.stat_result


class _Walk:
    """Goes through a directory tree, each directory in the order of names and before what is in it.

    ``cut`` says in words why something was left out.
    """

    def __init__(self, stop: Stop, *, depth: int, ends_at_s: float, clock: Callable[[], float]) -> None:
        self.cut = ""
        self._stop = stop
        self._depth = depth
        self._ends_at_s = ends_at_s
        self._clock = clock
        self.sealed: Collection[Identity] = ()

    def entries_at(self, place: Place) -> Generator[_Entry, None, None]:
        """What is in a directory, or the one file that is there.

        Raises:
            OSError, PathRefused: there is neither.
        """
        status = place.stat()
        self.sealed = place.sealed
        if status is not None and stat.S_ISREG(status.st_mode):
            yield _Entry(place.directory, place.name, "", status)
            return
        with place.entered() as folder:
            yield from self._entries(folder, "", 1)

    def goes_on(self) -> bool:
        """Whether there is time left.

        Raises:
            Stopped: nobody waits any more.
        """
        self._stop.check()
        if self._clock() < self._ends_at_s:
            return True
        self.cut = f"stopped after {WALK_S:g} seconds"
        return False

    def _entries(self, folder: int, prefix: str, level: int) -> Generator[_Entry, None, None]:
        for name in self._names(folder):
            if not self.goes_on():
                return
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError:  # gone just now
                continue
            yield _Entry(folder, name, prefix + name, status)
            if stat.S_ISDIR(status.st_mode) and name not in _NOT_ENTERED:
                if level < self._depth:
                    yield from self._within(folder, name, f"{prefix}{name}/", level + 1)
                elif level == DEEPEST:
                    self.cut = f"folders more than {DEEPEST} deep were left out"

    def _within(self, folder: int, name: str, prefix: str, level: int) -> Generator[_Entry, None, None]:
        try:
            inner = open_folder(folder, name, self.sealed)
        except (OSError, PathRefused):
            self.cut = f"{shown(prefix)} could not be opened"
            return
        try:
            yield from self._entries(inner, prefix, level)
        finally:
            os.close(inner)

    def _names(self, folder: int) -> Sequence[str]:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, MOST_NAMES + 1)]
        if len(names) > MOST_NAMES:
            self.cut = f"of a folder with more than {MOST_NAMES} entries some were left out"
            names.pop()
        return sorted(names)


class _Listing:
    def __init__(self, glob: str | None) -> None:
        self._glob = glob
        self._lines: list[str] = []
        self._chars = 0
        self._count = 0

    def add(self, entry: _Entry) -> bool:
        """Whether more are counted."""
        if self._glob is None or matches(entry.path or entry.name, self._glob):
            self._count += 1
            if len(self._lines) < MOST_ENTRIES and self._chars < LIST_CHARS:
                line = _described(entry.path or entry.name, entry.status)
                self._chars += len(line) + 1
                self._lines.append(line)
        return self._count <= MOST_COUNTED

    def text(self, path: str, cut: str) -> str:
        notes = [cut] if cut else []
        if len(self._lines) < self._count:
            many = f"more than {MOST_COUNTED}" if self._count > MOST_COUNTED else str(self._count)
            notes.append(
                f"the first {len(self._lines)} of {many} entries; for the others list a folder of these, or give a glob"
            )
        if not self._lines:
            what = "is empty" if self._glob is None else f"has nothing like {shown(self._glob)}"
            self._lines.append(f"{shown(path) or 'the folder'} {what}")
        return "\n".join([*self._lines, *(f"[{note}]" for note in notes)])


class _Search:
    def __init__(self, find: Finder, glob: str | None, prefix: str) -> None:
        self._find = find
        self._glob = glob
        self._prefix = prefix
        self._lines: list[str] = []
        self._large = 0

    def look(self, entry: _Entry, walk: _Walk) -> bool:
        """Search one file; whether more matches are wanted."""
        if not stat.S_ISREG(entry.status.st_mode):
            return True
        if self._glob is not None and not matches(entry.path or entry.name, self._glob):
            return True
        path = shown(f"{self._prefix}{entry.path}" if entry.path else self._prefix.rstrip("/"), LONGEST_PATH_BYTES)
        try:
            descriptor, status = open_file(entry.directory, entry.name, walk.sealed)
        except (OSError, PathRefused):
            walk.cut = f"{path} could not be opened"
            return True
        with os.fdopen(descriptor, "rb") as file:
            if b"\0" in file.read(_SNIFFED_BYTES):
                return True
            file.seek(0)
            self._large += status.st_size > SEARCHED_BYTES
            for number, line in enumerate(_lines(file), 1):
                if number % _LINES_A_CHECK == 0 and not walk.goes_on():
                    return False
                if (found := self._find(line)) is not None:
                    if len(self._lines) == MOST_MATCHES:
                        walk.cut = f"the first {MOST_MATCHES} matches, there are more; search a folder, or with a glob"
                        return False
                    self._lines.append(f"{path}:{number}: {found}")
        return True

    def text(self, query: str, cut: str) -> str:
        notes = [cut] if cut else []
        if self._large:
            size = SEARCHED_BYTES // 1024 // 1024
            notes.append(
                f"of {self._large} large file{'s' * (self._large > 1)} only the first {size} MiB were searched"
            )
        return "\n".join([*(self._lines or [f"no match for {shown(query)}"]), *(f"[{note}]" for note in notes)])


def finder(query: str, *, ignore_case: bool) -> Finder:
    """What finds ``query`` in a line, and says what of the line to show.

    Raises:
        ToolFailed: the query is no text of one line.
    """
    if "\n" in query or "\r" in query:
        raise ToolFailed("query has a line break; search for a text of one line")
    try:
        needle = query.encode()
    except UnicodeEncodeError as exc:
        raise ToolFailed(f"query holds half a character (a lone surrogate) at {exc.start}") from exc
    if not ignore_case:

        def find_exactly(line: bytes) -> str | None:
            if needle not in line:
                return None
            text = line.decode("utf-8", "replace")
            return _around(text, text.find(query))

        return find_exactly
    folded_query = query.casefold()

    def find(line: bytes) -> str | None:
        # Not with a regular expression: one that ignores case looks for "aaa…b" in "aaa…" for half a minute, and the
        # whole gateway stands still for as long.
        text = line.decode("utf-8", "replace")
        folded = text.casefold()
        at = folded.find(folded_query)
        if at < 0:
            return None
        if len(folded) != len(text):  # "ß" became "ss"
            at = bisect_right(range(len(text)), at, key=lambda end: len(text[:end].casefold())) - 1
        return _around(text, at)

    return find


def matches(path: str, glob: str) -> bool:
    """Whether a path is like ``glob``: its name alone, or all of it if ``glob`` has a ``/``.

    ``*``, ``?`` and ``[…]`` stay within one name, ``**`` stands for any number of folders. Case counts.
    """
    if "/" not in glob:
        return fnmatchcase(path.rpartition("/")[2], glob)
    patterns = glob.strip("/").split("/")
    at = _reached({0}, patterns)
    for name in path.split("/"):
        at = _reached(
            {
                position if patterns[position] == "**" else position + 1
                for position in at
                if position < len(patterns) and (patterns[position] == "**" or fnmatchcase(name, patterns[position]))
            },
            patterns,
        )
    return len(patterns) in at


def _reached(positions: set[int], patterns: Sequence[str]) -> set[int]:
    """``positions`` and those behind a ``**`` that stands for nothing."""
    reached = set(positions)
    for position in range(len(patterns)):
        if position in reached and patterns[position] == "**":
            reached.add(position + 1)
    return reached


def _lines(file: BinaryIO) -> Iterator[bytes]:
    left = SEARCHED_BYTES
    while left and (line := file.readline(left)):
        left -= len(line)
        yield line.rstrip(b"\r\n")


def _around(line: str, at: int) -> str:
    """A line, or what is around the place ``at`` of a long one."""
    if len(line) <= LINE_CHARS:
        return line
    start = max(0, min(at - LINE_CHARS // 4, len(line) - LINE_CHARS))
    end = start + LINE_CHARS
    return f"{'…' * (start > 0)}{line[start:end]}{'…' * (end < len(line))}"


def _described(path: str, status: os.stat_result) -> str:
    name = shown(path, LONGEST_PATH_BYTES)
    try:
        changed = f"{datetime.fromtimestamp(status.st_mtime, UTC):%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):
        changed = "?"
    if stat.S_ISDIR(status.st_mode):
        return f"{name}/ (folder, {changed})"
    if stat.S_ISREG(status.st_mode):
        return f"{name} (file, {status.st_size} bytes, {changed})"
    return f"{name} ({'link' if stat.S_ISLNK(status.st_mode) else 'device, socket or pipe'}, {changed})"
