"""*Nothing of one person reaches another* (DESIGN 1.3), over the whole gateway and everything it serves.

Ada, the owner, has said and done things; somebody else then asks every method there is for them, by every name they
have. What that person gets is searched for Ada's words, and must not tell her things from things that nobody has.
"""

import asyncio
import json
import logging
import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import pytest

from skynet.logs import ContextFilter, JsonLineFormatter, PrivateRotatingFileHandler
from skynet_memory.ids import Role
from skynet_protocol.device import DeviceIdentity
from skynet_users.credentials import CredentialStore
from skynet_users.people import UserStore
from tests.support.client import Refused, WireClient
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.model_server import ModelServer
from tests.support.script import without_session

WORD, DEVICE_WORD = "quagga", "okapi"
"""What Ada says, and what her devices call themselves; neither word occurs anywhere else."""
FOREIGN = {"x-forwarded-for": "203.0.113.9"}
"""A client that is not on this machine, so that its device has to be approved."""


@dataclass(frozen=True, slots=True)
class Names:
    """All that names something of a person."""

    user: str
    main_key: str
    session_key: str
    session_name: str
    label: str
    session_id: str
    run_id: str
    running_id: str
    agent_run_id: str
    http_run_id: str
    device_id: str
    node_id: str
    request_id: str
    bridge_id: str
    bridge_request_id: str
    memory_id: str
    token_id: str
    approval_id: str
    exec_id: str
    grant_id: str
    job_id: str
    terminal_id: str
    account: str
    group_id: str
    room_key: str

    def others(self) -> "Names":
        """Names like these that nobody has."""
        return Names(**{name: _like(value, self) for name, value in asdict(self).items()})


def _like(value: str, names: Names) -> str:
    """Another value of the same shape."""
    value = value.replace(names.user, "0" * 8 + names.user[8:])
    return re.sub(
        r"[0-9a-f]{12,}", lambda match: uuid.uuid5(uuid.NAMESPACE_OID, match[0]).hex[:12] + match[0][12:], value
    )


def fresh(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


# What is asked of each method

Probe: TypeAlias = dict[str, Any]


def _of_key(field_name: str, **more: Any) -> Callable[[Names], Sequence[Probe]]:
    def probes(names: Names) -> Sequence[Probe]:
        keys = (names.main_key, names.session_key, names.main_key.upper(), f" {names.session_key} ", names.room_key)
        return [{field_name: key, **more} for key in (*keys, f"agent:main:{names.session_name}", names.session_name)]

    return probes


def _once(*probes: Probe) -> Callable[[Names], Sequence[Probe]]:
    return lambda names: probes


def _keyed(probes: Callable[[Names], Sequence[Probe]]) -> Callable[[Names], Sequence[Probe]]:
    """Each probe with an idempotency key of its own."""
    return lambda names: [{**probe, "idempotencyKey": str(uuid.uuid4())} for probe in probes(names)]


CASES: Mapping[str, Callable[[Names], Sequence[Probe]]] = {
    "health": _once({}, {"probe": True}),
    "status": _once({}),
    "agent.status": _once({}),
    "sessions.list": lambda n: [
        {"includeDerivedTitles": True, "includeLastMessage": True, "includeGlobal": True, "includeUnknown": True},
        {"search": n.label},
        {"search": n.user},
        {"search": n.session_id},
        {"search": WORD},
        {"label": n.label},
        {"spawnedBy": n.main_key},
        {"agentId": "main"},
    ],
    "sessions.preview": lambda n: [
        {"keys": [n.main_key, n.session_key, n.room_key, f"agent:main:{n.session_name}"], "maxChars": 2000}
    ],
    "sessions.resolve": lambda n: [
        *({"key": key} for key in (n.main_key, n.session_key, n.room_key, f"agent:main:{n.session_name}")),
        {"sessionId": n.session_id},
        {"label": n.label},
    ],
    "chat.history": _of_key("sessionKey", limit=1000),
    "usage.status": _once({}),
    "usage.cost": lambda n: [{}, {"days": 1}, {"userId": n.user}, {"all": True}],
    "audit.list": lambda n: [{}, {"actor": n.user}, {"subject": n.user}, {"subject": n.device_id}],
    "audit.verify": _once({}),
    "last-heartbeat": _once({}),
    "cron.list": _once({}),
    "cron.status": _once({}),
    "config.get": _once({}),
    "system-presence": _once({}),
    "node.list": _once({}),
    "node.describe": lambda n: [{"nodeId": n.node_id}, {"nodeId": n.device_id}],
    "node.rename": lambda n: [{"nodeId": each, "displayName": "mine"} for each in (n.node_id, n.device_id)],
    "node.invoke": _keyed(
        lambda n: [
            {"nodeId": n.node_id, "command": command, "params": {"command": ["true"], "bins": ["ls"]}, "timeoutMs": 1}
            for command in ("system.run", "system.which", "system.execApprovals.get")
        ]
    ),
    "node.pair.list": _once({}),
    "node.pair.approve": lambda n: [{"requestId": n.request_id}, {"requestId": n.bridge_request_id}],
    "node.pair.reject": lambda n: [{"requestId": n.request_id}, {"requestId": n.bridge_request_id}],
    "node.pair.verify": lambda n: [{"nodeId": n.node_id, "token": "x"}, {"nodeId": n.bridge_id, "token": "x"}],
    "device.pair.list": _once({}),
    "device.pair.approve": lambda n: [{"requestId": n.request_id}],
    "device.pair.reject": lambda n: [{"requestId": n.request_id}],
    "device.pair.remove": lambda n: [{"deviceId": n.device_id}, {"deviceId": n.node_id}],
    "device.token.rotate": lambda n: [
        {"deviceId": n.device_id, "role": "operator"},
        {"deviceId": n.node_id, "role": "node"},
    ],
    "device.token.revoke": lambda n: [
        {"deviceId": n.device_id, "role": "operator"},
        {"deviceId": n.node_id, "role": "node"},
    ],
    "agent.wait": lambda n: [
        {"runId": run_id, "timeoutMs": 1} for run_id in (n.run_id, n.running_id, n.agent_run_id, n.http_run_id)
    ],
    "agent.identity.get": _of_key("sessionKey"),
    "chat.abort": lambda n: [
        {"sessionKey": n.main_key},
        {"sessionKey": n.room_key},
        {"sessionKey": n.session_key, "runId": n.running_id},
        {"sessionKey": "main", "runId": n.running_id},
        {"sessionKey": n.session_name},
    ],
    "chat.inject": _of_key("sessionKey", message="mine"),
    "chat.send": lambda n: [
        *_keyed(
            lambda n: [{"sessionKey": key, "message": "say=mine"} for key in (n.main_key, n.session_key, n.room_key)]
        )(n),
        {"sessionKey": n.session_key, "message": "stop", "idempotencyKey": "x"},
        # Ada's own idempotency keys, of a run that is over and of one that is not
        {"sessionKey": "mine", "message": "say=mine", "idempotencyKey": n.run_id},
        {"sessionKey": "mine", "message": "say=mine", "idempotencyKey": n.running_id},
    ],
    "agent": lambda n: [
        *_keyed(
            lambda n: [{"sessionKey": key, "message": "say=mine"} for key in (n.main_key, n.session_key, n.room_key)]
        )(n),
        *_keyed(lambda n: [{"sessionId": n.session_id, "message": "say=mine"}])(n),
        {"sessionKey": "agent:main:mine", "message": "say=mine", "idempotencyKey": n.agent_run_id},
    ],
    "wake": _once({"text": "mine", "mode": "now"}),
    "sessions.patch": lambda n: [
        {"key": n.main_key, "label": "mine"},
        {"key": n.session_key, "label": None},
        {"key": "patched", "label": n.label},  # labels are each person's own
        {"key": "patched", "label": None},
    ],
    "sessions.reset": lambda n: [{"key": n.main_key}, {"key": n.session_key}, {"key": n.room_key}],
    "sessions.compact": lambda n: [{"key": n.main_key}, {"key": n.session_key, "maxLines": 1}],
    "sessions.delete": lambda n: [{"key": n.session_key}, {"key": n.main_key}, {"key": n.session_name}],
    "system-event": lambda n: [{"text": "Node: mine", "deviceId": n.device_id, "host": "mine"}],
    "logs.tail": _once({"limit": 5000, "maxBytes": 1_000_000}),
    "memory.search": lambda n: [{"query": WORD}, {"query": n.label}, {"query": WORD, "userId": n.user}],
    "memory.list": lambda n: [{}, {"after": n.memory_id}, {"userId": n.user}],
    "memory.export": lambda n: [{}, {"after": n.memory_id}, {"userId": n.user}],
    "memory.show": lambda n: [{}, {"userId": n.user}],
    "memory.learn": lambda n: [{"category": "fact", "key": "mine", "value": "mine", "userId": n.user}],
    "memory.update": lambda n: [
        {"id": n.memory_id, "value": "mine"},
        {"id": n.memory_id, "value": "mine", "userId": n.user},
    ],
    "memory.forget": lambda n: [
        {"id": n.memory_id},
        {"key": n.label},
        {"id": n.memory_id, "userId": n.user},
        {"all": True, "userId": n.user},
    ],
    "memory.import": lambda n: [
        {"memories": []},
        {"memories": [{"category": "fact", "key": "mine", "value": "mine"}], "userId": n.user},
    ],
    "knowledge.list": lambda n: [{}, {"after": n.label}, {"userId": n.user}],
    "knowledge.search": lambda n: [{"query": WORD}, {"query": WORD, "userId": n.user}],
    "knowledge.write": lambda n: [{"topic": n.label, "content": "mine", "userId": n.user}],
    "knowledge.forget": lambda n: [{"topic": n.label}, {"topic": n.label, "userId": n.user}],
    "history.search": lambda n: [{"query": WORD}, {"query": n.label}, {"query": n.session_name}],
    "users.list": _once({}),
    "users.get": lambda n: [{}, {"userId": n.user}],
    "users.add": lambda n: [{"displayName": "mine", "identities": [{"channel": "discord", "externalId": n.account}]}],
    "users.set": lambda n: [{"userId": n.user, "tone": "mine"}, {"userId": n.user, "role": "child"}],
    "users.remove": lambda n: [{"userId": n.user}],
    "users.password": lambda n: [{"userId": n.user, "password": "mine mine"}],
    "users.budget": lambda n: [{"userId": n.user}],
    "users.tokens.list": lambda n: [{}, {"userId": n.user}],
    "users.tokens.create": lambda n: [{"userId": n.user, "name": "mine"}],
    "users.tokens.revoke": lambda n: [{"id": n.token_id}, {"id": n.token_id, "userId": n.user}],
    "users.guardians.set": lambda n: [{"userId": n.user, "guardianId": n.user}],
    "users.guardians.remove": lambda n: [{"userId": n.user, "guardianId": n.user}],
    "identities.list": lambda n: [{}, {"userId": n.user}],
    "identities.link": lambda n: [{"userId": n.user, "channel": "discord", "externalId": "mine"}],
    "identities.unlink": lambda n: [
        {"channel": "discord", "externalId": n.account},
        {"channel": "discord", "externalId": n.account, "userId": n.user},
    ],
    "identities.claim": lambda n: [{"code": "ABCD-EFGH", "channel": "discord", "externalId": n.account}],
    "approvals.list": _once({}, {"status": "pending"}),
    "approvals.decide": lambda n: [{"id": n.approval_id, "approve": True}],
    # Ids of questions are chosen by clients: hers is free for everybody else
    "exec.approval.request": lambda n: [{"id": n.exec_id, "command": "mine", "timeoutMs": 1}],
    "exec.approval.waitDecision": lambda n: [{"id": n.exec_id.upper()}, {"id": n.exec_id[-8:]}],
    "exec.approval.resolve": lambda n: [
        {"id": n.exec_id, "decision": "allow-once"},
        {"id": n.exec_id, "decision": "deny"},
        {"id": n.exec_id, "decision": "mine"},
    ],
    "exec.approval.list": _once({}),
    "exec.approval.grants": lambda n: [{}, {"userId": n.user}],
    "exec.approval.grants.remove": lambda n: [{"id": n.grant_id}, {"id": n.grant_id, "userId": n.user}],
    "exec.approvals.node.get": lambda n: [{"nodeId": n.node_id}, {"nodeId": n.device_id}],
    "exec.approvals.node.set": lambda n: [{"nodeId": n.node_id, "file": {"version": 1}}],
    "terminal.exec": lambda n: [
        *({"command": "echo mine", "sessionKey": key} for key in (n.main_key, n.session_key, n.room_key)),
        {"command": "echo mine", "host": "node", "node": n.node_id},
    ],
    "terminal.job_status": lambda n: [{"jobId": n.job_id}, {"jobId": n.terminal_id}],
    "terminal.job_list": _once({}),
    "terminal.job_output": lambda n: [{"jobId": n.job_id}, {"jobId": f"../{n.user}/{n.job_id}"}],
    "terminal.job_kill": lambda n: [{"jobId": n.job_id}],
    "terminal.list": _once({}),
    "terminal.write": lambda n: [{"terminalId": n.terminal_id, "data": "mine"}],
    "terminal.read": lambda n: [{"terminalId": n.terminal_id}, {"terminalId": n.terminal_id, "cursor": 1_000_000}],
    "terminal.resize": lambda n: [{"terminalId": n.terminal_id, "cols": 10, "rows": 10}],
    "terminal.signal": lambda n: [{"terminalId": n.terminal_id, "signal": "KILL"}],
    "terminal.subscribe": lambda n: [{"terminalId": n.terminal_id}, {"terminalId": n.terminal_id, "cursor": 1_000_000}],
    "terminal.unsubscribe": lambda n: [{"terminalId": n.terminal_id}],
    "terminal.kill": lambda n: [{"terminalId": n.terminal_id}],
    "groups.list": _once({}),
    "groups.create": _once({"name": "mine"}),
    "groups.set": lambda n: [{"groupId": n.group_id, "active": False}],
    # Who is told a room's id may join it; nobody brings others along.
    "groups.join": lambda n: [{"groupId": n.group_id, "userId": n.user}],
    "groups.leave": lambda n: [{"groupId": n.group_id}, {"groupId": n.group_id, "userId": n.user}],
    "groups.members": lambda n: [{"groupId": n.group_id}],
}
"""What somebody may try on each method, with Ada's names or with names that nobody has."""

IMPERSONAL: Mapping[str, str] = {
    "ping": "a clock",
    "models.list": "the configured models, for everybody",
    "agent.model": "the default model, for everybody; only admins change it",
    "providers.list": "the configured providers, for everybody; what they said last is for admins",
    "providers.models": "what a provider offers, for admins",
    "providers.test": "asks every provider the same few words, for admins",
    "agents.list": "the one agent, for everybody",
    "channels.status": "no channels are served",
    "skills.status": "directories of the gateway, for everybody",
    "tools.catalog": "the tools there are, for everybody",
    "doctor.memory.status": "whether there is an embedding provider",
    "set-heartbeats": "a switch of the whole gateway, for admins",
    **dict.fromkeys(("exec.approvals.get", "exec.approvals.set"), "a file of the whole gateway, for admins"),
    "approvals.request": "the caller's own question to those who decide",
    **dict.fromkeys(("terminal.exec_bg", "terminal.create"), "the caller's own command, another one each time"),
    "node.pair.request": "the caller's own request, another one each time: tests/skynet/methods/test_nodes.py",
    **dict.fromkeys(
        ("node.invoke.result", "node.event", "skills.bins"), "nodes alone call it: tests/end_to_end/test_nodes.py"
    ),
    "identities.code": "a code for the caller, another one each time",
}
"""Methods that take nobody's names and tell nobody's things, and why."""

_ON_RECORD = "reaches everybody's memory by naming them, which is recorded and told to them"

ADMINS_MAY: Mapping[str, str] = {
    **{
        f"memory.{name}": _ON_RECORD
        for name in ("search", "list", "export", "show", "learn", "update", "forget", "import")
    },
    **{f"knowledge.{name}": _ON_RECORD for name in ("list", "search", "write", "forget")},
    "device.pair.list": "who lets devices in sees those that ask",
    "device.pair.approve": "lets in everybody's devices",
    "device.pair.reject": "lets in everybody's devices",
    "device.pair.remove": "puts out everybody's devices",
    "device.token.revoke": "puts out everybody's devices",
    "system-presence": "sees who is connected",
    "logs.tail": "reads the whole log",
    "config.get": "reads the whole configuration",
    "agent.status": "sees how many conversations everybody has, not which",
    "usage.cost": "sees what everybody costs",
    "audit.list": "reads who did what",
    "audit.verify": "tells how long the log is",
    **dict.fromkeys(
        (
            "users.list",
            "users.get",
            "users.add",
            "users.set",
            "users.remove",
            "users.password",
            "users.budget",
            "users.tokens.list",
            "users.tokens.create",
            "users.tokens.revoke",
            "users.guardians.set",
            "users.guardians.remove",
            "identities.list",
            "identities.link",
            "identities.unlink",
            "identities.claim",
        ),
        "manages everybody, which is recorded",
    ),
    **dict.fromkeys(
        ("groups.list", "groups.create", "groups.set", "groups.join", "groups.leave", "groups.members"),
        "manages everybody's rooms",
    ),
    "approvals.list": "sees what there is to decide",
    "approvals.decide": "decides what others ask for",
    "exec.approval.grants": "decides what others ask for, and so what was allowed them for good",
    "exec.approval.grants.remove": "decides what others ask for, and so what was allowed them for good",
}
"""What another admin does reach of Ada's, and why."""

CHANGING = frozenset(
    (
        *("ts", "updatedAt", "updatedAtMs", "acceptedAt", "createdAtMs", "expiresAtMs"),
        *("age", "durationMs", "correlationId", "uptimeMs", "latencyMs"),
    )
)
"""Fields that differ between two equal answers."""


@pytest.fixture
async def models() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[Path]:
    """Everything is logged where the gateway's ``logs.tail`` looks for it."""
    file = tmp_path / "logs" / "skynet.log"
    file.parent.mkdir()
    handler = PrivateRotatingFileHandler(file, encoding="utf-8")
    handler.setFormatter(JsonLineFormatter())
    handler.addFilter(ContextFilter())
    root = logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in ("", "skynet", "skynet_agent", "skynet_memory")}
    root.addHandler(handler)
    for name in levels:
        logging.getLogger(name).setLevel(logging.DEBUG if name else logging.INFO)
    yield file
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    root.removeHandler(handler)
    handler.close()


@pytest.fixture
async def gateway(tmp_path: Path, log_file: Path, models: ModelServer) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path, models=models) as running:
        yield running
        runs = list(running.app.runs._active.values())
        for run in runs:
            run.abort("rpc")
        await asyncio.gather(*(run.wait() for run in runs))


@dataclass
class Person:
    """Somebody with all their ways in: ``client`` proves no device, ``device_client`` does; ``node`` lends a device."""

    gateway: RunningGateway
    token: str
    user: str
    role: Role
    client: WireClient = field(init=False)
    device_client: WireClient = field(init=False)
    node: WireClient = field(init=False)
    bodies: list[str] = field(default_factory=list)
    """Of every HTTP answer, with its headers."""

    async def connect(self, stack: AsyncExitStack, *, name: str) -> None:
        open_client = self.gateway.client
        described = {"version": "dev", "platform": "linux", "displayName": name}
        self.client = await stack.enter_async_context(open_client(token=self.token))
        self.device_client = await stack.enter_async_context(
            open_client(
                token=self.token,
                device=DeviceIdentity.generate(),
                client={"id": "gateway-client", "mode": "backend", **described},
            )
        )
        self.node = await stack.enter_async_context(
            open_client(
                token=self.token,
                device=DeviceIdentity.generate(),
                role="node",
                scopes=(),
                client={"id": "node-host", "mode": "node", **described},
            )
        )

    @property
    def clients(self) -> tuple[WireClient, ...]:
        return (self.client, self.device_client, self.node)

    async def post(self, body: dict[str, Any], **headers: str) -> httpx2.Response:
        async with httpx2.AsyncClient(base_url=self.gateway.http_url, timeout=20, trust_env=False) as http:
            answer = await http.post(
                "/v1/chat/completions",
                json={"model": "skynet", **body},
                headers={"authorization": f"Bearer {self.token}"} | headers,
            )
        self.bodies.append(answer.text + str(answer.headers))
        return answer

    def seen(self) -> str:
        """Every frame and every body this person got."""
        frames = [json.dumps(frame, ensure_ascii=False) for client in self.clients for frame in client.frames]
        return "\n".join((*frames, *self.bodies))


async def add_person(gateway: RunningGateway, role: Role) -> Person:
    database = gateway.app.database
    user = await UserStore(database).add(f"Some {role}", role)
    token = await CredentialStore(database).create_token(user.id, "test")
    return Person(gateway, token.token.reveal(), user.id, role)


@pytest.fixture
async def ada(gateway: RunningGateway) -> AsyncIterator[Person]:
    owner = await UserStore(gateway.app.database).ensure_owner()
    async with AsyncExitStack() as stack:
        person = Person(gateway, gateway.token, owner.id, owner.role)
        await person.connect(stack, name=f"{DEVICE_WORD} phone")
        yield person


@pytest.fixture(params=[Role.USER, Role.CHILD, Role.ADMIN])
async def other(request: pytest.FixtureRequest, gateway: RunningGateway) -> AsyncIterator[Person]:
    """Somebody else; also a second admin, whose scopes open every method."""
    async with AsyncExitStack() as stack:
        person = await add_person(gateway, request.param)
        await person.connect(stack, name="other phone")
        yield person


async def live(ada: Person) -> Names:
    """Ada says and does one of everything; one run of hers does not end."""
    client, name = ada.client, fresh("garden")
    names = Names(
        user=ada.user,
        main_key=f"user:{ada.user}:agent:main:main",
        session_key=f"user:{ada.user}:agent:main:{name}",
        session_name=name,
        label=fresh("label"),
        session_id=fresh("sid"),
        run_id=fresh("run"),
        running_id=fresh("running"),
        agent_run_id=fresh("agent"),
        http_run_id=fresh("http"),
        device_id=ada.device_client.hello["snapshot"]["presence"][0].get("deviceId", ""),
        node_id="",
        request_id="",
        bridge_id=fresh("bridge"),
        bridge_request_id="",
        memory_id="",
        token_id="",
        approval_id="",
        exec_id=fresh("exec"),
        grant_id="",
        job_id="",
        terminal_id="",
        account=fresh("account"),
        group_id="",
        room_key="",
    )
    for key, run_id, message in (
        ("main", names.run_id, f"say={WORD} one"),
        (name, names.running_id, f"say={WORD} two hang"),
    ):
        await client.call("chat.send", {"sessionKey": key, "message": message, "idempotencyKey": run_id})
    await client.chat_end(names.run_id)
    await client.event(lambda e: e["payload"].get("runId") == names.running_id and e["payload"].get("state") == "delta")
    request_id = await client.send_frame(
        "agent",
        {
            "sessionId": names.session_id,
            "message": f"say={WORD} three",
            "extraSystemPrompt": WORD,
            "idempotencyKey": names.agent_run_id,
        },
    )
    await client.response(request_id)
    assert (await client.response(request_id))["ok"]
    await client.call("sessions.patch", {"key": name, "label": names.label})
    await client.call("chat.inject", {"sessionKey": name, "message": f"{WORD} four"})
    await client.call("wake", {"text": f"{WORD} five", "mode": "now"})
    learned = await client.call("memory.learn", {"category": "fact", "key": names.label, "value": f"{WORD} eight"})
    await client.call("knowledge.write", {"topic": names.label, "content": f"{WORD} nine"})
    await client.call("users.set", {"tone": f"{WORD} ten", "interests": [WORD]})
    token = await client.call("users.tokens.create", {"name": f"{WORD} token"})
    account = {"channel": "discord", "externalId": names.account, "displayName": f"{WORD} account"}
    await client.call("identities.link", {"userId": names.user, **account})
    room = await client.call("groups.create", {"name": f"{WORD} room", "history": "all"})
    room_key = f"group:{room['group']['id']}:agent:main:main"
    in_room = {"sessionKey": room_key, "message": f"say={WORD} eleven", "idempotencyKey": fresh("room")}
    await client.call("chat.send", in_room)
    await client.chat_end(in_room["idempotencyKey"])
    # Those who decide are asked, and told what
    request = await client.call("approvals.request", {"summary": f"{DEVICE_WORD} request"})
    allowed = {"id": fresh("allowed"), "command": WORD, "commandArgv": [WORD], "host": "gateway", "twoPhase": True}
    await client.call("exec.approval.request", allowed)
    await client.call("exec.approval.resolve", {"id": allowed["id"], "decision": "allow-always"})
    grants = (await client.call("exec.approval.grants"))["grants"]
    asked = {"id": names.exec_id, "command": f"{WORD} twelve", "twoPhase": True, "timeoutMs": 600_000}
    await client.call("exec.approval.request", asked)
    job = (await client.call("terminal.exec_bg", {"command": f"echo {WORD} thirteen", "title": WORD}))["job"]
    await client.call("terminal.job_output", {"jobId": job["jobId"], "waitMs": 30_000})
    terminal = await client.call("terminal.create", {"command": f"echo {WORD} fourteen", "title": WORD})
    await client.call("terminal.subscribe", {"terminalId": terminal["terminalId"]})
    await client.event(lambda e: e["event"] == "terminal.exit")
    await client.call("system-event", {"text": f"Node: {DEVICE_WORD} six", "host": f"{DEVICE_WORD} host"})
    answer = await ada.post(
        {"messages": [{"role": "user", "content": f"say={WORD} seven"}], "user": names.label},
        **{"idempotency-key": names.http_run_id},
    )
    assert answer.status_code == 200
    bridge = await client.call("node.pair.request", {"nodeId": names.bridge_id, "displayName": f"{DEVICE_WORD} seven"})
    waiting = DeviceIdentity.generate()
    with pytest.raises(Refused, match="pairing required") as refused:
        async with ada.gateway.client(token=ada.token, device=waiting, headers=FOREIGN):
            pass
    devices = (await client.call("device.pair.list", {}))["paired"]
    return replace(
        names,
        device_id=next(
            d["deviceId"] for d in devices if d.get("displayName") == f"{DEVICE_WORD} phone" and d["role"] != "node"
        ),
        node_id=(await client.call("node.list", {}))["nodes"][0]["nodeId"],
        request_id=refused.value.error["details"]["requestId"],
        bridge_request_id=bridge["request"]["requestId"],
        memory_id=learned["memory"]["id"],
        token_id=token["id"],
        approval_id=request["approval"]["id"],
        grant_id=grants[0]["id"],
        job_id=job["jobId"],
        terminal_id=terminal["terminalId"],
        group_id=room["group"]["id"],
        room_key=room_key,
    )


async def state_of(person: Person, names: Names) -> dict[str, Any]:
    """All of a person's things that somebody else might have changed."""
    call = person.client.call
    sessions = (await call("sessions.list", {"includeLastMessage": True, "includeDerivedTitles": True}))["sessions"]
    sessions = [row for row in sessions if row["key"] not in ("agent:main:mine", "agent:main:patched")]
    return {
        "sessions": sessions,
        "histories": [await call("chat.history", {"sessionKey": row["key"]}) for row in sessions],
        "devices": [
            {key: value for key, value in device.items() if key != "tokens"}
            | {"tokens": [{**token, "lastUsedAtMs": 0} for token in device["tokens"]]}
            for device in (await call("device.pair.list", {}))["paired"]
            if device["deviceId"] in (names.device_id, names.node_id)
        ],
        "pending": [p["requestId"] for p in (await call("device.pair.list", {}))["pending"]],
        "remembered": [await call("memory.list"), await call("knowledge.list")],
        "person": [await call("users.get"), await call("users.tokens.list"), await call("identities.list")],
        "room": [
            await call("groups.list"),
            await call("groups.members", {"groupId": names.group_id}),
            await call("chat.history", {"sessionKey": names.room_key}),
        ],
        "commands": [await call("exec.approval.list"), await call("exec.approval.grants")],
        "jobs": [await call("terminal.job_list"), await call("terminal.job_output", {"jobId": names.job_id})],
        "terminals": [await call("terminal.list"), await call("terminal.read", {"terminalId": names.terminal_id})],
        "requests": [each for each in (await call("approvals.list"))["approvals"] if each["mine"]],
        "running": await call("agent.wait", {"runId": names.running_id, "timeoutMs": 1}),
        "events queued": (await call("status"))["queuedSystemEvents"],
    }


async def ask(client: WireClient, method: str, probe: Probe) -> dict[str, Any]:
    """The (first) response, without its id."""
    frame = await client.response(await client.send_frame(method, probe))
    return {name: value for name, value in frame.items() if name != "id"}


def plain(value: Any, probe: Probe, names: Names) -> str:
    """An answer without what changes by itself, and with what the probe named called by its kind."""

    def stripped(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: stripped(item) for name, item in part.items() if name not in CHANGING}
        return [stripped(item) for item in part] if isinstance(part, list) else part

    text = json.dumps(stripped(value), ensure_ascii=False).replace(probe.get("idempotencyKey", "\0"), "<own>")
    by_length = sorted(asdict(names).items(), key=lambda item: -len(item[1]))
    for name, named in by_length:
        text = text.replace(named, f"<{name}>").replace(named.upper(), f"<{name.upper()}>")
    return text


def test_every_method_is_asked_or_is_impersonal_for_a_reason(gateway: RunningGateway) -> None:
    served = set(gateway.app.gateway.dispatcher._table)
    assert served == CASES.keys() | IMPERSONAL.keys()
    assert not CASES.keys() & IMPERSONAL.keys()
    assert ADMINS_MAY.keys() <= CASES.keys()


@pytest.mark.parametrize("way", ["client", "device_client"])
async def test_nobody_can_tell_anothers_things_from_nothing(
    ada: Person, other: Person, models: ModelServer, way: str
) -> None:
    """BA-002, BA-207: every method that takes a name, with hers and with nobody's."""
    names = await live(ada)
    nobodys = names.others()
    assert all(mine != none for mine, none in zip(asdict(names).values(), asdict(nobodys).values(), strict=True))
    before = await state_of(ada, names)

    first = {"sessionKey": "main", "message": "say=mine", "idempotencyKey": "first"}
    await other.client.call("chat.send", first)
    await other.client.chat_end("first")
    client: WireClient = getattr(other, way)
    for method, probes in CASES.items():
        if other.role is Role.ADMIN and method in ADMINS_MAY:
            continue
        for theirs, none in zip(probes(names), probes(nobodys), strict=True):
            answer, expected = await ask(client, method, theirs), await ask(client, method, none)
            if method == "logs.tail":
                check_log(answer, other)
            elif method not in ("health", "status"):  # which also tell of the asker's own, growing sessions
                assert plain(answer, theirs, names) == plain(expected, none, nobodys), (method, theirs)
    for method in CASES.keys() - {"health"}:
        assert (await ask(other.node, method, {}))["error"]["message"] == "unauthorized role: node"
        assert (await ask(other.node, "health", {}))["ok"]  # too many refusals in a row end a connection

    seen = other.seen()
    assert WORD not in seen
    if other.role is not Role.ADMIN:
        assert DEVICE_WORD not in seen
    assert await state_of(ada, names) == before

    # The same idempotency key ran for each of the two, and each has their own answer.
    asked = [body["messages"][-1]["content"] for body in models.bodies]
    assert sum(without_session(text).endswith("say=mine") for text in asked) >= 5
    history = await other.client.call("chat.history", {"sessionKey": "mine"})
    answers = {message["content"][0]["text"] for message in history["messages"] if message["role"] == "assistant"}
    assert answers == {"mine"}
    wait = {"timeoutMs": 10_000, "runId": names.running_id}
    assert (await other.client.call("agent.wait", wait))["status"] == "ok"
    assert (await ada.client.call("agent.wait", {**wait, "timeoutMs": 1}))["status"] == "timeout"


def check_log(answer: dict[str, Any], person: Person) -> None:
    if person.role is Role.CHILD:
        assert answer["error"]["message"] == "not permitted: logs.read"
        return
    lines = [json.loads(line) for line in answer["payload"]["lines"]]
    assert lines, "a person's own lines are shown"
    assert {line["userId"] for line in lines} == {person.user}


async def test_anothers_full_key_is_refused(ada: Person, other: Person) -> None:
    names = await live(ada)
    message = {"message": "say=mine", "idempotencyKey": "k"}
    for key in (names.main_key, names.session_key, names.others().main_key, names.room_key, names.others().room_key):
        calls = [
            ("chat.history", {"sessionKey": key}),
            ("chat.send", {"sessionKey": key, **message}),
            ("chat.abort", {"sessionKey": key}),
            ("agent", {"sessionKey": key, **message}),
        ]
        if other.role is Role.ADMIN:
            calls += [
                ("chat.inject", {"sessionKey": key, "message": "x"}),
                *((f"sessions.{name}", {"key": key}) for name in ("patch", "reset", "delete", "compact")),
            ]
        for method, params in calls:
            error = (await ask(other.client, method, params))["error"]
            assert (error["message"], error["details"]) == (f"no session found: {key}", {"code": "NOT_FOUND"}), method
        with pytest.raises(Refused, match=f"No session found: {key}"):
            await other.client.call("sessions.resolve", {"key": key})
        preview = await other.client.call("sessions.preview", {"keys": [key]})
        assert preview["previews"] == [{"key": key, "status": "missing", "items": []}]


async def test_no_event_of_one_reaches_another(ada: Person, other: Person) -> None:
    await other.client.call("ping")
    counts = [len(client.events) for client in other.clients]
    names = await live(ada)
    await ada.client.call("health", {"probe": True})
    async with ada.gateway.client(
        token=ada.token,
        device=DeviceIdentity.generate(),
        client={
            "id": "gateway-client",
            "version": "dev",
            "platform": "linux",
            "mode": "ui",
            "displayName": DEVICE_WORD,
        },
    ):
        pass
    mine = ada.client.event
    for event in ("agent", "chat", "health", "presence", "device.pair.requested", "device.pair.resolved"):
        await mine(lambda e, event=event: e["event"] == event)
    await mine(lambda e: e["event"] == "presence" and DEVICE_WORD in json.dumps(e))
    for client in other.clients:
        await client.call("ping")  # what was sent before has come before
    allowed = {"presence", "device.pair.requested", "device.pair.resolved", "approvals.requested"}
    allowed = allowed if other.role is Role.ADMIN else set()
    for client, count in zip(other.clients, counts, strict=True):
        told = [event for event in client.events[count:] if event["event"] not in allowed]
        # The own snapshot may be due; it is of the own sessions.
        assert {event["event"] for event in told} <= {"health"}
        assert not any(event["payload"]["sessions"]["recent"] for event in told)
    seen = other.seen()
    assert WORD not in seen
    for name, value in asdict(names).items():
        if other.role is not Role.ADMIN or name not in ("device_id", "node_id", "request_id", "user", "approval_id"):
            assert value not in seen, name


async def test_what_others_do_does_not_reach_the_owner(ada: Person, other: Person) -> None:
    """Being the admin does not open other people's conversations."""
    await live(other) if other.role is Role.ADMIN else await talk(other)
    await ada.client.call("health", {"probe": True})
    answer = await ada.client.call("sessions.list", {})
    assert answer["sessions"] == []
    assert WORD not in ada.seen()
    assert {event["event"] for client in ada.clients for event in client.events} <= {
        "connect.challenge",
        "health",
        "presence",
        "device.pair.requested",
        "device.pair.resolved",
        "approvals.requested",
    }


async def talk(person: Person) -> None:
    await person.client.call("chat.send", {"sessionKey": "main", "message": f"say={WORD}", "idempotencyKey": "r"})
    await person.client.chat_end("r")


async def test_scopes_are_cut_to_the_role(ada: Person, other: Person) -> None:
    """Whatever a connection asks for: here it asked for all of an operator's scopes."""
    granted = set(other.device_client.hello["auth"]["scopes"])
    everything = {"operator.admin", "operator.read", "operator.write", "operator.approvals", "operator.pairing"}
    assert (
        granted
        == {
            Role.ADMIN: everything,
            Role.USER: {"operator.read", "operator.write", "operator.approvals"},
            Role.CHILD: {"operator.read", "operator.write"},
        }[other.role]
    )
    if other.role is Role.ADMIN:
        return
    for client in (other.client, other.device_client):
        for method, scope in (
            ("chat.inject", "operator.admin"),
            ("system-event", "operator.admin"),
            ("set-heartbeats", "operator.admin"),
            ("exec.approvals.get", "operator.admin"),
            ("no.such.method", "operator.admin"),
            ("device.pair.list", "operator.pairing"),
            ("device.token.rotate", "operator.pairing"),
        ):
            assert (await ask(client, method, {}))["error"]["message"] == f"missing scope: {scope}"
    async with other.gateway.client(token=other.token, scopes=("operator.admin",)) as again:
        with pytest.raises(Refused, match=r"missing scope: operator\.admin"):
            await again.call("chat.inject", {"sessionKey": "main", "message": "x"})


async def test_http_sessions_and_usage_are_the_callers(ada: Person, other: Person) -> None:
    names = await live(ada)
    nobodys = names.others()
    message = {"messages": [{"role": "user", "content": "say=mine"}]}
    before = await ada.client.call("usage.cost", {"days": 1})
    for key, unknown in ((names.main_key, nobodys.main_key), (names.session_key, nobodys.session_key)):
        answer, expected = [await other.post(message, **{"x-openclaw-session-key": k}) for k in (key, unknown)]
        assert answer.status_code == expected.status_code == 404
        assert answer.text.replace(key, "") == expected.text.replace(unknown, "")
        # and streaming alike
        assert (await other.post({**message, "stream": True}, **{"x-openclaw-session-key": key})).status_code == 404
    # ``user`` and the idempotency key mean the caller's own, whoever else uses the same
    answer = await other.post({**message, "user": names.label}, **{"idempotency-key": names.http_run_id})
    assert answer.json()["choices"][0]["message"]["content"] == "mine"
    answer = await other.post({**message, "user": names.main_key})
    assert answer.status_code == 200
    rows = (await other.client.call("sessions.list", {}))["sessions"]
    assert {row["key"] for row in rows} == {
        f"agent:main:openai-user:{names.label}",
        f"agent:main:openai-user:{names.main_key}",
    }
    histories = [await other.client.call("chat.history", {"sessionKey": row["key"]}) for row in rows]
    assert all(len(history["messages"]) == 2 for history in histories)
    cost = await other.client.call("usage.cost", {"days": 1})
    assert (cost["totals"]["input"], cost["totals"]["output"]) == (200, 2)
    assert (await ada.client.call("usage.cost", {"days": 1}))["totals"] == before["totals"]
    assert WORD not in other.seen()


async def test_lines_of_the_log_are_shown_to_whom_they_are_about(ada: Person, other: Person, log_file: Path) -> None:
    names = await live(ada)
    await talk(other)
    if other.role is Role.CHILD:
        with pytest.raises(Refused, match=r"^not permitted: logs\.read$"):
            await other.device_client.call("logs.tail", {})
        return
    answer = await other.device_client.call("logs.tail", {"limit": 5000, "maxBytes": 1_000_000})
    lines = [json.loads(line) for line in answer["lines"]]
    if other.role is Role.ADMIN:
        assert {ada.user, other.user} <= {line.get("userId") for line in lines}
    else:
        assert {line["userId"] for line in lines} == {other.user}
        assert not [line for line in lines if names.user in str(line) or names.run_id in str(line)]
    # Nobody's words are in it at all, unless it is asked for everything.
    informative = [line for line in lines if line["_meta"]["logLevelId"] >= 3]
    assert WORD not in json.dumps(informative)


async def test_answers_in_the_background_stay_apart(ada: Person, other: Person) -> None:
    """Both send at the same time, under the same names."""
    run_ids = [f"r{number}" for number in range(10)]

    async def converse(person: Person, word: str) -> None:
        for client in (person.client, person.device_client):
            for run_id in run_ids[::2] if client is person.client else run_ids[1::2]:
                await client.call(
                    "chat.send",
                    {"sessionKey": f"s{int(run_id[1:]) % 3}", "message": f"say={word} a b c", "idempotencyKey": run_id},
                )
        for run_id in run_ids:
            assert (await person.client.chat_end(run_id))["message"]["content"][0]["text"] == f"{word} a b c"

    await asyncio.gather(converse(ada, WORD), converse(other, "mine"))
    assert WORD not in other.seen()
    assert "mine" not in ada.seen()
    for person in (ada, other):
        answer = await person.client.call("sessions.list", {"includeLastMessage": True})
        assert answer["count"] == 3
        cost = await person.client.call("usage.cost", {"days": 1})
        assert (cost["totals"]["input"], cost["totals"]["output"]) == (1000, 40)
