"""Who may do what. It holds outside the model: at the method, the HTTP route and the tool, whatever a prompt says.

There is one table, role by permission, and one question, :func:`permits`. A permission has a reach: none, what is the
person's own, or everybody's.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeAlias

from skynet_memory.ids import Role


class Reach(StrEnum):
    """How far a permission goes. Of what belongs to nobody (the configuration, the log) ``own`` is enough."""

    NONE = "none"
    OWN = "own"
    ALL = "all"


class Permission(StrEnum):
    """What there is to be allowed. The words stand in the configuration, people's flags and ``Tool.permission``."""

    MESSAGES_SEND = "messages.send"
    """Talk with the assistant."""
    SESSIONS_READ = "sessions.read"
    """See conversations."""
    SESSIONS_WRITE = "sessions.write"
    """Rename, reset and delete conversations."""
    MEMORY_READ = "memory.read"
    """See and search what the assistant remembers."""
    MEMORY_WRITE = "memory.write"
    """Have something remembered, changed or forgotten."""
    PROFILE_READ = "profile.read"
    """See a person's profile."""
    PROFILE_WRITE = "profile.write"
    """Change a person's language, interests and the like."""
    DEVICES_MANAGE = "devices.manage"
    """Pair and remove devices, make and revoke personal tokens, make codes that link accounts: lend somebody one's ways
    in. A child does not."""
    COSTS_VIEW = "costs.view"
    """See what was used and spent."""
    FILES_READ = "files.read"
    """Read files of the person's own folder."""
    FILES_WRITE = "files.write"
    """Write files of the person's own folder."""
    COMMANDS_RUN = "commands.run"
    """Run commands, in the sandbox and as the command policy says."""
    PLUGINS_RUN = "plugins.run"
    """Run the programs that plugins are."""
    BROWSER_USE = "browser.use"
    """Have the assistant use a browser."""
    SOFTWARE_INSTALL = "software.install"
    """Install programs, skills and updates."""
    JOBS_MANAGE = "jobs.manage"
    """Have the assistant do things at set times."""
    GROUPS_MANAGE = "groups.manage"
    """Make rooms, close them and open them again."""
    APPROVALS_DECIDE = "approvals.decide"
    """Approve what waits for it. ``own``: of one's own commands, and of those whose guardian one is."""
    WORKSPACE_WRITE = "workspace.write"
    """Change the assistant's own files, which are part of everybody's prompt."""
    CONFIG_READ = "config.read"
    """See the configuration, without its secrets, and the providers."""
    CONFIG_WRITE = "config.write"
    """Change the configuration."""
    PROVIDERS_MANAGE = "providers.manage"
    """Test providers, and choose everybody's model."""
    LOGS_READ = "logs.read"
    """Read the gateway's log. ``own``: the lines about oneself."""
    AUDIT_READ = "audit.read"
    """Read the record of who did what, and verify it."""
    USERS_MANAGE = "users.manage"
    """Add people, change their role and budget, remove them."""


Grants: TypeAlias = Mapping[Permission, Reach]
"""What one person has; a permission that is not there is not given."""

_ADMIN: Final = dict.fromkeys(Permission, Reach.ALL)
_CHILD: Final = dict.fromkeys(
    (
        Permission.MESSAGES_SEND,
        Permission.SESSIONS_READ,
        Permission.MEMORY_READ,
        Permission.MEMORY_WRITE,
        Permission.PROFILE_READ,
        Permission.PROFILE_WRITE,
        Permission.COSTS_VIEW,
    ),
    Reach.OWN,
)
_USER: Final = _CHILD | dict.fromkeys(
    (
        Permission.SESSIONS_WRITE,
        Permission.DEVICES_MANAGE,
        Permission.FILES_READ,
        Permission.FILES_WRITE,
        Permission.COMMANDS_RUN,
        Permission.PLUGINS_RUN,
        Permission.JOBS_MANAGE,
        Permission.APPROVALS_DECIDE,
        Permission.CONFIG_READ,
        Permission.LOGS_READ,
    ),
    Reach.OWN,
)
ROLE_GRANTS: Final[Mapping[Role, Grants]] = MappingProxyType(
    {
        Role.ADMIN: MappingProxyType(_ADMIN),
        Role.USER: MappingProxyType(_USER),
        Role.CHILD: MappingProxyType(_CHILD),
    }
)
"""What each role has where nothing else is configured."""

_BEYOND_A_USER: Final = frozenset(
    {
        Permission.USERS_MANAGE,
        Permission.AUDIT_READ,
        Permission.CONFIG_WRITE,
        Permission.PROVIDERS_MANAGE,
        Permission.WORKSPACE_WRITE,
    }
)
GRANTABLE: Final[Mapping[Role, frozenset[Permission]]] = MappingProxyType(
    {
        Role.ADMIN: frozenset(Permission),
        Role.USER: frozenset(Permission) - _BEYOND_A_USER,
        Role.CHILD: frozenset(_CHILD) | {Permission.FILES_READ, Permission.FILES_WRITE},
    }
)
"""What a role can be given at most, by the configuration or by a person's flags: who needs more has another role."""


class PermissionPolicy:
    """The matrix in force.

    Args:
        configured: what the configuration changes of :data:`ROLE_GRANTS`, by role and permission. Admins always have
            everything, so that nobody locks the house out of its own gateway.

    Raises:
        ValueError: naming the role and the permission: one that does not exist, or more than the role can be given.
    """

    def __init__(self, configured: Mapping[Role, Mapping[str, Reach]] = MappingProxyType({})) -> None:
        self._roles: dict[Role, Grants] = dict(ROLE_GRANTS)
        for role, changes in configured.items():
            self._roles[role] = dict(self._roles[role]) | {
                _checked(role, word, reach): reach for word, reach in changes.items()
            }

    def grants(self, role: Role, flags: Mapping[str, bool] = MappingProxyType({})) -> Grants:
        """What a person of ``role`` has.

        Args:
            flags: of the person: a permission given (for what is the own) or taken. Beyond :data:`GRANTABLE` a flag
                gives nothing, and words of another version mean nothing.
        """
        common = self._roles[role]
        if not flags or role is Role.ADMIN:
            return common
        own = dict(common)
        for word, given in flags.items():
            if word not in _WORDS:
                continue
            permission = Permission(word)
            if not given:
                own[permission] = Reach.NONE
            elif permission in GRANTABLE[role] and own.get(permission, Reach.NONE) is Reach.NONE:
                own[permission] = Reach.OWN
        return own


_WORDS: Final = frozenset(Permission)
DEFAULT_POLICY: Final = PermissionPolicy()
"""The matrix of a gateway that configures none."""


def permits(grants: Grants, permission: str, *, own: bool = True) -> bool:
    """Whether ``grants`` allow it; nobody has a permission that does not exist.

    Args:
        own: whether it is about what belongs to the person, or to nobody; else ``all`` is needed.
    """
    reach = grants.get(Permission(permission), Reach.NONE) if permission in _WORDS else Reach.NONE
    return reach is Reach.ALL or (own and reach is Reach.OWN)


def _checked(role: Role, word: str, reach: Reach) -> Permission:
    if word not in _WORDS:
        raise ValueError(f"permissions.{role}: there is no permission {word!r}; there are: {', '.join(Permission)}")
    permission = Permission(word)
    if role is Role.ADMIN:
        raise ValueError("permissions.admin: admins have every permission")
    if reach is not Reach.NONE and permission not in GRANTABLE[role]:
        raise ValueError(f"permissions.{role}: {word} cannot be given to the role {role}")
    if reach is Reach.ALL and role is Role.CHILD:
        raise ValueError(f"permissions.{role}: {word} reaches no further than {Reach.OWN!s} for a child")
    return permission
