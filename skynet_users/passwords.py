"""Whether somebody has a password; what it is, only ``skynet_users.credentials`` can check."""

from skynet_memory.database import Database
from skynet_memory.ids import UserId


async def has_password(db: Database, owner: UserId) -> bool:
    return await db.fetchone("SELECT 1 FROM credentials WHERE owner = ? AND kind = 'password'", (owner,)) is not None
