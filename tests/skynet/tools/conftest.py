"""A home with two people, and a toolbox that works in it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from skynet.gateway.command_desk import CommandDesk
from skynet.places import Places
from skynet.tools import Remembered, built_in_tools
from skynet_agent.messages import ImageBlock, TextBlock, ToolCallBlock
from skynet_agent.tools import Toolbox, ToolContext
from skynet_agent.workspace import Workspace
from skynet_memory.database import Database
from skynet_memory.ids import Role, RunId, SessionKey, UserId
from skynet_memory.knowledge import KnowledgeStore
from skynet_memory.memories import MemoryStore
from skynet_memory.memories_schema import COMPONENT as MEMORY_TABLES
from skynet_memory.migrations import migrate
from skynet_memory.schema import COMPONENT as SESSION_TABLES
from skynet_memory.search import TranscriptSearch
from skynet_memory.search_schema import COMPONENT as SEARCH_TABLES
from skynet_users.schema import COMPONENT as USER_TABLES

ADA = ToolContext(
    user_id=UserId("ada"), role=Role.USER, session_key=SessionKey("user:ada:agent:main:main"), run_id=RunId("run")
)
ELSEWHERE = replace(ADA, session_key=SessionKey("user:ada:agent:main:other"))
BOB = replace(ADA, user_id=UserId("bob"), session_key=SessionKey("user:bob:agent:main:main"))
ADMIN = replace(ADA, user_id=UserId("root"), role=Role.ADMIN, session_key=SessionKey("user:root:agent:main:main"))


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    is_error: bool
    images: list[ImageBlock]


@dataclass(slots=True)
class World:
    home: Path
    workspace: Workspace
    places: Places
    toolbox: Toolbox
    database: Database
    remembered: Remembered
    recorded: list[dict[str, object]] = field(default_factory=list)
    """What was written down of who did what."""

    def folder(self, context: ToolContext = ADA) -> Path:
        """A person's own, which the first call makes."""
        directory = self.home / "users" / context.user_id / "files"
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    async def call(self, tool: str, context: ToolContext = ADA, **arguments: object) -> Answer:
        result = await self.toolbox.run(ToolCallBlock("call", tool, arguments), context)
        return Answer(
            text="".join(block.text for block in result.content if isinstance(block, TextBlock)),
            is_error=result.is_error,
            images=[block for block in result.content if isinstance(block, ImageBlock)],
        )

    async def fails(self, tool: str, context: ToolContext = ADA, **arguments: object) -> str:
        answer = await self.call(tool, context, **arguments)
        assert answer.is_error, answer.text
        assert str(self.home) not in answer.text
        return answer.text

    async def does(self, tool: str, context: ToolContext = ADA, **arguments: object) -> str:
        answer = await self.call(tool, context, **arguments)
        assert not answer.is_error, answer.text
        return answer.text


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A root that admins have beside their folder."""
    directory = tmp_path / "shared"
    directory.mkdir()
    return directory


@pytest.fixture
def world(tmp_path: Path, shared: Path) -> World:
    home = tmp_path / "home"
    workspace = Workspace(home, workspace_dir=home / "workspace")
    places = Places(
        lambda context: home / "users" / context.user_id / "files",
        roots=[shared, tmp_path, home / "workspace"],
        sealed=[home],
        protected=workspace.protects,
    )
    recorded: list[dict[str, object]] = []

    async def record(action: str, **fields: object) -> None:
        recorded.append({"action": action, **fields})

    database = Database(tmp_path / "skynet.db")
    remembered = Remembered(
        memories=MemoryStore(database),
        knowledge=KnowledgeStore(database),
        history=TranscriptSearch(database),
        record=record,
    )
    tools = built_in_tools(
        places=places, workspace=workspace, commands=cast(CommandDesk, object()), remembered=remembered
    )
    toolbox = Toolbox(tools, permits=lambda context, tool: None)
    return World(home, workspace, places, toolbox, database, remembered, recorded)


@pytest.fixture
async def database(world: World) -> AsyncIterator[Database]:
    """The world's, open and with the people in it."""
    async with world.database as db:
        await migrate(db, [USER_TABLES, SESSION_TABLES, SEARCH_TABLES, MEMORY_TABLES])
        for person in (ADA, BOB):
            await db.write(
                lambda tx, person=person: tx.execute(
                    "INSERT INTO users (id, display_name, role, created_at_ms) VALUES (?, ?, 'user', 0)",
                    (person.user_id, person.user_id),
                )
            )
        yield db
