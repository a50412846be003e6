"""``skynet memory``: what the assistant remembers, yours or somebody else's."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from skynet.cli.client import open_client
from skynet.cli.errors import CliError, Exit
from skynet.cli.output import ago, is_terminal, print_json, print_notice, print_table, printable
from skynet.cli.people import usage, user_params
from skynet.cli.target import NO_OPTIONS, Options, find_target
from skynet_memory.ids import now_ms

Category = Literal["instruction", "preference", "fact", "context"]
CategoryOption = Annotated[Category | None, Parameter(help="Only these.")]
User = Annotated[
    str, Parameter(name="--user", help="Somebody else's, who is told of it. For admins.", show_default=False)
]

IMPORTED_AT_ONCE = 500
DAY_MS = 86_400_000


async def search(
    query: Annotated[str, Parameter(help="Words to look for.")],
    /,
    *,
    limit: Annotated[int, Parameter(help="How many, best first.", validator=Number(gte=1, lte=50))] = 10,
    category: CategoryOption = None,
    user: User = "",
    options: Options = NO_OPTIONS,
) -> None:
    """Search what is remembered."""
    async with open_client(find_target(options)) as client:
        params = {"query": query, "limit": limit, **_category(category), **await user_params(client, user)}
        result = await client.request("memory.search", params)
    _print(result, result["memories"], options.json)


async def list_memories(
    *,
    limit: Annotated[int, Parameter(help="How many, newest first.", validator=Number(gte=1, lte=200))] = 50,
    category: CategoryOption = None,
    user: User = "",
    options: Options = NO_OPTIONS,
) -> None:
    """List what is remembered, newest first."""
    async with open_client(find_target(options)) as client:
        params = {"limit": limit, **_category(category), **await user_params(client, user)}
        result = await client.request("memory.list", params)
    _print(result, result["memories"], options.json)
    if not options.json and is_terminal() and result.get("next"):
        print_notice(f"{len(result['memories'])} of {result['total']}; see --limit and --category")


async def learn(
    key: Annotated[str, Parameter(help="A short name for it. What is remembered under this name is replaced.")],
    value: Annotated[str, Parameter(help="What to remember.")],
    /,
    *,
    category: Annotated[Category, Parameter(help="What kind of thing it is.")] = "fact",
    confidence: Annotated[
        float, Parameter(help="How sure it is. Something surer is not replaced.", validator=Number(gte=0, lte=1))
    ] = 0.8,
    importance: Annotated[
        float, Parameter(help="The more important is shown to the model first.", validator=Number(gte=0, lte=1))
    ] = 0.5,
    tag: Annotated[tuple[str, ...], Parameter(help="A tag; once for each.", negative=(), show_default=False)] = (),
    days: Annotated[float | None, Parameter(help="Forget it after so many days.", validator=Number(gt=0))] = None,
    user: User = "",
    options: Options = NO_OPTIONS,
) -> None:
    """Have something remembered."""
    params: dict[str, Any] = {
        "category": category,
        "key": key,
        "value": value,
        "confidence": confidence,
        "importance": importance,
        "tags": list(tag),
    }
    if days is not None:
        params["expiresAt"] = now_ms() + int(days * DAY_MS)
    async with open_client(find_target(options)) as client:
        result = await client.request("memory.learn", params | await user_params(client, user))
    if options.json:
        print_json(result)
        return
    memory = result["memory"]
    reason = f" ({result['reason']})" if "reason" in result else ""
    print(printable(f"{result['outcome']}: {memory['key']}: {memory['value']}{reason}"))


async def forget(
    key: Annotated[str, Parameter(help="The name, or the id, of a memory.", show_default=False)] = "",
    /,
    *,
    everything: Annotated[
        bool, Parameter(name="--all", help="Everything that is remembered.", negative=(), show_default=False)
    ] = False,
    yes: Annotated[bool, Parameter(help="Do not ask before --all.", negative=(), show_default=False)] = False,
    user: User = "",
    options: Options = NO_OPTIONS,
) -> None:
    """Erase a memory for good."""
    if bool(key) == everything:
        raise usage("name one memory, or --all", "see: skynet memory list")
    if everything and not yes:
        _confirm(f"Erase everything that is remembered about {user or 'you'}?")
    name = {"all": True} if everything else {"id" if _is_id(key) else "key": key}
    async with open_client(find_target(options)) as client:
        result = await client.request("memory.forget", name | await user_params(client, user))
    if options.json:
        print_json(result)
        return
    print(f"forgot {_count(result['forgotten'])}" if everything else printable(f"forgot {key}"))


async def show(*, user: User = "", options: Options = NO_OPTIONS) -> None:
    """Print what the assistant is told of you with every message, letter for letter."""
    async with open_client(find_target(options)) as client:
        result = await client.request("memory.show", await user_params(client, user))
    if options.json:
        print_json(result)
        return
    if result["text"]:
        print(printable(result["text"]))
    elif is_terminal():
        print_notice("nothing")


async def export(
    file: Annotated[Path | None, Parameter(help="Where to write it; standard output if left out.")] = None,
    /,
    *,
    user: User = "",
    options: Options = NO_OPTIONS,
) -> None:
    """Write everything that is remembered as JSON, for `memory import`."""
    memories: list[Any] = []
    async with open_client(find_target(options)) as client:
        params = await user_params(client, user)
        page = await client.request("memory.export", params)
        memories += page["memories"]
        while "next" in page:
            page = await client.request("memory.export", params | {"after": page["next"]})
            memories += page["memories"]
    document = {"memories": memories}
    if file is None:
        print_json(document)
        return
    _write(file, msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    if options.json:
        print_json({"file": str(file), "count": len(memories)})
        return
    print(f"wrote {_count(len(memories))} to {file}")


async def import_memories(
    file: Annotated[
        Path, Parameter(help="What `memory export` wrote; - reads standard input.", allow_leading_hyphen=True)
    ],
    /,
    *,
    user: User = "",
    options: Options = NO_OPTIONS,
) -> None:
    """Have everything remembered that a file holds. What is known and surer stays."""
    memories = _read(file)
    total = dict.fromkeys(("added", "updated", "unchanged", "kept"), 0)
    async with open_client(find_target(options)) as client:
        params = await user_params(client, user)
        for start in range(0, len(memories), IMPORTED_AT_ONCE):
            part = memories[start : start + IMPORTED_AT_ONCE]
            try:
                result = await client.request("memory.import", {"memories": part, **params})
            except CliError as exc:
                exc.hint = f"the {start} before were imported" if start else exc.hint
                raise
            for name in total:
                total[name] += result[name]
    if options.json:
        print_json(total)
        return
    print(", ".join(f"{count} {name}" for name, count in total.items()))


def _category(category: Category | None) -> dict[str, Any]:
    return {} if category is None else {"category": category}


def _print(result: Any, memories: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(result)
        return
    print_table(("key", "value", "category", "sure", "from", "changed"), [_row(memory) for memory in memories])


def _row(memory: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(memory["key"]),
        str(memory["value"]),
        str(memory["category"]),
        f"{memory['confidence']:.0%}",
        {"user_said": "said", "inferred": "inferred", "admin_set": "an admin"}.get(memory["source"], ""),
        ago(memory["updatedAt"], now_ms()),
    )


def _count(memories: int) -> str:
    return "1 memory" if memories == 1 else f"{memories} memories"


def _is_id(text: str) -> bool:
    """A UUID, as ids are; keys may be anything else."""
    parts = text.split("-")
    return [len(part) for part in parts] == [8, 4, 4, 4, 12] and all(
        char in "0123456789abcdef" for part in parts for char in part
    )


def _confirm(question: str) -> None:
    if not is_terminal(sys.stdin):
        raise usage("not confirmed: nobody is there to ask", "add --yes")
    print_notice(f"{question} [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CliError("not confirmed: nothing was erased", code="not_confirmed")


def _write(file: Path, data: bytes) -> None:
    """Only for the eyes of whoever asked: it holds what is private."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            os.fchmod(descriptor, 0o600)
            out.write(data)
    except OSError as exc:
        raise CliError(f"{file}: {exc.strerror}", exit_code=Exit.USAGE, code="file") from exc


def _read(file: Path) -> list[Any]:
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        document = msgspec.json.decode(data)
    except OSError as exc:
        raise CliError(f"{file}: {exc.strerror}", exit_code=Exit.USAGE, code="file") from exc
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise CliError(f"{file}: is no JSON: {exc}", exit_code=Exit.USAGE, code="file") from exc
    memories = document.get("memories") if isinstance(document, dict) else document
    if not isinstance(memories, list):
        raise CliError(
            f'{file}: holds no "memories"', exit_code=Exit.USAGE, code="file", hint="see: skynet memory export"
        )
    return memories
