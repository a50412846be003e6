"""``identities.*``: which person an account on a channel is."""

from collections.abc import Callable

from msgspec import UNSET, UnsetType

from skynet.gateway.approvals import Record
from skynet.gateway.dispatch import method
from skynet.gateway.people_commands import WEBSOCKET
from skynet.gateway.people_view import identity_view
from skynet_memory.ids import Role, UserId, now_ms
from skynet_protocol.errors import DetailCode, RequestError
from skynet_protocol.identities import (
    IdentitiesClaimParams,
    IdentitiesClaimResult,
    IdentitiesCodeParams,
    IdentitiesCodeResult,
    IdentitiesLinkParams,
    IdentitiesLinkResult,
    IdentitiesListParams,
    IdentitiesListResult,
    IdentitiesUnlinkParams,
    IdentitiesUnlinkResult,
)
from skynet_protocol.params import invalid_params
from skynet_users.caller import Caller
from skynet_users.errors import Forbidden, IdentityTaken, InvalidProfile, LinkRefused, UnknownUser
from skynet_users.identities import IdentityStore
from skynet_users.links import LinkCodes
from skynet_users.permissions import Permission


class IdentityMethods:
    """The caller's accounts; an admin links everybody's.

    A client never says which account it speaks for: an account proves itself by what the channel delivers.
    """

    def __init__(
        self,
        identities: IdentityStore,
        *,
        links: LinkCodes,
        record: Record,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._identities = identities
        self._links = links
        self._record = record
        self._clock = clock

    @method("identities.list")
    async def list_identities(self, caller: Caller, params: IdentitiesListParams) -> IdentitiesListResult:
        """Accounts, in the order they were linked.

        Raises:
            Forbidden: they are another person's, and the caller does not manage people.
        """
        owner = _owner(caller, params.user_id)
        return IdentitiesListResult(identities=[identity_view(each) for each in await self._identities.list(owner)])

    @method("identities.link")
    async def link(self, caller: Caller, params: IdentitiesLinkParams) -> IdentitiesLinkResult:
        """Say that an account is a person; only an admin takes one from somebody else (SK-128).

        Raises:
            RequestError: nobody has this id; the account belongs to another person, and ``move`` is not set.
            Forbidden: the caller does not manage people, or moves without being an admin.
        """
        caller.require(Permission.USERS_MANAGE, UserId(""))
        owner, moved_from = UserId(params.user_id), None
        try:
            if params.move:
                moved_from = await self._identities.relink(
                    owner,
                    params.channel,
                    params.external_id,
                    display_name=params.display_name,
                    linked_by=caller.user_id,
                )
            else:
                await self._identities.link(
                    owner,
                    params.channel,
                    params.external_id,
                    display_name=params.display_name,
                    verified=True,
                    linked_by=caller.user_id,
                )
        except UnknownUser as exc:
            raise RequestError(str(exc), details={"code": DetailCode.NOT_FOUND}) from exc
        except IdentityTaken as exc:
            raise RequestError(str(exc), details={"code": DetailCode.FORBIDDEN}) from exc
        except InvalidProfile as exc:
            raise invalid_params("identities.link", str(exc).replace("external_id", "externalId")) from exc
        moved = moved_from is not None and moved_from != owner
        details = {"channel": params.channel, **({"from": moved_from} if moved else {})}
        await self._record(
            "identity.relinked" if moved else "identity.linked", actor=caller.user_id, subject=owner, details=details
        )
        return IdentitiesLinkResult(
            user_id=owner,
            channel=params.channel,
            external_id=params.external_id,
            moved_from=moved_from if moved_from is not None and moved else UNSET,
        )

    @method("identities.unlink")
    async def unlink(self, caller: Caller, params: IdentitiesUnlinkParams) -> IdentitiesUnlinkResult:
        """Say that an account is a person no more. A child cannot leave its account, and its rules, by itself.

        Raises:
            RequestError: it is not this person's.
            Forbidden: it is another person's, or the caller is a child.
        """
        owner = _owner(caller, params.user_id)
        if caller.role is Role.CHILD:
            raise Forbidden(Permission.USERS_MANAGE)
        if not await self._identities.unlink(owner, params.channel, params.external_id):
            raise RequestError(
                f"unknown identity: {params.channel}:{params.external_id}", details={"code": DetailCode.NOT_FOUND}
            )
        await self._record(
            "identity.unlinked", actor=caller.user_id, subject=owner, details={"channel": params.channel}
        )
        return IdentitiesUnlinkResult(user_id=owner, channel=params.channel, external_id=params.external_id)

    @method("identities.code")
    async def code(self, caller: Caller, params: IdentitiesCodeParams) -> IdentitiesCodeResult:
        """A code that links the account from which it is sent to the assistant (SK-128); an earlier one ends."""
        made = await self._links.create(caller.user_id, WEBSOCKET, now_ms=self._clock())
        code = made.code.reveal()
        return IdentitiesCodeResult(code=code, expires_at=made.expires_at_ms, say=f"/link {code}")

    @method("identities.claim")
    async def claim(self, caller: Caller, params: IdentitiesClaimParams) -> IdentitiesClaimResult:
        """Link the account that sent a code to who made it; for an adapter of a channel, which vouches for the account.

        Raises:
            RequestError: the code is wrong or has expired, the account is somebody's, or it has tried too often.
            Forbidden: the caller does not manage people; everybody else sends ``/link CODE`` from the account.
        """
        caller.require(Permission.USERS_MANAGE, UserId(""))
        try:
            owner = await self._links.claim(
                params.code,
                params.channel,
                params.external_id,
                now_ms=self._clock(),
                display_name=params.display_name,
            )
        except LinkRefused as exc:
            raise RequestError(str(exc), details={"code": DetailCode.FORBIDDEN, "reason": exc.reason}) from exc
        await self._record("identity.linked", actor=owner, subject=owner, details={"channel": params.channel})
        return IdentitiesClaimResult(user_id=owner, channel=params.channel, external_id=params.external_id)


def _owner(caller: Caller, user_id: str | UnsetType) -> UserId:
    if user_id is UNSET or user_id == caller.user_id:
        return caller.user_id
    caller.require(Permission.USERS_MANAGE, UserId(user_id))
    return UserId(user_id)
