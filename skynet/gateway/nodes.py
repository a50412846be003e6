"""Nodes: devices that lend the assistant their abilities. Who has which, and commands on their way (OPENCLAW-V3 6.13).

A node belongs to the person whose device it is. Nobody else sees or uses it, not even an admin: what runs on somebody's
machine is that person's. Who may run commands at all is asked before this module is.
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from skynet_memory.ids import ConnId, DeviceId, UserId, new_id, now_ms
from skynet_protocol.connect import ConnectParams
from skynet_protocol.errors import CLOSE_POLICY, DetailCode, ErrorCode, RequestError, shorten
from skynet_protocol.frames import EncodedEvent
from skynet_protocol.nodes import (
    EXEC_APPROVALS_COMMANDS,
    NodeInvokeRequestEvent,
    NodeInvokeResultParams,
    NodeSummary,
    allowed_commands,
    node_platform,
)
from skynet_users.caller import Caller
from skynet_users.devices import DeviceStore, PairedDevice
from skynet_users.nodes import NodeStore

log = logging.getLogger(__name__)

ROLE: Final = "node"
DEFAULT_TIMEOUT_S: Final = 30.0
LONGEST_S: Final = 600.0
"""What a command of a node may take at most, whatever was asked for."""
MAX_PENDING: Final = 32
"""Commands that may wait for one node."""
MAX_PARAMS_BYTES: Final = 1024 * 1024
MAX_PAYLOAD_BYTES: Final = 8 * 1024 * 1024
"""Of one answer of a node: a picture fits."""
REPEAT_S: Final = 300.0
"""So long a command with an idempotency key that was used for the same node is not sent again."""
MAX_REPEATS: Final = 100
"""Idempotency keys that are known of one node."""
KEPT_PAYLOAD_BYTES: Final = 64 * 1024
"""Greater answers are not kept for repeats."""
ANSWER_MARGIN_S: Final = 5.0
"""So much longer than its command a node may take, to say itself that it took too long."""
LEAST_ID_ENDING: Final = 6
"""Characters of the beginning of an id that name a node."""

ApprovedAs: TypeAlias = Literal["allow-once", "allow-always"]


class NodePeer(Protocol):
    """What is needed of a node's connection."""

    @property
    def caller(self) -> Caller: ...

    @property
    def conn_id(self) -> ConnId: ...

    def send_event(self, frame: Callable[[int], bytes], *, droppable: bool, numbered: bool = True) -> None: ...

    def close(self, code: int, reason: str) -> None: ...


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What a node answered: JSON, and its text if it came as a text."""

    payload: Raw
    payload_json: str | None = None

    def value(self) -> Any:
        """The payload, decoded."""
        return msgspec.json.decode(self.payload)

    @property
    def size(self) -> int:
        return len(bytes(self.payload)) + len(self.payload_json or "")


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """Why there is no answer; ``node_error`` is what the node said of it, or what is said in its place."""

    message: str
    code: str
    node_error: Mapping[str, str] = field(default_factory=dict)

    def error(self) -> RequestError:
        details: dict[str, Any] = {"code": self.code}
        if self.node_error:
            details["nodeError"] = dict(self.node_error)
        return RequestError(self.message, code=ErrorCode.UNAVAILABLE, details=details)


Outcome: TypeAlias = asyncio.Future[NodeAnswer | NodeFailure]


@dataclass(frozen=True, slots=True)
class NodeRunResult:
    """How a command on a node ended. ``exit_code`` is None if it did not end by itself; ``error`` is what the node says
    went wrong besides."""

    stdout: str
    stderr: str
    exit_code: int | None
    timed_out: bool
    error: str = ""


@dataclass(slots=True)
class _Invocation:
    id: str
    command: str
    outcome: Outcome
    started_ms: int
    timer: asyncio.TimerHandle | None = None

    def end(self, outcome: NodeAnswer | NodeFailure) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if not self.outcome.done():
            self.outcome.set_result(outcome)


@dataclass(slots=True)
class _Link:
    """A node that is connected, and what waits for it."""

    owner: UserId
    node_id: DeviceId
    peer: NodePeer
    params: ConnectParams
    platform: str
    declared: frozenset[str]
    commands: frozenset[str]
    connected_at_ms: int
    pending: dict[str, _Invocation] = field(default_factory=dict)


@dataclass(slots=True)
class _Repeat:
    """A command that was given with an idempotency key."""

    digest: bytes
    outcome: Outcome
    until_s: float


class Nodes:
    """The nodes that are connected, by device.

    Args:
        allow, deny: commands that the configuration adds to what platforms allow, and takes away.
    """

    def __init__(
        self,
        devices: DeviceStore,
        store: NodeStore,
        *,
        allow: Collection[str] = (),
        deny: Collection[str] = (),
    ) -> None:
        self._devices = devices
        self._store = store
        self._allow = frozenset(allow)
        self._deny = frozenset(deny)
        self._links: dict[DeviceId, _Link] = {}
        self._repeats: dict[DeviceId, OrderedDict[tuple[UserId, str], _Repeat]] = {}

    # What connections call

    def connected(self, peer: NodePeer, params: ConnectParams) -> None:
        """A node's connection is ready. The one that it had before is closed, and what waited for that has failed."""
        caller = peer.caller
        assert caller.device_id is not None, "a node proves a device"
        before = self._links.get(caller.device_id)
        platform = node_platform(params.client.platform, params.client.device_family)
        declared = frozenset(word.strip() for word in params.commands) - {""}
        self._links[caller.device_id] = _Link(
            owner=caller.user_id,
            node_id=caller.device_id,
            peer=peer,
            params=params,
            platform=platform,
            declared=declared,
            commands=declared & allowed_commands(platform, self._allow, self._deny),
            connected_at_ms=now_ms(),
        )
        if before is not None:
            self._end(before)
            log.warning("node %s connected again: closing its older connection", _short(before.node_id))
            before.peer.close(CLOSE_POLICY, "replaced by another connection of this node")

    def disconnected(self, peer: NodePeer) -> None:
        """A node's connection is gone, or takes nothing more. What waits for it fails at once. Idempotent."""
        link = self._link_of(peer.caller)
        if link is not None:
            del self._links[link.node_id]
            self._end(link)

    def take_result(self, caller: Caller, params: NodeInvokeResultParams) -> bool:
        """A node answers; False if nobody waits for it, which includes answers to what another connection was asked.

        Raises:
            RequestError: ``nodeId mismatch``, it speaks for another node.
        """
        if params.node_id != caller.device_id:
            raise RequestError("nodeId mismatch", details={"code": DetailCode.INVALID_PARAMS})
        link = self._link_of(caller)
        invocation = None if link is None else link.pending.pop(params.id, None)
        if invocation is None:
            return False
        outcome = _outcome(params)
        log.info(
            "node %s: %s %s after %d ms",
            _short(params.node_id),
            invocation.command,
            "failed" if isinstance(outcome, NodeFailure) else "answered",
            now_ms() - invocation.started_ms,
            extra={"user_id": caller.user_id},
        )
        invocation.end(outcome)
        return True

    # Which there are

    async def list(self, owner: UserId) -> list[NodeSummary]:
        """A person's nodes, connected ones first, then by name."""
        devices = {device.device_id: device for device in await self._devices.paired(owner) if ROLE in device.roles}
        names = await self._store.names(owner)
        # From here on nothing is awaited: what is connected is as it is now
        links = {link.node_id: link for link in self._links.values() if link.owner == owner}
        nodes = [
            _summary(node_id, devices.get(node_id), links.get(node_id), names.get(node_id, ""))
            for node_id in devices.keys() | links.keys()
        ]
        nodes.sort(key=lambda node: (not node.connected, name_of(node).casefold(), node.node_id))
        return nodes

    async def describe(self, owner: UserId, node_id: str) -> NodeSummary:
        """One of a person's nodes.

        Raises:
            RequestError: ``unknown nodeId``.
        """
        node = next((node for node in await self.list(owner) if node.node_id == node_id), None)
        if node is None:
            raise unknown_node()
        return node

    async def find(self, owner: UserId, name_or_id: str) -> NodeSummary:
        """The node that somebody means: by id, by name whatever its case, or by the beginning of either.

        Raises:
            RequestError: there is no such node, or there are several.
        """
        nodes, wanted = await self.list(owner), name_or_id.strip()
        said = wanted.casefold()
        found = [node for node in nodes if node.node_id == wanted]
        found = found or [node for node in nodes if said and name_of(node).casefold() == said]
        found = found or [node for node in nodes if said and name_of(node).casefold().startswith(said)]
        if not found and len(said) >= LEAST_ID_ENDING:
            found = [node for node in nodes if node.node_id.startswith(said)]
        if len(found) == 1:
            return found[0]
        shown = ", ".join(f"{name_of(node)} ({_short(node.node_id)})" for node in (found or nodes)[:20])
        if found:
            raise RequestError(
                f'several nodes are called "{shorten(wanted)}": {shown}', details={"code": DetailCode.INVALID_PARAMS}
            )
        known = f"; there are: {shown}" if shown else "; none is paired"
        raise RequestError(f'unknown node "{shorten(wanted)}"{known}', details={"code": DetailCode.NOT_FOUND})

    def is_connected(self, owner: UserId, node_id: str) -> bool:
        return self._link(owner, node_id) is not None

    # Commands

    async def invoke(
        self,
        owner: UserId,
        node_id: str,
        command: str,
        params: object = UNSET,
        timeout_s: float | None = None,
        idempotency_key: str = "",
    ) -> Any:
        """What the node answers, decoded. Arguments and errors as of :meth:`ask`."""
        answer = await self.ask(owner, node_id, command, params, timeout_s=timeout_s, idempotency_key=idempotency_key)
        return answer.value()

    async def ask(
        self,
        owner: UserId,
        node_id: str,
        command: str,
        params: object = UNSET,
        *,
        timeout_s: float | None = None,
        idempotency_key: str = "",
        guard: Callable[[], Awaitable[object]] | None = None,
    ) -> NodeAnswer:
        """Have a node carry out a command, which goes to that node's connection alone.

        ``system.execApprovals.*`` is possible here for a node that offers it, though it is on no list. Giving up
        waiting ends nothing: the node goes on.

        Args:
            timeout_s: when to give up; the node is told too. None: after :data:`DEFAULT_TIMEOUT_S`, and it is not told.
            idempotency_key: the same one within :data:`REPEAT_S` gets the same answer, or waits for it; "" for none.
            guard: gives the params that are sent in place of ``params``; asked before anything is sent, and not for a
                repeat.

        Raises:
            RequestError: ``UNAVAILABLE``: the node is not connected, goes away before it answers (at once), takes too
                long (``details.nodeError.code`` is ``TIMEOUT``), answers with an error, or too many commands wait for
                it. ``INVALID_REQUEST``: it must not or cannot do that.
        """
        params_json = _json(params)
        digest = hashlib.sha256(f"{command}\0{params_json}".encode("utf-8", "surrogatepass")).digest()
        if (known := self._known(owner, node_id, idempotency_key, digest)) is not None:
            return await _answer(known)
        link = self._usable(owner, node_id, command)
        if guard is not None:
            params_json = _json(await guard())
            # Time may have passed
            if (known := self._known(owner, node_id, idempotency_key, digest)) is not None:
                return await _answer(known)
            link = self._usable(owner, node_id, command)
        if len(link.pending) >= MAX_PENDING:
            raise RequestError(
                f"{MAX_PENDING} commands are waiting for this node already",
                code=ErrorCode.UNAVAILABLE,
                details={"code": "BUSY"},
                retryable=True,
                retry_after_ms=1000,
            )
        return await _answer(self._send(link, command, params_json, timeout_s, idempotency_key, digest))

    async def run(
        self,
        owner: UserId,
        node: str,
        command: Sequence[str] | str,
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        approved: ApprovedAs | None = None,
    ) -> NodeRunResult:
        """Run a program on a node, by its name or id, to its end.

        The node has rules of its own, too: without ``approved`` it may refuse what is not on its own list.

        Args:
            command: its argv; a text is for the node's shell.
            cwd: on the node; "" for where the node host runs.
            approved: somebody who may has approved exactly this command.

        Raises:
            RequestError: as of :meth:`find` and :meth:`ask`.
        """
        found = await self.find(owner, node)
        link = self._link(owner, found.node_id)
        if link is None:
            raise RequestError(
                f'the node "{name_of(found)}" is not connected',
                code=ErrorCode.UNAVAILABLE,
                details={"code": "NOT_CONNECTED"},
            )
        argv = shell_argv(link.platform, command) if isinstance(command, str) else [*command]
        params: dict[str, Any] = {"command": argv, "timeoutMs": round(timeout_s * 1000)}
        if isinstance(command, str):
            params["rawCommand"] = command
        if cwd:
            params["cwd"] = cwd
        if env:
            params["env"] = dict(env)
        if approved is not None:
            params |= {"approved": True, "approvalDecision": approved, "runId": new_id()}
        answer = await self.invoke(owner, found.node_id, "system.run", params, timeout_s + ANSWER_MARGIN_S)
        return _run_result(answer)

    # Inside

    def _link(self, owner: UserId, node_id: str) -> _Link | None:
        link = self._links.get(DeviceId(node_id))
        return link if link is not None and link.owner == owner else None

    def _link_of(self, caller: Caller) -> _Link | None:
        """The link that is exactly this connection's."""
        link = None if caller.device_id is None else self._link(caller.user_id, caller.device_id)
        return link if link is not None and link.peer.conn_id == caller.conn_id else None

    def _check(self, link: _Link, command: str) -> None:
        """Whether the node may be asked for that.

        Raises:
            RequestError: in OpenClaw's words.
        """
        said = shorten(command)
        if command in EXEC_APPROVALS_COMMANDS and command in link.declared:
            return
        if command not in allowed_commands(link.platform, self._allow, self._deny):
            text, reason = f'"{said}" is not in the allowlist for platform "{link.platform}"', "command not allowlisted"
        elif not link.commands:
            text, reason = "the node did not declare any supported commands", "node did not declare commands"
        elif command not in link.commands:
            text = f'the node (platform: {link.platform}) does not support "{said}"'
            reason = "command not declared by node"
        else:
            return
        raise RequestError(
            f"node command not allowed: {text}",
            details={"code": DetailCode.FORBIDDEN, "reason": reason, "command": said},
        )

    def _send(
        self,
        link: _Link,
        command: str,
        params_json: str | None,
        timeout_s: float | None,
        idempotency_key: str,
        digest: bytes,
    ) -> Outcome:
        loop = asyncio.get_running_loop()
        invocation = _Invocation(new_id(), command, loop.create_future(), now_ms())
        link.pending[invocation.id] = invocation
        if idempotency_key:
            self._remember(link, idempotency_key, digest, invocation.outcome)
        wait_s = DEFAULT_TIMEOUT_S if timeout_s is None else min(timeout_s, LONGEST_S)
        invocation.timer = loop.call_later(wait_s, self._timed_out, link, invocation)
        event = NodeInvokeRequestEvent(
            id=invocation.id,
            node_id=link.node_id,
            command=command,
            params_json=params_json,
            timeout_ms=UNSET if timeout_s is None else round(wait_s * 1000),
            idempotency_key=idempotency_key or UNSET,
        )
        log.info("node %s: %s", _short(link.node_id), command, extra={"user_id": link.owner})
        send_unnumbered(link.peer, "node.invoke.request", event)
        return invocation.outcome

    def _timed_out(self, link: _Link, invocation: _Invocation) -> None:
        link.pending.pop(invocation.id, None)
        message = "node invoke timed out"
        invocation.end(NodeFailure(message, DetailCode.TIMEOUT, {"code": "TIMEOUT", "message": message}))

    def _end(self, link: _Link) -> None:
        pending, link.pending = link.pending, {}
        for invocation in pending.values():
            message = f"node disconnected ({invocation.command})"
            invocation.end(NodeFailure(message, "NOT_CONNECTED", {"code": "DISCONNECTED", "message": message}))

    def _usable(self, owner: UserId, node_id: str, command: str) -> _Link:
        link = self._link(owner, node_id)
        if link is None:
            raise not_connected()
        self._check(link, command)
        return link

    def _known(self, owner: UserId, node_id: str, key: str, digest: bytes) -> Outcome | None:
        """What becomes of the same command that was given before.

        Raises:
            RequestError: the key was used for another one.
        """
        repeats = self._repeats.get(DeviceId(node_id))
        if not key or repeats is None:
            return None
        now_s = asyncio.get_running_loop().time()
        while repeats and (first := next(iter(repeats.values()))).until_s <= now_s and first.outcome.done():
            repeats.popitem(last=False)
        if not repeats:
            del self._repeats[DeviceId(node_id)]
        repeat = repeats.get((owner, key))
        if repeat is not None and repeat.digest != digest:
            raise RequestError(
                "idempotencyKey was used for another command", details={"code": DetailCode.INVALID_PARAMS}
            )
        return None if repeat is None else repeat.outcome

    def _remember(self, link: _Link, key: str, digest: bytes, outcome: Outcome) -> None:
        repeats = self._repeats.setdefault(link.node_id, OrderedDict())
        repeat = _Repeat(digest, outcome, asyncio.get_running_loop().time() + REPEAT_S)
        repeats[link.owner, key] = repeat
        if len(repeats) > MAX_REPEATS:
            repeats.popitem(last=False)
        outcome.add_done_callback(partial(_shrink, repeat))


def _json(params: object) -> str | None:
    if params is UNSET:
        return None
    text = msgspec.json.encode(params).decode()
    if len(text) > MAX_PARAMS_BYTES:
        raise RequestError(
            f"params are {len(text)} bytes, limit is {MAX_PARAMS_BYTES}", details={"code": DetailCode.INVALID_PARAMS}
        )
    return text


def _shrink(repeat: _Repeat, outcome: Outcome) -> None:
    """Keep no great answer for a repeat that hardly ever comes."""
    if outcome.cancelled():
        return
    answer = outcome.result()
    if isinstance(answer, NodeAnswer) and answer.size > KEPT_PAYLOAD_BYTES:
        repeat.outcome = asyncio.get_running_loop().create_future()
        repeat.outcome.set_result(NodeFailure("this was answered already, and the answer is not kept", "NOT_KEPT"))


async def _answer(outcome: Outcome) -> NodeAnswer:
    answer = await asyncio.shield(outcome)
    if isinstance(answer, NodeFailure):
        raise answer.error()
    return answer


def _outcome(params: NodeInvokeResultParams) -> NodeAnswer | NodeFailure:
    """What a node's answer says."""
    if not params.ok:
        said = {}
        if params.error:
            said = {name: text for name in ("code", "message") if isinstance(text := getattr(params.error, name), str)}
        return NodeFailure(said.get("message", "node invoke failed"), "NODE_ERROR", said)
    text = params.payload_json if isinstance(params.payload_json, str) else None
    payload = b"" if isinstance(params.payload, UnsetType) else bytes(params.payload)
    size = len(payload) + len(text or "")
    if size > MAX_PAYLOAD_BYTES:
        return NodeFailure(f"the node's answer is {size} bytes, limit is {MAX_PAYLOAD_BYTES}", "TOO_LARGE")
    if text:
        return NodeAnswer(_parsed(text), text)
    try:
        payload.decode()
    except UnicodeDecodeError:
        return NodeFailure("the node's answer is no text", "NODE_ERROR")
    return NodeAnswer(Raw(payload or b"null"), text)


def _parsed(text: str) -> Raw:
    """A payload that came as a text; one that is no JSON is passed on as it is, as OpenClaw does."""
    try:
        return msgspec.json.decode(text, type=Raw) if text.strip() else Raw(b"null")
    except (msgspec.DecodeError, RecursionError):
        return Raw(msgspec.json.encode({"payloadJSON": text}))


def _run_result(payload: object) -> NodeRunResult:
    """What ``system.run`` answered, whatever the node made of it."""
    said = payload if isinstance(payload, dict) else {}
    code = said.get("exitCode")
    return NodeRunResult(
        stdout=str(said.get("stdout") or ""),
        stderr=str(said.get("stderr") or ""),
        exit_code=code if isinstance(code, int) and not isinstance(code, bool) else None,
        timed_out=said.get("timedOut") is True,
        error=str(said.get("error") or ""),
    )


def send_unnumbered(peer: NodePeer, event: str, payload: object, *, droppable: bool = False) -> None:
    """Send an event to one connection without a number (OPENCLAW-V3 1.5)."""
    frame = EncodedEvent(event, payload).with_seq(None)
    peer.send_event(lambda seq: frame, droppable=droppable, numbered=False)


def shell_argv(platform: str, command: str) -> list[str]:
    """How a text is given to the shell of a platform (a key of ``PLATFORM_COMMANDS``)."""
    if platform == "windows":
        return ["cmd.exe", "/d", "/s", "/c", command]
    return ["/bin/sh", "-lc", command]


def name_of(node: NodeSummary) -> str:
    """What a node is called; its id if it has no name."""
    return node.display_name if isinstance(node.display_name, str) else node.node_id


def unknown_node() -> RequestError:
    return RequestError("unknown nodeId", details={"code": DetailCode.NOT_FOUND})


def not_connected() -> RequestError:
    return RequestError("node not connected", code=ErrorCode.UNAVAILABLE, details={"code": "NOT_CONNECTED"})


def _short(node_id: str) -> str:
    return node_id[:12]


def _summary(node_id: DeviceId, device: PairedDevice | None, link: _Link | None, name: str) -> NodeSummary:
    client = None if link is None else link.params.client
    names = (name, client.display_name if client else "", device.display_name if device else "")
    return NodeSummary(
        node_id=node_id,
        caps=sorted(set(link.params.caps)) if link else [],
        commands=sorted(link.commands) if link else [],
        paired=device is not None,
        connected=link is not None,
        display_name=next(filter(None, names), UNSET),
        platform=(client.platform if client else device.platform if device else "") or UNSET,
        version=client.version if client else UNSET,
        device_family=(client.device_family if client else device.device_family if device else "") or UNSET,
        model_identifier=(client.model_identifier if client else "") or UNSET,
        remote_ip=(device.remote_ip if device else "") or UNSET,
        path_env=(link.params.path_env if link else "") or UNSET,
        permissions=(link.params.permissions if link else {}) or UNSET,
        connected_at_ms=link.connected_at_ms if link else UNSET,
    )
