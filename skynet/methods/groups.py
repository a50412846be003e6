"""``groups.*``: rooms that several people share."""

from msgspec import UNSET, UnsetType

from skynet.gateway.approvals import Record
from skynet.gateway.dispatch import method
from skynet_memory.ids import Role, UserId
from skynet_protocol.errors import DetailCode, RequestError
from skynet_protocol.groups import (
    GroupMember,
    GroupsCreateParams,
    GroupsCreateResult,
    GroupsJoinParams,
    GroupsJoinResult,
    GroupsLeaveParams,
    GroupsLeaveResult,
    GroupsListParams,
    GroupsListResult,
    GroupsMembersParams,
    GroupsMembersResult,
    GroupsSetParams,
    GroupsSetResult,
    GroupSummary,
)
from skynet_protocol.params import invalid_params
from skynet_users.caller import Caller
from skynet_users.errors import Forbidden, InvalidProfile, UnknownGroup, UnknownUser
from skynet_users.groups import Group, GroupStore
from skynet_users.people import UserStore
from skynet_users.permissions import Permission

EVERYBODY = UserId("")
"""Nobody's id: a permission over it reaches everybody."""


class GroupMethods:
    """The caller's groups; all of them for those who manage groups. What is neither does not exist for the caller.

    A room of this gateway's own is joined by who knows its id, a channel's only by what the channel says.
    """

    def __init__(self, groups: GroupStore, *, users: UserStore, record: Record) -> None:
        self._groups = groups
        self._users = users
        self._record = record

    @method("groups.list")
    async def list_groups(self, caller: Caller, params: GroupsListParams) -> GroupsListResult:
        """The caller's groups; all of them for those who manage groups."""
        own = {group.id for group in await self._groups.list(member=caller.user_id)}
        shown = await self._groups.list(member=None if _manages(caller) else caller.user_id)
        return GroupsListResult(groups=[_view(group, member=group.id in own) for group in shown])

    @method("groups.create")
    async def create(self, caller: Caller, params: GroupsCreateParams) -> GroupsCreateResult:
        """A new room, of which the caller is the first member (BA-273).

        Raises:
            RequestError: ``name`` is none.
            Forbidden: the caller does not manage groups.
        """
        caller.require(Permission.GROUPS_MANAGE)
        try:
            group = await self._groups.create(params.name, caller.user_id, history=params.history)
        except InvalidProfile as exc:
            raise invalid_params("groups.create", str(exc).replace("display_name", "name")) from exc
        await self._groups.join(group.id, caller.user_id)
        await self._record("group.changed", actor=caller.user_id, subject=group.id, details={"change": "created"})
        return GroupsCreateResult(group=_view(group, member=True))

    @method("groups.set")
    async def set(self, caller: Caller, params: GroupsSetParams) -> GroupsSetResult:
        """Close a group, which then keeps what it has and takes no messages, or open it again (BA-274).

        Raises:
            RequestError: there is no such group.
            Forbidden: the caller does not manage it.
        """
        group = await self._group(caller, params.group_id)
        caller.require(Permission.GROUPS_MANAGE, caller.user_id if group.created_by == caller.user_id else EVERYBODY)
        if params.active is not UNSET and params.active != group.active:
            change = "opened" if params.active else "closed"
            await self._record("group.changed", actor=caller.user_id, subject=group.id, details={"change": change})
            group = await self._groups.set_active(group.id, params.active)
        return GroupsSetResult(group=_view(group, member=await self._groups.is_member(group.id, caller.user_id)))

    @method("groups.join")
    async def join(self, caller: Caller, params: GroupsJoinParams) -> GroupsJoinResult:
        """Become a member, or make somebody one. Whom others took out is let in again by them alone.

        Raises:
            RequestError: there is no such group, it is a channel's, or nobody has this ``userId``.
            Forbidden: it is another person, or the caller is a child: those are added by who manages groups.
        """
        user_id = _whom(caller, params.user_id)
        if caller.role is Role.CHILD:
            raise Forbidden(Permission.GROUPS_MANAGE)
        try:
            group = await self._groups.get(UserId(params.group_id))
            if group.channel and not _manages(caller):
                raise UnknownGroup(params.group_id)
            await self._groups.join(group.id, user_id, by=caller.user_id)
        except (UnknownGroup, UnknownUser) as exc:
            raise _not_found(exc) from exc
        await self._record(
            "group.changed", actor=caller.user_id, subject=group.id, details={"change": "joined", "member": user_id}
        )
        return GroupsJoinResult(group_id=group.id, user_id=user_id)

    @method("groups.leave")
    async def leave(self, caller: Caller, params: GroupsLeaveParams) -> GroupsLeaveResult:
        """Be a member no more, or make somebody none.

        Raises:
            RequestError: there is no such group, or this person is no member of it.
            Forbidden: it is another person, and the caller does not manage groups.
        """
        user_id = _whom(caller, params.user_id)
        group = await self._group(caller, params.group_id)
        if not await self._groups.leave(group.id, user_id, by=caller.user_id):
            raise RequestError(f"no member: {user_id}", details={"code": DetailCode.NOT_FOUND})
        await self._record(
            "group.changed", actor=caller.user_id, subject=group.id, details={"change": "left", "member": user_id}
        )
        return GroupsLeaveResult(group_id=group.id, user_id=user_id)

    @method("groups.members")
    async def members(self, caller: Caller, params: GroupsMembersParams) -> GroupsMembersResult:
        """Who is in a group, those who joined first first.

        Raises:
            RequestError: there is no such group, or the caller is no member and does not manage groups.
        """
        group = await self._group(caller, params.group_id)
        members = []
        for member in await self._groups.members(group.id):
            user = await self._users.by_id(member.user_id)
            name = "" if user is None else user.display_name
            members.append(GroupMember(user_id=member.user_id, display_name=name, joined_at=member.joined_at_ms))
        return GroupsMembersResult(members=members)

    async def _group(self, caller: Caller, group_id: str) -> Group:
        """One that the caller may know of."""
        try:
            group = await self._groups.get(UserId(group_id))
            if not _manages(caller) and not await self._groups.is_member(group.id, caller.user_id):
                raise UnknownGroup(group_id)
        except UnknownGroup as exc:
            raise _not_found(exc) from exc
        return group


def _manages(caller: Caller) -> bool:
    return caller.may(Permission.GROUPS_MANAGE, EVERYBODY)


def _whom(caller: Caller, user_id: str | UnsetType) -> UserId:
    if user_id is UNSET or user_id == caller.user_id:
        return caller.user_id
    caller.require(Permission.GROUPS_MANAGE, EVERYBODY)
    return UserId(user_id)


def _view(group: Group, *, member: bool) -> GroupSummary:
    return GroupSummary(
        id=group.id,
        name=group.name,
        active=group.active,
        history=group.history,
        channel=group.channel or UNSET,
        external_id=group.external_id or UNSET,
        created_by=group.created_by or UNSET,
        member=member,
    )


def _not_found(exc: Exception) -> RequestError:
    return RequestError(str(exc), details={"code": DetailCode.NOT_FOUND})
