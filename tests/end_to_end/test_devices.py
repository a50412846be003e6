"""Pairing, device tokens and whose devices are whose, over a real socket (OPENCLAW-V3 3.2, 5, 6.14)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from skynet_memory.ids import Role
from skynet_protocol.device import DeviceIdentity
from skynet_users.credentials import CredentialStore
from skynet_users.people import UserStore
from tests.support.client import CLI_SCOPES, Refused, WireClient
from tests.support.gateway import RunningGateway, running_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

READ = ["operator.read"]
NODE: dict[str, Any] = {"role": "node", "client_id": "node-host", "mode": "node", "scopes": []}
REMOTE = {"X-Forwarded-For": "192.0.2.9"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def admin(gateway: RunningGateway) -> AsyncIterator[WireClient]:
    """The owner's open connection, which sees what happens."""
    async with gateway.client() as client:
        yield client


@pytest.fixture
def device() -> DeviceIdentity:
    return DeviceIdentity.generate()


async def person(gateway: RunningGateway, role: Role = Role.USER) -> str:
    """A personal token of somebody new."""
    user = await UserStore(gateway.app.database).add(role.value, role)
    return (await CredentialStore(gateway.app.database).create_token(user.id, "test")).token.reveal()


async def hello(gateway: RunningGateway, **options: Any) -> dict[str, Any]:
    """hello-ok of a connection that is closed again."""
    async with gateway.client(**options) as client:
        return client.hello


async def refused(gateway: RunningGateway, **options: Any) -> dict[str, Any]:
    """The error of a refused connection, whose close reason says the same."""
    with pytest.raises(Refused) as caught:
        await hello(gateway, **options)
    return caught.value.error


async def pairing_required(gateway: RunningGateway, reason: str, **options: Any) -> str:
    """The request id that a connection is refused with."""
    error = await refused(gateway, **options)
    assert (error["code"], error["message"]) == ("NOT_PAIRED", "pairing required")
    assert error["details"].keys() == {"code", "requestId", "reason"}
    assert (error["details"]["code"], error["details"]["reason"]) == ("PAIRING_REQUIRED", reason)
    request_id: str = error["details"]["requestId"]
    return request_id


async def listed(client: WireClient, device: DeviceIdentity, kind: str = "paired") -> dict[str, Any] | None:
    """The device's entry in ``device.pair.list``."""
    listing = await client.call("device.pair.list", {})
    found: list[dict[str, Any]] = [entry for entry in listing[kind] if entry["deviceId"] == device.device_id]
    assert len(found) <= 1
    return found[0] if found else None


def about(event_name: str, device: DeviceIdentity) -> Any:
    return lambda event: event["event"] == event_name and event["payload"]["deviceId"] == device.device_id


# Pairing.


async def test_a_local_device_is_paired_silently(
    gateway: RunningGateway, admin: WireClient, device: DeviceIdentity
) -> None:
    answer = await hello(gateway, device=device, scopes=READ)
    resolved = await admin.event(about("device.pair.resolved", device))
    assert resolved["payload"]["decision"] == "approved"
    assert not [event for event in admin.events if about("device.pair.requested", device)(event)]
    entry = await listed(admin, device)
    assert entry is not None
    assert (entry["publicKey"], entry["clientId"], entry["platform"]) == (device.public_key, "cli", "linux")
    assert (entry["role"], entry["roles"], entry["scopes"]) == ("operator", ["operator"], READ)
    assert "remoteIp" not in entry
    assert [token["scopes"] for token in entry["tokens"]] == [READ]
    assert answer["auth"]["deviceToken"] not in str(entry)


async def test_the_same_token_comes_again(gateway: RunningGateway, device: DeviceIdentity) -> None:
    first = await hello(gateway, device=device)
    again = await hello(gateway, device=device, scopes=READ)
    assert again["auth"] == first["auth"]
    assert set(again["auth"]["scopes"]) == set(CLI_SCOPES)  # the token's, not the connection's


async def test_also_what_is_paired_silently_is_recorded(
    gateway: RunningGateway, admin: WireClient, device: DeviceIdentity
) -> None:
    """SK-193."""
    await hello(gateway, device=device, scopes=READ)
    async with asyncio.timeout(40):
        entries: list[dict[str, Any]] = []
        while not entries:  # noted soon after
            found = await admin.call("audit.list", {"subject": device.device_id, "action": "pairing.approved"})
            entries = found["entries"]
    assert [each["details"] for each in entries] == [{"owner": entries[0]["actor"]}]


async def test_a_scope_upgrade_is_silent_here_and_ends_the_old_token(
    gateway: RunningGateway, device: DeviceIdentity
) -> None:
    old = (await hello(gateway, device=device, scopes=READ))["auth"]
    new = (await hello(gateway, device=device))["auth"]
    assert new["deviceToken"] != old["deviceToken"]
    assert set(new["scopes"]) == set(CLI_SCOPES)
    error = await refused(gateway, token=old["deviceToken"], device=device, scopes=READ)
    assert error["details"]["code"] == "AUTH_TOKEN_MISMATCH"


@pytest.mark.parametrize("headers", [REMOTE, {"Host": "gateway.example"}, {"Forwarded": "for=127.0.0.1"}])
async def test_what_is_not_local_has_to_be_approved(
    gateway: RunningGateway, admin: WireClient, device: DeviceIdentity, headers: dict[str, str]
) -> None:
    request_id = await pairing_required(gateway, "not-paired", device=device, headers=headers)
    asked = (await admin.event(about("device.pair.requested", device)))["payload"]
    assert asked["requestId"] == request_id
    assert await pairing_required(gateway, "not-paired", device=device, headers=headers) == request_id
    pending = await listed(admin, device, "pending")
    assert pending is not None
    assert pending | {"ts": 0} == asked | {"ts": 0}
    approved = await admin.call("device.pair.approve", {"requestId": request_id})
    assert approved["device"]["deviceId"] == device.device_id
    resolved = (await admin.event(about("device.pair.resolved", device)))["payload"]
    assert (resolved["requestId"], resolved["decision"]) == (request_id, "approved")
    assert len([event for event in admin.events if about("device.pair.requested", device)(event)]) == 1
    assert (await hello(gateway, device=device, headers=headers))["auth"]["deviceToken"]
    with pytest.raises(Refused, match=r"^unknown requestId$"):
        await admin.call("device.pair.approve", {"requestId": request_id})


async def test_a_scope_upgrade_from_afar_has_to_be_approved(
    gateway: RunningGateway, admin: WireClient, device: DeviceIdentity
) -> None:
    old = (await hello(gateway, device=device, scopes=READ))["auth"]["deviceToken"]
    request_id = await pairing_required(gateway, "scope-upgrade", device=device, headers=REMOTE)
    assert (await hello(gateway, device=device, scopes=READ, headers=REMOTE))["auth"]["deviceToken"] == old
    await admin.call("device.pair.approve", {"requestId": request_id})
    new = (await hello(gateway, device=device, headers=REMOTE))["auth"]
    assert new["deviceToken"] != old
    assert set(new["scopes"]) == set(CLI_SCOPES)


async def test_a_role_upgrade_has_to_be_approved_even_here(
    gateway: RunningGateway, admin: WireClient, device: DeviceIdentity
) -> None:
    await hello(gateway, device=device)
    request_id = await pairing_required(gateway, "role-upgrade", device=device, **NODE)
    await admin.call("device.pair.approve", {"requestId": request_id})
    assert (await hello(gateway, device=device, **NODE))["auth"]["role"] == "node"
    assert (await hello(gateway, device=device))["auth"]["role"] == "operator"
    entry = await listed(admin, device)
    assert entry is not None
    assert sorted(entry["roles"]) == ["node", "operator"]
    assert {token["role"] for token in entry["tokens"]} == {"node", "operator"}


@pytest.mark.parametrize("field", ["platform", "deviceFamily"])
async def test_a_metadata_upgrade_has_to_be_approved_even_here(
    gateway: RunningGateway, admin: WireClient, device: DeviceIdentity, field: str
) -> None:
    first = {"id": "cli", "version": "dev", "platform": "linux", "mode": "cli", "deviceFamily": "Linux"}
    await hello(gateway, device=device, client=first)
    same = {**first, field: f" {first[field].upper()} "}
    await hello(gateway, device=device, client=same)
    request_id = await pairing_required(gateway, "metadata-upgrade", device=device, client={**first, field: "other"})
    await hello(gateway, device=device, client=first)
    await admin.call("device.pair.approve", {"requestId": request_id})
    await hello(gateway, device=device, client={**first, field: "other"})


async def test_a_page_is_not_paired_silently_unless_it_is_the_control_ui(
    gateway: RunningGateway, device: DeviceIdentity
) -> None:
    page = {"Origin": "http://localhost:5173"}
    await pairing_required(gateway, "not-paired", device=device, headers=page)
    other = DeviceIdentity.generate()
    ui = {"client_id": "openclaw-control-ui", "mode": "webchat"}
    assert (await hello(gateway, device=other, headers=page, **ui))["auth"]["deviceToken"]


async def test_a_rejected_device_may_ask_again(
    gateway: RunningGateway, admin: WireClient, device: DeviceIdentity
) -> None:
    request_id = await pairing_required(gateway, "not-paired", device=device, headers=REMOTE)
    assert await admin.call("device.pair.reject", {"requestId": request_id}) == {
        "requestId": request_id,
        "deviceId": device.device_id,
    }
    resolved = (await admin.event(about("device.pair.resolved", device)))["payload"]
    assert resolved["decision"] == "rejected"
    for method in ("device.pair.approve", "device.pair.reject"):
        with pytest.raises(Refused, match=r"^unknown requestId$"):
            await admin.call(method, {"requestId": request_id})
    assert await pairing_required(gateway, "not-paired", device=device, headers=REMOTE) != request_id


async def test_a_removed_device_is_not_paired(
    gateway: RunningGateway, admin: WireClient, device: DeviceIdentity
) -> None:
    async with gateway.client(device=device) as open_meanwhile:
        token = open_meanwhile.hello["auth"]["deviceToken"]
        assert await admin.call("device.pair.remove", {"deviceId": device.device_id}) == {"deviceId": device.device_id}
        assert await open_meanwhile.closed() == (1008, "device token revoked")
    assert await listed(admin, device) is None
    assert (await refused(gateway, token=token, device=device))["details"]["code"] == "AUTH_TOKEN_MISMATCH"
    await pairing_required(gateway, "not-paired", device=device, headers=REMOTE)
    with pytest.raises(Refused, match=r"^unknown deviceId$"):
        await admin.call("device.pair.remove", {"deviceId": device.device_id})


# Tokens.


@pytest.mark.parametrize("auth", ["token", "device_token", "both"])
async def test_a_device_token_alone_is_enough(gateway: RunningGateway, device: DeviceIdentity, auth: str) -> None:
    token = (await hello(gateway, device=device))["auth"]["deviceToken"]
    fields = {"token": "" if auth == "device_token" else token}
    if auth != "token":
        fields["device_token"] = token
    async with gateway.client(device=device, **fields) as client:
        assert client.hello["auth"]["deviceToken"] == token
        assert await client.call("sessions.list", {})
    async with gateway.client(device=device, headers=REMOTE, **fields) as client:  # paired, so from anywhere
        assert (await client.call("health"))["ok"]


async def test_more_scopes_than_the_token_holds(gateway: RunningGateway, device: DeviceIdentity) -> None:
    token = (await hello(gateway, device=device, scopes=READ))["auth"]["deviceToken"]
    with pytest.raises(Refused) as caught:
        await hello(gateway, token="", device_token=token, device=device)
    assert caught.value.error["message"] == "unauthorized: device token mismatch (rotate/reissue device token)"
    assert caught.value.error["details"]["authReason"] == "device_token_mismatch"
    error = await refused(gateway, token=token, device=device)
    assert error["message"].startswith("unauthorized: gateway token mismatch (")


async def test_a_rotated_token_replaces_the_old(
    gateway: RunningGateway, admin: WireClient, device: DeviceIdentity
) -> None:
    old = (await hello(gateway, device=device))["auth"]["deviceToken"]
    rotated = await admin.call("device.token.rotate", {"deviceId": device.device_id, "role": "operator"})
    assert rotated.keys() == {"deviceId", "role", "token", "scopes", "rotatedAtMs"}
    assert rotated["token"] != old
    assert (await refused(gateway, token=old, device=device))["details"]["code"] == "AUTH_TOKEN_MISMATCH"
    assert (await hello(gateway, token=rotated["token"], device=device))["auth"]["deviceToken"] == rotated["token"]
    entry = await listed(admin, device)
    assert entry is not None
    assert entry["tokens"][0]["rotatedAtMs"] == rotated["rotatedAtMs"]


async def test_rotation_does_not_widen(gateway: RunningGateway, admin: WireClient, device: DeviceIdentity) -> None:
    await hello(gateway, device=device, scopes=["operator.read", "operator.write"])
    params = {"deviceId": device.device_id, "role": "operator"}
    narrowed = await admin.call("device.token.rotate", {**params, "scopes": READ})
    assert narrowed["scopes"] == READ
    for wrong in (
        {**params, "scopes": ["operator.admin"]},
        {**params, "role": "node"},
        {**params, "deviceId": "0" * 64},
    ):
        with pytest.raises(Refused, match=r"^unknown deviceId/role$"):
            await admin.call("device.token.rotate", wrong)


async def test_a_revoked_token_is_replaced_at_the_next_shared_secret(
    gateway: RunningGateway, admin: WireClient, device: DeviceIdentity
) -> None:
    old = (await hello(gateway, device=device))["auth"]["deviceToken"]
    params = {"deviceId": device.device_id, "role": "operator"}
    revoked = await admin.call("device.token.revoke", params)
    assert revoked.keys() == {"deviceId", "role", "revokedAtMs"}
    assert (await refused(gateway, token=old, device=device))["details"]["code"] == "AUTH_TOKEN_MISMATCH"
    new = (await hello(gateway, device=device))["auth"]["deviceToken"]
    assert new != old
    assert await hello(gateway, token=new, device=device)
    with pytest.raises(Refused, match=r"^unknown deviceId/role$"):
        await admin.call("device.token.revoke", {**params, "role": "node"})


# People.


async def test_devices_are_their_persons_own(
    gateway: RunningGateway, admin: WireClient, device: DeviceIdentity
) -> None:
    first, second = await person(gateway, Role.ADMIN), await person(gateway)
    await hello(gateway, token=second, device=device)
    owners = DeviceIdentity.generate()
    await hello(gateway, device=owners)
    async with gateway.client(token=second) as client:
        for method, params in (
            ("device.pair.list", {}),
            ("device.token.rotate", {"deviceId": owners.device_id, "role": "operator"}),
        ):
            with pytest.raises(Refused, match=r"^missing scope: operator.pairing$"):
                await client.call(method, params)
    async with gateway.client(token=first) as client:  # an admin sees all, but takes over nobody
        assert await listed(client, device)
        assert await listed(client, owners)
        for stranger in (device, owners):
            with pytest.raises(Refused, match=r"^unknown deviceId/role$"):
                await client.call("device.token.rotate", {"deviceId": stranger.device_id, "role": "operator"})


async def test_a_members_device_keeps_working_with_the_scopes_a_command_line_asks_for(
    gateway: RunningGateway, device: DeviceIdentity
) -> None:
    token = await person(gateway)
    first = (await hello(gateway, token=token, device=device))["auth"]
    async with gateway.client(token=first["deviceToken"], device=device) as client:  # five scopes again
        assert client.hello["auth"] == first
        await client.call("sessions.list", {})
        with pytest.raises(Refused, match=r"^missing scope: operator.admin$"):
            await client.call("system-event", {"text": "x"})


async def test_an_admin_hears_of_members_devices_and_lets_them_in(
    gateway: RunningGateway, admin: WireClient, device: DeviceIdentity
) -> None:
    token = await person(gateway)
    async with gateway.client(token=await person(gateway)) as bystander:
        request_id = await pairing_required(gateway, "not-paired", token=token, device=device, headers=REMOTE)
        asked = await admin.event(about("device.pair.requested", device))
        assert asked["payload"]["requestId"] == request_id
        await admin.call("device.pair.approve", {"requestId": request_id})
        await bystander.call("health")
        assert not [event for event in bystander.events if event["event"].startswith("device.pair.")]
    assert (await hello(gateway, token=token, device=device, headers=REMOTE))["auth"]["deviceToken"]


async def test_another_person_takes_a_device_over_only_with_approval(
    gateway: RunningGateway, admin: WireClient, device: DeviceIdentity
) -> None:
    owners = (await hello(gateway, device=device))["auth"]["deviceToken"]
    token = await person(gateway)
    request_id = await pairing_required(gateway, "not-paired", token=token, device=device)
    assert await hello(gateway, token=owners, device=device)
    await admin.call("device.pair.approve", {"requestId": request_id})
    assert await hello(gateway, token=token, device=device)
    assert (await refused(gateway, token=owners, device=device))["details"]["code"] == "AUTH_TOKEN_MISMATCH"
