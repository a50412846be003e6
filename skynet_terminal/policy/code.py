"""Code in other languages that stands in a command line: the dangerous calls in it that can be known by sight."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from skynet_terminal.policy.words import Word

LONGEST = 20_000
"""Of the code that is looked at; more is not looked at."""


@dataclass(frozen=True, slots=True)
class Call:
    """A program that the code starts, or what stands for the function that it calls."""

    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """A command line that the code gives to a shell."""

    text: str


@dataclass(frozen=True, slots=True)
class Sign:
    """Of the rule ``rule``: ``what`` is in the code."""

    rule: str
    what: str


_LITERAL = re.compile(r"\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|`((?:[^`\\]|\\.)*)`")
_JOINED = re.compile(r"(['\"])[ \t]*[+.][ \t]*\1|(['\"]) \2")
_LIST = re.compile(r"[\[(]\s*((?:\"[^\"\n]*\"|'[^'\n]*')(?:\s*,\s*(?:\"[^\"\n]*\"|'[^'\n]*'))+)")
_RUNS = re.compile(
    r"\b(?:system|popen[234]?|spawn\w*|exec\w*|subprocess|child_process|passthru|shell_exec|proc_open|pcntl_exec|getoutput"
    r"|getstatusoutput|run|call|check_call|check_output|Popen|qx|do shell script|pipeline|shell-command)\b"
    r"|`|\|\s*getline|\|\s*\"|!"
)
_DELETES = re.compile(
    r"\b(?:rmtree|rm_rf|rm_r|rm_f|remove_tree|rimraf|rmSync|rmdirSync|unlinkSync|unlink|rmdir|removedirs|remove_dir_all"
    r"|remove|deltree|FileUtils|rm)\b"
)
_WRITES = re.compile(
    r"""\b(?:open|fopen|writeFile\w*|write_text|write_bytes|file_put_contents|File\.write|truncate)\b"""
)
_FORK = re.compile(r"\b(?:fork|Popen|spawn|multiprocessing)\b")
_LOOP = re.compile(r"\b(?:while|until|for|loop|forever)\b")
_SOCKET = re.compile(r"\b(?:socket|fsockopen|TCPSocket|IO::Socket|net\.connect|net\.Socket|inet/tcp)\b|/inet/tcp")
_SHELL = re.compile(r"\b(?:dup2|pty\.spawn|subprocess|exec|system|spawn|STDIN|getline|popen)\b|/bin/(?:ba|da|z)?sh")
_ENVIRONMENT = re.compile(
    r"\bos\.environb?(?!\w)(?!\s*(?:\[|\.get|\.pop|\.setdefault|\.update))|\bprocess\.env(?!\w)(?!\s*[.\[?])"
    r"|%ENV\b|\bENV\.(?:to_h|each|inspect|map)|\b(?:puts|p|print)\s+ENV\b(?!\[)|\bgetenv\(\s*\)|\bENVIRON\b(?!\[\")"
    r"|(?<!import )(?<![.\w])environ\b(?=\s*[),]|\.items|\.copy)"
    r"|\$_ENV\b(?!\[)|\$_SERVER\b(?!\[)"
)
_NAMES_ALONE = re.compile(r"\b(?:sorted|list|set|len|bool)\(\s*os\.environ(?:\.keys\(\))?\s*\)")
_ONE_NAME = re.compile(r"(['\"])\w+\1\s+(?:not\s+)?in\s+os\.environ(?:\.keys\(\))?(?![\w.])")
_EACH = re.compile(r"\b(?:for|map|lambda|while)\b")
_HIDDEN = re.compile(
    r"\b(?:b64decode|b32decode|decode64|decode_base64|fromhex|unhexlify|atob|base64_decode|unpack|decompress|marshal"
    r"|rot13)\b|Buffer\.from|MIME::Base64"
)
_EVALUATES = re.compile(r"\b(?:exec|eval|compile|__import__|system|popen|loads|spawn|instance_eval|Function)\b")
_FETCHES = re.compile(
    r"\b(?:urlopen|urllib|requests|httpx|fetch|open-uri|Net::HTTP|https|LWP|https?\.get|file_get_contents|curl)\b"
)
_EXFILTRATES = re.compile(
    r"\b(?:requests\.(?:post|put)|httpx\.(?:post|put)|smtplib|ftplib|sendall|sendfile|send_bytes)\b"
    r"|\burlopen\([^)]*\bdata\s*=|\bRequest\([^)]*\bdata\s*="
    r"|\brequest\(\s*['\"](?:POST|PUT)|\bmethod\s*:\s*['\"](?:POST|PUT)"
)
_OPENS = re.compile(r"\b(?:open|readFile\w*|read_text|read_bytes|file_get_contents|slurp|File\.read|IO\.read)\b")
_PYTHON_EXECUTES = re.compile(r"\b(?:exec|eval)\s*\(")


def look(code: str) -> Iterator[Call | Text | Sign]:
    """What in ``code`` is like a command; nothing for what cannot be known by sight."""
    code = code[:LONGEST]
    plain = _JOINED.sub("", code)
    literals = [
        next((group for group in match.groups() if group is not None), "") for match in _LITERAL.finditer(plain)
    ]
    literals = [_unescaped(literal) for literal in literals if literal][:100]
    if _FORK.search(code) and _LOOP.search(code) and re.search(r"\bfork\b", code):
        yield Sign("destructive.fork-bomb", "it forks in a loop")
    if _SOCKET.search(code) and _SHELL.search(code):
        yield Sign("reverse-shell.code", "it connects a socket with a shell")
    named = code if _EACH.search(code) else _NAMES_ALONE.sub("", code)
    if (match := _ENVIRONMENT.search(_ONE_NAME.sub("", named))) is not None:
        yield Sign("environment.code", f"it reads the whole environment ({match[0]})")
    if _EVALUATES.search(code) and _HIDDEN.search(code):
        yield Sign("pipe-to-shell.decoded", "it runs what it has decoded")
    if _PYTHON_EXECUTES.search(code) and _FETCHES.search(code):
        yield Sign("pipe-to-shell.download", "it runs what it has fetched")
    if _EXFILTRATES.search(code) and _OPENS.search(code):
        yield Sign("exfiltration.upload", "it sends a file")
    if _RUNS.search(code):
        for match in _LIST.finditer(plain):
            words = [
                _unescaped(next(filter(None, item), "")) for item in re.findall(r"\"([^\"\n]*)\"|'([^'\n]*)'", match[1])
            ]
            yield Call(tuple(Word(word) for word in words))
        for literal in literals:
            yield Text(literal)
        for match in re.finditer(r"(?:qx|%x)[{(\[/|]([^})\]/|]*)", code):
            yield Text(match[1])
    if _DELETES.search(code):
        for literal in literals:
            yield Call((Word("rm"), Word("-rf"), Word(literal)))
        if re.search(r"expanduser|Path\.home|homedir|\bHOME\b", code) and re.search(
            r"rmtree|rm_rf|rmSync|rm_r\b", code
        ):
            yield Call((Word("rm"), Word("-rf"), Word("/files")))
    for literal in literals:
        if "/" in literal or "." in literal:
            # opened, one way or another: the paths decide
            yield Call((Word("cat"), Word(literal)))
    if _WRITES.search(code):
        for literal in literals:
            # perl writes the mode before the name
            name = literal.lstrip("+<>| ")
            if name.startswith(("/", "~", "..")):
                yield Call((Word("tee"), Word(name)))


def _unescaped(literal: str) -> str:
    if "\\" not in literal:
        return literal
    return re.sub(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|([0-7]{1,3})|(.))", _character, literal, flags=re.DOTALL)


def _character(match: re.Match[str]) -> str:
    hexadecimal = match[1] or match[2]
    if hexadecimal:
        return chr(int(hexadecimal, 16)).replace("\0", " ")
    if match[3]:
        return chr(int(match[3], 8) & 0xFF).replace("\0", " ")
    return {"n": "\n", "t": "\t"}.get(match[4], match[4])
