"""What commands print, where that is known without running anything."""

from __future__ import annotations

import base64
import binascii
import re

from skynet_terminal.policy.commands import Command, Options
from skynet_terminal.policy.words import UNKNOWN


def output_of(commands: tuple[Command, ...]) -> str | None:
    """Of a pipeline of echo, printf, cat of a here document, and decoders."""
    text: str | None = None
    for command in commands:
        if len(commands) > 1 and any(
            redirect.operator in (">", ">>", "&>", "&>>", ">|") for redirect in command.redirects
        ):
            return None
        if any(UNKNOWN in word.text or word.glob for word in command.words):
            return None
        before = command.stdin.text
        arguments = command.texts[1:]
        match command.program:
            case "echo":
                text = _echoed(arguments)
            case "printf":
                text = printed(arguments)
            case "cat" | "tee" if not arguments or arguments == ["-"] or command.program == "tee":
                text = before
            case "base64" | "gbase64" if before is not None and Options(command.arguments, "w").has("dD", "decode"):
                try:
                    text = base64.b64decode("".join(before.split()) + "==").decode("utf-8", "replace")
                except (binascii.Error, ValueError):
                    return None
            case "xxd" if before is not None and "r" in "".join(arguments):
                try:
                    text = bytes.fromhex(re.sub(r"[^0-9a-fA-F]", "", before)).decode("utf-8", "replace")
                except ValueError:
                    return None
            case "rev" if before is not None and not arguments:
                text = "\n".join(line[::-1] for line in before.split("\n"))
            case "pwd":
                text = command.cwd
            case "which" | "command" | "type" if arguments:
                text = arguments[-1]
            case "true" | ":":
                text = ""
            case _:
                return None
        if text is None:
            return None
    return text.replace("\0", "") if text is not None else None


def _echoed(arguments: list[str]) -> str:
    escapes = newline = False
    at = 0
    while at < len(arguments) and re.fullmatch(r"-[neE]+", arguments[at]):
        escapes = escapes or "e" in arguments[at]
        newline = newline or "n" in arguments[at]
        at += 1
    text = " ".join(arguments[at:])
    return (_escaped(text) if escapes else text) + ("" if newline else "\n")


def printed(arguments: list[str]) -> str | None:
    if arguments[:1] == ["--"]:
        arguments = arguments[1:]
    if not arguments:
        return None
    form, values = _escaped(arguments[0]), arguments[1:]
    places = re.findall(r"%[-0-9.]*[a-zA-Z]", form.replace("%%", ""))
    if not places:
        return form.replace("%%", "%")
    if any(place not in ("%s", "%b", "%q", "%c") for place in places):
        return None
    found: list[str] = []
    waiting = values or [""]
    for _ in range(200):
        if not waiting:
            break

        def value(match: re.Match[str]) -> str:
            nonlocal waiting
            if match[0] == "%%":
                return "%"
            first, waiting = (waiting[0] if waiting else ""), waiting[1:]
            return _escaped(first) if match[0] == "%b" else first[:1] if match[0] == "%c" else first

        found.append(re.sub(r"%%|%[sbqc]", value, form))
    return "".join(found)


def _escaped(text: str) -> str:
    if "\\" not in text:
        return text

    def character(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        if match[2]:
            return chr(int(match[2], 8) & 0xFF)
        return {"n": "\n", "t": "\t", "\\": "\\", "e": "\x1b", "r": "\r", "a": "\a", "b": "\b"}.get(match[3], match[0])

    return re.sub(r"\\(?:x([0-9a-fA-F]{1,2})|0?([0-7]{1,3})|(.))", character, text, flags=re.DOTALL)
