"""What shows or takes over the environment of programs."""

from __future__ import annotations

import re

from skynet_terminal.policy.commands import Command, Options
from skynet_terminal.policy.words import UNKNOWN


def dumps_environment(command: Command) -> str | None:
    program, arguments = command.program, command.arguments
    options = Options(arguments, "uCS", ("unset", "chdir"))
    if program in ("env", "genv"):
        operands = [word for word in options.operands if "=" not in word.text]
        return None if operands or options.has("S", "split-string", "help", "version") else "env"
    if program == "printenv":
        return str(command) if not options.operands else None
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


def shows_history(command: Command) -> str | None:
    if command.program == "history":
        return str(command)
    return str(command) if command.program == "fc" and Options(command.arguments).has("l") else None


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
