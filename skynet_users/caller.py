"""Who is calling: the one shape every way of authenticating ends in."""

from dataclasses import dataclass
from typing import Literal

from skynet_memory.ids import ConnId, DeviceId, Role, UserId
from skynet_users.errors import Forbidden
from skynet_users.permissions import DEFAULT_POLICY, Grants, Permission, permits


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A person, as far as one connection or one request proved."""

    user_id: UserId
    role: Role
    """The person's role; the connection's is ``gateway_role``."""
    scopes: frozenset[str]
    """Scopes granted to this connection or request: the requested ones, cut to what the person's role allows."""
    correlation_id: str
    """Goes through every log line and every internal error of this request."""
    display_name: str = ""
    """The person's name, for people and the prompt."""
    gateway_role: Literal["operator", "node"] = "operator"
    conn_id: ConnId | None = None
    """None for HTTP requests and jobs."""
    client_id: str = ""
    """``connect.client.id``, or ``http``."""
    client_name: str = ""
    """What the client calls itself, for people; its id if it has no name."""
    client_mode: str = ""
    device_id: DeviceId | None = None
    local: bool = False
    """The call came over loopback, without forwarding headers."""
    grants: Grants | None = None
    """What the person may do; None for what the role has by default."""
    credential_id: str = ""
    """The personal token that was shown; empty for everything else."""
    expires_at_ms: int | None = None
    """When that token ends, and the connection with it."""

    def may(self, permission: Permission, owner: UserId | None = None) -> bool:
        """Whether the person may do it: with what is ``owner``'s, or with the own if that is None."""
        grants = DEFAULT_POLICY.grants(self.role) if self.grants is None else self.grants
        return permits(grants, permission, own=owner is None or owner == self.user_id)

    def require(self, permission: Permission, owner: UserId | None = None) -> None:
        """
        Raises:
            Forbidden: the person may not.
        """
        if not self.may(permission, owner):
            raise Forbidden(permission)
