"""Ollama's API: ``POST /api/chat`` as lines of JSON, ``GET /api/tags`` and ``POST /api/show``.

Refused as by Ollama: a body without model, unknown roles, images that are no base64, a call whose arguments are no
object, words for ``think`` that it does not know. Calls come whole, a line each. Stricter than Ollama, which takes any
order: a result has to follow its call and name its tool, because templates write that name.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import orjson

from tests.support.dialects.openai_completions import check_bearer
from tests.support.script import MODELS, Asked, Failure, Refused, Reply, Script, Seen, Shown, Turn

CREATED_AT = "2023-11-14T22:13:20.000000Z"
THINKING = (True, False, None, "low", "medium", "high", "max")
ROLES = ("system", "user", "assistant", "tool")
SHOWN: Mapping[str, Any] = {
    "capabilities": ["completion", "tools", "vision", "thinking"],
    "details": {"family": "mock", "format": "gguf", "families": ["mock"]},
    "model_info": {"general.architecture": "mock", "mock.context_length": 8192},
    "parameters": "",
    "modified_at": CREATED_AT,
}


class Ollama:
    """See ``Dialect``. ``key``, unless empty, is the bearer token that clients have to send (ollama.com wants one).

    ``shown`` is what ``/api/show`` says of each model; one that is not in it is not there, for ``/api/chat`` neither.
    An empty ``shown`` has every model. ``gives_ids``: whether calls have ids, as they have since late in 2025.
    """

    content_type = "application/x-ndjson"
    cache: Literal["none"] = "none"

    def __init__(self) -> None:
        self.key = ""
        self.shown: dict[str, Mapping[str, Any]] = {}
        self.gives_ids = True

    def accepts(self, seen: Seen) -> bool:
        return (seen.method, seen.path) in (("GET", "/api/tags"), ("POST", "/api/chat"), ("POST", "/api/show"))

    def ask(self, seen: Seen) -> Asked | Reply:
        check_bearer(seen, self.key)
        body = seen.body
        if not isinstance(body, dict) or not isinstance(body.get("model"), str) or not body["model"]:
            raise Refused(400, "", "model is required")
        if self.shown and body["model"] not in self.shown:
            raise Refused(404, "", f"model '{body['model']}' not found")
        if seen.path == "/api/show":
            return Reply(self.shown.get(body["model"], SHOWN))
        if not isinstance(body.get("messages"), list):
            raise Refused(400, "", "invalid messages")
        _check(body)
        return Asked(body["model"], body.get("stream", True), list(_turns(body["messages"])), body)

    def stream(self, script: Script, asked: Asked) -> list[bytes]:
        events: list[bytes] = [_line(asked, {"thinking": text}) for text in script.thinking]
        events += [_line(asked, {"content": text}) for text in script.tokens]
        events += [_line(asked, {"tool_calls": [call]}) for call in self._calls(script)]
        if script.error_in_stream:
            return [*events, orjson.dumps({"error": "scripted failure in the stream"}) + b"\n"]
        return [*events, orjson.dumps({**_head(asked), "message": _message({}), **_end(script)}) + b"\n"]

    def whole(self, script: Script, asked: Asked) -> Any:
        message: dict[str, Any] = {"content": "".join(script.tokens)}
        if script.thinking:
            message["thinking"] = "".join(script.thinking)
        if script.tools:
            message["tool_calls"] = list(self._calls(script))
        return {**_head(asked), "message": _message(message), **_end(script)}

    def failure(self, failure: Failure) -> Any:
        if failure.code != "context_length_exceeded":
            return {"error": failure.message}
        # the runner's own answer, passed on as a text
        said = "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it"
        inner = {"error": {"code": 400, "message": said, "type": "exceed_context_size_error", "n_ctx": 8192}}
        return {"error": orjson.dumps(inner).decode()}

    def models(self) -> Any | None:
        details = {"family": "mock", "format": "gguf", "families": ["mock"], "parameter_size": "1B"}
        names = [f"{name}:latest" for name in MODELS] if not self.shown else list(self.shown)
        models = [
            {"name": name, "model": name, "modified_at": CREATED_AT, "size": 1, "digest": "0" * 64, "details": details}
            for name in names
        ]
        return {"models": models}

    def prompt_blocks(self, body: Mapping[str, Any]) -> list[tuple[str, bool]]:
        return []

    def _calls(self, script: Script) -> Iterator[dict[str, Any]]:
        for index, (name, arguments) in enumerate(script.tools):
            call = {"function": {"index": index, "name": name, "arguments": orjson.loads(arguments or "{}")}}
            yield {"id": script.call_id(index), **call} if self.gives_ids else call


def _head(asked: Asked) -> dict[str, Any]:
    return {"model": asked.model, "created_at": CREATED_AT}


def _message(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": "", **fields}


def _line(asked: Asked, fields: Mapping[str, Any]) -> Shown:
    return Shown(orjson.dumps({**_head(asked), "message": _message(fields), "done": False}) + b"\n")


def _end(script: Script) -> dict[str, Any]:
    end: dict[str, Any] = {"done": True, "done_reason": script.finish or "stop", "total_duration": 1}
    if script.usage:
        end |= {"prompt_eval_count": script.prompt_tokens, "eval_count": script.output_tokens}
    return end


def _check(body: Mapping[str, Any]) -> None:
    if body.get("think") not in THINKING:
        raise Refused(400, "", f'invalid think value: {body["think"]!r} (must be "high", "medium", "low", true, …)')
    if body.get("format") not in (None, "", "json") and not isinstance(body["format"], dict):
        raise Refused(400, "", "invalid format")
    options = body.get("options") or {}
    kinds: dict[str, tuple[type, ...]] = {"num_ctx": (int,), "num_predict": (int,), "seed": (int,), "stop": (list,)}
    for name, value in options.items():
        if name not in (*kinds, "temperature", "top_p") or not isinstance(value, kinds.get(name, (int, float))):
            raise Refused(400, "", f"invalid option: {name}")
    for tool in body.get("tools") or []:
        match tool:
            case {"type": "function", "function": {"name": str(name), "parameters": {"type": "object"}}} if name:
                pass
            case _:
                raise Refused(400, "", "invalid tools")


def _turns(messages: list[Any]) -> Iterator[Turn]:
    waiting: list[tuple[str, str]] = []  # id and tool of the calls without their results
    for message in messages:
        match message:
            case {"role": "system" | "user" | "assistant" | "tool" as role, "content": str(text)}:
                pass
            case _:
                raise Refused(400, "", f"invalid message: {message!r}")
        if role == "tool":
            result = (message.get("tool_call_id"), message.get("tool_name"))
            if result not in waiting:
                raise Refused(400, "", f"a result without its call: {result}")
            waiting.remove(result)
        elif waiting:
            raise Refused(400, "", f"calls without results: {waiting}")
        for image in message.get("images", []):
            _check_image(image)
        if role == "assistant":
            waiting = [_call(call) for call in message.get("tool_calls", [])]
        if role != "system":
            yield Turn(role, text)
    if waiting:
        raise Refused(400, "", f"calls without results: {waiting}")


def _call(call: Any) -> tuple[str, str]:
    match call:
        case {"id": str(identity), "function": {"name": str(name), "arguments": dict()}}:
            return identity, name
    raise Refused(400, "", f"invalid tool call: {call!r}")


def _check_image(image: Any) -> None:
    try:
        base64.b64decode(image, validate=True)
    except (TypeError, ValueError, binascii.Error) as exc:
        raise Refused(400, "", "illegal base64 data") from exc
