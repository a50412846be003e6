"""People."""

from dataclasses import dataclass

from skynet_memory.database import Database, Row, Statements
from skynet_memory.ids import Role, UserId, new_id, now_ms
from skynet_users.errors import UnknownUser


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    id: UserId
    display_name: str
    role: Role
    created_at_ms: int


class UserStore:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def ensure_owner(self, display_name: str = "Owner") -> User:
        """The first admin, who is made with this name if there is none yet. Idempotent.

        The gateway's own token and password stand for this person.
        """
        user = User(id=UserId(new_id()), display_name=display_name, role=Role.ADMIN, created_at_ms=now_ms())

        def work(tx: Statements) -> User:
            row = tx.fetchone("SELECT * FROM users WHERE role = 'admin' ORDER BY created_at_ms, id LIMIT 1")
            if row is not None:
                return read_user(row)
            _insert(tx, user)
            return user

        return await self._db.write(work)

    async def add(self, display_name: str, role: Role) -> User:
        user = User(id=UserId(new_id()), display_name=display_name, role=role, created_at_ms=now_ms())
        await self._db.write(lambda tx: _insert(tx, user))
        return user

    async def by_id(self, user_id: UserId) -> User | None:
        row = await self._db.fetchone("SELECT * FROM users WHERE id = ?", (user_id,))
        return None if row is None else read_user(row)

    async def get(self, user_id: UserId) -> User:
        """
        Raises:
            UnknownUser: nobody has this id.
        """
        user = await self.by_id(user_id)
        if user is None:
            raise UnknownUser(user_id)
        return user

    async def list(self) -> list[User]:
        """Everybody, in the order they were added."""
        rows = await self._db.fetchall("SELECT * FROM users ORDER BY created_at_ms, id")
        return [read_user(row) for row in rows]

    async def remove(self, user_id: UserId) -> bool:
        """Remove a person with all that is theirs: sessions, transcripts, usage, devices, credentials, identities."""
        return bool(await self._db.write(lambda tx: tx.execute("DELETE FROM users WHERE id = ?", (user_id,))))


def read_user(row: Row) -> User:
    return User(
        id=row["id"], display_name=row["display_name"], role=Role(row["role"]), created_at_ms=row["created_at_ms"]
    )


def _insert(tx: Statements, user: User) -> None:
    tx.execute(
        "INSERT INTO users (id, display_name, role, created_at_ms) VALUES (?, ?, ?, ?)",
        (user.id, user.display_name, user.role, user.created_at_ms),
    )
