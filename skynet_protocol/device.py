"""Device identity: Ed25519 keys, the payload that is signed, and the proof in ``connect`` (OPENCLAW-V3 section 4)."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase
from typing import Literal, Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from msgspec import UNSET

from skynet_protocol.connect import ConnectParams, DeviceProof
from skynet_protocol.errors import Refusal

SIGNATURE_SKEW_MS = 120_000
"""How far the client's clock may be from the gateway's, either way."""

PayloadVersion = Literal[2, 3]


@dataclass(frozen=True, slots=True)
class VerifiedDevice:
    """A device that proved its key on this connection. ``public_key`` is base64url without padding, however it came."""

    device_id: str
    public_key: str
    payload_version: PayloadVersion


def sign_payload(
    version: PayloadVersion,
    *,
    device_id: str,
    client_id: str,
    client_mode: str,
    role: str,
    scopes: Iterable[str],
    signed_at: int,
    token: str,
    nonce: str,
    platform: str = "",
    device_family: str = "",
) -> bytes:
    """The bytes that a device signs: scopes in the order sent, ``token`` empty if there is none."""
    fields = [f"v{version}", device_id, client_id, client_mode, role, ",".join(scopes), str(signed_at), token, nonce]
    if version == 3:
        fields += [_normalized(platform), _normalized(device_family)]
    return "|".join(fields).encode()


def connect_payload(version: PayloadVersion, params: ConnectParams, proof: DeviceProof) -> bytes:
    """``sign_payload`` of the values in ``params``, before any scope is stripped."""
    return sign_payload(
        version,
        device_id=proof.id,
        client_id=params.client.id,
        client_mode=params.client.mode,
        role=params.role,
        scopes=params.scopes,
        signed_at=proof.signed_at,
        token=params.auth.token or params.auth.device_token,
        nonce=proof.nonce.strip(),
        platform=params.client.platform,
        device_family=params.client.device_family,
    )


def verify_device(params: ConnectParams, *, nonce: str, now_ms: int) -> VerifiedDevice:
    """The device that ``params`` prove. ``nonce`` is this connection's challenge. ``params.device`` must be there.

    Raises:
        Refusal: ``DEVICE_AUTH_INVALID`` with the reason of OPENCLAW-V3 2.5; checked in the order id, clock, nonce,
            key, signature.
    """
    proof = params.device
    assert proof is not UNSET, "the caller decides what a client without a device may do"
    raw_key = _raw_public_key(proof.public_key)
    if raw_key is None or proof.id != device_id_of(raw_key):
        raise Refusal.device_auth_invalid("device-id-mismatch")
    if abs(now_ms - proof.signed_at) > SIGNATURE_SKEW_MS:
        raise Refusal.device_auth_invalid("device-signature-stale")
    if not proof.nonce.strip():
        raise Refusal.device_auth_invalid("device-nonce-missing")
    if proof.nonce.strip() != nonce:
        raise Refusal.device_auth_invalid("device-nonce-mismatch")
    try:
        key = Ed25519PublicKey.from_public_bytes(raw_key)
    except ValueError as exc:
        raise Refusal.device_auth_invalid("device-public-key") from exc
    version = _signed_version(key, params, proof)
    if version is None:
        raise Refusal.device_auth_invalid("device-signature")
    return VerifiedDevice(proof.id, _base64url(raw_key), version)


def device_id_of(raw_public_key: bytes) -> str:
    """The device id: lower-case hex SHA-256 of the 32 raw bytes of the key."""
    return hashlib.sha256(raw_public_key).hexdigest()


class DeviceIdentity:
    """A device's private key, as our own clients hold it."""

    def __init__(self, private_key: Ed25519PrivateKey) -> None:
        self._private_key = private_key
        raw = private_key.public_key().public_bytes_raw()
        self.public_key = _base64url(raw)
        self.device_id = device_id_of(raw)

    @classmethod
    def generate(cls) -> Self:
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_seed(cls, seed: bytes) -> Self:
        """From the 32 bytes of the private key; ``ValueError`` for any other length."""
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    @classmethod
    def from_pem(cls, pem: str) -> Self:
        """From PKCS8 PEM, which is how OpenClaw's ``device.json`` keeps it; ``ValueError`` if it is not Ed25519."""
        from cryptography.hazmat.primitives.serialization import load_pem_private_key  # rare, and slow to import

        key = load_pem_private_key(pem.encode(), password=None)
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError(f"expected an Ed25519 key, got {type(key).__name__}")
        return cls(key)

    def private_pem(self) -> str:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        return self._private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    def public_pem(self) -> str:
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        return self._private_key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def sign(self, payload: bytes) -> str:
        """The signature as the wire has it: base64url without padding."""
        return _base64url(self._private_key.sign(payload))

    def prove(self, params: ConnectParams, *, nonce: str, signed_at: int) -> DeviceProof:
        """The ``device`` of a ``connect`` with these params (whatever device they hold already), signed as v3."""
        unsigned = DeviceProof(
            id=self.device_id, public_key=self.public_key, signature="", signed_at=signed_at, nonce=nonce
        )
        return DeviceProof(
            id=unsigned.id,
            public_key=unsigned.public_key,
            signature=self.sign(connect_payload(3, params, unsigned)),
            signed_at=signed_at,
            nonce=nonce,
        )

    def __repr__(self) -> str:
        return f"DeviceIdentity({self.device_id})"


_ASCII_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


def _normalized(text: str) -> str:
    """Trimmed, and only ASCII letters lower-cased: what both sides must agree on byte by byte."""
    return text.strip().translate(_ASCII_LOWER)


def _signed_version(key: Ed25519PublicKey, params: ConnectParams, proof: DeviceProof) -> PayloadVersion | None:
    signature = _decode_base64(proof.signature)
    if signature is None:
        return None
    versions: tuple[PayloadVersion, ...] = (3, 2)
    for version in versions:
        try:
            key.verify(signature, connect_payload(version, params, proof))
        except InvalidSignature:
            continue
        return version
    return None


def _raw_public_key(text: str) -> bytes | None:
    """The key's raw bytes, from base64url, base64 or PEM."""
    if "BEGIN" not in text:
        return _decode_base64(text)
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        return None
    return key.public_bytes_raw() if isinstance(key, Ed25519PublicKey) else None


def _decode_base64(text: str) -> bytes | None:
    """Base64 in either alphabet, padded or not; None if it is neither."""
    standard = text.strip().translate(_STANDARD_ALPHABET).rstrip("=")
    try:
        return binascii.a2b_base64(standard + "=" * (-len(standard) % 4), strict_mode=True)
    except ValueError:
        return None


_STANDARD_ALPHABET = str.maketrans("-_", "+/")


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
