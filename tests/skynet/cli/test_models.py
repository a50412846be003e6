"""``skynet models list``: what can be named as a model, and what is known of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from skynet.cli import run_command
from tests.skynet.cli.conftest import RunningGateway, running_gateway, use_environment

TOML = """\
[agent]
model = "large"
[models.aliases]
large = "lab/m-large"
eyes = "anthropic/claude-sonnet-5-5"
[pools]
smart = ["large", "eyes"]
[providers.lab]
base_url = "http://127.0.0.1:1/v1"
[[providers.lab.models]]
id = "m-large"
context_window = 1000000
reasoning = true
input = ["text", "image"]
price = { input = 2.5, output = 10.0, cache_read = 0.25 }
[[providers.lab.models]]
id = "m-small"
tools = false
price = { input = 0, output = 0 }
[[providers.lab.models]]
id = "m-odd"
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    home = tmp_path_factory.mktemp("house") / "state"
    home.mkdir()
    (home / "skynet.toml").write_text(TOML)
    with running_gateway(home, ANTHROPIC_API_KEY="sk-ant-house") as running:
        yield running


Skynet = Callable[..., tuple[int, str, str]]


@pytest.fixture
def skynet(house: RunningGateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Skynet:
    """Run a command: its exit code, what it printed, and what it complained of."""
    use_environment(monkeypatch, house.home, SKYNET_GATEWAY_PORT=house.url.rpartition(":")[2])

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run_command(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def listed(skynet: Skynet) -> dict[str, list[str]]:
    """The lines by their first column."""
    code, out, _ = skynet("models", "list")
    assert code == 0
    return {line.split("\t")[0]: line.split("\t")[1:] for line in out.splitlines()}


def test_what_is_configured(listed: dict[str, list[str]]) -> None:
    assert listed["lab/m-large"] == ["default", "1,000,000", "think, tools, see", "2.5 / 10 / 0.25"]
    assert listed["lab/m-small"] == ["", "", "", "free"]
    assert listed["lab/m-odd"] == ["", "", "tools", "unknown"]


def test_what_the_catalogue_knows(listed: dict[str, list[str]]) -> None:
    default, window, abilities, price = listed["anthropic/claude-sonnet-5-5"]
    assert default == ""
    assert int(window.replace(",", "")) >= 200_000
    assert abilities == "think, tools, see"
    assert price.count(" / ") == 2


def test_other_names(listed: dict[str, list[str]]) -> None:
    assert listed["large"][0] == "alias of lab/m-large"
    assert listed["eyes"][0] == "alias of anthropic/claude-sonnet-5-5"
    assert listed["smart"][0] == "pool: large, eyes"
    assert next(iter(listed)) == "lab/m-large"


def test_for_a_script(skynet: Skynet) -> None:
    facts = json.loads(skynet("models", "list", "--json")[1])
    assert (facts["default"], facts["pools"]) == ("lab/m-large", {"smart": ["large", "eyes"]})
    first = facts["models"][0]
    assert (first["provider"], first["id"], first["contextWindow"]) == ("lab", "m-large", 1_000_000)
    assert first["price"] == {"input": 2.5, "output": 10.0, "cacheRead": 0.25}
    assert "sk-ant" not in json.dumps(facts)


@pytest.mark.parametrize("name", ["nobody/m", "openai/gpt-6.1-sol", "nothing"])
def test_a_name_of_nothing_leaves_a_conversation_as_it_was(skynet: Skynet, name: str) -> None:
    def model() -> str:
        (row,) = json.loads(skynet("sessions", "list", "--json")[1])["sessions"]
        return str(row["model"])

    skynet("agent", "-m", "x", "--model", "m-small")  # nobody answers there
    assert model() == "m-small"
    code, _, complaint = skynet("agent", "-m", "x", "--model", name)
    assert code == 1
    assert f"unknown model '{name}'" in complaint
    assert model() == "m-small"


@pytest.mark.parametrize(
    ("name", "model"), [("smart", "m-large"), ("eyes", "claude-sonnet-5-5"), ("m-small", "m-small"), ("lab", "m-large")]
)
def test_every_kind_of_name_can_be_chosen(skynet: Skynet, name: str, model: str) -> None:
    skynet("agent", "-m", "x", "--session", "chosen", "--model", name)
    rows = {row["key"]: row["model"] for row in json.loads(skynet("sessions", "list", "--json")[1])["sessions"]}
    assert rows["agent:main:chosen"] == model


def test_a_provider_is_asked_itself(skynet: Skynet) -> None:
    """Nobody is at home at this address: the words say so."""
    code, _, err = skynet("models", "list", "--ask", "lab")
    assert code == 1
    assert "lab: no connection to http://127.0.0.1:1: Connection refused" in err
    code, _, err = skynet("models", "list", "--ask", "nobody")
    assert code == 1
    assert "unknown provider 'nobody'; configured: lab, anthropic" in err
