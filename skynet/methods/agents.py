"""``agents.list`` and ``agent.identity.get``."""

from skynet.gateway.dispatch import method
from skynet_memory.ids import DEFAULT_AGENT
from skynet_protocol.agent import (
    AgentIdentity,
    AgentIdentityParams,
    AgentIdentityResult,
    AgentsListParams,
    AgentsListResult,
    AgentSummary,
)
from skynet_protocol.errors import RequestError
from skynet_protocol.params import invalid_params
from skynet_protocol.session_keys import parse_wire_key
from skynet_users.caller import Caller

MAIN_KEY = "main"


class AgentMethods:
    """The assistant's name and face. There is one agent, ``main``."""

    def __init__(self, name: str) -> None:
        self._name = name

    @method("agents.list")
    def list_agents(self, caller: Caller, params: AgentsListParams) -> AgentsListResult:
        """Every agent; sessions belong to their people (``per-sender``)."""
        return AgentsListResult(
            default_id=DEFAULT_AGENT,
            main_key=MAIN_KEY,
            scope="per-sender",
            agents=[AgentSummary(id=DEFAULT_AGENT, name=self._name, identity=AgentIdentity(name=self._name))],
        )

    @method("agent.identity.get")
    def identity(self, caller: Caller, params: AgentIdentityParams) -> AgentIdentityResult:
        """Who answers in a session, or who an agent is; an agent that is not known has the default's name.

        Raises:
            RequestError: the session key is malformed, or names another agent than ``agentId``.
        """
        asked = params.agent_id.strip().lower()
        agent = asked or DEFAULT_AGENT
        if params.session_key.strip():
            try:
                agent = parse_wire_key(params.session_key).agent_id
            except RequestError as exc:
                raise invalid_params("agent.identity.get", str(exc)) from exc
            if asked and asked != agent:
                raise invalid_params(
                    "agent.identity.get",
                    f'agent "{params.agent_id.strip()}" does not match session key agent "{agent}"',
                )
        return AgentIdentityResult(agent_id=agent, name=self._name, avatar=self._name[0].upper())
