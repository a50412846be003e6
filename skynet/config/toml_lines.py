"""On which line each key of a TOML text stands; tomllib does not tell, and an error message must."""

from __future__ import annotations

import re
from bisect import bisect_right

_SPACE = re.compile(r"[ \t]*")
_BLANK = re.compile(r"(?:[ \t\n]+|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BASIC = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LITERAL = re.compile(r"'[^'\n]*'")
_LONG_BASIC = re.compile(r'"""(?:[^\\]|\\.)*?"""(?!")', re.DOTALL)
_LONG_LITERAL = re.compile(r"'''.*?'''(?!')", re.DOTALL)
_OTHER = re.compile(r"[^,\]}\n#]+")


def toml_lines(text: str) -> dict[tuple[str | int, ...], int]:
    """The line, from 1, of every key, table and array element; a path is made of keys and array indexes.

    ``text`` must be valid: something that tomllib has read. Of a table opened several times the first line counts.
    """
    return _Locator(text.replace("\r\n", "\n")).locate()


class _Locator:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._ends = [match.start() for match in re.finditer("\n", text)]
        self._lines: dict[tuple[str | int, ...], int] = {}
        self._elements: dict[tuple[str | int, ...], int] = {}  # arrays of tables: how many so far

    def locate(self) -> dict[tuple[str | int, ...], int]:
        table: tuple[str | int, ...] = ()
        while self._skip(_BLANK) < len(self._text):
            if self._text.startswith("[[", self._at):
                table = self._header(2)
                index = self._elements.get(table, -1) + 1
                self._elements[table] = index
                table = (*table, index)
                self._mark(table)
            elif self._text[self._at] == "[":
                table = self._header(1)
            else:
                self._pair(table)
        return self._lines

    def _header(self, brackets: int) -> tuple[str | int, ...]:
        self._at += brackets
        path = self._key((), through_arrays=True)
        self._skip(_SPACE)
        self._at += brackets
        return path

    def _pair(self, table: tuple[str | int, ...]) -> None:
        path = self._key(table)
        self._at += 1  # the equals sign
        self._skip(_SPACE)
        self._value(path)

    def _key(self, start: tuple[str | int, ...], *, through_arrays: bool = False) -> tuple[str | int, ...]:
        path = start
        while True:
            if through_arrays and path in self._elements:
                path = (*path, self._elements[path])
            self._skip(_SPACE)
            line_at = self._at
            path = (*path, self._key_part())
            self._mark(path, line_at)
            self._skip(_SPACE)
            if self._text[self._at : self._at + 1] != ".":
                return path
            self._at += 1

    def _key_part(self) -> str:
        if self._text[self._at] == "'":
            return self._take(_LITERAL)[1:-1]
        if self._text[self._at] == '"':
            import tomllib  # quoted keys are rare; tomllib knows every escape

            (key,) = tomllib.loads(f"{self._take(_BASIC)} = 0")
            return key
        return self._take(_BARE_KEY)

    def _value(self, path: tuple[str | int, ...]) -> None:
        rest = self._text[self._at : self._at + 3]
        if rest == '"""':
            self._take(_LONG_BASIC)
        elif rest == "'''":
            self._take(_LONG_LITERAL)
        elif rest[0] == '"':
            self._take(_BASIC)
        elif rest[0] == "'":
            self._take(_LITERAL)
        elif rest[0] == "[":
            self._array(path)
        elif rest[0] == "{":
            self._inline_table(path)
        else:
            self._take(_OTHER)

    def _array(self, path: tuple[str | int, ...]) -> None:
        self._at += 1
        index = 0
        while True:
            self._skip(_BLANK)
            if self._text[self._at] == "]":
                self._at += 1
                return
            element = (*path, index)
            self._mark(element)
            self._value(element)
            index += 1
            self._skip(_BLANK)
            if self._text[self._at] == ",":
                self._at += 1

    def _inline_table(self, path: tuple[str | int, ...]) -> None:
        self._at += 1
        while True:
            self._skip(_BLANK)
            if self._text[self._at] == "}":
                self._at += 1
                return
            self._pair(path)
            self._skip(_BLANK)
            if self._text[self._at] == ",":
                self._at += 1

    def _mark(self, path: tuple[str | int, ...], at: int | None = None) -> None:
        self._lines.setdefault(path, bisect_right(self._ends, self._at if at is None else at) + 1)

    def _skip(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        return self._at

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        assert match is not None, f"no {pattern.pattern} at {self._at}"
        self._at = match.end()
        return match.group()
