"""Access tokens of Google Cloud, and where a request to Vertex AI goes."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skynet_agent.auth.google import GoogleAuth, host_of
from skynet_agent.errors import (
    AuthFailed,
    BadRequest,
    ConnectFailed,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    RateLimited,
)
from skynet_agent.http_client import HttpClient, HttpRequest
from skynet_agent.providers import ProviderRow
from skynet_memory.secrets import Secret
from tests.support.service_account import EMAIL, JWT_GRANT, claims_of, service_account, written

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
AUDIENCE = "https://oauth2.googleapis.com/token"
PATH = "/publishers/google/models/gemini-2.5-pro:streamGenerateContent?alt=sse"
PLAIN = HttpRequest(url="", headers={"Content-Type": "application/json"}, body=b"{}")
VARIABLES = (
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_CLOUD_LOCATION",
    "GOOGLE_CLOUD_QUOTA_PROJECT",
    "GOOGLE_API_KEY",
)


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials but those of the test."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    client = HttpClient()
    yield client
    await client.aclose()


@dataclass
class GoogleServer:
    """A token endpoint that checks what it is given as Google's does, and a metadata server."""

    url: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    """What was asked: the claims of a JWT, or the form."""
    expires_in: Any = 3600
    answer: Callable[[], web.StreamResponse] | None = None
    """What is answered instead."""
    hold: asyncio.Event | None = None
    """Answers wait for it."""
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    flavor: str = "Google"

    async def token(self, request: web.Request) -> web.StreamResponse:
        assert request.content_type == "application/x-www-form-urlencoded"
        form = dict(parse_qsl((await request.read()).decode(), strict_parsing=True))
        if form["grant_type"] == JWT_GRANT:
            self.calls.append(claims_of(form["assertion"]))
        else:
            self.calls.append(form)
        self.reached.set()
        if self.hold is not None:
            await self.hold.wait()
        if self.answer is not None:
            return self.answer()
        answer = {"access_token": f"ya29.token-{len(self.calls)}", "token_type": "Bearer"}
        return web.json_response({**answer, "expires_in": self.expires_in})

    async def metadata(self, request: web.Request) -> web.StreamResponse:
        assert request.headers["Metadata-Flavor"] == "Google"
        self.calls.append({"path": request.path})
        headers = {"Metadata-Flavor": self.flavor}
        if self.answer is not None and request.path.endswith("/token"):
            answer = self.answer()
            answer.headers.update(headers)
            return answer
        if request.path.endswith("/project/project-id"):
            return web.Response(text="machine-project", headers=headers)
        body = {"access_token": f"ya29.machine-{len(self.calls)}", "expires_in": 3600, "token_type": "Bearer"}
        return web.json_response(body, headers=headers)


@asynccontextmanager
async def google_server() -> AsyncIterator[GoogleServer]:
    server = GoogleServer()
    app = web.Application()
    app.router.add_post("/token", server.token)
    app.router.add_get("/computeMetadata/v1/{key:.*}", server.metadata)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        await runner.cleanup()


@pytest.fixture
async def google() -> AsyncIterator[GoogleServer]:
    async with google_server() as server:
        yield server


def account(server: GoogleServer, **fields: Any) -> dict[str, Any]:
    return service_account(f"{server.url}/token", **fields)


def user(**fields: Any) -> dict[str, Any]:
    return {
        "type": "authorized_user",
        "client_id": "app.apps.googleusercontent.com",
        "client_secret": "GOCSPX-secret",
        "refresh_token": "1//refresh-secret",
        **fields,
    }


@pytest.fixture
def user_endpoint(google: GoogleServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token endpoint for people: google-auth knows only Google's own, whatever their files say."""
    monkeypatch.setattr("google.oauth2.credentials._GOOGLE_OAUTH2_TOKEN_ENDPOINT", f"{google.url}/token")


@pytest.fixture
def account_file(google: GoogleServer, tmp_path: Path) -> Path:
    return written(tmp_path / "account.json", account(google))


def row_with(file: Path | str = "", **fields: Any) -> ProviderRow:
    return ProviderRow(name="cloud", api="vertex", auth="google", credentials_file=str(file), **fields)


async def signed(auth: GoogleAuth, path: str = PATH, base_url: str = "") -> HttpRequest:
    return await auth.sign(base_url, path, PLAIN)


async def bearer(auth: GoogleAuth) -> str:
    return (await signed(auth)).headers["Authorization"]


# A service account


async def test_a_service_account_signs_for_its_token(
    account_file: Path, google: GoogleServer, http: HttpClient
) -> None:
    """SK-071."""
    before = time.time()
    request = await signed(GoogleAuth(row_with(account_file), http))
    assert request.headers == {"Content-Type": "application/json", "Authorization": "Bearer ya29.token-1"}
    assert request.url == f"https://aiplatform.googleapis.com/v1/projects/house-1/locations/global{PATH}"
    assert request.body == b"{}"
    (claims,) = google.calls
    issued = claims.pop("iat")
    assert before - 1 <= issued <= time.time() + 1
    assert claims == {
        "iss": EMAIL,
        "scope": SCOPE,
        "aud": AUDIENCE,
        "exp": issued + 3600,
    }


async def test_a_token_is_kept_until_shortly_before_its_end(
    account_file: Path, google: GoogleServer, http: HttpClient
) -> None:
    """SK-071."""
    now = [time.time()]
    auth = GoogleAuth(row_with(account_file), http, now=lambda: now[0])
    assert [await bearer(auth) for _ in range(5)] == ["Bearer ya29.token-1"] * 5
    now[0] += 3600 - 300
    assert await bearer(auth) == "Bearer ya29.token-1"
    now[0] += 120  # three minutes before its end
    assert await bearer(auth) == "Bearer ya29.token-2"
    assert len(google.calls) == 2


async def test_requests_at_once_share_one_call(account_file: Path, google: GoogleServer, http: HttpClient) -> None:
    auth = GoogleAuth(row_with(account_file), http)
    assert set(await asyncio.gather(*[bearer(auth) for _ in range(20)])) == {"Bearer ya29.token-1"}
    assert len(google.calls) == 1


async def test_a_refused_token_is_replaced_once(account_file: Path, google: GoogleServer, http: HttpClient) -> None:
    """Of many requests that are refused at the same time, the first replaces the token for all."""
    auth = GoogleAuth(row_with(account_file), http)
    everybody_signed = asyncio.Barrier(10)

    async def refused() -> str:
        await bearer(auth)
        await everybody_signed.wait()
        assert await auth.renew()
        return await bearer(auth)

    async with asyncio.TaskGroup() as tasks:
        answers = [tasks.create_task(refused()) for _ in range(10)]
    assert {task.result() for task in answers} == {"Bearer ya29.token-2"}
    assert len(google.calls) == 2


async def test_a_token_without_an_end_is_kept(account_file: Path, google: GoogleServer, http: HttpClient) -> None:
    google.expires_in = None
    auth = GoogleAuth(row_with(account_file), http, now=lambda: time.time() + 10**9)
    assert [await bearer(auth) for _ in range(2)] == ["Bearer ya29.token-1"] * 2


async def test_a_cancelled_request_leaves_the_token_to_the_next(
    account_file: Path, google: GoogleServer, http: HttpClient
) -> None:
    google.hold = asyncio.Event()
    auth = GoogleAuth(row_with(account_file), http)
    first = asyncio.create_task(bearer(auth))
    await google.reached.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    google.hold = None
    assert await bearer(auth) == "Bearer ya29.token-2"


@pytest.mark.parametrize("steps", range(0, 40, 3))
async def test_cancelling_at_any_step_does_no_harm(
    account_file: Path, google: GoogleServer, http: HttpClient, steps: int
) -> None:
    auth = GoogleAuth(row_with(account_file), http)
    task = asyncio.create_task(bearer(auth))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert (await bearer(auth)).startswith("Bearer ya29.token-")


async def test_a_replaced_file_is_read_after_a_refusal(
    account_file: Path, google: GoogleServer, http: HttpClient
) -> None:
    refusal = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
    google.answer = lambda: web.json_response(refusal, status=400)
    auth = GoogleAuth(row_with(account_file), http)
    with pytest.raises(AuthFailed, match=r"^cloud: no access token: invalid_grant: Invalid JWT Signature\.$"):
        await bearer(auth)
    google.answer = None
    written(account_file, account(google, project_id="house-2"))
    assert "/projects/house-2/" in (await signed(auth)).url


async def test_failures_are_shared(account_file: Path, google: GoogleServer, http: HttpClient) -> None:
    """While nobody gives out tokens, those who wait for one fail together, and the next one asks again."""
    google.hold, google.answer = asyncio.Event(), lambda: web.Response(status=503, text="<html>")
    auth = GoogleAuth(row_with(account_file), http)
    waiting = [asyncio.create_task(bearer(auth)) for _ in range(10)]
    await google.reached.wait()
    google.hold.set()
    failures = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(failure) for failure in failures} == {Overloaded}
    assert len(google.calls) == 1
    google.answer = None
    assert await bearer(auth) == "Bearer ya29.token-2"


@pytest.mark.parametrize(
    ("status", "headers", "kind"),
    [
        (400, {}, AuthFailed),
        (401, {}, AuthFailed),
        (403, {}, AuthFailed),
        (404, {}, AuthFailed),
        (302, {"location": "http://127.0.0.1:9/"}, AuthFailed),
        (408, {}, ProviderTimeout),
        (429, {"retry-after": "7"}, RateLimited),
        (500, {}, Overloaded),
        (503, {}, Overloaded),
    ],
)
async def test_failures_of_the_token_endpoint(
    account_file: Path,
    google: GoogleServer,
    http: HttpClient,
    status: int,
    headers: Mapping[str, str],
    kind: type[ProviderError],
) -> None:
    body = {"error": "no_luck", "error_description": "Not today."}
    google.answer = lambda: web.json_response(body, status=status, headers=headers)
    with pytest.raises(ProviderError, match=r"^cloud: .*(?:no_luck|Not today)") as caught:
        await bearer(GoogleAuth(row_with(account_file), http))
    assert type(caught.value) is kind
    assert len(google.calls) == 1  # whether to ask again is the router's business
    if isinstance(caught.value, RateLimited):
        assert caught.value.retry_after_s == 7


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"fine",
        b"[]",
        b"null",
        b'"ya29"',
        b"{}",
        b'{"access_token": null}',
        b'{"access_token": {"a": 1}}',
        b'{"access_token": "a b\\r\\nX-Evil: 1", "expires_in": 1}',
        b'{"access_token": "x", "expires_in": "soon"}',
        b'{"access_token": "x", "expires_in": 1e400}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
async def test_answers_that_hold_no_token(
    account_file: Path, google: GoogleServer, http: HttpClient, body: bytes
) -> None:
    google.answer = lambda: web.Response(body=body, content_type="application/json")
    with pytest.raises((AuthFailed, Overloaded), match=r"^cloud: "):
        await bearer(GoogleAuth(row_with(account_file), http))


async def test_nobody_at_the_token_endpoint(tmp_path: Path, http: HttpClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    file = written(tmp_path / "account.json", account(GoogleServer(url=f"http://127.0.0.1:{port}")))
    with pytest.raises(ConnectFailed, match=rf"^cloud: no connection to http://127\.0\.0\.1:{port}: Connection"):
        await bearer(GoogleAuth(row_with(file), http))


@pytest.mark.parametrize("token_uri", ["http://oauth2.example.org/token", "http://169.254.169.254/token", "ftp://x/t"])
async def test_what_is_signed_is_sent_encrypted(tmp_path: Path, http: HttpClient, token_uri: str) -> None:
    file = written(tmp_path / "account.json", service_account(token_uri))
    with pytest.raises(AuthFailed, match=r"^cloud: the credentials name an address for tokens that is not https$"):
        await bearer(GoogleAuth(row_with(file), http))


async def test_a_silent_token_endpoint(account_file: Path, google: GoogleServer, http: HttpClient) -> None:
    google.hold = asyncio.Event()
    with pytest.raises(ProviderTimeout, match=r"^cloud: silent for 0\.1 s$"):
        await bearer(GoogleAuth(row_with(account_file, read_timeout_s=0.1), http))
    google.hold.set()


async def test_nothing_is_read_or_asked_before_the_first_request(
    account_file: Path, google: GoogleServer, http: HttpClient
) -> None:
    auth = GoogleAuth(row_with(account_file), http)
    GoogleAuth(row_with("/nowhere"), http)
    assert (google.calls, auth.secrets()) == ([], ())


@pytest.mark.usefixtures("user_endpoint")
async def test_no_failure_shows_what_proves_who_asks(tmp_path: Path, google: GoogleServer, http: HttpClient) -> None:
    file = written(tmp_path / "user.json", user())
    said = "bad client GOCSPX-secret with 1//refresh-secret"
    answers: dict[int, Any] = {400: {"error": "invalid_client", "error_description": said}, 503: {"message": said}}
    for status, body in answers.items():
        google.answer = partial(web.json_response, body, status=status)
        with pytest.raises(ProviderError) as caught:
            await bearer(GoogleAuth(row_with(file), http))
        assert "bad client *** with ***" in str(caught.value)


async def test_the_token_is_a_secret(account_file: Path, google: GoogleServer, http: HttpClient) -> None:
    auth = GoogleAuth(row_with(account_file), http)
    assert auth.secrets() == ()
    await bearer(auth)
    assert auth.secrets() == (b"ya29.token-1",)


# Files that are none


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, r"cannot be read: No such file or directory"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is not a JSON object"),
        ("{}", "has an unknown type: 'None'"),
        ('{"type": "magic"}', "has an unknown type: 'magic'"),
        ('{"type": "service_account"}', "holds no service_account credentials: .*client_email"),
        ('{"type": "authorized_user", "client_id": "a"}', "holds no authorized_user credentials: "),
        ('{"type": "external_account"}', "holds no external_account credentials: "),
        ('{"type": "impersonated_service_account"}', "holds no impersonated_service_account credentials: "),
    ],
)
async def test_files_without_credentials(tmp_path: Path, http: HttpClient, content: str | None, words: str) -> None:
    file = tmp_path / "credentials.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(AuthFailed, match=rf"^cloud: the credentials file {file} {words}"):
        await bearer(GoogleAuth(row_with(file), http))


async def test_a_key_that_is_none_is_not_shown(tmp_path: Path, google: GoogleServer, http: HttpClient) -> None:
    broken = str(account(google)["private_key"]).replace("A", "!", 3)
    file = written(tmp_path / "account.json", account(google, private_key=broken))
    with pytest.raises(AuthFailed, match="holds no service_account credentials: ") as caught:
        await bearer(GoogleAuth(row_with(file), http))
    assert not any(line in str(caught.value) for line in broken.splitlines()[1:-2])
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


# Where else credentials may be


@pytest.mark.usefixtures("user_endpoint")
async def test_a_person_has_a_refresh_token(tmp_path: Path, google: GoogleServer, http: HttpClient) -> None:
    written(tmp_path / "gcloud" / "application_default_credentials.json", user(quota_project_id="house-9"))
    request = await signed(GoogleAuth(row_with(), http))
    assert request.headers["Authorization"] == "Bearer ya29.token-1"
    assert request.headers["x-goog-user-project"] == "house-9"
    assert "/projects/house-9/" in request.url
    assert google.calls == [
        {
            "grant_type": "refresh_token",
            "client_id": "app.apps.googleusercontent.com",
            "client_secret": "GOCSPX-secret",
            "refresh_token": "1//refresh-secret",
        }
    ]


async def test_the_file_of_the_environment_comes_before_gclouds(
    tmp_path: Path, account_file: Path, google: GoogleServer, http: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "gcloud" / "application_default_credentials.json", user())
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(account_file))
    assert "/projects/house-1/" in (await signed(GoogleAuth(row_with(), http))).url
    own = written(tmp_path / "own.json", account(google, project_id="house-2"))
    assert "/projects/house-2/" in (await signed(GoogleAuth(row_with(own), http))).url


async def test_a_machine_in_googles_cloud(
    google: GoogleServer, http: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_GCE_CHECK")
    monkeypatch.setenv("GCE_METADATA_HOST", google.url.removeprefix("http://"))
    auth = GoogleAuth(row_with(), http)
    request = await signed(auth)
    assert request.headers["Authorization"] == "Bearer ya29.machine-2"
    assert "/projects/machine-project/" in request.url
    assert await bearer(auth) == "Bearer ya29.machine-2"
    assert [call["path"] for call in google.calls] == [
        "/computeMetadata/v1/project/project-id",
        "/computeMetadata/v1/instance/service-accounts/default/token",
    ]


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [(b"no account", 404, BadRequest), (b"", 503, Overloaded), (b"[]", 200, Overloaded), (b"{}", 200, Overloaded)],
)
async def test_a_metadata_server_without_tokens(
    google: GoogleServer,
    http: HttpClient,
    monkeypatch: pytest.MonkeyPatch,
    body: bytes,
    status: int,
    kind: type[ProviderError],
) -> None:
    monkeypatch.delenv("NO_GCE_CHECK")
    monkeypatch.setenv("GCE_METADATA_HOST", google.url.removeprefix("http://"))
    google.answer = lambda: web.Response(body=body, status=status)
    with pytest.raises(kind, match=r"^cloud: the metadata server"):
        await bearer(GoogleAuth(row_with(), http))


async def test_somebody_else_at_the_metadata_address(
    google: GoogleServer, http: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_GCE_CHECK")
    monkeypatch.setenv("GCE_METADATA_HOST", google.url.removeprefix("http://"))
    google.flavor = "Amazon"
    now = [0.0]
    auth = GoogleAuth(row_with(), http, now=lambda: now[0])
    for _ in range(2):
        with pytest.raises(AuthFailed, match=r"^cloud: no Google credentials; set credentials_file or GOOGLE_APPL"):
            await bearer(auth)
    assert len(google.calls) == 1  # nobody asks again at once
    now[0] += 61
    google.flavor = "Google"
    assert await bearer(auth) == "Bearer ya29.machine-3"


async def test_no_credentials_at_all(http: HttpClient) -> None:
    with pytest.raises(AuthFailed, match="gcloud auth application-default login"):
        await bearer(GoogleAuth(row_with(), http))


# Keys


@pytest.mark.parametrize("where", ["row", "environment"])
async def test_express_mode(http: HttpClient, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    if where == "environment":
        monkeypatch.setenv("GOOGLE_API_KEY", "AQ.key-of-google")
    auth = GoogleAuth(row_with(api_key=Secret("AQ.key-of-google" if where == "row" else ""), region="us"), http)
    request = await signed(auth)
    assert request.url == f"https://aiplatform.googleapis.com/v1{PATH}"
    assert request.headers == {"Content-Type": "application/json", "x-goog-api-key": "AQ.key-of-google"}
    assert auth.secrets() == (b"AQ.key-of-google",)
    assert not await auth.renew()
    with pytest.raises(AuthFailed, match="an API key reaches only Google's own models") as caught:
        await signed(auth, "/publishers/anthropic/models/claude-opus-4-8:streamRawPredict")
    assert "AQ.key" not in str(caught.value)


async def test_a_file_comes_before_a_key(account_file: Path, http: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await bearer(GoogleAuth(row_with(account_file, api_key=Secret("AQ.key")), http)) == "Bearer ya29.token-1"
    monkeypatch.setenv("GOOGLE_API_KEY", "AQ.key")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(account_file))
    assert await bearer(GoogleAuth(row_with(), http)) == "Bearer ya29.token-2"


async def test_the_environments_key_is_for_those_without_a_project(
    google: GoogleServer, http: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "AQ.key-of-another-service")
    monkeypatch.delenv("NO_GCE_CHECK")
    monkeypatch.setenv("GCE_METADATA_HOST", google.url.removeprefix("http://"))
    assert await bearer(GoogleAuth(row_with(project="house-1"), http)) == "Bearer ya29.machine-2"
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "house-1")
    assert await bearer(GoogleAuth(row_with(), http)) == "Bearer ya29.machine-4"


# The address


@pytest.mark.parametrize(
    ("location", "host"),
    [
        ("global", "aiplatform.googleapis.com"),
        ("us", "aiplatform.us.rep.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
        ("europe-west1", "europe-west1-aiplatform.googleapis.com"),
    ],
)
async def test_every_location_has_its_host(account_file: Path, http: HttpClient, location: str, host: str) -> None:
    assert host_of(location) == host
    request = await signed(GoogleAuth(row_with(account_file, region=location), http))
    assert request.url == f"https://{host}/v1/projects/house-1/locations/{location}{PATH}"


async def test_location_and_project_of_the_environment(
    tmp_path: Path, google: GoogleServer, http: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "house-env")
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "us-east5")
    file = written(tmp_path / "account.json", account(google, project_id=None))
    place = "https://us-east5-aiplatform.googleapis.com/v1/projects/house-env/locations/us-east5"
    assert (await signed(GoogleAuth(row_with(file), http))).url == place + PATH
    row = row_with(file, project="example.com:house", region="global")
    place = "https://aiplatform.googleapis.com/v1/projects/example.com:house/locations/global"
    assert (await signed(GoogleAuth(row, http))).url == place + PATH


@pytest.mark.parametrize(
    ("base_url", "base"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1"),
        ("https://proxy.example/v1beta1", "https://proxy.example/v1beta1"),
        ("https://proxy.example/vertex", "https://proxy.example/vertex/v1"),
    ],
)
async def test_a_base_url_replaces_the_host(account_file: Path, http: HttpClient, base_url: str, base: str) -> None:
    request = await signed(GoogleAuth(row_with(account_file, region="us"), http), base_url=base_url)
    assert request.url == f"{base}/projects/house-1/locations/us{PATH}"


async def test_no_project(tmp_path: Path, google: GoogleServer, http: HttpClient) -> None:
    file = written(tmp_path / "account.json", account(google, project_id=None))
    with pytest.raises(AuthFailed, match=r"^cloud: no Google Cloud project: .* set project or GOOGLE_CLOUD_PROJECT$"):
        await bearer(GoogleAuth(row_with(file), http))


@pytest.mark.parametrize("location", ["evil.example/", "a b", "US", "x#", "é"])
async def test_a_location_that_is_none(
    account_file: Path, google: GoogleServer, http: HttpClient, location: str
) -> None:
    with pytest.raises(BadRequest, match="is no location of Google Cloud"):
        await bearer(GoogleAuth(row_with(account_file, region=location), http))
    assert google.calls == []


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(min_size=1, max_size=20))
async def test_a_project_cannot_leave_its_place(account_file: Path, http: HttpClient, project: str) -> None:
    request = await signed(GoogleAuth(row_with(account_file, project=project), http))
    assert request.url.isascii()
    path = request.url.removeprefix("https://aiplatform.googleapis.com/v1/projects/")
    assert path.count("/") == PATH.count("/") + 2
    assert not set("?# ") & set(path.removesuffix(PATH))


# The whole way


async def test_what_is_declared_is_enough(account_file: Path, google: GoogleServer) -> None:
    """google-auth makes tokens without ``requests`` and without urllib3, which it would rather use."""
    script = f"""
import asyncio, sys
sys.modules["requests"] = sys.modules["urllib3"] = None
from skynet_agent.auth.google import GoogleAuth
from skynet_agent.http_client import HttpClient, HttpRequest
from skynet_agent.providers import ProviderRow
assert "google.auth" not in sys.modules

async def main():
    http = HttpClient()
    auth = GoogleAuth(ProviderRow(name="cloud", auth="google", credentials_file={str(account_file)!r}), http)
    request = await auth.sign("", "/publishers/google/models/m:streamGenerateContent", HttpRequest(url=""))
    print(request.headers["Authorization"])
    await http.aclose()

asyncio.run(main())
"""
    # asyncio's debug mode would have it say on stderr that the machine is slow.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONASYNCIODEBUG"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", script), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    output, errors = await process.communicate()
    assert (output, errors) == (b"Bearer ya29.token-1\n", b"")
