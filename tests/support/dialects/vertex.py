"""Google Vertex AI: Gemini's ``streamGenerateContent``, Claude's ``streamRawPredict``, and Google's token endpoint.

A test that wants the three to know the same account calls ``share_account``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qs, parse_qsl, unquote

import orjson

from tests.support.dialects import gemini
from tests.support.dialects.anthropic_messages import (
    Signatures,
    anthropic_error,
    check_body,
    encode_answer,
    encode_stream,
    prompt_blocks,
    turns,
)
from tests.support.script import Asked, Dialect, Failure, Refused, Reply, Script, Seen

VERSIONS = ("vertex-2023-10-16", "2026-10-21")
"""Of Anthropic's format, which stand in the body here. The newer one has no sampling options."""

_path = re.compile(
    r"/(?P<version>v1|v1beta1)(?:/projects/(?P<project>[^/]+)/locations/(?P<location>[^/]+))?"
    r"/publishers/(?P<publisher>google|anthropic)/models/(?P<model>[^/:]+):(?P<method>\w+)"
)


@dataclass(slots=True)
class Account:
    """Who may ask. Empty fields are not checked, but some credentials have to be there."""

    token: str = ""
    """The bearer token of now; the token endpoint sets it."""
    key: str = ""
    """The key of express mode."""
    project: str = ""
    location: str = ""
    given: list[dict[str, Any]] = field(default_factory=list)
    """What the tokens were asked with: the claims of each assertion."""
    lifetime_s: int = 3600

    def check(self, seen: Seen, place: re.Match[str]) -> None:
        headers, query = seen.headers, parse_qs(seen.target.partition("?")[2])
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        key = headers.get("x-goog-api-key", "") or "".join(query.get("key", []))
        if place["project"] is None:
            if place["publisher"] != "google" or bearer or not key or (self.key and key != self.key):
                raise Refused(401, "", "API keys are not supported by this API. Expected OAuth2 access token.")
            return
        if not bearer:
            said = "Request is missing required authentication credential. Expected OAuth 2 access token."
            raise Refused(401, "", said)
        if self.token and bearer != self.token:
            raise Refused(401, "", "Request had invalid authentication credentials. Expected OAuth 2 access token.")
        project, location = unquote(place["project"]), place["location"]
        if (self.project and project != self.project) or (self.location and location != self.location):
            where = f"//aiplatform.googleapis.com/projects/{project}/locations/{location}"
            raise Refused(403, "", f"Permission 'aiplatform.endpoints.predict' denied on resource '{where}'.")


def share_account(dialects: Iterable[Dialect]) -> Account:
    """One account for Google's three dialects of a server."""
    account = Account()
    for dialect in dialects:
        if isinstance(dialect, VertexGemini | VertexClaude | GoogleTokens):
            dialect.account = account
    return account


class GoogleTokens:
    """See ``Dialect``: ``POST /token``, which gives a token for what a service account signed."""

    content_type = ""
    cache: Literal["none"] = "none"

    def __init__(self) -> None:
        self.account = Account()

    def accepts(self, seen: Seen) -> bool:
        return seen.method == "POST" and seen.path == "/token"

    def ask(self, seen: Seen) -> Asked | Reply:
        from tests.support.service_account import EMAIL, JWT_GRANT, claims_of

        form = dict(parse_qsl(seen.raw.decode()))
        if form.get("grant_type") != JWT_GRANT:
            raise Refused(400, "unsupported_grant_type", f"Invalid grant_type: {form.get('grant_type')}")
        try:
            claims = claims_of(form.get("assertion", ""))
        except ValueError as exc:
            raise Refused(400, "invalid_grant", "Invalid JWT Signature.") from exc
        if (claims.get("iss"), claims.get("aud")) != (EMAIL, "https://oauth2.googleapis.com/token"):
            raise Refused(400, "invalid_grant", "Invalid JWT: Failed audience check.")
        if not 0 < claims["exp"] - claims["iat"] <= 3600:
            raise Refused(400, "invalid_grant", "Invalid JWT: Token must be a short-lived token (60 minutes)")
        self.account.given.append(claims)
        self.account.token = f"ya29.token-{len(self.account.given)}"
        return Reply(
            {"access_token": self.account.token, "expires_in": self.account.lifetime_s, "token_type": "Bearer"}
        )

    def stream(self, script: Script, asked: Asked) -> list[bytes]:
        raise NotImplementedError

    def whole(self, script: Script, asked: Asked) -> Any:
        raise NotImplementedError

    def failure(self, failure: Failure) -> Any:
        return {"error": failure.code, "error_description": failure.message}

    def models(self) -> Any | None:
        return None

    def prompt_blocks(self, body: Mapping[str, Any]) -> list[tuple[str, bool]]:
        return []


class VertexClaude:
    """See ``Dialect``: Anthropic's messages in Google's envelope."""

    content_type = "text/event-stream; charset=utf-8"
    cache: Literal["marks"] = "marks"

    def __init__(self) -> None:
        self.account = Account()
        self.signatures = Signatures()

    def accepts(self, seen: Seen) -> bool:
        return seen.method == "POST" and "/publishers/anthropic/models/" in seen.path

    def ask(self, seen: Seen) -> Asked | Reply:
        place = _place(seen, ("rawPredict", "streamRawPredict"))
        self.account.check(seen, place)
        body = seen.body
        if not isinstance(body, dict):
            raise Refused(400, "", "The request body is not valid JSON")
        if body.get("anthropic_version") not in VERSIONS:
            raise Refused(400, "", f"anthropic_version: Input should be {' or '.join(VERSIONS)}")
        for name in ("temperature", "top_p", "top_k"):
            if name in body and body["anthropic_version"] != VERSIONS[0]:
                raise Refused(400, "", f"{name}: Extra inputs are not permitted")
        messages = check_body(body, envelope=("anthropic_version", "anthropic_beta"))
        self.signatures.check(messages)
        is_stream = place["method"] == "streamRawPredict"
        if bool(body.get("stream")) != is_stream:
            raise Refused(400, "", "stream: does not agree with the method")
        return Asked(unquote(place["model"]), is_stream, list(turns(messages)), body)

    def stream(self, script: Script, asked: Asked) -> list[bytes]:
        return encode_stream(script, asked.model, self.signatures.of(script, asked.body))

    def whole(self, script: Script, asked: Asked) -> Any:
        return encode_answer(script, asked.model, self.signatures.of(script, asked.body))

    def failure(self, failure: Failure) -> Any:
        return gemini.google_error(failure) if failure.status in (401, 403, 404) else anthropic_error(failure)

    def models(self) -> Any | None:
        return None

    def prompt_blocks(self, body: Mapping[str, Any]) -> list[tuple[str, bool]]:
        return prompt_blocks(body)


class VertexGemini:
    """See ``Dialect``. A model whose name has no number is taken for one of the newest."""

    content_type = "text/event-stream"
    cache: Literal["prefix"] = "prefix"

    def __init__(self) -> None:
        self.account = Account()
        self.signed: dict[bytes, Any] = {}
        """What each signature was given with: a call, or None."""

    def accepts(self, seen: Seen) -> bool:
        return seen.method == "POST" and "/publishers/google/models/" in seen.path

    def ask(self, seen: Seen) -> Asked | Reply:
        place = _place(seen, ("generateContent", "streamGenerateContent"))
        self.account.check(seen, place)
        is_stream = place["method"] == "streamGenerateContent"
        if is_stream and parse_qs(seen.target.partition("?")[2]).get("alt") != ["sse"]:
            raise Refused(400, "", "this server streams server-sent events only")
        if not isinstance(seen.body, dict):
            raise gemini.refused("Invalid JSON payload received. Unexpected end of string.")
        model, body = unquote(place["model"]), gemini.canonical(seen.body)
        gemini.Check(model, self.signed, knows_ids=place["version"] == "v1beta1").body(body)
        return Asked(model, is_stream, list(gemini.turns(body["contents"])), body)

    def stream(self, script: Script, asked: Asked) -> list[bytes]:
        self._sign(script, asked)
        return gemini.encode_stream(script, asked.model)

    def whole(self, script: Script, asked: Asked) -> Any:
        self._sign(script, asked)
        parts = [part for part, _ in gemini.parts_of(script, asked.model)]
        return gemini.response(script, asked.model, parts, finish=True)

    def failure(self, failure: Failure) -> Any:
        return gemini.google_error(failure)

    def models(self) -> Any | None:
        return None

    def prompt_blocks(self, body: Mapping[str, Any]) -> list[tuple[str, bool]]:
        blocks = [*(body.get("tools") or []), body.get("systemInstruction"), *body["contents"]]
        return [(orjson.dumps(block).decode(), False) for block in blocks if block]

    def _sign(self, script: Script, asked: Asked) -> None:
        for part, _ in gemini.parts_of(script, asked.model):
            if "thoughtSignature" in part:
                self.signed[gemini.bytes_of(part["thoughtSignature"])] = part.get("functionCall")


def _place(seen: Seen, methods: Sequence[str]) -> re.Match[str]:
    place = _path.fullmatch(seen.path)
    if place is None or place["method"] not in methods:
        raise Refused(404, "", f"The requested URL {seen.path} was not found on this server.")
    return place
