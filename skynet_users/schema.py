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


MIGRATIONS: Final = (m001_people, m002_devices)
COMPONENT: Final = Component("users", MIGRATIONS)
