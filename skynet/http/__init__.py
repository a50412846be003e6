"""The HTTP surface: health, and OpenAI's API under ``/v1``."""

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from skynet.config import LimitsConfig
from skynet.gateway.auth import Authenticator
from skynet.gateway.runs import Runs
from skynet.http.access import Access
from skynet.http.chat import ChatCompletions
from skynet.http.chat_request import DEFAULT_MAX_TOKENS
from skynet.http.errors import HttpError, internal_error
from skynet.http.health import Health, Ready
from skynet.http.models import Models
from skynet_agent.router import Router
from skynet_memory.database import Database
from skynet_users.caller import Caller
from skynet_users.errors import Forbidden

_HEADERS = {"x-content-type-options": "nosniff", "cache-control": "no-store"}


def http_app(
    *,
    runs: Runs,
    authenticator: Authenticator,
    router: Router,
    database: Database,
    connections: Callable[[], int],
    limits: LimitsConfig,
    max_tokens: int | None = None,
    origins: tuple[str, ...] = (),
    accepting: Callable[[], bool] = lambda: True,
    refused: Callable[[Caller, str, Forbidden], None] = lambda caller, route, refusal: None,
) -> Starlette:
    """The HTTP application.

    Args:
        connections: how many WebSocket clients are connected.
        max_tokens: of an answer, where the request does not say; None for the endpoint's own default.
        origins: browser origins that may call ``/v1`` besides pages of this machine.
        accepting: whether requests are welcome; false while starting and shutting down.
        refused: told of whom a route was not permitted to.
    """
    access = Access(authenticator, origins=origins, refused=refused)
    health, models = Health(connections), Models(router, access)
    chat = ChatCompletions(
        runs=runs,
        router=router,
        access=access,
        body_bytes=limits.http_body_bytes,
        outbound_bytes=limits.outbound_bytes,
        max_tokens=max_tokens or DEFAULT_MAX_TOKENS,
    )
    app = Starlette(
        routes=[
            Route("/health", health, methods=["GET"]),
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/models", models, methods=["GET"]),
            Route("/v1/models/{id:path}", models, methods=["GET"]),
            Route("/healthz", health, methods=["GET"]),
            Route("/readyz", Ready(accepting, database), methods=["GET"]),
        ],
        exception_handlers={HTTPException: _not_served, Exception: _crashed},
    )
    app.router.redirect_slashes = False  # a POST that is redirected loses its body in most clients
    return app


def _not_served(request: Request, exc: Exception) -> Response:
    """404 and 405."""
    assert isinstance(exc, HTTPException)
    headers = {**(exc.headers or {}), **_HEADERS}
    if not _is_api(request):
        return PlainTextResponse(exc.detail, exc.status_code, headers)
    path = request.scope["path"]
    error = (
        HttpError(404, f"unknown path: {path}", code="unknown_path")
        if exc.status_code == 404
        else HttpError(exc.status_code, f"{request.method} is not possible on {path}", code="method_not_allowed")
    )
    return Response(error.body(), error.status, headers, media_type="application/json")


def _crashed(request: Request, exc: Exception) -> Response:
    """What no endpoint caught; the server logs the traceback."""
    if not _is_api(request):
        return PlainTextResponse("internal error", 500, _HEADERS)
    return Response(internal_error("").body(), 500, _HEADERS, media_type="application/json")


def _is_api(request: Request) -> bool:
    path: str = request.scope["path"]
    return path == "/v1" or path.startswith("/v1/")
