"""Which commands there are; each is imported when it is used."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

from cyclopts import App, CycloptsError

from skynet.cli.errors import CliError, Exit
from skynet.cli.output import print_error
from skynet.version import VERSION

COMMANDS: dict[str, tuple[str, str]] = {
    "status": (
        "skynet.cli.status:status",
        "Show whether the gateway runs, which model answers, and what was said last.",
    ),
    "doctor": ("skynet.cli.doctor:doctor", "Say what is right with this gateway, what is not, and what to do."),
    "agent": ("skynet.cli.agent:agent", "Ask the assistant one thing."),
    "chat": ("skynet.cli.chat:chat", "Talk with the assistant."),
    "exec": ("skynet.cli.exec:execute", "Run a command where the assistant runs its own."),
    "jobs list": ("skynet.cli.jobs:list_jobs", "List your background jobs, newest first."),
    "jobs show": ("skynet.cli.jobs:show", "Show how a job is."),
    "jobs output": ("skynet.cli.jobs:output", "Print what a job has written."),
    "jobs kill": ("skynet.cli.jobs:kill", "End a job with all that it has started."),
    "terminal new": ("skynet.cli.terminal:new", "Open a shell on the gateway's machine."),
    "terminal attach": ("skynet.cli.terminal:attach", "Go back to a terminal that one has left."),
    "terminal list": ("skynet.cli.terminal:list_terminals", "List your terminals."),
    "terminal kill": ("skynet.cli.terminal:kill", "End a terminal with all that runs in it."),
    "logs": ("skynet.cli.log_tail:logs", "Print the gateway's log."),
    "gateway run": ("skynet.cli.run:run", "Run the gateway in the foreground."),
    "sessions list": ("skynet.cli.sessions:list_sessions", "List your conversations, newest first."),
    "sessions show": ("skynet.cli.sessions:show", "Print the last messages of a conversation."),
    "config check": (
        "skynet.cli.config:check",
        "Say whether the configuration can be used, and what is wrong with it.",
    ),
    "config show": ("skynet.cli.config:show", "Print the configuration as it is used."),
    "providers list": ("skynet.cli.providers:list_providers", "List the providers of models: in use, and known."),
    "providers test": ("skynet.cli.providers:test", "Ask providers for a few tokens each."),
    "providers login": ("skynet.cli.providers_login:login", "Log in to a provider that gives no keys."),
    "models list": ("skynet.cli.models:list_models", "List the models there are."),
    "devices list": ("skynet.cli.devices:list_devices", "List the devices that ask to be paired, then those that are."),
    "devices approve": ("skynet.cli.devices:approve", "Let a device in that asks for it."),
    "devices reject": ("skynet.cli.devices:reject", "Refuse a device that asks to be let in."),
    "devices remove": ("skynet.cli.devices:remove", "Forget a paired device."),
    "nodes list": ("skynet.cli.nodes:list_nodes", "List your nodes, connected ones first."),
    "nodes describe": ("skynet.cli.nodes:describe", "Show a node, and what it can be asked for."),
    "nodes invoke": ("skynet.cli.nodes:invoke", "Have a node carry out one of its commands."),
    "nodes run": ("skynet.cli.nodes:run", "Run a command on a node."),
    "nodes rename": ("skynet.cli.nodes:rename", "Give a node another name."),
    "users list": ("skynet.cli.users:list_users", "List the people of this gateway."),
    "users add": ("skynet.cli.users:add", "Add a person, with everything that makes them at home."),
    "users show": ("skynet.cli.users:show", "Show a person, and what they may do."),
    "users set": ("skynet.cli.users:set_user", "Change a person."),
    "users remove": ("skynet.cli.users:remove", "Remove a person with all that is theirs."),
    "users link": ("skynet.cli.users:link", "Say that an account on a channel is this person."),
    "users unlink": ("skynet.cli.users:unlink", "Say that an account on a channel is this person no more."),
    "users code": ("skynet.cli.users:code", "Make a code that links an account of your own."),
    "users guardian": ("skynet.cli.users:guardian", "Give a child a guardian, or take one away."),
    "users password": ("skynet.cli.users:password", "Set a password."),
    "users budget": ("skynet.cli.users:budget", "Show what was used of a person's budget."),
    "users approvals": ("skynet.cli.approvals:list_approvals", "List what waits for a decision."),
    "users approve": ("skynet.cli.approvals:approve", "Approve a request."),
    "users deny": ("skynet.cli.approvals:deny", "Deny a request."),
    "approvals list": ("skynet.cli.exec_approvals:list_open", "List commands that wait for a yes."),
    "approvals allow": ("skynet.cli.exec_approvals:allow", "Let a command run."),
    "approvals deny": ("skynet.cli.exec_approvals:deny", "Refuse a command."),
    "approvals grants list": ("skynet.cli.exec_approvals:list_grants", "List what was allowed for good."),
    "approvals grants remove": ("skynet.cli.exec_approvals:remove_grant", "Ask about such a command again."),
    "users groups list": ("skynet.cli.groups:list_groups", "List your rooms."),
    "users groups create": ("skynet.cli.groups:create", "Make a room, with you in it."),
    "users groups add": ("skynet.cli.groups:add", "Let somebody into a room."),
    "users groups remove": ("skynet.cli.groups:remove", "Take somebody out of a room."),
    "users groups close": ("skynet.cli.groups:close", "Close a room: it keeps what it has."),
    "users groups open": ("skynet.cli.groups:open_room", "Open a room again."),
    "users token create": ("skynet.cli.tokens:create", "Make a personal token, and print it this once."),
    "users token list": ("skynet.cli.tokens:list_tokens", "List personal tokens, without the tokens."),
    "users token revoke": ("skynet.cli.tokens:revoke", "End a token."),
    "memory search": ("skynet.cli.memory:search", "Search what is remembered of you."),
    "memory list": ("skynet.cli.memory:list_memories", "List what is remembered of you, newest first."),
    "memory learn": ("skynet.cli.memory:learn", "Have something remembered."),
    "memory forget": ("skynet.cli.memory:forget", "Erase a memory, or all of them, for good."),
    "memory show": ("skynet.cli.memory:show", "Print what the assistant is told of you with every message."),
    "memory export": ("skynet.cli.memory:export", "Write everything that is remembered as JSON."),
    "memory import": ("skynet.cli.memory:import_memories", "Have everything remembered that a file holds."),
    "audit list": ("skynet.cli.audit:list_entries", "Print who did what, newest first."),
    "audit verify": ("skynet.cli.audit:verify", "Say whether the audit log is what was recorded."),
}
"""Every command: where it is, and what it is for. Named by import path, so that one does not pay for the others."""

GROUPS: dict[str, str] = {
    "gateway": "Run the gateway.",
    "jobs": "Commands in the background.",
    "terminal": "Open a shell on the gateway's machine, and leave it without ending it (Ctrl-]).",
    "sessions": "Conversations that the gateway keeps.",
    "config": "The configuration.",
    "providers": "Who runs the models.",
    "models": "The models that answer.",
    "devices": "Clients that are paired with the gateway, or ask to be.",
    "nodes": "Your machines that lend the assistant their abilities.",
    "users": "The people of this gateway.",
    "users groups": "Rooms that several people share.",
    "users token": "Personal tokens, with which a client is somebody.",
    "memory": "What the assistant remembers.",
    "approvals": "Commands that wait for a yes.",
    "approvals grants": "Commands that were allowed for good.",
    "audit": "The record of who did what.",
}

DEFAULTS: dict[str, str] = {"terminal": "new"}
"""What a group of commands does if none of them is named."""


def build_app() -> App:
    """The command tree."""
    app = App(name="skynet", help="A self-hosted AI gateway.", version=VERSION, version_flags=["--version"])
    groups = {path: App(name=path.rpartition(" ")[2], help=purpose) for path, purpose in GROUPS.items()}
    for path, (function, purpose) in COMMANDS.items():
        group, _, name = path.rpartition(" ")
        (groups[group] if group else app).command(function, name=name, help=purpose)
    for path, group_app in groups.items():
        parent = path.rpartition(" ")[0]
        (groups[parent] if parent else app).command(group_app)
    return app


def run_app(arguments: Sequence[str]) -> int:
    """Parse and run one command; returns its exit code and leaves no traceback of what a user can cause."""
    as_json = "--json" in arguments
    try:
        app = build_app()
        arguments = _with_default(arguments)
        result = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        if asyncio.iscoroutine(result):
            result = asyncio.run(_owned(result))
    except CycloptsError as exc:
        hint = f"see: {' '.join(('skynet', *(exc.command_chain or ()), '--help'))}"
        print_error(CliError(str(exc), exit_code=Exit.USAGE, code="usage", hint=hint), as_json=as_json)
        return Exit.USAGE
    except CliError as exc:
        print_error(exc, as_json=as_json)
        return exc.exit_code
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return Exit.FAILED
    return result if isinstance(result, int) else Exit.OK


def _with_default(arguments: Sequence[str]) -> Sequence[str]:
    """``skynet terminal`` and ``skynet terminal --title X`` as what they stand for."""
    group, *rest = arguments or [""]
    if group not in DEFAULTS or (rest and (not rest[0].startswith("-") or rest[0] in ("--help", "-h"))):
        return arguments
    return [group, DEFAULTS[group], *rest]


async def _owned(command: Coroutine[Any, Any, object]) -> object:
    return await command


def _forget_stdout() -> None:
    """The reader of a pipe has gone; what is still buffered for it must not raise again at exit."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
