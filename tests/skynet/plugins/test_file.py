"""``tool.toml``: what is taken, and what is said of the rest."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from skynet.plugins import PluginFile, PluginRefused, parse

PATH = Path("/house/tools/weather/tool.toml")
ENV = {"WEATHER_KEY": "w-123", "HOUSE": "Elm", "EMPTY": ""}
LEAST = 'description = "Tells the weather."\ncommand = ["./run.sh"]\n'


def read(text: str, path: Path = PATH) -> PluginFile:
    return parse(text.encode(), path, ENV)


def problems(text: str, path: Path = PATH) -> str:
    with pytest.raises(PluginRefused) as refused:
        read(text, path)
    return str(refused.value)


def test_the_least() -> None:
    assert read(LEAST) == PluginFile(
        name="weather",
        description="Tells the weather.",
        command=("./run.sh",),
        timeout_s=30,
        parameters={"type": "object", "properties": {}, "additionalProperties": False},
        env={},
    )


def test_everything() -> None:
    file = read(
        """
        name = "forecast"
        description = "  Tells the weather.\\nOf today. "
        command = ["python3", "main.py", "", "--unit=°C"]
        timeout_s = 2.5

        [parameters]
        type = "object"
        required = ["place"]
        properties.place = { "$ref" = "#/$defs/place" }
        properties.days = { type = "integer", minimum = 1, maximum = 7 }
        properties."a/b" = { anyOf = [{ type = "string" }, { "$ref" = "#/properties/a~1b/anyOf/0" }] }
        "$defs".place = { type = "string", pattern = "^[A-Z]" }

        [env]
        KEY = "${WEATHER_KEY}"
        URL = "https://x/${HOUSE}/${HOUSE}"
        PLAIN = "$${WEATHER_KEY} $5 $"
        """
    )
    assert (file.name, file.description, file.timeout_s) == ("forecast", "Tells the weather.\nOf today.", 2.5)
    assert file.command == ("python3", "main.py", "", "--unit=°C")
    assert file.parameters["properties"]["days"] == {"type": "integer", "minimum": 1, "maximum": 7}
    assert file.env == {"KEY": "w-123", "URL": "https://x/Elm/Elm", "PLAIN": "${WEATHER_KEY} $5 $"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "description: is required; allowed: text of 1 to 1024 characters"),
        ("", "command: is required; allowed: a list of texts: a program and its arguments"),
        (
            LEAST + "timeout = 5",
            "tool.toml:3: timeout: unknown key (did you mean timeout_s?); "
            "allowed: description, command, name, timeout_s, parameters, env",
        ),
        (LEAST + "timeout_s = 301", "tool.toml:3: timeout_s: 301 is not allowed; allowed: a number from 1 to 300"),
        (LEAST + "timeout_s = 0.5", "timeout_s: 0.5 is not allowed"),
        (LEAST + "timeout_s = nan", "timeout_s: nan is not allowed; allowed: a number from 1 to 300"),
        (LEAST + "timeout_s = inf", "timeout_s: inf is not allowed"),
        (LEAST + 'timeout_s = "5"', 'timeout_s: "5" is not allowed'),
        (LEAST + f"timeout_s = 1{'0' * 400}", "timeout_s: 1"),
        (LEAST + f"timeout_s = 1{'0' * 5000}", "is not valid TOML: Exceeds the limit"),
        ('description = "  "\ncommand = ["x"]', 'tool.toml:1: description: "" is not allowed; allowed: printable text'),
        ('description = "a\\u0007b"\ncommand = ["x"]', 'description: "a?b" is not allowed'),
        (f'description = "{"a" * 1025}"\ncommand = ["x"]', "allowed: text of 1 to 1024 characters"),
        (
            'description = "a"\ncommand = "./run.sh --json"',
            'tool.toml:2: command: "./run.sh --json" is not allowed; '
            "allowed: a list of texts: a program and its arguments",
        ),
        ('description = "a"\ncommand = []', 'the program "" is not allowed; allowed: a list like ["./run.sh", '),
        ('description = "a"\ncommand = ["", "x"]', 'the program "" is not allowed'),
        ('description = "a"\ncommand = ["-c"]', 'the program "-c" is not allowed'),
        ('description = "a"\ncommand = ["x", 1]', "command: a list is not allowed"),
        (
            'description = "a"\ncommand = ["x", "a\\u0000"]',
            'command[1]: "a?" is not allowed; allowed: text without NUL',
        ),
        (LEAST + 'name = ""', 'tool.toml:3: name: "" is not allowed'),
        (LEAST + 'name = "Weather"', 'name: "Weather" is not allowed; allowed: a letter from a to z, then letters'),
        (LEAST + f'name = "{"a" * 65}"', "is not allowed; allowed: a letter from a to z"),
        (LEAST + "env = 5", "env: 5 is not allowed; allowed: a table of texts"),
        (LEAST + 'env = "secret"', "env: *** is not allowed; allowed: a table of texts"),
        (LEAST + "env = { A = 5 }", "env: a table is not allowed; allowed: a table of texts"),
        (LEAST + 'env = { "A B" = "x" }', 'env."A B": is not a name that a variable can have; allowed: letters'),
        (LEAST + 'env = { SKYNET_INPUT = "x" }', "env.SKYNET_INPUT: is not a name that a variable can have"),
        (LEAST + 'env = { A = "x\\u0000" }', "env.A: *** is not allowed; allowed: text without NUL"),
        (LEAST + 'env = { A = "${NOWHERE}" }', 'env.A: the environment variable "NOWHERE" is not set'),
        (LEAST + 'env = { A = "${EMPTY}" }', 'env.A: the environment variable "EMPTY" is not set'),
        (LEAST + 'env = { A = "${}" }', 'env.A: the environment variable "" is not set'),
        (LEAST + 'parameters = { type = "string" }', 'parameters.type: "string" is not allowed; allowed: "object"'),
        (LEAST + "parameters = { required = [] }", 'parameters.type: nothing is not allowed; allowed: "object"'),
        (
            LEAST + '[parameters]\ntype = "object"\nproperties.a.type = "text"',
            "tool.toml:5: parameters.properties.a.type: is no JSON schema (2020-12): 'text' is not valid under any",
        ),
        (LEAST + 'parameters = { type = "object", x = 2026-11-21 }', 'parameters.x: "2026-11-21" is not allowed'),
        (LEAST + 'parameters = { type = "object", x = [nan] }', "parameters.x[0]: nan is not allowed"),
        (LEAST + 'parameters = { type = "object", "$ref" = "http://x/y" }', 'parameters."$ref": "http://x/y" is not'),
        (LEAST + 'parameters = { type = "object", "$id" = "#a" }', 'parameters."$id": "#a" is not allowed'),
        (LEAST + 'parameters = { type = "object", "$ref" = "#" }', "parameters: cannot be applied: RecursionError"),
        (LEAST + 'parameters = { type = "object", "$ref" = "#/$defs/x" }', "parameters: cannot be applied: "),
        (
            LEAST + 'parameters = { type = "object", properties.a = { "$ref" = "#/$defs/x" } }',
            'properties.a."$ref": "#/$defs/x" is not allowed; allowed: a "$ref" to something that is there',
        ),
        (LEAST + 'parameters = { type = "object", properties.a.pattern = "[" }', "'[' is not a 'regex'"),
        (LEAST + f'parameters = {{ type = "object", x = {"[" * 30}{"]" * 30} }}', "is more than 20 levels deep"),
        ("a = [", "tool.toml: is not valid TOML: "),
        ("a = " + "[" * 9000, "tool.toml: is not valid TOML: it is nested too deeply"),
        ("a" * 3, "tool.toml: is not valid TOML: "),
    ],
)
def test_what_is_wrong_is_told(text: str, words: str) -> None:
    assert words in problems(text)


def test_all_of_it_at_once() -> None:
    said = problems('command = "x"\ntimeout_s = 0\nfoo = 1')
    assert said.count("tool.toml") == 4
    for key in ("command", "timeout_s", "foo", "description"):
        assert f" {key}: " in said


def test_a_folder_that_has_no_tools_name_has_to_give_one() -> None:
    path = Path("/house/tools/My Weather/tool.toml")
    assert 'tool.toml: the folder\'s name: name: "My Weather" is not allowed' in problems(LEAST, path)
    assert read(LEAST + 'name = "weather"', path).name == "weather"


def test_text_has_to_be_utf_8() -> None:
    with pytest.raises(PluginRefused, match=r"tool\.toml: is not UTF-8 text$"):
        parse(b'description = "\xff"', PATH, ENV)


def test_no_secret_is_told() -> None:
    assert "w-123" not in problems(LEAST + 'env = { A = "${WEATHER_KEY}", B = "${NOWHERE}" }')


def taken(file: PluginFile) -> None:
    """What holds for whatever is taken."""
    Draft202012Validator.check_schema(file.parameters)
    json.dumps([file.name, file.description, file.parameters], allow_nan=False).encode()
    assert 1 <= file.timeout_s <= 300
    assert file.command[0]
    assert not any("\0" in text for text in (*file.command, *file.env, *file.env.values()))


def plugin_or_reason(data: bytes) -> None:
    try:
        file = parse(data, PATH, ENV)
    except PluginRefused as exc:
        assert "tool.toml" in str(exc) and "w-123" not in str(exc)
    else:
        taken(file)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_plugin_or_a_reason(data: bytes) -> None:
    plugin_or_reason(data)


@given(st.text(max_size=200))
def test_any_further_lines_are_a_plugin_or_a_reason(text: str) -> None:
    plugin_or_reason((LEAST + text).encode("utf-8", "replace"))


# JSON is TOML where it stands on one line and has no null.
LEAVES = (
    st.sampled_from(["object", "string", "#", "#/$defs/a", "^a", "${WEATHER_KEY}", "", "x", "[", "\0"])
    | st.text(max_size=5)
    | st.integers()
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
)
KEYS = st.sampled_from(
    ["type", "properties", "items", "$ref", "$defs", "a", "required", "pattern", "allOf", "$dynamicRef", "enum"]
) | st.text(max_size=4)
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=15
)


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


@given(st.sampled_from(["name", "description", "command", "timeout_s", "parameters", "env"]), TREES)
def test_any_value_is_a_plugin_or_a_reason(key: str, value: Any) -> None:
    values = {"description": "a", "command": ["x"]} | {key: value}
    plugin_or_reason("\n".join(f"{each} = {toml(item)}" for each, item in values.items()).encode("utf-8", "replace"))


@given(st.dictionaries(KEYS, TREES, max_size=5))
def test_any_schema_can_be_applied_or_is_a_reason(schema: dict[str, Any]) -> None:
    schema = copy.deepcopy(schema) | {"type": "object"}
    plugin_or_reason((LEAST + f"parameters = {toml(schema)}").encode("utf-8", "replace"))
