"""OpenAI's chat completions: ``POST …/chat/completions`` and ``GET …/models``.

Refused as by OpenAI: a result without its call, a call without its result, unknown roles, tools and choices that are
none. ``think=`` is ``reasoning_content``, which OpenAI itself does not show; others do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

import orjson

from tests.support.script import CREATED, MODELS, Asked, Failure, Refused, Reply, Script, Seen, Shown, Turn, pieces

ROLES: Mapping[str, Literal["user", "assistant", "tool"] | None] = {
    "system": None,
    "developer": None,
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


class OpenAICompletions:
    """See ``Dialect``. ``key``, unless empty, is the bearer token that clients have to send."""

    content_type = "text/event-stream"
    cache: Literal["prefix"] = "prefix"

    def __init__(self) -> None:
        self.key = ""

    def accepts(self, seen: Seen) -> bool:
        if seen.method == "GET":
            return seen.path.endswith("/models")
        return seen.method == "POST" and seen.path.endswith("/chat/completions")

    def ask(self, seen: Seen) -> Asked | Reply:
        check_bearer(seen, self.key)
        body = seen.body
        if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
            raise Refused(400, "invalid_request", "the body has to be JSON with messages")
        _check_tools(body)
        return Asked(body.get("model", MODELS[0]), bool(body.get("stream")), list(_turns(body["messages"])), body)

    def stream(self, script: Script, asked: Asked) -> list[bytes]:
        return encode_stream(script, asked.model, bool((asked.body.get("stream_options") or {}).get("include_usage")))

    def whole(self, script: Script, asked: Asked) -> Any:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(script.tokens) or None, "refusal": None}
        if script.thinking:
            message["reasoning_content"] = "".join(script.thinking)
        if script.tools:
            message["tool_calls"] = [
                {"id": script.call_id(index), "type": "function", "function": {"name": name, "arguments": arguments}}
                for index, (name, arguments) in enumerate(script.tools)
            ]
        choice = {"index": 0, "message": message, "finish_reason": finish_reason(script), "logprobs": None}
        answer = {"id": "chatcmpl-mock", "object": "chat.completion", "created": CREATED, "model": asked.model}
        return {**answer, "choices": [choice], **({"usage": usage_of(script)} if script.usage else {})}

    def failure(self, failure: Failure) -> Any:
        return openai_error(failure)

    def models(self) -> Any | None:
        models = [{"id": name, "object": "model", "created": CREATED, "owned_by": "mock"} for name in MODELS]
        return {"object": "list", "data": models}

    def prompt_blocks(self, body: Mapping[str, Any]) -> list[tuple[str, bool]]:
        blocks = [*(body.get("tools") or []), *body["messages"]]
        return [(orjson.dumps(block).decode(), False) for block in blocks]


def check_bearer(seen: Seen, key: str) -> None:
    """Refuse a request without ``key``."""
    if key and seen.headers.get("authorization") != f"Bearer {key}":
        raise Refused(401, "invalid_api_key", "Incorrect API key provided.")


def openai_error(failure: Failure) -> dict[str, Any]:
    """The error object of all OpenAI APIs."""
    kind = "invalid_request_error" if failure.status < 500 else "server_error"
    return {"error": {"message": failure.message, "type": kind, "param": None, "code": failure.code}}


def _turns(messages: list[Any]) -> Iterator[Turn]:
    """The conversation, checked as OpenAI checks it."""
    if not messages:
        raise Refused(400, "empty_array", "Invalid 'messages': empty array.")
    waiting: list[str] = []  # calls without their results
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise Refused(400, "invalid_value", f"Invalid value: '{where}.role'.")
        role, content = message["role"], message.get("content")
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                said = "messages with role 'tool' must be a response to a preceding message with 'tool_calls'."
                raise Refused(400, "invalid_request_error", f"Invalid parameter: {said} ({where})")
            waiting.remove(message["tool_call_id"])
        elif waiting:
            said = "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
            raise Refused(400, "invalid_request_error", f"{said} 'tool_call_id'. ({where}: {', '.join(waiting)})")
        calls = message.get("tool_calls")
        if calls is not None:
            waiting = _call_ids(calls, where)
        if content is None and not (role == "assistant" and calls):
            raise Refused(400, "invalid_type", f"Invalid value for '{where}.content': expected a string, got null.")
        if (turn := ROLES[role]) is not None:
            yield Turn(turn, _text(content, role, where))
    if waiting:
        said = "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
        raise Refused(400, "invalid_request_error", f"{said} 'tool_call_id'. ({', '.join(waiting)})")


def _call_ids(calls: Any, where: str) -> list[str]:
    ids = []
    for call in calls if isinstance(calls, list) and calls else [None]:
        match call:
            case {"id": str(identity), "type": "function", "function": {"name": str(), "arguments": str()}}:
                if len(identity) > 40:
                    raise Refused(400, "string_above_max_length", f"Invalid '{where}.tool_calls.id': string too long.")
                ids.append(identity)
            case _:
                raise Refused(400, "invalid_type", f"Invalid type for '{where}.tool_calls'.")
    return ids


def _text(content: Any, role: str, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content if isinstance(content, list) and content else [None]:
        match part:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "image_url", "image_url": {"url": str(url)}} if role == "user":
                if not url.startswith(("data:image/", "https://")):
                    raise Refused(400, "invalid_value", f"Invalid '{where}.content.image_url.url'.")
            case {"type": "input_audio" | "file"} if role == "user":
                pass
            case _:
                raise Refused(400, "invalid_value", f"Invalid value: '{where}.content'.")
    return "".join(texts)


def _check_tools(body: Mapping[str, Any]) -> None:
    tools = body.get("tools")
    for tool in tools or [] if tools is None or tools else [None]:  # an empty list is refused too
        match tool:
            case {"type": "function", "function": {"name": str(name)}} if name:
                pass
            case _:
                raise Refused(400, "invalid_value", "Invalid value: 'tools'.")
    for field in ("tool_choice", "parallel_tool_calls"):
        if body.get(field) is not None and not tools:
            raise Refused(400, "invalid_value", f"'{field}' is only allowed when 'tools' are specified.")


def tool_deltas(script: Script) -> Iterator[dict[str, Any]]:
    """Openings of all calls, then their argument fragments in turn."""
    for index, (name, _) in enumerate(script.tools):
        function = {"name": name, "arguments": ""}
        call = {"index": index, "id": script.call_id(index), "type": "function", "function": function}
        yield {"tool_calls": [call]}
    fragments = [pieces(arguments) for _, arguments in script.tools]
    for turn in range(max((len(each) for each in fragments), default=0)):
        for index, each in enumerate(fragments):
            if turn < len(each):
                yield {"tool_calls": [{"index": index, "function": {"arguments": each[turn]}}]}


def usage_of(script: Script) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "prompt_tokens": script.prompt_tokens,
        "completion_tokens": script.output_tokens,
        "total_tokens": script.prompt_tokens + script.output_tokens,
    }
    details = {"cached_tokens": script.cached_tokens, "cache_write_tokens": script.written_tokens}
    if details := {name: count for name, count in details.items() if count is not None}:
        usage["prompt_tokens_details"] = details
    return usage


def finish_reason(script: Script) -> str:
    return script.finish or ("tool_calls" if script.tools else "stop")


@lru_cache(maxsize=256)
def encode_stream(script: Script, model: str, with_usage: bool) -> list[bytes]:
    """The events; cached, because benches ask for the same ones again and again."""
    head = {"id": "chatcmpl-mock", "object": "chat.completion.chunk", "created": CREATED, "model": model}

    def event(delta: Mapping[str, Any], reason: str | None = None) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
        return b"data: " + orjson.dumps({**head, "choices": choices}) + b"\n\n"

    deltas: list[dict[str, Any]] = [{"reasoning_content": text} for text in script.thinking]
    deltas += [{"content": text} for text in script.tokens]
    deltas += tool_deltas(script)
    if deltas:
        deltas[0] = {"role": "assistant", **deltas[0]}
    events: list[bytes] = [Shown(event(delta)) for delta in deltas]
    if script.error_in_stream:
        error = {"error": {"message": "scripted failure in the stream", "type": "server_error", "code": "scripted"}}
        return [*events, b"data: " + orjson.dumps(error) + b"\n\n"]
    events.append(event({}, finish_reason(script)))
    if with_usage and script.usage:
        events.append(b"data: " + orjson.dumps({**head, "choices": [], "usage": usage_of(script)}) + b"\n\n")
    return [*events, b"data: [DONE]\n\n"]
