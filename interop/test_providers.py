"""The real clients with a model behind every wire API that there is, and with one that fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from openai import OpenAI

from interop.gateway import START_TIMEOUT_S, Gateway, skynet
from interop.models import running_models
from interop.openclaw import OpenClaw
from interop.processes import environment, free_port, running, until
from interop.tui import running_tui
from tests.end_to_end.wires import AWS_ENV, KEY, WIRES, Wire, all_wires
from tests.support.model_server import ModelServer

POOL = """
[agent]
model = "lab/mock-1"
[pools]
house = ["gone/m-0", "anthropic/mock-1"]
[router]
retries = 0
[providers.gone]
base_url = "http://127.0.0.1:1/v1"
models = [{ id = "m-0" }]
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with running_models() as models:
        yield models._server


@pytest.fixture(scope="module")
def house(server: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with a provider for each wire API, and a pool whose first member is not there."""
    directory = tmp_path_factory.mktemp("house")
    home, port = directory / "state", free_port()
    home.mkdir(mode=0o700)
    (home / "skynet.toml").write_text(all_wires(server, directory) + POOL)
    env = environment(directory, SKYNET_HOME=str(home), **AWS_ENV)
    command = [skynet(), "gateway", "run", "--port", str(port)]
    with running(command, env=env, cwd=directory, log=directory / "gateway.out") as child:
        gateway = Gateway(home, port, child)
        until(lambda: child.process.poll() is not None or gateway.health(), START_TIMEOUT_S, lambda: child.output)
        assert child.process.poll() is None, child.output
        yield gateway


@pytest.fixture(scope="module")
def client(openclaw_installed: None, house: Gateway, tmp_path_factory: pytest.TempPathFactory) -> OpenClaw:
    return OpenClaw(tmp_path_factory.mktemp("client"), house.url, house.token)


@pytest.fixture
def sdk(house: Gateway) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{house.http_url}/v1", api_key=house.token, max_retries=0, timeout=30) as opened:
        yield opened


# The OpenAI SDK


@pytest.mark.parametrize("wire", WIRES, ids=str)
def test_the_sdk_s_stream_reader_reads_every_one(sdk: OpenAI, wire: Wire) -> None:
    script = (
        f'think=hm sign=c2ln say=one tool=write_file:{{"path":"{wire.provider}.txt","content":"x"}} next-round say=two'
    )
    with sdk.chat.completions.stream(
        model=wire.name, messages=[{"role": "user", "content": script}], stream_options={"include_usage": True}
    ) as stream:
        said = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion()
    assert said == final.choices[0].message.content == "one\n\ntwo"
    assert (final.model, final.choices[0].finish_reason) == (wire.name, "stop")
    assert final.usage is not None and final.usage.prompt_tokens == 200
    assert final.usage.total_tokens == final.usage.prompt_tokens + final.usage.completion_tokens


@pytest.mark.parametrize("wire", WIRES, ids=str)
def test_the_sdk_knows_every_failure_by_its_class(sdk: OpenAI, wire: Wire) -> None:
    def ask(words: str) -> None:
        sdk.chat.completions.create(model=wire.name, messages=[{"role": "user", "content": words}])

    with pytest.raises(openai.BadRequestError) as refused:
        ask("fail=context")
    assert refused.value.code == "context_length_exceeded"
    with pytest.raises(openai.InternalServerError) as failed:
        ask("fail=403")
    assert KEY not in failed.value.response.text


def test_all_of_their_models_are_listed(sdk: OpenAI) -> None:
    listed = {model.id: model.owned_by for model in sdk.models.list()}
    assert {wire.name: wire.provider for wire in WIRES}.items() <= listed.items()


# OpenClaw


def test_models_list_names_every_model(client: OpenClaw) -> None:
    models = client.call("models.list")["models"]
    assert {(wire.provider, wire.model) for wire in WIRES} <= {(model["provider"], model["id"]) for model in models}
    assert all(model["reasoning"] for model in models if model["provider"] == "anthropic")


def test_a_session_takes_another_model_and_keeps_what_was_said(client: OpenClaw, server: ModelServer) -> None:
    for number, wire in enumerate((WIRES[2], WIRES[5])):
        key = "agent:main:switched"
        patched = client.call("sessions.patch", {"key": key, "model": wire.name})
        assert patched["resolved"] == {"modelProvider": wire.provider, "model": wire.model}
        params = {"sessionKey": key, "message": f"say=answer {number}", "idempotencyKey": f"switch-{number}"}
        result = client.call("agent", params, "--expect-final")["result"]
        assert result["payloads"][0]["text"] == f"answer {number}"
        meta = result["meta"]["agentMeta"]
        assert (meta["provider"], meta["model"]) == (wire.provider, wire.model)
    assert "answer 0" in server.requests[-1].raw.decode()


def test_the_terminal_interface_changes_the_model(tmux_installed: None, client: OpenClaw, tmp_path: Path) -> None:
    wire = WIRES[4]
    with running_tui(client, tmp_path, "--session", "chosen") as terminal:
        terminal.see("connected | idle")
        terminal.type("say=from the first")
        terminal.see("\n from the first", f" | {WIRES[0].name} | ")
        terminal.type(f"/model {wire.name}")
        terminal.see(f"model set to {wire.name}")
        terminal.type("/think high")
        terminal.see("thinking set to high")
        terminal.type("think=hm sign=c2ln say=from the second")
        terminal.see("\n from the second", wire.provider, "connected | idle")


def test_agent_is_answered_by_the_next_one_of_a_pool(client: OpenClaw) -> None:
    client.call("sessions.patch", {"key": "agent:main:pooled", "model": "house"})
    params = {"sessionKey": "agent:main:pooled", "message": "say=somebody is there", "idempotencyKey": "pooled"}
    result = client.call("agent", params, "--expect-final")["result"]
    assert [payload["text"] for payload in result["payloads"]] == ["somebody is there"]
    assert result["meta"]["agentMeta"]["provider"] == "anthropic"


def test_no_key_is_in_the_log_or_the_configuration_that_is_told(client: OpenClaw, house: Gateway) -> None:
    told = json.dumps(client.call("config.get")) + house.log.read_text() + house.child.output
    for secret in (KEY, *AWS_ENV["AWS_SECRET_ACCESS_KEY"].split(), "PRIVATE KEY", "ya29."):
        assert secret not in told
