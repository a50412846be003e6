"""Anthropic's messages: ``POST …/v1/messages`` and ``GET …/v1/models``.

Refused as by Anthropic, in its words where they are known: see ``check_body``. A block of thinking is taken back only
with the signature that this server gave it and behind the messages that it was an answer to, as newer models have it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, Literal

import orjson

from tests.support.script import MODELS, Asked, Failure, Refused, Reply, Script, Seen, Shown, Turn, pieces

VERSIONS = ("2023-06-01", "2026-10-21")
"""The newer one has no sampling options (platform.claude.com/docs/en/api/versioning)."""
OAUTH_KEY = "sk-ant-oat01-"
OAUTH_BETA = "oauth-2025-04-20"
MOST_TOKENS = 128_000
CREATED_AT = "2023-11-14T22:13:20Z"
KINDS: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
FIELDS = (
    *("cache_control", "container", "context_management", "inference_geo", "max_tokens", "messages", "metadata"),
    *("output_config", "service_tier", "stop_sequences", "stream", "system", "temperature", "thinking"),
    *("tool_choice", "tools", "top_k", "top_p"),
)
IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")

_id = re.compile(r"[a-zA-Z0-9_-]+")
_tool_name = re.compile(r"[a-zA-Z0-9_-]{1,128}")


class AnthropicMessages:
    """See ``Dialect``. ``key``, unless empty, is the key or the subscription's token that clients have to send."""

    content_type = "text/event-stream; charset=utf-8"
    cache: Literal["marks"] = "marks"

    def __init__(self) -> None:
        self.key = ""
        self.signatures = Signatures()

    def accepts(self, seen: Seen) -> bool:
        if seen.method == "GET":
            return seen.path.endswith("/v1/models") and "anthropic-version" in seen.headers
        return seen.method == "POST" and seen.path.endswith("/v1/messages")

    def ask(self, seen: Seen) -> Asked | Reply:
        version = seen.headers.get("anthropic-version", "header is required")
        if version not in VERSIONS:
            raise refused(f"anthropic-version: {version}")
        self._check_key(seen.headers)
        body = seen.body
        if not isinstance(body, dict):
            raise refused("The request body is not valid JSON")
        if not isinstance(body.get("model"), str) or not body["model"]:
            raise refused("model: Field required")
        for name in ("temperature", "top_p", "top_k"):
            if name in body and version != VERSIONS[0]:
                raise refused(f"{name}: Extra inputs are not permitted")
        messages = check_body(body, envelope=("model",))
        self.signatures.check(messages)
        return Asked(body["model"], bool(body.get("stream")), list(turns(messages)), body)

    def stream(self, script: Script, asked: Asked) -> list[bytes]:
        return encode_stream(script, asked.model, self.signatures.of(script, asked.body))

    def whole(self, script: Script, asked: Asked) -> Any:
        return encode_answer(script, asked.model, self.signatures.of(script, asked.body))

    def failure(self, failure: Failure) -> Any:
        return anthropic_error(failure)

    def models(self) -> Any | None:
        models = [{"type": "model", "id": name, "display_name": name, "created_at": CREATED_AT} for name in MODELS]
        return {"data": models, "has_more": False, "first_id": MODELS[0], "last_id": MODELS[-1]}

    def prompt_blocks(self, body: Mapping[str, Any]) -> list[tuple[str, bool]]:
        return prompt_blocks(body)

    def _check_key(self, headers: Mapping[str, str]) -> None:
        """A subscription's token comes as a bearer token with a beta header; a key comes either way."""
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        key = headers.get("x-api-key", "") or bearer
        if not key:
            raise Refused(401, "", "x-api-key header is required")
        betas = [beta.strip() for beta in headers.get("anthropic-beta", "").split(",")]
        if key == bearer and key.startswith(OAUTH_KEY) and OAUTH_BETA not in betas:
            raise Refused(401, "", "OAuth authentication is currently not supported.")
        if (self.key and key != self.key) or (key != bearer and key.startswith(OAUTH_KEY)):
            raise Refused(401, "", "invalid x-api-key")


def anthropic_error(failure: Failure) -> dict[str, Any]:
    """The error object, over HTTP and in the stream."""
    message = failure.message
    if failure.code == "context_length_exceeded":
        message = "prompt is too long: 208310 tokens > 200000 maximum"
    kind = KINDS.get(failure.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_mock"}


def refused(message: str) -> Refused:
    return Refused(400, "", message)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


# What is refused


def check_body(body: Mapping[str, Any], *, envelope: Sequence[str]) -> list[dict[str, Any]]:
    """The messages of a body, those of one side in a row joined. ``envelope``: fields that are not of the format.

    Raises:
        Refused: Anthropic would refuse it.
    """
    for name in body:
        if name not in FIELDS and name not in envelope:
            raise refused(f"{name}: Extra inputs are not permitted")
    most = body.get("max_tokens")
    if not isinstance(most, int) or most < 1:
        raise refused("max_tokens: Field required")
    if most > MOST_TOKENS:
        raise refused(f"max_tokens: {most} > {MOST_TOKENS}, which is the maximum allowed number of output tokens")
    system = body.get("system") or []
    for block in [{"type": "text", "text": system}] if isinstance(system, str) else system:
        if not isinstance(block, dict) or block.get("type") != "text" or not _is_text(block.get("text")):
            raise refused("system: text content blocks must be non-empty")
    for text in body.get("stop_sequences") or ():
        if not isinstance(text, str) or not text.strip():
            raise refused("stop_sequences: each stop sequence must contain non-whitespace")
    user = (body.get("metadata") or {}).get("user_id")
    if user is not None and (not isinstance(user, str) or len(user) > 256):
        raise refused("metadata.user_id: String should have at most 256 characters")
    _check_output(body.get("output_config") or {})
    _check_sampling(body)
    tools = _check_tools(body)
    messages = _joined(body.get("messages"))
    _check_messages(messages, tools)
    _check_thinking(body, messages)
    marks = sum(is_marked for _, is_marked in prompt_blocks(body))
    if marks > 4:
        raise refused(f"A maximum of 4 blocks with cache_control may be provided. Found {marks}.")
    return messages


def _check_output(config: Mapping[str, Any]) -> None:
    if config.get("effort") not in (None, "low", "medium", "high", "xhigh", "max"):
        raise refused("output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")
    match config.get("format"):
        case None | {"type": "json_schema", "schema": dict()}:
            pass
        case _:
            raise refused("output_config.format: Field required")


def _check_sampling(body: Mapping[str, Any]) -> None:
    temperature, top_p = body.get("temperature"), body.get("top_p")
    for name, value in (("temperature", temperature), ("top_p", top_p)):
        if value is not None and not 0 <= value <= 1:
            raise refused(f"{name}: range: 0..1")
    if temperature is not None and top_p is not None:
        raise refused("`temperature` and `top_p` cannot both be specified for this model. Please use only one.")


def _check_tools(body: Mapping[str, Any]) -> list[str]:
    names: list[str] = []
    for number, tool in enumerate(body.get("tools") or ()):
        match tool:
            case {"name": str(name), "input_schema": {"type": "object"}} if _tool_name.fullmatch(name):
                names.append(name)
            case _:
                raise refused(f"tools.{number}.custom.input_schema.type: Field required")
    if len(set(names)) < len(names):
        raise refused("tools: Tool names must be unique.")
    match body.get("tool_choice"):
        case None:
            pass
        case _ if not names:
            raise refused("tool_choice may only be specified while providing tools.")
        case {"type": "auto" | "any" | "none"}:
            pass
        case {"type": "tool", "name": name}:
            if name not in names:
                raise refused(f"Tool '{name}' not found in provided tools")
        case _:
            raise refused("tool_choice: Input tag does not match any of the expected tags")
    return names


def _check_thinking(body: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> None:
    match body.get("thinking"):
        case None | {"type": "disabled"}:
            return
        case {"type": "enabled", "budget_tokens": int(budget)}:
            if budget < 1024:
                raise refused("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
            if budget >= body["max_tokens"]:
                raise refused("`max_tokens` must be greater than `thinking.budget_tokens`.")
            _check_turn(messages)
        case {"type": "adaptive"}:
            pass
        case _:
            raise refused("thinking: Input tag does not match any of the expected tags")
    if body["thinking"].get("display") not in (None, "summarized", "omitted"):
        raise refused("thinking.display: Input should be 'summarized' or 'omitted'")
    if (body.get("tool_choice") or {}).get("type") in ("any", "tool"):
        raise refused("Thinking may not be enabled when tool_choice forces tool use.")
    if body.get("temperature", 1) != 1:
        raise refused("`temperature` may only be set to 1 when thinking is enabled.")
    if body.get("top_p", 1) < 0.95:
        raise refused("`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled.")


def _check_turn(messages: Sequence[Mapping[str, Any]]) -> None:
    """With a budget, a turn whose calls have results already has to have begun with thinking."""
    first = 0
    for number in range(len(messages) - 1, 0, -1):
        if messages[number]["role"] == "assistant":
            first = number
        elif not any(block["type"] == "tool_result" for block in messages[number]["content"]):
            break
    found = messages[first]["content"][0]["type"]
    if first and found not in ("thinking", "redacted_thinking"):
        said = "When `thinking` is enabled, a final `assistant` message must start with a thinking block"
        where = f"messages.{first}.content.0.type"
        raise refused(f"{where}: Expected `thinking` or `redacted_thinking`, but found `{found}`. {said}")


def _joined(messages: Any) -> list[dict[str, Any]]:
    if not isinstance(messages, list) or not messages:
        raise refused("messages: at least one message is required")
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
            raise refused(f'messages.{number}.role: Input should be "user" or "assistant"')
        if not message.get("content"):
            raise refused(f"messages.{number}: all messages must have non-empty content")
    if messages[0]["role"] != "user":
        raise refused('messages: first message must use the "user" role')
    return [
        {"role": role, "content": [block for message in group for block in _blocks(message["content"])]}
        for role, group in groupby(messages, key=lambda message: str(message["role"]))
    ]


def _blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _check_messages(messages: Sequence[Mapping[str, Any]], tools: Sequence[str]) -> None:
    used: set[str] = set()
    waiting: list[str] = []  # calls of the message before
    for number, message in enumerate(messages):
        where = f"messages.{number}"
        results = [block.get("tool_use_id") for block in message["content"] if block.get("type") == "tool_result"]
        for place, result in enumerate(results):
            if result not in waiting:
                said = "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
                raise refused(
                    f"{where}.content.{place}: unexpected `tool_use_id` found in `tool_result` blocks: {result}. {said}"
                )
        if len(set(results)) < len(results):
            raise refused(f"{where}: each tool_use must have a single result.")
        are_first = all(block["type"] == "tool_result" for block in message["content"][: len(results)])
        if set(results) != set(waiting) or not are_first:
            said = "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
            missing = ", ".join(waiting)
            raise refused(
                f"messages.{number - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{missing}. {said}"
            )
        for place, block in enumerate(message["content"]):
            _check_block(block, message["role"], f"{where}.content.{place}")
        waiting = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        if used & set(waiting) or len(set(waiting)) < len(waiting):
            raise refused("messages: `tool_use` ids must be unique")
        used.update(waiting)
    if used and not tools:
        raise refused("Requests which include `tool_use` or `tool_result` blocks must define tools")
    if waiting:
        raise refused(f"messages.{len(messages) - 1}: `tool_use` ids were found without `tool_result` blocks")
    last = messages[-1]["content"][-1]
    if messages[-1]["role"] == "assistant" and last["type"] == "text" and last["text"] != last["text"].rstrip():
        raise refused("messages: final assistant content cannot end with trailing whitespace")
    for number, message in enumerate(messages):
        if message["content"][-1]["type"] in ("thinking", "redacted_thinking"):
            raise refused(f"messages.{number}: The final block in an assistant message cannot be `thinking`.")


def _check_block(block: Any, role: str, where: str) -> None:
    match block:
        case {"type": "text", "text": str(text)}:
            if not text.strip():
                raise refused("messages: text content blocks must contain non-whitespace text")
        case {"type": "image", "source": {"type": "base64", "media_type": kind, "data": str(data)}} if role == "user":
            if kind not in IMAGES:
                raise refused(f"{where}.image.source.base64.media_type: Input should be one of {', '.join(IMAGES)}")
            try:
                base64.b64decode(data, validate=True)
            except binascii.Error as exc:
                raise refused(f"{where}.image.source.base64: invalid base64 data") from exc
        case {"type": "tool_use", "id": str(identity), "name": str(name), "input": dict()} if role == "assistant":
            if not _id.fullmatch(identity) or not _tool_name.fullmatch(name):
                raise refused(f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
        case {"type": "tool_result"} if role == "user":
            content = _blocks(block.get("content") or [])
            for place, each in enumerate(content):
                if not isinstance(each, dict) or each.get("type") not in ("text", "image"):
                    raise refused(f"{where}.tool_result.content.{place}: Input tag does not match")
                _check_block(each, role, f"{where}.tool_result.content.{place}")
            if block.get("is_error") and not content:
                raise refused(f"{where}: content cannot be empty if `is_error` is true")
        case {"type": "thinking", "thinking": str(), "signature": str(signature)} if role == "assistant" and signature:
            if "cache_control" in block:
                raise refused(f"{where}.thinking.cache_control: Extra inputs are not permitted")
        case {"type": "redacted_thinking", "data": str(data)} if role == "assistant" and data:
            if "cache_control" in block:
                raise refused(f"{where}.redacted_thinking.cache_control: Extra inputs are not permitted")
        case _:
            raise refused(f"{where}: Input does not match any of the expected blocks of {role}")


class Signatures:
    """What this server signed: the thinking, and the messages that it belongs behind."""

    def __init__(self) -> None:
        self._given: dict[str, set[tuple[str, str]]] = defaultdict(set)

    def of(self, script: Script, body: Mapping[str, Any]) -> str:
        """The signature of what ``script`` thinks about ``body``; that of the script if it has one."""
        before = _digest(_joined(body["messages"]))
        thinking = "".join(script.thinking)
        signature = script.signature or f"sig+{_digest([before, thinking])[:40]}=="
        if thinking or script.signature:
            self._given[signature].add((thinking, before))
        if script.redacted:
            self._given[script.redacted].add(("", before))
        return signature

    def check(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Refuse thinking that was not signed here, was changed, or stands in another conversation."""
        for number, message in enumerate(messages):
            for place, block in enumerate(message["content"]):
                if block["type"] not in ("thinking", "redacted_thinking"):
                    continue
                where = f"messages.{number}.content.{place}: Invalid `signature` in `thinking` block"
                given = self._given.get(block.get("signature") or block.get("data"), set())
                if block.get("thinking", "") not in [thinking for thinking, _ in given]:
                    raise refused(where)
                if (block.get("thinking", ""), _digest(messages[:number])) not in given:
                    raise refused(f"{where}. The block is bound to a different conversation.")


def _digest(value: Any) -> str:
    return hashlib.sha256(orjson.dumps(_unmarked(value))).hexdigest()


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unmarked(inner) for name, inner in value.items() if name != "cache_control"}
    return [_unmarked(inner) for inner in value] if isinstance(value, list | tuple) else value


# What is understood


def turns(messages: Sequence[Mapping[str, Any]]) -> Iterator[Turn]:
    for message in messages:
        for block in message["content"]:
            if block["type"] == "tool_result":
                yield Turn("tool", _texts(_blocks(block.get("content") or [])))
        if message["role"] == "assistant" or any(block["type"] != "tool_result" for block in message["content"]):
            yield Turn(message["role"], _texts(message["content"]))


def _texts(blocks: Sequence[Mapping[str, Any]]) -> str:
    return "".join(block["text"] for block in blocks if block["type"] == "text")


def prompt_blocks(body: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """See ``Dialect``. What changes with the choice of tools and with thinking are the messages, not the system."""
    settings = orjson.dumps([body.get("tool_choice"), body.get("thinking")]).decode()
    blocks = [("", tool) for tool in body.get("tools") or ()]
    blocks += [("", block) for block in _blocks(body.get("system") or [])]
    for message in body["messages"]:
        for place, block in enumerate(_blocks(message["content"])):
            blocks.append((f"{settings}{message['role']}:" if place == 0 else "", block))
            settings = ""
    return [(before + orjson.dumps(_unmarked(block)).decode(), "cache_control" in block) for before, block in blocks]


# What is said


def usage_of(script: Script) -> dict[str, int]:
    read, written = script.cached_tokens or 0, script.written_tokens or 0
    return {
        "input_tokens": script.prompt_tokens - read - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": script.output_tokens,
    }


def stop_of(script: Script) -> dict[str, Any]:
    reason = script.finish or ("tool_use" if script.tools else "end_turn")
    details = {"type": "refusal", "category": None, "explanation": "scripted refusal"} if reason == "refusal" else None
    return {"stop_reason": reason, "stop_sequence": None, "stop_details": details}


def _message(script: Script, model: str, **fields: Any) -> dict[str, Any]:
    usage = {"usage": usage_of(script)} if script.usage else {}
    message = {"id": "msg_mock", "type": "message", "role": "assistant", "model": model, "content": []}
    return {**message, "stop_reason": None, "stop_sequence": None, **usage, **fields}


def _content(script: Script, signature: str) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each block as it begins, and its deltas."""
    if script.thinking or script.signature:
        deltas: list[dict[str, Any]] = [{"type": "thinking_delta", "thinking": text} for text in script.thinking]
        deltas.append({"type": "signature_delta", "signature": signature})
        yield {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if script.redacted:
        yield {"type": "redacted_thinking", "data": script.redacted}, []
    if script.tokens:
        yield {"type": "text", "text": ""}, [{"type": "text_delta", "text": text} for text in script.tokens]
    for index, (name, arguments) in enumerate(script.tools):
        call = {"type": "tool_use", "id": script.call_id(index), "name": name, "input": {}}
        yield call, [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces(arguments))]


@lru_cache(maxsize=256)
def encode_stream(script: Script, model: str, signature: str) -> list[bytes]:
    """The events; cached, because benches ask for the same ones again and again."""
    events = [_event("message_start", message=_message(script, model))]
    for index, (block, deltas) in enumerate(_content(script, signature)):
        events.append(_event("content_block_start", index=index, content_block=block))
        if index == 0:
            events.append(_event("ping"))
        events += [_delta(index, delta) for delta in deltas]
        events.append(_event("content_block_stop", index=index))
    if script.error_in_stream:
        failure = Failure(529, "", "scripted failure in the stream")
        return [*events, _event("error", **anthropic_error(failure))]
    usage = {"usage": usage_of(script)} if script.usage else {}
    return [*events, _event("message_delta", delta=stop_of(script), **usage), _event("message_stop")]


def _delta(index: int, delta: Mapping[str, Any]) -> bytes:
    event = _event("content_block_delta", index=index, delta=delta)
    return event if delta["type"] == "signature_delta" or delta.get("partial_json") == "" else Shown(event)


def _event(name: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps({"type": name, **fields}))


def encode_answer(script: Script, model: str, signature: str) -> dict[str, Any]:
    """The answer that is not streamed."""
    content = []
    for block, deltas in _content(script, signature):
        pieces_of = {
            name: "".join(delta.get(name, "") for delta in deltas) for name in ("thinking", "signature", "text")
        }
        block |= {name: text for name, text in pieces_of.items() if name in block}
        if block["type"] == "tool_use":
            block["input"] = orjson.loads("".join(delta["partial_json"] for delta in deltas) or "{}")
        content.append(block)
    return _message(script, model, content=content, **stop_of(script))
