"""What a role may do beyond talking. It holds outside the model: at the tool, whatever a prompt says."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from skynet_memory.ids import Role


class Permission(StrEnum):
    """What a tool may need, in the words of ``Tool.permission``."""

    FILES_READ = "files.read"
    """Read files of the person's own folder."""
    FILES_WRITE = "files.write"
    """Write files of the person's own folder."""
    COMMANDS_RUN = "commands.run"
    """Run commands, in the sandbox and as the command policy says."""
    PLUGINS_RUN = "plugins.run"
    """Run the programs that plugins are."""
    WORKSPACE_WRITE = "workspace.write"
    """Change the assistant's own files, which are part of everybody's prompt."""


ROLE_PERMISSIONS: Mapping[Role, frozenset[Permission]] = MappingProxyType(
    {
        Role.ADMIN: frozenset(Permission),
        Role.USER: frozenset(
            {Permission.FILES_READ, Permission.FILES_WRITE, Permission.COMMANDS_RUN, Permission.PLUGINS_RUN}
        ),
        Role.CHILD: frozenset(),
    }
)


def is_permitted(role: Role, permission: str) -> bool:
    """Whether ``role`` has ``permission``; nobody has one that does not exist."""
    return permission in ROLE_PERMISSIONS[role]
