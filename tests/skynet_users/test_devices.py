import dataclasses

import pytest

from skynet_memory.database import Database
from skynet_memory.ids import DeviceId, Role, UserId
from skynet_users.devices import (
    EVERYONE,
    PENDING_MS,
    Admitted,
    ConnectingDevice,
    Decision,
    DeviceStore,
    PairedDevice,
    PairingReason,
    PairingRequired,
    VerifiedToken,
    pairing_decision,
)
from skynet_users.errors import UnknownDevice, UnknownDeviceRole, UnknownPairingRequest
from skynet_users.people import User, UserStore

T0 = 1_795_000_000_000
ID = DeviceId("d1")
READ, WRITE, ADMIN = "operator.read", "operator.write", "operator.admin"

CLI = ConnectingDevice(
    device_id=ID,
    public_key="key-1",
    role="operator",
    scopes=frozenset({READ}),
    display_name="laptop",
    platform="linux",
    device_family="Linux",
    client_id="cli",
    client_mode="cli",
    local=True,
)
REMOTE = dataclasses.replace(CLI, local=False, remote_ip="192.0.2.7")
NODE = dataclasses.replace(CLI, role="node", scopes=frozenset(), client_id="node-host", client_mode="node")

RECORD = PairedDevice(
    device_id=ID,
    owner=UserId("u"),
    public_key="key-1",
    display_name="laptop",
    platform="linux",
    device_family="Linux",
    client_id="cli",
    client_mode="cli",
    role="operator",
    roles=("operator",),
    scopes=(READ,),
    remote_ip="",
    created_at_ms=T0,
    approved_at_ms=T0,
)


def asks(device: ConnectingDevice = CLI, **changes: object) -> ConnectingDevice:
    if isinstance(scopes := changes.get("scopes"), set):
        changes["scopes"] = frozenset(scopes)
    return dataclasses.replace(device, **changes)  # type: ignore[arg-type]


@pytest.fixture
def devices(store: Database) -> DeviceStore:
    return DeviceStore(store)


async def admitted(devices: DeviceStore, owner: User, request: ConnectingDevice, at_ms: int = T0) -> Admitted:
    result = await devices.admit(owner.id, request, now_ms=at_ms)
    assert isinstance(result, Admitted), result
    return result


async def refused(devices: DeviceStore, owner: User, request: ConnectingDevice, at_ms: int = T0) -> PairingRequired:
    result = await devices.admit(owner.id, request, now_ms=at_ms)
    assert isinstance(result, PairingRequired), result
    return result


@pytest.mark.parametrize(
    ("record", "request_", "reason", "silent"),
    [
        (None, CLI, PairingReason.NOT_PAIRED, True),
        (None, REMOTE, PairingReason.NOT_PAIRED, False),
        (None, asks(foreign_browser=True), PairingReason.NOT_PAIRED, False),
        (RECORD, asks(public_key="key-2"), PairingReason.NOT_PAIRED, True),
        (RECORD, CLI, None, False),
        (RECORD, REMOTE, None, False),
        (RECORD, asks(scopes=set()), None, False),
        (RECORD, asks(platform=" LINUX ", device_family="linux"), None, False),
        (RECORD, asks(platform="darwin"), PairingReason.METADATA_UPGRADE, False),
        (RECORD, asks(device_family="iPhone"), PairingReason.METADATA_UPGRADE, False),
        (RECORD, asks(device_family=""), PairingReason.METADATA_UPGRADE, False),
        (dataclasses.replace(RECORD, platform="", device_family=" "), asks(platform="darwin"), None, False),
        (RECORD, NODE, PairingReason.ROLE_UPGRADE, False),
        (RECORD, asks(NODE, platform="darwin"), PairingReason.METADATA_UPGRADE, False),
        (RECORD, asks(scopes={WRITE}), PairingReason.SCOPE_UPGRADE, True),
        (RECORD, asks(REMOTE, scopes={WRITE}), PairingReason.SCOPE_UPGRADE, False),
        (RECORD, asks(scopes={WRITE}, foreign_browser=True), PairingReason.SCOPE_UPGRADE, False),
        (dataclasses.replace(RECORD, scopes=(WRITE,)), CLI, None, False),
        (dataclasses.replace(RECORD, scopes=(ADMIN,)), asks(scopes={WRITE, "operator.pairing"}), None, False),
        (dataclasses.replace(RECORD, roles=("node", "operator")), NODE, None, False),
    ],
)
def test_pairing_decision(
    record: PairedDevice | None, request_: ConnectingDevice, reason: PairingReason | None, silent: bool
) -> None:
    assert pairing_decision(record, request_) == Decision(reason, silent)
    assert pairing_decision(record, request_, taken=True) == Decision(reason, False)


class TestAdmit:
    async def test_a_local_device_is_paired_silently(self, devices: DeviceStore, ada: User) -> None:
        first = await admitted(devices, ada, CLI)
        assert first.approved_request_id is not None
        assert first.device.owner == ada.id
        assert (first.device.roles, first.device.scopes) == (("operator",), (READ,))
        assert (first.token.role, first.token.scopes, first.token.issued_at_ms) == ("operator", (READ,), T0)
        assert len(first.token.token.reveal()) == 43
        assert first.token.token.reveal() not in repr(first)
        again = await admitted(devices, ada, CLI, T0 + 5)
        assert again.approved_request_id is None
        assert again.token == first.token
        assert await devices.pending(ada.id, now_ms=T0) == []
        assert await devices.decide(ada.id, CLI) == Decision(None)

    async def test_metadata_is_refreshed(self, devices: DeviceStore, ada: User) -> None:
        await admitted(devices, ada, asks(device_family=""))
        changed = asks(REMOTE, display_name="new name", client_id="tui", client_mode="ui", device_family="Linux")
        device = (await admitted(devices, ada, changed)).device
        assert (device.display_name, device.client_id, device.client_mode) == ("new name", "tui", "ui")
        assert (device.remote_ip, device.device_family) == ("192.0.2.7", "Linux")
        assert (await admitted(devices, ada, asks(display_name=""))).device.display_name == "new name"

    async def test_a_remote_device_waits_for_an_approval(self, devices: DeviceStore, ada: User) -> None:
        first = await refused(devices, ada, REMOTE)
        assert (first.reason, first.created, first.request.silent) == (PairingReason.NOT_PAIRED, True, False)
        second = await refused(devices, ada, asks(REMOTE, scopes={WRITE}), T0 + 1)
        assert (second.created, second.request.request_id) == (False, first.request.request_id)
        assert second.request.scopes == (READ, WRITE)
        third = await refused(devices, ada, asks(NODE, local=False), T0 + 2)
        assert third.request.request_id == first.request.request_id
        assert (third.request.role, third.request.roles) == ("node", ("node", "operator"))
        device = await devices.approve(ada.id, first.request.request_id, now_ms=T0 + 3)
        assert (device.roles, device.scopes) == (("node", "operator"), (READ, WRITE))
        assert (await admitted(devices, ada, asks(REMOTE, scopes={WRITE}))).approved_request_id is None

    async def test_an_attempt_that_could_be_silent_does_not_approve_one_that_could_not(
        self, devices: DeviceStore, ada: User
    ) -> None:
        await admitted(devices, ada, CLI)
        node = await refused(devices, ada, NODE)
        assert node.reason == PairingReason.ROLE_UPGRADE
        upgrade = await refused(devices, ada, asks(scopes={ADMIN}))
        assert (upgrade.reason, upgrade.request.silent) == (PairingReason.SCOPE_UPGRADE, False)
        device = await devices.get(ada.id, ID)
        assert device is not None
        assert (device.roles, device.scopes) == (("operator",), (READ,))

    async def test_a_silent_scope_upgrade_kills_the_old_token(self, devices: DeviceStore, ada: User) -> None:
        old = (await admitted(devices, ada, CLI)).token
        upgraded = await admitted(devices, ada, asks(scopes={WRITE}), T0 + 1)
        assert upgraded.approved_request_id is not None
        assert upgraded.device.scopes == (READ, WRITE)
        assert upgraded.token.scopes == (WRITE,)
        assert upgraded.token.issued_at_ms == T0 + 1
        assert await devices.verify_token(ID, "operator", old.token.reveal(), frozenset()) is None
        # Back to fewer scopes the token stays, and is wider than asked
        assert (await admitted(devices, ada, CLI)).token == upgraded.token

    async def test_another_key_starts_anew(self, devices: DeviceStore, ada: User) -> None:
        old = (await admitted(devices, ada, asks(scopes={ADMIN}))).token
        renewed = await admitted(devices, ada, asks(public_key="key-2"))
        assert renewed.device.scopes == (READ,)
        assert renewed.token.token != old.token


class TestAnotherPerson:
    async def test_a_device_moves_only_by_an_approval(self, devices: DeviceStore, ada: User, ben: User) -> None:
        old = (await admitted(devices, ada, asks(scopes={ADMIN}))).token
        asked = await refused(devices, ben, CLI)  # local, and yet not silent
        assert (asked.reason, asked.request.silent, asked.request.is_repair) == (PairingReason.NOT_PAIRED, False, False)
        still = await devices.verify_token(ID, "operator", old.token.reveal(), frozenset({ADMIN}))
        assert still == VerifiedToken(owner=ada.id, scopes=(ADMIN,))
        assert (await admitted(devices, ada, CLI)).token.token == old.token

        device = await devices.approve(ben.id, asked.request.request_id, now_ms=T0)
        assert (device.owner, device.scopes) == (ben.id, (READ,))
        assert await devices.get(ada.id, ID) is None
        assert await devices.verify_token(ID, "operator", old.token.reveal(), frozenset()) is None
        new = (await admitted(devices, ben, CLI)).token
        assert await devices.verify_token(ID, "operator", new.token.reveal(), frozenset({READ})) == VerifiedToken(
            owner=ben.id, scopes=(READ,)
        )
        assert (await refused(devices, ada, CLI)).reason == PairingReason.NOT_PAIRED

    async def test_nothing_of_ada_is_visible_to_ben(self, devices: DeviceStore, ada: User, ben: User) -> None:
        token = (await admitted(devices, ada, CLI)).token
        request = (await refused(devices, ada, NODE)).request
        before = await devices.paired(ada.id)
        assert await devices.get(ben.id, ID) is None
        assert await devices.paired(ben.id) == []
        assert await devices.pending(ben.id, now_ms=T0) == []
        for operation in (devices.approve, devices.reject):
            with pytest.raises(UnknownPairingRequest):
                await operation(ben.id, request.request_id, now_ms=T0)
        with pytest.raises(UnknownDevice):
            await devices.remove(ben.id, ID)
        for change in (devices.rotate, devices.revoke):
            with pytest.raises(UnknownDeviceRole):
                await change(ben.id, ID, "operator")
        with pytest.raises(UnknownDeviceRole):
            await devices.ensure_token(ben.id, ID, "operator", [READ])
        mine = (await refused(devices, ben, CLI)).request
        assert mine.request_id != request.request_id
        assert mine.roles == ("operator",)
        assert await devices.pending(ada.id, now_ms=T0) == [request]
        assert await devices.paired(ada.id) == before
        assert before[0].tokens == (token,)

    async def test_an_administrator_sees_everyone(self, devices: DeviceStore, ada: User, ben: User) -> None:
        await admitted(devices, ada, CLI, T0)
        request = (await refused(devices, ben, asks(REMOTE, device_id="d2", public_key="key-2"), T0 + 1)).request
        assert await devices.pending(EVERYONE, now_ms=T0 + 1) == [request]
        device = await devices.approve(EVERYONE, request.request_id, now_ms=T0 + 2)
        assert device.owner == ben.id
        assert [paired.device_id for paired in await devices.paired(EVERYONE)] == ["d2", "d1"]
        assert (await devices.rotate(EVERYONE, DeviceId("d2"), "operator")).scopes == (READ,)
        await devices.revoke(EVERYONE, DeviceId("d2"), "operator")
        await devices.remove(EVERYONE, DeviceId("d2"))
        assert await devices.get(EVERYONE, DeviceId("d2")) is None

    async def test_a_removed_person_has_no_devices(
        self, store: Database, devices: DeviceStore, ada: User, ben: User
    ) -> None:
        token = (await admitted(devices, ada, CLI)).token
        await refused(devices, ada, NODE)
        await UserStore(store).add("Eve", Role.ADMIN)
        await UserStore(store).remove(ada.id)
        assert await devices.verify_token(ID, "operator", token.token.reveal(), frozenset()) is None
        assert await devices.paired(EVERYONE) == []
        assert await devices.pending(EVERYONE, now_ms=T0) == []
        await admitted(devices, ben, CLI)


class TestTokens:
    async def test_ensure(self, devices: DeviceStore, ada: User) -> None:
        token = (await admitted(devices, ada, asks(scopes={WRITE}))).token
        assert await devices.ensure_token(ada.id, ID, "operator", [READ], now_ms=T0 + 1) == token
        assert await devices.ensure_token(ada.id, ID, "operator", [], now_ms=T0 + 1) == token
        wider = await devices.ensure_token(ada.id, ID, "operator", [READ, ADMIN], now_ms=T0 + 2)
        assert wider.token != token.token
        assert (wider.scopes, wider.created_at_ms, wider.rotated_at_ms) == ((ADMIN, READ), T0, T0 + 2)
        with pytest.raises(UnknownDeviceRole):
            await devices.ensure_token(ada.id, ID, "node", [])
        with pytest.raises(UnknownDeviceRole):
            await devices.ensure_token(ada.id, DeviceId("none"), "operator", [])

    async def test_verify(self, devices: DeviceStore, ada: User) -> None:
        token = (await admitted(devices, ada, asks(scopes={WRITE}))).token.token.reveal()
        good = VerifiedToken(owner=ada.id, scopes=(WRITE,))
        assert await devices.verify_token(ID, "operator", token, frozenset({READ}), now_ms=T0 + 9) == good
        assert await devices.verify_token(ID, "operator", token, frozenset()) == good
        for device_id, role, offered, scopes in [
            (ID, "operator", token, {ADMIN}),
            (ID, "operator", token[:-1], {READ}),
            (ID, "operator", "", set()),
            (ID, "operator", "\udc80", set()),
            (ID, "node", token, set()),
            (DeviceId("none"), "operator", token, set()),
            (DeviceId("none"), "operator", "", set()),
        ]:
            assert await devices.verify_token(device_id, role, offered, frozenset(scopes)) is None

    async def test_use_is_noted(self, devices: DeviceStore, ada: User) -> None:
        token = (await admitted(devices, ada, CLI)).token
        await devices.verify_token(ID, "operator", token.token.reveal(), frozenset(), now_ms=T0 + 9)
        device = await devices.get(ada.id, ID)
        assert device is not None
        assert device.tokens[0].last_used_at_ms == T0 + 9

    async def test_rotate(self, devices: DeviceStore, ada: User) -> None:
        old = (await admitted(devices, ada, asks(scopes={WRITE}))).token
        new = await devices.rotate(ada.id, ID, "operator", now_ms=T0 + 1)
        assert new.token != old.token
        assert (new.scopes, new.rotated_at_ms, new.issued_at_ms) == ((WRITE,), T0 + 1, T0 + 1)
        assert await devices.verify_token(ID, "operator", old.token.reveal(), frozenset()) is None
        assert (await devices.rotate(ada.id, ID, "operator", [READ])).scopes == (READ,)
        for device_id, role, scopes in [
            (ID, "operator", [ADMIN]),
            (ID, "node", None),
            (DeviceId("none"), "operator", None),
        ]:
            with pytest.raises(UnknownDeviceRole, match="unknown deviceId/role"):
                await devices.rotate(ada.id, device_id, role, scopes)

    async def test_revoke(self, devices: DeviceStore, ada: User) -> None:
        old = (await admitted(devices, ada, CLI)).token
        assert (await devices.revoke(ada.id, ID, "operator", now_ms=T0 + 1)).revoked_at_ms == T0 + 1
        assert (await devices.revoke(ada.id, ID, "operator", now_ms=T0 + 2)).revoked_at_ms == T0 + 1
        assert await devices.verify_token(ID, "operator", old.token.reveal(), frozenset()) is None
        with pytest.raises(UnknownDeviceRole):
            await devices.revoke(ada.id, ID, "node")
        # The next connect with the shared secret replaces it
        new = (await admitted(devices, ada, CLI, T0 + 3)).token
        assert new.token != old.token
        assert new.revoked_at_ms is None

    async def test_remove(self, devices: DeviceStore, ada: User) -> None:
        token = (await admitted(devices, ada, CLI)).token
        await devices.remove(ada.id, ID)
        assert await devices.verify_token(ID, "operator", token.token.reveal(), frozenset()) is None
        with pytest.raises(UnknownDevice, match="unknown deviceId"):
            await devices.remove(ada.id, ID)


class TestPending:
    async def test_approval_merges_and_makes_a_new_token(self, devices: DeviceStore, ada: User) -> None:
        old = (await admitted(devices, ada, CLI)).token
        request = (await refused(devices, ada, asks(REMOTE, scopes={WRITE}), T0 + 1)).request
        assert request.is_repair
        device = await devices.approve(ada.id, request.request_id, now_ms=T0 + 2)
        assert (device.created_at_ms, device.approved_at_ms) == (T0, T0 + 2)
        assert (device.roles, device.scopes) == (("operator",), (READ, WRITE))
        [token] = device.tokens
        assert token.token != old.token
        assert (token.scopes, token.rotated_at_ms) == ((WRITE,), T0 + 2)
        assert await devices.pending(ada.id, now_ms=T0 + 2) == []
        with pytest.raises(UnknownPairingRequest, match="unknown requestId"):
            await devices.approve(ada.id, request.request_id, now_ms=T0 + 2)

    async def test_metadata_is_pinned_as_approved(self, devices: DeviceStore, ada: User) -> None:
        await admitted(devices, ada, CLI)
        moved = asks(platform="darwin", device_family="")
        request = (await refused(devices, ada, moved)).request
        await devices.approve(ada.id, request.request_id, now_ms=T0)
        assert (await admitted(devices, ada, moved)).device.platform == "darwin"

    async def test_a_node_without_scopes_gets_those_of_the_record(self, devices: DeviceStore, ada: User) -> None:
        await admitted(devices, ada, asks(scopes={READ, WRITE}))
        request = (await refused(devices, ada, NODE)).request
        device = await devices.approve(ada.id, request.request_id, now_ms=T0)
        assert {token.role: token.scopes for token in device.tokens} == {
            "node": (READ, WRITE),
            "operator": (READ, WRITE),
        }
        assert device.role == "node"

    async def test_requests_expire(self, devices: DeviceStore, ada: User) -> None:
        first = (await refused(devices, ada, REMOTE)).request
        assert await devices.pending(ada.id, now_ms=T0 + PENDING_MS - 1) == [first]
        assert await devices.pending(ada.id, now_ms=T0 + PENDING_MS) == []
        for operation in (devices.approve, devices.reject):
            with pytest.raises(UnknownPairingRequest):
                await operation(ada.id, first.request_id, now_ms=T0 + PENDING_MS)
        second = await refused(devices, ada, asks(REMOTE, scopes={WRITE}), T0 + PENDING_MS)
        assert second.created
        assert second.request.request_id != first.request_id
        assert second.request.scopes == (WRITE,)

    async def test_a_further_attempt_keeps_it_alive(self, devices: DeviceStore, ada: User) -> None:
        await refused(devices, ada, REMOTE)
        again = await refused(devices, ada, REMOTE, T0 + PENDING_MS - 1)
        assert not again.created
        assert await devices.pending(ada.id, now_ms=T0 + PENDING_MS) == [again.request]

    async def test_reject(self, devices: DeviceStore, ada: User) -> None:
        request = (await refused(devices, ada, REMOTE)).request
        assert await devices.reject(ada.id, request.request_id, now_ms=T0) == request
        assert await devices.pending(ada.id, now_ms=T0) == []
        assert await devices.get(ada.id, ID) is None

    async def test_newest_first(self, devices: DeviceStore, ada: User) -> None:
        for n in range(3):
            await refused(devices, ada, asks(REMOTE, device_id=f"d{n}", public_key=f"k{n}"), T0 + n)
        assert [request.device_id for request in await devices.pending(ada.id, now_ms=T0 + 2)] == ["d2", "d1", "d0"]

    async def test_request_pairing_alone(self, devices: DeviceStore, ada: User) -> None:
        request, created = await devices.request_pairing(ada.id, REMOTE, silent=True, now_ms=T0)
        assert (created, request.silent) == (True, True)
        request, created = await devices.request_pairing(ada.id, REMOTE, silent=False, now_ms=T0)
        assert (created, request.silent) == (False, False)
