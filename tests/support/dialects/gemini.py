"""Gemini's ``generateContent``, whoever offers it: what is refused, what is understood, and what is said.

Refused as by Vertex AI, in its words where they are known: fields that ``v1`` does not know, function responses that
do not answer the calls before them, calls of this turn without the signature that they came with (Gemini 3), schemas
with a reference that is not alone, values out of range.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from tests.support.script import Failure, Refused, Script, Shown, Turn

UNSIGNED = "skip_thought_signature_validator"
STATUSES: Mapping[int, str] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
OVERFLOW = "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576)."
IMAGES = ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif")

_function_name = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")


def google_error(failure: Failure) -> dict[str, Any]:
    """The error object, over HTTP and in the stream."""
    message = OVERFLOW if failure.code == "context_length_exceeded" else failure.message
    status = STATUSES.get(failure.status, "INTERNAL" if failure.status >= 500 else "FAILED_PRECONDITION")
    return {"error": {"code": failure.status, "message": message, "status": status}}


def refused(message: str) -> Refused:
    return Refused(400, "", message)


def generation(model: str) -> int:
    found = re.search(r"gemini-(\d+)", model)
    return int(found[1]) if found else 3


def canonical(value: Any) -> Any:
    """A message as JSON, its fields named as in the reference: the service takes their names in snake case too."""
    if isinstance(value, list):
        return [canonical(each) for each in value]
    if not isinstance(value, dict):
        return value
    named = {re.sub(r"(?<=[a-z])_([a-z])", lambda found: found[1].upper(), name): each for name, each in value.items()}
    return {name: each if name in OPAQUE else canonical(each) for name, each in named.items()}


def bytes_of(text: str) -> bytes:
    """A field of bytes: base64 of either alphabet, padded or not.

    Raises:
        ValueError: it is none.
    """
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)


# What is refused

OPAQUE = ("args", "response", "parametersJsonSchema", "responseJsonSchema", "properties", "labels")
"""Fields that hold names of somebody else's choice."""
FIELDS: Mapping[str, Sequence[str]] = {
    "": (
        *("contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings", "labels"),
        "cachedContent",
    ),
    "content": ("role", "parts"),
    "part": (
        *("text", "inlineData", "fileData", "functionCall", "functionResponse", "videoMetadata", "thought"),
        "thoughtSignature",
    ),
    "inlineData": ("mimeType", "data", "displayName"),
    "functionCall": ("name", "args"),
    "functionResponse": ("name", "response", "parts"),
    "tool": ("functionDeclarations",),
    "declaration": ("name", "description", "parameters", "parametersJsonSchema", "response", "responseJsonSchema"),
    "toolConfig": ("functionCallingConfig",),
    "functionCallingConfig": ("mode", "allowedFunctionNames"),
    "generationConfig": (
        *("temperature", "topP", "topK", "maxOutputTokens", "stopSequences", "seed", "candidateCount"),
        *("responseMimeType", "responseSchema", "responseJsonSchema", "thinkingConfig", "presencePenalty"),
        "frequencyPenalty",
    ),
    "thinkingConfig": ("includeThoughts", "thinkingBudget", "thinkingLevel"),
    "schema": (
        *("type", "format", "title", "description", "nullable", "default", "items", "minItems", "maxItems", "enum"),
        *("properties", "propertyOrdering", "required", "minProperties", "maxProperties", "minimum", "maximum"),
        *("minLength", "maxLength", "pattern", "example", "anyOf", "additionalProperties", "ref", "defs"),
    ),
}
DATA = ("text", "inlineData", "fileData", "functionCall", "functionResponse")
SAME_NUMBER = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)


class Check:
    """Refuses what the service would refuse. ``knows_ids``: of ``v1beta1``, where calls may have ids."""

    def __init__(self, model: str, signed: Mapping[bytes, Any], *, knows_ids: bool) -> None:
        self._model = model
        self._signs = generation(model) >= 3
        self._signed = signed
        self._ids = ("id",) if knows_ids else ()

    def body(self, body: Mapping[str, Any]) -> None:
        _known("", body, "")
        system = body.get("systemInstruction")
        if system is not None:
            self._content(system, "system_instruction")
            if any("text" not in part for part in system["parts"]):
                raise refused("system_instruction: only text parts are supported")
        self._contents(body.get("contents"))
        names = self._tools(body.get("tools") or [])
        self._choice(body.get("toolConfig"), names)
        self._config(body.get("generationConfig") or {}, has_tools=bool(names))

    def _contents(self, contents: Any) -> None:
        if not isinstance(contents, list) or not contents:
            raise refused("Unable to submit request because at least one contents field is required.")
        for number, content in enumerate(contents):
            self._content(content, f"contents[{number}]")
            if content.get("role") not in ("user", "model"):
                raise refused("Please use a valid role: user, model.")
        waiting: list[str] = []  # names of the calls of the content before
        before = ""
        for content in contents:
            results = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
            calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
            if content["role"] == "model" == before:
                raise refused("Please ensure that multiturn requests alternate between user and model.")
            if content["role"] == "model" and (results or (calls and before != "user")):
                said = "function call turn comes immediately after a user turn or after a function response turn."
                raise refused(f"Please ensure that {said}")
            if content["role"] == "user" and calls:
                raise refused("Please ensure that function calls are in a model turn.")
            if results and not waiting:
                said = "function response turn comes immediately after a function call turn."
                raise refused(f"Please ensure that {said}")
            if [result["name"] for result in results] != waiting or (results and len(results) < len(content["parts"])):
                raise refused(SAME_NUMBER)
            waiting, before = [call["name"] for call in calls], content["role"]
        if before == "model":
            raise refused("Requests ending with a model turn are not supported.")
        if self._signs:
            self._signatures(contents)

    def _signatures(self, contents: Sequence[Mapping[str, Any]]) -> None:
        """Of this turn, the first call of each content is signed; a signature is where it was given."""
        for number, content in enumerate(contents):
            is_this_turn = not any(
                "functionResponse" not in part
                for later in contents[number + 1 :]
                if later["role"] == "user"
                for part in later["parts"]
            )
            calls = [part for part in content["parts"] if "functionCall" in part]
            if calls and is_this_turn and "thoughtSignature" not in calls[0]:
                name = calls[0]["functionCall"]["name"]
                said = f"function call `default_api:{name}` in the {number + 1}. content block"
                raise refused(f"Unable to submit request because {said} is missing a `thought_signature`.")
            for part in content["parts"]:
                signature = part.get("thoughtSignature", UNSIGNED)
                call = {key: part["functionCall"].get(key) for key in ("name", "args")} if part in calls else None
                given = bytes_of(signature) in (bytes_of(UNSIGNED), UNSIGNED.encode())
                if not given and self._signed.get(bytes_of(signature), ()) != call:
                    raise refused("Corrupted thought signature.")

    def _content(self, content: Any, where: str) -> None:
        if not isinstance(content, dict):
            raise refused(f"Invalid value at '{where}'")
        _known("content", content, where)
        parts = content.get("parts")
        if not isinstance(parts, list) or not parts:
            raise refused("Unable to submit request because it must include at least one parts field")
        for number, part in enumerate(parts):
            self._part(part, f"{where}.parts[{number}]")

    def _part(self, part: Any, where: str) -> None:
        if not isinstance(part, dict):
            raise refused(f"Invalid value at '{where}'")
        _known("part", part, where)
        if sum(name in part for name in DATA) != 1:
            raise refused(f"Invalid value at '{where}' (oneof), oneof field 'data' must be set once.")
        try:
            bytes_of(part.get("thoughtSignature", ""))
        except ValueError as exc:
            raise refused(f"Invalid value at '{where}.thought_signature' (TYPE_BYTES), Base64 decoding failed") from exc
        match part:
            case {"text": str(text)}:
                if not text and "thoughtSignature" not in part:
                    raise refused("Unable to submit request because it has an empty text parameter.")
            case {"inlineData": dict(data)}:
                self._image(data, f"{where}.inline_data")
            case {"functionCall": {"name": str(name)} as call} if _function_name.fullmatch(name):
                _known("functionCall", call, f"{where}.function_call", self._ids)
                if not isinstance(call.get("args", {}), dict):
                    raise refused(f"Invalid value at '{where}.function_call.args' (type.googleapis.com/Struct)")
            case {"functionResponse": {"name": str(name), "response": dict()} as result} if name:
                _known("functionResponse", result, f"{where}.function_response", self._ids)
                if "parts" in result and not self._signs:
                    raise refused("Multimodal function response is not supported for this model.")
                for inner in result.get("parts", ()):
                    self._image(inner.get("inlineData") or {}, f"{where}.function_response.parts", IMAGES[:3])
            case _:
                raise refused(f"Invalid value at '{where}'")

    def _image(self, data: Mapping[str, Any], where: str, types: Sequence[str] = IMAGES) -> None:
        _known("inlineData", data, where)
        if data.get("mimeType") not in types:
            raise refused(f"Unable to submit request because it has a mimeType parameter with value {data}")
        try:
            bytes_of(data.get("data", "?"))
        except ValueError as exc:
            raise refused(f"Invalid value at '{where}.data' (TYPE_BYTES), Base64 decoding failed") from exc

    def _tools(self, tools: Sequence[Any]) -> list[str]:
        names: list[str] = []
        for number, tool in enumerate(tools):
            _known("tool", tool, f"tools[{number}]")
            for place, declaration in enumerate(tool.get("functionDeclarations") or []):
                where = f"tools[{number}].function_declarations[{place}]"
                _known("declaration", declaration, where)
                name = declaration.get("name", "")
                if not _function_name.fullmatch(name):
                    raise refused(f"{where}.name: Invalid function name. Must start with a letter or an underscore.")
                if name in names:
                    raise refused(f"Duplicate function declaration found: {name}")
                names.append(name)
                if "parameters" in declaration and "parametersJsonSchema" in declaration:
                    raise refused(f"{where}: only one of parameters and parameters_json_schema may be set")
                if "parameters" in declaration:
                    _check_schema(declaration["parameters"], f"{where}.parameters")
                if "parametersJsonSchema" in declaration:
                    _check_json_schema(declaration["parametersJsonSchema"], is_root=True)
        return names

    def _choice(self, config: Any, names: Sequence[str]) -> None:
        if config is None:
            return
        _known("toolConfig", config, "tool_config")
        choice = config.get("functionCallingConfig") or {}
        _known("functionCallingConfig", choice, "tool_config.function_calling_config")
        if not names:
            raise refused("Function calling config is set without function_declarations.")
        mode, allowed = choice.get("mode"), choice.get("allowedFunctionNames")
        if mode not in ("AUTO", "ANY", "NONE", "VALIDATED"):
            raise refused("Invalid value at 'tool_config.function_calling_config.mode'")
        if allowed is not None and (mode != "ANY" or not set(allowed) <= set(names)):
            raise refused("allowed_function_names is only for mode ANY, and should be a subset of the functions.")

    def _config(self, config: Mapping[str, Any], *, has_tools: bool) -> None:
        _known("generationConfig", config, "generation_config")
        for name, least, most in (("temperature", 0, 2), ("topP", 0, 1), ("maxOutputTokens", 1, 65_536)):
            if name in config and not least <= config[name] <= most:
                raise refused(f"Unable to submit request because it has a {name} value of {config[name]}")
        if not -(2**31) <= config.get("seed", 0) < 2**31:
            raise refused("Invalid value at 'generation_config.seed' (TYPE_INT32)")
        stops = config.get("stopSequences", [])
        if len(stops) > 5 or not all(stops):
            raise refused("stop_sequences: at most 5, none of them empty")
        schemas = [config[name] for name in ("responseSchema", "responseJsonSchema") if name in config]
        is_json = config.get("responseMimeType") == "application/json"
        if len(schemas) > 1 or (schemas and not is_json):
            raise refused("response_mime_type has to be application/json, and one schema set")
        if is_json and has_tools and not self._signs:
            raise refused("Function calling with a response mime type: 'application/json' is unsupported")
        if "responseSchema" in config:
            _check_schema(config["responseSchema"], "generation_config.response_schema")
        if "responseJsonSchema" in config:
            _check_json_schema(config["responseJsonSchema"])
        self._thinking(config.get("thinkingConfig") or {})

    def _thinking(self, config: Mapping[str, Any]) -> None:
        _known("thinkingConfig", config, "generation_config.thinking_config")
        budget, level = config.get("thinkingBudget"), config.get("thinkingLevel")
        if budget is not None and level is not None:
            raise refused("thinking_budget and thinking_level are not supported together.")
        if level is not None and (not self._signs or level not in ("MINIMAL", "LOW", "MEDIUM", "HIGH")):
            raise refused("Thinking level is not supported for this model.")
        if level == "MINIMAL" and "flash" not in self._model:
            raise refused("Thinking level MINIMAL is not supported for this model.")
        is_pro = "pro" in self._model
        least, most = (128, 32_768) if is_pro else (0, 24_576)
        if budget is not None and budget != -1 and not least <= budget <= most:
            raise refused(f"The thinking budget {budget} is invalid. Please choose a value between {least} and {most}.")


def _known(kind: str, value: Any, where: str, more: Sequence[str] = ()) -> None:
    if not isinstance(value, dict):
        raise refused(f"Invalid value at '{where}'")
    for name in value:
        if name not in FIELDS[kind] and name not in more:
            at = f" at '{where}'" if where else ""
            raise refused(f'Invalid JSON payload received. Unknown name "{name}"{at}: Cannot find field.')


def _check_schema(schema: Any, where: str) -> None:
    """Google's own form of schemas, which has a field for each word."""
    _known("schema", schema, where)
    if schema.get("type") not in ("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL", None):
        raise refused(f"Invalid value at '{where}.type'")
    for inner in [
        *schema.get("properties", {}).values(),
        *schema.get("anyOf", []),
        *filter(None, [schema.get("items")]),
    ]:
        _check_schema(inner, f"{where}.properties")


def _check_json_schema(schema: Any, *, is_root: bool = False) -> None:
    """JSON schema: what is not known is passed over, but a reference stands alone."""
    if not isinstance(schema, dict) or (is_root and schema.get("type") != "object"):
        raise refused("schema should be an object with type: object")
    if "$ref" in schema and any(not name.startswith("$") for name in schema):
        raise refused("schema can only contain properties starting with '$' when $ref is present")
    inner = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values(), schema.get("items")]
    inner += [*schema.get("anyOf", []), *schema.get("oneOf", []), schema.get("additionalProperties")]
    for each in inner:
        if isinstance(each, dict):
            _check_json_schema(each)


# What is understood


def turns(contents: Sequence[Mapping[str, Any]]) -> Iterator[Turn]:
    """Images that directly follow results of tools are theirs, and no message of a user."""
    has_results = False
    for content in contents:
        results = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        images = [part for part in content["parts"] if "inlineData" in part]
        for result in results:
            yield Turn("tool", "".join(str(value) for value in result["response"].values()))
        texts = [part["text"] for part in content["parts"] if "text" in part and not part.get("thought")]
        if not results and not (has_results and images):
            yield Turn("assistant" if content["role"] == "model" else "user", "".join(texts))
        has_results = bool(results)


# What is said


def parts_of(script: Script, model: str) -> Iterator[tuple[dict[str, Any], bool]]:
    """The parts of an answer, and whether each shows something; the first call is signed, or the end of the text."""
    signature = _signature(script)
    for text in script.thinking:
        yield {"text": text, "thought": True}, True
    for text in script.tokens:
        yield {"text": text}, True
    for number, (name, arguments) in enumerate(script.tools):
        part: dict[str, Any] = {"functionCall": {"name": name, "args": orjson.loads(arguments or "{}")}}
        if number == 0 and generation(model) >= 3:
            part["thoughtSignature"] = signature
        yield part, True
    if script.signature and not script.tools:
        yield {"text": "", "thoughtSignature": signature}, False


def _signature(script: Script) -> str:
    """Base64: of the script's own signature, or of what it says."""
    said = orjson.dumps([script.thinking, script.tokens, script.tools, script.round])
    return base64.b64encode(script.signature.encode() or hashlib.sha256(said).digest()).decode()


def usage_of(script: Script) -> dict[str, int]:
    counts = {
        "promptTokenCount": script.prompt_tokens,
        "cachedContentTokenCount": script.cached_tokens or 0,
        "candidatesTokenCount": len(script.tokens),
        "thoughtsTokenCount": len(script.thinking),
        "totalTokenCount": script.prompt_tokens + script.output_tokens,
    }
    return {name: count for name, count in counts.items() if count}


def response(script: Script, model: str, parts: Sequence[Any], *, finish: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts or [{"text": ""}]}}
    if finish:
        candidate["finishReason"] = script.finish or "STOP"
    usage: dict[str, Any] = {"trafficType": "ON_DEMAND"}
    if finish and script.usage:
        usage |= usage_of(script)
    with_usage = {"usageMetadata": usage} if script.usage else {}
    return {"candidates": [candidate], **with_usage, "modelVersion": model, "responseId": "mock"}


@lru_cache(maxsize=256)
def encode_stream(script: Script, model: str) -> list[bytes]:
    """The events; cached, because benches ask for the same ones again and again."""
    events: list[bytes] = []
    closing: list[dict[str, Any]] = []
    for part, shows in parts_of(script, model):
        if shows:
            events.append(Shown(_event(response(script, model, [part], finish=False))))
        else:
            closing.append(part)
    if script.error_in_stream:
        return [*events, _event(google_error(Failure(503, "", "scripted failure in the stream")))]
    return [*events, _event(response(script, model, closing, finish=True))]


def _event(value: Any) -> bytes:
    return b"data: %b\r\n\r\n" % orjson.dumps(value)
