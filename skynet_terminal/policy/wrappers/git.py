"""Git, whose settings and options can hold commands."""

from __future__ import annotations

from collections.abc import Iterator

from skynet_terminal.policy.commands import Command, Options
from skynet_terminal.policy.wrappers.parts import Argv, Line, Start


def git(command: Command) -> Iterator[Start]:
    rest = command.arguments
    at = 0
    while at < len(rest) and rest[at].text.startswith("-"):
        text = rest[at].text
        value = ""
        if text == "-c" and at + 1 < len(rest):
            value, at = rest[at + 1].text, at + 1
        elif text.startswith("--config-env="):
            value = text
        elif text in ("-C", "--git-dir", "--work-tree", "--namespace"):
            at += 1
        if value:
            yield from _git_setting(*value.partition("=")[::2])
        at += 1
    following = [word.text for word in rest[at:]]
    if following[:1] == ["config"]:
        operands = [text for text in following[1:] if not text.startswith("-")]
        if len(operands) > 1:
            yield from _git_setting(operands[-2], operands[-1])
    if following[:2] == ["bisect", "run"]:
        yield Argv(rest[at + 2 :])
    if following[:2] == ["submodule", "foreach"]:
        yield Line(" ".join(text for text in following[2:] if text not in ("--recursive", "--quiet")))
    if following[:1] == ["rebase"]:
        for given in Options(rest[at + 1 :], "xs", ("exec",)).value("x", "exec"):
            yield Line(given.text)
    if following[:1] == ["filter-branch"]:
        for index, text in enumerate(following[:-1]):
            if text.endswith("-filter"):
                yield Line(following[index + 1])
    for text in following:
        if text.startswith(("--upload-pack=", "--receive-pack=", "--exec=", "ext::")):
            yield Line(text.partition("=")[2] if "=" in text else text[5:].replace("%S", ""))
    if following[:1] == ["grep"]:
        for text in following:
            if text.startswith(("-O", "--open-files-in-pager=")):
                yield Line(text[2:] if text.startswith("-O") else text.partition("=")[2])


_GIT_COMMANDS = (
    "core.sshcommand", "core.pager", "core.editor", "core.fsmonitor", "sequence.editor", "diff.external",
    "credential.helper", "gpg.program", "core.askpass", "core.gitproxy",
)  # fmt: skip


def _git_setting(name: str, value: str) -> Iterator[Start]:
    name = name.lower()
    if name.startswith("alias."):
        yield Line(value[1:] if value.startswith("!") else f"git {value}")
    elif name in _GIT_COMMANDS or name.endswith(
        (".command", ".cmd", ".textconv", ".clean", ".smudge", ".driver", ".helper")
    ):
        value = value.removeprefix("!")
        if value not in ("true", "false", "store", "cache", "osxkeychain", "manager", ""):
            yield Line(value)
    elif name.startswith("pager.") and value not in ("true", "false"):
        yield Line(value)
