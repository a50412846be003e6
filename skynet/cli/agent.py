"""``skynet agent``."""

from __future__ import annotations

import asyncio
import sys
import uuid
from typing import Annotated

from cyclopts import Parameter

from skynet.cli.answer import AnswerPrinter, final_text
from skynet.cli.client import GatewayClient, open_client
from skynet.cli.errors import CliError, Exit
from skynet.cli.models import choose_model
from skynet.cli.output import is_terminal, print_json, printable, write
from skynet.cli.questions import asking, of_session
from skynet.cli.target import NO_OPTIONS, Options, find_target

ABORT_TIMEOUT_S = 2.0


async def agent(
    *,
    message: Annotated[
        str, Parameter(name=("--message", "-m"), help="What to ask; - reads standard input.", allow_leading_hyphen=True)
    ],
    session: Annotated[str, Parameter(help="Conversation to go on with.")] = "main",
    model: Annotated[str, Parameter(help="Model for this conversation, from now on.", show_default=False)] = "",
    options: Options = NO_OPTIONS,
) -> int:
    """Ask the assistant one thing: streamed to a terminal, the whole answer at once into a pipe."""
    text = sys.stdin.read() if message == "-" else message
    if not text.strip():
        raise CliError("the message is empty", exit_code=Exit.USAGE, code="empty_message")
    async with open_client(find_target(options)) as client:
        if model:
            await choose_model(client, session, model)
        return await _ask(client, text, session, as_json=options.json)


async def _ask(client: GatewayClient, text: str, session: str, *, as_json: bool) -> int:
    run_id = str(uuid.uuid4())
    is_streaming = is_terminal() and not as_json
    printer = AnswerPrinter(run_id, write if is_streaming else lambda _: None)
    client.listen(printer.take)
    params = {"message": text, "sessionKey": session, "idempotencyKey": run_id}
    try:
        async with asking(client, of_session(session), before=printer.end_line):
            payload = await client.request_final("agent", params)
    except asyncio.CancelledError:
        await _abort(client, session, run_id)
        printer.end_line()
        raise
    if as_json:
        print_json(payload)
    elif printer.error:
        printer.end_line()
        raise CliError(printer.error, code="run_failed")
    elif is_streaming:
        printer.finish(final_text(payload))
    else:
        print(printable(final_text(payload)), flush=True)
    return Exit.FAILED if printer.error else Exit.OK


async def _abort(client: GatewayClient, session: str, run_id: str) -> None:
    """Ctrl-C ends the run too, if the gateway can still be told."""
    try:
        await client.request("chat.abort", {"sessionKey": session, "runId": run_id}, timeout_s=ABORT_TIMEOUT_S)
    except CliError:
        pass
