"""The tools of the gateway itself, every one of them."""

from collections.abc import Sequence

from skynet.places import Places
from skynet.tools.commands import CommandPort, CommandTools
from skynet.tools.files import FileTools
from skynet.tools.search import SearchTools
from skynet.tools.workspace import WorkspaceTools
from skynet_agent.tools import Tool
from skynet_agent.workspace import Workspace


def built_in_tools(*, places: Places, workspace: Workspace, commands: CommandPort | None = None) -> Sequence[Tool]:
    """The tools, always in this order: a provider's prompt cache begins with them.

    Args:
        commands: who runs commands; without one there are no tools for it.
    """
    return (
        *FileTools(places).tools(),
        *SearchTools(places).tools(),
        *CommandTools(commands, places).tools(),
        *WorkspaceTools(workspace).tools(),
    )
