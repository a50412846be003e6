"""The gateways that can be measured: how each is configured, filled with sessions, and started."""

import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.jobs import Target
from bench.process import Child, first_answer_s, free_port
from interop.install import CLIENT, NODE
from skynet_agent.registry import REGISTRY

ROOT = Path(__file__).resolve().parent.parent
TOKEN = "bench-token-0123456789abcdef"
START_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Home:
    """A directory that belongs to one gateway, where the model server listens, and how many sessions to store first."""

    path: Path
    port: int
    model_port: int
    sessions: int


@dataclass(frozen=True, slots=True)
class Launch:
    argv: tuple[str, ...]
    env: dict[str, str]


@dataclass(frozen=True, slots=True)
class Peer:
    """A kind of gateway. ``prepare`` writes its configuration and sessions, and says how to start it.

    ``warm_up_s`` is how long it runs under load before a rate counts: a JIT compiler needs longer.
    """

    name: str
    prepare: Callable[[Home], Launch]
    health_path: str
    completion_model: str
    warm_up_s: float


@dataclass(frozen=True, slots=True)
class Running:
    target: Target
    start_s: float


class NotInstalledError(Exception):
    """A gateway is not there; ``str()`` says how to get it."""


@contextmanager
def running(peer: Peer, home: Home) -> Iterator[Running]:
    """Start ``peer`` on ``home`` (prepared before), wait until it answers, and end it afterwards."""
    launch = peer.prepare(home)
    with Child(launch.argv, env=launch.env, cwd=home.path, log=home.path / "output.log") as child:
        start_s = first_answer_s(child, home.port, peer.health_path, START_TIMEOUT_S)
        yield Running(Target(port=home.port, token=TOKEN, pid=child.pid), start_s)


def new_home(parent: Path, model_port: int, sessions: int = 0) -> Home:
    path = parent / uuid.uuid4().hex[:12]
    path.mkdir(parents=True)
    return Home(path, free_port(), model_port, sessions)


def environment(**extra: str) -> dict[str, str]:
    """The caller's, without what would steer a gateway, and with bytecode caches as after an installation."""
    steering = ("SKYNET_", "OPENCLAW_", "PYTHONDONTWRITEBYTECODE", "PYTHONASYNCIODEBUG", *_VENDORS)
    providers = {variable for provider in REGISTRY for variable in provider.variables}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(steering)}
    return {name: value for name, value in kept.items() if name not in providers} | extra


_VENDORS = ("ANTHROPIC_", "OPENAI_", "AWS_", "GOOGLE_", "CLOUDSDK_")
"""Their own tools read many variables."""


# --- Skynet


def _prepare_skynet(home: Home) -> Launch:
    providers = f"""
[agent]
model = "lab/mock-1"
[providers.lab]
api = "openai-completions"
base_url = "http://127.0.0.1:{home.model_port}/v1"
api_key = "none"
models = [{{ id = "mock-1", context_window = 128000, max_output_tokens = 4096 }}]
"""
    return _launch_skynet(home, providers)


def _prepare_skynet_five(home: Home) -> Launch:
    """Five kinds of providers, each with credentials and with the models that the registry knows, and a pool."""
    from tests.support.service_account import service_account, written

    account = written(home.path / "account.json", service_account("https://oauth2.googleapis.com/token"))
    providers = f"""
[agent]
model = "smart"
[pools]
smart = [
    "anthropic/claude-sonnet-5-5",
    "openai/gpt-6.1-sol",
    "bedrock/global.anthropic.claude-sonnet-5-5",
    "vertex/gemini-4-argon",
    "ollama/gpt-oss:20b",
]
[providers.anthropic]
api_key = "sk-ant-none"
[providers.openai]
api_key = "sk-none"
[providers.bedrock]
region = "us-east-1"
[providers.vertex]
region = "europe-west4"
credentials_file = "{account}"
[providers.ollama]
base_url = "http://127.0.0.1:{home.model_port}"
"""
    return _launch_skynet(home, providers)


def _launch_skynet(home: Home, providers: str) -> Launch:
    config = f"""
[gateway]
port = {home.port}
[gateway.auth]
mode = "token"
token = "{TOKEN}"
{providers}"""
    (home.path / "skynet.toml").write_text(config)
    (home.path / "skynet.toml").chmod(0o600)
    if home.sessions and not (home.path / "skynet.db").exists():
        from bench.seed import seed_skynet

        seed_skynet(home.path / "skynet.db", home.sessions)
    command = Path(sys.executable).with_name("skynet")
    if not command.exists():
        raise NotInstalledError(f"{command} does not exist: run make bench, which installs it")
    return Launch((str(command), "gateway", "run"), environment(SKYNET_HOME=str(home.path)))


SKYNET = Peer("skynet", _prepare_skynet, "/health", "lab/mock-1", warm_up_s=1.0)
SKYNET_FIVE = replace(SKYNET, prepare=_prepare_skynet_five, completion_model="")
"""The same gateway with more providers than it needs, none of which is there."""


# --- OpenClaw, the version that interop/package.json names


def _prepare_openclaw(home: Home) -> Launch:
    for file in (NODE, CLIENT):
        if not file.exists():
            raise NotInstalledError(f"{file} does not exist: run python -m interop.install")
    model = {
        "id": "mock-1",
        "name": "mock-1",
        "reasoning": False,
        "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": 128000,
        "maxTokens": 4096,
    }
    provider = {
        "baseUrl": f"http://127.0.0.1:{home.model_port}/v1",
        "apiKey": "none",
        "api": "openai-completions",
        "models": [model],
    }
    config = {
        "gateway": {
            "mode": "local",
            "port": home.port,
            "bind": "loopback",
            "auth": {"mode": "token", "token": TOKEN},
            "http": {"endpoints": {"chatCompletions": {"enabled": True}}},
        },
        "agents": {"defaults": {"model": {"primary": "mock/mock-1"}}},
        "models": {"providers": {"mock": provider}},
        # Nothing beyond loopback, which also makes it start quicker, and nothing outside its directory.
        "discovery": {"mdns": {"mode": "off"}},
        "update": {"checkOnStart": False},
        "logging": {"file": str(home.path / "openclaw.log")},
    }
    state = home.path / ".openclaw"
    state.mkdir(exist_ok=True)
    (state / "openclaw.json").write_text(json.dumps(config))
    sessions = state / "agents" / "main" / "sessions"
    sessions.mkdir(parents=True, exist_ok=True)
    if home.sessions:
        (sessions / "sessions.json").write_text(json.dumps(_openclaw_sessions(home.sessions)))
    # NO_RESPAWN: one process instead of a wrapper and its child, which starts quicker and needs less memory.
    env = environment(HOME=str(home.path), OPENCLAW_NO_RESPAWN="1", NO_COLOR="1")
    return Launch((str(NODE), str(CLIENT), "gateway", "run"), env)


def _openclaw_sessions(count: int) -> dict[str, dict[str, object]]:
    """Return a sessions.json like the one that ``count`` conversations of a terminal client leave behind."""
    now_ms = int(time.time() * 1000)
    origin = {"label": "openclaw-tui", "provider": "webchat", "surface": "webchat", "chatType": "direct"}
    return {
        f"agent:main:bench-{number}": {
            "sessionId": str(uuid.uuid4()),
            "updatedAt": now_ms - number * 1000,
            "systemSent": True,
            "abortedLastRun": False,
            "chatType": "direct",
            "origin": origin,
            "deliveryContext": {"channel": "webchat"},
            "lastChannel": "webchat",
            "inputTokens": 100,
            "outputTokens": 100,
            "totalTokens": 200,
            "totalTokensFresh": True,
            "modelProvider": "mock",
            "model": "mock-1",
            "contextTokens": 128000,
        }
        for number in range(count)
    }


OPENCLAW = Peer("openclaw", _prepare_openclaw, "/health", "openclaw", warm_up_s=8.0)

PEERS = {peer.name: peer for peer in (OPENCLAW,)}
