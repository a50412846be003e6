"""What confines commands: one interface, and the programs that it is made with."""

from skynet_terminal.sandbox.base import PATH, SANDBOX_UID, WORK, Launch, Limits, Mount, Profile, Sandbox

__all__ = ["PATH", "SANDBOX_UID", "WORK", "Launch", "Limits", "Mount", "Profile", "Sandbox"]
