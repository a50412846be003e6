"""``device.pair.*`` and ``device.token.*`` (OPENCLAW-V3 6.14)."""

import logging
from collections.abc import Awaitable, Callable
from typing import Literal

from msgspec import UNSET, UnsetType

from skynet.gateway.approvals import Record
from skynet.gateway.auth import pending_event
from skynet.gateway.broadcast import Broadcaster
from skynet.gateway.dispatch import method
from skynet_memory.ids import DeviceId, Role, UserId, now_ms
from skynet_protocol.devices import (
    DevicePairApproveParams,
    DevicePairApproveResult,
    DevicePaired,
    DevicePairListParams,
    DevicePairListResult,
    DevicePairRejectParams,
    DevicePairRejectResult,
    DevicePairRemoveParams,
    DevicePairRemoveResult,
    DeviceTokenRevokeParams,
    DeviceTokenRevokeResult,
    DeviceTokenRotateParams,
    DeviceTokenRotateResult,
    DeviceTokenSummary,
)
from skynet_protocol.errors import DetailCode, RequestError
from skynet_protocol.events import DevicePairResolvedEvent
from skynet_users.caller import Caller
from skynet_users.devices import EVERYONE, DeviceStore, DeviceToken, PairedDevice, Whose
from skynet_users.errors import BeyondOwnScopes, UnknownDevice, UnknownDeviceRole, UnknownPairingRequest

log = logging.getLogger(__name__)


class DeviceMethods:
    """The caller's devices; an admin lets in and removes everybody's, but gets only the own devices' tokens."""

    def __init__(
        self,
        devices: DeviceStore,
        broadcaster: Broadcaster,
        *,
        revoked: Callable[[DeviceId, str | None], Awaitable[None]],
        record: Record,
    ) -> None:
        """
        Args:
            revoked: called with a device whose token, of one role or of all, holds no longer.
            record: where it is written down who paired and removed what.
        """
        self._devices = devices
        self._broadcaster = broadcaster
        self._revoked = revoked
        self._record = record

    @method("device.pair.list")
    async def list_devices(self, caller: Caller, params: DevicePairListParams) -> DevicePairListResult:
        """What waits for approval, newest first, and what is paired, the one approved last first."""
        whose = _whose(caller)
        return DevicePairListResult(
            pending=[pending_event(request) for request in await self._devices.pending(whose)],
            paired=[_paired(device) for device in await self._devices.paired(whose)],
        )

    @method("device.pair.approve")
    async def approve(self, caller: Caller, params: DevicePairApproveParams) -> DevicePairApproveResult:
        """Pair the device that asked; its next attempt to connect succeeds.

        Raises:
            RequestError: ``unknown requestId``; ``missing scope: …``, the device asks for one that the caller's
                connection lacks.
        """
        try:
            device = await self._devices.approve(_whose(caller), params.request_id, within=caller.scopes)
        except UnknownPairingRequest as exc:
            raise _not_found(exc) from exc
        except BeyondOwnScopes as exc:
            raise _forbidden(exc) from exc
        log.info("device %s paired as %s", device.device_id, device.role, extra={"user_id": device.owner})
        await self._resolved(caller, device.owner, params.request_id, device.device_id, "approved")
        return DevicePairApproveResult(request_id=params.request_id, device=_paired(device))

    @method("device.pair.reject")
    async def reject(self, caller: Caller, params: DevicePairRejectParams) -> DevicePairRejectResult:
        """Drop a request.

        Raises:
            RequestError: ``unknown requestId``.
        """
        try:
            request = await self._devices.reject(_whose(caller), params.request_id)
        except UnknownPairingRequest as exc:
            raise _not_found(exc) from exc
        log.info("device %s rejected", request.device_id, extra={"user_id": request.owner})
        await self._resolved(caller, request.owner, params.request_id, request.device_id, "rejected")
        return DevicePairRejectResult(request_id=params.request_id, device_id=request.device_id)

    @method("device.pair.remove")
    async def remove(self, caller: Caller, params: DevicePairRemoveParams) -> DevicePairRemoveResult:
        """Unpair a device, and close the connections it has.

        OpenClaw lets those stay (OPENCLAW-V3 3.2); who removes a lost telephone means that it is gone.

        Raises:
            RequestError: ``unknown deviceId``.
        """
        try:
            await self._devices.remove(_whose(caller), DeviceId(params.device_id))
        except UnknownDevice as exc:
            raise _not_found(exc) from exc
        log.info("device %s removed", params.device_id, extra={"user_id": caller.user_id})
        await self._revoked(DeviceId(params.device_id), None)
        await self._record("pairing.removed", actor=caller.user_id, subject=params.device_id, details={})
        return DevicePairRemoveResult(device_id=params.device_id)

    @method("device.token.rotate")
    async def rotate(self, caller: Caller, params: DeviceTokenRotateParams) -> DeviceTokenRotateResult:
        """Replace a token of one of the caller's own devices, and show it: whoever holds it is that device's person.

        Raises:
            RequestError: ``unknown deviceId/role``, also for scopes beyond the approved ones; ``missing scope: …``,
                the token would have one that the caller's connection lacks.
        """
        scopes = None if isinstance(params.scopes, UnsetType) else params.scopes
        try:
            token = await self._devices.rotate(
                caller.user_id, DeviceId(params.device_id), params.role, scopes, within=caller.scopes
            )
        except UnknownDeviceRole as exc:
            raise _not_found(exc) from exc
        except BeyondOwnScopes as exc:
            raise _forbidden(exc) from exc
        log.info("token of device %s rotated for %s", params.device_id, token.role, extra={"user_id": caller.user_id})
        return DeviceTokenRotateResult(
            device_id=params.device_id,
            role=token.role,
            token=token.token.reveal(),
            scopes=list(token.scopes),
            rotated_at_ms=token.issued_at_ms,
        )

    @method("device.token.revoke")
    async def revoke(self, caller: Caller, params: DeviceTokenRevokeParams) -> DeviceTokenRevokeResult:
        """End a token; the device gets a new one when it connects with the shared secret.

        Raises:
            RequestError: ``unknown deviceId/role``.
        """
        try:
            token = await self._devices.revoke(_whose(caller), DeviceId(params.device_id), params.role)
        except UnknownDeviceRole as exc:
            raise _not_found(exc) from exc
        log.info("token of device %s revoked for %s", params.device_id, token.role, extra={"user_id": caller.user_id})
        details = {"device": params.device_id, "role": token.role}
        await self._revoked(DeviceId(params.device_id), token.role)
        await self._record("token.revoked", actor=caller.user_id, subject=params.device_id, details=details)
        return DeviceTokenRevokeResult(
            device_id=params.device_id, role=token.role, revoked_at_ms=token.revoked_at_ms or now_ms()
        )

    async def _resolved(
        self,
        caller: Caller,
        owner: UserId,
        request_id: str,
        device_id: DeviceId,
        decision: Literal["approved", "rejected"],
    ) -> None:
        """Tell the device's person, and the one who decided."""
        await self._record(f"pairing.{decision}", actor=caller.user_id, subject=device_id, details={"owner": owner})
        event = DevicePairResolvedEvent(request_id=request_id, device_id=device_id, decision=decision, ts=now_ms())
        for user in {owner, caller.user_id}:
            self._broadcaster.publish("device.pair.resolved", event, owner=user)


def _whose(caller: Caller) -> Whose:
    return EVERYONE if caller.role is Role.ADMIN else caller.user_id


def _paired(device: PairedDevice) -> DevicePaired:
    return DevicePaired(
        device_id=device.device_id,
        public_key=device.public_key,
        created_at_ms=device.created_at_ms,
        approved_at_ms=device.approved_at_ms,
        tokens=[_summary(token) for token in device.tokens],
        display_name=device.display_name or UNSET,
        platform=device.platform or UNSET,
        device_family=device.device_family or UNSET,
        client_id=device.client_id or UNSET,
        client_mode=device.client_mode or UNSET,
        role=device.role or UNSET,
        roles=list(device.roles),
        scopes=list(device.scopes),
        remote_ip=device.remote_ip or UNSET,
    )


def _summary(token: DeviceToken) -> DeviceTokenSummary:
    return DeviceTokenSummary(
        role=token.role,
        scopes=list(token.scopes),
        created_at_ms=token.created_at_ms,
        rotated_at_ms=_given(token.rotated_at_ms),
        revoked_at_ms=_given(token.revoked_at_ms),
        last_used_at_ms=_given(token.last_used_at_ms),
    )


def _given(value: int | None) -> int | UnsetType:
    return UNSET if value is None else value


def _not_found(exc: Exception) -> RequestError:
    return RequestError(str(exc), details={"code": DetailCode.NOT_FOUND})


def _forbidden(exc: BeyondOwnScopes) -> RequestError:
    return RequestError(str(exc), details={"code": DetailCode.FORBIDDEN, "scope": exc.scope})
