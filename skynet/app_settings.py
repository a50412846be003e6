"""What the configuration means, in the words of the parts that are built with it."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from skynet.config import Config
from skynet.config.schema import MountConfig, TerminalConfig
from skynet.config.terminal_checks import is_there
from skynet.gateway.children import Protection
from skynet.gateway.command_desk import Surroundings
from skynet.gateway.command_gate import LEVELS, Policy
from skynet.gateway.time_zone import machine_zone
from skynet.logs import KEPT_FILES
from skynet_agent.tools import ToolContext
from skynet_memory.ids import Role, UserId
from skynet_terminal.sandbox import Limits, Mount
from skynet_users.permissions import PermissionPolicy, Reach

PROC = Path("/proc")
MEGABYTE = 1024 * 1024


def private_places(config: Config, env: Mapping[str, str]) -> Sequence[Path]:
    """What no tool touches, whatever an admin's tools may reach: where the gateway keeps its state, its secrets and
    those it asks providers with. ``/proc`` shows the environment of every process, with the keys that are in it."""
    database, log_file = config.database.path, config.logging.file
    try:
        user_home = Path(env.get("HOME") or Path.home())
    except RuntimeError:  # a container's user that nobody knows
        user_home = config.home
    named = (
        env.get("GOOGLE_APPLICATION_CREDENTIALS"),
        env.get("AWS_SHARED_CREDENTIALS_FILE"),
        env.get("AWS_CONFIG_FILE"),
        env.get("CLOUDSDK_CONFIG"),
    )
    return (
        config.home,
        PROC,
        config.file_path,
        *(database.with_name(database.name + suffix) for suffix in ("", "-wal", "-shm", "-journal")),
        *(log_file.with_name(log_file.name + suffix) for suffix in ("", *(f".{n}" for n in range(1, KEPT_FILES + 1)))),
        *(provider.credentials_file for provider in config.providers.values() if provider.credentials_file != Path()),
        user_home / ".aws",
        user_home / ".config" / "gcloud",
        *map(Path, filter(None, named)),
    )


def hidden_from_commands(config: Config) -> Sequence[Path]:
    """What commands never see, whatever is mounted. Of ``/proc`` they have one of their own."""
    return [path for path in private_places(config, os.environ) if path != PROC]


def own_folder(config: Config, context: ToolContext) -> Path:
    """The files of a person, or in a room those of the room."""
    return config.home / "users" / context.owner / "files"


def permission_policy(config: Config) -> PermissionPolicy:
    """The matrix as it is configured.

    Raises:
        ValueError: naming the key.
    """
    return PermissionPolicy(
        {
            Role.USER: {word: Reach(reach) for word, reach in config.permissions.user.items()},
            Role.CHILD: {word: Reach(reach) for word, reach in config.permissions.child.items()},
        }
    )


def protection(config: Config) -> Protection:
    """What holds for all children."""
    rules = () if config.filter.rules_file == Path() else (config.filter.rules_file,)
    return Protection(rules=rules, never_remember=frozenset(config.children.never_remember), zone=str(machine_zone()))


def surroundings(config: Config) -> Surroundings:
    """What commands see and have, as it is configured."""
    terminal = config.terminal
    return Surroundings(
        mounts=_mounts(terminal, hidden_from_commands(config)),
        hosts={Role.ADMIN: terminal.hosts.admin, Role.USER: terminal.hosts.user},
        env=terminal.env,
        limits=limits(terminal),
        timeout_s=terminal.timeout_s,
        longest_s=terminal.longest_s,
    )


def limits(terminal: TerminalConfig) -> Limits:
    """The limits of one command, in bytes where the configuration has megabytes."""
    configured = terminal.limits
    return Limits(
        cpu_s=configured.cpu_s,
        memory_bytes=configured.memory_mb * MEGABYTE,
        processes=configured.processes,
        file_bytes=configured.file_mb * MEGABYTE,
        disk_bytes=configured.disk_mb * MEGABYTE,
        tmp_bytes=configured.tmp_mb * MEGABYTE,
    )


def _mounts(terminal: TerminalConfig, hidden: Sequence[Path]) -> Callable[[UserId, Role], Sequence[Mount]]:
    if not terminal.mounts:
        return lambda user_id, role: ()
    from skynet_terminal.sandbox.mounts import check_mounts

    there = [mount for mount in terminal.mounts if is_there(mount)]
    seen = list(zip(there, check_mounts(there, hidden=hidden), strict=True))

    def of(user_id: UserId, role: Role) -> Sequence[Mount]:
        return [mount for configured, mount in seen if _sees(configured, user_id, role)]

    return of


def _sees(mount: MountConfig, user_id: UserId, role: Role) -> bool:
    if role is Role.CHILD:
        return False
    return user_id in mount.people or f"role:{role.value}" in mount.people or (role is Role.ADMIN and not mount.people)


def command_policy(config: Config) -> Policy:
    """The rules of the household over the built-in ones. Loading them takes some milliseconds."""
    from skynet_terminal.policy.judge import CommandPolicy
    from skynet_terminal.policy.rules import blocked, user_rule

    terminal = config.terminal
    own = (
        user_rule(
            rule.decision,
            rule.program,
            args=rule.args,
            reason=rule.reason,
            levels=[LEVELS[Role(role)] for role in rule.roles],
        )
        for rule in terminal.rules
    )
    seen = [mount.target or f"/mnt/{Path(mount.source).name}" for mount in terminal.mounts]
    return CommandPolicy([*map(blocked, terminal.blocked), *own], inside=seen)
