"""What a command line of bash is made of, after the bash manual, sections 3.1 to 3.7."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class Unreadable(Exception):  # noqa: N818 - it says what the text is
    """The line is not bash, or not bash that is understood here; ``too_much`` if it is beyond a limit."""

    def __init__(self, what: str, *, too_much: bool = False) -> None:
        super().__init__(what)
        self.too_much = too_much


class Text(NamedTuple):
    value: str
    quoted: bool


class Variable(NamedTuple):
    """``${name operator argument}``; the operator is "" for the plain value and "?" for what is not followed here."""

    name: str
    quoted: bool
    operator: str = ""
    argument: tuple[Part, ...] = ()


class Substitution(NamedTuple):
    script: Script
    quoted: bool


class Process(NamedTuple):
    """``<(...)`` and ``>(...)``."""

    script: Script
    output: bool


class Calculation(NamedTuple):
    """``$((...))``: a number that is not worked out, and what is in it."""

    parts: tuple[Part, ...]
    quoted: bool


class Elements(NamedTuple):
    """The ``(a b)`` of ``x=(a b)``."""

    words: tuple[Phrase, ...]


class Document(NamedTuple):
    """The body of a here document, which is filled in when it is read: it comes after its command."""

    parts: list[Part]


Part: TypeAlias = Text | Variable | Substitution | Process | Calculation | Elements | Document


Phrase: TypeAlias = tuple[Part, ...]
"""A word as it stands, before it is expanded."""


class Redirection(NamedTuple):
    operator: str
    target: Phrase
    """The file; the body of a here document or here string."""
    descriptor: str = ""


@dataclass(frozen=True, slots=True)
class Simple:
    assignments: tuple[tuple[str, Phrase], ...]
    """``name=`` or ``name+=``, and the value."""
    words: tuple[Phrase, ...]
    redirections: tuple[Redirection, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """``{ }``, ``( )``, ``if``, ``while``, ``until``, ``case``, ``[[ ]]``, ``(( ))``: what is run or looked at."""

    kind: str
    bodies: tuple[Script, ...]
    words: tuple[Phrase, ...] = ()
    redirections: tuple[Redirection, ...] = ()


@dataclass(frozen=True, slots=True)
class Loop:
    """``for`` and ``select``; ``words`` is None where the arguments are meant."""

    name: str
    words: tuple[Phrase, ...] | None
    body: Script
    redirections: tuple[Redirection, ...] = ()


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    body: Script


Stage: TypeAlias = Simple | Group | Loop | Function


@dataclass(frozen=True, slots=True)
class Pipeline:
    stages: tuple[Stage, ...]
    background: bool = False
    conditional: bool = False
    """After ``&&`` or ``||``: it may not run."""


Script: TypeAlias = tuple[Pipeline, ...]
