"""The documentation says what the code does. ``make docs`` runs this file, which writes the generated tables."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import skynet.methods
from skynet.cli.app import COMMANDS
from skynet.cli.errors import Exit
from skynet.config import PROVIDER_REGISTRY, Config, PriceConfig, config_to_public, load_config, schema
from skynet.config.schema import fields_of, is_table, plain_type
from skynet.gateway.dispatch import _MARK
from skynet_memory.database import Database
from skynet_memory.migrations import migrate
from skynet_memory.schema import COMPONENT as MEMORY_TABLES
from skynet_protocol.events import EVENT_SCOPES, EVENTS, is_droppable
from skynet_protocol.methods import METHODS
from skynet_users.schema import COMPONENT as USER_TABLES

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
EXAMPLE = ROOT / "skynet.example.toml"


def field_docs(table: type[msgspec.Struct]) -> dict[str, str]:
    """The docstring under each field, on one line."""
    (node,) = ast.parse(inspect.getsource(table)).body
    assert isinstance(node, ast.ClassDef)
    docs = {}
    for field, text in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            assert isinstance(text.value, ast.Constant)
            docs[field.target.id] = " ".join(str(text.value.value).split())
    return docs


def settings() -> Iterator[tuple[str, str, Any, type[msgspec.Struct]]]:
    """Every key of the schema: its path, its last part, its default, the table it is in."""
    yield from _settings(Config, "")


def _settings(table: type[msgspec.Struct], prefix: str) -> Iterator[tuple[str, str, Any, type[msgspec.Struct]]]:
    for field in msgspec.structs.fields(table):
        if table is Config and field.name in Config.NOT_KEYS:
            continue
        kind = plain_type(fields_of(table)[field.name])
        path = f"{prefix}{field.name}"
        inner = _table_of(kind)
        if inner is None:
            yield path, field.name, _default(field), table
        elif is_table(kind):
            yield from _settings(inner, f"{path}.")
        else:
            yield from _settings(inner, f"{path}.<name>." if "dict" in str(kind) else f"{path}[].")


def _table_of(kind: Any) -> type[msgspec.Struct] | None:
    """The struct that a field is, or that its items are."""
    for candidate in (kind, *getattr(kind, "__args__", ())):
        if is_table(candidate):
            assert issubclass(candidate, msgspec.Struct)
            return candidate
    return None


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.required:
        return msgspec.NODEFAULT
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return schema._public(value, "***")


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


def settings_table() -> str:
    rows = ["| Key | Default | Meaning |", "|---|---|---|"]
    for path, name, default, table in settings():
        shown = "required" if default is msgspec.NODEFAULT else f"`{msgspec.json.encode(default).decode()}`"
        shown = "unknown" if default is None else shown
        text = re.sub(r" (Default|Required)\b[^.:]*(?:\.(?=\d)[^.]*)?\.$", "", field_docs(table)[name])
        rows.append(f"| `{path}` | {shown} | {_cell(text)} |")
    return "\n".join(rows)


def registry_table() -> str:
    rows = ["| Name | Variable | Models |", "|---|---|---|"]
    for row in PROVIDER_REGISTRY:
        models = ", ".join(f"`{model.id}`" for model in row.models)
        rows += [f"| `{row.name}` | `{row.key_variable}` | {models} |"]
    return "\n".join(rows)


def served_methods() -> set[str]:
    """The names of all handlers in ``skynet.methods``, and ``connect``, which the handshake answers."""
    names = {"connect"}
    for module in pkgutil.iter_modules(skynet.methods.__path__):
        for _, namespace in inspect.getmembers(
            importlib.import_module(f"skynet.methods.{module.name}"), inspect.isclass
        ):
            for _, function in inspect.getmembers(namespace, inspect.isfunction):
                if name := getattr(function, _MARK, None):
                    names.add(name)
    return names


def methods_table() -> str:
    served = served_methods()
    rows = ["| Method | Needs | Served |", "|---|---|---|"]
    for name, spec in METHODS.items():
        needs = "role node" if spec.node_only else (spec.scope or "nothing").removeprefix("operator.")
        needs = "to be the first" if name == "connect" else needs
        rows.append(f"| `{name}` | {needs} | {'yes' if name in served else ''} |")
    return "\n".join(rows)


def events_table() -> str:
    rows = ["| Event | Needs | When a client does not read |", "|---|---|---|"]
    for name in EVENTS:
        needs = EVENT_SCOPES.get(name, "").removeprefix("operator.")
        fate = (
            "deltas are skipped" if name == "chat" else "skipped" if is_droppable(name, {}) else "the client is closed"
        )
        rows.append(f"| `{name}` | {needs} | {'' if name == 'connect.challenge' else fate} |")
    return "\n".join(rows)


GENERATED = (
    ("configuration.md", "registry", registry_table),
    ("configuration.md", "settings", settings_table),
    ("protocol.md", "methods", methods_table),
    ("protocol.md", "events", events_table),
)


def parts(text: str, mark: str) -> tuple[str, str, str]:
    """The text before the generated table, the table, and the text after it."""
    head, start, rest = text.partition(f"<!-- {mark} -->\n")
    table, end, tail = rest.partition("<!-- end -->")
    assert start and end, f"no {mark}"
    return head + start, table, end + tail


@pytest.mark.parametrize(("file", "mark", "table"), GENERATED)
def test_generated_tables_are_up_to_date(file: str, mark: str, table: Any) -> None:
    _, written, _ = parts((DOCS / file).read_text(), mark)
    assert written.strip() == table().strip(), "run: make docs"


def test_every_setting_is_documented_where_it_is_defined() -> None:
    for path, name, default, table in settings():
        text = field_docs(table).get(name, "")
        assert text, f"{path} has no docstring"
        assert "Required" in text if default is msgspec.NODEFAULT else "Default" in text, path
        if isinstance(default, int | float) and not isinstance(default, bool):
            assert f"{default:g}" in text or str(default) in text, path


def test_every_table_says_what_it_is() -> None:
    tables = {table for _, _, _, table in settings()}
    assert PriceConfig in tables
    assert all(table.__doc__ for table in tables)


class TestExample:
    """``skynet.example.toml`` loads, and has every key with its default."""

    def test_it_loads_and_changes_nothing(self, tmp_path: Path) -> None:
        env = {"SKYNET_HOME": str(tmp_path)}
        example = load_config(EXAMPLE, env=env)
        assert config_to_public(example) == config_to_public(load_config(None, env=env))
        assert example.warnings == ()

    def test_it_loads_with_every_line_in_force(self, tmp_path: Path) -> None:
        file = tmp_path / "all.toml"
        file.write_text(uncommented())
        config = load_config(file, env={"SKYNET_HOME": str(tmp_path), "OPENAI_API_KEY": "sk-1"})
        assert config.warnings == ()
        assert config.pools
        assert config.models.aliases

    def test_every_key_is_there_with_its_default(self) -> None:
        document = tomllib.loads(uncommented())
        illustrations = {"base_url", "id", "aliases", "pools", "input", "output", "max_output_tokens"}
        for path, name, default, table in settings():
            values = _values(document, re.split(r"\.|(?=\[\])", path))
            assert values, f"{path} is not in the example"
            if name not in illustrations or (name == "input" and table is not PriceConfig):
                assert default in values, f"{path}: the default is {default!r}, the example has {values}"


def uncommented() -> str:
    """The example with its commented settings in force."""
    return re.sub(r"(?m)^# ?(?=\[|[a-z_]+ = )", "", EXAMPLE.read_text())


def _values(node: Any, parts: list[str]) -> list[Any]:
    """What stands at a path, in which ``<name>`` is any key and ``[]`` any element."""
    if not parts:
        return [node]
    head, *rest = parts
    if head == "<name>":
        return [value for item in node.values() for value in _values(item, rest)]
    if head == "[]":
        return [value for item in node for value in _values(item, rest)]
    return _values(node[head], rest) if isinstance(node, dict) and head in node else []


class TestCommandLine:
    TEXT = (DOCS / "cli.md").read_text()

    def test_every_command_has_its_section(self) -> None:
        assert set(re.findall(r"(?m)^### `skynet ([^`]+)`$", self.TEXT)) == set(COMMANDS)

    def test_every_exit_code_is_in_the_table(self) -> None:
        rows = set(re.findall(r"(?m)^\| (\d+) \| ([A-Z_]+) \|", self.TEXT))
        assert rows == {(str(int(code)), code.name) for code in Exit}


async def test_every_table_of_the_database_is_named(tmp_path: Path) -> None:
    async with Database(tmp_path / "skynet.db") as db:
        await migrate(db, [USER_TABLES, MEMORY_TABLES])
        rows = await db.fetchall("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    text = (DOCS / "storage.md").read_text()
    documented = {name for row in re.findall(r"(?m)^\| (`[^|]*`) \|", text) for name in re.findall(r"`(\w+)`", row)}
    missing = {row[0] for row in rows} - documented
    assert not missing


@pytest.mark.parametrize("file", [*sorted(DOCS.glob("*.md")), ROOT / "README.md"], ids=lambda file: file.name)
def test_links_lead_somewhere(file: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", file.read_text()):
        assert (file.parent / target).exists(), target


def write_tables() -> None:
    for file, mark, table in GENERATED:
        head, _, tail = parts((DOCS / file).read_text(), mark)
        (DOCS / file).write_text(f"{head}{table()}\n{tail}")


if __name__ == "__main__":
    write_tables()
