"""Amazon's signatures (SK-070), and where the keys for them come from.

Credentials are those that every AWS tool would use: botocore's chain of the environment, the shared files (with the
row's ``profile`` or ``AWS_PROFILE``), single sign-on, a program of the profile, the container's or the machine's role.
botocore also refreshes what runs out. A Bedrock API key is sent as a bearer token instead: the row's ``api_key`` or,
unless the row names a profile, ``AWS_BEARER_TOKEN_BEDROCK``.

botocore (0.1 s, 11 MB) is imported with the first request that needs it.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from math import inf
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

from skynet_agent.errors import AuthFailed, ConnectFailed, ProviderError, ProviderTimeout
from skynet_agent.http_client import LARGE_BODY_BYTES, HttpRequest
from skynet_agent.providers import ProviderRow

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials  # type: ignore[import-untyped]

SERVICE = "bedrock"
"""The name that signatures are made for; that of the host is ``bedrock-runtime``."""
BEARER_VARIABLE = "AWS_BEARER_TOKEN_BEDROCK"
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
"""The second is all that botocore knows, the first all that the other SDKs do."""
CREDENTIALS_S = 30.0
"""So long a request waits for credentials: somebody may have to confirm it on a phone."""
URGENT_S = 300.0
"""With less time left than this a request waits for new credentials; before that, they come in the background."""
RENEWED_S = 60.0
"""So long after new credentials came a request may be refused that was signed with the old ones."""

_region_form = re.compile(r"[a-z]{2,}(?:-[a-z0-9]+)+")
_region_in_host = re.compile(r"\bbedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.")
_suffixes = {"cn-": "amazonaws.com.cn", "eusc-": "amazonaws.eu"}  # botocore's partitions.json


@dataclass(frozen=True, slots=True)
class _Account:
    """What botocore found."""

    credentials: Any = field(repr=False)
    """Its object, which may know how to refresh itself."""
    keys: ReadOnlyCredentials = field(repr=False)
    region: str
    """The profile's; empty if it has none."""

    def runs_out(self, within_s: float | None = None) -> bool:
        """Whether these are temporary ones with less time left; None: so little that botocore looks for new ones."""
        return hasattr(self.credentials, "refresh_needed") and bool(self.credentials.refresh_needed(within_s))


class AwsAuth:
    """Signs requests to Bedrock, and knows where Bedrock is: ``base_url`` may be empty.

    Args:
        clock: of the signatures; Amazon takes those of the last and the next five minutes.
        credentials_s: so long a request waits for credentials.
    """

    def __init__(
        self,
        row: ProviderRow,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        credentials_s: float = CREDENTIALS_S,
    ) -> None:
        self._row = row
        self._clock = clock
        self._credentials_s = credentials_s
        self._account: _Account | None = None
        self._loading: Future[_Account] | None = None
        self._renewed_at = -inf

    async def sign(self, base_url: str, path: str, request: HttpRequest) -> HttpRequest:
        region = self._row.region or _region_of(base_url)
        if token := self._bearer_token():
            if not base_url and not region:
                region = await asyncio.to_thread(_region_of_profile, self._row.profile)
            url = self._place(base_url, region) + path
            return replace(request, url=url, headers={"Authorization": f"Bearer {token}", **request.headers})
        account = await self._current()
        region = self._checked(region or account.region)
        plain = replace(request, url=self._place(base_url, region) + path)
        sign = partial(signed, plain, account.keys, region, self._clock())
        return sign() if len(request.body) < LARGE_BODY_BYTES else await asyncio.to_thread(sign)

    async def renew(self) -> bool:
        """Look again: a person may have logged in anew, or changed the files."""
        if self._account is None:
            return False
        refused = self._account.keys
        if monotonic() - self._renewed_at < RENEWED_S:
            return True
        return bool((await self._wait(self._load(None))).keys != refused)

    def secrets(self) -> tuple[bytes, ...]:
        keys = self._account and self._account.keys
        known = [self._bearer_token(), *((keys.secret_key, keys.token) if keys else ())]
        return tuple(secret.encode() for secret in known if secret)

    def _bearer_token(self) -> str:
        return self._row.api_key.reveal() or ("" if self._row.profile else os.environ.get(BEARER_VARIABLE, ""))

    def _place(self, base_url: str, region: str) -> str:
        """Where Bedrock is. What an address holds of credentials has no place beside those that are sent."""
        if not base_url:
            suffix = next((name for prefix, name in _suffixes.items() if region.startswith(prefix)), "amazonaws.com")
            return f"https://bedrock-runtime.{self._checked(region)}.{suffix}"
        scheme, separator, rest = base_url.partition("://")
        host, slash, path = rest.partition("/")
        if not separator or not host:
            raise ConnectFailed(f"{self._row.name}: base_url is no HTTP address", provider=self._row.name)
        return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"

    def _checked(self, region: str) -> str:
        if _region_form.fullmatch(region):
            return region
        name = self._row.name
        wrong = f"{region!r} is no AWS region" if region else "no AWS region"
        words = f"{name}: {wrong}; name it as region of the provider, in AWS_REGION or in the AWS profile"
        raise AuthFailed(words, provider=name)

    async def _current(self) -> _Account:
        account = self._account
        if account is not None and not account.runs_out():
            return account
        loading = self._load(account)
        return account if account is not None and not account.runs_out(URGENT_S) else await self._wait(loading)

    async def _wait(self, loading: Future[_Account]) -> _Account:
        name = self._row.name
        try:
            async with asyncio.timeout(self._credentials_s):
                return await asyncio.wrap_future(loading)
        except TimeoutError as exc:
            words = f"{name}: no AWS credentials within {self._credentials_s:g} s"
            raise ProviderTimeout(words, provider=name) from exc
        except ProviderError:
            raise
        except Exception as exc:  # of botocore, and of whatever it asks on the way
            raise _failure(name, exc) from exc

    def _load(self, account: _Account | None) -> Future[_Account]:
        """Find or refresh credentials, in a thread, which may run a program or ask services.

        Requests that come meanwhile share the thread. It is a daemon: nobody waits for it at the end.
        """
        if self._loading is not None and not self._loading.done():
            return self._loading
        loading = self._loading = Future[_Account]()
        loading.set_running_or_notify_cancel()  # or who stops waiting would cancel it for the others

        def load() -> None:
            try:
                found = _found(self._row) if account is None else _refreshed(account)
            except BaseException as exc:
                loading.set_exception(exc)
                return
            if self._account is not None and self._account.keys != found.keys:
                self._renewed_at = monotonic()  # before they can be seen: see renew
            self._account = found
            loading.set_result(found)

        Thread(target=load, name="aws-credentials", daemon=True).start()
        return loading


def signed(
    request: HttpRequest, keys: ReadOnlyCredentials, region: str, at: datetime, *, service: str = SERVICE
) -> HttpRequest:
    """``request`` with a version 4 signature; its URL and every header it has are signed.

    The steps are botocore's own. Its ``add_auth`` takes the time from the machine, and logs what holds a session token.
    """
    from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
    from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]

    time = at.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    headers = {**request.headers, "X-Amz-Date": time}
    if keys.token:
        headers["X-Amz-Security-Token"] = keys.token
    plain = AWSRequest(request.method, request.url, headers, request.body)
    plain.context["timestamp"] = time
    signer = SigV4Auth(keys, service, region)
    text = signer.string_to_sign(plain, signer.canonical_request(plain))
    names = signer.signed_headers(signer.headers_to_sign(plain))
    proof = f"Credential={signer.scope(plain)}, SignedHeaders={names}, Signature={signer.signature(text, plain)}"
    return replace(request, headers={**headers, "Authorization": f"AWS4-HMAC-SHA256 {proof}"})


def _region_of(base_url: str) -> str:
    """The region that a request to ``base_url`` is signed for, as far as the address and the environment tell."""
    named = _region_in_host.search(base_url)
    return named[1] if named else next(filter(None, map(os.environ.get, REGION_VARIABLES)), "")


def _session(profile: str) -> Any:
    from botocore.config import Config  # type: ignore[import-untyped]
    from botocore.session import Session  # type: ignore[import-untyped]

    session = Session(profile=profile or None)
    # what single sign-on and roles are asked with; by itself it would try five times, a minute each
    session.set_default_client_config(Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 2}))
    return session


def _region_of_profile(profile: str) -> str:
    return _session(profile).get_config_variable("region") or ""


def _found(row: ProviderRow) -> _Account:
    session = _session(row.profile)
    credentials = session.get_credentials()
    if credentials is None:
        place = f"the profile {row.profile!r}" if row.profile else "the environment, the AWS profile or of this machine"
        raise AuthFailed(f"{row.name}: no AWS credentials in {place}", provider=row.name)
    keys = credentials.get_frozen_credentials()
    return _Account(credentials, keys, session.get_config_variable("region") or "")


def _refreshed(account: _Account) -> _Account:
    return replace(account, keys=account.credentials.get_frozen_credentials())


def _failure(provider: str, error: Exception) -> ProviderError:
    from botocore.exceptions import ConnectionError, HTTPClientError  # type: ignore[import-untyped]  # noqa: A004

    said = " ".join(str(error).split())[:500] or type(error).__name__
    kind = ConnectFailed if isinstance(error, ConnectionError | HTTPClientError) else AuthFailed
    return kind(f"{provider}: no AWS credentials: {said}", provider=provider)
