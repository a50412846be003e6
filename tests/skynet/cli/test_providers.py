"""``skynet providers`` and ``skynet status`` of a house with several providers, one of which fails."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from skynet.cli import run_command
from skynet.cli.errors import Exit
from tests.skynet.cli.conftest import Outcome, RunningGateway, Skynet, running_gateway, use_environment

TOML = """\
[agent]
model = "house"
[pools]
house = ["gone/m-0", "mock/mock-1"]
[router]
retries = 0
breaker_failures = 2
breaker_cooldown_s = 600
[providers.mock]
base_url = "{models}"
api_key = "sk-of-the-house"
[[providers.mock.models]]
id = "mock-1"
price = {{ input = 3.0, output = 15.0, cache_read = 0.3 }}
[[providers.mock.models]]
id = "mock-2"
[providers.gone]
base_url = "http://127.0.0.1:1/v1"
api_key = "sk-of-nobody"
models = [{{ id = "m-0" }}]
[providers.spare]
base_url = "{models}"
api_key = "${{SKYNET_TEST_SPARE_KEY}}"
models = [{{ id = "mock-1" }}]
[providers.vertex]
credentials_file = "gone.json"
"""


@pytest.fixture(scope="module")
def house(models: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    home = tmp_path_factory.mktemp("house") / "state"
    home.mkdir()
    (home / "skynet.toml").write_text(TOML.format(models=models))
    with running_gateway(home) as running:
        yield running


@pytest.fixture
def skynet(house: RunningGateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Skynet:
    use_environment(monkeypatch, house.home, SKYNET_GATEWAY_PORT=house.url.rpartition(":")[2])

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = run_command(arguments)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="module")
def asked() -> list[str]:
    """What was said so far."""
    return []


@pytest.fixture
def failing(skynet: Skynet, asked: list[str]) -> None:
    """Two messages were answered, and for each the first of the pool did not."""
    while len(asked) < 2:
        asked.append(skynet("agent", "-m", "say=all is well prompt=1000 cached=900").out)
    assert asked == ["all is well\n"] * 2


def rows(text: str) -> dict[str, list[str]]:
    """The lines of a table by their first column."""
    return {line.split("\t")[0]: line.split("\t")[1:] for line in text.splitlines()}


def test_before_anybody_was_asked(skynet: Skynet, asked: list[str]) -> None:
    assert not asked
    listed = rows(skynet("providers", "list").out)
    assert list(listed)[:3] == ["mock", "gone", "vertex"]
    assert listed["mock"] == ["not asked yet", "key set", "2", "", ""]
    assert "spare" not in listed  # off: its variable is not set
    assert len(listed) > 42  # SK-058


@pytest.mark.usefixtures("failing")
def test_a_provider_that_keeps_failing_is_shown_open(skynet: Skynet) -> None:
    """SK-080."""
    listed = rows(skynet("providers", "list").out)
    state, auth, models, latency, answered = listed["gone"]
    assert state.startswith("open for ") and "no connection to http://127.0.0.1:1" in state
    assert (auth, models, latency, answered) == ("key set", "1", "", "")
    state, _, _, latency, answered = listed["mock"]
    assert state == "ok"
    assert latency.endswith(" s") and answered.endswith(" ago")
    facts = {each["name"]: each for each in json.loads(skynet("providers", "list", "--json").out)["providers"]}
    assert (facts["gone"]["circuit"], facts["gone"]["healthy"]) == ("open", False)
    assert 0 < facts["gone"]["openForMs"] <= 600_000
    assert (facts["mock"]["circuit"], facts["mock"]["healthy"]) == ("closed", True)


@pytest.mark.usefixtures("failing")
def test_the_status_shows_who_fails_and_what_caches_saved(skynet: Skynet) -> None:
    """SK-088."""
    fields = rows(skynet("status").out)
    assert fields["providers"][0].startswith("3, failing: gone")
    assert fields["prompt"] == ["built-in prompt"]
    (usage,) = fields["last 30 days"]
    used = json.loads(skynet("status", "--json").out)["usage"]
    assert used["cacheShare"] == 0.9
    assert usage == f"{used['totalTokens']} tokens, 90% of the input cached, ${used['totalCost']:.2f}"
    assert used["totalCost"] == pytest.approx(2 * (100 * 3e-6 + 900 * 0.3e-6 + 3 * 15e-6), abs=1e-5)


def test_asking_all_of_them_ends_with_1_where_one_fails(skynet: Skynet) -> None:
    outcome = skynet("providers", "test")
    assert outcome.code == Exit.FAILED
    tested = rows(outcome.out)
    assert tested["mock"][0] == "ok" and tested["mock"][1].endswith(" s")
    assert tested["gone"][:2] == ["failed", ""]
    assert "no connection to http://127.0.0.1:1" in tested["gone"][2]
    assert skynet("providers", "test", "mock").code == Exit.OK


def test_what_is_wrong_with_credentials_is_told_once(skynet: Skynet, house: RunningGateway) -> None:
    words = f"vertex: the credentials file {house.home}/gone.json cannot be read: No such file or directory"
    outcome = skynet("agent", "-m", "x", "--session", "cloud", "--model", "vertex/gemini-4-argon")
    assert (outcome.code, outcome.err) == (Exit.FAILED, f"error: {words}\n")
    state, auth, *_ = rows(skynet("providers", "list").out)["vertex"]
    assert (state, auth) == (f"failing: {words}", "refused")


def test_one_that_is_not_there_is_told_which_there_are(skynet: Skynet) -> None:
    outcome = skynet("providers", "test", "nope")
    assert outcome.code == Exit.FAILED
    assert "unknown provider 'nope'; configured: mock, gone, vertex" in outcome.err


def test_no_key_is_shown(skynet: Skynet) -> None:
    commands = (("providers", "list"), ("providers", "test"), ("status",), ("models", "list"), ("config", "show"))
    for command in commands:
        for flags in ((), ("--json",)):
            outcome = skynet(*command, *flags)
            assert "sk-of-" not in outcome.out + outcome.err, command
