"""
Reads a command line of bash into its parts, and refuses what it cannot read to the end.

This is a reader of its own because the decision rests on it, and because anybody's text comes here: it takes time in
proportion to the text, it loses nothing of a line, and where it does not know what bash would do it says so.
tree-sitter-bash is made for editors: it goes on after a fault and leaves out the words it cannot place (``3<>f; rm x``
is one word to it), needs 255 MB for ``a|`` four thousand times, and some texts end the process that asks it. The tests
ask it for a second opinion.

The grammar is that of the bash manual, sections 3.1 to 3.7.
"""

from __future__ import annotations

import re

from skynet_terminal.policy.grammar import (
    Calculation,
    Document,
    Elements,
    Function,
    Group,
    Loop,
    Part,
    Phrase,
    Pipeline,
    Process,
    Redirection,
    Script,
    Simple,
    Stage,
    Substitution,
    Text,
    Unreadable,
    Variable,
)

MOST_DEPTH = 24
"""Of commands in commands: what people write has three or four."""


_LONGEST_CALCULATION = 2000


_META = frozenset(" \t\n;&|<>()")


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^\]=]*\])?\+?=")


_REDIRECT = re.compile(r"(\d+|\{[A-Za-z_][A-Za-z0-9_]*\})?(&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||>|<)")


_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|\d+|[@*#?$!-]")


_DEFAULT = re.compile(r":?[-=+?]")


_PLAIN = re.compile(r"[^ \t\n;&|<>()$`'\"\\]+")


_IN_QUOTES = re.compile(r'[^"$`\\]+')


_IN_BODY = re.compile(r"[^$`\\]+")


_CLOSING = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}", "]]", "in"})


_SIMPLE_ESCAPES = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip


_HEXADECIMAL = {letter: re.compile(rf"[0-9a-fA-F]{{1,{most}}}") for letter, most in (("x", 2), ("u", 4), ("U", 8))}


def read(text: str) -> Script:
    """
    Raises:
        Unreadable: it cannot be read to the end.
    """
    return _Reader(text, 0, [8 * len(text) + 4000]).whole()


class _Reader:
    def __init__(self, text: str, depth: int, budget: list[int]) -> None:
        self._text = text
        self._at = 0
        self._depth = depth
        self._budget = budget  # shared with the readers of what is inside
        self._waiting: list[tuple[Document, str, bool, bool]] = []  # with the word that ends it, quoted, tabs go

    def whole(self) -> Script:
        script = self._script()
        if self._at < len(self._text):
            raise Unreadable(f"{self._text[self._at]!r} stands where a command was expected")
        return script

    def body(self) -> Phrase:
        """All of it as what a here document holds."""
        return tuple(self._quoted(""))

    # --- lists and pipelines

    def _script(self, *, closing: str = "") -> Script:
        """Up to the end, a closing word or ``closing`` (a character that is left standing)."""
        found: list[Pipeline] = []
        while True:
            self._newlines()
            if self._ended(closing):
                return tuple(found)
            found += self._and_or()
            self._blank()
            if self._peek() == ";" and self._peek(2) not in (";;", ";&"):
                self._at += 1
            elif not found[-1].background and self._peek() != "\n" and not self._ended(closing):
                raise Unreadable(f"{self._peek()!r} is not expected here")

    def _ended(self, closing: str) -> bool:
        char = self._peek()
        return not char or char == ")" or (closing != "" and char == closing) or self._closing_word()

    def _closing_word(self) -> bool:
        if self._peek(2) in (";;", ";&"):
            return True
        match = _PLAIN.match(self._text, self._at)
        return match is not None and match[0] in _CLOSING - {"in", "]]"}

    def _and_or(self) -> list[Pipeline]:
        found = [self._pipeline(conditional=False)]
        while True:
            self._blank()
            two = self._peek(2)
            if two in ("&&", "||"):
                self._at += 2
                self._newlines()
                found.append(self._pipeline(conditional=True))
            elif two[:1] == "&" and two != "&>":
                self._at += 1
                return [Pipeline(each.stages, True, each.conditional) for each in found]
            else:
                return found

    def _pipeline(self, *, conditional: bool) -> Pipeline:
        stages: list[Stage] = []
        while True:
            self._blank()
            alone = False
            while (word := self._reserved()) in ("!", "time"):
                alone = not stages
                self._at += len(word)
                self._blank()
                if word == "time" and self._text.startswith("-p", self._at) and self._peek(3)[2:] in ("", *_META):
                    self._at += 2
                    self._blank()
            if word == "" and alone and self._peek() in ("", ";", "\n", "&", ")"):
                return Pipeline((), False, conditional)  # "time" and "!" alone
            stages.append(self._stage())
            self._blank()
            if self._peek() != "|" or self._peek(2) == "||":
                break
            self._at += 2 if self._peek(2) == "|&" else 1
            self._newlines()
        return Pipeline(tuple(stages), False, conditional)

    # --- commands

    def _stage(self) -> Stage:
        self._deeper()
        stage = self._stage_inside()
        self._depth -= 1
        return stage

    def _stage_inside(self) -> Stage:
        self._spend()
        word = self._reserved()
        if self._peek() == "(":
            start = self._at + 2
            if self._peek(2) == "((" and (parts := self._arithmetic(start)) is not None:
                also = self._commands_too(self._text[start : self._at - 2])
                return Group("calculation", also, (parts,), self._redirections())
            self._at += 1
            return Group("subshell", (self._inner(")"),), (), self._redirections())
        match word:
            case "{":
                self._at += 1
                return Group("group", (self._until("}"),), (), self._redirections())
            case "if":
                return self._if()
            case "while" | "until":
                self._at += 5
                condition, body = self._until("do"), self._until("done")
                return Group(word, (condition, body), (), self._redirections())
            case "for" | "select":
                return self._for()
            case "case":
                return self._case()
            case "function":
                self._at += 8
                self._blank()
                name = self._plain_word()
                self._blank()
                if self._peek() == "(":
                    self._parentheses()
                self._newlines()
                return self._function(name)
            case "[[":
                return self._test()
            case "coproc":
                return self._coproc()
            case _ if word in _CLOSING - {"in", "]]"}:
                raise Unreadable(f"{word!r} stands alone")
        return self._simple()

    def _commands_too(self, text: str) -> tuple[Script, ...]:
        """What other shells than bash find in two parentheses."""
        try:
            return (_Reader(text, self._depth, self._budget).whole(),)
        except Unreadable as fault:
            if fault.too_much:
                raise
            return ()

    def _if(self) -> Group:
        bodies: list[Script] = []
        self._at += 2
        while True:
            bodies += [self._until("then"), self._script()]
            word = self._reserved()
            if word == "elif":
                self._at += 4
                continue
            if word == "else":
                self._at += 4
                bodies.append(self._script())
            self._expect("fi")
            return Group("if", tuple(bodies), (), self._redirections())

    def _for(self) -> Stage:
        self._at += 3 if self._reserved() == "for" else 6
        self._blank()
        if self._peek(2) == "((":
            parts = self._arithmetic(self._at + 2)
            if parts is None:
                raise Unreadable("the numbers of 'for ((' do not end")
            self._blank()
            if self._peek() == ";":
                self._at += 1
            self._newlines()
            body = self._do_group()
            return Group("for", (body,), (parts,), self._redirections())
        name = self._plain_word()
        words: tuple[Phrase, ...] | None = None
        self._newlines()
        if self._reserved() == "in":
            self._at += 2
            words = self._words()
        self._blank()
        if self._peek() == ";":
            self._at += 1
        self._newlines()
        return Loop(name, words, self._do_group(), self._redirections())

    def _do_group(self) -> Script:
        if self._reserved() == "{":
            self._at += 1
            return self._until("}")
        self._expect("do")
        return self._until("done")

    def _case(self) -> Group:
        self._at += 4
        self._blank()
        words = [self._word()]
        bodies: list[Script] = []
        self._newlines()
        self._expect("in")
        while True:
            self._newlines()
            if self._reserved() == "esac":
                break
            if self._peek() == "(":
                self._at += 1
            while True:
                self._blank()
                words.append(self._word(pattern=True))
                self._blank()
                char = self._peek()
                self._at += 1
                if char == ")":
                    break
                if char != "|":
                    raise Unreadable("a pattern of 'case' does not end")
            bodies.append(self._script())
            if self._text.startswith(";;&", self._at):
                self._at += 3
            elif self._peek(2) in (";;", ";&"):
                self._at += 2
            elif self._reserved() != "esac":
                raise Unreadable("'case' does not end")
        self._expect("esac")
        return Group("case", tuple(bodies), tuple(words), self._redirections())

    def _test(self) -> Group:
        self._at += 2
        words: list[Phrase] = []
        while True:
            self._newlines()
            char = self._peek()
            if not char:
                raise Unreadable("'[[' does not end")
            if char in "()<>&|;" and self._peek(2) not in ("<(", ">("):
                self._at += 1
                continue
            if self._reserved() == "]]":
                self._at += 2
                return Group("test", (), tuple(words), self._redirections())
            words.append(self._word())

    def _coproc(self) -> Stage:
        self._at += 6
        self._blank()
        start = self._at
        match = _NAME.match(self._text, self._at)
        if match and self._reserved() == "":
            self._at = match.end()
            self._blank()
            if self._reserved() not in ("{", "if", "while", "until", "for", "case") and self._peek() != "(":
                self._at = start
        return Group("subshell", ((Pipeline((self._stage(),), True),),))

    def _function(self, name: str) -> Function:
        return Function(name, (Pipeline((self._stage(),)),))

    def _simple(self) -> Stage:
        assignments: list[tuple[str, Phrase]] = []
        words: list[Phrase] = []
        redirections: list[Redirection] = []
        while True:
            self._blank()
            self._spend()
            if (redirection := self._redirection()) is not None:
                redirections.append(redirection)
                continue
            char = self._peek()
            if char == "(" and len(words) == 1 and not assignments and not redirections:
                self._parentheses()
                self._newlines()
                return self._function("".join(part.value for part in words[0] if isinstance(part, Text)))
            if not char or (char in _META and self._peek(2) not in ("<(", ">(")):
                break
            if not words and (match := _ASSIGNMENT.match(self._text, self._at)) is not None:
                subscript = self._inside(match[1]) if match[1] else ()
                self._at = match.end()
                name = match[0].replace(match[1] or "", "", 1)
                assignments.append((name, (*self._value(), *subscript)))
                continue
            word = self._word(value=True)
            if word:
                words.append(word)
        if not words and not assignments and not redirections:
            raise Unreadable(f"{self._peek()!r} stands where a command was expected")
        return Simple(tuple(assignments), tuple(words), tuple(redirections))

    def _value(self) -> Phrase:
        if self._peek() == "(":
            return (self._elements(),)
        if not self._peek() or self._peek() in _META:
            return ()
        return self._word()

    def _elements(self) -> Elements:
        self._at += 1
        words: list[Phrase] = []
        while True:
            self._newlines()
            if self._peek() == ")":
                self._at += 1
                return Elements(tuple(words))
            if not self._peek() or (self._peek() in _META and self._peek(2) not in ("<(", ">(")):
                raise Unreadable("a list in parentheses does not end")
            words.append(self._word())

    # --- redirections

    def _redirections(self) -> tuple[Redirection, ...]:
        found: list[Redirection] = []
        while True:
            self._blank()
            if (redirection := self._redirection()) is None:
                return tuple(found)
            found.append(redirection)

    def _redirection(self) -> Redirection | None:
        match = _REDIRECT.match(self._text, self._at)
        if match is None or (match[2] in ("<", ">") and self._text.startswith("(", match.end())):
            return None
        self._at = match.end()
        operator, descriptor = match[2], match[1] or ""
        if operator in ("<<", "<<-"):
            return self._document(operator, descriptor)
        self._blank()
        if not self._peek() or (self._peek() in _META and self._peek(2) not in ("<(", ">(")):
            raise Unreadable(f"{operator!r} has no file")
        return Redirection(operator, self._word(), descriptor)

    def _document(self, operator: str, descriptor: str) -> Redirection:
        self._blank()
        start = self._at
        word = self._word()
        if any(not isinstance(part, Text) for part in word):
            raise Unreadable("the end of a here document is not a plain word")
        source = self._text[start : self._at]
        end = "".join(part.value for part in word if isinstance(part, Text))
        body = Document([])
        self._waiting.append((body, end, any(char in source for char in "'\"\\"), operator == "<<-"))
        return Redirection("<<", (body,), descriptor)

    def _read_documents(self) -> None:
        """At the start of a line: the bodies of the here documents that were announced on the one before."""
        for document, end, quoted, tabs in self._waiting:
            lines: list[str] = []
            while self._at < len(self._text):
                stop = self._text.find("\n", self._at)
                stop = len(self._text) if stop < 0 else stop
                line = self._text[self._at : stop]
                self._at = min(stop + 1, len(self._text))
                if tabs:
                    line = line.lstrip("\t")
                if line == end:
                    break
                lines.append(line)
            text = "".join(f"{line}\n" for line in lines)
            body = (Text(text, True),) if quoted else _Reader(text, self._depth, self._budget).body()
            document.parts.extend(body)
        self._waiting.clear()

    # --- words

    def _words(self) -> tuple[Phrase, ...]:
        found: list[Phrase] = []
        while True:
            self._blank()
            if not self._peek() or (self._peek() in _META and self._peek(2) not in ("<(", ">(")):
                return tuple(found)
            found.append(self._word())

    def _plain_word(self) -> str:
        match = _PLAIN.match(self._text, self._at)
        if match is None:
            raise Unreadable("a name was expected")
        self._at = match.end()
        return match[0]

    def _word(self, *, pattern: bool = False, value: bool = False) -> Phrase:
        """One word; ``pattern`` for those of ``case``, ``value`` if ``x=(...)`` may be in it."""
        parts: list[Part] = []
        while True:
            self._spend()
            char = self._peek()
            if match := _PLAIN.match(self._text, self._at):
                self._at = match.end()
                parts.append(Text(match[0], False))
            elif char == "\\":
                following = self._text[self._at + 1 : self._at + 2]
                self._at += 2
                if following != "\n":
                    parts.append(Text(following, True))
            elif char == "'":
                stop = self._text.find("'", self._at + 1)
                if stop < 0:
                    raise Unreadable("a ' has no end")
                parts.append(Text(self._text[self._at + 1 : stop], True))
                self._at = stop + 1
            elif char == '"':
                self._at += 1
                parts.append(Text("", True))
                parts += self._quoted('"')
            elif char == "$":
                parts += self._dollar(quoted=False)
            elif char == "`":
                parts.append(self._backquoted(quoted=False))
            elif self._peek(2) in ("<(", ">("):
                output = char == ">"
                self._at += 2
                parts.append(Process(self._inner(")"), output))
            elif char == "(" and parts and isinstance(parts[-1], Text) and not parts[-1].quoted:
                last = parts[-1].value
                if pattern and last[-1:] in "?*+@!":
                    parts.append(Text(self._balanced(), False))
                elif value and last.endswith("=") and _ASSIGNMENT.fullmatch(last):
                    parts.append(self._elements())
                else:
                    break
            else:
                break
        return tuple(parts)

    def _balanced(self) -> str:
        """An extended pattern's ``(a|b)``."""
        start, depth = self._at, 0
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in "$`'\"\\\n":
                break
            depth += (char == "(") - (char == ")")
            self._at += 1
            if depth == 0:
                return self._text[start : self._at]
        raise Unreadable("a pattern in parentheses does not end")

    def _quoted(self, end: str) -> list[Part]:
        """What stands in double quotes, up to and with the closing one; with "" up to the end of the text."""
        parts: list[Part] = []
        plain = _IN_QUOTES if end else _IN_BODY
        while True:
            self._spend()
            if match := plain.match(self._text, self._at):
                self._at = match.end()
                parts.append(Text(match[0], True))
            char = self._peek()
            if not char:
                if end:
                    raise Unreadable(f"a {end} has no end")
                return parts
            if char == end:
                self._at += 1
                return parts
            if char == "\\":
                following = self._text[self._at + 1 : self._at + 2]
                self._at += 2
                if following != "\n":
                    parts.append(Text(following if following in '$`"\\' else "\\" + following, True))
            elif char == "$":
                parts += self._dollar(quoted=True)
            elif char == "`":
                parts.append(self._backquoted(quoted=True))

    def _backquoted(self, *, quoted: bool) -> Substitution:
        self._at += 1
        inner: list[str] = []
        while True:
            char = self._peek()
            if not char:
                raise Unreadable("a ` has no end")
            self._at += 1
            if char == "`":
                break
            if char == "\\" and self._peek() and self._peek() in ("$`\\" + ('"' if quoted else "")):
                char = self._peek()
                self._at += 1
            inner.append(char)
        return Substitution(_Reader("".join(inner), self._depth, self._budget).whole(), quoted)

    def _dollar(self, *, quoted: bool) -> list[Part]:
        self._spend()
        following = self._text[self._at + 1 : self._at + 2]
        if following == "(":
            if self._text.startswith("$((", self._at):
                parts = self._arithmetic(self._at + 3)
                if parts is not None:
                    return [Calculation(parts, quoted)]
            self._at += 2
            return [Substitution(self._inner(")"), quoted)]
        if following == "{":
            self._at += 2
            return [self._parameter(quoted=quoted)]
        if following == "[":
            self._at += 2
            return [Calculation(tuple(self._up_to("]")), quoted)]
        if following == "'" and not quoted:
            self._at += 2
            return [Text(self._ansi(), True)]
        if following == '"' and not quoted:
            self._at += 2
            return [Text("", True), *self._quoted('"')]
        match = _PARAMETER.match(self._text, self._at + 1)
        if match is None:
            self._at += 1
            return [Text("$", True)]
        # $10 is ${1}0
        name = match[0][:1] if match[0].isdecimal() else match[0]
        self._at += 1 + len(name)
        return [Variable(name, quoted)]

    def _parameter(self, *, quoted: bool) -> Part:
        """After ``${``."""
        char = self._peek()
        if char in (" ", "\t", "\n", "|"):  # ${ command; }
            self._at += 1
            return Substitution(self._until("}"), quoted)
        start = self._at
        indirect = char in "!#" and self._peek(2) not in ("!}", "#}", "#-", "#:", "#%", "##")
        if indirect:
            self._at += 1
        match = _PARAMETER.match(self._text, self._at)
        if match is None:
            raise Unreadable(f"'${{{self._text[start : start + 10]}' is not a parameter")
        self._at = match.end()
        argument: list[Part] = []
        operator = "other" if indirect else ""
        if self._peek() == "[":
            self._at += 1
            subscript = self._up_to("]")
            operator = "other"
            argument += subscript
        if self._peek() != "}":
            default = _DEFAULT.match(self._text, self._at)
            if default is not None:
                self._at = default.end()
                operator = operator or default[0]
            elif self._peek() == ":":
                self._at += 1
                operator = operator or ":"
            else:
                operator = "other"
            argument += self._up_to("}", quoted=quoted)
        else:
            self._at += 1
        return Variable(match[0], quoted, operator, tuple(argument))

    def _up_to(self, end: str, *, quoted: bool = False) -> list[Part]:
        """Parts up to and with ``end``, which may be nested with its opening bracket."""
        opening = {"]": "[", "}": "{"}[end]
        parts: list[Part] = []
        depth = 0
        self._deeper()
        while True:
            self._spend()
            char = self._peek()
            if not char:
                raise Unreadable(f"a {end} is missing")
            if char == end and depth == 0:
                self._at += 1
                self._depth -= 1
                return parts
            if char == "$":
                parts += self._dollar(quoted=quoted)
            elif char == "`":
                parts.append(self._backquoted(quoted=quoted))
            elif char == "\\":
                parts.append(Text(self._text[self._at + 1 : self._at + 2], True))
                self._at += 2
            elif char == "'" and not quoted:
                stop = self._text.find("'", self._at + 1)
                if stop < 0:
                    raise Unreadable("a ' has no end")
                parts.append(Text(self._text[self._at + 1 : stop], True))
                self._at = stop + 1
            elif char == '"':
                self._at += 1
                parts += self._quoted('"')
            else:
                # in ${...} bash counts no brackets that are not part of an expansion
                depth += ((char == opening) - (char == end)) if end == "]" else 0
                parts.append(Text(char, quoted))
                self._at += 1

    def _arithmetic(self, start: int) -> Phrase | None:
        """From behind ``((`` to behind ``))``; None, and nothing read, if it is a command in two parentheses."""
        before = self._at, list(self._waiting), self._depth
        self._at = start
        parts: list[Part] = []
        depth = 0
        try:
            self._deeper()
            while True:
                self._spend()
                char = self._peek()
                if not char or self._at - start > _LONGEST_CALCULATION:
                    break
                if char == ")" and depth == 0:
                    if self._peek(2) != "))":
                        break
                    self._at += 2
                    self._depth = before[2]
                    return tuple(parts)
                if char == "$":
                    parts += self._dollar(quoted=True)
                elif char == "`":
                    parts.append(self._backquoted(quoted=True))
                elif char == '"':
                    self._at += 1
                    parts += self._quoted('"')
                elif char == "'":
                    break
                else:
                    depth += (char == "(") - (char == ")")
                    parts.append(Text(char, True))
                    self._at += 2 if char == "\\" else 1
        except Unreadable as fault:
            if fault.too_much:
                raise
        self._at, self._waiting, self._depth = before
        return None

    def _ansi(self) -> str:
        """After ``$'``, to behind the closing quote."""
        found: list[str] = []
        while True:
            char = self._peek()
            if not char:
                raise Unreadable("a ' has no end")
            self._at += 1
            if char == "'":
                return "".join(found)
            if char != "\\":
                found.append(char)
                continue
            char = self._peek()
            self._at += 1
            if char in _SIMPLE_ESCAPES:
                found.append(_SIMPLE_ESCAPES[char])
            elif match := re.compile(r"[0-7]{1,3}").match(self._text, self._at - 1):
                self._at = match.end()
                found.append(chr(int(match[0], 8) & 0xFF))
            elif char in ("x", "u", "U") and (match := _HEXADECIMAL[char].match(self._text, self._at)):
                self._at = match.end()
                number = int(match[0], 16)
                found.append(chr(number) if number < 0x110000 else "\ufffd")
            elif char == "c":
                found.append(chr(ord(self._peek() or "@") & 0x1F))
                self._at += 1
            else:
                found.append("\\" + char)

    def _inside(self, text: str) -> Phrase:
        """Of a subscript: what it runs."""
        return tuple(part for part in _Reader(text, self._depth, self._budget).body() if not isinstance(part, Text))

    # --- characters

    def _inner(self, closing: str) -> Script:
        script = self._script(closing=closing)
        if self._peek() != closing:
            raise Unreadable(f"a {closing} is missing")
        self._at += 1
        return script

    def _until(self, word: str) -> Script:
        script = self._script()
        self._expect(word)
        return script

    def _expect(self, word: str) -> None:
        if self._reserved() != word:
            raise Unreadable(f"{word!r} is missing")
        self._at += len(word)

    def _parentheses(self) -> None:
        self._at += 1
        self._blank()
        if self._peek() != ")":
            raise Unreadable("'(' stands where it cannot")
        self._at += 1

    def _reserved(self) -> str:
        """The word here if it is one of the grammar's, "" otherwise. Nothing is read."""
        match = _PLAIN.match(self._text, self._at)
        if match is None or self._text[match.end() : match.end() + 1] in ("$", "`", "'", '"', "\\"):
            return ""
        return match[0] if match[0] in _RESERVED else ""

    def _peek(self, count: int = 1) -> str:
        return self._text[self._at : self._at + count]

    def _blank(self) -> None:
        text = self._text
        while self._at < len(text):
            char = text[self._at]
            if char in " \t":
                self._at += 1
            elif char == "\\" and text.startswith("\\\n", self._at):
                self._at += 2
            elif char == "#":
                stop = text.find("\n", self._at)
                self._at = len(text) if stop < 0 else stop
            else:
                return

    def _newlines(self) -> None:
        while True:
            self._blank()
            if self._peek() != "\n":
                return
            self._at += 1
            if self._waiting:
                self._read_documents()

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise Unreadable(f"commands within commands are more than {MOST_DEPTH} deep", too_much=True)

    def _spend(self) -> None:
        self._budget[0] -= 1
        if self._budget[0] < 0:
            raise Unreadable("it is too entangled", too_much=True)


_RESERVED = _CLOSING | {"!", "time", "{", "if", "while", "until", "for", "select", "case", "function", "[[", "coproc"}
