"""The methods about people over a world: real stores, a real audit log, a ledger that read the real usage."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

import msgspec

from skynet.config import load_config
from skynet.gateway.approvals import Approvals
from skynet.gateway.authorize import authorize_method
from skynet.gateway.budgets import limits_reader, loader
from skynet.gateway.dispatch import Dispatcher, collect
from skynet.gateway.errors import error_shape
from skynet.gateway.exec_approvals import ExecApprovals
from skynet.gateway.exec_file import ExecFile
from skynet.gateway.people_commands import PeopleCommands
from skynet.methods.approvals import ApprovalMethods
from skynet.methods.exec_approvals import ExecRequestMethods
from skynet.methods.groups import GroupMethods
from skynet.methods.identities import IdentityMethods
from skynet.methods.users import UserMethods
from skynet.tables import TABLES
from skynet_memory.ids import Role, UserId, now_ms
from skynet_memory.migrations import migrate
from skynet_users.approvals import Approval, ApprovalStore
from skynet_users.audit import AuditLog
from skynet_users.budgets import Ledger, Limits
from skynet_users.caller import Caller
from skynet_users.command_grants import CommandGrantStore
from skynet_users.credentials import CredentialStore
from skynet_users.errors import Forbidden
from skynet_users.groups import GroupStore
from skynet_users.guardians import GuardianStore
from skynet_users.identities import IdentityStore
from skynet_users.links import LinkCodes
from skynet_users.people import User
from skynet_users.permissions import PermissionPolicy
from skynet_users.resolver import UserResolver
from tests.skynet.methods.world import RefusedError, World, caller_of, open_world

THEMSELVES: Final[Mapping[Role, Literal["self", "admin"]]] = {Role.ADMIN: "self", Role.USER: "self"}
"""Who is asked about commands: everybody about their own."""


@dataclass
class Clock:
    """The time, which tests move on."""

    now_ms: int = field(default_factory=now_ms)

    def __call__(self) -> int:
        return self.now_ms


@dataclass
class People:
    """``guardian`` is a grown-up user who looks after the child."""

    world: World
    clock: Clock
    credentials: CredentialStore
    identities: IdentityStore
    guardians: GuardianStore
    groups: GroupStore
    links: LinkCodes
    store: ApprovalStore
    approvals: Approvals
    exec_approvals: ExecApprovals
    commands: PeopleCommands
    resolver: UserResolver
    audit: AuditLog
    policy: PermissionPolicy
    guardian: Caller
    changed: list[UserId] = field(default_factory=list)
    revoked: list[str] = field(default_factory=list)
    registered: list[tuple[Approval, User]] = field(default_factory=list)
    decided: list[Approval] = field(default_factory=list)

    async def call(self, caller: Caller, method: str, params: Any = None) -> Any:
        """As a connection does: the permission first, then as :meth:`World.call`."""
        try:
            authorize_method(caller, method)
        except Forbidden as exc:
            raise RefusedError(msgspec.to_builtins(error_shape(exc, caller))) from exc
        return await self.world.call(caller, method, params)

    async def user(self, caller: Caller) -> User:
        return await self.world.users.get(caller.user_id)

    async def caller(self, user_id: UserId, **fields: Any) -> Caller:
        """Somebody as a new connection would let them in."""
        user = await self.world.users.get(user_id)
        grants = self.policy.grants(user.role, user.flags)
        return caller_of(user.id, user.role, display_name=user.display_name, grants=grants, **fields)

    async def actions(self) -> list[tuple[str, str, str]]:
        """What the audit log has: action, actor, subject; oldest first."""
        return [(entry.action, entry.actor, entry.subject) for entry in reversed(await self.audit.list(200))]


@asynccontextmanager
async def open_people(
    home: Path, *, wait_s: float = 60.0, approver: Mapping[Role, Literal["self", "admin"]] = THEMSELVES
) -> AsyncIterator[People]:
    async with open_world(home) as world:
        await migrate(world.db, TABLES)
        clock, policy = Clock(), PermissionPolicy()
        credentials, identities, guardians = CredentialStore(world.db), IdentityStore(world.db), GuardianStore(world.db)
        groups = GroupStore(world.db)
        links, store, audit = LinkCodes(world.db), ApprovalStore(world.db), AuditLog(world.db)
        changed: list[UserId] = []
        revoked: list[str] = []
        removed: list[UserId] = []
        registered: list[tuple[Approval, User]] = []
        decided: list[Approval] = []

        async def on_changed(user_id: UserId) -> None:
            changed.append(user_id)

        async def on_revoked(credential_id: str) -> None:
            revoked.append(credential_id)

        async def on_removed(user_id: UserId) -> None:
            removed.append(user_id)

        async def on_registered(approval: Approval, user: User) -> None:
            registered.append((approval, user))

        ledger = Ledger(
            loader(world.usage),
            limits_reader(
                world.users.by_id, load_config(None, env={"SKYNET_HOME": str(home)}).budgets, ZoneInfo("UTC")
            ),
            Limits(daily_tokens=1_000_000),
            ZoneInfo("UTC"),
            lambda warning: None,
            clock,
        )
        approvals = Approvals(
            store,
            users=world.users,
            guardians=guardians,
            policy=policy,
            broadcaster=world.broadcaster,
            events=world.events,
            record=audit.record,
            registered=on_registered,
            decided=decided.append,
            wait_s=wait_s,
            clock=clock,
        )
        exec_approvals = ExecApprovals(
            ExecFile(home / "exec-approvals.json"),
            CommandGrantStore(world.db),
            people=world.users.by_id,
            users=world.users,
            guardians=guardians,
            policy=policy,
            broadcaster=world.broadcaster,
            events=world.events,
            record=audit.record,
            approver=approver,
            wait_s=wait_s,
            clock=clock,
        )
        commands = PeopleCommands(
            approvals=approvals,
            exec_approvals=exec_approvals,
            links=links,
            ledger=ledger,
            record=audit.record,
            clock=clock,
        )
        table = collect(
            UserMethods(
                world.users,
                credentials=credentials,
                identities=identities,
                guardians=guardians,
                policy=policy,
                ledger=ledger,
                changed=on_changed,
                revoked=on_revoked,
                removed=on_removed,
                record=audit.record,
                clock=clock,
            ),
            IdentityMethods(identities, links=links, record=audit.record, clock=clock),
            ApprovalMethods(approvals, world.users),
            ExecRequestMethods(exec_approvals),
            GroupMethods(groups, users=world.users, record=audit.record),
        )
        guardian = caller_of((await world.users.add("Gwen", Role.USER)).id, Role.USER)
        await guardians.set(world.child.user_id, guardian.user_id, reads_transcripts=False)
        yield People(
            world=replace(world, dispatcher=Dispatcher(table, world.tasks)),
            clock=clock,
            credentials=credentials,
            identities=identities,
            guardians=guardians,
            groups=groups,
            links=links,
            store=store,
            approvals=approvals,
            exec_approvals=exec_approvals,
            commands=commands,
            resolver=UserResolver(world.db, clock=clock),
            audit=audit,
            policy=policy,
            guardian=guardian,
            changed=changed,
            revoked=revoked,
            registered=registered,
            decided=decided,
        )
