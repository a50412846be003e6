"""``skynet terminal``: a shell on the gateway's machine, in one's own terminal.

The program goes on when one leaves; it is ended with ``skynet terminal kill``, by itself, or when nobody has used it
for as long as the gateway is configured.
"""

from __future__ import annotations

import asyncio
import shlex
from base64 import b64encode
from typing import Annotated, Any

from cyclopts import Parameter

from skynet.cli.client import Event, GatewayClient, GatewayUnreachable, RequestFailed, open_client
from skynet.cli.errors import CliError, Exit
from skynet.cli.exec import Directory, exit_code, refused
from skynet.cli.output import ago, print_json, print_notice, print_table
from skynet.cli.questions import asking, of_command
from skynet.cli.target import NO_OPTIONS, Options, find_target
from skynet.cli.tty import Tty, detach_key, raw_tty, require_tty, tty_size
from skynet.supervisor import Supervisor
from skynet_memory.ids import now_ms

SHELL = "bash"
WRITE_BYTES = 65_536
"""What one request types at most."""
DetachKey = Annotated[
    str, Parameter(name="--detach-key", help="Key that leaves the terminal without ending it, or none.")
]
Name = Annotated[str, Parameter(help="The terminal: its id, the end of its id, or its title.")]


async def new(
    *,
    shell: Annotated[str, Parameter(help="What to run instead of bash.", show_default=False)] = "",
    command: Annotated[str, Parameter(help="A line for the shell, with which it ends.", show_default=False)] = "",
    cwd: Directory = "",
    title: Annotated[str, Parameter(help="A name for it.", show_default=False)] = "",
    detached: Annotated[
        bool, Parameter(help="Only open it, and print its id.", negative=(), show_default=False)
    ] = False,
    key: DetachKey = "^]",
    options: Options = NO_OPTIONS,
) -> int:
    """Open a shell on the gateway's machine, and end as it does. Ctrl-] leaves it without ending it."""
    detached = detached or options.json
    given = {"shell": shell, "command": command, "cwd": cwd, "title": title}
    params: dict[str, Any] = {name: value for name, value in given.items() if value}
    leave = detach_key(key)
    if detached:
        async with open_client(find_target(options)) as client:
            terminal = await _created(client, params)
        if options.json:
            print_json({"terminal": terminal})
        else:
            print(terminal["terminalId"])
        return Exit.OK
    require_tty()
    async with open_client(find_target(options)) as client:
        return await _Session(client, leave).hold_new(params)


async def attach(name: Name = "", /, *, key: DetachKey = "^]", options: Options = NO_OPTIONS) -> int:
    """Go back to a terminal: the one that is named, or the only one."""
    leave = detach_key(key)
    require_tty()
    async with open_client(find_target(options)) as client:
        terminal = await _find(client, name)
        return await _Session(client, leave).hold(terminal)


async def list_terminals(*, options: Options = NO_OPTIONS) -> None:
    """List your terminals."""
    async with open_client(find_target(options)) as client:
        result = await client.request("terminal.list")
    if options.json:
        print_json(result)
        return
    print_table(("terminal", "state", "size", "opened", "title"), [_row(terminal) for terminal in result["terminals"]])


async def kill(name: Name, /, *, options: Options = NO_OPTIONS) -> None:
    """End a terminal with all that runs in it."""
    async with open_client(find_target(options)) as client:
        terminal = await _find(client, name)
        result = await client.request("terminal.kill", {"terminalId": terminal["terminalId"]})
    if options.json:
        print_json(result)
    else:
        print(f"ended {terminal['terminalId']}")


class _Session:
    """One's own terminal, tied to one of the gateway's, until either ends or one leaves."""

    def __init__(self, client: GatewayClient, leave: bytes) -> None:
        self._client = client
        self._leave = leave
        self._id = ""

    async def hold_new(self, params: dict[str, Any]) -> int:
        columns, rows = tty_size()
        # Not in a raw terminal yet: somebody may have to allow it first, and Ctrl-C gives that up
        terminal = await _created(self._client, {**params, "cols": columns, "rows": rows})
        with raw_tty() as own:
            code = await self._run(own, terminal)
        return self._told(code)

    async def hold(self, terminal: dict[str, Any]) -> int:
        with raw_tty() as own:
            if terminal["running"]:
                own.on_resize()
            code = await self._run(own, terminal)
        return self._told(code)

    async def _run(self, own: Tty, terminal: dict[str, Any]) -> int | None:
        """The exit code; None for a person who has left."""
        self._id = terminal["terminalId"]
        ended: asyncio.Future[dict[str, Any]] = self._client.expect(self._end)
        stop_listening = self._client.listen(lambda event: self._show(own, event))
        try:
            async with Supervisor() as tasks:
                await self._client.request("terminal.subscribe", {"terminalId": self._id})
                typing = tasks.start(self._type(own), name="type")
                own.read()
                waited: set[asyncio.Future[Any]] = {ended, own.ended, typing}
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    return exit_code(ended.result())
                if own.ended.done():
                    return own.ended.result()
                typing.result()
                return None
        except GatewayUnreachable as exc:
            exc.hint = f"the terminal goes on: skynet terminal attach {self._id}"
            raise
        finally:
            ended.cancel()
            stop_listening()

    def _end(self, event: Event) -> dict[str, Any] | None:
        return event.payload if event.name == "terminal.exit" and event.payload["terminalId"] == self._id else None

    def _show(self, own: Tty, event: Event) -> None:
        if event.name == "terminal.output" and event.payload["terminalId"] == self._id:
            own.show(event.payload["data"])

    async def _type(self, own: Tty) -> None:
        """Send what is typed and how large the terminal is, until the person leaves."""
        while True:
            await own.news.wait()
            own.news.clear()
            if own.resized:
                own.resized = False
                columns, rows = tty_size()
                await self._ask(own, "terminal.resize", {"cols": columns, "rows": rows})
            typed, key, _ = own.take().partition(self._leave) if self._leave else (own.take(), b"", b"")
            for start in range(0, len(typed), WRITE_BYTES):
                data = b64encode(typed[start : start + WRITE_BYTES]).decode()
                await self._ask(own, "terminal.write", {"dataBase64": data})
            if key:
                return

    async def _ask(self, own: Tty, method: str, params: dict[str, Any]) -> None:
        try:
            await self._client.request(method, {"terminalId": self._id, **params})
        except RequestFailed as exc:
            if exc.code == "TIMEOUT":  # the program does not read, and as much waits for it as can
                own.show("\a")
            elif exc.code != "NOT_FOUND":  # its end is told by an event
                raise

    def _told(self, code: int | None) -> int:
        if code is None:
            print_notice(f"\n[left; to go back: skynet terminal attach {self._id}]")
            return Exit.OK
        return code


async def _created(client: GatewayClient, params: dict[str, Any]) -> dict[str, Any]:
    command = params.get("command") or shlex.quote(params.get("shell") or SHELL)
    try:
        async with asking(client, of_command(command), joins=True):
            terminal: dict[str, Any] = await client.request("terminal.create", params, timeout_s=None)
    except RequestFailed as exc:
        raise refused(exc) from exc
    return terminal


async def _find(client: GatewayClient, name: str) -> dict[str, Any]:
    """The terminal that is meant.

    Raises:
        CliError: none, or more than one.
    """
    terminals: list[dict[str, Any]] = (await client.request("terminal.list"))["terminals"]
    if name:
        found = [each for each in terminals if name in (each["terminalId"], each.get("title"))]
        found = found or [each for each in terminals if each["terminalId"].endswith(name)]
    else:
        found = [each for each in terminals if each["running"]]
    if len(found) == 1:
        return found[0]
    what = f"terminal {name!r}" if name else "terminal that runs"
    message = f"there are {len(found)}: {what}" if found else f"there is no {what}"
    raise CliError(message, code="not_found", hint="see: skynet terminal list")


def _row(terminal: dict[str, Any]) -> tuple[str, ...]:
    state = "running" if terminal["running"] else f"ended {terminal.get('signal') or terminal.get('exitCode', '')}"
    return (
        str(terminal["terminalId"]),
        state.strip(),
        f"{terminal['cols']}x{terminal['rows']}",
        ago(terminal["createdAt"], now_ms()),
        str(terminal.get("title") or terminal["shell"]),
    )
