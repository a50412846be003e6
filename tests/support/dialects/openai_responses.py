"""OpenAI's Responses API: ``POST …/responses``.

Refused as by OpenAI: results without their calls and calls without their results, reasoning that leads to nothing or
was sealed by somebody else, parts of the wrong side, unknown parameters. ``think=`` is the summary of a reasoning item,
``sign=`` its encrypted content (``redact=`` that of an item without summary), told where the request includes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

import orjson

from tests.support.dialects.openai_completions import check_bearer, openai_error
from tests.support.script import CREATED, Asked, Failure, Refused, Reply, Script, Seen, Shown, Turn, pieces

PARAMETERS = (
    *("background", "context_management", "conversation", "include", "input", "instructions", "max_output_tokens"),
    *("max_tool_calls", "metadata", "model", "parallel_tool_calls", "previous_response_id", "prompt"),
    *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning", "safety_identifier"),
    *("service_tier", "store", "stream", "stream_options", "temperature", "text", "tool_choice", "tools"),
    *("top_logprobs", "top_p", "truncation", "user"),
)
EFFORTS = (None, "none", "minimal", "low", "medium", "high", "xhigh", "max")
LEAST_OUTPUT_TOKENS = 16


class OpenAIResponses:
    """See ``Dialect``. ``key``, unless empty, is the bearer token that clients have to send."""

    content_type = "text/event-stream"
    cache: Literal["prefix"] = "prefix"

    def __init__(self) -> None:
        self.key = ""
        self._sealed: set[str] = set()

    def accepts(self, seen: Seen) -> bool:
        return seen.method == "POST" and seen.path.endswith("/responses")

    def ask(self, seen: Seen) -> Asked | Reply:
        check_bearer(seen, self.key)
        body = seen.body
        if not isinstance(body, dict):
            raise Refused(400, "invalid_request_error", "We could not parse the JSON body of your request.")
        _check(body)
        items = body["input"]
        if isinstance(items, str):
            items = [{"role": "user", "content": items}]
        return Asked(body["model"], bool(body.get("stream")), list(self._turns(items)), body)

    def stream(self, script: Script, asked: Asked) -> list[bytes]:
        self._seal(script)
        return encode_stream(script, asked.model, _is_sealed(asked))

    def whole(self, script: Script, asked: Asked) -> Any:
        self._seal(script)
        return response(script, asked.model, items_of(script, sealed=_is_sealed(asked)))

    def failure(self, failure: Failure) -> Any:
        return openai_error(failure)

    def models(self) -> Any | None:
        return None

    def prompt_blocks(self, body: Mapping[str, Any]) -> list[tuple[str, bool]]:
        items = body["input"] if isinstance(body["input"], list) else [body["input"]]
        blocks = [*(body.get("tools") or []), body.get("instructions") or "", *items]
        return [(orjson.dumps(block).decode(), False) for block in blocks]

    def _seal(self, script: Script) -> None:
        self._sealed.update(filter(None, (_seal_of(script), script.redacted)))

    def _turns(self, items: list[Any]) -> Iterator[Turn]:
        waiting: list[str] = []  # calls without their results
        reasoning = ""
        for number, item in enumerate(items):
            where = f"input[{number}]"
            match item:
                case {"role": "user" | "system" | "developer" as role, "content": content}:
                    turn = Turn("user", _text(content, where, ("input_text", "input_image", "input_file")))
                    if role == "user":
                        yield turn
                case {"role": "assistant", "content": content}:
                    yield Turn("assistant", _text(content, where, ("output_text", "refusal")))
                case {"type": "function_call", "call_id": str(call), "name": str(), "arguments": str()} if call:
                    waiting.append(call)
                    yield Turn("assistant", "")
                case {"type": "function_call_output", "call_id": call, "output": output}:
                    if call not in waiting:
                        said = f"No tool call found for function call output with call_id {call}."
                        raise Refused(400, "invalid_request_error", said)
                    waiting.remove(call)
                    yield Turn("tool", _text(output, where, ("input_text", "input_image", "input_file")))
                case {"type": "reasoning", "id": str(identity), "summary": list()}:
                    if item.get("encrypted_content") not in self._sealed:
                        said = f"The encrypted content of item {identity} could not be verified."
                        raise Refused(400, "invalid_encrypted_content", said)
                case _:
                    raise Refused(400, "invalid_value", f"Invalid value: '{where}'.")
            is_result = item.get("type") == "function_call_output"
            if reasoning and (is_result or item.get("role") == "user"):
                said = f"Item '{reasoning}' of type 'reasoning' was provided without its required following item."
                raise Refused(400, "invalid_request_error", said)
            reasoning = item["id"] if item.get("type") == "reasoning" else ""
        if waiting:
            raise Refused(400, "invalid_request_error", f"No tool output found for function call {waiting[0]}.")
        if reasoning:
            said = f"Item '{reasoning}' of type 'reasoning' was provided without its required following item."
            raise Refused(400, "invalid_request_error", said)


def _check(body: Mapping[str, Any]) -> None:
    """The parameters but for the input's items."""
    if unknown := sorted(set(body) - set(PARAMETERS)):
        raise Refused(400, "unknown_parameter", f"Unknown parameter: '{unknown[0]}'.")
    if not isinstance(body.get("model"), str):
        raise Refused(400, "missing_required_parameter", "Missing required parameter: 'model'.")
    if not isinstance(body.get("input"), list | str) or not body["input"]:
        raise Refused(400, "missing_required_parameter", "Missing required parameter: 'input'.")
    if (most := body.get("max_output_tokens")) is not None and most < LEAST_OUTPUT_TOKENS:
        said = f"Invalid 'max_output_tokens': expected a value >= {LEAST_OUTPUT_TOKENS}, but got {most} instead."
        raise Refused(400, "integer_below_min_value", said)
    if (body.get("reasoning") or {}).get("effort") not in EFFORTS:
        raise Refused(400, "invalid_value", "Invalid value: 'reasoning.effort'.")
    names = [_tool_name(tool, number) for number, tool in enumerate(body.get("tools") or [])]
    match body.get("tool_choice"):
        case None | "auto" | "none":
            pass
        case "required" if names:
            pass
        case {"type": "function", "name": str(name)} if name in names:
            pass
        case _:
            raise Refused(400, "invalid_value", "Tool choice not found in 'tools' parameter.")
    match (body.get("text") or {}).get("format"):
        case None | {"type": "text" | "json_object"} | {"type": "json_schema", "name": str(), "schema": dict()}:
            pass
        case _:
            raise Refused(400, "invalid_value", "Invalid value: 'text.format'.")


def _tool_name(tool: Any, number: int) -> str:
    match tool:
        case {"type": "function", "name": str(name), "parameters": dict()} if name:
            return name
    raise Refused(400, "missing_required_parameter", f"Missing required parameter: 'tools[{number}].name'.")


def _text(content: Any, where: str, kinds: tuple[str, ...]) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for part in content if isinstance(content, list) else [None]:
        if not isinstance(part, dict) or part.get("type") not in kinds:
            raise Refused(400, "invalid_value", f"Invalid value: '{where}.content'. Supported are: {', '.join(kinds)}.")
        if part["type"] == "input_image" and not str(part.get("image_url")).startswith(("data:image/", "https://")):
            raise Refused(400, "invalid_image_url", f"Invalid '{where}.content.image_url'.")
        texts.append(part.get("text", ""))
    return "".join(texts)


def _is_sealed(asked: Asked) -> bool:
    return "reasoning.encrypted_content" in (asked.body.get("include") or ())


def _seal_of(script: Script) -> str:
    """The encrypted content of the item that is summarised."""
    return script.signature or ("sealed" if script.thinking else "")


# Items, whole and in events


def items_of(script: Script, *, sealed: bool) -> list[dict[str, Any]]:
    """The output, complete."""
    items: list[dict[str, Any]] = []
    if script.thinking or script.signature:
        text = "".join(script.thinking)
        summary = [{"type": "summary_text", "text": text}] if text else []
        items.append({"type": "reasoning", "id": "rs_0", "summary": summary, "encrypted_content": _seal_of(script)})
    if script.redacted:
        items.append({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": script.redacted})
    if not sealed:
        for item in items:
            del item["encrypted_content"]
    if script.tokens:
        content = [_output_text("".join(script.tokens))]
        items.append({"type": "message", "id": "msg_0", "role": "assistant", "status": "completed", "content": content})
    for index, (name, arguments) in enumerate(script.tools):
        call = {"id": f"fc_{index}", "call_id": script.call_id(index), "name": name, "arguments": arguments}
        items.append({"type": "function_call", **call, "status": "completed"})
    return items


def _output_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def response(script: Script, model: str, output: list[dict[str, Any]], status: str = "") -> dict[str, Any]:
    """The response object; at its end, unless another ``status`` is given."""
    ended = {"": "completed", "length": "incomplete", "content_filter": "incomplete"}
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
    is_over = not status
    return {
        "id": "resp_mock",
        "object": "response",
        "created_at": CREATED,
        "status": status or ended.get(script.finish, "completed"),
        "error": None,
        "incomplete_details": {"reason": reasons[script.finish]} if is_over and script.finish in reasons else None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage_of(script) if is_over and script.usage else None,
    }


def usage_of(script: Script) -> dict[str, Any]:
    return {
        "input_tokens": script.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": script.cached_tokens or 0,
            "cache_write_tokens": script.written_tokens or 0,
        },
        "output_tokens": script.output_tokens,
        "output_tokens_details": {"reasoning_tokens": len(script.thinking)},
        "total_tokens": script.prompt_tokens + script.output_tokens,
    }


class _Event(NamedTuple):
    """An event without its number. ``kind`` is the end of its type, ``shown`` whether it shows something."""

    kind: str
    fields: Mapping[str, Any]
    shown: bool = False


@lru_cache(maxsize=256)
def encode_stream(script: Script, model: str, sealed: bool) -> list[bytes]:
    """The events; cached, because benches ask for the same ones again and again."""
    encoded: list[bytes] = []
    for number, event in enumerate(_events(script, model, items_of(script, sealed=sealed))):
        kind = f"response.{event.kind}"
        data = orjson.dumps({"type": kind, "sequence_number": number, **event.fields})
        whole = b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
        encoded.append(Shown(whole) if event.shown else whole)
    return encoded


def _events(script: Script, model: str, items: list[dict[str, Any]]) -> Iterator[_Event]:
    begun = response(script, model, [], "in_progress")
    yield _Event("created", {"response": begun})
    yield _Event("in_progress", {"response": begun})
    calls: list[tuple[int, dict[str, Any]]] = []
    for index, item in enumerate(items):
        match item["type"]:
            case "reasoning":
                yield from _reasoning_events(script, index, item)
            case "message":
                yield from _message_events(script, index, item)
            case _:
                calls.append((index, item))
    yield from _call_events(script, calls)
    if script.error_in_stream:
        failed = response(script, model, [], "failed")
        failed["error"] = {"code": "server_error", "message": "scripted failure in the stream"}
        yield _Event("failed", {"response": failed})
    else:
        end = response(script, model, items)
        yield _Event(end["status"], {"response": end})


def _reasoning_events(script: Script, index: int, item: dict[str, Any]) -> Iterator[_Event]:
    opening = {"type": "reasoning", "id": item["id"], "summary": []}
    yield _Event("output_item.added", {"output_index": index, "item": opening})
    for number, part in enumerate(item["summary"]):
        place = {"item_id": item["id"], "output_index": index, "summary_index": number}
        yield _Event("reasoning_summary_part.added", {**place, "part": {"type": "summary_text", "text": ""}})
        for text in script.thinking:
            yield _Event("reasoning_summary_text.delta", {**place, "delta": text}, shown=True)
        yield _Event("reasoning_summary_text.done", {**place, "text": part["text"]})
        yield _Event("reasoning_summary_part.done", {**place, "part": part})
    yield _Event("output_item.done", {"output_index": index, "item": item}, shown=not item["summary"])


def _message_events(script: Script, index: int, item: dict[str, Any]) -> Iterator[_Event]:
    opening = {**item, "status": "in_progress", "content": []}
    yield _Event("output_item.added", {"output_index": index, "item": opening})
    place = {"item_id": item["id"], "output_index": index, "content_index": 0}
    yield _Event("content_part.added", {**place, "part": _output_text("")})
    for text in script.tokens:
        yield _Event("output_text.delta", {**place, "delta": text, "logprobs": []}, shown=True)
    if not script.error_in_stream:
        yield _Event("output_text.done", {**place, "text": "".join(script.tokens), "logprobs": []})
        yield _Event("content_part.done", {**place, "part": item["content"][0]})
        yield _Event("output_item.done", {"output_index": index, "item": item})


def _call_events(script: Script, calls: list[tuple[int, dict[str, Any]]]) -> Iterator[_Event]:
    """Parallel calls, their arguments interleaved."""
    for index, item in calls:
        opening = {**item, "arguments": "", "status": "in_progress"}
        yield _Event("output_item.added", {"output_index": index, "item": opening}, shown=True)
    for fragments in zip_longest(*(pieces(arguments) for _, arguments in script.tools)):
        for (index, item), fragment in zip(calls, fragments, strict=True):
            if fragment is not None:
                delta = {"item_id": item["id"], "output_index": index, "delta": fragment}
                yield _Event("function_call_arguments.delta", delta, shown=True)
    for index, item in calls:
        place = {"item_id": item["id"], "output_index": index}
        ended = {**place, "arguments": item["arguments"], "name": item["name"]}
        yield _Event("function_call_arguments.done", ended)
        yield _Event("output_item.done", {"output_index": index, "item": item})
