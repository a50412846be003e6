"""What files hold after the commands of a line, as far as that is known without running anything."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

from skynet_terminal.policy.commands import DECODED, DOWNLOAD, PROGRAM, Command, Options, path_of
from skynet_terminal.policy.printed import output_of

_FETCHERS = frozenset({"curl", "wget", "aria2c", "fetch", "http", "https", "xh", "axel", "lwp-download"})


def note_files(command: Command, cwd: str | None, files: dict[str, str]) -> None:
    """Which files hold what afterwards, by path: a text, or :data:`~.commands.DOWNLOAD` and the like."""
    for redirect in command.redirects:
        if redirect.writes and redirect.target.known:
            text = output_of((command,))
            path = path_of(redirect.target.text, cwd)
            fetched = command.program in _FETCHERS or is_fetched(command.upstream())
            if text is None and not fetched and _decodes(command):
                files[path] = DECODED
            elif fetched or text is not None:
                files[path] = (
                    DOWNLOAD if fetched else (files.get(path, "") if redirect.operator == ">>" else "") + (text or "")
                )
    if command.program in _FETCHERS:
        for path in _saved(command):
            files[path_of(path, cwd)] = DOWNLOAD
    elif command.program in ("dd", "gdd"):
        if is_fetched(command.upstream()):
            for word in command.arguments:
                if word.text.startswith("of="):
                    files[path_of(word.text[3:], cwd)] = DOWNLOAD
    elif command.program == "tee":
        text = command.stdin.text
        for word in Options(command.arguments).operands:
            if is_fetched(command.upstream()):
                files[path_of(word.text, cwd)] = DOWNLOAD
            elif text is None and any(map(_decodes, command.upstream())):
                files[path_of(word.text, cwd)] = DECODED
            elif text is not None:
                files[path_of(word.text, cwd)] = text
    elif command.program in ("mv", "cp", "ln", "install"):
        operands = Options(command.arguments).operands
        if len(operands) == 2:
            held = files.get(path_of(operands[0].text, cwd))
            if held is None and operands[0].text.startswith("/"):
                held = PROGRAM + posixpath.basename(operands[0].text)
            if held is not None:
                files[path_of(operands[1].text, cwd)] = held


def is_fetched(commands: Iterable[Command]) -> bool:
    return any(command.program in _FETCHERS for command in commands)


def _decodes(command: Command) -> bool:
    """Its output is hidden in what it reads. What is packed for its size is not counted among such."""
    program, texts = command.program, command.texts[1:]
    if program in ("base64", "base32", "basenc", "gbase64"):
        return Options(command.arguments, "w").has("dD", "decode")
    if program in ("xxd", "openssl"):
        return any(re.match(r"-[a-z]*[rd]", text) for text in texts)
    return program == "uudecode"


def _saved(command: Command) -> list[str]:
    options = Options(
        command.arguments,
        "oOPdHXAebuTFrmUQtUi" if command.program != "curl" else "oHXAdebuTFrmUxEw",
        ("output", "output-document"),
    )
    addresses = [word.text for word in options.operands]
    names = [word.text for word in options.value("output", "output-document", "o")]
    if command.program != "curl":
        names += [word.text for word in options.value("O")]
    if options.has("O", "remote-name") or (command.program != "curl" and not names):
        names += [address.rstrip("/").rpartition("/")[2].partition("?")[0] for address in addresses]
    return [name for name in names if name not in ("-", "", "/dev/null")]
