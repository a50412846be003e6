"""``tool.toml``: what a plugin says of itself, and everything that is wrong with what it says."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import unquote

import msgspec
from msgspec import Meta

from skynet.config.problems import KeyPath, ProblemKind, Report, allowed_values, quoted, shown, suggestion
from skynet.config.schema import fields_of
from skynet.config.toml_lines import toml_lines

DEEPEST = 20
"""So many levels a schema of parameters may have."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_NAME_WORDS = "a letter from a to z, then letters from a to z, digits and _, 64 characters at most"
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_VARIABLE = re.compile(r"\$(?:(\$)\{|\{([^}]*)\})")
_REFERENCES = ("$ref", "$dynamicRef")
_OWN_PREFIX = "SKYNET_"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


Files: TypeAlias = Literal["none", "read", "write"]


class PluginFile(msgspec.Struct, frozen=True, kw_only=True):
    """``tool.toml``; ``docs/plugins.md`` is tested against it."""

    description: Annotated[str, Meta(min_length=1, max_length=1024)]
    """What the model is told that it does. OpenAI takes no longer one."""
    command: tuple[str, ...]
    """The program and its arguments; never a line for a shell."""
    name: str = ""
    """The tool's; the folder's by default."""
    timeout_s: Annotated[float, Meta(ge=1, le=300)] = 30.0
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    """A JSON schema (2020-12) of type object; by default there are none."""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    files: Files = "none"
    """What it sees of the folder of whoever asks, as ``/files``."""
    hosts: tuple[str, ...] = ()
    """What it can reach of the network."""


class PluginRefused(Exception):  # noqa: N818 - it is refused, and the words say why
    """A folder is no plugin, in words for the person who put it there."""


def parse(data: bytes, path: Path, env: Mapping[str, str]) -> PluginFile:
    """What a ``tool.toml`` says, with its variables filled in.

    Args:
        path: where it was; the folder's name is that of the tool if the file gives none.

    Raises:
        PluginRefused: it is none, with everything that is wrong with it: where, what was seen, what is allowed.
    """
    report = Report(path, path.parent)
    try:
        text = data.decode()
        document = tomllib.loads(text)
        report.lines = toml_lines(text)
    except UnicodeDecodeError as exc:
        raise PluginRefused(f"{path}: is not UTF-8 text") from exc
    except (ValueError, RecursionError) as exc:
        words = "it is nested too deeply" if isinstance(exc, RecursionError) else exc
        raise PluginRefused(f"{path}: is not valid TOML: {words}") from exc
    values = _converted(document, report)
    if not report.problems:
        values = _checked(values, report, env)
    if report.problems:
        raise PluginRefused("; ".join(map(str, report.problems)))
    return PluginFile(**values)


def _converted(document: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """The values with their types."""
    fields = fields_of(PluginFile)
    values: dict[str, Any] = {}
    for key, value in document.items():
        if key not in fields:
            words = f"unknown key{suggestion(key, fields)}"
            report.add(ProblemKind.UNKNOWN_KEY, words, path=(key,), allowed=", ".join(fields))
            continue
        try:
            values[key] = msgspec.convert(value, fields[key])
        except (ValueError, OverflowError):
            report.bad_value((key,), shown(value, fields[key]), _allowed(key, fields[key]))
    for each in msgspec.structs.fields(PluginFile):
        if each.required and each.name not in document:
            allowed = _allowed(each.name, fields[each.name])
            where = str(report.file)
            report.add(ProblemKind.MISSING_VALUE, "is required", path=(each.name,), where=where, allowed=allowed)
    return values


def _allowed(key: str, kind: Any) -> str:
    words = {
        "command": "a list of texts: a program and its arguments",
        "env": "a table of texts",
        "hosts": 'a list of texts, like ["api.example.org", "*.example.org"]',
    }
    return words.get(key) or allowed_values(kind)


def _checked(values: dict[str, Any], report: Report, env: Mapping[str, str]) -> dict[str, Any]:
    """What types cannot say, and the variables filled in."""
    name = values.setdefault("name", report.file.parent.name)
    if not _NAME.fullmatch(name):
        is_given = ("name",) in report.lines
        where = "" if is_given else f"{report.file}: the folder's name"
        report.bad_value(("name",), quoted(name), _NAME_WORDS, where=where)
    values["description"] = description = values["description"].strip()
    if not description or _CONTROL.search(description):
        report.bad_value(("description",), quoted(description), "printable text")
    if math.isnan(values.get("timeout_s", 0)):
        report.bad_value(("timeout_s",), "nan", "a number from 1 to 300")
    _check_command(values["command"], report)
    _check_hosts(values.get("hosts", ()), report)
    values["env"] = _filled(values.get("env", {}), report, env)
    if "parameters" in values:
        _check_parameters(values["parameters"], report)
    else:
        values["parameters"] = {"type": "object", "additionalProperties": False}
    values["parameters"].setdefault("properties", {})
    return values


def _check_command(command: Sequence[str], report: Report) -> None:
    program = command[0] if command else ""
    if not program or program.startswith("-"):
        report.bad_value(("command",), f"the program {quoted(program)}", 'a list like ["./run.sh", "--json"]')
    for number, argument in enumerate(command):
        if "\0" in argument:
            report.bad_value(("command", number), quoted(argument), "text without NUL")


def _check_hosts(hosts: Sequence[str], report: Report) -> None:
    from skynet_terminal.sandbox.egress_hosts import HostRules  # only for those who name some

    for number, host in enumerate(hosts):
        try:
            HostRules([host], ())
        except ValueError:
            allowed = "a name, *.name for those below it, * for all that are public; each with a :port or without"
            report.bad_value(("hosts", number), quoted(host), allowed)


def _filled(variables: Mapping[str, str], report: Report, env: Mapping[str, str]) -> dict[str, str]:
    """Variables with ``${NAME}`` replaced by the gateway's, and ``$${`` by ``${``, as in ``skynet.toml``."""
    filled: dict[str, str] = {}
    for name, value in variables.items():
        path: KeyPath = ("env", name)
        if not _VARIABLE_NAME.fullmatch(name) or name.startswith(_OWN_PREFIX):
            words = f"letters, digits and _, not beginning with a digit or {_OWN_PREFIX}"
            report.add(ProblemKind.BAD_VALUE, "is not a name that a variable can have", path=path, allowed=words)
        unset = [match[2] for match in _VARIABLE.finditer(value) if not match[1] and not env.get(match[2])]
        if unset:
            words = f"the environment variable {quoted(unset[0])} is not set"
            report.add(ProblemKind.UNSET_VARIABLE, words, path=path, allowed="variables of the gateway that are set")
        elif "\0" in value:
            report.bad_value(path, "***", "text without NUL")
        else:
            filled[name] = _VARIABLE.sub(lambda match: "${" if match[1] else env[match[2]], value)
    return filled


def _check_parameters(schema: Mapping[str, Any], report: Report) -> None:
    """That it is a JSON schema of type object, and one that can be applied without asking anybody."""
    references: list[tuple[KeyPath, str]] = []
    if not _check_json(schema, ("parameters",), report, references):
        return
    if schema.get("type") != "object":
        seen = shown(schema["type"], Any) if "type" in schema else "nothing"
        report.bad_value(("parameters", "type"), seen, '"object"')
        return
    from jsonschema import Draft202012Validator  # 0.1 s, and only for who has plugins
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
        next(Draft202012Validator(schema).iter_errors({}), None)
    except SchemaError as exc:
        path: KeyPath = ("parameters", *exc.absolute_path)
        report.add(ProblemKind.BAD_VALUE, f"is no JSON schema (2020-12): {exc.message[:300]}", path=path)
    except Exception as exc:  # references that go round in circles, and what else a schema can be
        words = f"cannot be applied: {type(exc).__name__}: {str(exc)[:300]}"
        report.add(ProblemKind.BAD_VALUE, words, path=("parameters",))
    for path, reference in references:
        if not _leads_somewhere(schema, reference):
            report.bad_value(path, quoted(reference), 'a "$ref" to something that is there')


def _leads_somewhere(schema: object, reference: str) -> bool:
    """Whether a JSON pointer in a fragment (RFC 6901, section 6) has something to point to."""
    for part in unquote(reference).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, dict) and key in schema:
            schema = schema[key]
        elif isinstance(schema, list) and re.fullmatch("[0-9]{1,5}", key) and int(key) < len(schema):
            schema = schema[int(key)]
        else:
            return False
    return True


def _check_json(value: object, path: KeyPath, report: Report, references: list[tuple[KeyPath, str]]) -> bool:
    """Whether a value of TOML is one of JSON too, not too deep, and refers to nothing outside.

    Args:
        references: gets those to something inside.
    """
    if isinstance(value, dict | list):
        if len(path) > DEEPEST:
            report.add(ProblemKind.BAD_VALUE, f"is more than {DEEPEST} levels deep", path=path)
            return False
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return all(_check_json(item, (*path, key), report, references) for key, item in items)
    if isinstance(value, str):
        if path[-1] in _REFERENCES and re.match("#(/|$)", value):
            references.append((path, value))
        elif path[-1] in (*_REFERENCES, "$id", "$anchor", "$dynamicAnchor", "$schema"):
            report.bad_value(path, quoted(value), 'a "$ref" to something in here, as "#/$defs/place"')
            return False
    elif isinstance(value, float) and not math.isfinite(value):
        report.bad_value(path, str(value), "a finite number")
        return False
    elif not isinstance(value, int | float):
        report.bad_value(path, quoted(str(value)), "text, a number, true or false, a list or a table")
        return False
    return True
