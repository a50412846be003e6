"""``skynet memory`` against a real gateway."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from skynet.cli import run_command
from skynet.cli.errors import Exit
from tests.skynet.cli.conftest import RunningGateway, Skynet, running_gateway, use_environment


@pytest.fixture(autouse=True)
def nothing_remembered(skynet: Skynet) -> Iterator[None]:
    """The gateway is everybody's of this package."""
    yield
    skynet("memory", "forget", "--all", "--yes")


def rows(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


def test_learn_search_list_forget(skynet: Skynet) -> None:
    """SK-135, SR-063."""
    learned = skynet("memory", "learn", "bike", "a blue Brompton", "--category", "fact", "--tag", "sport")
    assert (learned.code, learned.out) == (Exit.OK, "added: bike: a blue Brompton\n")
    skynet("memory", "learn", "manner", "be brief", "--category", "instruction", "--confidence", "1")
    [row] = rows(skynet("memory", "search", "Brompton").out)
    assert row[:5] == ["bike", "a blue Brompton", "fact", "80%", "said"]
    assert [row[0] for row in rows(skynet("memory", "list").out)] == ["manner", "bike"]
    assert [row[0] for row in rows(skynet("memory", "list", "--category", "fact").out)] == ["bike"]
    assert skynet("memory", "show").out == "Instructions:\n- manner: be brief\nFacts:\n- bike: a blue Brompton\n"
    forgot = skynet("memory", "forget", "bike")
    assert (forgot.code, forgot.out) == (Exit.OK, "forgot bike\n")
    again = skynet("memory", "forget", "bike")
    assert again.code == Exit.FAILED
    assert "bike" in again.err
    assert skynet("memory", "search", "Brompton").out == ""


def test_what_became_of_it(skynet: Skynet) -> None:
    skynet("memory", "learn", "bike", "blue", "--confidence", "0.9")
    assert skynet("memory", "learn", "bike", "red", "--confidence", "0.3").out.startswith("kept: bike: blue (")
    assert skynet("memory", "learn", "bike", "red", "--confidence", "1").out == "updated: bike: red\n"
    refused = skynet("memory", "learn", "mail", "my password is hunter2secret")
    assert refused.code == Exit.FAILED
    assert "not remembered" in refused.err
    assert "hunter2secret" not in refused.err


def test_for_a_script(skynet: Skynet) -> None:
    memory = json.loads(skynet("memory", "learn", "bike", "blue", "--days", "3", "--json").out)["memory"]
    assert memory["expiresAt"] > memory["createdAt"]
    assert json.loads(skynet("memory", "list", "--json").out) == {"memories": [memory], "total": 1}
    assert json.loads(skynet("memory", "search", "blue", "--json").out)["memories"][0]["id"] == memory["id"]
    assert "bike" in json.loads(skynet("memory", "show", "--json").out)["text"]
    assert json.loads(skynet("memory", "forget", memory["id"], "--json").out) == {"ok": True, "forgotten": 1}
    error = json.loads(skynet("memory", "forget", memory["id"], "--json").out)["error"]
    assert (error["code"], error["exitCode"]) == ("NOT_FOUND", 1)


def test_export_and_import(skynet: Skynet, tmp_path: Path) -> None:
    """BA-219."""
    for n in range(3):
        skynet("memory", "learn", f"key {n}", f"value {n}")
    file = tmp_path / "memories.json"
    assert skynet("memory", "export", str(file)).out == f"wrote 3 memories to {file}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(skynet("memory", "export").out) == json.loads(file.read_text())
    assert skynet("memory", "forget", "--all", "--yes").out == "forgot 3 memories\n"
    assert skynet("memory", "import", str(file)).out == "3 added, 0 updated, 0 unchanged, 0 kept\n"
    assert json.loads(skynet("memory", "import", str(file), "--json").out)["unchanged"] == 3


def test_import_from_standard_input(skynet: Skynet, monkeypatch: pytest.MonkeyPatch) -> None:
    data = json.dumps([{"category": "fact", "key": "bike", "value": "blue"}]).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert skynet("memory", "import", "-").out.startswith("1 added")


@pytest.mark.parametrize("content", ["", "{", "3", '{"memories": 3}', "\xff"])
def test_a_file_that_is_none(skynet: Skynet, tmp_path: Path, content: str) -> None:
    file = tmp_path / "memories.json"
    file.write_bytes(content.encode("latin-1"))
    outcome = skynet("memory", "import", str(file))
    assert outcome.code == Exit.USAGE
    assert str(file) in outcome.err


def test_a_bad_memory_is_named_and_nothing_is_taken(skynet: Skynet, tmp_path: Path) -> None:
    file = tmp_path / "memories.json"
    good = {"category": "fact", "key": "bike", "value": "blue"}
    for bad, told in (({**good, "category": "x"}, "/memories/1/category"), ({**good, "value": "PIN: 1234"}, "item 1")):
        file.write_text(json.dumps({"memories": [good, bad]}))
        outcome = skynet("memory", "import", str(file))
        assert outcome.code == Exit.FAILED
        assert told in outcome.err
    assert skynet("memory", "list").out == ""


def test_nobody_is_asked_in_a_script(skynet: Skynet, monkeypatch: pytest.MonkeyPatch) -> None:
    skynet("memory", "learn", "bike", "blue")
    with Path(os.devnull).open() as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        assert skynet("memory", "forget", "--all").code == Exit.USAGE
    assert skynet("memory", "forget").code == Exit.USAGE
    assert skynet("memory", "forget", "bike", "--all", "--yes").code == Exit.USAGE
    assert skynet("memory", "list").out != ""


def test_somebody_elses(
    skynet: Skynet, gateway: RunningGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An admin names somebody; that person alone is meant."""
    name = "Momo"
    assert skynet("users", "add", name).code == Exit.OK
    try:
        skynet("memory", "learn", "bedtime", "at eight", "--user", name)
        assert rows(skynet("memory", "list", "--user", name).out)[0][:2] == ["bedtime", "at eight"]
        assert rows(skynet("memory", "list", "--user", name).out)[0][4] == "an admin"
        assert skynet("memory", "list").out == ""
        assert skynet("memory", "list", "--user", "nobody at all").code == Exit.FAILED
        actions = json.loads(skynet("audit", "list", "--json").out)["entries"]
        assert {"memory.read", "memory.changed"} <= {entry["action"] for entry in actions}
        token = json.loads(skynet("users", "token", "create", "test", "--user", name, "--json").out)
        as_them = ("--url", gateway.url, "--token", token["token"])
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("SKYNET_HOME", str(tmp_path))  # a machine of their own
            assert rows(skynet("memory", "list", *as_them).out)[0][0] == "bedtime"
            refused = skynet("memory", "list", "--user", "Owner", *as_them)
            assert refused.code == Exit.FAILED
    finally:
        skynet("users", "remove", name, "--yes")


def test_the_offline_assistant_remembers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """DESIGN 7: a first start can really use the memory, without any model."""
    home = tmp_path / "state"

    def run(*arguments: str) -> str:
        capsys.readouterr()
        assert run_command(arguments) == Exit.OK
        return capsys.readouterr().out

    with running_gateway(home) as gateway:
        use_environment(monkeypatch, home, SKYNET_GATEWAY_PORT=gateway.url.rpartition(":")[2])

        def say(text: str) -> str:
            return run("agent", "-m", text)

        assert "Done:\n\nremembered: favourite colour: green" in say("Remember that my favourite colour is green")
        assert "- favourite colour: green" in say("What do you know about my favourite colour?")
        assert "- favourite colour: green" in run("memory", "show")
        assert "person: Remember that my favourite colour is green" in say("What did I say about my favourite colour?")
        assert 'forgotten: "favourite colour"' in say("Forget my favourite colour.")
        assert run("memory", "list") == ""
