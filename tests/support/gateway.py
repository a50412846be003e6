"""A whole gateway on a free port, in the test's own loop."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skynet.app import App, open_app
from skynet.config import Config, ensure_gateway_token, load_config
from skynet.gateway.server import GatewayServer, listen
from tests.support.client import WireClient, open_client
from tests.support.model_server import ModelServer

TOKEN = "test-token"


@dataclass
class RunningGateway:
    """``url`` is the WebSocket's, ``http_url`` the HTTP surface's; ``app`` is what runs inside."""

    url: str
    http_url: str
    token: str
    app: App
    server: GatewayServer

    def client(self, **options: Any) -> Any:
        """An open client with the gateway token, or with what ``options`` say (see :func:`open_client`)."""
        options.setdefault("token", self.token)
        return open_client(self.url, **options)


def gateway_config(
    home: Path, *, models: ModelServer | None = None, env: Mapping[str, str] | None = None, toml: str = ""
) -> Config:
    """The configuration of a gateway whose state is in ``home``; arguments as in :func:`running_gateway`."""
    home.mkdir(exist_ok=True)
    file = home / "skynet.toml"
    provider = (
        f'[providers.mock]\nbase_url = "{models.url}"\napi_key = "k"\n'
        'models = [{ id = "mock-1", context_window = 128000 }, { id = "mock-2", context_window = 128000 }]\n'
        if models is not None
        else ""
    )
    file.write_text(provider + toml)
    variables = {"SKYNET_HOME": str(home), "SKYNET_GATEWAY_AUTH_TOKEN": TOKEN, **(env or {})}
    config, _ = ensure_gateway_token(load_config(None, env=variables))
    return config


@asynccontextmanager
async def running_gateway(
    home: Path, *, models: ModelServer | None = None, env: Mapping[str, str] | None = None, toml: str = ""
) -> AsyncIterator[RunningGateway]:
    """Start a gateway with its state in ``home``.

    Args:
        models: the model server behind provider ``mock``; ``None`` for none, so that the offline assistant answers.
        toml: more configuration; top-level tables that this function does not write itself.
    """
    config = gateway_config(home, models=models, env=env, toml=toml)
    async with open_app(config) as app:
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        server = GatewayServer(app.gateway, app.http, on_ready=ready.set_result)
        listener = listen("127.0.0.1", 0)
        serving = asyncio.create_task(_serve(server, listener))
        try:
            done, _ = await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
            if serving in done:
                serving.result()
            url = ready.result()
            yield RunningGateway(url, url.replace("ws://", "http://"), TOKEN, app, server)
        finally:
            server.should_exit = True
            await serving


async def _serve(server: GatewayServer, listener: Any) -> None:
    # Not serve(): that takes over the process's signal handlers.
    await server._serve([listener])


__all__ = ["TOKEN", "RunningGateway", "WireClient", "gateway_config", "running_gateway"]
