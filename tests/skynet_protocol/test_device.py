"""Device proofs against the vectors of OPENCLAW-V3 4.1, and every reason of 2.5."""

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from skynet_protocol.connect import ClientInfo, ConnectAuth, ConnectParams, DeviceProof
from skynet_protocol.device import DeviceIdentity, device_id_of, sign_payload, verify_device
from skynet_protocol.errors import Refusal

SEED = bytes(range(32))
NONCE = "6f0f3c1e-8a1b-4c5d-9e2f-0123456789ab"
SIGNED_AT = 1767225600000
DEVICE_ID = "56475aa75463474c0285df5dbf2bcab73da651358839e9b77481b2eab107708c"
PUBLIC_KEY = "A6EHv_POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg"
CLI_SCOPES = ("operator.admin", "operator.read", "operator.write", "operator.approvals", "operator.pairing")

PUBLIC_PEM = """-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=
-----END PUBLIC KEY-----
"""
PRIVATE_PEM = """-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f
-----END PRIVATE KEY-----
"""
RSA_PEM = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"

CLI = ConnectParams(
    min_protocol=3,
    max_protocol=3,
    client=ClientInfo(id="cli", version="dev", platform="linux", mode="cli"),
    scopes=CLI_SCOPES,
    auth=ConnectAuth(token="tok"),
)
NODE = ConnectParams(
    min_protocol=3,
    max_protocol=3,
    client=ClientInfo(id="node-host", version="dev", platform="Darwin", device_family=" Mac ", mode="node"),
    role="node",
)

VECTORS = [
    (
        3,
        CLI,
        226,
        "619d85804714d399b041e5936cf1c49eb95afb839ed42b2ec03a8ea3a6f4491e",
        "ObCS_X5yqPXUhGUveoZl_QZddcfl0_b0jNETchTggwNnTFMHwhIYFOfmIM7O3bMj6e7v1voMCMZ7lvvNDvFBDQ",
    ),
    (
        2,
        CLI,
        219,
        "9e86f11e92d0916482bef5c7869d249889731c39a9b2ea0936f745c69f3b1d6a",
        "NFTC92E7nBMcF2mJaYleomLBYW0XTixN7x9lDKGvkSc56duKiUWovPwhXbZaF_NOmhcw25pyeo9SqcrTWQ3iAw",
    ),
    (
        3,
        NODE,
        151,
        "802589c8a3f40ee418b4190adf1ab049ae35e649857d26b06e66cb30cae6928b",
        "ANje35v4mkX9JKdrqQWaW5hRQPBDmoJ17tQwZD67o2RQGagi2p71MDWXbP8FL-vcnoq-QrDLTyGvJiqagX0ZDQ",
    ),
]


def proof(signature: str = VECTORS[0][4], **changes: object) -> DeviceProof:
    whole = DeviceProof(id=DEVICE_ID, public_key=PUBLIC_KEY, signature=signature, signed_at=SIGNED_AT, nonce=NONCE)
    return replace(whole, **changes)


def reason_of(params: ConnectParams, *, nonce: str = NONCE, now_ms: int = SIGNED_AT) -> str:
    with pytest.raises(Refusal) as caught:
        verify_device(params, nonce=nonce, now_ms=now_ms)
    assert caught.value.error is not None
    assert caught.value.error.details["code"] == "DEVICE_AUTH_INVALID"
    return str(caught.value.error.details["reason"])


def with_proof(params: ConnectParams = CLI, signature: str = VECTORS[0][4], **changes: object) -> ConnectParams:
    return replace(params, device=proof(signature, **changes))


@pytest.mark.parametrize(("version", "params", "length", "digest", "signature"), VECTORS)
def test_vectors(version, params, length, digest, signature):
    identity = DeviceIdentity.from_seed(SEED)
    payload = sign_payload(
        version,
        device_id=identity.device_id,
        client_id=params.client.id,
        client_mode=params.client.mode,
        role=params.role,
        scopes=params.scopes,
        signed_at=SIGNED_AT,
        token=params.auth.token,
        nonce=NONCE,
        platform=params.client.platform,
        device_family=params.client.device_family,
    )
    assert len(payload) == length
    assert hashlib.sha256(payload).hexdigest() == digest
    assert identity.sign(payload) == signature
    verified = verify_device(with_proof(params, signature), nonce=NONCE, now_ms=SIGNED_AT)
    assert (verified.device_id, verified.public_key, verified.payload_version) == (DEVICE_ID, PUBLIC_KEY, version)


def test_the_identity_of_the_vectors():
    identity = DeviceIdentity.from_seed(SEED)
    assert (identity.device_id, identity.public_key) == (DEVICE_ID, PUBLIC_KEY)
    assert (identity.private_pem(), identity.public_pem()) == (PRIVATE_PEM, PUBLIC_PEM)
    assert DeviceIdentity.from_pem(PRIVATE_PEM).device_id == DEVICE_ID
    assert repr(identity) == f"DeviceIdentity({DEVICE_ID})"


@pytest.mark.parametrize(
    "public_key",
    [
        PUBLIC_KEY,
        PUBLIC_KEY + "=",
        "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg",
        "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=",
        f" {PUBLIC_KEY}\n",
        PUBLIC_PEM,
    ],
)
def test_a_key_may_come_in_any_of_these_forms(public_key):
    verified = verify_device(with_proof(public_key=public_key), nonce=NONCE, now_ms=SIGNED_AT)
    assert verified.public_key == PUBLIC_KEY


def test_a_signature_may_come_in_standard_base64():
    raw = base64.urlsafe_b64decode(VECTORS[0][4] + "==")
    standard = base64.b64encode(raw).decode()
    assert "+" in standard or "/" in standard
    assert verify_device(with_proof(signature=standard), nonce=NONCE, now_ms=SIGNED_AT).payload_version == 3


def test_an_id_that_is_not_the_keys():
    assert reason_of(with_proof(id="0" * 64)) == "device-id-mismatch"
    assert reason_of(with_proof(id=DEVICE_ID.upper())) == "device-id-mismatch"
    for unreadable in ("!", "A", "é", RSA_PEM, "-----BEGIN"):
        assert reason_of(with_proof(public_key=unreadable)) == "device-id-mismatch"


@pytest.mark.parametrize("skew", [-120_001, 120_001, 10**15])
def test_a_signature_of_another_time(skew):
    assert reason_of(with_proof(), now_ms=SIGNED_AT + skew) == "device-signature-stale"


@pytest.mark.parametrize("skew", [-120_000, 0, 120_000])
def test_clocks_may_differ_by_two_minutes(skew):
    assert verify_device(with_proof(), nonce=NONCE, now_ms=SIGNED_AT + skew).device_id == DEVICE_ID


def test_nonces():
    assert reason_of(with_proof(nonce=" \t")) == "device-nonce-missing"
    assert reason_of(with_proof(nonce="other")) == "device-nonce-mismatch"
    assert reason_of(with_proof(), nonce="another-connection") == "device-nonce-mismatch"


def test_a_key_that_is_no_ed25519_key():
    raw = b"\x01" * 31
    short = base64.b64encode(raw).decode()
    assert reason_of(with_proof(public_key=short, id=device_id_of(raw))) == "device-public-key"


def test_signatures_that_do_not_verify():
    for wrong in (VECTORS[2][4], "AAAA", "!", "é"):
        assert reason_of(with_proof(signature=wrong)) == "device-signature"
    changed = [
        replace(CLI, role="node"),
        replace(CLI, scopes=CLI_SCOPES[::-1]),
        replace(CLI, scopes=()),
        replace(CLI, auth=ConnectAuth(token="other")),
        replace(CLI, client=replace(CLI.client, mode="probe")),
        replace(CLI, client=replace(CLI.client, platform="darwin")),
        replace(CLI, client=replace(CLI.client, device_family="x")),
    ]
    for params in changed:
        assert reason_of(with_proof(params)) == "device-signature"


def test_the_order_of_checks():
    everything_wrong = {"id": "x", "signature": "!", "nonce": " "}
    assert reason_of(replace(CLI, device=proof(**everything_wrong)), now_ms=0) == "device-id-mismatch"
    assert reason_of(replace(CLI, device=proof(signature="!", nonce=" ")), now_ms=0) == "device-signature-stale"
    assert reason_of(replace(CLI, device=proof(signature="!", nonce=" "))) == "device-nonce-missing"
    assert reason_of(replace(CLI, device=proof(signature="!", nonce="x"))) == "device-nonce-mismatch"


def test_v2_does_not_sign_the_platform():
    params = replace(CLI, client=replace(CLI.client, platform="anything"))
    assert verify_device(with_proof(params, VECTORS[1][4]), nonce=NONCE, now_ms=SIGNED_AT).payload_version == 2


def test_the_signed_token_is_the_token_else_the_device_token():
    identity = DeviceIdentity.from_seed(SEED)
    both = replace(CLI, auth=ConnectAuth(token="tok", device_token="other", password="pw"))
    assert identity.prove(both, nonce=NONCE, signed_at=SIGNED_AT).signature == VECTORS[0][4]
    device_only = replace(CLI, auth=ConnectAuth(device_token="tok"))
    assert identity.prove(device_only, nonce=NONCE, signed_at=SIGNED_AT).signature == VECTORS[0][4]


def test_what_our_own_client_proves_is_accepted():
    identity = DeviceIdentity.generate()
    for params in (CLI, NODE, replace(CLI, auth=ConnectAuth(password="pw"))):
        proven = replace(params, device=identity.prove(params, nonce=NONCE, signed_at=SIGNED_AT))
        verified = verify_device(proven, nonce=NONCE, now_ms=SIGNED_AT)
        assert (verified.device_id, verified.payload_version) == (identity.device_id, 3)


def test_only_ed25519_keys_are_identities():
    with pytest.raises(ValueError, match="PEM"):
        DeviceIdentity.from_pem("nothing")
    with pytest.raises(ValueError, match="32"):
        DeviceIdentity.from_seed(b"short")


def test_a_private_key_of_another_kind_is_no_identity():
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem = X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(ValueError, match="expected an Ed25519 key, got X25519"):
        DeviceIdentity.from_pem(pem.decode())


def test_a_public_key_of_another_kind_is_no_proof():
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = X25519PrivateKey.generate().public_key()
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    params = with_proof(public_key=pem, id=device_id_of(key.public_bytes_raw()))
    assert reason_of(params) == "device-id-mismatch"


def test_a_client_without_a_device_is_not_for_this_function():
    assert CLI.device is UNSET
    with pytest.raises(AssertionError):
        verify_device(CLI, nonce=NONCE, now_ms=SIGNED_AT)


@given(st.text(min_size=1), st.text(min_size=1), st.integers(0, 2**53 - 1), st.text(min_size=1))
def test_any_proof_is_refused_by_name(public_key, signature, signed_at, nonce):
    device = DeviceProof(id=DEVICE_ID, public_key=public_key, signature=signature, signed_at=signed_at, nonce=nonce)
    reason_of(replace(CLI, device=device))


@given(st.binary(max_size=70))
def test_any_signature_bytes_are_refused_by_name(raw):
    assert reason_of(with_proof(signature=base64.urlsafe_b64encode(raw).decode() or "A")) == "device-signature"
