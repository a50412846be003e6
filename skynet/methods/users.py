"""``users.*``: people, their tokens, passwords, budgets and guardians."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import UNSET

from skynet.gateway.approvals import Record
from skynet.gateway.dispatch import method
from skynet.gateway.people_view import identity_view, period_view, person_view
from skynet_memory.ids import Role, UserId, now_ms
from skynet_memory.secrets import Secret
from skynet_protocol.errors import DetailCode, RequestError
from skynet_protocol.params import Params, invalid_params
from skynet_protocol.scopes import covers, greatest_scopes, satisfies
from skynet_protocol.users import (
    PersonName,
    TokenSummary,
    UsersAddParams,
    UsersAddResult,
    UsersBudgetParams,
    UsersBudgetResult,
    UsersGetParams,
    UsersGetResult,
    UsersGuardiansRemoveParams,
    UsersGuardiansResult,
    UsersGuardiansSetParams,
    UsersListParams,
    UsersListResult,
    UsersPasswordParams,
    UsersPasswordResult,
    UsersRemoveParams,
    UsersRemoveResult,
    UsersSetParams,
    UsersSetResult,
    UsersTokensCreateParams,
    UsersTokensCreateResult,
    UsersTokensListParams,
    UsersTokensListResult,
    UsersTokensRevokeParams,
    UsersTokensRevokeResult,
)
from skynet_users.budgets import Ledger
from skynet_users.caller import Caller
from skynet_users.credentials import CredentialStore, TokenInfo
from skynet_users.errors import Forbidden, IdentityTaken, InvalidProfile, LastAdmin
from skynet_users.guardians import GuardianStore
from skynet_users.hours import hours_of
from skynet_users.identities import IdentityStore
from skynet_users.people import User, UserChanges, UserStore
from skynet_users.permissions import GRANTABLE, Permission, PermissionPolicy, Reach

log = logging.getLogger(__name__)

DAY_MS = 86_400_000
MOST_TOKENS = 100
"""Personal tokens that one person may have."""

OWN_FIELDS = frozenset({"displayName", "language", "tone", "interests", "quietHours"})
"""What everybody may change of themselves."""
ADULT_FIELDS = OWN_FIELDS | {"age", "timeZone"}
"""What everybody but children may."""
POWERS = frozenset({"role", "flags", "disabled", "requiresApproval"})
"""What live connections and runs were let in with: a change ends them."""


class UserMethods:
    """The caller; everybody, for those who manage people. Only an admin touches admins.

    Args:
        changed: the person's role, flags or right to be here changed: connections and runs have to end.
        revoked: the token with this id is worth nothing any more.
        record: where it is written down who did what.
    """

    def __init__(
        self,
        users: UserStore,
        *,
        credentials: CredentialStore,
        identities: IdentityStore,
        guardians: GuardianStore,
        policy: PermissionPolicy,
        ledger: Ledger,
        changed: Callable[[UserId], Awaitable[None]],
        revoked: Callable[[str], Awaitable[None]],
        removed: Callable[[UserId], Awaitable[None]],
        record: Record,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._users = users
        self._credentials = credentials
        self._identities = identities
        self._guardians = guardians
        self._policy = policy
        self._ledger = ledger
        self._changed = changed
        self._revoked = revoked
        self._removed = removed
        self._record = record
        self._clock = clock

    @method("users.list")
    async def list_users(self, caller: Caller, params: UsersListParams) -> UsersListResult:
        """Everybody, in the order they were added; the caller alone for those who do not manage people."""
        if caller.may(Permission.USERS_MANAGE, EVERYBODY):
            return UsersListResult(users=[person_view(user) for user in await self._users.list()])
        return UsersListResult(users=[person_view(await self._users.get(caller.user_id))])

    @method("users.get")
    async def get(self, caller: Caller, params: UsersGetParams) -> UsersGetResult:
        """A person with identities, guardians, children and permissions.

        Raises:
            RequestError: nobody has this id.
            Forbidden: it is another person's, and the caller does not manage people.
        """
        user = await self._person(caller, params.user_id, Permission.USERS_MANAGE)
        grants = self._policy.grants(user.role, user.flags)
        return UsersGetResult(
            user=person_view(user),
            identities=[identity_view(identity) for identity in await self._identities.list(user.id)],
            guardians=await self._guardians_of(user.id),
            children=[
                PersonName(
                    id=each.child,
                    display_name=(await self._users.get(each.child)).display_name,
                    reads_transcripts=each.reads_transcripts,
                )
                for each in await self._guardians.children(user.id)
                if not each.by_default
            ],
            permissions={permission.value: grants.get(permission, Reach.NONE).value for permission in Permission},
        )

    @method("users.add")
    async def add(self, caller: Caller, params: UsersAddParams) -> UsersAddResult:
        """A new person, with all of the identities that are given or not at all.

        Raises:
            RequestError: naming the field that is wrong; an identity belongs to somebody.
            Forbidden: the caller does not manage people, or makes an admin without being one.
        """
        caller.require(Permission.USERS_MANAGE, EVERYBODY)
        role = Role(params.role)
        _only_admins_touch_admins(caller, role)
        fields = _given(params, but=("displayName", "role", "identities"))
        _check(role, fields, "users.add")
        for identity in params.identities:
            if await self._identities.find(identity.channel, identity.external_id) is not None:
                raise _taken(IdentityTaken(identity.channel, identity.external_id))
        try:
            user = await self._users.add(params.display_name, role, **fields)
        except InvalidProfile as exc:
            raise _invalid_profile("users.add", exc) from exc
        try:
            for identity in params.identities:
                await self._identities.link(
                    user.id, identity.channel, identity.external_id, verified=True, linked_by=caller.user_id
                )
        except (IdentityTaken, InvalidProfile) as exc:
            await self._users.remove(user.id)
            raise _taken(exc) if isinstance(exc, IdentityTaken) else _invalid_profile("users.add", exc) from exc
        log.info("added %s %s", role, user.id, extra={"user_id": caller.user_id})
        await self._record("user.added", actor=caller.user_id, subject=user.id, details={"role": role.value})
        for identity in params.identities:
            await self._record(
                "identity.linked", actor=caller.user_id, subject=user.id, details={"channel": identity.channel}
            )
        return UsersAddResult(user=person_view(user))

    @method("users.set")
    async def set(self, caller: Caller, params: UsersSetParams) -> UsersSetResult:
        """Change a person. What somebody may not change of themselves, they may not however little it is.

        Raises:
            RequestError: naming the field that is wrong; nobody has this id; the last admin would go.
            Forbidden: naming what it takes.
        """
        user = await self._person(caller, params.user_id, Permission.USERS_MANAGE)
        fields = _given(params, but=("userId",))
        own = OWN_FIELDS if user.role is Role.CHILD else ADULT_FIELDS
        if user.allowed_hours:  # which go by that clock: whoever moves it would talk at any hour
            own -= {"timeZone"}
        wire = {_camel(name) for name in fields}
        by = None
        if user.id != caller.user_id or not wire <= own:
            caller.require(Permission.USERS_MANAGE, EVERYBODY)
            by = (caller.user_id, caller.role)
            _only_admins_touch_admins(caller, user.role, fields.get("role", user.role))
        if "role" in fields:
            fields["role"] = Role(fields["role"])
        if "flags" in fields:
            merged = {**user.flags, **fields["flags"]}
            fields["flags"] = {word: given for word, given in merged.items() if given is not None}
        _check(fields.get("role", user.role), fields, "users.set")
        try:
            changed = await self._users.set(user.id, UserChanges(**fields), by=by)
        except InvalidProfile as exc:
            raise _invalid_profile("users.set", exc) from exc
        except LastAdmin as exc:
            raise _last_admin(exc) from exc
        if changed == user:
            return UsersSetResult(user=person_view(changed))
        self._ledger.forget(user.id)
        different = sorted(name for name in wire if _value(changed, name) != _value(user, name))
        action = "budget.changed" if all(name in BUDGET_FIELDS for name in different) else "user.changed"
        try:
            await self._record(action, actor=caller.user_id, subject=user.id, details=_told(changed, different))
        finally:  # it is done: what they were let in with ends, whether or not there is room for the record
            if POWERS & set(different):
                await self._changed(user.id)
        return UsersSetResult(user=person_view(changed))

    @method("users.remove")
    async def remove(self, caller: Caller, params: UsersRemoveParams) -> UsersRemoveResult:
        """Remove a person with everything that is theirs; what they have under way ends first.

        Raises:
            RequestError: nobody has this id; it is the caller; the last admin would go.
        """
        caller.require(Permission.USERS_MANAGE, EVERYBODY)
        if params.user_id == caller.user_id:
            raise RequestError("nobody removes themselves", details={"code": DetailCode.FORBIDDEN})
        user = await self._person(caller, params.user_id, Permission.USERS_MANAGE)
        _only_admins_touch_admins(caller, user.role)
        try:
            await self._users.set(user.id, UserChanges(disabled=True), by=(caller.user_id, caller.role))
        except LastAdmin as exc:
            raise _last_admin(exc) from exc
        self._ledger.forget(user.id)
        await self._changed(user.id)
        await self._record("user.removed", actor=caller.user_id, subject=user.id, details={"role": user.role.value})
        removed = await self._users.remove(user.id)
        await self._removed(user.id)
        log.info("removed %s", user.id, extra={"user_id": caller.user_id})
        return UsersRemoveResult(user_id=user.id, removed=removed)

    @method("users.tokens.list")
    async def tokens(self, caller: Caller, params: UsersTokensListParams) -> UsersTokensListResult:
        """Personal tokens without the tokens, in the order they were made."""
        user = await self._person(caller, params.user_id, Permission.USERS_MANAGE)
        return UsersTokensListResult(tokens=[_token(token) for token in await self._credentials.tokens(user.id)])

    @method("users.tokens.create")
    async def create_token(self, caller: Caller, params: UsersTokensCreateParams) -> UsersTokensCreateResult:
        """A new personal token, shown this once. It does not outlive the one that the caller came with.

        Raises:
            RequestError: ``missing scope: …`` for a scope that the person's role does not have, or that the caller's
                own connection lacks: else a narrow connection would make itself a wide token.
        """
        user = await self._person(caller, params.user_id, Permission.USERS_MANAGE)
        _only_admins_touch_admins(caller, user.role)
        greatest = greatest_scopes(user.role)
        scopes = () if params.scopes is UNSET else tuple(dict.fromkeys(params.scopes))
        for scope in scopes or sorted(greatest):
            if not satisfies(greatest, scope):
                raise invalid_params("users.tokens.create", f"scopes: the role {user.role} does not have {scope}")
            if not covers(caller.scopes, [scope]):
                raise RequestError(f"missing scope: {scope}", details={"code": DetailCode.FORBIDDEN, "scope": scope})
        if len(await self._credentials.tokens(user.id)) >= MOST_TOKENS:
            raise RequestError(f"{user.display_name} has {MOST_TOKENS} tokens already; revoke one first")
        expires_at_ms = None
        if params.expires_in_days is not UNSET:
            expires_at_ms = self._clock() + params.expires_in_days * DAY_MS
        if caller.expires_at_ms is not None:  # else who was let in for a day would stay for ever
            expires_at_ms = min(caller.expires_at_ms, expires_at_ms or caller.expires_at_ms)
        created = await self._credentials.create_token(user.id, params.name, scopes=scopes, expires_at_ms=expires_at_ms)
        await self._record(
            "token.created", actor=caller.user_id, subject=user.id, details={"id": created.id, "name": params.name}
        )
        return UsersTokensCreateResult(
            user_id=user.id,
            id=created.id,
            name=params.name,
            token=created.token.reveal(),
            expires_at=UNSET if expires_at_ms is None else expires_at_ms,
            scopes=list(scopes) or UNSET,
        )

    @method("users.tokens.revoke")
    async def revoke_token(self, caller: Caller, params: UsersTokensRevokeParams) -> UsersTokensRevokeResult:
        """End a token, and the connections that were let in with it.

        Raises:
            RequestError: the person has no such token.
        """
        user = await self._person(caller, params.user_id, Permission.USERS_MANAGE)
        _only_admins_touch_admins(caller, user.role)
        if not await self._credentials.remove_token(user.id, params.id):
            raise RequestError(f"unknown token: {params.id}", details={"code": DetailCode.NOT_FOUND})
        await self._revoked(params.id)
        await self._record("token.revoked", actor=caller.user_id, subject=user.id, details={"id": params.id})
        return UsersTokensRevokeResult(id=params.id, revoked=True)

    @method("users.password")
    async def password(self, caller: Caller, params: UsersPasswordParams) -> UsersPasswordResult:
        """Set a password; the own one only by who knows the one before.

        Raises:
            RequestError: ``current`` is not the password.
        """
        user = await self._person(caller, params.user_id, Permission.USERS_MANAGE)
        _only_admins_touch_admins(caller, user.role)
        if (
            user.id == caller.user_id
            and await self._credentials.has_password(user.id)
            and not await self._credentials.check_password(user.id, params.current)
        ):
            raise RequestError("current: not the password", details={"code": DetailCode.FORBIDDEN})
        await self._record("password.changed", actor=caller.user_id, subject=user.id, details={})
        await self._credentials.set_password(user.id, Secret(params.password))
        return UsersPasswordResult(user_id=user.id)

    @method("users.budget")
    async def budget(self, caller: Caller, params: UsersBudgetParams) -> UsersBudgetResult:
        """What was used of a person's budget, and of the house's for those who see everybody's costs."""
        user = await self._person(caller, params.user_id, Permission.COSTS_VIEW)
        status = await self._ledger.status(user.id)
        sees_house = caller.may(Permission.COSTS_VIEW, EVERYBODY)
        return UsersBudgetResult(
            user_id=user.id,
            display_name=user.display_name,
            day=period_view(status.day),
            month=period_view(status.month),
            house_day=period_view(status.house_day) if sees_house else UNSET,
            house_month=period_view(status.house_month) if sees_house else UNSET,
        )

    @method("users.guardians.set")
    async def set_guardian(self, caller: Caller, params: UsersGuardiansSetParams) -> UsersGuardiansResult:
        """Give a child a guardian, or change what one may see.

        Raises:
            RequestError: nobody has this id; the child is none, or the guardian is one.
        """
        caller.require(Permission.USERS_MANAGE, EVERYBODY)
        child = await self._person(caller, params.user_id, Permission.USERS_MANAGE)
        guardian = await self._person(caller, params.guardian_id, Permission.USERS_MANAGE)
        if child.role is not Role.CHILD:
            raise invalid_params("users.guardians.set", f"userId: {child.display_name} is no child")
        if guardian.role is Role.CHILD:
            raise invalid_params("users.guardians.set", f"guardianId: {guardian.display_name} is a child")
        await self._record(
            "guardian.changed",
            actor=caller.user_id,
            subject=child.id,
            details={"guardian": guardian.id, "readsTranscripts": params.reads_transcripts},
        )
        await self._guardians.set(child.id, guardian.id, reads_transcripts=params.reads_transcripts)
        return UsersGuardiansResult(user_id=child.id, guardians=await self._guardians_of(child.id))

    @method("users.guardians.remove")
    async def remove_guardian(self, caller: Caller, params: UsersGuardiansRemoveParams) -> UsersGuardiansResult:
        """Take a guardian from a child.

        Raises:
            RequestError: this person is not the child's guardian.
        """
        caller.require(Permission.USERS_MANAGE, EVERYBODY)
        child = await self._person(caller, params.user_id, Permission.USERS_MANAGE)
        if not await self._guardians.remove(child.id, UserId(params.guardian_id)):
            raise RequestError(f"unknown guardian: {params.guardian_id}", details={"code": DetailCode.NOT_FOUND})
        await self._record(
            "guardian.changed", actor=caller.user_id, subject=child.id, details={"removed": params.guardian_id}
        )
        return UsersGuardiansResult(user_id=child.id, guardians=await self._guardians_of(child.id))

    async def _person(self, caller: Caller, user_id: str | msgspec.UnsetType, permission: Permission) -> User:
        """Who is meant; another person only for those with ``permission`` over everybody.

        Raises:
            Forbidden: before it is looked whether there is such a person.
            RequestError: nobody has this id.
        """
        if user_id is UNSET or user_id == caller.user_id:
            return await self._users.get(caller.user_id)
        caller.require(permission, UserId(user_id))
        user = await self._users.by_id(UserId(user_id))
        if user is None or user.kind != "person":
            raise RequestError(f"unknown user: {user_id}", details={"code": DetailCode.NOT_FOUND})
        return user

    async def _guardians_of(self, child: UserId) -> list[PersonName]:
        """The child's own; where there is none, every admin is one by that alone, and not listed."""
        return [
            PersonName(
                id=each.guardian,
                display_name=(await self._users.get(each.guardian)).display_name,
                reads_transcripts=each.reads_transcripts,
            )
            for each in await self._guardians.of(child)
            if not each.by_default
        ]


EVERYBODY = UserId("")
"""Nobody's id: a permission over it reaches everybody."""
BUDGET_FIELDS = frozenset({"dailyTokens", "monthlyTokens", "dailyMicrousd", "monthlyMicrousd"})
_UNTOLD = frozenset({"displayName", "language", "tone", "interests", "timeZone", "age"})
"""Fields whose values stay out of the audit log: they say what a person is like."""


def _only_admins_touch_admins(caller: Caller, *roles: Role | str) -> None:
    """However the matrix is configured, nobody becomes an admin by way of managing people."""
    if Role.ADMIN in roles and caller.role is not Role.ADMIN:
        raise Forbidden(Permission.USERS_MANAGE)


def _given(params: Params, *, but: tuple[str, ...]) -> dict[str, Any]:
    """The fields that are there, by their names inside."""
    return {
        field.name: value
        for field in msgspec.structs.fields(params)
        if field.encode_name not in but and (value := getattr(params, field.name)) is not UNSET
    }


def _check(role: Role, fields: dict[str, Any], method_name: str) -> None:
    """What the store does not check: hours, and what flags may give."""
    for name in ("quiet_hours", "allowed_hours"):
        try:
            if fields.get(name):
                hours_of(fields[name])
        except ValueError as exc:
            raise invalid_params(method_name, f"{_camel(name)}: {exc}") from exc
    for word, given in fields.get("flags", {}).items():
        if word in frozenset(Permission) and given and Permission(word) not in GRANTABLE[role]:
            raise invalid_params(method_name, f"flags: {word} cannot be given to the role {role}")


def _value(user: User, wire_name: str) -> Any:
    return getattr(user, next(name for name in User.__dataclass_fields__ if _camel(name) == wire_name))


def _told(user: User, different: list[str]) -> dict[str, Any]:
    """What the audit log keeps of a change: every field's name, and the values that say what somebody may."""
    shown = msgspec.to_builtins(person_view(user))
    return {"fields": different} | {name: shown.get(name) for name in different if name not in _UNTOLD}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _invalid_profile(method_name: str, exc: InvalidProfile) -> RequestError:
    return invalid_params(method_name, f"{_camel(exc.field)}: {str(exc).removeprefix(f'{exc.field}: ')}")


def _taken(exc: IdentityTaken) -> RequestError:
    return RequestError(f"identities: {exc}", details={"code": DetailCode.INVALID_PARAMS})


def _last_admin(exc: LastAdmin) -> RequestError:
    return RequestError(str(exc), details={"code": DetailCode.FORBIDDEN})


def _token(token: TokenInfo) -> TokenSummary:
    return TokenSummary(
        id=token.id,
        name=token.name,
        created_at=token.created_at_ms,
        last_used_at=UNSET if token.last_used_at_ms is None else token.last_used_at_ms,
        expires_at=UNSET if token.expires_at_ms is None else token.expires_at_ms,
        scopes=UNSET if token.scopes is None else sorted(token.scopes),
    )
