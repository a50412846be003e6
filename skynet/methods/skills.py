"""``skills.status``."""

from pathlib import Path

from skynet.gateway.dispatch import method
from skynet_memory.ids import DEFAULT_AGENT
from skynet_protocol.errors import DetailCode, RequestError, shorten
from skynet_protocol.skills import SkillsStatusParams, SkillsStatusResult
from skynet_users.caller import Caller


class SkillMethods:
    """Where skills would be. This version loads none."""

    def __init__(self, *, workspace_dir: Path, managed_dir: Path) -> None:
        self._workspace_dir = workspace_dir
        self._managed_dir = managed_dir

    @method("skills.status")
    def status(self, caller: Caller, params: SkillsStatusParams) -> SkillsStatusResult:
        """The directories skills are read from, and what is in them.

        Raises:
            RequestError: ``unknown agent id "…"``.
        """
        agent = params.agent_id.strip() if params.agent_id else DEFAULT_AGENT
        if agent != DEFAULT_AGENT:
            raise RequestError(f'unknown agent id "{shorten(agent)}"', details={"code": DetailCode.NOT_FOUND})
        return SkillsStatusResult(
            workspace_dir=str(self._workspace_dir), managed_skills_dir=str(self._managed_dir), skills=[]
        )
