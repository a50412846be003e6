"""Amazon Bedrock: ``POST …/model/{id}/converse-stream`` and ``…/converse``.

Who asks is proved by a bearer token or by a signature, which is computed here from the specification alone, without
botocore (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html).

Bodies are checked against the shapes of the service that botocore has as data: unknown fields, missing ones, patterns,
lengths, words. What Bedrock and its models refuse beyond that is below ``check_body``, in their words where they are
known.
"""

from __future__ import annotations

import gzip
import hashlib
import hmac
import re
import struct
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote
from zlib import crc32

import orjson

from tests.support.script import Asked, Failure, Refused, Reply, Script, Seen, Shown, Turn, pieces

CLOCK_SKEW = timedelta(minutes=5)
KINDS: Mapping[int, str] = {
    400: "ValidationException",
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
}
SHAPES: Mapping[str, tuple[type, ...]] = {
    "structure": (dict,),
    "map": (dict,),
    "list": (list,),
    "string": (str,),
    "blob": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "float": (int, float),
}
CODE = re.compile(r"[A-Z]\w+Exception")
OVERFLOW = "Input is too long for requested model."
PADDING = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
"""Bedrock adds some of it to every event, so that nobody can tell texts by their lengths."""

SIGNATURE = "c2lnbmVk"
"""Of thinking, where a script gives none and the model is one that signs."""

_path = re.compile(r".*/model/(?P<model>[^/]+)/(?P<operation>converse|converse-stream)")
_authorization = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/,]+)/(?P<day>\d{8})/(?P<region>[^/,]+)/(?P<service>[^/,]+)/aws4_request, ?"
    r"SignedHeaders=(?P<names>[^,]+), ?Signature=(?P<signature>[0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True)
class AwsKey:
    """An access key's secret, and the session token that belongs to it, if it is a temporary one."""

    secret: str
    token: str = ""
    expired: bool = False


class Bedrock:
    """See ``Dialect``. ``key``, unless empty, is the only bearer token that is taken; ``keys`` are those by their ids.

    ``region`` is where this server stands, ``now`` its clock. ``profiles`` are inference profiles of the account's own:
    which models their ids stand for.
    """

    content_type = "application/vnd.amazon.eventstream"
    cache: Literal["marks"] = "marks"

    def __init__(self) -> None:
        self.key = ""
        self.keys: dict[str, AwsKey] = {}
        self.region = "us-east-1"
        self.profiles: dict[str, str] = {}
        self.now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def accepts(self, seen: Seen) -> bool:
        return seen.method == "POST" and _path.fullmatch(seen.path) is not None

    def ask(self, seen: Seen) -> Asked | Reply:
        self._check_caller(seen)
        match = _path.fullmatch(seen.path)
        assert match is not None
        model = unquote(match["model"])
        if not isinstance(seen.body, dict):
            raise refused("The request body is not valid JSON", "SerializationException")
        check_body(seen.body, self.profiles.get(model, model))
        turns = list(_turns(seen.body["messages"]))
        return Asked(model, match["operation"] == "converse-stream", turns, seen.body)

    def stream(self, script: Script, asked: Asked) -> list[bytes]:
        return encode_stream(script, self._signs(asked.model))

    def whole(self, script: Script, asked: Asked) -> Any:
        content: list[dict[str, Any]] = []
        if script.redacted:
            content.append({"reasoningContent": {"redactedContent": script.redacted}})
        if script.thinking:
            text = {"text": "".join(script.thinking), **_signature(script, self._signs(asked.model))}
            content.append({"reasoningContent": {"reasoningText": text}})
        if script.tokens:
            content.append({"text": "".join(script.tokens)})
        for index, (name, arguments) in enumerate(script.tools):
            call = {"toolUseId": script.call_id(index), "name": name, "input": orjson.loads(arguments)}
            content.append({"toolUse": call})
        return {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": stop_reason(script),
            **usage_of(script),
            "metrics": {"latencyMs": 1},
        }

    def failure(self, failure: Failure) -> Any:
        message = OVERFLOW if failure.code == "context_length_exceeded" else failure.message
        kind = failure.code if CODE.fullmatch(failure.code) else KINDS.get(failure.status, "InternalServerException")
        where = "http://internal.amazon.com/coral/com.amazon.bedrock/"
        return Reply({"message": message}, headers={"x-amzn-ErrorType": f"{kind}:{where}"})

    def models(self) -> Any | None:
        return None

    def prompt_blocks(self, body: Mapping[str, Any]) -> list[tuple[str, bool]]:
        blocks = [("tool", tool) for tool in body.get("toolConfig", {}).get("tools", [])]
        blocks += [("system", block) for block in body.get("system", [])]
        blocks += [(each["role"], block) for each in body["messages"] for block in each["content"]]
        prompt: list[tuple[str, bool]] = []
        for place, block in blocks:
            if "cachePoint" in block:
                prompt[-1] = (prompt[-1][0], True)
            else:
                prompt.append((place + orjson.dumps(block).decode(), False))
        return prompt

    def _signs(self, model: str) -> bool:
        return is_claude(self.profiles.get(model, model))

    # Who asks

    def _check_caller(self, seen: Seen) -> None:
        said = seen.headers.get("authorization", "")
        if said.startswith("Bearer "):
            if self.key and said != f"Bearer {self.key}":
                raise Refused(403, "AccessDeniedException", "Authentication failed: API Key is not valid.")
        elif not said:
            raise Refused(403, "MissingAuthenticationTokenException", "Missing Authentication Token")
        elif (match := _authorization.fullmatch(said)) is None:
            raise Refused(403, "IncompleteSignatureException", "Authorization header requires 'Credential' parameter.")
        else:
            self._check_signature(seen, match)

    def _check_signature(self, seen: Seen, claimed: re.Match[str]) -> None:
        if claimed["service"] != "bedrock":
            raise _bad_signature("Credential should be scoped to correct service: 'bedrock'. ")
        if claimed["region"] != self.region:
            raise _bad_signature(f"Credential should be scoped to a valid region, not '{claimed['region']}'. ")
        names = claimed["names"].split(";")
        must = {"host", "x-amz-date"} | {name for name in seen.headers if name.startswith("x-amz-")}
        if not must <= set(names):
            raise _bad_signature(f"These headers have to be signed: {', '.join(sorted(must - set(names)))}")
        key = self.keys.get(claimed["key"])
        if key is None or seen.headers.get("x-amz-security-token", "") != key.token:
            invalid = "The security token included in the request is invalid."
            raise Refused(403, "UnrecognizedClientException", invalid)
        canonical = canonical_request(seen, names)
        scope = "/".join([claimed["day"], claimed["region"], claimed["service"], "aws4_request"])
        time = seen.headers["x-amz-date"]
        text = "\n".join(["AWS4-HMAC-SHA256", time, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        if not hmac.compare_digest(signature(key.secret, scope, text), claimed["signature"]):
            raise _bad_signature(
                "The request signature we calculated does not match the signature you provided. Check your AWS Secret "
                "Access Key and signing method.\n\nThe Canonical String for this request should have been\n"
                f"'{canonical}'\n\nThe String-to-Sign should have been\n'{text}'\n"
            )
        self._check_time(time, claimed["day"])
        if key.expired:
            raise Refused(403, "ExpiredTokenException", "The security token included in the request is expired")

    def _check_time(self, said: str, day: str) -> None:
        time, now = datetime.strptime(said, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC), self.now()
        if day != said[:8]:
            raise _bad_signature("Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date")
        if abs(time - now) > CLOCK_SKEW:
            what = "Signature expired" if time < now else "Signature not yet current"
            than = "earlier" if time < now else "later"
            raise _bad_signature(f"{what}: {said} is now {than} than {now:%Y%m%dT%H%M%SZ} (by more than 5 min.)")


def canonical_request(seen: Seen, names: Sequence[str]) -> str:
    """The request as it is signed, with the headers of these names; its path, encoded as sent, is encoded once more."""
    query = seen.target.partition("?")[2]
    parts = sorted(part if "=" in part else f"{part}=" for part in query.split("&") if part)
    values = [f"{name}:{' '.join(seen.headers.get(name, '').split())}" for name in names]
    body = hashlib.sha256(seen.raw).hexdigest()
    path = quote(normalized(seen.path), safe="/-_.~")
    return "\n".join([seen.method, path, "&".join(parts), *values, "", ";".join(names), body])


def normalized(path: str) -> str:
    """``path`` without empty and dotted parts (RFC 3986 6)."""
    kept: list[str] = []
    for part in path.split("/"):
        if part == "..":
            kept = kept[:-1]
        elif part not in ("", "."):
            kept.append(part)
    return "/" + "/".join(kept) + ("/" if kept and path.endswith("/") else "")


def signature(secret: str, scope: str, text: str) -> str:
    """The chain of keys: day, region, service, request."""
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _bad_signature(message: str) -> Refused:
    return Refused(403, "InvalidSignatureException", message)


def refused(message: str, code: str = "ValidationException") -> Refused:
    return Refused(400, code, message)


# What is refused


def is_claude(model: str) -> bool:
    return "anthropic.claude-" in model


def is_nova(model: str) -> bool:
    return "amazon.nova-" in model


def takes_cache_points(model: str) -> bool:
    if is_claude(model):
        return not re.search(r"claude-(v2|instant|3-(haiku|sonnet|opus)|3-5-sonnet)", model)
    return is_nova(model) and "nova-2" not in model


def check_body(body: Mapping[str, Any], model: str) -> None:
    """Refuse what Bedrock refuses."""
    check_shape(service_shapes(), "Body", body, "body")
    messages = body["messages"]
    if not messages or messages[0]["role"] != "user":
        raise refused("A conversation must start with a user message. Try again with one that does.")
    for number, message in enumerate(messages):
        if number and message["role"] == messages[number - 1]["role"]:
            raise refused("A conversation must alternate between user and assistant roles.")
        _check_content(message, f"messages.{number}.content")
    _check_calls(messages)
    _check_tools(body)
    _check_points(body, model)
    _check_reasoning(messages, model)
    _check_fields(body, model)
    if is_claude(model):
        _check_claude(body)


def _check_content(message: Mapping[str, Any], where: str) -> None:
    if not message["content"]:
        raise refused(f"The content field in the Message object at {where} is empty.")
    for number, block in enumerate(message["content"]):
        if "text" in block and not block["text"].strip():
            raise refused(f"The text field in the ContentBlock object at {where}.{number} is blank.")
        if ("image" in block or "toolResult" in block) and message["role"] != "user":
            raise refused(f"{where}.{number}: only a user's message may have it")
        if ("toolUse" in block or "reasoningContent" in block) and message["role"] != "assistant":
            raise refused(f"{where}.{number}: only the assistant's message may have it")
        for shown in [block, *block.get("toolResult", {}).get("content", [])]:
            if "image" in shown:
                _check_base64(shown["image"]["source"]["bytes"])
        if "toolResult" in block and not block["toolResult"]["content"]:
            raise refused(f"The content field at {where}.{number}.toolResult is empty.")


def _check_base64(data: str) -> None:
    try:
        decoded = b64decode(data, validate=True)
    except (Base64Error, ValueError) as exc:
        raise refused("Base64 decoding failed", "SerializationException") from exc
    if not decoded:
        raise refused("Could not process image")


def _check_calls(messages: Sequence[Mapping[str, Any]]) -> None:
    waiting: list[str] = []
    used: set[str] = set()
    for number, message in enumerate(messages):
        results = [block["toolResult"]["toolUseId"] for block in message["content"] if "toolResult" in block]
        if message["role"] == "user":
            if missing := [identity for identity in waiting if identity not in results]:
                raise refused(f"Expected toolResult blocks at messages.{number}.content for {', '.join(missing)}")
            if len(results) > len(waiting):
                more = "exceeds the number of toolUse blocks of previous turn"
                raise refused(f"The number of toolResult blocks at messages.{number}.content {more}.")
        waiting = [block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block]
        if used & set(waiting) or len(set(waiting)) != len(waiting):
            raise refused(f"messages.{number}.content: `tool_use` ids must be unique")
        used |= set(waiting)
    if waiting:
        raise refused(f"Expected toolResult blocks at messages.{len(messages)}.content for {', '.join(waiting)}")


def _check_tools(body: Mapping[str, Any]) -> None:
    blocks = [block for message in body["messages"] for block in message["content"]]
    config = body.get("toolConfig")
    if config is None:
        if any("toolUse" in block or "toolResult" in block for block in blocks):
            raise refused("The toolConfig field must be defined when using toolUse and toolResult content blocks.")
        return
    tools = [tool["toolSpec"] for tool in config["tools"] if "toolSpec" in tool]
    names = [tool["name"] for tool in tools]
    if len(set(names)) != len(names):
        raise refused("The tools have names that are not unique.")
    for number, tool in enumerate(tools):
        if tool["inputSchema"]["json"].get("type") != "object":
            where = f"toolConfig.tools.{number}.toolSpec.inputSchema.json.type"
            raise refused(f"The value at {where} must be one of the following: object.")
    chosen = config.get("toolChoice", {}).get("tool", {}).get("name")
    if chosen is not None and chosen not in names:
        raise refused(f"The tool {chosen} of toolChoice is not among the tools.")


def _check_points(body: Mapping[str, Any], model: str) -> None:
    contents = [("system", body.get("system", [])), ("tools", body.get("toolConfig", {}).get("tools", []))]
    contents += [(f"messages/{n}/content", message["content"]) for n, message in enumerate(body["messages"])]
    points = 0
    for where, content in contents:
        for number, block in enumerate(content):
            if "cachePoint" not in block:
                continue
            points += 1
            if number == 0 or "cachePoint" in content[number - 1]:
                raise refused(f"#/{where}/{number}: a cachePoint needs something before it")
            if is_nova(model) and (where == "tools" or "toolResult" in content[number - 1]):
                why = "extraneous key [cachePoint] is not permitted, please reformat your input and try again."
                raise refused(f"Malformed input request: #/{where}/0: {why}")
    if points and not takes_cache_points(model):
        why = "You invoked an unsupported model or your request did not allow prompt caching."
        raise Refused(403, "AccessDeniedException", f"{why} See the documentation for more information.")
    if points > 4:
        raise refused(f"A maximum of 4 blocks with cache_control may be provided. Found {points}.")


def _check_reasoning(messages: Sequence[Mapping[str, Any]], model: str) -> None:
    for number, message in enumerate(messages):
        thoughts = [block["reasoningContent"] for block in message["content"] if "reasoningContent" in block]
        if thoughts and not is_claude(model):
            raise refused("This model doesn't support the reasoningContent field. Remove it and try again.")
        if any("signature" not in thought.get("reasoningText", {"signature": ""}) for thought in thoughts):
            raise refused(f"messages.{number}.content.0.thinking.signature: Field required")
        if message["role"] == "assistant" and "reasoningContent" in message["content"][-1]:
            raise refused(f"messages.{number}: The final block in an assistant message cannot be `thinking`.")


def _check_fields(body: Mapping[str, Any], model: str) -> None:
    known: dict[str, tuple[str, ...]] = {"anthropic.claude-": ("thinking", "output_config", "anthropic_beta", "top_k")}
    known |= {"amazon.nova-2": ("reasoningConfig", "inferenceConfig"), "openai.gpt-oss": ("reasoning_effort",)}
    fields = next((fields for name, fields in known.items() if name in model), ())
    for name in body.get("additionalModelRequestFields", {}):
        if name not in fields:
            why = f"extraneous key [{name}] is not permitted, please reformat your input and try again."
            raise refused(f"Malformed input request: #: {why}")
    config = body.get("inferenceConfig", {})
    reasoning = body.get("additionalModelRequestFields", {}).get("reasoningConfig", {})
    if reasoning.get("maxReasoningEffort") == "high" and {"temperature", "topP", "maxTokens"} & set(config):
        raise refused("maxTokens, temperature and topP are not supported when maxReasoningEffort is high.")


def _check_claude(body: Mapping[str, Any]) -> None:
    config = body.get("inferenceConfig", {})
    thinking = body.get("additionalModelRequestFields", {}).get("thinking", {"type": "disabled"})
    if config.get("temperature", 0) > 1:
        raise refused("The value provided for temperature is not valid: expected maximum 1.0.")
    if {"temperature", "topP"} <= set(config):
        raise refused("`temperature` and `top_p` cannot both be specified for this model. Please use only one.")
    if any(not text.strip() for text in config.get("stopSequences", [])):
        raise refused("stop_sequences: each stop sequence must contain non-whitespace")
    if thinking["type"] == "disabled":
        return
    if config.get("temperature", 1) != 1 or config.get("topP", 1) < 0.95:
        raise refused("`temperature` may only be set to 1 when thinking is enabled.")
    if {"any", "tool"} & set(body.get("toolConfig", {}).get("toolChoice", {})):
        raise refused("Thinking may not be enabled when tool_choice forces tool use.")
    if thinking["type"] == "enabled":
        if thinking["budget_tokens"] < 1024:
            raise refused("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if config.get("maxTokens", 4096) <= thinking["budget_tokens"]:
            raise refused("`max_tokens` must be greater than `thinking.budget_tokens`.")
        _check_turn(body["messages"])


def _check_turn(messages: Sequence[Mapping[str, Any]]) -> None:
    """With thinking on, a turn whose calls have results already has to have begun with thinking."""
    first = 0
    for number in range(len(messages) - 1, 0, -1):
        if messages[number]["role"] == "assistant":
            first = number
        elif not any("toolResult" in block for block in messages[number]["content"]):
            break
    found = next(iter(messages[first]["content"][0]))
    if first and found != "reasoningContent":
        raise refused(f"messages.{first}.content.0.type: Expected `thinking`, but found `{found}`.")


@lru_cache
def service_shapes() -> Mapping[str, Any]:
    """The shapes of the service, by name, as Amazon describes them for its SDKs; read without importing any.

    ``Body`` is that of a request: the model is in the path.
    """
    spec = find_spec("botocore")
    assert spec is not None
    assert spec.submodule_search_locations
    path = Path(spec.submodule_search_locations[0]) / "data/bedrock-runtime/2023-09-30/service-2.json.gz"
    shapes: Mapping[str, Any] = orjson.loads(gzip.decompress(path.read_bytes()))["shapes"]
    return {**shapes, "Body": {**shapes["ConverseStreamRequest"], "required": ["messages"]}}


def check_shape(shapes: Mapping[str, Any], name: str, value: Any, where: str) -> None:
    """Refuse a value that has not the shape of that name."""
    shape = shapes[name]
    if shape.get("document"):
        return
    kind = shape["type"]
    types: Any = SHAPES[kind]
    if not isinstance(value, types) or (isinstance(value, bool) and kind != "boolean"):
        raise refused(f"{where}: {kind} expected", "SerializationException")
    if kind == "structure":
        for member, inner in value.items():
            if member not in shape["members"]:
                raise refused(f"{where}: unknown field {member}")
            check_shape(shapes, shape["members"][member]["shape"], inner, f"{where}.{member}")
        if missing := [member for member in shape.get("required", ()) if member not in value]:
            raise refused(f"{where}: {', '.join(missing)} missing")
        if shape.get("union") and len(value) != 1:
            raise refused(f"{where}: exactly one of its fields has to be there")
    elif kind == "list":
        for number, inner in enumerate(value):
            check_shape(shapes, shape["member"]["shape"], inner, f"{where}.{number}")
    elif kind == "string":
        if value not in shape.get("enum", (value,)):
            raise refused(f"Value '{value}' at '{where}' failed to satisfy constraint: {shape['enum']}")
        if not re.fullmatch(shape.get("pattern", r"[\s\S]*"), value):
            raise refused(f"Value '{value}' at '{where}' failed to satisfy constraint: {shape['pattern']}")
    size = value if isinstance(value, int | float) else len(value)
    if not shape.get("min", size) <= size <= shape.get("max", size):
        raise refused(f"{where}: {size} is not between {shape.get('min')} and {shape.get('max')}")


def _turns(messages: Sequence[Mapping[str, Any]]) -> Iterator[Turn]:
    for message in messages:
        for block in message["content"]:
            if "toolResult" in block:
                yield Turn("tool", _text(block["toolResult"]["content"]))
        text = _text(message["content"])
        if text or message["role"] == "assistant" or not any("toolResult" in block for block in message["content"]):
            yield Turn(message["role"], text)


def _text(content: Sequence[Mapping[str, Any]]) -> str:
    return "".join(block.get("text", "") for block in content)


# Answers


def encode_message(headers: Mapping[str, str], payload: bytes) -> bytes:
    """A message of the event stream; see ``skynet_agent.eventstream``."""
    fields = b""
    for name, value in ((name.encode(), value.encode()) for name, value in headers.items()):
        fields += struct.pack("!B", len(name)) + name + b"\x07" + struct.pack("!H", len(value)) + value
    prelude = struct.pack("!II", 16 + len(fields) + len(payload), len(fields))
    message = prelude + struct.pack("!I", crc32(prelude)) + fields + payload
    return message + struct.pack("!I", crc32(message))


def encode_event(name: str, payload: Mapping[str, Any]) -> bytes:
    """An event; its length is padded as Bedrock does."""
    headers = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    padding = PADDING[: len(orjson.dumps(payload)) * 7 % 60 + 1]
    return encode_message(headers, orjson.dumps({**payload, "p": padding}))


def encode_exception(name: str, payload: Mapping[str, Any]) -> bytes:
    """An error inside the stream."""
    headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
    return encode_message(headers, orjson.dumps(payload))


@lru_cache(maxsize=256)
def encode_stream(script: Script, signs: bool) -> list[bytes]:
    """The events; cached, because benches ask for the same ones again and again. ``signs``: thinking is signed."""
    events = [encode_event("messageStart", {"role": "assistant"})]
    for index, (start, deltas) in enumerate(_blocks(script, signs)):
        place = {"contentBlockIndex": index}
        if start:
            events.append(encode_event("contentBlockStart", {**place, "start": start}))
        for delta in deltas:
            event = encode_event("contentBlockDelta", {**place, "delta": delta})
            events.append(event if "signature" in delta.get("reasoningContent", {}) else Shown(event))
        events.append(encode_event("contentBlockStop", place))
    if script.error_in_stream:
        told = {"message": "scripted failure in the stream", "originalStatusCode": 500, "originalMessage": "scripted"}
        return [*events, encode_exception("modelStreamErrorException", told)]
    events.append(encode_event("messageStop", {"stopReason": stop_reason(script)}))
    return [*events, encode_event("metadata", {**usage_of(script), "metrics": {"latencyMs": 1}})]


def _blocks(script: Script, signs: bool) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """How each block is opened, if it is, and its deltas. Calls come one after the other."""
    if script.redacted:
        yield {}, [{"reasoningContent": {"redactedContent": script.redacted}}]
    if script.thinking:
        thoughts: list[dict[str, Any]] = [{"reasoningContent": {"text": text}} for text in script.thinking]
        if signed := _signature(script, signs):
            thoughts.append({"reasoningContent": signed})
        yield {}, thoughts
    if script.tokens:
        yield {}, [{"text": text} for text in script.tokens]
    for index, (name, arguments) in enumerate(script.tools):
        call = {"toolUseId": script.call_id(index), "name": name}
        yield {"toolUse": call}, [{"toolUse": {"input": piece}} for piece in pieces(arguments)]


def _signature(script: Script, signs: bool) -> dict[str, str]:
    signed = script.signature or (SIGNATURE if signs else "")
    return {"signature": signed} if signed else {}


def stop_reason(script: Script) -> str:
    return script.finish or ("tool_use" if script.tools else "end_turn")


def usage_of(script: Script) -> dict[str, Any]:
    if not script.usage:
        return {}
    read, written = script.cached_tokens, script.written_tokens
    counts = {
        "inputTokens": script.prompt_tokens - (read or 0) - (written or 0),
        "outputTokens": script.output_tokens,
        "totalTokens": script.prompt_tokens + script.output_tokens,
        "cacheReadInputTokens": read,
        "cacheWriteInputTokens": written,
    }
    return {"usage": {name: count for name, count in counts.items() if count is not None}}
