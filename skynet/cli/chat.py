"""``skynet chat``: a conversation in the terminal."""

from __future__ import annotations

import asyncio
import signal
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from skynet.cli.answer import AnswerPrinter
from skynet.cli.client import Event, GatewayClient, GatewayUnreachable, open_client
from skynet.cli.errors import CliError, Exit
from skynet.cli.models import choose_model
from skynet.cli.output import print_error, print_fields, print_notice, print_table, write
from skynet.cli.questions import asking, of_session
from skynet.cli.target import NO_OPTIONS, Options, find_target
from skynet.cli.transcript import message_text, print_messages
from skynet.supervisor import Supervisor

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

SHOWN_AT_START = 20
HELP = """\
/new           start over; what was said stays on the gateway
/model [NAME]  list the models, or use another one in this conversation
/status        which gateway, conversation and model this is
/help          this list
/quit          leave, as Ctrl-D does
Ctrl-C         stop the answer that is being written
Anything else is said to the assistant."""


async def chat(
    *,
    session: Annotated[str, Parameter(help="Conversation to go on with.")] = "main",
    options: Options = NO_OPTIONS,
) -> None:
    """Talk with the assistant."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CliError(
            "chat needs a terminal", exit_code=Exit.USAGE, code="no_terminal", hint="use: skynet agent -m TEXT"
        )
    async with open_client(find_target(options), caps=["tool-events"]) as client, Supervisor() as tasks:
        await Conversation(client, session, tasks).hold()


class Conversation:
    """One conversation with the gateway, until the person leaves or the connection ends."""

    def __init__(self, client: GatewayClient, session: str, tasks: Supervisor) -> None:
        self._client = client
        self._session = session
        self._tasks = tasks
        self._commands: dict[str, Callable[[str], Awaitable[None]]] = {
            "/new": self._start_over,
            "/model": self._model,
            "/status": self._status,
            "/help": self._help,
        }

    async def hold(self) -> None:
        from prompt_toolkit import PromptSession

        history = await self._client.request("chat.history", {"sessionKey": self._session, "limit": SHOWN_AT_START})
        print_messages(history["messages"])
        print_notice(f"{self._client.target.url}, conversation {self._session}. /help lists what you can do.")
        prompt: PromptSession[str] = PromptSession()
        connection: asyncio.Future[None] = self._client.expect(lambda _: None)
        connection.add_done_callback(lambda lost: _leave_prompt(prompt, lost))
        try:
            while (text := await self._read(prompt)) not in (None, "/quit", "/exit"):
                await self._act_on(text or "")
        finally:
            connection.cancel()

    async def _read(self, prompt: PromptSession[str]) -> str | None:
        """A line; None when the person leaves. Ctrl-C drops what was typed."""
        try:
            return (await prompt.prompt_async("> ")).strip()
        except KeyboardInterrupt:
            return ""
        except EOFError:
            return None

    async def _act_on(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        try:
            if word in self._commands:
                await self._commands[word](rest.strip())
            elif text:
                await self._say(text)
        except GatewayUnreachable:
            raise
        except CliError as exc:
            print_error(exc, as_json=False)

    async def _say(self, text: str) -> None:
        """Send a message and show the answer while it is written."""
        run_id = str(uuid.uuid4())
        printer = AnswerPrinter(run_id, write)
        stop_listening = self._client.listen(printer.take)
        end = self._client.expect(lambda event: _end_of(run_id, event))
        try:
            async with asking(self._client, of_session(self._session), before=printer.end_line):
                with _on_interrupt(lambda: self._tasks.start(self._abort(run_id), name="stop the answer")):
                    params = {"sessionKey": self._session, "message": text, "idempotencyKey": run_id}
                    answer = await self._client.request("chat.send", params)
                    if "aborted" not in answer:  # "stop" and the like end other runs and start none
                        _show_end(printer, await end)
        finally:
            end.cancel()
            stop_listening()

    async def _abort(self, run_id: str) -> None:
        try:
            await self._client.request("chat.abort", {"sessionKey": self._session, "runId": run_id})
        except CliError as exc:
            print_error(exc, as_json=False)

    async def _start_over(self, _: str) -> None:
        await self._client.request("sessions.reset", {"key": self._session, "reason": "new"})
        print_notice("a new conversation")

    async def _model(self, name: str) -> None:
        if name:
            result = await choose_model(self._client, self._session, name)
            print_notice(f"model: {_model_name(result.get('resolved') or {}) or name}")
            return
        models = (await self._client.request("models.list"))["models"]
        print_table(
            ("model", "name"), [(f"{model['provider']}/{model['id']}", model.get("name", "")) for model in models]
        )

    async def _status(self, _: str) -> None:
        row = await self._own_row()
        hello = self._client.hello
        tokens = row.get("totalTokens")
        print_fields(
            [
                ("gateway", f"{self._client.target.url}, version {hello['server'].get('version', '')}"),
                ("conversation", str(row.get("key") or f"{self._session} (nothing said yet)")),
                ("model", _model_name(row)),
                ("tokens", "" if tokens is None else str(tokens)),
            ]
        )

    async def _own_row(self) -> dict[str, Any]:
        """This conversation as the gateway lists it; empty when it is not there yet."""
        try:
            key = (await self._client.request("sessions.resolve", {"key": self._session}))["key"]
        except CliError as exc:
            if isinstance(exc, GatewayUnreachable):
                raise
            return {}
        rows = (await self._client.request("sessions.list", {"limit": 1000}))["sessions"]
        return next((row for row in rows if row["key"] == key), {})

    async def _help(self, _: str) -> None:
        print_notice(HELP)


def _model_name(row: dict[str, Any]) -> str:
    return "/".join(str(part) for part in (row.get("modelProvider"), row.get("model")) if part)


def _end_of(run_id: str, event: Event) -> dict[str, Any] | None:
    """The ``chat`` event that ends this run, if the event is that."""
    payload = event.payload
    if event.name != "chat" or not isinstance(payload, dict) or payload.get("runId") != run_id:
        return None
    return payload if payload.get("state") in ("final", "error", "aborted") else None


def _show_end(printer: AnswerPrinter, end: dict[str, Any]) -> None:
    message = end.get("message")
    text = message_text({"content": message.get("content")}) if isinstance(message, dict) else ""
    printer.finish(text)
    if end["state"] == "error":
        print_notice(f"error: {end.get('errorMessage') or 'the run failed'}")
    elif end["state"] == "aborted":
        print_notice("[stopped]")


def _leave_prompt(prompt: PromptSession[str], lost: asyncio.Future[None]) -> None:
    """The connection ended while the person was typing."""
    if not lost.cancelled() and (failure := lost.exception()) is not None and prompt.app.is_running:
        prompt.app.exit(exception=failure)


@contextmanager
def _on_interrupt(act: Callable[[], object]) -> Iterator[None]:
    """Ctrl-C does ``act`` instead of ending the command."""
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)
    loop.add_signal_handler(signal.SIGINT, act)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
