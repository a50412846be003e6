# ruff: noqa: N818 - the names say what happened, as "except UnknownDevice" should read
"""What the users' stores raise for their callers to act on. ``str()`` of the device errors is OpenClaw's text."""

from typing import Final, Literal


class UnknownUser(LookupError):
    def __init__(self, user_id: str) -> None:
        super().__init__(f"unknown user: {user_id}")


class AmbiguousUser(LookupError):
    """Several people are called so; an id names one."""

    def __init__(self, name: str) -> None:
        super().__init__(f"several people are called so, use an id: {name}")


class InvalidProfile(ValueError):
    """``field`` names what is wrong, ``str()`` says what is allowed."""

    def __init__(self, field: str, allowed: str) -> None:
        super().__init__(f"{field}: {allowed}")
        self.field = field


class LastAdmin(Exception):
    """Without this person nobody could administer the gateway any more."""

    def __init__(self) -> None:
        super().__init__("the last enabled admin can be neither removed, disabled nor given another role")


class IdentityTaken(ValueError):
    """The channel identity belongs to another person; only an admin may move it."""

    def __init__(self, channel: str, external_id: str) -> None:
        super().__init__(f"{channel}:{external_id} belongs to another person")
        self.channel = channel
        self.external_id = external_id


class LinkRefused(Exception):
    """A link code did not link. ``str()`` is for the person who sent it."""

    def __init__(self, reason: Literal["too_many_tries", "unknown_code", "same_identity", "taken"]) -> None:
        super().__init__(_LINK_REFUSALS[reason])
        self.reason = reason


_LINK_REFUSALS: Final = {
    "too_many_tries": "Too many wrong codes; try again in an hour.",
    "unknown_code": "This code is wrong or has expired; ask for a new one.",
    "same_identity": "Send this code from the account that you want to add.",
    "taken": "This account belongs to somebody already; only an administrator can move it.",
}


class UnknownApproval(LookupError):
    """No such question, or not one of this person's."""

    def __init__(self, approval_id: str) -> None:
        super().__init__(f"unknown approval: {approval_id}")


class NotPending(Exception):
    """The question has been decided already, or waited too long; ``status`` says which."""

    def __init__(self, status: str) -> None:
        super().__init__(f"the request is not pending, it is {status}")
        self.status = status


class OwnRequest(Exception):
    """Nobody decides about what they asked for themselves."""

    def __init__(self) -> None:
        super().__init__("somebody else has to decide about this request")


class TooManyPending(Exception):
    """So many questions of this person wait already, or so many strangers do."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} requests are waiting already")
        self.limit = limit


class UnknownGroup(LookupError):
    """No such group, or not one of this person's."""

    def __init__(self, group_id: str) -> None:
        super().__init__(f"unknown group: {group_id}")


class GroupInactive(Exception):
    """The group was deactivated: it keeps what it has and takes no messages."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the group {name} is not active")


class UnknownPairingRequest(LookupError):
    """No such request, or it is older than 5 minutes, or another person's."""

    def __init__(self) -> None:
        super().__init__("unknown requestId")


class UnknownDevice(LookupError):
    """No such device, or another person's."""

    def __init__(self) -> None:
        super().__init__("unknown deviceId")


class UnknownNode(LookupError):
    """No such node, or another person's."""

    def __init__(self) -> None:
        super().__init__("unknown nodeId")


class UnknownDeviceRole(LookupError):
    """No such device, not paired for that role, or asked for more scopes than were approved."""

    def __init__(self) -> None:
        super().__init__("unknown deviceId/role")


class BeyondOwnScopes(Exception):
    """Somebody would give a device more than the own connection may do; ``scope`` is what that one lacks."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"missing scope: {scope}")
        self.scope = scope


class Forbidden(Exception):
    """The person lacks a permission. ``str()`` names it and nothing else: not whose thing it was."""

    def __init__(self, permission: str) -> None:
        super().__init__(f"not permitted: {permission}")
        self.permission = permission
