"""All tables of the gateway, in the order in which they are made: later ones refer to earlier ones."""

from collections.abc import Sequence
from typing import Final

from skynet_memory.compactions_schema import COMPONENT as COMPACTIONS
from skynet_memory.memories_schema import COMPONENT as MEMORIES
from skynet_memory.migrations import Component
from skynet_memory.schema import COMPONENT as SESSIONS
from skynet_memory.search_schema import COMPONENT as SEARCH
from skynet_memory.usage_schema import COMPONENT as USAGE
from skynet_terminal.jobs_schema import COMPONENT as JOBS
from skynet_users.audit_schema import COMPONENT as AUDIT
from skynet_users.command_grants_schema import COMPONENT as COMMAND_GRANTS
from skynet_users.nodes_schema import COMPONENT as NODES
from skynet_users.schema import COMPONENT as PEOPLE

TABLES: Final[Sequence[Component]] = (
    PEOPLE,
    AUDIT,
    SESSIONS,
    USAGE,
    COMPACTIONS,
    SEARCH,
    MEMORIES,
    NODES,
    COMMAND_GRANTS,
    JOBS,
)
