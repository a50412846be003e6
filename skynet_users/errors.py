# ruff: noqa: N818 - the names say what happened, as "except UnknownDevice" should read
"""What the users' stores raise for their callers to act on. ``str()`` of the device errors is OpenClaw's text."""


class UnknownUser(LookupError):
    def __init__(self, user_id: str) -> None:
        super().__init__(f"unknown user: {user_id}")


class IdentityTaken(ValueError):
    """The channel identity belongs to another person; only an admin may move it."""

    def __init__(self, channel: str, external_id: str) -> None:
        super().__init__(f"{channel}:{external_id} belongs to another person")
        self.channel = channel
        self.external_id = external_id


class UnknownPairingRequest(LookupError):
    """No such request, or it is older than 5 minutes, or another person's."""

    def __init__(self) -> None:
        super().__init__("unknown requestId")


class UnknownDevice(LookupError):
    """No such device, or another person's."""

    def __init__(self) -> None:
        super().__init__("unknown deviceId")


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
