import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import msgspec
import pytest

from skynet.gateway.dispatch import Dispatcher, TwoPhase, collect, method
from skynet.supervisor import Supervisor
from skynet_memory.ids import Role, UserId
from skynet_protocol.errors import RequestError
from skynet_protocol.frames import Request
from skynet_protocol.params import Params
from skynet_users.caller import Caller

CALLER = Caller(user_id=UserId("u"), role=Role.ADMIN, scopes=frozenset({"operator.admin"}), correlation_id="corr")


class Echo(Params, frozen=True):
    text: str = "-"
    wait: bool = False


class FakePeer:
    """Collects what is sent; the socket's part, without a network."""

    def __init__(self) -> None:
        self.caller = CALLER
        self.sent: list[dict[str, Any]] = []
        self.in_flight = 0
        self.idle = asyncio.Event()

    def send(self, data: bytes) -> None:
        self.sent.append(json.loads(data))

    def request_started(self) -> None:
        self.in_flight += 1

    def request_ended(self) -> None:
        self.in_flight -= 1
        self.idle.set()

    async def while_open(self, waiting: Awaitable[object]) -> object:
        return await waiting


class Methods:
    def __init__(self) -> None:
        self.release = asyncio.Event()

    @method("health")
    def at_once(self, caller: Caller, params: Echo) -> dict[str, str]:
        return {"text": params.text, "user": caller.user_id}

    @method("status")
    async def later(self, caller: Caller, params: Echo) -> msgspec.Raw:
        await self.release.wait()
        return msgspec.Raw(b'{"raw":true}')

    @method("agent")
    async def twice(self, caller: Caller, params: Echo) -> TwoPhase:
        async def final() -> object:
            await self.release.wait()
            return {"status": "ok"}

        return TwoPhase({"status": "accepted"}, final())

    @method("sessions.list")
    def refuses(self, caller: Caller, params: Echo) -> None:
        raise RequestError("not so", details={"code": "INVALID_PARAMS"})

    @method("sessions.patch")
    async def breaks(self, caller: Caller, params: Echo) -> None:
        raise ZeroDivisionError("secret detail")

    @method("last-heartbeat")
    def nothing(self, caller: Caller, params: Echo) -> None:
        return None


@pytest.fixture
async def tasks() -> AsyncIterator[Supervisor]:
    async with Supervisor() as supervisor:
        yield supervisor


def request(name: str, params: Any = None) -> Request:
    return Request("7", name, None if params is None else msgspec.Raw(json.dumps(params).encode()))


async def settled(peer: FakePeer) -> None:
    async with asyncio.timeout(40):
        await peer.idle.wait()


async def test_a_plain_handler_answers_in_the_same_step(tasks: Supervisor) -> None:
    peer = FakePeer()
    Dispatcher(collect(Methods()), tasks).dispatch(peer, request("health", {"text": "hi"}))
    assert peer.sent == [{"type": "res", "id": "7", "ok": True, "payload": {"text": "hi", "user": "u"}}]


async def test_null_is_present_in_a_payload(tasks: Supervisor) -> None:
    peer = FakePeer()
    Dispatcher(collect(Methods()), tasks).dispatch(peer, request("last-heartbeat"))
    assert peer.sent == [{"type": "res", "id": "7", "ok": True, "payload": None}]


async def test_requests_are_answered_as_they_finish(tasks: Supervisor) -> None:
    peer, methods = FakePeer(), Methods()
    dispatcher = Dispatcher(collect(methods), tasks)
    dispatcher.dispatch(peer, request("status"))
    dispatcher.dispatch(peer, request("health"))
    assert [frame["payload"] for frame in peer.sent] == [{"text": "-", "user": "u"}]
    assert peer.in_flight == 1
    methods.release.set()
    await settled(peer)
    assert peer.sent[1]["payload"] == {"raw": True}


async def test_two_phases_have_one_id(tasks: Supervisor) -> None:
    peer, methods = FakePeer(), Methods()
    Dispatcher(collect(methods), tasks).dispatch(peer, request("agent"))
    methods.release.set()
    await settled(peer)
    assert [frame["id"] for frame in peer.sent] == ["7", "7"]
    assert peer.sent[0]["payload"] == {"status": "accepted"}
    assert peer.sent[1] == {
        "type": "res",
        "id": "7",
        "ok": True,
        "payload": {"status": "ok"},
    }


async def test_errors_become_frames_and_hide_what_is_internal(
    tasks: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    peer = FakePeer()
    dispatcher = Dispatcher(collect(Methods()), tasks)
    dispatcher.dispatch(peer, request("sessions.list"))
    dispatcher.dispatch(peer, request("health", {"text": 1}))
    dispatcher.dispatch(peer, request("cron.add"))
    dispatcher.dispatch(peer, request("sessions.patch"))
    await settled(peer)
    errors = [frame["error"] for frame in peer.sent]
    assert errors[0] == {"code": "INVALID_REQUEST", "message": "not so", "details": {"code": "INVALID_PARAMS"}}
    assert errors[1]["message"] == "invalid health params: at /text: must be string"
    assert errors[2]["message"] == "unknown method: cron.add"
    assert errors[2]["details"] == {"code": "METHOD_NOT_FOUND"}
    assert errors[3] == {
        "code": "UNAVAILABLE",
        "message": "internal error",
        "details": {"code": "INTERNAL_ERROR", "correlationId": "corr"},
    }
    assert "secret detail" in caplog.text
    assert "corr" in caplog.text


def test_a_method_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"method health is defined twice"):
        collect(Methods(), Methods())


def test_a_method_that_the_protocol_does_not_know_is_refused() -> None:
    class Unknown:
        @method("no.such.method")
        def handler(self, caller: Caller, params: Echo) -> None: ...

    with pytest.raises(ValueError, match=r"no\.such\.method"):
        collect(Unknown())
