"""``approvals.*``: what waits for a decision, for those who asked and those who decide."""

from msgspec import UNSET

from skynet.gateway.approvals import Approvals, Newcomer
from skynet.gateway.dispatch import method
from skynet.gateway.people_view import person_view
from skynet_memory.ids import Role, UserId
from skynet_protocol.approvals import (
    ApprovalsDecideParams,
    ApprovalsDecideResult,
    ApprovalsListParams,
    ApprovalsListResult,
    ApprovalsRequestParams,
    ApprovalsRequestResult,
)
from skynet_protocol.errors import DetailCode, RequestError
from skynet_protocol.params import invalid_params
from skynet_users.caller import Caller
from skynet_users.errors import NotPending, OwnRequest, TooManyPending, UnknownApproval, UnknownUser
from skynet_users.people import UserStore
from skynet_users.permissions import Permission


class ApprovalMethods:
    """The queue as the caller may see it; what another may not know of does not exist for them."""

    def __init__(self, approvals: Approvals, users: UserStore) -> None:
        self._approvals = approvals
        self._users = users

    @method("approvals.list")
    async def list_approvals(self, caller: Caller, params: ApprovalsListParams) -> ApprovalsListResult:
        """What the caller asked for and what the caller may decide, newest first."""
        status = None if params.status is UNSET else params.status
        found = await self._approvals.list(caller, status, limit=params.limit)
        return ApprovalsListResult(approvals=[await self._approvals.summary(caller, each) for each in found])

    @method("approvals.decide")
    async def decide(self, caller: Caller, params: ApprovalsDecideParams) -> ApprovalsDecideResult:
        """Approve or deny. An approved registration makes a person, or gives somebody another account.

        Raises:
            RequestError: there is no such question, or the caller may not know of it; the caller asked it; it is not
                open any more; nobody has this ``userId``.
            Forbidden: ``userId`` is given, and the caller does not manage people.
        """
        user_id = None
        if params.user_id is not UNSET:
            user_id = UserId(params.user_id)
            caller.require(Permission.USERS_MANAGE, user_id)
        newcomer = Newcomer(
            role=Role.CHILD if params.role == "child" else Role.USER,
            display_name="" if params.display_name is UNSET else params.display_name,
            user_id=user_id,
        )
        try:
            approval = await self._approvals.find(caller, params.id)
            if approval.kind != "registration":
                for field in ("role", "display_name", "user_id"):
                    if getattr(params, field) is not UNSET:
                        raise invalid_params("approvals.decide", f"{field}: this is no registration")
            approval, user = await self._approvals.decide(
                caller, approval.id, approve=params.approve, reason=params.reason, newcomer=newcomer
            )
        except (UnknownApproval, UnknownUser) as exc:
            raise RequestError(str(exc), details={"code": DetailCode.NOT_FOUND}) from exc
        except OwnRequest as exc:
            raise RequestError(str(exc), details={"code": DetailCode.FORBIDDEN}) from exc
        except NotPending as exc:
            raise RequestError(str(exc), details={"code": DetailCode.INVALID_PARAMS, "status": exc.status}) from exc
        return ApprovalsDecideResult(
            approval=await self._approvals.summary(caller, approval),
            user=UNSET if user is None else person_view(user),
        )

    @method("approvals.request")
    async def request(self, caller: Caller, params: ApprovalsRequestParams) -> ApprovalsRequestResult:
        """Ask those who decide for the caller: a child its guardians, everybody the admins.

        Raises:
            RequestError: too many questions of the caller are open.
        """
        try:
            approval, created = await self._approvals.ask(await self._users.get(caller.user_id), params.summary)
        except TooManyPending as exc:
            raise RequestError(str(exc), details={"code": DetailCode.FORBIDDEN}) from exc
        return ApprovalsRequestResult(approval=await self._approvals.summary(caller, approval), created=created)
