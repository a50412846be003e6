"""Characters that make a line another than it looks."""

from __future__ import annotations

import unicodedata

_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_INVISIBLE = frozenset(
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff\u3164\uffa0"
)


def seen_in_line(text: str) -> tuple[str, str] | None:
    """The rule and the part, for the whole line as it was given."""
    if text.isascii() and text.isprintable():
        return None
    for char in text:
        if char == "\0":
            return "text.control", "a NUL character"
        if "\ud800" <= char <= "\udfff":
            return "text.control", "half a character"
        if char in "\n\t":
            continue
        if char < " " or "\x7f" <= char <= "\x9f":
            return "text.escape", f"the control character U+{ord(char):04X}"
    for char in text:
        if char in _DIRECTIONS:
            return "text.direction", f"the character U+{ord(char):04X}, which turns the direction of writing,"
    return None


def seen_in_program(name: str) -> tuple[str, str] | None:
    """The rule and the part, for the word that is the program."""
    if name.isascii():
        return None
    for char in name:
        if (
            char in _INVISIBLE
            or unicodedata.category(char) in ("Cf", "Zs", "Zl", "Zp")
            or 0xE0000 <= ord(char) <= 0xE0FFF
        ):
            return "text.invisible", f"the character U+{ord(char):04X} in the program's name"
    for char in name:
        if char.isalpha() and ord(char) > 127:
            label = unicodedata.name(char, f"U+{ord(char):04X}")
            if not label.startswith("LATIN") or "FULLWIDTH" in label or unicodedata.normalize("NFKC", char) != char:
                mixed = any(other.isascii() and other.isalpha() for other in name)
                if mixed or _imitates(name):
                    return "text.lookalike", f"{label} (U+{ord(char):04X}) in the program's name {name!r}"
    return "text.foreign-program", f"the name {name!r}"


_TWINS = str.maketrans("аеорсухіјѕԁԛԝһӏмтнвкαορνιτκυѵгпиш", "aeopcyxijsdqwhlmthbkaopvitkuvrnuw")


def _imitates(name: str) -> bool:
    """All of it in another alphabet, or in the wide forms, and still a plain word to the eye."""
    plain = unicodedata.normalize("NFKC", name).translate(_TWINS)
    return plain.isascii()
