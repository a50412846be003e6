"""The tools of the gateway itself, every one of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from skynet.gateway.approvals import Record
from skynet.gateway.command_desk import CommandDesk
from skynet.places import Places
from skynet.tools.commands import CommandTools
from skynet.tools.files import FileTools
from skynet.tools.history import HistoryTools
from skynet.tools.knowledge import KnowledgeTools
from skynet.tools.memory import MemoryTools
from skynet.tools.search import SearchTools
from skynet.tools.workspace import WorkspaceTools
from skynet_agent.tools import Tool
from skynet_agent.workspace import Workspace
from skynet_memory.knowledge import KnowledgeStore
from skynet_memory.memories import MemoryStore
from skynet_memory.search import TranscriptSearch


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What the gateway keeps of people, for the tools that look into it. ``record`` is told of what is erased."""

    memories: MemoryStore
    knowledge: KnowledgeStore
    history: TranscriptSearch
    record: Record


def built_in_tools(
    *,
    places: Places,
    workspace: Workspace,
    commands: CommandDesk | None = None,
    remembered: Remembered | None = None,
) -> Sequence[Tool]:
    """The tools, always in this order: a provider's prompt cache begins with them.

    Args:
        commands: where commands are run; without it there are no tools for it.
        remembered: without it there are no tools for memory, history and knowledge.
    """
    return (
        *FileTools(places).tools(),
        *SearchTools(places).tools(),
        *CommandTools(commands).tools(),
        *WorkspaceTools(workspace).tools(),
        *(() if remembered is None else _remembering(remembered)),
    )


def _remembering(remembered: Remembered) -> Sequence[Tool]:
    return (
        *MemoryTools(remembered.memories, record=remembered.record).tools(),
        *HistoryTools(remembered.history).tools(),
        *KnowledgeTools(remembered.knowledge).tools(),
    )
