"""From a request to its response: the one place where a method is looked up, decoded, called and answered."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar, get_type_hints

import msgspec

from skynet.gateway.errors import error_shape
from skynet.supervisor import Supervisor
from skynet_protocol.errors import RequestError
from skynet_protocol.frames import Request, encode_error, encode_response
from skynet_protocol.methods import METHODS
from skynet_protocol.params import decode_params
from skynet_users.caller import Caller

_MARK = "__skynet_method__"
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class TwoPhase:
    """Two responses with one id: ``accepted`` at once, then what ``final`` gives (OPENCLAW-V3 7.3).

    ``final`` only waits; it is given up when the connection closes.
    """

    accepted: object
    final: Awaitable[object]


@dataclass(frozen=True, slots=True)
class Waiting:
    """An answer that may take long and only waits: it is given up when the connection closes."""

    final: Awaitable[object]


@dataclass(frozen=True, slots=True)
class BoundMethod:
    """A method as it is called: ``call(caller, params)``, and how its params are decoded."""

    name: str
    call: Callable[[Caller, Any], Any]
    decoder: msgspec.json.Decoder[Any]


MethodTable: TypeAlias = Mapping[str, BoundMethod]


def method(name: str) -> Callable[[F], F]:
    """Tag a handler ``(self, caller, params)`` as the method ``name``.

    The scope it needs stands in :data:`skynet_protocol.methods.METHODS`. A plain ``def`` answers in the same loop step
    and costs no task; it may also return an awaitable. The handler returns a struct, dict, list, ``None``,
    :class:`msgspec.Raw` (already encoded), :class:`TwoPhase` or :class:`Waiting`, or raises.
    """

    def tag(function: F) -> F:
        setattr(function, _MARK, name)
        return function

    return tag


def collect(*namespaces: object) -> MethodTable:
    """The table of every tagged handler of ``namespaces``.

    Raises:
        ValueError: a name twice, or a name that the protocol's table does not know.
    """
    table: dict[str, BoundMethod] = {}
    for namespace in namespaces:
        for _, function in inspect.getmembers(type(namespace), inspect.isfunction):
            name = getattr(function, _MARK, None)
            if name is None:
                continue
            if name in table:
                raise ValueError(f"method {name} is defined twice")
            if name not in METHODS:
                raise ValueError(f"method {name} is not in skynet_protocol.methods.METHODS")
            params = get_type_hints(function)["params"]
            table[name] = BoundMethod(name, function.__get__(namespace), msgspec.json.Decoder(params))
    return table


class Peer(Protocol):
    """What the dispatcher needs of a connection that is ready."""

    @property
    def caller(self) -> Caller: ...

    def send(self, data: bytes) -> None: ...

    def request_started(self) -> None: ...

    def request_ended(self) -> None: ...

    def while_open(self, waiting: Awaitable[object]) -> Awaitable[object]: ...


class Dispatcher:
    """Calls methods for connections. Handlers return or raise; only this class writes response frames."""

    def __init__(self, table: MethodTable, tasks: Supervisor) -> None:
        self._table = table
        self._tasks = tasks

    def dispatch(self, peer: Peer, request: Request) -> None:
        """Call the method, which the connection has already authorised, and see to it that it is answered."""
        try:
            bound = self._table.get(request.method)
            if bound is None:
                raise RequestError(f"unknown method: {request.method}", details={"code": "METHOD_NOT_FOUND"})
            result = bound.call(peer.caller, decode_params(request.params, bound.decoder, request.method))
            if isinstance(result, Waiting):
                result = peer.while_open(result.final)
            elif not isinstance(result, Awaitable):
                peer.send(encode_response(request.id, result))
                return
        except Exception as exc:
            peer.send(encode_error(request.id, error_shape(exc, peer.caller)))
            return
        peer.request_started()
        self._tasks.start(self._answer(peer, request.id, result), name=f"method {request.method}")

    async def _answer(self, peer: Peer, request_id: str, result: Awaitable[object]) -> None:
        # The first response is written in the loop step in which the handler returned: so an acknowledgement leaves
        # before any event of the run that it acknowledges.
        try:
            answer = await result
            if isinstance(answer, TwoPhase):
                peer.send(encode_response(request_id, answer.accepted))
                answer = await peer.while_open(answer.final)
            peer.send(encode_response(request_id, answer))
        except Exception as exc:
            peer.send(encode_error(request_id, error_shape(exc, peer.caller)))
        finally:
            peer.request_ended()
