"""What leaves by the network."""

from __future__ import annotations

import re

from skynet_terminal.policy.commands import Command, Options
from skynet_terminal.policy.words import UNKNOWN, shown
from skynet_terminal.policy.wrappers.parts import SHELLS

_REMOTE = re.compile(r"^(?:[\w.+-]+@)?[\w.-]+:(?!//)(?!\\)|^(?:rsync|scp|sftp|ftp|s3|gs|ssh)://")

_NETWORK = re.compile(r"/dev/(?:tcp|udp)/")


def uploads(command: Command) -> str | None:
    program, texts = command.program, command.texts[1:]
    if program == "curl":
        for index, text in enumerate(texts):
            following = texts[index + 1] if index + 1 < len(texts) else ""
            if text in (
                "--upload-file",
                "--data-binary",
                "--data",
                "--data-urlencode",
                "--form",
                "--json",
                "--data-ascii",
                "--url-query",
            ):
                value = following
            elif text.startswith("--") and "=" in text:
                text, _, value = text.partition("=")
            elif (match := re.match(r"-[a-zA-Z#0]*?([TdF])(.*)", text, re.DOTALL)) and not text.startswith("--"):
                text, value = f"-{match[1]}", match[2] or following
            else:
                continue
            if text in ("-T", "--upload-file"):
                return f"curl {text}"
            if text == "--data-urlencode" and "@" in value.partition("=")[0]:
                return f"curl {text} {shown(value, 40)}"
            if re.search(r"^@|=[@<]|^[^=]*@[/.~-]", value) or (UNKNOWN in value and _reads_files(command)):
                return f"curl {text} {shown(value, 40)}"
        if any(text.startswith(("-K", "--config")) for text in texts) and command.stdin.sources:
            return "curl --config"
    elif program == "wget":
        for text in texts:
            if text.startswith(("--post-file", "--body-file")):
                return "wget " + text.partition("=")[0]
            if text.startswith(("--post-data", "--body-data")) and UNKNOWN in text and _reads_files(command):
                return "wget " + text.partition("=")[0]
    elif program in ("http", "https", "xh"):
        return (
            program
            if any("@" in text and not text.startswith("http") for text in texts) or command.stdin.sources
            else None
        )
    elif program in ("scp", "rsync", "sftp", "rcp", "pscp", "lftp", "ncftpput", "tftp", "ftp"):
        operands = [word.text for word in Options(command.arguments, "eiPoFlcS").operands]
        if program in ("scp", "rsync", "rcp", "pscp") and not any(_REMOTE.match(text) for text in operands[-1:]):
            return None
        return str(command)
    elif program == "openssl" and "s_client" in texts:
        return "openssl s_client"
    return None


def _reads_files(command: Command) -> bool:
    return any(inner.program not in ("echo", "printf", "date", "true", "uuidgen", "") for inner in command.inside)


def fetches_remote(command: Command) -> str | None:
    """scp and rsync from elsewhere."""
    operands = [word.text for word in Options(command.arguments, "eiPoFlcS").operands]
    return str(command) if any(_REMOTE.match(text) for text in operands[:-1]) else None


def tells_by_name(command: Command) -> str | None:
    """What is read goes out in a name that is looked up, or in an address."""
    unknown = [word for word in command.arguments if UNKNOWN in word.text]
    if unknown and _reads_files(command):
        return f"{command.program} with {unknown[0]}"
    if command.outer is not None and command.outer.program in ("xargs", "parallel") and unknown:
        return f"{command.program} with {unknown[0]}"
    return None


def cloud_copy(command: Command) -> str | None:
    texts = command.texts[1:]
    verbs = {
        "cp",
        "mv",
        "sync",
        "copy",
        "put",
        "upload",
        "move",
        "copyto",
        "push",
        "create",
        "rsync",
        "mirror",
        "storage",
    }
    return str(command) if verbs.intersection(texts) else None


def network_device(command: Command) -> str | None:
    for word in [*command.words, *(redirect.target for redirect in command.redirects)]:
        if _NETWORK.search(word.text):
            return str(word)
    return None


def shell_behind_socket(command: Command) -> str | None:
    if command.program in ("nc", "ncat", "netcat", "nc.traditional", "nc.openbsd"):
        options = Options(command.arguments, "pswxXqWiOTIV")
        return str(command) if options.has("ec", "exec", "sh-exec", "lua-exec") else None
    if command.program in SHELLS and any(_NETWORK.search(redirect.target.text) for redirect in command.redirects):
        return f"{command.program} with the network as its ends"
    if command.program == "socat":
        return str(command) if re.search(r"(?i)\b(?:exec|system|shell):", " ".join(command.texts)) else None
    return None
