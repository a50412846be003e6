"""What confines commands: one interface, and the programs that it is made with."""

from skynet_terminal.sandbox.base import HOME_INSIDE, PATH, SANDBOX_UID, Launch, Limits, Mount, Profile, Sandbox

__all__ = ["HOME_INSIDE", "PATH", "SANDBOX_UID", "Launch", "Limits", "Mount", "Profile", "Sandbox"]
