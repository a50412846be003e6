"""A Google service account, and who checks what it signs."""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

PROJECT = "house-1"
EMAIL = f"gateway@{PROJECT}.iam.gserviceaccount.com"
KEY_ID = "key-1"
JWT_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@cache
def private_key() -> rsa.RSAPrivateKey:
    """The account's; the same in the whole process."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def service_account(token_uri: str, **fields: Any) -> dict[str, Any]:
    """What its file holds; a field that is None is left out."""
    plain = serialization.NoEncryption()
    pem = private_key().private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain).decode()
    account = {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": KEY_ID,
        "private_key": pem,
        "client_email": EMAIL,
        "client_id": "1",
        "token_uri": token_uri,
    }
    return {name: value for name, value in {**account, **fields}.items() if value is not None}


def written(file: Path, info: Any) -> Path:
    """``file``, which now holds ``info``."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(info))
    return file


def claims_of(assertion: str) -> dict[str, Any]:
    """The claims of an RS256-signed JWT (RFC 7515, RFC 7523).

    Raises:
        ValueError: it is none, or not signed by the account.
    """
    try:
        head, claims, signature = assertion.split(".")
        signed = f"{head}.{claims}".encode()
        private_key().public_key().verify(_decoded(signature), signed, padding.PKCS1v15(), hashes.SHA256())
        if json.loads(_decoded(head)) != {"typ": "JWT", "alg": "RS256", "kid": KEY_ID}:
            raise ValueError("another algorithm, or another key")
        found: dict[str, Any] = json.loads(_decoded(claims))
    except Exception as exc:
        raise ValueError(f"no assertion of the account: {type(exc).__name__}") from exc
    return found


def _decoded(part: str) -> bytes:
    if "=" in part:
        raise ValueError("base64 of a JWT has no padding")
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
