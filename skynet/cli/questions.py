"""Whether a command may run, asked of the person who waits for it: there and then, in their terminal."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

from skynet.cli.client import Event, GatewayClient, RequestFailed
from skynet.cli.errors import CliError
from skynet.cli.output import print_notice
from skynet.supervisor import Supervisor
from skynet_protocol.errors import RequestError
from skynet_protocol.exec_approvals import Decision
from skynet_protocol.session_keys import FullKey, parse_wire_key

SHOWN_ENDING = 8
"""Characters of an id's end, which name it: the beginning is a time."""
SHOWN_PREFIX = 8
"""Characters of a node's id."""
PROMPT = "Run it? [y]es, [a]lways, [N]o: "
MOST_TYPED_BYTES = 4096
INDENT = "\n" + " " * 11

_ANSWERS: dict[str, Decision] = {
    "y": "allow-once",
    "yes": "allow-once",
    "a": "allow-always",
    "always": "allow-always",
    "n": "deny",
    "no": "deny",
    "": "deny",
}

Belongs: TypeAlias = Callable[[dict[str, Any]], bool]
"""Whether what ``exec.approval.requested`` asks is asked for this call."""


@asynccontextmanager
async def asking(
    client: GatewayClient, belongs: Belongs, *, before: Callable[[], None] = lambda: None, joins: bool = False
) -> AsyncIterator[None]:
    """While the block lasts, put the questions of a call to the person, one after the other; where nobody can type an
    answer, say how else it is given.

    Args:
        before: done before anything is shown: it ends a line that is being written.
        joins: take up what is asked already: another call waits for the same.
    """
    asker = _Asker(client, belongs, before)
    stop_listening = client.listen(asker.take)
    async with Supervisor() as tasks:
        tasks.start(asker.ask(), name="ask the person")
        if joins:
            tasks.start(asker.join(), name="look for what is asked already")
        try:
            yield
        finally:
            stop_listening()


def of_session(session: str) -> Belongs:
    """Questions about what is run in a conversation of this person's own, or in a room."""
    try:
        wanted = parse_wire_key(session)
    except RequestError:
        return lambda request: False

    def belongs(request: dict[str, Any]) -> bool:
        try:
            asked = parse_wire_key(str(request.get("sessionKey") or ""))
        except RequestError:
            return False
        if (asked.agent_id, asked.rest) != (wanted.agent_id, wanted.rest) or not isinstance(asked, FullKey):
            return False
        return wanted == asked if isinstance(wanted, FullKey) else asked.kind == "user"

    return belongs


def of_command(command: str) -> Belongs:
    """Questions about this command."""
    return lambda request: request.get("command") == command


def can_answer() -> bool:
    """Whether a person sits at this terminal, and what they type comes here and not to another program."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return False


def one_line(text: str) -> str:
    """A command on one line. What could hide a part of it is spelled out: control and direction marks."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def place(request: dict[str, Any]) -> str:
    """Where a command would run."""
    node, host = request.get("nodeId"), request.get("host")
    return f"node {node[:SHOWN_PREFIX]}" if node else host or ""


def told(request: dict[str, Any]) -> str:
    """What is asked, for a person: the whole command, where it would run, and why it needs a yes."""
    command = INDENT.join(one_line(line) for line in str(request["command"]).split("\n"))
    where = {"gateway": "on the gateway's machine, outside of the sandbox"}.get(place(request), place(request))
    where += f", in {one_line(str(request['cwd']))}" if request.get("cwd") else ""
    rule = f" (rule {request['rule']})" if request.get("rule") else ""
    why = one_line(str(request.get("reason") or "")) + rule
    fields = (("command", command), ("where", where), ("why", why.strip()))
    return "[a command needs your yes]\n" + "\n".join(f"  {name:7}  {value}" for name, value in fields if value)


class _Asker:
    """The questions of one call."""

    def __init__(self, client: GatewayClient, belongs: Belongs, before: Callable[[], None]) -> None:
        self._client = client
        self._belongs = belongs
        self._before = before
        self._open: dict[str, dict[str, Any]] = {}
        self._seen: set[str] = set()
        self._news = asyncio.Event()
        self._asked = ""
        self._answer: asyncio.Future[Decision | None] | None = None

    def take(self, event: Event) -> None:
        """Look at an event of the connection, whatever it is about."""
        if event.name == "exec.approval.resolved":
            self._open.pop(event.payload["id"], None)
            if event.payload["id"] == self._asked:
                self._settle(None)
        elif event.name == "exec.approval.requested":
            self._put(event.payload)

    async def join(self) -> None:
        with suppress(CliError):
            for question in (await self._client.request("exec.approval.list"))["approvals"]:
                if question["decidable"]:
                    self._put(question)

    async def ask(self) -> None:
        """Ask about each, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._open:
                self._asked = next(iter(self._open))
                await self._ask(self._open.pop(self._asked))

    def _put(self, question: dict[str, Any]) -> None:
        request = question["request"]
        # With "askedBy" it is somebody else's command, about which this person happens to decide
        if question["id"] in self._seen or request.get("askedBy") or not self._belongs(request):
            return
        self._seen.add(question["id"])
        if can_answer():
            self._open[question["id"]] = question
            self._news.set()
        else:
            self._before()
            ending = question["id"][-SHOWN_ENDING:]
            print_notice(f"[{one_line(request['command'])} waits for a yes: skynet approvals allow {ending}]")

    async def _ask(self, question: dict[str, Any]) -> None:
        self._before()
        # Not by print_notice: every line is made safe, and those of a command are shown as lines
        print(told(question["request"]), file=sys.stderr, flush=True)
        lasts_s = (question["expiresAtMs"] - question["createdAtMs"]) / 1000
        decision = await self._typed(lasts_s)
        if decision is None:
            print_notice("[that was decided elsewhere, or too late]")
            return
        try:
            await self._client.request("exec.approval.resolve", {"id": question["id"], "decision": decision})
        except RequestFailed as exc:
            print_notice(f"[the answer came to nothing: {exc}]")

    async def _typed(self, lasts_s: float) -> Decision | None:
        """What the person answers; None if the question ended before."""
        loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
        answer: asyncio.Future[Decision | None] = loop.create_future()
        typed = bytearray()

        def read() -> None:
            try:
                data = os.read(descriptor, MOST_TYPED_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            typed.extend(data)
            if data and not typed.endswith(b"\n") and len(typed) < MOST_TYPED_BYTES:
                return
            word = typed.decode(errors="replace").strip().lower()
            typed.clear()
            if not data or word in _ANSWERS:
                self._settle(_ANSWERS[word] if data else "deny")
            else:
                _show(PROMPT)

        with suppress(termios.error):  # what was typed before there was a question is no answer to it
            termios.tcflush(descriptor, termios.TCIFLUSH)
        self._answer = answer
        timer = loop.call_later(lasts_s, self._settle, None)
        has_answered = False
        _show(PROMPT)
        loop.add_reader(descriptor, read)
        try:
            decision = await answer
            has_answered = decision is not None
            return decision
        finally:
            loop.remove_reader(descriptor)
            timer.cancel()
            self._answer = None
            if not has_answered:
                _show("\n")

    def _settle(self, decision: Decision | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(decision)


def _show(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
