"""``read_file``, ``write_file`` and ``patch_file``: one file of a person's own folder."""

import asyncio
import base64
import hashlib
import mimetypes
import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from skynet.paths import Identity, Place, identity, shown
from skynet.places import Places
from skynet.threads import Stop, in_thread
from skynet_agent.messages import ImageBlock, Json, TextBlock, UserBlock
from skynet_agent.tools import Tool, ToolContext, ToolFailed

READ_CHARS = 30_000
"""Characters of one result, its note included (SK-090)."""
FILE_BYTES = 8 * 1024 * 1024
"""What of a file can be read, and what can be written."""
IMAGE_BYTES = 3_750_000
"""The largest image shown: in base64 it is the 5 MB that Anthropic takes, the least of all vendors."""
MOST_AT_ONCE = 2
"""Files that one person's calls read or write at one time; the others wait. Threads are shared by all people."""
MOST_SEEN = 10_000
"""Files of all sessions together whose state is remembered."""

_PIECE_BYTES = 1024 * 1024
_NOTE_CHARS = 300
_SNIFFED_BYTES = 8192
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
"""Byte order marks and what they say."""

_PATH: Json = {"type": "string", "minLength": 1, "description": "The file, relative to the person's own folder."}


@dataclass(frozen=True, slots=True)
class State:
    """What a file was when a session last read or wrote it."""

    mtime_ns: int
    size: int
    inode: int
    digest: bytes


_FileKey: TypeAlias = tuple[str, str, Identity, str]


class SeenFiles:
    """What each session saw of which file, so that nobody's change is lost to an edit that does not know it (SK-199).

    Of the newest ``most`` files of all sessions; used from several threads.
    """

    def __init__(self, most: int = MOST_SEEN) -> None:
        self._most = most
        self._states: OrderedDict[_FileKey, State] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, context: ToolContext, place: Place, state: State) -> None:
        with self._lock:
            key = _key(context, place)
            self._states[key] = state
            self._states.move_to_end(key)
            while len(self._states) > self._most:
                self._states.popitem(last=False)

    def get(self, context: ToolContext, place: Place) -> State | None:
        with self._lock:
            return self._states.get(_key(context, place))


class FileTools:
    """The tools, and what they know of the files of each session."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._seen = SeenFiles()
        self._writing: dict[str, threading.Lock] = {}
        self._rooms: dict[str, asyncio.Semaphore] = {}

    def tools(self) -> Sequence[Tool]:
        return (
            Tool(
                name="read_file",
                description=(
                    "Read a text file, or look at an image (PNG, JPEG, GIF, WebP). Gives the text as it is, at most "
                    f"{READ_CHARS} characters; a note in brackets at the end says what is left out and how to go on."
                ),
                parameters=_closed(
                    {
                        "path": _PATH,
                        "offset": {"type": "integer", "minimum": 1, "description": "The first line. Default 1."},
                        "limit": {"type": "integer", "minimum": 1, "description": "Lines to read. Default: all."},
                        "column": {
                            "type": "integer",
                            "minimum": 1,
                            "description": "Where in the first line to begin, for lines that are too long. Default 1.",
                        },
                    },
                    "path",
                ),
                permission="files.read",
                run=self.read,
            ),
            Tool(
                name="write_file",
                description=(
                    "Create a file, with the folders it needs, or replace all of one. A file that is there has to be "
                    "read first. To change a part of a file use patch_file."
                ),
                parameters=_closed(
                    {"path": _PATH, "content": {"type": "string", "description": "The whole text of the file."}},
                    "path",
                    "content",
                ),
                permission="files.write",
                run=self.write,
            ),
            Tool(
                name="patch_file",
                description=(
                    "Replace a passage of a text file. old_text has to be in the file exactly as given, spaces and "
                    "line breaks included, and only once unless replace_all is set."
                ),
                parameters=_closed(
                    {
                        "path": _PATH,
                        "old_text": {
                            "type": "string",
                            "minLength": 1,
                            "description": "The passage, with as much around it as makes it the only one.",
                        },
                        "new_text": {"type": "string", "description": "What stands there afterwards."},
                        "replace_all": {
                            "type": "boolean",
                            "description": "Replace every such passage. Default false.",
                        },
                    },
                    "path",
                    "old_text",
                    "new_text",
                ),
                permission="files.write",
                run=self.patch,
            ),
        )

    async def read(self, context: ToolContext, arguments: Mapping[str, Json]) -> str | Sequence[UserBlock]:
        path = arguments["path"]
        first, column = int(arguments.get("offset", 1)), int(arguments.get("column", 1))
        limit = int(arguments["limit"]) if "limit" in arguments else None

        def work(stop: Stop) -> str | Sequence[UserBlock]:
            with self._places.place(context, path) as place:
                data, state = _read(place, path, stop)
                self._seen.note(context, place, state)
            if (mime_type := image_type(data)) is not None:
                return _image(path, data, state, mime_type)
            text = _decoded(path, data, state)
            return page(text, path, first=first, limit=limit, column=column, is_whole=len(data) == state.size)

        async with self._room(context):
            return await in_thread(work)

    async def write(self, context: ToolContext, arguments: Mapping[str, Json]) -> str:
        path = arguments["path"]
        data = _encoded(arguments["content"], "content")

        def work(stop: Stop) -> str:
            with self._places.writable(context, path, make_parents=True) as place, self._alone(context):
                if (status := place.stat()) is None:
                    before = None
                else:
                    _require_file(status, path)
                    before = self._seen.get(context, place)
                    if before is None:
                        raise ToolFailed(
                            f"{shown(path)} is there already and was not read in this session: read it first, then "
                            "write it, or change a part of it with patch_file"
                        )
                    if _read(place, path, stop)[1] != before:
                        raise _changed(path)
                self._seen.note(context, place, _put(place, path, data, before, stop))
            return f"{shown(path)}: {'created' if before is None else 'replaced'}, {size_in_words(len(data))}"

        async with self._room(context):
            return await in_thread(work)

    async def patch(self, context: ToolContext, arguments: Mapping[str, Json]) -> str:
        path, old, new = arguments["path"], arguments["old_text"], arguments["new_text"]
        replace_all = bool(arguments.get("replace_all", False))
        _encoded(new, "new_text")

        def work(stop: Stop) -> str:
            with self._places.writable(context, path) as place, self._alone(context):
                data, before = _read(place, path, stop)
                # A file that this session never read is patched too: who names a passage exactly knows that much.
                known = self._seen.get(context, place)
                if known not in (None, before):
                    raise _changed(path)
                text = _patchable(path, data, before)
                text, count, line = replaced(text, old, new, path=path, replace_all=replace_all)
                state = _put(place, path, text.encode("utf-8", "surrogateescape"), before, stop)
                if known is not None:
                    self._seen.note(context, place, state)
            return f"{shown(path)}: replaced {count} passage{'s' if count > 1 else ''}, the first in line {line}"

        async with self._room(context):
            return await in_thread(work)

    def _room(self, context: ToolContext) -> asyncio.Semaphore:
        return self._rooms.setdefault(context.user_id, asyncio.Semaphore(MOST_AT_ONCE))

    def _alone(self, context: ToolContext) -> threading.Lock:
        """Calls of one answer run at the same time: of one folder, one of them changes files at a time."""
        return self._writing.setdefault(context.owner, threading.Lock())


def page(text: str, path: str, *, first: int, limit: int | None, column: int, is_whole: bool = True) -> str:
    """Lines of ``text`` as far as ``READ_CHARS`` hold them, and a note of what is left out and how to go on.

    ``is_whole`` is False when the file goes on after ``text``. Line breaks of Windows become plain ones.

    Raises:
        ToolFailed: there is no such line or column.
    """
    if not text.strip():
        return "(nothing but blank lines)" if text else "(the file is empty)"
    text = text.replace("\r\n", "\n").removesuffix("\n")
    total = text.count("\n") + 1
    if first > total:
        raise ToolFailed(f"{shown(path)} has {total} lines; offset {first} is behind its end")
    start = _line_start(text, first)
    width = text.find("\n", start) % (len(text) + 1) - start
    if column > 1 and column > width:
        raise ToolFailed(f"line {first} has {width} characters; column {column} is behind its end")
    start += column - 1

    window = text[start : start + READ_CHARS - _NOTE_CHARS + 1]  # one more than fits: is there one?
    lines = window.split("\n")
    how_to_go_on = ""
    if limit is not None and len(lines) > limit:
        lines, last = lines[:limit], first + limit - 1
    elif start + len(window) == len(text):
        last = total
    elif len(lines) > 1:
        lines, last = lines[:-1], first + len(lines) - 2
    else:
        lines, last = [window[:-1]], first
        end = column + len(window) - 1
        how_to_go_on = f"line {first} is shown up to column {end - 1}; go on with offset {first}, column {end}"
    body = "\n".join(lines)
    if last < total and not how_to_go_on:
        how_to_go_on = f"go on with offset {last + 1}"
    notes = [how_to_go_on] if how_to_go_on else []
    if not is_whole:
        notes.append(f"the file is larger than {size_in_words(FILE_BYTES)}, what is behind that cannot be read")
    if not notes and len(body) == len(text):
        return body
    what = f"lines {first}-{last} of {total}, {len(text) - len(body)} characters left out"
    return f"{body if body.strip() else '(nothing but blank lines)'}\n[{'; '.join([what, *notes])}]"


def replaced(text: str, old: str, new: str, *, path: str, replace_all: bool) -> tuple[str, int, int]:
    """``text`` with ``old`` replaced; how often, and in which line first. Line breaks stay those of the text.

    Raises:
        ToolFailed: ``old`` is not there, or more than once without ``replace_all``, or nothing would change.
    """
    breaks, windows = text.count("\n"), text.count("\r\n")
    is_windows = windows > 0 and windows == breaks
    if is_windows:
        text, old, new = (part.replace("\r\n", "\n") for part in (text, old, new))
    elif windows and old not in text:  # breaks of both kinds, and a model sees only one
        old, new = (part.replace("\r\n", "\n").replace("\n", "\r\n") for part in (old, new))
    if old == new:
        raise ToolFailed("old_text and new_text are the same: nothing was changed")
    first = text.find(old)
    if first < 0:
        raise ToolFailed(
            f"old_text is not in {shown(path)} (0 matches), nothing was changed: it has to be there exactly, spaces "
            "and line breaks included; read the file again"
        )
    count = text.count(old)
    if not replace_all and text.find(old, first + 1) >= 0:
        raise ToolFailed(
            f"old_text is in {shown(path)} {max(count, 2)} times, nothing was changed: give more of what is around the "
            "passage, or set replace_all"
        )
    line = text.count("\n", 0, first) + 1
    _require_room(len(text) + count * (len(new) - len(old)))  # before it is made
    text = text.replace(old, new)
    return text.replace("\n", "\r\n") if is_windows else text, count, line


def image_type(data: bytes) -> str | None:
    """The media type of an image that models can see; None for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((mime_type for magic, mime_type in _IMAGES if data.startswith(magic)), None)


def size_in_words(size: int) -> str:
    if size < 1024:
        return f"{size} bytes"
    return f"{size / 1024:.1f} KiB" if size < 1024 * 1024 else f"{size / 1024 / 1024:.1f} MiB"


def _line_start(text: str, line: int) -> int:
    position = 0
    for _ in range(line - 1):  # a loop, because one long call would keep all other threads waiting
        position = text.find("\n", position) + 1
    return position


def _read(place: Place, path: str, stop: Stop) -> tuple[bytes, State]:
    """What of a file can be read, and what it is."""
    if (found := place.stat()) is not None:
        _require_file(found, path)
    pieces, size, digest = [], 0, hashlib.sha256()
    with place.opened() as (descriptor, status):
        while size < FILE_BYTES and (piece := os.read(descriptor, min(_PIECE_BYTES, FILE_BYTES - size))):
            stop.check()
            pieces.append(piece)
            digest.update(piece)
            size += len(piece)
    return b"".join(pieces), State(status.st_mtime_ns, status.st_size, status.st_ino, digest.digest())


def _put(place: Place, path: str, data: bytes, before: State | None, stop: Stop) -> State:
    """Exchange the file, unless it is another than ``before`` by now; None for one that was not there."""

    def ready() -> None:
        stop.check()
        now = place.stat()
        seen = None if before is None else (before.mtime_ns, before.size, before.inode)
        if seen != (None if now is None else (now.st_mtime_ns, now.st_size, now.st_ino)):
            raise _changed(path)

    _require_room(len(data))
    written = place.replace(data, ready=ready)
    return State(written.st_mtime_ns, written.st_size, written.st_ino, hashlib.sha256(data).digest())


def _image(path: str, data: bytes, state: State, mime_type: str) -> Sequence[UserBlock]:
    words = f"{shown(path)}: {mime_type}, {size_in_words(state.size)}"
    if state.size > IMAGE_BYTES:
        raise ToolFailed(f"{words}: too large to look at, the limit is {size_in_words(IMAGE_BYTES)}")
    return [TextBlock(words), ImageBlock(mime_type, base64.b64encode(data).decode("ascii"))]


def _decoded(path: str, data: bytes, state: State) -> str:
    """
    Raises:
        ToolFailed: it is no text.
    """
    encoding = next((encoding for mark, encoding in _MARKS if data.startswith(mark)), "utf-8")
    if encoding != "utf-16" and b"\0" in data[:_SNIFFED_BYTES]:
        mime_type = mimetypes.guess_type(path)[0] or "of an unknown type"
        raise ToolFailed(f"{shown(path)} is no text: a binary file, {mime_type}, {size_in_words(state.size)}")
    return data.decode(encoding, "replace")


def _require_file(status: os.stat_result, path: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ToolFailed(f"{shown(path)} is a folder: list_files shows what is in it")


def _patchable(path: str, data: bytes, state: State) -> str:
    """The text of a file, of which its very bytes can be made again.

    Raises:
        ToolFailed: it is no text, too large, or no UTF-8.
    """
    _decoded(path, data, state)
    if len(data) < state.size:
        raise ToolFailed(f"{shown(path)} is larger than {size_in_words(FILE_BYTES)} and cannot be patched")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ToolFailed(f"{shown(path)} is UTF-16, only UTF-8 can be patched")
    return data.decode("utf-8", "surrogateescape")


def _encoded(text: str, what: str) -> bytes:
    """
    Raises:
        ToolFailed: it is no text, or too much.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError as exc:
        raise ToolFailed(f"{what} holds half a character (a lone surrogate) at {exc.start}") from exc
    _require_room(len(data))
    return data


def _require_room(size: int) -> None:
    if size > FILE_BYTES:
        raise ToolFailed(f"the file would have {size_in_words(size)}, the limit is {size_in_words(FILE_BYTES)}")


def _changed(path: str) -> ToolFailed:
    return ToolFailed(
        f"{shown(path)} has changed since it was last read in this session, nothing was written: read it again first"
    )


def _key(context: ToolContext, place: Place) -> _FileKey:
    return context.user_id, context.session_key, identity(os.fstat(place.directory)), place.name


def _closed(properties: Mapping[str, Json], *required: str) -> Mapping[str, Json]:
    """The schema of arguments that are these and no others."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
