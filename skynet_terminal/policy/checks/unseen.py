"""What is run without anybody having seen it: downloads, decoded texts, what is not known."""

from __future__ import annotations

import re

from skynet_terminal.policy.commands import DECODED, DOWNLOAD, Command, Options, path_of
from skynet_terminal.policy.words import UNKNOWN
from skynet_terminal.policy.wrappers.parts import SHELLS

_FETCHERS = frozenset(
    [
        "curl",
        "wget",
        "aria2c",
        "fetch",
        "http",
        "https",
        "xh",
        "axel",
        "lwp-download",
        "lwp-request",
        "nc",
        "ncat",
        "netcat",
        "socat",
        "telnet",
        "ssh",
        "scp",
        "sftp",
        "ftp",
        "lynx",
        "w3m",
        "links",
        "elinks",
        "dig",
        "nslookup",
        "host",
        "openssl",
        "gh",
        "glab",
        "aws",
        "gsutil",
        "rclone",
        "ipfs",
        "youtube-dl",
        "yt-dlp",
        "smbclient",
        "invoke-webrequest",
        "iwr",
    ]
)


_DECODERS = frozenset(
    [
        "base64",
        "base32",
        "basenc",
        "gbase64",
        "xxd",
        "openssl",
        "uudecode",
        "uuencode",
        "gunzip",
        "zcat",
        "gzip",
        "bzip2",
        "bzcat",
        "xz",
        "xzcat",
        "zstd",
        "zstdcat",
        "rev",
        "tr",
        "gpg",
        "hexdump",
        "od",
        "iconv",
        "recode",
        "b2sum",
        "qprint",
        "ascii85",
        "dc",
        "lz4",
        "brotli",
        "7z",
        "unzip",
    ]
)


_READ_CODE = SHELLS | frozenset(
    [
        "python",
        "python2",
        "python3",
        "perl",
        "ruby",
        "node",
        "nodejs",
        "php",
        "lua",
        "luajit",
        "deno",
        "bun",
        "rscript",
        "julia",
        "osascript",
        "irb",
        "tclsh",
        "wish",
        "guile",
    ]
)


_RUN_FILES = _READ_CODE | {"source", ".", "eval"}


def _reads_code(command: Command) -> bool:
    """It runs what it reads."""
    program = command.program
    texts = command.texts[1:]
    if program in ("source", "."):
        return texts[:1] in (["/dev/stdin"], ["/dev/fd/0"], ["/proc/self/fd/0"])
    if program in ("at", "batch", "crontab"):
        return program == "batch" or (program == "crontab" and "-" in texts)
    if program not in _READ_CODE and not re.fullmatch(r"python[23]\.\d+", program):
        return False
    at = 0
    while at < len(texts):
        text = texts[at]
        if text in ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"):
            return True
        if not text.startswith(("-", "+")):
            return False
        if program in SHELLS:
            if not text.startswith("--") and "c" in text:
                return False
            if not text.startswith("--") and "s" in text:
                return True
            at += 1 if text in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file") else 0
        else:
            if text in ("--version", "-V", "--help", "-h", "-v"):
                return False
            if re.match(r"-[A-Za-z]*[cemrpni]", text) or text.startswith(("--eval", "--print")):
                return False
            at += 1 if text in ("-W", "-X", "-I", "-r") else 0
        at += 1
    return True


def _sources(command: Command) -> list[Command]:
    """What wrote what it runs."""
    if _reads_code(command):
        return command.upstream()
    if command.program in _RUN_FILES or command.program == "":
        if any(word.text.startswith("/dev/fd/1") for word in command.arguments):
            return list(command.inside)
        given = any(re.fullmatch(r"-\w*[ceEr]\w*", text) for text in command.texts[1:])
        if given and command.program in _READ_CODE and any(UNKNOWN in word.text for word in command.arguments):
            return list(command.inside)
        if command.program in SHELLS | {"eval"}:
            texts = command.texts[1:]
            if command.program == "eval" or any(re.fullmatch(r"-\w*c\w*", text) for text in texts):
                return list(command.inside)
    return []


def runs_download(command: Command) -> str | None:
    for source in _sources(command):
        if source.program in _FETCHERS:
            return f"{command.program or 'a command'} running what {source.program} fetches"
        if source.program in _READ_CODE and re.search(r"urlopen|https?://|requests|LWP|fetch\(", str(source)):
            return f"{command.program or 'a command'} running what {source.program} fetches"
    if command.program == "xargs" and any(word.text in SHELLS for word in command.arguments):
        for source in command.upstream():
            if source.program in _FETCHERS:
                return f"xargs running what {source.program} fetches"
    held = _held(command)
    if held == DOWNLOAD:
        return f"{command} after it was downloaded"
    if command.program == "" and any(inner.program in _FETCHERS for inner in command.inside):
        return "running what a download names"
    return None


def _held(command: Command) -> str | None:
    """What the file that is run holds, if the same line wrote it."""
    if not command.words or not command.files:
        return None
    names: list[str] = []
    if "/" in command.texts[0]:
        names.append(command.texts[0])
    if command.program in _RUN_FILES or command.program == "chmod":
        names += [word.text for word in Options(command.arguments).operands]
    elif command.program in ("make", "docker", "pip", "dpkg", "rpm"):
        return None
    if command.program == "chmod" and not any(
        "x" in text or re.fullmatch(r"0?[1357]\d\d|0?7\d\d", text) for text in command.texts
    ):
        return None
    for name in names:
        held = command.files.get(name) or command.files.get(path_of(name, command.cwd))
        if held is not None:
            return held
    return None


def runs_decoded(command: Command) -> str | None:
    if _held(command) == DECODED:
        return f"{command} after it was decoded"
    for source in _sources(command):
        if source.program in _DECODERS or (source.program in ("echo", "printf") and "\\x" in str(source)):
            return f"{command.program or 'a command'} running what {source.program} decodes"
    if command.program == "" and any(inner.program in _DECODERS for inner in command.inside):
        return "running what is decoded"
    return None


def runs_unseen(command: Command) -> str | None:
    if not _reads_code(command) and not (
        command.program in SHELLS and any(word.text.startswith("/dev/fd/1") for word in command.arguments)
    ):
        return None
    if command.stdin.text is not None:
        return None
    if command.upstream() or command.program == "." or command.program == "source":
        return f"{command.program} running what it reads"
    if command.outer is not None and command.outer.program in ("xargs", "parallel"):
        return f"{command.program} running what it is given"
    return None


def runs_unknown_text(command: Command) -> str | None:
    """``eval "$x"``, ``sh -c "$x"``: wholly unknown, or an unknown beginning."""
    if command.program == "eval":
        text = " ".join(word.text for word in command.arguments)
    elif command.program in SHELLS:
        at = next((index for index, text in enumerate(command.texts) if index and re.fullmatch(r"-\w*c\w*", text)), 0)
        text = command.texts[at + 1] if 0 < at < len(command.texts) - 1 else ""
    elif command.program in _READ_CODE:
        found = re.search(r"(?:^| )-[a-zA-Z]*[ceEr] \0", " ".join(command.texts[:4]))
        return f"{command.program} of a text that is not known" if found else None
    elif command.program in ("awk", "gawk", "mawk", "nawk"):
        found = re.search(r"system\(\s*[^\"\s)]|\|\s*getline|\|\s*\"(?:ba|da|z)?sh\"", " ".join(command.texts[1:]))
        return f"{command.program} of a text that is not known" if found else None
    else:
        return None
    return f"{command.program} of a text that is not known" if UNKNOWN in text else None


def unknown_program(command: Command) -> str | None:
    if not command.words or command.program:
        return None
    return f"a program whose name is not known ({command.words[0]})"
