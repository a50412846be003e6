"""``GET /v1/models``: what may stand in ``model``."""

import time
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from skynet.http.access import Access, peer_of
from skynet.http.errors import HttpError, http_error
from skynet.http.responses import request_id, send_error, send_json
from skynet.http.target import ASSISTANT_MODELS, target_of
from skynet_agent.router import Router
from skynet_memory.ids import new_id
from skynet_protocol.scopes import Scope as OperatorScope

OWNER = "skynet"


class Models:
    """The list, and one model of it by its id, as an ASGI application.

    The list holds ``skynet``, the assistant with its default model, and every ``provider/model``. An id that is not in
    the list but can be asked for (an alias, a pool, ``openclaw:main``) is found by itself.
    """

    def __init__(self, router: Router, access: Access) -> None:
        self._router = router
        self._access = access
        self._created_s = int(time.time())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        correlation_id = ""
        try:
            peer = peer_of(scope)
            caller = await self._access.admit(scope, peer, OperatorScope.READ, "/v1/models")
            correlation_id = caller.correlation_id
            wanted = scope.get("path_params", {}).get("id")
            answer = self._list() if wanted is None else self._one(wanted)
        except Exception as exc:
            correlation_id = correlation_id or new_id()
            await send_error(send, http_error(exc, correlation_id), (request_id(correlation_id),))
            return
        await send_json(send, 200, orjson.dumps(answer), (request_id(correlation_id),))

    def _list(self) -> dict[str, Any]:
        models = [self._model(ASSISTANT_MODELS[0], OWNER)]
        models += [self._model(model.name, model.provider) for model in self._router.models()]
        return {"object": "list", "data": models}

    def _one(self, wanted: str) -> dict[str, Any]:
        if not wanted:
            raise HttpError(404, "no model is named", param="model", code="model_not_found")
        model = target_of(wanted, {}).model
        return self._model(wanted, self._router.resolve(model).provider if model else OWNER)

    def _model(self, model_id: str, owner: str) -> dict[str, Any]:
        return {"id": model_id, "object": "model", "created": self._created_s, "owned_by": owner}
