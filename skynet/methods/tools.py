"""``tools.catalog``."""

from collections.abc import Awaitable, Callable, Sequence

from skynet.gateway.dispatch import method
from skynet_agent.tools import Tool
from skynet_memory.ids import DEFAULT_AGENT
from skynet_protocol.errors import DetailCode, RequestError, shorten
from skynet_protocol.tools import (
    ToolCatalogEntry,
    ToolCatalogGroup,
    ToolCatalogProfile,
    ToolsCatalogParams,
    ToolsCatalogResult,
)
from skynet_users.caller import Caller

PROFILES = (
    ToolCatalogProfile(id="minimal", label="Minimal"),
    ToolCatalogProfile(id="coding", label="Coding"),
    ToolCatalogProfile(id="messaging", label="Messaging"),
    ToolCatalogProfile(id="full", label="Full"),
)


GROUPS = {"files": "Files", "commands": "Commands", "workspace": "Workspace"}
"""The first part of a tool's permission, and what people call such tools."""


class ToolMethods:
    """What an agent can do.

    Args:
        tools: looks which tools there are now.
    """

    def __init__(self, tools: Callable[[], Awaitable[Sequence[Tool]]]) -> None:
        self._tools = tools

    @method("tools.catalog")
    async def catalog(self, caller: Caller, params: ToolsCatalogParams) -> ToolsCatalogResult:
        """The tools in groups, and the profiles they are switched on by.

        The gateway's own are grouped by what one needs to be allowed for them; each plugin is a group.

        Raises:
            RequestError: ``unknown agent id "…"``.
        """
        agent = params.agent_id.strip() if params.agent_id else DEFAULT_AGENT
        if agent != DEFAULT_AGENT:
            raise RequestError(f'unknown agent id "{shorten(agent)}"', details={"code": DetailCode.NOT_FOUND})
        tools = await self._tools()
        groups = _groups([tool for tool in tools if not tool.plugin])
        if params.include_plugins:
            groups += [_plugin_group(tool) for tool in tools if tool.plugin]
        return ToolsCatalogResult(agent_id=agent, profiles=list(PROFILES), groups=groups)


def _groups(tools: Sequence[Tool]) -> list[ToolCatalogGroup]:
    groups: dict[str, list[ToolCatalogEntry]] = {}
    for tool in tools:
        entry = ToolCatalogEntry(
            id=tool.name,
            label=tool.name,
            description=tool.description,
            source="core",
            default_profiles=["coding", "full"],
        )
        groups.setdefault(tool.permission.partition(".")[0], []).append(entry)
    return [
        ToolCatalogGroup(id=name, label=GROUPS.get(name, name), source="core", tools=entries)
        for name, entries in groups.items()
    ]


def _plugin_group(tool: Tool) -> ToolCatalogGroup:
    entry = ToolCatalogEntry(
        id=tool.name,
        label=tool.name,
        description=tool.description,
        source="plugin",
        default_profiles=[],
        plugin_id=tool.plugin,
    )
    return ToolCatalogGroup(
        id=f"plugin:{tool.plugin}", label=tool.plugin, source="plugin", tools=[entry], plugin_id=tool.plugin
    )
