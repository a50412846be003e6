"""``skynet providers login`` beside a gateway that runs: it is used at once, and what it gave is nowhere to be read."""

import asyncio
import json
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.end_to_end.scene import answer, history, say, tool
from tests.end_to_end.test_restart import TIMEOUT_S, GatewayProcess, running
from tests.skynet.cli.conftest import environment
from tests.support.client import WireClient
from tests.support.device_server import DeviceServer, Service
from tests.support.dialects.openai_completions import OpenAICompletions
from tests.support.model_server import ModelServer
from tests.support.polling import until

KINDS = ("copilot", "qwen")


@pytest.fixture
async def models() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def device(models: ModelServer) -> AsyncIterator[DeviceServer]:
    async with DeviceServer(models) as server:
        yield server


def service_of(device: DeviceServer, kind: str) -> Service:
    return device.github if kind == "copilot" else device.qwen


def make_home(tmp_path: Path, kind: str) -> Path:
    home = tmp_path / "state"
    home.mkdir(mode=0o700)
    (home / "skynet.toml").write_text(
        f'[providers.{kind}]\nmodels = [{{ id = "mock-1", context_window = 128000 }}]\n'
        '[logging]\nlevel = "debug"\n[router]\nretries = 0\n'
    )
    return home


async def skynet(home: Path, *command: str, **env: str) -> tuple[int, str]:
    """A command in a process of its own: exit code, and all that it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "skynet.cli", *command),
        env=environment(home, **env),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(TIMEOUT_S):
        out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def completion(gateway: GatewayProcess, message: str) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=gateway.http_url, timeout=TIMEOUT_S, trust_env=False) as http:
        return await http.post(
            "/v1/chat/completions",
            headers={"authorization": f"Bearer {gateway.token}"},
            json={"model": "skynet", "messages": [{"role": "user", "content": message}]},
        )


@pytest.mark.parametrize("kind", KINDS)
async def test_a_login_is_used_by_the_gateway_that_runs(
    tmp_path: Path, device: DeviceServer, models: ModelServer, kind: str
) -> None:
    home, service = make_home(tmp_path, kind), service_of(device, kind)
    shown: list[str] = []
    async with running(home) as gateway:
        async with gateway.client() as client:
            end = await say(client, "say=too early")
            assert end["state"] == "error"
            assert end["errorMessage"] == (f"{kind}: nobody has logged in; run: skynet providers login {kind}")
            assert models.asked == 0
            assert await state_of(client) == f"refused: {end['errorMessage']}"

            service.answers.extend(["authorization_pending"] * 2)
            code, said = await skynet(home, "providers", "login", kind, "--host", device.origin)
            assert code == 0, said
            assert "ABCD-0001" in said
            shown.append(said)

            assert await answer(client, f"{tool('list_files')} say=logged in") == "logged in"
            assert (await history(client))[-1]["provider"] == kind
            assert await state_of(client) == "login"

            # the service takes the token back: another one is had without anybody's help
            given = len(service.access)
            models.dialect(OpenAICompletions).key = "another one by now"
            assert await answer(client, "say=renewed") == "renewed"
            assert len(service.access) == given + 1
        shown += await everything_said(gateway, home)
    async with running(home) as gateway, gateway.client() as client:
        assert await answer(client, "say=after a restart") == "after a restart"
        shown += [json.dumps(frame) for frame in client.frames]
    check_secret(home, shown, [*service.given, *service.access, *service.codes])


async def state_of(client: WireClient) -> str:
    """What is said of the provider's credentials."""
    (provider,) = (await client.call("agent.status"))["providers"]
    return str(provider["auth"])


async def everything_said(gateway: GatewayProcess, home: Path) -> list[str]:
    """What commands, methods and HTTP answers show, after some failures."""
    failures = [(await completion(gateway, words)).text for words in ("fail=401", "fail=500", "error-in-stream")]
    port = gateway.url.rpartition(":")[2]
    commands = (("status",), ("providers", "list"), ("providers", "test"), ("config", "show"), ("models", "list"))
    ends = await asyncio.gather(*(skynet(home, *command, SKYNET_GATEWAY_PORT=port) for command in commands))
    assert [code for code, _ in ends] == [0, 0, 0, 0, 0], ends
    async with gateway.client() as client:
        for method in ("config.get", "agent.status", "providers.list", "status", "logs.tail"):
            await client.call(method, {})
        return [*failures, *(printed for _, printed in ends), *(json.dumps(frame) for frame in client.frames)]


def check_secret(home: Path, shown: list[str], secrets: list[str]) -> None:
    """The tokens are in one file that only its owner may read, and nowhere else."""
    credentials = home / "credentials"
    (file,) = credentials.glob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(credentials.stat().st_mode) == 0o700
    assert secrets and any(secret in file.read_text() for secret in secrets)
    texts = {"what was shown": "\n".join(shown)}
    for path in home.rglob("*"):
        if path.is_file() and path.parent != credentials:
            texts[str(path)] = path.read_bytes().decode("utf-8", "replace")
    assert any(name.endswith("skynet.log") and len(text) > 1000 for name, text in texts.items())
    found = [(name, secret) for name, text in texts.items() for secret in secrets if secret in text]
    assert found == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_login_that_is_refused_leaves_the_one_before(tmp_path: Path, device: DeviceServer, kind: str) -> None:
    home, service = make_home(tmp_path, kind), service_of(device, kind)
    async with running(home) as gateway, gateway.client() as client:
        assert (await skynet(home, "providers", "login", kind, "--host", device.origin))[0] == 0
        assert await answer(client, "say=first") == "first"
        service.answers.append("access_denied")
        code, said = await skynet(home, "providers", "login", kind, "--host", device.origin)
        assert code == 1
        assert "the request was denied" in said
        assert await answer(client, "say=still") == "still"


async def test_many_at_once_share_one_new_token(tmp_path: Path, device: DeviceServer, models: ModelServer) -> None:
    home = make_home(tmp_path, "qwen")
    async with running(home) as gateway, gateway.client() as client:
        assert (await skynet(home, "providers", "login", "qwen", "--host", device.origin))[0] == 0
        assert await answer(client, "say=first") == "first"
        models.dialect(OpenAICompletions).key = "another one by now"
        device.qwen.delay_s = 0.1
        said = await asyncio.gather(
            *(answer(client, f"say=number {number}", key=f"agent:main:s{number}") for number in range(8))
        )
        assert said == [f"number {number}" for number in range(8)]
        assert device.refreshes == 1


async def test_a_login_alone_enables_the_provider_at_the_next_start(
    tmp_path: Path, device: DeviceServer, models: ModelServer
) -> None:
    home = tmp_path / "state"
    code, said = await skynet(home, "providers", "login", "copilot", "--host", device.origin)
    assert code == 0, said
    async with running(home) as gateway, gateway.client() as client:
        facts: dict[str, Any] = await client.call("agent.status")
        assert [provider["name"] for provider in facts["providers"]] == ["copilot"]
        assert await answer(client, "say=hello") == "hello"
        await until(lambda: device.exchanges == 2)  # the login's own, and the gateway's
    assert "skynet" in models.requests[-1].headers["editor-version"]
