"""What a terminal would have shown of what a command wrote, as plain text: for models, and wherever text is kept.

Escape sequences are those of ECMA-48 and xterm's ctlseqs. Nothing is moved between lines: of the sequences that move
the cursor those within a line are followed, since progress bars are made of them, and the others are left out.
"""

import re
from typing import Final

FARTHEST: Final = 200
"""Columns that one sequence moves the cursor at most, so that a few bytes never become much text."""

# A byte that is no UTF-8 is read as U+DC80 to U+DCFF (surrogateescape), among them the controls of 8 bits
_C1: Final = r"\x80-\x9f\udc80-\udc9f"
# Whatever begins or ends another sequence ends the search, so it takes as long as the text is, however often it fails
_STRING: Final = rf"[^\x07\x18\x1a\x1b{_C1}]*+(?:\x07|\x1b\\|[\x9c\udc9c])"
_ESCAPE: Final = re.compile(
    rf"""
      (?:\x1b\[|[\x9b\udc9b]) (?P<parameters>[0-?]*+) (?P<between>[\ -/]*+) (?P<final>[@-~]?)  # CSI
    | \x1b[\]PX^_] (?:{_STRING} | [^\x07\x18\x1a\x1b\n{_C1}]*+)  # OSC, DCS, SOS, PM, APC; or to the end of its line
    | [\x90\x98\x9d-\x9f\udc90\udc98\udc9d-\udc9f] {_STRING}     # the same in 8 bits, which may be letters
    | \x1b[NO][\ -~]?                                            # single shifts, with what is shifted
    | \x1b[\ -/]++[0-~]?                                         # character sets and the like
    | \x1b[0-~]?                                                 # all others
    | [\x00-\x07\x0b\x0c\x0e-\x1f\x7f{_C1}]                      # controls
    """,
    re.VERBOSE,
)
_UNUSUAL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_BROKEN: Final = re.compile(r"[\ud800-\udfff]")
_HALF: Final = re.compile(r"[\udcc2-\udcf4][\udc80-\udcbf]{1,3}")
"""The beginning of a UTF-8 character without its end: its bytes are no controls."""
_LINE_END: Final = re.compile(r"(?<!\r)\r++\n")
# Three controls of our own for edits of a line; those that were in the text are gone by then
_ERASE_REST, _ERASE_LINE, _FORWARD = "\x01", "\x02", "\x03"
_EDITS: Final = re.compile("([\r\b\x01\x02\x03])")


def plain_text(data: bytes | str) -> str:
    """``data`` without escape sequences and control characters; tabs and line breaks stay.

    Of a line that was written over (carriage returns, backspaces, moves and erasures within it) the last state is
    left, without spaces at its end. Bytes are UTF-8, and what is none becomes U+FFFD. Takes linear time.
    """
    text = data if isinstance(data, str) else data.decode("utf-8", "surrogateescape")
    if not _UNUSUAL.search(text):
        return text
    text = _ESCAPE.sub(_edit, _HALF.sub("�", text))
    text = _BROKEN.sub("�", text)
    text = _LINE_END.sub("\n", text)
    if not _EDITS.search(text):
        return text
    return "\n".join(_edited(line) if _EDITS.search(line) else line for line in text.split("\n"))


def _edit(found: re.Match[str]) -> str:
    """What is to be done within the line for an escape sequence: mostly nothing."""
    final = found["final"]
    if not final or final not in "KGCD`" or found["between"]:
        return ""
    parameters = found["parameters"]
    if parameters and not (parameters.isascii() and parameters.isdigit()):
        return ""
    number = int(parameters[:4] or 0)
    if final == "K":
        return {0: _ERASE_REST, 2: _ERASE_LINE}.get(number, "")
    moves = min(max(number, 1), FARTHEST)
    if final == "C":
        return _FORWARD * moves
    if final == "D":
        return "\b" * moves
    return "\r" + _FORWARD * (moves - 1)


def _edited(line: str) -> str:
    cells: list[str] = []
    at = 0
    for piece in _EDITS.split(line):
        match piece:
            case "\r":
                at = 0
            case "\b":
                at = max(at - 1, 0)
            case "\x01":
                del cells[at:]
            case "\x02":
                cells.clear()
                at = 0
            case "\x03":
                if at == len(cells):
                    cells.append(" ")
                at += 1
            case _:
                cells[at : at + len(piece)] = piece
                at += len(piece)
    return "".join(cells).rstrip(" ")
