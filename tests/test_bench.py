"""What the bench measures is what its rows say. How quick it is, is not asked here."""

import json
from pathlib import Path

import pytest

from bench import sandbox
from bench.client import measure
from bench.jobs import ClientJob
from bench.labs import LABS, Lab
from bench.peers import SKYNET_FIVE, Home
from bench.rows import APIS, ROWS
from bench.search import QUESTIONS, quality, speed
from bench.services import equip
from bench.stages import STAGES
from skynet.config import load_config
from skynet_agent.apis import WIRE_APIS
from tests.support.model_server import ModelServer
from tests.support.programs import needs


def test_every_wire_api_has_its_rows() -> None:
    assert {lab.api for lab in LABS.values()} | {"offline"} == set(WIRE_APIS)
    assert tuple(LABS) == APIS


def test_every_row_is_measured_by_a_stage_and_is_there_once() -> None:
    assert {row.stage for row in ROWS} == set(STAGES)
    assert len({row.id for row in ROWS}) == len(ROWS)


def test_five_kinds_of_providers_are_configured_where_it_says_so(tmp_path: Path) -> None:
    home = Home(tmp_path, port=1, model_port=2, sessions=0)
    config = load_config(None, env=SKYNET_FIVE.prepare(home).env)
    assert len({provider.api for provider in config.enabled_providers.values()}) == 5
    assert len(config.pools[config.default_model]) == 5
    assert config.warnings == ()


@pytest.mark.parametrize("lab", LABS.values(), ids=lambda lab: lab.name)
async def test_a_client_can_be_measured(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in lab.env.items():
        monkeypatch.setenv(name, value)
    account = tmp_path / "account.json"
    async with ModelServer() as server:
        equip(server, account)
        job = ClientJob(lab=lab.name, origin=server.origin, account=str(account), seconds=0.01, warm_up_s=0.0, rounds=2)
        outcome = await measure(job)
        assert server.served == server.asked + lab.uses_account * 3  # two routers that record, one that is measured
    assert min(outcome.chunk_us, outcome.router_ms, outcome.model_ms, *outcome.details.values()) > 0


def test_every_question_of_the_retrieval_set_names_turns_that_exist() -> None:
    conversations = [json.loads(line) for line in QUESTIONS.read_text().splitlines()]
    questions = [(len(c["turns"]), turns) for c in conversations for _, turns in c["questions"]]
    assert len(questions) >= 200
    assert all(turns and 0 <= min(turns) <= max(turns) < count for count, turns in questions)
    assert len({c["id"] for c in conversations}) == len(conversations)
    assert {role for c in conversations for role, _ in c["turns"]} == {"user", "assistant"}


@needs("bwrap")
async def test_the_sandbox_can_be_measured(tmp_path: Path) -> None:
    found = await sandbox.measure(tmp_path, pairs=3)
    assert found["inside_ms"] > 0
    assert found["outside_ms"] > 0


async def test_search_can_be_measured() -> None:
    found = await speed(people=3, each=40, queries=100)
    assert min(found.values()) > 0
    found = await quality()
    assert found["questions"] >= 200
    assert found["hit_5"] <= found["hit_10"] <= found["hit_20"]
