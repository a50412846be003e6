"""Who may use ``/v1``: the checks that come before a request's body is even read."""

from collections.abc import Callable
from urllib.parse import parse_qsl

from starlette.types import Scope

from skynet.gateway.auth import Authenticator
from skynet.gateway.authorize import authorize_route
from skynet.gateway.peer import PeerInfo, joined_headers, origin_allowed
from skynet.http.errors import HttpError, invalid
from skynet_protocol.scopes import satisfies
from skynet_users.caller import Caller
from skynet_users.errors import Forbidden

SECRETS_IN_QUERY = frozenset(
    {"access_token", "api-key", "api_key", "apikey", "auth", "authorization", "key", "password", "token"}
)
"""Query parameters that are taken for a misplaced secret."""


def peer_of(scope: Scope) -> PeerInfo:
    """The network's view of who sent a request."""
    host, port = scope.get("client") or ("", 0)
    headers = joined_headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
    return PeerInfo(address=host, port=port, headers=headers)


class Access:
    """Lets a request in, or says why not."""

    def __init__(
        self,
        authenticator: Authenticator,
        *,
        origins: tuple[str, ...],
        refused: Callable[[Caller, str, Forbidden], None],
    ) -> None:
        self._authenticator = authenticator
        self._origins = origins
        self._refused = refused

    async def admit(self, scope: Scope, peer: PeerInfo, required_scope: str, route: str) -> Caller:
        """The caller, who has ``required_scope`` and may use ``route``, a path as in the table of routes.

        A request from a page of another origin is refused, as at the WebSocket: with ``auth.mode = "none"`` any page
        that a person of this machine opens could otherwise talk to the gateway, for a body needs no preflight if it
        is sent as ``text/plain``. The page's own host is no proof (a name can be rebound to 127.0.0.1), so the origin
        has to be listed, or both it and the gateway be on this machine.

        Raises:
            HttpError: a foreign origin (403), a secret in the URL (400), or a missing scope (403).
            AuthFailed: no secret, a wrong one, or too many wrong ones.
            Forbidden: the person may not use the route.
        """
        if peer.origin is not None and not origin_allowed(peer, self._origins):
            raise HttpError(403, "origin not allowed", code="origin_not_allowed")
        if query := scope["query_string"]:
            _refuse_secrets(query.decode("latin-1"))
        caller = await self._authenticator.bearer(_bearer_token(peer), peer)
        if not satisfies(caller.scopes, required_scope):
            raise HttpError(403, f"missing scope: {required_scope}", code="insufficient_scope")
        try:
            authorize_route(caller, route)
        except Forbidden as exc:
            self._refused(caller, route, exc)
            raise
        return caller


def _bearer_token(peer: PeerInfo) -> str | None:
    scheme, _, token = peer.headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _refuse_secrets(query: str) -> None:
    # URLs end up in histories and in the logs of proxies, so a secret that works there is a secret that leaks.
    for name, _ in parse_qsl(query, keep_blank_values=True):
        if name.lower() in SECRETS_IN_QUERY:
            raise invalid(
                f"`{name.lower()}` is not accepted in the URL: send the secret as `Authorization: Bearer …`,"
                " and replace it if it is a real one.",
                name.lower(),
                "secret_in_url",
            )
