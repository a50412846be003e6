"""``logs.tail``: the window, the cursor, and whose lines a person sees."""

import json
from typing import Any

import pytest

from tests.skynet.methods import shapes
from tests.skynet.methods.world import RefusedError, World


def write(world: World, *lines: str, mode: str = "ab") -> int:
    file = world.home / "logs" / "skynet.log"
    file.parent.mkdir(exist_ok=True)
    with file.open(mode) as opened:
        opened.write("".join(f"{line}\n" for line in lines).encode())
    return file.stat().st_size


async def tail(world: World, **params: Any) -> Any:
    result = await world.call(world.admin, "logs.tail", params)
    shapes.check(shapes.LOGS_TAIL, result)
    return result


async def test_no_file_yet(world: World) -> None:
    file = str(world.home / "logs" / "skynet.log")
    assert await tail(world) == {
        "file": file,
        "cursor": 0,
        "size": 0,
        "lines": [],
        "truncated": False,
        "reset": False,
    }


async def test_the_last_lines_and_what_follows(world: World) -> None:
    size = write(world, "a", "b", "c")
    first = await tail(world, limit=2)
    assert (first["lines"], first["cursor"], first["size"], first["truncated"]) == (["b", "c"], size, size, False)
    assert (await tail(world, cursor=size))["lines"] == []
    write(world, "d", "e")
    assert (await tail(world, cursor=size))["lines"] == ["d", "e"]


async def test_a_window_begins_with_a_whole_line(world: World) -> None:
    write(world, "aaaa", "bbbb", "cccc")
    cut = await tail(world, maxBytes=7)
    assert (cut["lines"], cut["truncated"], cut["reset"]) == (["cccc"], True, False)
    assert (await tail(world, maxBytes=5))["lines"] == ["cccc"]
    assert (await tail(world, maxBytes=3))["lines"] == []


async def test_a_cursor_that_fell_behind(world: World) -> None:
    write(world, *(f"line {number}" for number in range(100)))
    result = await tail(world, cursor=10, maxBytes=20)
    assert (result["lines"], result["truncated"], result["reset"]) == (["line 98", "line 99"], True, True)


async def test_a_rotated_file(world: World) -> None:
    size = write(world, "old", "older")
    write(world, "new", mode="wb")
    result = await tail(world, cursor=size)
    assert (result["lines"], result["reset"], result["truncated"]) == (["new"], True, False)


async def test_bytes_that_are_no_text(world: World) -> None:
    file = world.home / "logs" / "skynet.log"
    file.parent.mkdir()
    file.write_bytes(b"ok\n\xff\xfe\nunfinished")
    assert (await tail(world))["lines"] == ["ok", "\ufffd\ufffd", "unfinished"]


async def test_others_see_the_lines_about_themselves(world: World) -> None:
    def line(text: str, **fields: str) -> str:
        return json.dumps({"0": "{}", "1": text, **fields})

    write(
        world,
        line("start"),
        line("mine", userId=world.user.user_id, runId="r"),
        line("theirs", userId=world.admin.user_id),
        "not json " + world.user.user_id,
        json.dumps({"userId": [world.user.user_id]}),
    )
    result = await world.call(world.user, "logs.tail", {})
    shapes.check(shapes.LOGS_TAIL, result)
    assert [json.loads(text)["1"] for text in result["lines"]] == ["mine"]
    assert result["cursor"] == result["size"]
    assert (await world.call(world.child, "logs.tail"))["lines"] == []
    assert len((await tail(world))["lines"]) == 5


async def test_a_directory_is_no_log(world: World) -> None:
    (world.home / "logs" / "skynet.log").mkdir(parents=True)
    with pytest.raises(RefusedError, match=r"^log read failed: Is a directory$") as refused:
        await world.call(world.admin, "logs.tail")
    assert refused.value.error["code"] == "UNAVAILABLE"
