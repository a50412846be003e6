"""``tools.catalog``."""

from skynet.gateway.dispatch import method
from skynet_memory.ids import DEFAULT_AGENT
from skynet_protocol.errors import DetailCode, RequestError, shorten
from skynet_protocol.tools import ToolCatalogProfile, ToolsCatalogParams, ToolsCatalogResult
from skynet_users.caller import Caller

PROFILES = (
    ToolCatalogProfile(id="minimal", label="Minimal"),
    ToolCatalogProfile(id="coding", label="Coding"),
    ToolCatalogProfile(id="messaging", label="Messaging"),
    ToolCatalogProfile(id="full", label="Full"),
)


class ToolMethods:
    """What an agent can do. This version's assistant has no tools."""

    @method("tools.catalog")
    def catalog(self, caller: Caller, params: ToolsCatalogParams) -> ToolsCatalogResult:
        """The tools in groups, and the profiles they are switched on by.

        Raises:
            RequestError: ``unknown agent id "…"``.
        """
        agent = params.agent_id.strip() if params.agent_id else DEFAULT_AGENT
        if agent != DEFAULT_AGENT:
            raise RequestError(f'unknown agent id "{shorten(agent)}"', details={"code": DetailCode.NOT_FOUND})
        return ToolsCatalogResult(agent_id=agent, profiles=list(PROFILES), groups=[])
