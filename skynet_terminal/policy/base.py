"""What the policy says of a command."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias

Decision: TypeAlias = Literal["allow", "ask", "deny"]


class Level(StrEnum):
    """How much somebody's commands are trusted."""

    STRICT = "strict"
    """Children and strangers: only what is known to be harmless."""
    STANDARD = "standard"
    """The role user."""
    TRUSTED = "trusted"
    """Admins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """
    ``rule`` is the id of the rule that decided (``destructive.remove-everything``), "" if none had to.
    ``reason`` says in one sentence what is refused or asked and why, for the person and the model.
    ``commands`` are the simple commands that were found, as far as their words are known without running anything: what
    an approval for always is stored as. Empty if the line cannot be told apart into such. Of a line that is asked about
    they are those that have to be asked about.
    ``whole`` are all of them, if the line is nothing but them: no variables, redirections, functions, and no word that
    is not known. What has to be approved where nothing runs that was not.
    """

    decision: Decision
    rule: str = ""
    reason: str = ""
    commands: tuple[tuple[str, ...], ...] = ()
    whole: tuple[tuple[str, ...], ...] = ()
