"""Which agent, model and session a chat completion means (OPENCLAW-V3 10.2)."""

from collections.abc import Mapping
from dataclasses import dataclass

from skynet.gateway.keys import key_part, resolve_key
from skynet.http.errors import invalid
from skynet_memory.ids import DEFAULT_AGENT, SessionKey, new_id
from skynet_protocol.session_keys import is_agent_id
from skynet_users.caller import Caller

ASSISTANT_MODELS = ("skynet", "openclaw")
"""Model names that mean: whatever this gateway answers with by default."""

_AGENT_HEADERS = ("x-openclaw-agent-id", "x-openclaw-agent")
_AGENT_PREFIXES = ("openclaw:", "openclaw/", "skynet:", "skynet/", "agent:")
_SESSION_HEADER = "x-openclaw-session-key"


@dataclass(frozen=True, slots=True)
class Target:
    """``model`` is empty for the default one."""

    agent: str
    model: str


def target_of(model: str, headers: Mapping[str, str]) -> Target:
    """The agent that the headers or the model name choose, and the model.

    Raises:
        HttpError: 400, the agent id is not one.
    """
    named, wanted = agent_of_model(model), model
    if named is not None or model.lower() in ASSISTANT_MODELS:
        wanted = ""
    for header in _AGENT_HEADERS:
        if value := headers.get(header, "").strip():
            return Target(_agent_id(value, header), wanted)
    return Target(DEFAULT_AGENT if named is None else _agent_id(named, "model"), wanted)


def agent_of_model(model: str) -> str | None:
    """The agent that a model name like ``openclaw:main`` names; None if it is the name of a model."""
    for prefix in _AGENT_PREFIXES:
        if model.lower().startswith(prefix):
            return model[len(prefix) :]
    return None


def _agent_id(text: str, param: str) -> str:
    agent = text.strip().lower()
    if not is_agent_id(agent):
        raise invalid(f"{param}: not an agent id; expected [a-z0-9][a-z0-9_-]{{0,63}}", param)
    return agent


def session_of(caller: Caller, agent: str, headers: Mapping[str, str], user: str) -> SessionKey:
    """The session of the request: the one a header names, the one of ``user``, or a new one.

    Raises:
        RequestError, InvalidSessionKey: a malformed key.
        SessionNotFound: somebody else's.
    """
    if named := headers.get(_SESSION_HEADER, "").strip():
        if agent != DEFAULT_AGENT and not named.lower().startswith(("agent:", "user:")):
            named = f"agent:{agent}:{named}"
        return resolve_key(caller, named)
    name = f"openai-user:{key_part(user)}" if user else f"openai:{new_id()}"
    return resolve_key(caller, f"agent:{agent}:{name}")


def origin_of(headers: Mapping[str, str], user: str) -> dict[str, str]:
    """Where the session comes from, for lists of sessions. One that a header names keeps the origin that it has."""
    if headers.get(_SESSION_HEADER, "").strip():
        return {}
    return {"label": user or "OpenAI API", "provider": "openai", "surface": "http"}
