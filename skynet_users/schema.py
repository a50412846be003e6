"""Tables of people: who they are, how they prove it, and the devices they paired."""

from typing import Final

from skynet_memory.database import Transaction
from skynet_memory.migrations import Component


async def m001_people(tx: Transaction) -> None:
    """Everything personal refers to ``users`` with ON DELETE CASCADE, so removing a person removes all of theirs."""
    await tx.execute(
        """
        CREATE TABLE users (
            id TEXT NOT NULL PRIMARY KEY,
            display_name TEXT NOT NULL,
            role TEXT NOT NULL CHECK (role IN ('admin', 'user', 'child')),
            created_at_ms INTEGER NOT NULL
        ) STRICT
        """
    )
    await tx.execute(
        """
        CREATE TABLE identities (
            channel TEXT NOT NULL,
            external_id TEXT NOT NULL,
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            display_name TEXT NOT NULL,
            linked_at_ms INTEGER NOT NULL,
            PRIMARY KEY (channel, external_id)
        ) STRICT, WITHOUT ROWID
        """
    )
    await tx.execute("CREATE INDEX identities_owner ON identities(owner)")
    await tx.execute(
        """
        CREATE TABLE credentials (
            id TEXT NOT NULL PRIMARY KEY,
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            kind TEXT NOT NULL CHECK (kind IN ('password', 'token')),
            name TEXT NOT NULL,
            hash TEXT NOT NULL,
            created_at_ms INTEGER NOT NULL,
            last_used_at_ms INTEGER
        ) STRICT
        """
    )
    await tx.execute("CREATE UNIQUE INDEX credentials_one_password ON credentials(owner) WHERE kind = 'password'")
    await tx.execute("CREATE UNIQUE INDEX credentials_token ON credentials(hash) WHERE kind = 'token'")
    await tx.execute("CREATE INDEX credentials_owner ON credentials(owner)")


async def m002_devices(tx: Transaction) -> None:
    """A device belongs to the person who was authenticated when it was paired; its id is the hash of its key.

    Tokens are kept readable, because hello-ok has to return the same token at every connect (OPENCLAW-V3 3.2).
    """
    await tx.execute(
        """
        CREATE TABLE devices (
            id TEXT NOT NULL PRIMARY KEY,
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            public_key TEXT NOT NULL,
            display_name TEXT NOT NULL,
            platform TEXT NOT NULL,
            device_family TEXT NOT NULL,
            client_id TEXT NOT NULL,
            client_mode TEXT NOT NULL,
            role TEXT NOT NULL,
            roles TEXT NOT NULL,
            scopes TEXT NOT NULL,
            remote_ip TEXT NOT NULL,
            created_at_ms INTEGER NOT NULL,
            approved_at_ms INTEGER NOT NULL
        ) STRICT
        """
    )
    await tx.execute("CREATE INDEX devices_owner ON devices(owner, approved_at_ms)")
    await tx.execute(
        """
        CREATE TABLE device_tokens (
            device_id TEXT NOT NULL REFERENCES devices(id) ON DELETE CASCADE,
            role TEXT NOT NULL,
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            token TEXT NOT NULL,
            scopes TEXT NOT NULL,
            created_at_ms INTEGER NOT NULL,
            rotated_at_ms INTEGER,
            revoked_at_ms INTEGER,
            last_used_at_ms INTEGER,
            PRIMARY KEY (device_id, role)
        ) STRICT, WITHOUT ROWID
        """
    )
    await tx.execute("CREATE INDEX device_tokens_owner ON device_tokens(owner)")
    await tx.execute(
        """
        CREATE TABLE device_pairing_requests (
            id TEXT NOT NULL PRIMARY KEY,
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            device_id TEXT NOT NULL,
            public_key TEXT NOT NULL,
            display_name TEXT NOT NULL,
            platform TEXT NOT NULL,
            device_family TEXT NOT NULL,
            client_id TEXT NOT NULL,
            client_mode TEXT NOT NULL,
            role TEXT NOT NULL,
            roles TEXT NOT NULL,
            scopes TEXT NOT NULL,
            remote_ip TEXT NOT NULL,
            silent INTEGER NOT NULL CHECK (silent IN (0, 1)),
            is_repair INTEGER NOT NULL CHECK (is_repair IN (0, 1)),
            requested_at_ms INTEGER NOT NULL,
            UNIQUE (owner, device_id)
        ) STRICT
        """
    )


async def m003_profiles(tx: Transaction) -> None:
    """How each person wants to be answered, and what they may use. Children that exist are filtered strictly."""
    for column in (
        "language TEXT NOT NULL DEFAULT ''",
        "tone TEXT NOT NULL DEFAULT ''",
        "interests TEXT NOT NULL DEFAULT '[]' CHECK (json_type(interests) = 'array')",
        "age INTEGER CHECK (age BETWEEN 0 AND 150)",
        "time_zone TEXT NOT NULL DEFAULT ''",
        "content_filter TEXT NOT NULL DEFAULT 'moderate' CHECK (content_filter IN ('off', 'moderate', 'strict'))",
        "requires_approval INTEGER NOT NULL DEFAULT 0 CHECK (requires_approval IN (0, 1))",
        "flags TEXT NOT NULL DEFAULT '{}' CHECK (json_type(flags) = 'object')",
        "quiet_hours TEXT NOT NULL DEFAULT ''",
        "allowed_hours TEXT NOT NULL DEFAULT ''",
        "needs_welcome INTEGER NOT NULL DEFAULT 0 CHECK (needs_welcome IN (0, 1))",
        "disabled INTEGER NOT NULL DEFAULT 0 CHECK (disabled IN (0, 1))",
        "daily_tokens INTEGER CHECK (daily_tokens >= 0)",
        "monthly_tokens INTEGER CHECK (monthly_tokens >= 0)",
        "daily_microusd INTEGER CHECK (daily_microusd >= 0)",
        "monthly_microusd INTEGER CHECK (monthly_microusd >= 0)",
        "kind TEXT NOT NULL DEFAULT 'person' CHECK (kind = 'person' OR (kind = 'group' AND role = 'user'))",
        "auto_created INTEGER NOT NULL DEFAULT 0 CHECK (auto_created IN (0, 1))",
    ):
        await tx.execute(f"ALTER TABLE users ADD COLUMN {column}")
    await tx.execute("UPDATE users SET content_filter = 'strict' WHERE role = 'child'")


async def m004_linked_identities(tx: Transaction) -> None:
    """Who linked an identity, and whether it was proven. Those that exist were linked by hand."""
    await tx.execute("ALTER TABLE identities ADD COLUMN verified INTEGER NOT NULL DEFAULT 1 CHECK (verified IN (0, 1))")
    await tx.execute("ALTER TABLE identities ADD COLUMN linked_by TEXT REFERENCES users(id) ON DELETE SET NULL")
    await tx.execute("CREATE INDEX identities_linked_by ON identities(linked_by)")


async def m005_limited_tokens(tx: Transaction) -> None:
    """A token may have fewer scopes than its person's role (NULL: no fewer), and an end (NULL: none)."""
    await tx.execute("ALTER TABLE credentials ADD COLUMN scopes TEXT CHECK (json_type(scopes) = 'array')")
    await tx.execute("ALTER TABLE credentials ADD COLUMN expires_at_ms INTEGER")


async def m006_approvals(tx: Transaction) -> None:
    """Questions to those who decide. ``owner`` is who asks; a registration has none until it made a person.

    A tool call is approved for exactly the arguments of ``arguments_hash``. Nobody decides about the own question.
    """
    await tx.execute(
        """
        CREATE TABLE approvals (
            id TEXT NOT NULL PRIMARY KEY,
            kind TEXT NOT NULL CHECK (kind IN ('registration', 'tool_call', 'request')),
            owner TEXT REFERENCES users(id) ON DELETE CASCADE,
            channel TEXT,
            external_id TEXT,
            subject TEXT NOT NULL CHECK (json_type(subject) = 'object'),
            arguments_hash TEXT NOT NULL,
            summary TEXT NOT NULL,
            status TEXT NOT NULL CHECK (status IN ('pending', 'approved', 'denied', 'expired', 'used')),
            created_at_ms INTEGER NOT NULL,
            expires_at_ms INTEGER NOT NULL,
            decided_by TEXT REFERENCES users(id) ON DELETE SET NULL,
            decided_at_ms INTEGER,
            used_at_ms INTEGER,
            reason TEXT NOT NULL DEFAULT '',
            CHECK (decided_by <> owner OR kind = 'registration'),
            CHECK (owner IS NOT NULL OR kind = 'registration'),
            CHECK ((channel IS NOT NULL AND external_id IS NOT NULL) = (kind = 'registration'))
        ) STRICT
        """
    )
    await tx.execute(
        "CREATE UNIQUE INDEX approvals_open ON approvals(owner, kind, arguments_hash)"
        " WHERE status = 'pending' AND kind <> 'registration'"
    )
    await tx.execute(
        "CREATE UNIQUE INDEX approvals_open_registration ON approvals(channel, external_id)"
        " WHERE status = 'pending' AND kind = 'registration'"
    )
    await tx.execute(
        "CREATE INDEX approvals_identity ON approvals(channel, external_id, id) WHERE kind = 'registration'"
    )
    await tx.execute("CREATE INDEX approvals_owner ON approvals(owner, status)")
    await tx.execute("CREATE INDEX approvals_recent ON approvals(created_at_ms, id)")
    await tx.execute("CREATE INDEX approvals_status ON approvals(status, expires_at_ms)")
    await tx.execute("CREATE INDEX approvals_decided_by ON approvals(decided_by)")


async def m007_link_codes(tx: Transaction) -> None:
    """One code a person, by which another identity of theirs proves itself; only its hash is kept."""
    await tx.execute(
        """
        CREATE TABLE link_codes (
            owner TEXT NOT NULL PRIMARY KEY REFERENCES users(id) ON DELETE CASCADE,
            hash TEXT NOT NULL UNIQUE,
            from_channel TEXT NOT NULL,
            from_external_id TEXT NOT NULL,
            expires_at_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID
        """
    )


async def m008_groups(tx: Transaction) -> None:
    """A group is a row of ``users``, so that it can own sessions, memories and usage, and this row beside it.

    Rooms of one's own have the channel ''. ``owner`` is the group itself; of a membership, the member.
    """
    await tx.execute(
        """
        CREATE TABLE groups (
            owner TEXT NOT NULL PRIMARY KEY REFERENCES users(id) ON DELETE CASCADE,
            channel TEXT NOT NULL,
            external_id TEXT NOT NULL,
            active INTEGER NOT NULL DEFAULT 1 CHECK (active IN (0, 1)),
            history TEXT NOT NULL CHECK (history IN ('from_join', 'all')),
            created_by TEXT REFERENCES users(id) ON DELETE SET NULL
        ) STRICT, WITHOUT ROWID
        """
    )
    await tx.execute("CREATE UNIQUE INDEX groups_channel ON groups(channel, external_id) WHERE channel <> ''")
    await tx.execute("CREATE INDEX groups_created_by ON groups(created_by)")
    await tx.execute(
        """
        CREATE TABLE group_members (
            group_id TEXT NOT NULL REFERENCES groups(owner) ON DELETE CASCADE,
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            joined_at_ms INTEGER NOT NULL,
            PRIMARY KEY (group_id, owner)
        ) STRICT, WITHOUT ROWID
        """
    )
    await tx.execute("CREATE INDEX group_members_owner ON group_members(owner)")


async def m009_guardians(tx: Transaction) -> None:
    """Who looks after which child (``owner``)."""
    await tx.execute(
        """
        CREATE TABLE guardians (
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            guardian TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            reads_transcripts INTEGER NOT NULL CHECK (reads_transcripts IN (0, 1)),
            PRIMARY KEY (owner, guardian),
            CHECK (owner <> guardian)
        ) STRICT, WITHOUT ROWID
        """
    )
    await tx.execute("CREATE INDEX guardians_guardian ON guardians(guardian)")


async def m010_put_out(tx: Transaction) -> None:
    """Whom somebody else took out of a group: who knows its id does not come back in by that alone."""
    await tx.execute(
        """
        CREATE TABLE group_exclusions (
            group_id TEXT NOT NULL REFERENCES groups(owner) ON DELETE CASCADE,
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            PRIMARY KEY (group_id, owner)
        ) STRICT, WITHOUT ROWID
        """
    )
    await tx.execute("CREATE INDEX group_exclusions_owner ON group_exclusions(owner)")


MIGRATIONS: Final = (
    m001_people,
    m002_devices,
    m003_profiles,
    m004_linked_identities,
    m005_limited_tokens,
    m006_approvals,
    m007_link_codes,
    m008_groups,
    m009_guardians,
    m010_put_out,
)
COMPONENT: Final = Component("users", MIGRATIONS)
