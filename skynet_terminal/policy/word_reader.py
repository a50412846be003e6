"""Reads the words of a command line, with all that can stand in them."""

from __future__ import annotations

import re
from typing import Protocol

from skynet_terminal.policy.cursor import META, PLAIN, Cursor
from skynet_terminal.policy.grammar import (
    Calculation,
    Document,
    Elements,
    Part,
    Phrase,
    Process,
    Redirection,
    Script,
    Substitution,
    Text,
    Unreadable,
    Variable,
)

_LONGEST_CALCULATION = 2000
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^\]=]*\])?\+?=")
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|\d+|[@*#?$!-]")
_DEFAULT = re.compile(r":?[-=+?]")
_IN_QUOTES = re.compile(r'[^"$`\\]+')
_IN_BODY = re.compile(r"[^$`\\]+")
_SIMPLE_ESCAPES = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
_HEXADECIMAL = {letter: re.compile(rf"[0-9a-fA-F]{{1,{most}}}") for letter, most in (("x", 2), ("u", 4), ("U", 8))}


class Scripts(Protocol):
    """Reads the commands that stand in words."""

    def inner(self, closing: str) -> Script:
        """Up to and with ``closing``."""

    def until(self, word: str) -> Script:
        """Up to and with the closing word."""

    def apart(self, text: str) -> Script:
        """Of a text of its own."""

    def body(self, text: str) -> Phrase:
        """All of a text of its own as what a here document holds."""


class WordReader:
    def __init__(self, cursor: Cursor, scripts: Scripts) -> None:
        self._cursor = cursor
        self._scripts = scripts
        self._waiting: list[tuple[Document, str, bool, bool]] = []  # with the word that ends it, quoted, tabs go

    def words(self) -> tuple[Phrase, ...]:
        found: list[Phrase] = []
        while True:
            self._cursor.blank()
            if not self._cursor.peek() or (self._cursor.peek() in META and self._cursor.peek(2) not in ("<(", ">(")):
                return tuple(found)
            found.append(self.word())

    def plain_word(self) -> str:
        match = PLAIN.match(self._cursor.text, self._cursor.at)
        if match is None:
            raise Unreadable("a name was expected")
        self._cursor.at = match.end()
        return match[0]

    def word(self, *, pattern: bool = False, value: bool = False) -> Phrase:
        """One word; ``pattern`` for those of ``case``, ``value`` if ``x=(...)`` may be in it."""
        parts: list[Part] = []
        while True:
            self._cursor.spend()
            char = self._cursor.peek()
            if match := PLAIN.match(self._cursor.text, self._cursor.at):
                self._cursor.at = match.end()
                parts.append(Text(match[0], False))
            elif char == "\\":
                following = self._cursor.text[self._cursor.at + 1 : self._cursor.at + 2]
                self._cursor.at += 2
                if following != "\n":
                    parts.append(Text(following, True))
            elif char == "'":
                stop = self._cursor.text.find("'", self._cursor.at + 1)
                if stop < 0:
                    raise Unreadable("a ' has no end")
                parts.append(Text(self._cursor.text[self._cursor.at + 1 : stop], True))
                self._cursor.at = stop + 1
            elif char == '"':
                self._cursor.at += 1
                parts.append(Text("", True))
                parts += self.quoted('"')
            elif char == "$":
                parts += self._dollar(quoted=False)
            elif char == "`":
                parts.append(self._backquoted(quoted=False))
            elif self._cursor.peek(2) in ("<(", ">("):
                output = char == ">"
                self._cursor.at += 2
                parts.append(Process(self._scripts.inner(")"), output))
            elif char == "(" and parts and isinstance(parts[-1], Text) and not parts[-1].quoted:
                last = parts[-1].value
                if pattern and last[-1:] in "?*+@!":
                    parts.append(Text(self._balanced(), False))
                elif value and last.endswith("=") and ASSIGNMENT.fullmatch(last):
                    parts.append(self._elements())
                else:
                    break
            else:
                break
        return tuple(parts)

    def value(self) -> Phrase:
        if self._cursor.peek() == "(":
            return (self._elements(),)
        if not self._cursor.peek() or self._cursor.peek() in META:
            return ()
        return self.word()

    def _elements(self) -> Elements:
        self._cursor.at += 1
        words: list[Phrase] = []
        while True:
            self.newlines()
            if self._cursor.peek() == ")":
                self._cursor.at += 1
                return Elements(tuple(words))
            if not self._cursor.peek() or (self._cursor.peek() in META and self._cursor.peek(2) not in ("<(", ">(")):
                raise Unreadable("a list in parentheses does not end")
            words.append(self.word())

    def _balanced(self) -> str:
        """An extended pattern's ``(a|b)``."""
        start, depth = self._cursor.at, 0
        while self._cursor.at < len(self._cursor.text):
            char = self._cursor.text[self._cursor.at]
            if char in "$`'\"\\\n":
                break
            depth += (char == "(") - (char == ")")
            self._cursor.at += 1
            if depth == 0:
                return self._cursor.text[start : self._cursor.at]
        raise Unreadable("a pattern in parentheses does not end")

    def inside(self, text: str) -> Phrase:
        """Of a subscript: what it runs."""
        return tuple(part for part in self._scripts.body(text) if not isinstance(part, Text))

    def quoted(self, end: str) -> list[Part]:
        """What stands in double quotes, up to and with the closing one; with "" up to the end of the text."""
        parts: list[Part] = []
        plain = _IN_QUOTES if end else _IN_BODY
        while True:
            self._cursor.spend()
            if match := plain.match(self._cursor.text, self._cursor.at):
                self._cursor.at = match.end()
                parts.append(Text(match[0], True))
            char = self._cursor.peek()
            if not char:
                if end:
                    raise Unreadable(f"a {end} has no end")
                return parts
            if char == end:
                self._cursor.at += 1
                return parts
            if char == "\\":
                following = self._cursor.text[self._cursor.at + 1 : self._cursor.at + 2]
                self._cursor.at += 2
                if following != "\n":
                    parts.append(Text(following if following in '$`"\\' else "\\" + following, True))
            elif char == "$":
                parts += self._dollar(quoted=True)
            elif char == "`":
                parts.append(self._backquoted(quoted=True))

    def _backquoted(self, *, quoted: bool) -> Substitution:
        self._cursor.at += 1
        inner: list[str] = []
        while True:
            char = self._cursor.peek()
            if not char:
                raise Unreadable("a ` has no end")
            self._cursor.at += 1
            if char == "`":
                break
            if char == "\\" and self._cursor.peek() and self._cursor.peek() in ("$`\\" + ('"' if quoted else "")):
                char = self._cursor.peek()
                self._cursor.at += 1
            inner.append(char)
        return Substitution(self._scripts.apart("".join(inner)), quoted)

    def _dollar(self, *, quoted: bool) -> list[Part]:
        self._cursor.spend()
        following = self._cursor.text[self._cursor.at + 1 : self._cursor.at + 2]
        if following == "(":
            if self._cursor.text.startswith("$((", self._cursor.at):
                parts = self.arithmetic(self._cursor.at + 3)
                if parts is not None:
                    return [Calculation(parts, quoted)]
            self._cursor.at += 2
            return [Substitution(self._scripts.inner(")"), quoted)]
        if following == "{":
            self._cursor.at += 2
            return [self._parameter(quoted=quoted)]
        if following == "[":
            self._cursor.at += 2
            return [Calculation(tuple(self._up_to("]")), quoted)]
        if following == "'" and not quoted:
            self._cursor.at += 2
            return [Text(self._ansi(), True)]
        if following == '"' and not quoted:
            self._cursor.at += 2
            return [Text("", True), *self.quoted('"')]
        match = _PARAMETER.match(self._cursor.text, self._cursor.at + 1)
        if match is None:
            self._cursor.at += 1
            return [Text("$", True)]
        # $10 is ${1}0
        name = match[0][:1] if match[0].isdecimal() else match[0]
        self._cursor.at += 1 + len(name)
        return [Variable(name, quoted)]

    def _parameter(self, *, quoted: bool) -> Part:
        """After ``${``."""
        char = self._cursor.peek()
        if char in (" ", "\t", "\n", "|"):  # ${ command; }
            self._cursor.at += 1
            return Substitution(self._scripts.until("}"), quoted)
        start = self._cursor.at
        indirect = char in "!#" and self._cursor.peek(2) not in ("!}", "#}", "#-", "#:", "#%", "##")
        if indirect:
            self._cursor.at += 1
        match = _PARAMETER.match(self._cursor.text, self._cursor.at)
        if match is None:
            raise Unreadable(f"'${{{self._cursor.text[start : start + 10]}' is not a parameter")
        self._cursor.at = match.end()
        argument: list[Part] = []
        operator = "other" if indirect else ""
        if self._cursor.peek() == "[":
            self._cursor.at += 1
            subscript = self._up_to("]")
            operator = "other"
            argument += subscript
        if self._cursor.peek() != "}":
            default = _DEFAULT.match(self._cursor.text, self._cursor.at)
            if default is not None:
                self._cursor.at = default.end()
                operator = operator or default[0]
            elif self._cursor.peek() == ":":
                self._cursor.at += 1
                operator = operator or ":"
            else:
                operator = "other"
            argument += self._up_to("}", quoted=quoted)
        else:
            self._cursor.at += 1
        return Variable(match[0], quoted, operator, tuple(argument))

    def _up_to(self, end: str, *, quoted: bool = False) -> list[Part]:
        """Parts up to and with ``end``, which may be nested with its opening bracket."""
        opening = {"]": "[", "}": "{"}[end]
        parts: list[Part] = []
        depth = 0
        self._cursor.deeper()
        while True:
            self._cursor.spend()
            char = self._cursor.peek()
            if not char:
                raise Unreadable(f"a {end} is missing")
            if char == end and depth == 0:
                self._cursor.at += 1
                self._cursor.depth -= 1
                return parts
            if char == "$":
                parts += self._dollar(quoted=quoted)
            elif char == "`":
                parts.append(self._backquoted(quoted=quoted))
            elif char == "\\":
                parts.append(Text(self._cursor.text[self._cursor.at + 1 : self._cursor.at + 2], True))
                self._cursor.at += 2
            elif char == "'" and not quoted:
                stop = self._cursor.text.find("'", self._cursor.at + 1)
                if stop < 0:
                    raise Unreadable("a ' has no end")
                parts.append(Text(self._cursor.text[self._cursor.at + 1 : stop], True))
                self._cursor.at = stop + 1
            elif char == '"':
                self._cursor.at += 1
                parts += self.quoted('"')
            else:
                # in ${...} bash counts no brackets that are not part of an expansion
                depth += ((char == opening) - (char == end)) if end == "]" else 0
                parts.append(Text(char, quoted))
                self._cursor.at += 1

    def arithmetic(self, start: int) -> Phrase | None:
        """From behind ``((`` to behind ``))``; None, and nothing read, if it is a command in two parentheses."""
        before = self._cursor.at, list(self._waiting), self._cursor.depth
        self._cursor.at = start
        parts: list[Part] = []
        depth = 0
        try:
            self._cursor.deeper()
            while True:
                self._cursor.spend()
                char = self._cursor.peek()
                if not char or self._cursor.at - start > _LONGEST_CALCULATION:
                    break
                if char == ")" and depth == 0:
                    if self._cursor.peek(2) != "))":
                        break
                    self._cursor.at += 2
                    self._cursor.depth = before[2]
                    return tuple(parts)
                if char == "$":
                    parts += self._dollar(quoted=True)
                elif char == "`":
                    parts.append(self._backquoted(quoted=True))
                elif char == '"':
                    self._cursor.at += 1
                    parts += self.quoted('"')
                elif char == "'":
                    break
                else:
                    depth += (char == "(") - (char == ")")
                    parts.append(Text(char, True))
                    self._cursor.at += 2 if char == "\\" else 1
        except Unreadable as fault:
            if fault.too_much:
                raise
        self._cursor.at, self._waiting, self._cursor.depth = before
        return None

    def _ansi(self) -> str:
        """After ``$'``, to behind the closing quote."""
        found: list[str] = []
        while True:
            char = self._cursor.peek()
            if not char:
                raise Unreadable("a ' has no end")
            self._cursor.at += 1
            if char == "'":
                return "".join(found)
            if char != "\\":
                found.append(char)
                continue
            char = self._cursor.peek()
            self._cursor.at += 1
            if char in _SIMPLE_ESCAPES:
                found.append(_SIMPLE_ESCAPES[char])
            elif match := re.compile(r"[0-7]{1,3}").match(self._cursor.text, self._cursor.at - 1):
                self._cursor.at = match.end()
                found.append(chr(int(match[0], 8) & 0xFF))
            elif char in ("x", "u", "U") and (match := _HEXADECIMAL[char].match(self._cursor.text, self._cursor.at)):
                self._cursor.at = match.end()
                number = int(match[0], 16)
                found.append(chr(number) if number < 0x110000 else "\ufffd")
            elif char == "c":
                found.append(chr(ord(self._cursor.peek() or "@") & 0x1F))
                self._cursor.at += 1
            else:
                found.append("\\" + char)

    def document(self, operator: str, descriptor: str) -> Redirection:
        self._cursor.blank()
        start = self._cursor.at
        word = self.word()
        if any(not isinstance(part, Text) for part in word):
            raise Unreadable("the end of a here document is not a plain word")
        source = self._cursor.text[start : self._cursor.at]
        end = "".join(part.value for part in word if isinstance(part, Text))
        body = Document([])
        self._waiting.append((body, end, any(char in source for char in "'\"\\"), operator == "<<-"))
        return Redirection("<<", (body,), descriptor)

    def newlines(self) -> None:
        while True:
            self._cursor.blank()
            if self._cursor.peek() != "\n":
                return
            self._cursor.at += 1
            if self._waiting:
                self._read_documents()

    def _read_documents(self) -> None:
        """At the start of a line: the bodies of the here documents that were announced on the one before."""
        for document, end, quoted, tabs in self._waiting:
            lines: list[str] = []
            while self._cursor.at < len(self._cursor.text):
                stop = self._cursor.text.find("\n", self._cursor.at)
                stop = len(self._cursor.text) if stop < 0 else stop
                line = self._cursor.text[self._cursor.at : stop]
                self._cursor.at = min(stop + 1, len(self._cursor.text))
                if tabs:
                    line = line.lstrip("\t")
                if line == end:
                    break
                lines.append(line)
            text = "".join(f"{line}\n" for line in lines)
            body = (Text(text, True),) if quoted else self._scripts.body(text)
            document.parts.extend(body)
        self._waiting.clear()
