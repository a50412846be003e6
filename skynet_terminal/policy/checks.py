"""What rules ask of a command where a table cannot say it. Each answers with the part that it is about, or None."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from skynet_terminal.policy import paths
from skynet_terminal.policy.commands import DOWNLOAD, Command, Options, path_of
from skynet_terminal.policy.rules import Check
from skynet_terminal.policy.words import UNKNOWN, Word, shown
from skynet_terminal.policy.wrappers import SHELLS, found

# --- removing

_REMOVERS = frozenset(
    {"rm", "unlink", "rmdir", "srm", "shred", "grm", "trash", "trash-put", "gio", "del", "rd", "remove-item"}
)


def _doomed(command: Command) -> Iterator[tuple[Word, bool]]:
    """What is removed, and whether with everything beneath."""
    program = command.program
    if program in _REMOVERS:
        options = Options(command.arguments, "ns" if program == "shred" else "")
        recursive = options.has("rR", "recursive") or program in (
            "rd",
            "gio",
            "trash",
            "trash-put",
            "remove-item",
            "srm",
        )
        for word in options.operands:
            yield word, recursive
    elif program in ("find", "gfind") and "-delete" in command.texts:
        for word in found(command):
            yield word, True
    elif program in ("mv", "gmv"):
        options = Options(command.arguments, "tS", ("target-directory", "suffix"))
        sources = options.operands if options.has("t", "target-directory") else options.operands[:-1]
        for word in sources:
            yield word, True
    elif program == "git" and "clean" in command.texts:
        options = Options(command.arguments, "Cce")
        yield from ((word, True) for word in options.value("C"))
    elif program == "rsync" and any(text.startswith("--del") for text in command.texts):
        for word in Options(command.arguments, "e").operands[-1:]:
            yield word, True


def _removal(command: Command) -> tuple[str, str] | None:
    """How bad (everything, system, here, unknown) and the word."""
    seen: dict[str, str] = {}
    for word, recursive in _doomed(command):
        zone, everything = paths.zone(word, command.cwd, command.mounted)
        moved = command.program in ("mv", "gmv")
        if zone == "unknown":
            if recursive and not moved:
                # "$x/etc" without a value is /etc: what stands there is looked at too
                rest = word.text.replace(UNKNOWN, "")
                kind = "unknown"
                if UNKNOWN not in word.text and command.cwd is None and rest.strip("./*") == "" and word.text:
                    kind = "unknown"
                seen.setdefault(kind, shown(word.text))
            elif word.several and command.program in ("rm", "grm"):
                seen.setdefault("unknown", shown(word.text))
        elif zone in ("root", "top") or (zone == "home" and (recursive or everything)):
            if zone == "home" and everything and not recursive:
                seen.setdefault("here", shown(word.text))
            else:
                seen.setdefault("everything", shown(word.text))
        elif zone == "system":
            seen.setdefault("system", shown(word.text))
        elif (zone == "inside" and everything and recursive and not word.text.rpartition("/")[0]) or (
            zone == "temporary" and everything and path_of(word.text, command.cwd).count("/") <= 2
        ):
            seen.setdefault("here", shown(word.text))
    for kind in ("everything", "system", "unknown", "here"):
        if kind in seen:
            return kind, seen[kind]
    return None


def removes(kind: str) -> Check:
    def check(command: Command) -> str | None:
        removal = _removal(command)
        return f"{command.program} of {removal[1]}" if removal is not None and removal[0] == kind else None

    return check


def no_preserve_root(command: Command) -> str | None:
    return next((text for text in command.texts if text.startswith("--no-pres")), None)


def cleans_folder(command: Command) -> str | None:
    texts = command.texts
    if "clean" not in texts[1:3] and "clean" not in texts[3:4]:
        return None
    return "git clean" if Options(command.arguments, "Cce").has("f", "force") else None


def changes_everything(command: Command) -> str | None:
    """chmod, chown, chgrp, setfacl of the system or of everything."""
    options = Options(command.arguments)
    recursive = options.has("R", "recursive")
    for word in options.operands[1:] if not options.has("", "reference") else options.operands:
        zone, _ = paths.zone(word, command.cwd, command.mounted)
        if zone in ("root", "top") or (zone == "system" and recursive):
            return f"{command.program} of {word}"
    return None


# --- writing


def written(command: Command) -> Iterator[Word]:
    """The files that it writes."""
    for redirect in command.redirects:
        if redirect.writes and not (redirect.operator == ">&" and re.fullmatch(r"\d+-?|-", redirect.target.text)):
            yield redirect.target
    program = command.program
    arguments = command.arguments
    if program in (
        "tee",
        "truncate",
        "sponge",
        "touch",
        "mkdir",
        "ed",
        "ex",
        "nano",
        "vi",
        "vim",
        "nvim",
        "emacs",
        "pico",
    ):
        yield from Options(arguments, "s", ("size",)).operands
    elif program in ("cp", "mv", "ln", "install", "rsync", "scp", "gcp", "gmv"):
        options = Options(arguments, "tSmoge", ("target-directory", "suffix", "mode", "owner", "group", "rsh"))
        yield from options.value("t", "target-directory")
        yield from options.operands[-1:]
        if options.operands[1:] and program != "ln":
            # into a folder: under its own name
            for source in options.operands[:-1]:
                yield Word(f"{options.operands[-1].text}/{source.text.rstrip('/').rpartition('/')[2]}")
    elif program in ("dd", "gdd"):
        for word in arguments:
            if word.text.startswith("of="):
                yield Word(word.text[3:], word.glob)
    elif program in ("sed", "gsed", "perl", "ruby"):
        options = Options(arguments, "efF" if program in ("sed", "gsed") else "eI", ("expression", "file"))
        if options.has("i", "in-place"):
            yield from options.operands
        if program in ("sed", "gsed"):
            for text in command.texts:
                for match in re.finditer(r"(?:^|[;}/0-9gp])w\s*(/[^\s;}]+)", text):
                    yield Word(match[1])
    elif program in ("curl", "wget"):
        options = Options(
            arguments, "oOPdHXAebuTFrmUxEw", ("output", "output-document", "output-dir", "directory-prefix")
        )
        yield from options.value("o", "output", "output-document", "output-dir", "directory-prefix", "P")
        if program == "wget":
            yield from options.value("O")
    elif program in ("tar", "gtar", "bsdtar"):
        options = Options(arguments, "fCbTX", ("file", "directory"))
        first = arguments[0].text if arguments else ""
        if options.has("x", "extract", "get") or (not first.startswith("-") and "x" in first):
            yield from options.value("C", "directory")
    elif program == "unzip":
        yield from Options(arguments, "d").value("d")
    elif program in (
        "sort",
        "shuf",
        "gcc",
        "cc",
        "clang",
        "g++",
        "ld",
        "openssl",
        "gpg",
        "jq",
        "uniq",
        "xxd",
        "iconv",
        "yq",
    ):
        yield from Options(arguments, "o", ("output",)).value("o", "output", "out")
    elif program == "find":
        texts = command.words
        for index, word in enumerate(texts[:-1]):
            if word.text in ("-fprint", "-fprint0", "-fprintf", "-fls"):
                yield texts[index + 1]
    elif program in ("awk", "gawk", "mawk", "nawk"):
        for text in command.texts:
            for match in re.finditer(r">\s*\"(/[^\"]+)\"", text):
                yield Word(match[1])
    elif program == "git" and "config" in command.texts and {"--system"}.intersection(command.texts):
        yield Word("/etc/gitconfig")


def writes_device(command: Command) -> str | None:
    for word in written(command):
        path = path_of(word.text, command.cwd)
        if paths.block_device(path):
            return f"{command.program or 'a redirection'} to {word}"
    if command.program in ("shred", "wipefs", "badblocks", "hdparm", "blkdiscard", "sg_format"):
        for word in command.arguments:
            if paths.block_device(word.text):
                return f"{command.program} of {word}"
    return None


def reads_device(command: Command) -> str | None:
    for word in _paths(command):
        if paths.block_device(path_of(word.text, command.cwd)) and word.text.startswith("/"):
            return str(word)
    return None


def writes_system(command: Command) -> str | None:
    for given in written(command):
        word = given
        if UNKNOWN in word.text and word.text.startswith("/") and not word.text.startswith("/" + UNKNOWN):
            # below a folder that is known
            word = Word(re.sub(r"\0", "x", word.text), word.glob)
        path = path_of(word.text, command.cwd)
        if paths.harmless_device(path):
            continue
        zone, _ = paths.zone(word, command.cwd, command.mounted)
        if zone in ("root", "top", "system"):
            return f"{command.program or 'a redirection'} to {word}"
    return None


def writes_unknown(command: Command) -> str | None:
    """A redirection whose file begins with something unknown, which may be any."""
    for redirect in command.redirects:
        if redirect.writes and redirect.target.text.startswith(UNKNOWN + "/"):
            return f"a redirection to {redirect.target}"
    return None


def calls_itself(command: Command) -> str | None:
    source = command.texts[0] if command.words else ""
    return "$0" if source == UNKNOWN + "0" else None


def kills_all(command: Command) -> str | None:
    program, texts = command.program, command.texts[1:]
    if program == "kill":
        targets = [text for text in texts if re.fullmatch(r"-?\d+", text)]
        signals = len(targets) > 1 or any(text in ("-s", "-n") or re.fullmatch(r"-[A-Z]+\d?", text) for text in texts)
        if (
            "-1" in targets
            and (signals or "--" in texts)
            and (targets[0] != "-1" or "--" in texts or len(targets) == 1)
        ):
            return "kill of all processes"
        if "1" in targets and "-1" not in targets:
            return "kill of the first process"
        return None
    if program in ("pkill", "killall"):
        options = Options(command.arguments, "sugtGPU", ("signal", "user"))
        if options.has("u", "user", "euid") or any(
            word.text in (".", ".*", "", "*", "systemd", "init") for word in options.operands
        ):
            return str(command)
        return None
    return str(command) if program == "killall5" else None


def stops_machine(command: Command) -> str | None:
    program, texts = command.program, command.texts[1:]
    if program in ("init", "telinit"):
        return str(command) if any(text in ("0", "6", "1", "s", "S") for text in texts) else None
    if program in ("systemctl", "loginctl"):
        verbs = {
            "poweroff",
            "reboot",
            "halt",
            "kexec",
            "suspend",
            "hibernate",
            "rescue",
            "emergency",
            "exit",
            "soft-reboot",
        }
        return str(command) if verbs.intersection(texts) else None
    return None


# --- rights


def sets_id(command: Command) -> str | None:
    """chmod u+s, 4755; install -m 4755."""
    options = Options(command.arguments, "m" if command.program == "install" else "", ("mode",))
    modes = options.value("m", "mode") if command.program == "install" else [Word(text) for text in command.texts[1:]]
    for mode in modes:
        text = mode.text
        if re.fullmatch(
            r"[ugoa]*[+=][rwxXt]*s[rwxXst]*(,.*)?|.*,[ugoa]*[+=][rwxXt]*s.*|0*[2-7][0-7]{3}|0*[2-7]\d{3}", text
        ):
            return f"{command.program} {text}"
    return None


# --- what is run without being seen

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


# --- what leaves

_REMOTE = re.compile(r"^(?:[\w.+-]+@)?[\w.-]+:(?!//)(?!\\)|^(?:rsync|scp|sftp|ftp|s3|gs|ssh)://")


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
        if re.search(r"/dev/(?:tcp|udp)/", word.text):
            return str(word)
    return None


def shell_behind_socket(command: Command) -> str | None:
    if command.program in ("nc", "ncat", "netcat", "nc.traditional", "nc.openbsd"):
        options = Options(command.arguments, "pswxXqWiOTIV")
        return str(command) if options.has("ec", "exec", "sh-exec", "lua-exec") else None
    if command.program == "socat":
        return str(command) if re.search(r"(?i)\b(?:exec|system|shell):", " ".join(command.texts)) else None
    return None


# --- the environment, secrets


def dumps_environment(command: Command) -> str | None:
    program, arguments = command.program, command.arguments
    options = Options(arguments, "uCS", ("unset", "chdir"))
    if program in ("env", "genv"):
        operands = [word for word in options.operands if "=" not in word.text]
        return None if operands or options.has("S", "split-string", "help", "version") else "env"
    if program == "printenv":
        return str(command)
    if program == "set":
        return "set" if not arguments else None
    if program in ("export", "declare", "typeset", "readonly", "local"):
        assigns = any(not word.text.startswith("-") for word in arguments)
        prints = options.has("p") and (not assigns or program != "export")
        return str(command) if prints or (not assigns and program != "local" and not options.has("fF")) else None
    if program == "compgen":
        return str(command) if options.has("ve") else None
    if program == "ps":
        first = arguments[0].text if arguments else ""
        return str(command) if first and not first.startswith("-") and "e" in first else None
    return None


def dumps_own_environment(command: Command) -> str | None:
    """jq and awk know it by themselves."""
    if command.program == "jq":
        text = " ".join(command.texts[1:])
        return "jq of the environment" if re.search(r"(?<![\w.$])env\b(?!\.)|\$ENV\b(?!\.)", text) else None
    return None


_NOT_PATHS = frozenset(
    [
        "echo",
        "printf",
        ":",
        "true",
        "false",
        "test",
        "[",
        "alias",
        "unalias",
        "export",
        "declare",
        "local",
        "unset",
        "kill",
        "sleep",
        "which",
        "type",
        "set",
    ]
)
_SPLIT = re.compile(r"[=@:,]")


def _paths(command: Command) -> Iterator[Word]:
    """Every word that a program may take for a file, and the parts of words like ``-f=x``, ``@x`` and ``a:b``."""
    for redirect in command.redirects:
        yield redirect.target
    if command.program in _NOT_PATHS:
        return
    skip = 1 if command.program in ("grep", "egrep", "fgrep", "rg", "ag", "sed", "awk", "gawk", "jq", "git") else 0
    for word in command.words:
        text = word.text
        if not text or len(text) > 4096 or text.startswith(("http://", "https://")):
            continue
        if skip and word is not command.words[0] and not text.startswith("-"):
            skip -= 1
            if "/" not in text and "~" not in text:
                continue
        yield word
        if text.startswith("file://"):
            yield Word(text[7:], word.glob)
        elif _SPLIT.search(text):
            for part in _SPLIT.split(text):
                if part and part != text:
                    yield Word(part.lstrip("<"), word.glob)
        elif len(text) > 2 and text[0] == "-" and text[1] != "-":
            yield Word(text[2:], word.glob)


def touches(test: Callable[[Word, str | None], bool]) -> Check:
    """A file of this kind is named."""

    def check(command: Command) -> str | None:
        return next((str(word) for word in _paths(command) if test(word, command.cwd)), None)

    return check


def writes(test: Callable[[Word, str | None], bool]) -> Check:
    def check(command: Command) -> str | None:
        return next(
            (f"{command.program or 'a redirection'} to {word}" for word in written(command) if test(word, command.cwd)),
            None,
        )

    return check


def own_secret_read(command: Command) -> str | None:
    if command.program in (
        "ls",
        "touch",
        "git",
        "rm",
        "mkdir",
        "find",
        "stat",
        "chmod",
        "gitignore",
        "openssl",
        "ssh-keygen",
    ):
        return None
    return touches(paths.own_secret)(command)


def shows_history(command: Command) -> str | None:
    if command.program == "history":
        return str(command)
    return str(command) if command.program == "fc" and Options(command.arguments).has("l") else None


def crontab_changes(command: Command) -> str | None:
    return None if Options(command.arguments, "u").has("l") else str(command)


def service_changes(command: Command) -> str | None:
    harmless = {"status", "list-units", "list-unit-files", "is-active", "is-enabled", "is-failed", "show", "cat",
                "list-timers", "get-default", "--version", "--help", "help", "list-sockets", "list-jobs",
                "is-system-running"}  # fmt: skip
    operands = [word.text for word in Options(command.arguments, "tpnHM").operands]
    if not operands or operands[0] in harmless or (command.program == "service" and operands[-1] == "status"):
        return None
    return str(command)


_TAKES_OVER = frozenset(
    [
        "LD_PRELOAD",
        "LD_AUDIT",
        "LD_LIBRARY_PATH",
        "DYLD_INSERT_LIBRARIES",
        "BASH_ENV",
        "ENV",
        "PROMPT_COMMAND",
        "PERL5OPT",
        "PERL5DB",
        "RUBYOPT",
        "PYTHONSTARTUP",
        "PYTHONHOME",
        "NODE_OPTIONS",
        "LESSOPEN",
        "LESSCLOSE",
        "GIT_SSH_COMMAND",
        "GIT_SSH",
        "GIT_EXTERNAL_DIFF",
        "GIT_PROXY_COMMAND",
        "GCONV_PATH",
        "SHELLOPTS",
        "BASHOPTS",
        "PS4",
        "PS0",
        "BASH_LOADABLES_PATH",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_SYSTEM",
        "GIT_CONFIG_COUNT",
        "GIT_EXEC_PATH",
    ]
)


def takes_over(command: Command) -> str | None:
    """A variable that makes other programs run something."""
    names = [name for name, _ in command.assignments]
    if command.program in ("export", "declare", "typeset", "readonly"):
        names += [word.text.partition("=")[0].rstrip("+") for word in command.arguments if "=" in word.text]
    return next((name for name in names if name in _TAKES_OVER or name.startswith("BASH_FUNC_")), None)


def redefines(command: Command) -> str | None:
    """alias of a common name with something else behind it."""
    for word in command.arguments:
        name, equals, value = word.text.partition("=")
        if equals and UNKNOWN in value:
            return f"alias {name}"
    return None


def system_packages(command: Command) -> str | None:
    verbs = {
        "install", "remove", "purge", "upgrade", "update", "dist-upgrade", "full-upgrade", "autoremove", "add", "del",
        "erase",
        "localinstall", "reinstall", "uninstall", "refresh", "--install", "--remove", "--purge",
        "tap", "cask", "rm",
        "up", "in",
    }  # fmt: skip
    texts = command.texts[1:]
    short = command.program in ("dpkg", "rpm", "pacman", "yay") and any(
        re.match(r"-[A-Za-z]*[irPeUSRF]", text) for text in texts
    )
    return str(command) if short or verbs.intersection(texts) else None


def global_packages(command: Command) -> str | None:
    texts = command.texts[1:]
    if command.program in ("npm", "pnpm", "yarn", "bun"):
        adds = {"install", "i", "add", "global", "uninstall", "update"}.intersection(texts)
        return str(command) if adds and ({"-g", "--global", "global"}.intersection(texts)) else None
    return (
        str(command)
        if "--break-system-packages" in texts or (command.program == "gem" and texts[:1] == ["install"])
        else None
    )


def mounts(command: Command) -> str | None:
    return str(command) if command.arguments and not command.texts[1].startswith(("-h", "--help", "-V")) else None


def engine_used(command: Command) -> str | None:
    texts = command.texts[1:]
    return None if texts in (["--version"], ["version"], ["--help"], ["-v"], ["help"]) else str(command)


def deletes_volumes(command: Command) -> str | None:
    return str(command) if {"destroy", "labelclear", "erasedisk", "eraseDisk", "eraseVolume", "format", "secureErase",
                            "zeroDisk",
                            "partitionDisk", "reformat"}.intersection(command.texts) else None  # fmt: skip


def windows_delete(command: Command) -> str | None:
    flags = {text.lower() for text in command.texts[1:]}
    wanted = {
        "del": {"/f", "/s", "/q"},
        "erase": {"/f", "/s", "/q"},
        "rd": {"/s"},
        "rmdir": {"/s", "/q"},
        "format": {"c:", "d:", "/q"},
    }
    return str(command) if wanted[command.program] & flags else None


def forced_listen(command: Command) -> str | None:
    return str(command) if {"iptables", "nft", "ufw"} and command.arguments else None
