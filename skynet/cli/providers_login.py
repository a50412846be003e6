"""``skynet providers login``; needs no gateway."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter

from skynet.cli.errors import CliError, Exit
from skynet.cli.output import is_terminal, print_notice, printable
from skynet.config import CREDENTIALS_DIRECTORY, ensure_home, find_home
from skynet_agent.auth import copilot, qwen
from skynet_agent.auth.device_flow import DeviceCode, DeviceService, Granted, LoginFailed, Waiting, log_in
from skynet_agent.auth.oauth import secure_url
from skynet_agent.auth.tokens import StoredTokens, TokenStore
from skynet_agent.errors import AuthFailed, ProviderError
from skynet_agent.http_client import HttpClient
from skynet_agent.providers import ProviderRow

AGAIN = "log in again for a new code"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    title: str
    issuer: str
    service: Callable[[str], DeviceService]


_KINDS = {
    copilot.LOGIN: _Kind(title="GitHub Copilot", issuer=copilot.GITHUB, service=copilot.device_service),
    qwen.LOGIN: _Kind(title="Qwen", issuer=qwen.QWEN, service=qwen.device_service),
}


async def login(
    provider: Annotated[Literal["copilot", "qwen"], Parameter(help="The provider to log in to.")],
    /,
    *,
    host: Annotated[
        str, Parameter(help="Where to log in, if not at the usual place: NAME.ghe.com.", show_default=False)
    ] = "",
    as_json: Annotated[
        bool, Parameter(name="--json", help="Print JSON, a line for each state.", negative=(), show_default=False)
    ] = False,
) -> int:
    """Log in to a provider with a code that is entered in a browser, on this machine or another."""
    attempt = _Login(provider, _issuer(host, _KINDS[provider].issuer), _Voice(as_json))
    try:
        await attempt.run()
    except CliError as exc:
        if not as_json:
            raise
        attempt.voice.tell_failure(exc)
        return exc.exit_code
    except asyncio.CancelledError:
        attempt.voice.tell("cancelled", "cancelled; nothing was stored")
        raise
    return Exit.OK


class _Voice:
    """What a person is shown, or a script: of the progress a terminal has one line that changes."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self._shows_progress = not as_json and is_terminal(sys.stderr)
        self._is_waiting = False

    def tell(self, state: str, text: str, **facts: object) -> None:
        """A state that has come; ``text`` for a person, ``facts`` for a script."""
        if self.as_json:
            print(msgspec.json.encode({"state": state, **facts}).decode(), flush=True)
            return
        self._end_line()
        print_notice(text) if state == "cancelled" else print(printable(text), flush=True)

    def tell_failure(self, failure: CliError) -> None:
        fields = {"code": failure.code, "message": str(failure), "exitCode": int(failure.exit_code)}
        self.tell("failed", "", error={**fields, "hint": failure.hint} if failure.hint else fields)

    def tell_waiting(self, remaining_s: float) -> None:
        """Nobody has agreed yet."""
        if self.as_json:
            self.tell("waiting", "", remainingS=round(remaining_s))
        elif self._shows_progress:
            left = round(remaining_s)
            sys.stderr.write(f"\rwaiting, {left // 60}:{left % 60:02} left ")
            sys.stderr.flush()
        elif not self._is_waiting:
            print_notice("waiting …")
        self._is_waiting = True

    def _end_line(self) -> None:
        if self._is_waiting and self._shows_progress:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._is_waiting = False


class _Login:
    def __init__(self, provider: str, issuer: str, voice: _Voice) -> None:
        self.voice = voice
        self._provider = provider
        self._kind = _KINDS[provider]
        self._issuer = issuer
        self._row = ProviderRow(name=provider)
        self._http = HttpClient()

    async def run(self) -> None:
        """Log in and store what that gives.

        Raises:
            CliError: it came to nothing; what was stored before still is.
        """
        store = TokenStore(_home() / CREDENTIALS_DIRECTORY)
        try:
            granted = await self._granted()
            note = await self._check(granted)
            async with store.lock(self._provider):  # a gateway may be storing a refreshed token
                store.write(self._provider, self._tokens(granted))
        except LoginFailed as exc:
            hint = {"expired": AGAIN, "denied": f"if that was a mistake, {AGAIN}"}.get(exc.reason, "")
            raise CliError(f"{self._kind.title}: {exc}", code=f"login_{exc.reason}", hint=hint) from exc
        except AuthFailed as exc:
            raise CliError(str(exc), code="login_refused") from exc
        except ProviderError as exc:
            raise CliError(str(exc), code="provider_unreachable", hint="try again later") from exc
        except OSError as exc:
            message = f"the login cannot be stored in {store.path(self._provider)}: {exc.strerror}"
            raise CliError(message, code="login_not_stored") from exc
        finally:
            await self._http.aclose()
        file = store.path(self._provider)
        self.voice.tell(
            "done",
            f"logged in to {self._kind.title}\na gateway that has this provider uses the login from now on ({file})",
            provider=self._provider,
            file=str(file),
        )
        if note:
            self.voice.tell("note", note, message=note)

    async def _granted(self) -> Granted:
        async with aclosing(log_in(self._kind.service(self._issuer), self._http, self._row)) as steps:
            async for step in steps:
                match step:
                    case DeviceCode():
                        self._show(step)
                    case Waiting():
                        self.voice.tell_waiting(step.remaining_s)
                    case Granted():
                        return step
        raise AssertionError("a login ends with tokens or an exception")

    def _show(self, code: DeviceCode) -> None:
        lines = [f"Open  {code.complete_url or code.url}", f"and enter the code  {code.user_code}"]
        if code.complete_url:
            lines[1] = f"and agree, if it shows the code  {code.user_code}"
        lines.append(f"The code is good for {max(1, round(code.expires_in_s / 60))} min; Ctrl-C cancels.")
        self.voice.tell(
            "code",
            "\n".join(lines),
            provider=self._provider,
            url=code.url,
            completeUrl=code.complete_url,
            code=code.user_code,
            expiresInS=round(code.expires_in_s),
        )

    async def _check(self, granted: Granted) -> str:
        """A remark, should it not be known yet whether the login is of use.

        Raises:
            AuthFailed: it is of none.
        """
        if self._provider != copilot.LOGIN:
            return ""
        places = copilot.CopilotPlaces.of(self._issuer)
        try:
            await copilot.exchange(self._http, self._row, places, granted.access, _now)
        except AuthFailed:
            raise
        except ProviderError as exc:
            return f"whether this account may use {self._kind.title} could not be asked: {exc}"
        return ""

    def _tokens(self, granted: Granted) -> StoredTokens:
        if self._provider == qwen.LOGIN:
            return qwen.tokens_of(granted, self._issuer, _now())
        return StoredTokens(access=granted.access, issuer=self._issuer)


def _now() -> datetime:
    return datetime.now().astimezone()


def _home() -> Path:
    home = find_home(os.environ)
    try:
        ensure_home(home)
    except OSError as exc:
        message = f"the state directory {home} cannot be made: {exc.strerror}"
        raise CliError(message, exit_code=Exit.USAGE, code="no_home") from exc
    return home


def _issuer(host: str, usual: str) -> str:
    if not host:
        return usual
    issuer = secure_url(host if "://" in host else f"https://{host}")
    if not issuer or issuer.count("/") > 2:
        raise CliError(f"{host!r} is no host to log in at", exit_code=Exit.USAGE, code="bad_host", hint="NAME.ghe.com")
    return issuer
