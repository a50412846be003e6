"""Which files a command writes, as far as its words say so."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from skynet_terminal.policy.commands import Command, Options
from skynet_terminal.policy.words import Word


def written(command: Command) -> Iterator[Word]:
    for redirect in command.redirects:
        if redirect.writes and not (redirect.operator == ">&" and re.fullmatch(r"\d+-?|-", redirect.target.text)):
            yield redirect.target
    if (writer := _WRITERS.get(command.program)) is not None:
        yield from writer(command)


def _operands(command: Command) -> Iterator[Word]:
    yield from Options(command.arguments, "slmoZ", ("size", "length", "mode")).operands


def _rights(command: Command) -> Iterator[Word]:
    options = Options(command.arguments, "", ("reference",))
    yield from options.operands if options.has("", "reference") else options.operands[1:]


def _copied(command: Command) -> Iterator[Word]:
    valued = ("target-directory", "suffix", "mode", "owner", "group", "rsh")
    options = Options(command.arguments, "tSmoge", valued)
    yield from options.value("t", "target-directory")
    yield from options.operands[-1:]
    if options.operands[1:] and command.program != "ln":
        # into a folder: under its own name
        for source in options.operands[:-1]:
            yield Word(f"{options.operands[-1].text}/{source.text.rstrip('/').rpartition('/')[2]}")


def _converted(command: Command) -> Iterator[Word]:
    for word in command.arguments:
        if word.text.startswith("of="):
            yield Word(word.text[3:], word.glob)


def _edited(command: Command) -> Iterator[Word]:
    is_sed = command.program in ("sed", "gsed")
    options = Options(command.arguments, "efF" if is_sed else "eI", ("expression", "file"))
    if options.has("i", "in-place"):
        scripted = not is_sed or options.has("ef", "expression", "file")
        yield from options.operands if scripted else options.operands[1:]
    if is_sed:
        for text in command.texts:
            for match in re.finditer(r"(?:^|[;}/0-9gp])w\s*(/[^\s;}]+)", text):
                yield Word(match[1])


def _awk(command: Command) -> Iterator[Word]:
    options = Options(command.arguments, "fFvei", ("file", "assign", "field-separator", "source", "include"))
    if any(word.text == "inplace" for word in options.value("i", "include")):
        yield from options.operands[1:]
    for text in command.texts:
        for match in re.finditer(r">\s*\"(/[^\"]+)\"", text):
            yield Word(match[1])


def _curl(command: Command) -> Iterator[Word]:
    yield from Options(command.arguments, "odHXAebuTFrmUxEwKcDP", ("output", "output-dir")).value(
        "o", "output", "output-dir"
    )


def _wget(command: Command) -> Iterator[Word]:
    names = ("output-document", "directory-prefix", "output-file")
    yield from Options(command.arguments, "oOPUteQaiAR", names).value("o", "O", "P", *names)


def _downloader(command: Command) -> Iterator[Word]:
    """aria2c, yt-dlp."""
    options = Options(command.arguments, "odPfjsx", ("out", "dir", "output", "paths"))
    folders = options.value("d", "P", "dir", "paths")
    yield from folders
    for name in options.value("o", "out", "output"):
        yield Word(f"{folders[0].text}/{name.text}") if folders and not name.text.startswith("/") else name


def _unpacked(command: Command) -> Iterator[Word]:
    options = Options(command.arguments, "fCbTXKNVgHIF", ("file", "directory", "one-top-level"))
    first = command.arguments[0].text if command.arguments else ""
    old = first if not first.startswith("-") else ""
    if options.has("x", "extract", "get") or "x" in old:
        yield from options.value("C", "directory", "one-top-level")
        if options.has("P", "absolute-names") or "P" in old:
            yield Word("/")
    if options.has("c", "create") or "c" in old:
        yield from options.value("f", "file")


def _unzipped(command: Command) -> Iterator[Word]:
    yield from Options(command.arguments, "d").value("d")


def _seven_zip(command: Command) -> Iterator[Word]:
    for word in command.arguments:
        if word.text.startswith("-o") and len(word.text) > 2:
            yield Word(word.text[2:], word.glob)


def _cpio(command: Command) -> Iterator[Word]:
    yield from Options(command.arguments, "DFHIO", ("directory", "file")).value("D", "directory", "O")


def _output_option(command: Command) -> Iterator[Word]:
    yield from Options(command.arguments, "o", ("output",)).value("o", "output", "out")


def _found(command: Command) -> Iterator[Word]:
    for word, following in zip(command.words, command.words[1:], strict=False):
        if word.text in ("-fprint", "-fprint0", "-fprintf", "-fls"):
            yield following


def _split(command: Command) -> Iterator[Word]:
    options = Options(command.arguments, "abClntf", ("prefix", "lines", "bytes", "number"))
    yield from options.value("f", "prefix") if command.program == "csplit" else options.operands[1:2]


def _patched(command: Command) -> Iterator[Word]:
    options = Options(command.arguments, "dopiDFgrVYzB", ("directory", "output", "input", "strip"))
    yield from options.value("d", "o", "directory", "output")
    yield from options.operands[:1]


def _git(command: Command) -> Iterator[Word]:
    options = Options(command.arguments, "Ccbou", ("git-dir", "work-tree", "branch", "origin", "depth"))
    texts = [word.text for word in options.operands]
    if texts[:1] == ["config"] and options.has("", "system"):
        yield Word("/etc/gitconfig")
    elif texts[:1] == ["clone"]:
        yield from options.operands[2:3]
    elif texts[:1] == ["init"]:
        yield from options.operands[1:2] or options.value("C")


_WRITERS: dict[str, Callable[[Command], Iterator[Word]]] = {
    **dict.fromkeys(
        ("tee", "truncate", "sponge", "touch", "mkdir", "mkfifo", "mknod", "fallocate", "ed", "ex", "nano", "vi", "vim",
         "nvim", "emacs", "pico"), _operands),
    "chmod": _rights,
    **dict.fromkeys(("cp", "mv", "ln", "install", "rsync", "scp", "gcp", "gmv"), _copied),
    **dict.fromkeys(("dd", "gdd"), _converted),
    **dict.fromkeys(("sed", "gsed", "perl", "ruby"), _edited),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
    "curl": _curl,
    "wget": _wget,
    **dict.fromkeys(("aria2c", "yt-dlp", "youtube-dl", "gallery-dl"), _downloader),
    **dict.fromkeys(("tar", "gtar", "bsdtar"), _unpacked),
    "unzip": _unzipped,
    **dict.fromkeys(("7z", "7za", "7zz"), _seven_zip),
    "cpio": _cpio,
    **dict.fromkeys(
        ("sort", "shuf", "gcc", "cc", "clang", "g++", "ld", "openssl", "gpg", "jq", "uniq", "xxd", "iconv", "yq"),
        _output_option),
    "find": _found,
    **dict.fromkeys(("split", "csplit"), _split),
    "patch": _patched,
    "git": _git,
}  # fmt: skip
