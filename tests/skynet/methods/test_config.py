"""``config.get``: shape, hash, broken files, and above all that no secret is shown."""

import hashlib
import json
import string
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet.config import load_config
from skynet.gateway.dispatch import Dispatcher, collect
from skynet.methods.config import ConfigMethods, redact, redact_text
from tests.skynet.methods import shapes
from tests.skynet.methods.world import Caller, World

REDACTED = "__OPENCLAW_REDACTED__"
TOML = """\
# the old one was token = "tok-in-a-comment"
[gateway]
port = 19001
[gateway.auth]
mode = "token"
token = "tok"
[agent]
model = "lab/m-1"
[providers.lab]
base_url = "http://127.0.0.1:8000/v1"
api_key = "sk-lab-0123456789"
models = [{ id = "m-1", max_output_tokens = 4096 }]
[providers.openai]
api_key = "${OPENAI_KEY}"
"""


async def get(world: World, caller: Caller, text: str | None, *, now: str | None = None) -> Any:
    """The answer of a gateway that was started with ``text``, and whose file is ``now``."""
    file = world.home / "skynet.toml"
    env = {"SKYNET_HOME": str(world.home), "OPENAI_KEY": "sk-from-the-environment"}
    if text is not None:
        file.write_text(text)
    config = load_config(None, env=env)
    if now is not None:
        file.write_text(now)
    world.dispatcher = Dispatcher(collect(ConfigMethods(config, env=env)), world.tasks)
    result = await world.call(caller, "config.get", {})
    shapes.check(shapes.CONFIG_GET, result)
    return result


async def test_a_file(world: World) -> None:
    result = await get(world, world.admin, TOML)
    assert (result["path"], result["exists"], result["valid"]) == (str(world.home / "skynet.toml"), True, True)
    assert result["hash"] == hashlib.sha256(TOML.encode()).hexdigest()
    assert result["parsed"]["gateway"] == {"port": 19001, "auth": {"mode": "token", "token": REDACTED}}
    assert result["parsed"]["providers"]["openai"] == {"api_key": "${OPENAI_KEY}"}
    assert result["resolved"] == result["parsed"]
    assert tomllib.loads(result["raw"]) == result["parsed"]
    assert result["raw"].startswith(f'# the old one was token = "{REDACTED}"\n[gateway]\nport = 19001\n')
    assert result["config"]["gateway"]["port"] == 19001
    assert result["config"]["gateway"]["auth"]["token"] == REDACTED
    assert result["config"]["providers"]["openai"]["api_key"] == REDACTED
    text = json.dumps(result)
    for secret in ('"tok"', "tok-in-a-comment", "sk-lab", "sk-from"):
        assert secret not in text
    assert result["parsed"]["providers"]["lab"]["models"] == [{"id": "m-1", "max_output_tokens": 4096}]


async def test_no_file(world: World) -> None:
    result = await get(world, world.admin, None)
    assert (result["exists"], result["valid"], result["raw"], result["parsed"]) == (False, True, None, {})
    assert result["hash"] == hashlib.sha256(b"").hexdigest() and result["config"]["gateway"]["port"] == 18789


@pytest.mark.parametrize(
    ("now", "path"), [("[gateway]\nport = 'x'\n", "gateway.port"), ("[gateway\n", ""), ("nope = 1\n", "nope")]
)
async def test_a_file_that_was_broken_since(world: World, now: str, path: str) -> None:
    result = await get(world, world.admin, TOML, now=now)
    assert (result["valid"], result["config"], result["raw"], result["parsed"]) == (False, {}, None, None)
    assert result["hash"] == hashlib.sha256(now.encode()).hexdigest()
    assert result["issues"][0]["path"] == path and result["issues"][0]["message"]


async def test_others_see_where_the_gateway_is_and_no_more(world: World) -> None:
    for caller in (world.user, world.child):
        result = await get(world, caller, TOML)
        assert (result["raw"], result["parsed"], result["resolved"]) == (None, None, {})
        assert result["hash"] == hashlib.sha256(b"").hexdigest()
        assert result["config"] == {
            "gateway": {"host": "127.0.0.1", "port": 19001},
            "agent": {"name": "Assistant"},
        }


@pytest.mark.parametrize(
    "text",
    [
        'token = "secret-1"',
        "token='secret-1'",
        '"token" = "secret-1"',
        'a.b.api_key = "secret-1"',
        'x = { apiKey = "secret-1", n = 1 }',
        '[x]\nclient-secret = "secret-1"\n[[y]]\npassword = "secret-1"',
        'headers = { Authorization = "Bearer secret-1" }',
        'url = "https://me:secret-1@host/v1"',
        'note = "sk-secret-1-abcdefgh"',
        'token = """\nsecret-1"""',
        "token = '''secret-1'''",
        'token = ["secret-1", "secret-1"]',
        'token = "secr\\u0065t-1"',
        'token = "secret-1"\nnote = "as in secret-1"',
        'token = "secret-1" # not secret-1',
    ],
)
def test_no_secret_is_left(text: str) -> None:
    tree = tomllib.loads(text)
    assert "secret-1" not in json.dumps(redact(tree))
    shown = redact_text(text, tree)
    if shown is not None:
        assert "secret-1" not in shown and tomllib.loads(shown) == redact(tree)


@pytest.mark.parametrize(
    "text",
    [
        'max_output_tokens = 5\nmode = "token"\nbase_url = "http://h/v1"',
        'token = ""',
        'api_key = "${KEY}"',
        "x = 1979-05-27",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    tree = tomllib.loads(text)
    assert redact(tree) == tree and redact_text(text, tree) == text


_texts = st.text(string.ascii_letters + string.digits + " '\\#=[]{}\n\t\"€", max_size=12)
_keys = st.sampled_from(["token", "api_key", "name", "url", "password", "x"])


def _toml(value: str, style: int) -> str:
    if style == 0 and "'" not in value and "\n" not in value and "\t" not in value:
        return f"'{value}'"
    escaped = json.dumps(value, ensure_ascii=style == 1)
    return f'""{escaped}""' if style == 2 else escaped


@given(st.lists(st.tuples(_keys, _texts, st.integers(0, 2)), max_size=4), st.booleans())
def test_whatever_the_text_its_secrets_are_not_shown(pairs: list[tuple[str, str, int]], inline: bool) -> None:
    """Any file is shown without its secrets, or not at all."""
    pairs = list({key: (key, f"Z{value}Z9Z9Z9", style) for key, value, style in pairs}.values())
    assigned = [f"{key} = {_toml(value, style)}" for key, value, style in pairs]
    if inline and not any("\n" in line or '"""' in line for line in assigned):
        assigned = [f"t = {{ {', '.join(assigned)} }}"]
    text = "\n".join(assigned)
    tree = tomllib.loads(text)
    shown = redact_text(text, tree)
    for key, value, _ in pairs:
        if key in ("token", "api_key", "password"):
            assert value not in json.dumps(redact(tree), ensure_ascii=False)
            assert shown is None or value not in shown


def test_what_commands_have_in_their_environment_is_not_shown() -> None:
    """By whatever name; of a short one the file's text is not shown at all."""
    text = '[terminal.env]\nHOUSE_KEY = "quagga-key"\nREFERENCE = "${HOUSE_KEY}"\n# quagga-key\n'
    tree = tomllib.loads(text)
    assert redact(tree) == {"terminal": {"env": {"HOUSE_KEY": REDACTED, "REFERENCE": "${HOUSE_KEY}"}}}
    shown = redact_text(text, tree)
    assert shown is not None and "quagga" not in shown
    short = '[terminal]\nenv = { PIN = "1234" }\n'
    assert redact_text(short, tomllib.loads(short)) is None
