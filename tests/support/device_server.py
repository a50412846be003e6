"""A scripted sign-in service: GitHub's device flow with Copilot's exchange, and Qwen's device flow with its refresh.

``async with DeviceServer() as server:`` inside a test, or ``with in_a_thread(DeviceServer()) as server:`` beside
commands that have a loop of their own. It refuses what the real services refuse: a verifier that does not match its
challenge, a code or a refresh token that was used before, an exchange without an editor's name or with a token that it
did not give. Whoever asks without ``Accept: application/json`` gets GitHub's forms.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

from aiohttp import web

from tests.support.dialects.openai_completions import OpenAICompletions
from tests.support.model_server import ModelServer

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"


@dataclass(frozen=True, slots=True)
class SignIn:
    """A request as it came. Header names are in lower case."""

    path: str
    headers: Mapping[str, str]
    form: Mapping[str, str]
    at: float


@dataclass(slots=True)
class Service:
    """What one of the services was asked and is to answer.

    ``answers`` are those to the questions whether somebody has agreed, in order: an error of RFC 8628, a status
    (``503``), or ``granted``; ``granted`` once they are used up. ``faults``: statuses that the next exchanges or
    refreshes are answered with, 0 for one that is closed without an answer.
    """

    answers: deque[str] = field(default_factory=deque)
    faults: deque[int] = field(default_factory=deque)
    interval: float | None = 0.01
    slower: float | None = None
    """The interval that ``slow_down`` tells."""
    expires_in: float = 900
    lifetime_s: float = 1800
    """Of the tokens that it gives."""
    delay_s: float = 0.0
    """Before an exchange or a refresh is answered."""
    codes: dict[str, str] = field(default_factory=dict)
    """Device codes that are good, and their challenges."""
    given: list[str] = field(default_factory=list)
    """Tokens of the login, the last one is good: GitHub's, or Qwen's refresh tokens."""
    access: list[str] = field(default_factory=list)
    """Tokens for the models."""
    changes: dict[str, Any] = field(default_factory=dict)
    """What answers are to say otherwise; None leaves a field out."""


class DeviceServer:
    """The server. With ``models``, tokens are good there, the last one that was given only."""

    def __init__(self, models: ModelServer | None = None) -> None:
        self.github = Service()
        self.qwen = Service()
        self.models = models
        self.requests: list[SignIn] = []
        self.origin = ""
        self._number = 0
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> DeviceServer:
        app = web.Application()
        app.router.add_post("/login/device/code", self._github_code)
        app.router.add_post("/login/oauth/access_token", self._github_answer)
        app.router.add_get("/copilot_internal/v2/token", self._exchange)
        app.router.add_post("/api/v1/oauth2/device/code", self._qwen_code)
        app.router.add_post("/api/v1/oauth2/token", self._qwen_token)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.origin = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def seen(self, path: str) -> list[SignIn]:
        """The requests for ``path``."""
        return [request for request in self.requests if request.path == path]

    @property
    def exchanges(self) -> int:
        return len(self.seen("/copilot_internal/v2/token"))

    @property
    def refreshes(self) -> int:
        return len([each for each in self.requests if each.form.get("grant_type") == "refresh_token"])

    # GitHub

    async def _github_code(self, request: web.Request) -> web.Response:
        form = await self._note(request)
        if not form.get("client_id"):
            return _answer(request, 404, {"error": "Not Found"})
        return self._code(request, self.github, "/login/device", "")

    async def _github_answer(self, request: web.Request) -> web.Response:
        form = await self._note(request)
        error = self._question(self.github, form)
        if error and error.isdecimal():
            return web.Response(status=int(error))
        if error:
            said: dict[str, Any] = {"error": error, "error_description": f"scripted {error}"}
            if error == "slow_down" and self.github.slower is not None:
                said["interval"] = self.github.slower
            return _answer(request, 200, said)
        self.github.given.append(self._new("gho"))
        token = {"access_token": self.github.given[-1], "token_type": "bearer", "scope": "read:user"}
        return _answer(request, 200, token)

    async def _exchange(self, request: web.Request) -> web.StreamResponse:
        await self._note(request)
        service = self.github
        if service.faults:
            return await _fault(request, service.faults.popleft())
        await asyncio.sleep(service.delay_s)
        if request.headers.get("Authorization") != f"token {(service.given or [''])[-1]}":
            return _answer(request, 401, {"message": "Bad credentials"})
        if not request.headers.get("Editor-Version") or not request.headers.get("Editor-Plugin-Version"):
            return _answer(request, 400, {"message": "missing Editor-Version header"})
        service.access.append(self._new("tid=1;exp=2;sku=free_educational:"))
        self._accept(service.access[-1])
        answer = {
            "token": service.access[-1],
            "expires_at": int(time.time() + service.lifetime_s),
            "refresh_in": max(1, int(service.lifetime_s - 300)),
            "endpoints": {"api": self.models.origin if self.models else "https://api.individual.githubcopilot.com"},
            "chat_enabled": True,
        }
        return _answer(request, 200, _changed(answer, service.changes))

    # Qwen

    async def _qwen_code(self, request: web.Request) -> web.Response:
        form = await self._note(request)
        if form.get("code_challenge_method") != "S256" or len(form.get("code_challenge", "")) != 43:
            return _answer(request, 400, {"error": "invalid_request", "error_description": "code_challenge"})
        return self._code(request, self.qwen, "/authorize", form["code_challenge"])

    async def _qwen_token(self, request: web.Request) -> web.StreamResponse:
        form = await self._note(request)
        service = self.qwen
        if form.get("grant_type") == "refresh_token":
            return await self._qwen_refresh(request, form)
        if form.get("grant_type") != DEVICE_GRANT:
            return _answer(request, 400, {"error": "unsupported_grant_type"})
        challenge = service.codes.get(form.get("device_code", ""))
        if challenge is None or challenge != _challenge(form.get("code_verifier", "")):
            return _answer(request, 400, {"error": "invalid_grant", "error_description": "the verifier does not match"})
        if error := self._question(service, form):
            if error.isdecimal():
                return web.Response(status=int(error))
            status = 429 if error == "slow_down" else 400
            return _answer(request, status, {"error": error, "error_description": f"scripted {error}"})
        return _answer(request, 200, self._qwen_tokens())

    async def _qwen_refresh(self, request: web.Request, form: Mapping[str, str]) -> web.StreamResponse:
        service = self.qwen
        if service.faults:
            return await _fault(request, service.faults.popleft())
        await asyncio.sleep(service.delay_s)
        if form.get("refresh_token") != (service.given or [""])[-1]:
            return _answer(request, 400, {"error": "invalid_grant", "error_description": "used before"})
        return _answer(request, 200, self._qwen_tokens())

    def _qwen_tokens(self) -> dict[str, Any]:
        service = self.qwen
        service.given.append(self._new("refresh"))
        service.access.append(self._new("access"))
        self._accept(service.access[-1])
        answer = {
            "access_token": service.access[-1],
            "refresh_token": service.given[-1],
            "token_type": "Bearer",
            "expires_in": service.lifetime_s,
            "resource_url": self.models.url if self.models else "portal.qwen.ai",
        }
        return _changed(answer, service.changes)

    # Both

    async def _note(self, request: web.Request) -> dict[str, str]:
        form = dict(parse_qsl(await request.text(), keep_blank_values=True))
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append(SignIn(request.path, headers, form, time.monotonic()))
        return form

    def _code(self, request: web.Request, service: Service, page: str, challenge: str) -> web.Response:
        self._number += 1
        device_code, user_code = f"device-code-{self._number:04}-secret", f"ABCD-{self._number:04}"
        service.codes[device_code] = challenge
        answer: dict[str, Any] = {
            "device_code": device_code,
            "user_code": user_code,
            "verification_uri": f"{self.origin}{page}",
            "expires_in": service.expires_in,
        }
        if service.interval is not None:
            answer["interval"] = service.interval
        if challenge:
            answer["verification_uri_complete"] = f"{self.origin}{page}?user_code={user_code}&client=x"
        return _answer(request, 200, _changed(answer, service.changes))

    def _question(self, service: Service, form: Mapping[str, str]) -> str:
        """What is said to whoever asks with a device code; "" if tokens are given."""
        code = form.get("device_code", "")
        if form.get("grant_type") != DEVICE_GRANT:
            return "unsupported_grant_type"
        if code not in service.codes:
            return "incorrect_device_code"
        answer = service.answers.popleft() if service.answers else "granted"
        if answer == "granted":
            del service.codes[code]
            return ""
        return answer

    def _new(self, kind: str) -> str:
        self._number += 1
        return f"{kind}-token-{self._number:04}-secret"

    def _accept(self, token: str) -> None:
        if self.models is not None:
            self.models.dialect(OpenAICompletions).key = token


@contextmanager
def in_a_thread(server: DeviceServer) -> Iterator[DeviceServer]:
    """Run it in a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def _answer(request: web.Request, status: int, fields: Mapping[str, Any]) -> web.Response:
    if "json" not in request.headers.get("Accept", ""):
        return web.Response(status=status, text=urlencode(fields), content_type="application/x-www-form-urlencoded")
    return web.json_response(dict(fields), status=status)


async def _fault(request: web.Request, status: int) -> web.StreamResponse:
    if status:
        return _answer(request, status, {"message": f"scripted {status}", "error": f"scripted {status}"})
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def _changed(answer: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**answer, **changes}.items() if value is not None}


def _challenge(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
