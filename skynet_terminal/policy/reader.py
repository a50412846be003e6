"""
Reads a command line of bash into its parts, and refuses what it cannot read to the end.

This is a reader of its own because the decision rests on it, and because anybody's text comes here: it takes time in
proportion to the text, it loses nothing of a line, and where it does not know what bash would do it says so.
tree-sitter-bash is made for editors: it goes on after a fault and leaves out the words it cannot place (``3<>f; rm x``
is one word to it), needs 255 MB for 8,000 characters (``a|`` four thousand times) and 12 s for 100,000, and some texts
end the process that asks it. The tests ask it for a second opinion.

The grammar is that of the bash manual, sections 3.1 to 3.7.
"""

from __future__ import annotations

import re

from skynet_terminal.policy.cursor import CLOSING, META, PLAIN, Cursor
from skynet_terminal.policy.grammar import (
    Function,
    Group,
    Loop,
    Phrase,
    Pipeline,
    Redirection,
    Script,
    Simple,
    Stage,
    Text,
    Unreadable,
)
from skynet_terminal.policy.word_reader import ASSIGNMENT, WordReader

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REDIRECT = re.compile(r"(\d+|\{[A-Za-z_][A-Za-z0-9_]*\})?(&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||>|<)")


def read(text: str) -> Script:
    """
    Raises:
        Unreadable: it cannot be read to the end.
    """
    return _Reader(Cursor(text, 0, [8 * len(text) + 4000])).whole()


class _Reader:
    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._words = WordReader(cursor, self)

    def whole(self) -> Script:
        script = self._script()
        if self._cursor.at < len(self._cursor.text):
            raise Unreadable(f"{self._cursor.text[self._cursor.at]!r} stands where a command was expected")
        return script

    # --- lists and pipelines

    def _script(self, *, closing: str = "") -> Script:
        """Up to the end, a closing word or ``closing`` (a character that is left standing)."""
        found: list[Pipeline] = []
        while True:
            self._words.newlines()
            if self._ended(closing):
                return tuple(found)
            found += self._and_or()
            self._cursor.blank()
            if self._cursor.peek() == ";" and self._cursor.peek(2) not in (";;", ";&"):
                self._cursor.at += 1
            elif not found[-1].background and self._cursor.peek() != "\n" and not self._ended(closing):
                raise Unreadable(f"{self._cursor.peek()!r} is not expected here")

    def _ended(self, closing: str) -> bool:
        char = self._cursor.peek()
        return not char or char == ")" or (closing != "" and char == closing) or self._closing_word()

    def _closing_word(self) -> bool:
        if self._cursor.peek(2) in (";;", ";&"):
            return True
        match = PLAIN.match(self._cursor.text, self._cursor.at)
        return match is not None and match[0] in CLOSING - {"in", "]]"}

    def _and_or(self) -> list[Pipeline]:
        found = [self._pipeline(conditional=False)]
        while True:
            self._cursor.blank()
            two = self._cursor.peek(2)
            if two in ("&&", "||"):
                self._cursor.at += 2
                self._words.newlines()
                found.append(self._pipeline(conditional=True))
            elif two[:1] == "&" and two != "&>":
                self._cursor.at += 1
                return [Pipeline(each.stages, True, each.conditional) for each in found]
            else:
                return found

    def _pipeline(self, *, conditional: bool) -> Pipeline:
        stages: list[Stage] = []
        while True:
            self._cursor.blank()
            alone = False
            while (word := self._cursor.reserved()) in ("!", "time"):
                alone = not stages
                self._cursor.at += len(word)
                self._cursor.blank()
                if (
                    word == "time"
                    and self._cursor.text.startswith("-p", self._cursor.at)
                    and self._cursor.peek(3)[2:] in ("", *META)
                ):
                    self._cursor.at += 2
                    self._cursor.blank()
            if word == "" and alone and self._cursor.peek() in ("", ";", "\n", "&", ")"):
                return Pipeline((), False, conditional)  # "time" and "!" alone
            stages.append(self._stage())
            self._cursor.blank()
            if self._cursor.peek() != "|" or self._cursor.peek(2) == "||":
                break
            self._cursor.at += 2 if self._cursor.peek(2) == "|&" else 1
            self._words.newlines()
        return Pipeline(tuple(stages), False, conditional)

    # --- commands

    def _stage(self) -> Stage:
        self._cursor.deeper()
        stage = self._stage_inside()
        self._cursor.depth -= 1
        return stage

    def _stage_inside(self) -> Stage:
        self._cursor.spend()
        word = self._cursor.reserved()
        if self._cursor.peek() == "(":
            start = self._cursor.at + 2
            if self._cursor.peek(2) == "((" and (parts := self._words.arithmetic(start)) is not None:
                also = self._commands_too(self._cursor.text[start : self._cursor.at - 2])
                return Group("calculation", also, (parts,), self._redirections())
            self._cursor.at += 1
            return Group("subshell", (self.inner(")"),), (), self._redirections())
        match word:
            case "{":
                self._cursor.at += 1
                return Group("group", (self.until("}"),), (), self._redirections())
            case "if":
                return self._if()
            case "while" | "until":
                self._cursor.at += 5
                condition, body = self.until("do"), self.until("done")
                return Group(word, (condition, body), (), self._redirections())
            case "for" | "select":
                return self._for()
            case "case":
                return self._case()
            case "function":
                self._cursor.at += 8
                self._cursor.blank()
                name = self._words.plain_word()
                self._cursor.blank()
                if self._cursor.peek() == "(":
                    self._parentheses()
                self._words.newlines()
                return self._function(name)
            case "[[":
                return self._test()
            case "coproc":
                return self._coproc()
            case _ if word in CLOSING - {"in", "]]"}:
                raise Unreadable(f"{word!r} stands alone")
        return self._simple()

    def _commands_too(self, text: str) -> tuple[Script, ...]:
        """What other shells than bash find in two parentheses."""
        try:
            return (self.apart(text),)
        except Unreadable as fault:
            if fault.too_much:
                raise
            return ()

    def _if(self) -> Group:
        bodies: list[Script] = []
        self._cursor.at += 2
        while True:
            bodies += [self.until("then"), self._script()]
            word = self._cursor.reserved()
            if word == "elif":
                self._cursor.at += 4
                continue
            if word == "else":
                self._cursor.at += 4
                bodies.append(self._script())
            self._expect("fi")
            return Group("if", tuple(bodies), (), self._redirections())

    def _for(self) -> Stage:
        self._cursor.at += 3 if self._cursor.reserved() == "for" else 6
        self._cursor.blank()
        if self._cursor.peek(2) == "((":
            parts = self._words.arithmetic(self._cursor.at + 2)
            if parts is None:
                raise Unreadable("the numbers of 'for ((' do not end")
            self._cursor.blank()
            if self._cursor.peek() == ";":
                self._cursor.at += 1
            self._words.newlines()
            body = self._do_group()
            return Group("for", (body,), (parts,), self._redirections())
        name = self._words.plain_word()
        words: tuple[Phrase, ...] | None = None
        self._words.newlines()
        if self._cursor.reserved() == "in":
            self._cursor.at += 2
            words = self._words.words()
        self._cursor.blank()
        if self._cursor.peek() == ";":
            self._cursor.at += 1
        self._words.newlines()
        return Loop(name, words, self._do_group(), self._redirections())

    def _do_group(self) -> Script:
        if self._cursor.reserved() == "{":
            self._cursor.at += 1
            return self.until("}")
        self._expect("do")
        return self.until("done")

    def _case(self) -> Group:
        self._cursor.at += 4
        self._cursor.blank()
        words = [self._words.word()]
        bodies: list[Script] = []
        self._words.newlines()
        self._expect("in")
        while True:
            self._words.newlines()
            if self._cursor.reserved() == "esac":
                break
            if self._cursor.peek() == "(":
                self._cursor.at += 1
            while True:
                self._cursor.blank()
                words.append(self._words.word(pattern=True))
                self._cursor.blank()
                char = self._cursor.peek()
                self._cursor.at += 1
                if char == ")":
                    break
                if char != "|":
                    raise Unreadable("a pattern of 'case' does not end")
            bodies.append(self._script())
            if self._cursor.text.startswith(";;&", self._cursor.at):
                self._cursor.at += 3
            elif self._cursor.peek(2) in (";;", ";&"):
                self._cursor.at += 2
            elif self._cursor.reserved() != "esac":
                raise Unreadable("'case' does not end")
        self._expect("esac")
        return Group("case", tuple(bodies), tuple(words), self._redirections())

    def _test(self) -> Group:
        self._cursor.at += 2
        words: list[Phrase] = []
        while True:
            self._words.newlines()
            char = self._cursor.peek()
            if not char:
                raise Unreadable("'[[' does not end")
            if char in "()<>&|;" and self._cursor.peek(2) not in ("<(", ">("):
                self._cursor.at += 1
                continue
            if self._cursor.reserved() == "]]":
                self._cursor.at += 2
                return Group("test", (), tuple(words), self._redirections())
            words.append(self._words.word())

    def _coproc(self) -> Stage:
        self._cursor.at += 6
        self._cursor.blank()
        start = self._cursor.at
        match = _NAME.match(self._cursor.text, self._cursor.at)
        if match and self._cursor.reserved() == "":
            self._cursor.at = match.end()
            self._cursor.blank()
            if (
                self._cursor.reserved() not in ("{", "if", "while", "until", "for", "case")
                and self._cursor.peek() != "("
            ):
                self._cursor.at = start
        return Group("subshell", ((Pipeline((self._stage(),), True),),))

    def _function(self, name: str) -> Function:
        return Function(name, (Pipeline((self._stage(),)),))

    def _simple(self) -> Stage:
        assignments: list[tuple[str, Phrase]] = []
        words: list[Phrase] = []
        redirections: list[Redirection] = []
        while True:
            self._cursor.blank()
            self._cursor.spend()
            if (redirection := self._redirection()) is not None:
                redirections.append(redirection)
                continue
            char = self._cursor.peek()
            if char == "(" and len(words) == 1 and not assignments and not redirections:
                self._parentheses()
                self._words.newlines()
                return self._function("".join(part.value for part in words[0] if isinstance(part, Text)))
            if not char or (char in META and self._cursor.peek(2) not in ("<(", ">(")):
                break
            if not words and (match := ASSIGNMENT.match(self._cursor.text, self._cursor.at)) is not None:
                subscript = self._words.inside(match[1]) if match[1] else ()
                self._cursor.at = match.end()
                name = match[0].replace(match[1] or "", "", 1)
                assignments.append((name, (*self._words.value(), *subscript)))
                continue
            word = self._words.word(value=True)
            if word:
                words.append(word)
        if not words and not assignments and not redirections:
            raise Unreadable(f"{self._cursor.peek()!r} stands where a command was expected")
        return Simple(tuple(assignments), tuple(words), tuple(redirections))

    # --- redirections

    def _redirections(self) -> tuple[Redirection, ...]:
        found: list[Redirection] = []
        while True:
            self._cursor.blank()
            if (redirection := self._redirection()) is None:
                return tuple(found)
            found.append(redirection)

    def _redirection(self) -> Redirection | None:
        match = _REDIRECT.match(self._cursor.text, self._cursor.at)
        if match is None or (match[2] in ("<", ">") and self._cursor.text.startswith("(", match.end())):
            return None
        self._cursor.at = match.end()
        operator, descriptor = match[2], match[1] or ""
        if operator in ("<<", "<<-"):
            return self._words.document(operator, descriptor)
        self._cursor.blank()
        if not self._cursor.peek() or (self._cursor.peek() in META and self._cursor.peek(2) not in ("<(", ">(")):
            raise Unreadable(f"{operator!r} has no file")
        return Redirection(operator, self._words.word(), descriptor)

    # --- parts of them

    def inner(self, closing: str) -> Script:
        script = self._script(closing=closing)
        if self._cursor.peek() != closing:
            raise Unreadable(f"a {closing} is missing")
        self._cursor.at += 1
        return script

    def until(self, word: str) -> Script:
        script = self._script()
        self._expect(word)
        return script

    def _expect(self, word: str) -> None:
        if self._cursor.reserved() != word:
            raise Unreadable(f"{word!r} is missing")
        self._cursor.at += len(word)

    def _parentheses(self) -> None:
        self._cursor.at += 1
        self._cursor.blank()
        if self._cursor.peek() != ")":
            raise Unreadable("'(' stands where it cannot")
        self._cursor.at += 1

    def apart(self, text: str) -> Script:
        return _Reader(Cursor(text, self._cursor.depth, self._cursor.budget)).whole()

    def body(self, text: str) -> Phrase:
        return tuple(_Reader(Cursor(text, self._cursor.depth, self._cursor.budget))._words.quoted(""))
