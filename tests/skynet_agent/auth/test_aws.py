"""AWS signatures against published vectors and a server that computes them itself, and credentials from real places."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from botocore.credentials import ReadOnlyCredentials  # type: ignore[import-untyped]
from botocore.loaders import Loader  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.auth import auth_of
from skynet_agent.auth.aws import AwsAuth, signed
from skynet_agent.endpoint import Endpoint
from skynet_agent.errors import AuthFailed, ConnectFailed, ProviderError, ProviderTimeout
from skynet_agent.http_client import HttpClient, HttpRequest
from skynet_agent.providers import ProviderRow
from skynet_memory.secrets import Secret
from tests.skynet_agent.lab import until
from tests.support.dialects.bedrock import AwsKey, Bedrock
from tests.support.model_server import ModelServer
from tests.support.script import Seen

PATH = "/model/anthropic.claude-3-7-sonnet-20250219-v1%3A0/converse"
BODY = b'{"messages":[{"role":"user","content":[{"text":"say=hello"}]}]}'
TOKEN = "FwoGZXIvYXdzE/+=="
VARIABLES = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_ROLE_ARN"),
    *("AWS_DEFAULT_REGION", "AWS_DEFAULT_PROFILE", "AWS_BEARER_TOKEN_BEDROCK", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    *("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without anything of AWS, on a machine that is none of Amazon's."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    client = HttpClient()
    yield client
    await client.aclose()


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        server.dialect(Bedrock).keys["AKIDLAB"] = AwsKey("s3cret/of+lab")
        server.dialect(Bedrock).keys["ASIALAB"] = AwsKey("s3cret/of+lab", TOKEN)
        yield server


def row_of(server: ModelServer, **fields: Any) -> ProviderRow:
    return ProviderRow(name="lab", api="bedrock", auth="aws", **{"base_url": server.origin, **fields})


def use_keys(
    monkeypatch: pytest.MonkeyPatch, key: str = "AKIDLAB", secret: str = "s3cret/of+lab", token: str = ""
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    if token:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    monkeypatch.setenv("AWS_REGION", "us-east-1")


async def fetch(row: ProviderRow, http: HttpClient, auth: AwsAuth | None = None) -> str:
    """What the server answers to a signed request."""
    endpoint = Endpoint(row, auth or AwsAuth(row), http, lambda: datetime.now(UTC))
    answer = json.loads(await endpoint.fetch(PATH, BODY, method="POST"))
    text: str = answer["output"]["message"]["content"][0]["text"]
    return text


async def signed_by(auth: AwsAuth, base_url: str = "") -> HttpRequest:
    return await auth.sign(base_url, PATH, HttpRequest(url=base_url + PATH, body=BODY))


async def scope_of(auth: AwsAuth, base_url: str = "") -> str:
    """Key id and region of a signature."""
    request = await signed_by(auth, base_url)
    _, key, _, region, service = request.headers["Authorization"].split(",")[0].replace("=", "/").split("/")[:5]
    assert service == "bedrock"
    return f"{key} {region}"


# The signature

# Requests, header by header, and signatures: aws-signing-test-suite/v4 of awslabs/aws-c-auth, which has Amazon's test
# suite of Signature Version 4 (header-signed-request.txt of each; get-vanilla's: botocore's tests).
SUITE = ReadOnlyCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "")
SUITE_TIME = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
FORM = {
    "Content-Length": "13",
    "x-amz-content-sha256": "9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e",
}
LETTERS = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
LONG_TOKEN = (
    "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7"
    "mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d"
    "+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="
)
VECTORS: list[tuple[str, str, str, Mapping[str, str], bytes, str]] = [
    ("get-vanilla", "GET", "/", {}, b"", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
    (
        "get-vanilla-query-order-key-case",
        "GET",
        "/?Param2=value2&Param1=value1",
        {},
        b"",
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ),
    (
        "get-vanilla-empty-query-key",
        "GET",
        "/?Param1=value1",
        {},
        b"",
        "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb",
    ),
    (
        "get-vanilla-query-unreserved",
        "GET",
        f"/?{LETTERS}={LETTERS}",
        {},
        b"",
        "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197",
    ),
    (
        "get-unreserved",
        "GET",
        f"/{LETTERS}",
        {},
        b"",
        "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
    ),
    ("get-utf8", "GET", "/ሴ", {}, b"", "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"),
    (
        "get-slash-pointless-dot-normalized",
        "GET",
        "/./example",
        {},
        b"",
        "ef75d96142cf21edca26f06005da7988e4f8dc83a165a80865db7089db637ec5",
    ),
    (
        "get-header-value-trim",
        "GET",
        "/",
        {"My-Header1": " value1", "My-Header2": ' "a   b   c"'},
        b"",
        "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
    ),
    ("post-vanilla", "POST", "/", {}, b"", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
    (
        "post-x-www-form-urlencoded",
        "POST",
        "/",
        {"Content-Type": "application/x-www-form-urlencoded", **FORM},
        b"Param1=value1",
        "d3875051da38690788ef43de4db0d8f280229d82040bfac253562e56c3f20e0b",
    ),
    (
        "post-x-www-form-urlencoded-parameters",
        "POST",
        "/",
        {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8", **FORM},
        b"Param1=value1",
        "328d1b9eaadca9f5818ef05e8392801e091653bafec24fcab71e7344e7f51422",
    ),
]


@pytest.mark.parametrize(
    ("method", "target", "headers", "body", "signature"),
    [case[1:] for case in VECTORS],
    ids=[case[0] for case in VECTORS],
)
def test_published_vectors(method: str, target: str, headers: Mapping[str, str], body: bytes, signature: str) -> None:
    """SK-070."""
    plain = HttpRequest(url=f"https://example.amazonaws.com{target}", method=method, headers=headers, body=body)
    request = signed(plain, SUITE, "us-east-1", SUITE_TIME, service="service")
    names = ";".join(sorted({"host", "x-amz-date", *map(str.lower, headers)}))
    scope = "AKIDEXAMPLE/20150830/us-east-1/service/aws4_request"
    proof = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={names}, Signature={signature}"
    assert request.headers == {**headers, "X-Amz-Date": "20150830T123600Z", "Authorization": proof}
    assert (request.url, request.method, request.body) == (plain.url, method, body)


@pytest.mark.parametrize(
    ("name", "method", "token", "signature"),
    [
        (
            "get-vanilla-with-session-token",
            "GET",
            "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267",
            "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8",
        ),
        (
            "post-sts-header-before",
            "POST",
            LONG_TOKEN,
            "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
        ),
    ],
)
def test_published_vectors_with_a_session_token(name: str, method: str, token: str, signature: str) -> None:
    """SK-070."""
    plain = HttpRequest(url="https://example.amazonaws.com/", method=method)
    request = signed(plain, SUITE._replace(token=token), "us-east-1", SUITE_TIME, service="service")
    assert request.headers["X-Amz-Security-Token"] == token
    assert request.headers["Authorization"].endswith(
        f"SignedHeaders=host;x-amz-date;x-amz-security-token, Signature={signature}"
    )


SIGNED_TEXT = st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S", "Zs")), max_size=20)


@given(
    st.text(st.characters(codec="ascii", categories=("L", "N", "P")), min_size=1, max_size=60),
    st.dictionaries(st.from_regex(r"X-[a-z]{1,10}", fullmatch=True), SIGNED_TEXT, max_size=3),
    st.binary(max_size=60),
    st.sampled_from(["", TOKEN]),
)
def test_the_other_side_computes_the_same(model: str, headers: dict[str, str], body: bytes, token: str) -> None:
    """Whatever is in the path, the headers and the body; what is changed on the way is noticed (SK-070)."""
    now = datetime(2026, 11, 21, 7, 0, tzinfo=UTC)
    dialect = Bedrock()
    dialect.keys["AKIDLAB"] = AwsKey("s3cret/of+lab", token)
    dialect.now = lambda: now
    keys = ReadOnlyCredentials("AKIDLAB", "s3cret/of+lab", token)
    path = f"/model/{quote(model, safe='')}/converse"
    url = f"https://bedrock-runtime.us-east-1.amazonaws.com{path}"
    request = signed(HttpRequest(url=url, headers=headers, body=body), keys, "us-east-1", now)
    sent = {name.lower(): value for name, value in request.headers.items()}
    sent["host"] = "bedrock-runtime.us-east-1.amazonaws.com"
    with pytest.raises(Exception, match="not valid JSON"):
        dialect.ask(Seen("POST", path, sent, None, path, body))  # the signature is good, the body none
    with pytest.raises(Exception, match="does not match"):
        dialect.ask(Seen("POST", path, sent, None, path, body + b" "))


# Over HTTP


async def test_keys_of_the_environment(server: ModelServer, http: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """SK-064."""
    use_keys(monkeypatch)
    assert await fetch(row_of(server), http) == "hello"
    assert "x-amz-security-token" not in server.requests[-1].headers
    assert server.requests[-1].target == PATH


async def test_a_session_token_goes_along(
    server: ModelServer, http: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_keys(monkeypatch, "ASIALAB", token=TOKEN)
    assert await fetch(row_of(server, headers={"X-Team": "a  b   c"}), http) == "hello"
    assert server.requests[-1].headers["x-amz-security-token"] == TOKEN


async def test_a_large_body_is_signed_too(
    server: ModelServer, http: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_keys(monkeypatch)
    row = row_of(server)
    body = json.dumps({"messages": [{"role": "user", "content": [{"text": "x" * 3_000_000}]}]}).encode()
    endpoint = Endpoint(row, AwsAuth(row), http, lambda: datetime.now(UTC))
    assert len(await endpoint.fetch(PATH, body, method="POST")) > 3_000_000


async def test_a_wrong_secret_and_what_the_refusal_may_not_show(
    server: ModelServer, http: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Amazon repeats all that was signed, the session token too."""
    use_keys(monkeypatch, "ASIALAB", "wrong-secret", TOKEN)
    with pytest.raises(
        AuthFailed, match=r"does not match the signature you provided.*x-amz-security-token:\*\*\*"
    ) as caught:
        await fetch(row_of(server), http)
    assert caught.value.status == 403
    assert TOKEN not in str(caught.value)
    assert "wrong-secret" not in str(caught.value)


async def test_an_unknown_key(server: ModelServer, http: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    use_keys(monkeypatch, "AKIDNOBODY")
    with pytest.raises(AuthFailed, match="The security token included in the request is invalid"):
        await fetch(row_of(server), http)


@pytest.mark.parametrize(("hours", "words"), [(1, "Signature expired"), (-1, "Signature not yet current")])
async def test_a_wrong_clock(
    server: ModelServer, http: HttpClient, monkeypatch: pytest.MonkeyPatch, hours: int, words: str
) -> None:
    use_keys(monkeypatch)
    server.dialect(Bedrock).now = lambda: datetime.now(UTC) + timedelta(hours=hours)
    with pytest.raises(AuthFailed, match=words):
        await fetch(row_of(server), http)
    row = row_of(server)
    right = AwsAuth(row, lambda: datetime.now(UTC) + timedelta(hours=hours))
    assert await fetch(row, http, right) == "hello"


async def test_another_region(server: ModelServer, http: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    use_keys(monkeypatch)
    with pytest.raises(AuthFailed, match="Credential should be scoped to a valid region, not 'eu-west-1'"):
        await fetch(row_of(server, region="eu-west-1"), http)


async def test_it_is_what_the_kind_of_auth_stands_for(server: ModelServer, http: HttpClient) -> None:
    assert isinstance(auth_of(row_of(server), http, lambda: datetime.now(UTC), None), AwsAuth)


# A bearer token


async def test_a_bedrock_api_key_of_the_environment(
    server: ModelServer, http: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes before keys, as with Amazon's SDKs, and needs no region where the address is known."""
    use_keys(monkeypatch)
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-api-key-1")
    server.dialect(Bedrock).key = "bedrock-api-key-1"
    assert await fetch(row_of(server), http) == "hello"
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-api-key-2")
    with pytest.raises(AuthFailed, match="API Key is not valid"):
        await fetch(row_of(server), http)


async def test_the_rows_own_key_goes_before_that(
    server: ModelServer, http: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-api-key-1")
    auth = AwsAuth(row_of(server, api_key=Secret("bedrock-api-key-2")))
    server.dialect(Bedrock).key = "bedrock-api-key-2"
    assert await fetch(row_of(server), http, auth) == "hello"
    assert auth.secrets() == (b"bedrock-api-key-2",)
    assert await auth.renew() is False


async def test_a_profile_that_is_named_goes_before_the_variable(
    server: ModelServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-api-key-1")
    write_profiles(home)
    assert await scope_of(AwsAuth(row_of(server, profile="work"))) == "AKIDWORK eu-central-1"


async def test_a_bearer_token_with_the_region_of_the_profile(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-api-key-1")
    monkeypatch.setenv("AWS_PROFILE", "work")
    write_profiles(home)
    request = await signed_by(AwsAuth(ProviderRow(name="lab")))
    assert request.url == f"https://bedrock-runtime.eu-central-1.amazonaws.com{PATH}"
    assert request.headers["Authorization"] == "Bearer bedrock-api-key-1"


async def test_a_bearer_token_without_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-api-key-1")
    with pytest.raises(AuthFailed, match=r"^lab: no AWS region; name it as region of the provider, in AWS_REGION or"):
        await signed_by(AwsAuth(ProviderRow(name="lab")))


# Places


def write_profiles(home: Path) -> None:
    (home / "config").write_text("[default]\nregion = us-west-2\n[profile work]\nregion = eu-central-1\n")
    (home / "credentials").write_text(
        "[default]\naws_access_key_id = AKIDLAB\naws_secret_access_key = s3cret/of+lab\n"
        "[work]\naws_access_key_id = AKIDWORK\naws_secret_access_key = s\n"
    )


async def test_where_the_region_comes_from(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first that there is: the row's, that of the address, of the environment, of the profile."""
    write_profiles(home)
    row, vpc = ProviderRow(name="lab"), "https://vpce-1-x.bedrock-runtime.ap-south-1.vpce.amazonaws.com"
    assert await scope_of(AwsAuth(row)) == "AKIDLAB us-west-2"
    assert await scope_of(AwsAuth(ProviderRow(name="lab", profile="work"))) == "AKIDWORK eu-central-1"
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert await scope_of(AwsAuth(row)) == "AKIDWORK eu-central-1"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "sa-east-1")
    assert await scope_of(AwsAuth(row)) == "AKIDWORK sa-east-1"
    monkeypatch.setenv("AWS_REGION", "ca-central-1")
    assert await scope_of(AwsAuth(row)) == "AKIDWORK ca-central-1"
    assert await scope_of(AwsAuth(row), vpc) == "AKIDWORK ap-south-1"
    assert await scope_of(AwsAuth(ProviderRow(name="lab", region="us-gov-west-1")), vpc) == "AKIDWORK us-gov-west-1"


async def test_an_address_with_a_path(server: ModelServer, http: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    use_keys(monkeypatch)
    assert await fetch(row_of(server, base_url=f"{server.origin}/proxy/bedrock/"), http) == "hello"
    assert server.requests[-1].target == f"/proxy/bedrock{PATH}"


async def test_credentials_of_an_address_are_left_out(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    use_keys(monkeypatch)
    request = await signed_by(AwsAuth(row_of(server)), "https://someone:hunter2@proxy.lan/x@y")
    assert request.url == f"https://proxy.lan/x@y{PATH}"


@pytest.mark.parametrize("base_url", ["proxy.lan", "https://", "https:///model"])
async def test_an_address_that_is_none(server: ModelServer, monkeypatch: pytest.MonkeyPatch, base_url: str) -> None:
    use_keys(monkeypatch)
    with pytest.raises(ConnectFailed, match=r"^lab: base_url is no HTTP address$"):
        await signed_by(AwsAuth(row_of(server)), base_url)


async def test_every_region_that_botocore_knows_has_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """But those of partitions that only governments get to see."""
    use_keys(monkeypatch)
    seen = 0
    for partition in Loader().load_data("partitions")["partitions"]:
        for region in () if partition["id"].startswith("aws-iso") else partition["regions"]:
            if region.endswith("-global"):
                continue
            seen += 1
            request = await signed_by(AwsAuth(ProviderRow(name="lab", region=region)))
            suffix = partition["outputs"]["dnsSuffix"]
            assert request.url == f"https://bedrock-runtime.{region}.{suffix}{PATH}"
    assert seen > 30


@pytest.mark.parametrize("region", ["us east 1", "evil.example/", "us-east-1.evil.example", "US-EAST-1", "useast1"])
async def test_a_region_that_is_none(monkeypatch: pytest.MonkeyPatch, region: str) -> None:
    use_keys(monkeypatch)
    with pytest.raises(AuthFailed, match="is no AWS region; name it as region of the provider"):
        await signed_by(AwsAuth(ProviderRow(name="lab", region=region)))


async def test_no_region(home: Path) -> None:
    write_profiles(home)
    (home / "config").unlink()
    with pytest.raises(AuthFailed, match=r"^lab: no AWS region; name it as region of the provider"):
        await signed_by(AwsAuth(ProviderRow(name="lab")))


# Credentials


async def test_no_credentials(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is not remembered: the next request looks again."""
    auth = AwsAuth(ProviderRow(name="lab", region="us-east-1"))
    for _ in range(2):
        with pytest.raises(AuthFailed, match=r"^lab: no AWS credentials in the environment, the AWS profile or of"):
            await signed_by(auth)
    assert auth.secrets() == ()
    assert await auth.renew() is False
    write_profiles(home)
    assert await scope_of(auth) == "AKIDLAB us-east-1"
    assert auth.secrets() == (b"s3cret/of+lab",)


async def test_an_unknown_profile(home: Path) -> None:
    write_profiles(home)
    with pytest.raises(AuthFailed, match=r"^lab: no AWS credentials: The config profile \(play\) could not be found$"):
        await signed_by(AwsAuth(ProviderRow(name="lab", region="us-east-1", profile="play")))


async def test_a_profile_without_credentials(home: Path) -> None:
    (home / "config").write_text("[profile empty]\nregion = us-east-1\n")
    with pytest.raises(AuthFailed, match=r"^lab: no AWS credentials in the profile 'empty'$"):
        await signed_by(AwsAuth(ProviderRow(name="lab", profile="empty")))


async def test_files_that_make_no_sense(home: Path) -> None:
    (home / "config").write_bytes(b"[default\xff\nregion")
    with pytest.raises(AuthFailed, match=r"^lab: no AWS credentials: "):
        await signed_by(AwsAuth(ProviderRow(name="lab", region="us-east-1")))


async def test_single_sign_on_that_nobody_did(home: Path) -> None:
    (home / "config").write_text(
        "[default]\nsso_session = house\nsso_account_id = 1\nsso_role_name = r\nregion = us-east-1\n"
        "[sso-session house]\nsso_region = us-east-1\nsso_start_url = https://house.example/start\n"
    )
    with pytest.raises(AuthFailed, match=r"^lab: no AWS credentials: Error loading SSO Token"):
        await signed_by(AwsAuth(ProviderRow(name="lab")))


async def test_renewed_credentials(home: Path) -> None:
    write_profiles(home)
    auth = AwsAuth(ProviderRow(name="lab"))
    assert await scope_of(auth) == "AKIDLAB us-west-2"
    assert await auth.renew() is False
    (home / "credentials").write_text("[default]\naws_access_key_id = AKIDNEW\naws_secret_access_key = s3cret-2\n")
    assert await scope_of(auth) == "AKIDLAB us-west-2"
    assert await auth.renew() is True
    assert await scope_of(auth) == "AKIDNEW us-west-2"
    assert auth.secrets() == (b"s3cret-2",)


async def test_requests_that_were_refused_together_are_all_asked_again(home: Path) -> None:
    """The later ones of them find new credentials already, and cannot tell whether these were refused."""
    write_profiles(home)
    auth = AwsAuth(ProviderRow(name="lab"))
    assert await scope_of(auth) == "AKIDLAB us-west-2"
    (home / "credentials").write_text("[default]\naws_access_key_id = AKIDNEW\naws_secret_access_key = s3cret-2\n")
    assert await asyncio.gather(*[auth.renew() for _ in range(5)]) == [True] * 5
    assert await auth.renew() is True
    assert await scope_of(auth) == "AKIDNEW us-west-2"


class Metadata:
    """What a container's agent answers: credentials that run out, other ones each time. A dialect that is all GET."""

    content_type = "application/json"
    cache = "none"

    def __init__(self, minutes: float) -> None:
        self.minutes = minutes
        self.served = 0
        self.broken = False

    def accepts(self, seen: Seen) -> bool:
        return seen.method == "GET"

    def models(self) -> Any:
        self.served += 1
        if self.broken:
            return {"code": "AccessDenied", "message": "no longer"}
        expiry = datetime.now(UTC) + timedelta(minutes=self.minutes)
        return {
            "AccessKeyId": f"ASIA{self.served}",
            "SecretAccessKey": f"s3cret-{self.served}",
            "Token": f"token-{self.served}",
            "Expiration": f"{expiry:%Y-%m-%dT%H:%M:%SZ}",
        }


def container(server: ModelServer, monkeypatch: pytest.MonkeyPatch, minutes: float) -> Metadata:
    agent = Metadata(minutes)
    server.dialects = (agent,)  # type: ignore[assignment]
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{server.origin}/credentials")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return agent


async def test_credentials_that_last_are_kept(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, auth = container(server, monkeypatch, 60), AwsAuth(ProviderRow(name="lab"))
    for _ in range(3):
        assert await scope_of(auth) == "ASIA1 us-east-1"
    assert agent.served == 1
    assert auth.secrets() == (b"s3cret-1", b"token-1")
    assert await auth.renew() is True
    assert await scope_of(auth) == "ASIA2 us-east-1"


async def test_credentials_that_are_about_to_run_out_are_waited_for(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, auth = container(server, monkeypatch, 3), AwsAuth(ProviderRow(name="lab"))
    for _ in range(3):
        before = agent.served
        assert await scope_of(auth) == f"ASIA{agent.served} us-east-1"
        assert agent.served > before
    agent.minutes = 60
    assert await scope_of(auth) == f"ASIA{agent.served} us-east-1"
    before = agent.served
    assert await scope_of(auth) == f"ASIA{agent.served} us-east-1"
    assert agent.served == before


async def test_credentials_that_run_out_soon_are_replaced_in_the_background(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, auth = container(server, monkeypatch, 12), AwsAuth(ProviderRow(name="lab"))
    first = await scope_of(auth)
    agent.minutes = 60
    before = agent.served
    assert await scope_of(auth) == first
    await until(lambda: agent.served > before and not threads())
    assert await scope_of(auth) == f"ASIA{before + 1} us-east-1"
    assert agent.served == before + 1


# A program that hands out credentials


def program(home: Path, text: str) -> None:
    """The default profile asks a program, which appends a line to ``runs`` each time."""
    script = home / "program.py"
    script.write_text(f"import pathlib, sys, time\npath = pathlib.Path({str(home)!r})\n{text}")
    (home / "config").write_text(f"[default]\nregion = us-east-1\ncredential_process = {sys.executable} -I {script}\n")


WAITING = """
with open(path / "runs", "a") as runs:
    runs.write("run\\n")
while not (path / "go").exists():
    time.sleep(0.01)
print('{"Version": 1, "AccessKeyId": "AKIDPROGRAM", "SecretAccessKey": "s"}')
"""


def runs(home: Path) -> int:
    with suppress(FileNotFoundError):
        return len((home / "runs").read_text().splitlines())
    return 0


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "aws-credentials"]


async def test_requests_that_come_together_ask_once(home: Path) -> None:
    """Also when the first one of them gives up."""
    program(home, WAITING)
    auth = AwsAuth(ProviderRow(name="lab"))
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        first, *others = [group.create_task(scope_of(auth)) for _ in range(20)]
        await until(lambda: runs(home) == 1)
        first.cancel()
        await asyncio.sleep(0)
        (home / "go").touch()
    assert {each.result() for each in others} == {"AKIDPROGRAM us-east-1"}
    assert first.cancelled()
    assert runs(home) == 1
    assert not threads()


async def test_a_program_that_takes_too_long(home: Path) -> None:
    """The program goes on: somebody may have to confirm something. What it says serves the requests after that."""
    program(home, WAITING)
    auth = AwsAuth(ProviderRow(name="lab"), credentials_s=0.05)
    for _ in range(2):
        with pytest.raises(ProviderTimeout, match=r"^lab: no AWS credentials within 0\.05 s$"):
            await scope_of(auth)
    await until(lambda: runs(home) == 1)
    assert len(threads()) == 1
    (home / "go").touch()
    await until(lambda: not threads())
    assert await scope_of(auth) == "AKIDPROGRAM us-east-1"
    assert runs(home) == 1


def test_a_program_that_hangs_holds_up_no_end(home: Path) -> None:
    program(home, WAITING)
    code = (
        "import asyncio\nfrom skynet_agent.auth.aws import AwsAuth\nfrom skynet_agent.providers import ProviderRow\n"
        "from skynet_agent.http_client import HttpRequest\n"
        "auth = AwsAuth(ProviderRow(name='lab'), credentials_s=0.2)\n"
        "try:\n    asyncio.run(auth.sign('', '/', HttpRequest(url='')))\n"
        "except Exception as exc:\n    print(type(exc).__name__)\n"
    )
    try:
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=60, check=True)
        assert done.stdout == "ProviderTimeout\n"
        assert not (home / "go").exists()
    finally:
        (home / "go").touch()  # ends the program, which has outlived who asked it


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sys.exit('vault is locked')", "vault is locked"),
        ("print('no JSON')", ""),
        ("print('{}')", "Unsupported version"),
        ("print('{\"Version\": 1}')", "Missing required key"),
    ],
)
async def test_a_program_that_fails(home: Path, text: str, words: str) -> None:
    program(home, text)
    with pytest.raises(AuthFailed, match=f"^lab: no AWS credentials: .*{words}"):
        await scope_of(AwsAuth(ProviderRow(name="lab")))


async def test_a_service_that_cannot_be_reached(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A role is taken on with a service; that it does not answer is no fault of the credentials."""
    (home / "config").write_text(
        "[default]\nregion = us-east-1\nrole_arn = arn:aws:iam::123456789012:role/r\nsource_profile = base\n"
    )
    (home / "credentials").write_text("[base]\naws_access_key_id = AKIDLAB\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:9")
    with pytest.raises(ConnectFailed, match=r"^lab: no AWS credentials: Could not connect to the endpoint URL"):
        await signed_by(AwsAuth(ProviderRow(name="lab")))


async def test_a_role_that_is_refused(server: ModelServer, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "config").write_text(
        "[default]\nregion = us-east-1\nrole_arn = arn:aws:iam::123456789012:role/r\nsource_profile = base\n"
    )
    (home / "credentials").write_text("[base]\naws_access_key_id = AKIDLAB\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.origin)
    with pytest.raises(ProviderError, match=r"^lab: no AWS credentials: ") as caught:
        await signed_by(AwsAuth(ProviderRow(name="lab")))
    assert isinstance(caught.value, AuthFailed)


# Cost


def test_nothing_of_it_is_loaded_before_the_first_request() -> None:
    code = (
        "import sys\nfrom skynet_agent.apis import bedrock\nfrom skynet_agent.auth.aws import AwsAuth\n"
        "from skynet_agent.providers import ProviderRow\nfrom skynet_agent.router import Router\n"
        "row = ProviderRow(name='b', api='bedrock', auth='aws')\nRouter([row])\nAwsAuth(row).secrets()\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('botocore', 'boto3', 'aiohttp', 'urllib3')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
