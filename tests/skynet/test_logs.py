"""The log file's lines, as OpenClaw's clients parse them, and what goes to stderr."""

import asyncio
import io
import json
import logging
import logging.handlers
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skynet import logs
from skynet.logs import configure_logging, log_context

log = logging.getLogger("skynet.gateway.runs")


@pytest.fixture(autouse=True)
def _restore_root() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = tuple(root.handlers), root.level
    levels = {name: logging.getLogger(name).level for name in (*logs._OWN, *logs._LOUD)}
    yield
    for handler in tuple(root.handlers):
        root.removeHandler(handler)
        if handler not in handlers:
            handler.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)
    for name, old in levels.items():
        logging.getLogger(name).setLevel(old)
    logging.captureWarnings(False)


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def parsed_by_command_line(line: dict[str, Any]) -> tuple[str, str, str]:
    """Level, subsystem and text as ``openclaw logs`` reads them: the text is every numbered key, joined."""
    text = " ".join(value for key, value in line.items() if key.isdigit())
    return line["_meta"]["logLevelName"].lower(), json.loads(line["_meta"]["name"])["subsystem"], text


def parsed_by_control_ui(line: dict[str, Any]) -> tuple[str, str, str]:
    """The same as the Control UI does: the subsystem from ``0`` or else the name, the text from ``1``."""
    context = json.loads(line.get("0", line["_meta"]["name"]))
    return line["_meta"]["logLevelName"].lower(), context["subsystem"], line["1"]


def test_line_shape(tmp_path: Path) -> None:
    configure_logging("info", tmp_path / "logs" / "skynet.log", stream=io.StringIO())
    log.info("run started: %s", "chat")
    (line,) = lines_of(tmp_path / "logs" / "skynet.log")
    assert set(line) == {"1", "_meta", "time"}
    assert parsed_by_command_line(line) == ("info", "gateway/runs", "run started: chat")
    assert parsed_by_control_ui(line) == ("info", "gateway/runs", "run started: chat")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])


@pytest.mark.parametrize(
    ("call", "name"), [("warning", "WARN"), ("critical", "FATAL"), ("error", "ERROR"), ("debug", "DEBUG")]
)
def test_levels_have_openclaws_names(tmp_path: Path, call: str, name: str) -> None:
    configure_logging("debug", tmp_path / "skynet.log", stream=io.StringIO())
    getattr(log, call)("x")
    assert lines_of(tmp_path / "skynet.log")[-1]["_meta"]["logLevelName"] == name


def test_subsystem_of_a_library(tmp_path: Path) -> None:
    configure_logging("info", tmp_path / "skynet.log", stream=io.StringIO())
    logging.getLogger("skynet_agent.router").info("x")
    assert parsed_by_command_line(lines_of(tmp_path / "skynet.log")[0])[1] == "agent/router"


def test_context_is_nested_and_ends(tmp_path: Path) -> None:
    configure_logging("info", tmp_path / "skynet.log", stream=io.StringIO())
    with log_context(conn_id="c1", user_id="u1"):
        with log_context(run_id="r1"):
            log.info("inner")
        log.info("outer")
    log.info("none")
    inner, outer, none = lines_of(tmp_path / "skynet.log")
    assert (inner["connId"], inner["userId"], inner["runId"]) == ("c1", "u1", "r1")
    assert "runId" not in outer and outer["connId"] == "c1"
    assert not {"connId", "userId", "runId"} & set(none)


def test_extra_wins_over_the_context(tmp_path: Path) -> None:
    configure_logging("info", tmp_path / "skynet.log", stream=io.StringIO())
    with log_context(user_id="u1"):
        log.info("x", extra={"user_id": "u2", "conn_id": ""})
    assert lines_of(tmp_path / "skynet.log")[0]["userId"] == "u2"


async def test_tasks_keep_the_context_they_started_in(tmp_path: Path) -> None:
    configure_logging("info", tmp_path / "skynet.log", stream=io.StringIO())

    async def work(name: str) -> None:
        with log_context(run_id=name):
            await asyncio.sleep(0)
            log.info("x")

    await asyncio.gather(work("r1"), work("r2"))
    assert sorted(line["runId"] for line in lines_of(tmp_path / "skynet.log")) == ["r1", "r2"]


def test_traceback_stays_in_its_line(tmp_path: Path) -> None:
    configure_logging("info", tmp_path / "skynet.log", stream=io.StringIO())
    try:
        raise ValueError("boom")
    except ValueError:
        log.exception("it failed")
    (line,) = lines_of(tmp_path / "skynet.log")
    assert line["1"].startswith("it failed\nTraceback") and line["1"].endswith("ValueError: boom")


def test_plain_lines_on_the_stream() -> None:
    stream = io.StringIO()
    configure_logging("info", stream=stream)
    with log_context(run_id="r1"):
        log.warning("slow")
    assert re.fullmatch(r"\d\d:\d\d:\d\d warning gateway/runs: slow run=r1\n", stream.getvalue())


def test_a_message_cannot_forge_a_line(tmp_path: Path) -> None:
    stream = io.StringIO()
    configure_logging("info", tmp_path / "skynet.log", stream=stream)
    with log_context(run_id="r\n12:00:00 error auth: forged\x1b[2J"):
        log.info("client %s", "x\n12:00:00 error auth: forged\x1b[2J")
    assert stream.getvalue().count("\n") == 1 and "\x1b" not in stream.getvalue()
    assert len(lines_of(tmp_path / "skynet.log")) == 1


def test_an_exception_cannot_forge_a_line() -> None:
    stream = io.StringIO()
    configure_logging("info", stream=stream)
    try:
        raise ValueError("x\n12:00:00 error auth: forged\x1b[2J")
    except ValueError:
        log.exception("it failed")
    first, *others = stream.getvalue().splitlines()
    assert first.endswith("it failed")
    assert others and all(line.startswith("  ") for line in others) and "\x1b" not in stream.getvalue()


def test_a_lone_surrogate_is_written(tmp_path: Path) -> None:
    configure_logging("info", tmp_path / "skynet.log", stream=io.StringIO())
    log.info("file %s", "a\udcff")
    assert lines_of(tmp_path / "skynet.log")[0]["1"] == "file a?"


def test_below_the_level_nothing_is_written(tmp_path: Path) -> None:
    stream = io.StringIO()
    configure_logging("info", tmp_path / "skynet.log", stream=stream)
    log.debug("what a person wrote")
    assert stream.getvalue() == "" and (tmp_path / "skynet.log").read_text() == ""


def test_files_are_private_and_rotate(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "skynet.log"
    configure_logging("info", file, stream=io.StringIO(), rotate_bytes=2000)
    for index in range(40):
        log.info("line %d", index)
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    rotated = [file, file.with_name("skynet.log.1"), file.with_name("skynet.log.2")]
    for path in rotated:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert 0 < path.stat().st_size <= 2000
    assert lines_of(file)[-1]["1"] == "line 39"
    assert len(list(file.parent.iterdir())) <= logs.KEPT_FILES + 1


def test_a_second_call_replaces_the_first(tmp_path: Path) -> None:
    first, second = io.StringIO(), io.StringIO()
    configure_logging("info", tmp_path / "a.log", stream=first)
    configure_logging("info", tmp_path / "b.log", stream=second)
    log.info("x")
    assert first.getvalue() == "" and second.getvalue()
    assert (tmp_path / "a.log").read_text() == "" and len(lines_of(tmp_path / "b.log")) == 1


@pytest.mark.parametrize("level", ["debug", "info", "error"])
def test_libraries_are_heard_from_warnings_on(tmp_path: Path, level: str) -> None:
    configure_logging(level, tmp_path / "skynet.log", stream=io.StringIO())
    for name in ("asyncio", "uvicorn.error", "websockets.server", "aiosqlite", "google.auth", "urllib3.connectionpool"):
        logging.getLogger(name).debug("a token")
        logging.getLogger(name).info("a token")
        logging.getLogger(name).error("broken")
    assert [line["1"] for line in lines_of(tmp_path / "skynet.log")] == ["broken"] * 6


def test_debug_does_not_write_down_the_credentials_that_aws_gives(tmp_path: Path) -> None:
    from botocore.parsers import create_parser  # type: ignore[import-untyped]
    from botocore.session import Session  # type: ignore[import-untyped]

    configure_logging("debug", tmp_path / "skynet.log", stream=io.StringIO())
    shape = Session().get_service_model("sts").operation_model("AssumeRole").output_shape
    body = b"<AssumeRoleResponse><AssumeRoleResult><Credentials><SecretAccessKey>hush</SecretAccessKey></Credentials>"
    body += b"</AssumeRoleResult></AssumeRoleResponse>"
    answer = create_parser("query").parse({"body": body, "headers": {}, "status_code": 200}, shape)
    assert answer["Credentials"]["SecretAccessKey"] == "hush"
    log.debug("the gateway's own")
    assert "hush" not in (tmp_path / "skynet.log").read_text()
    assert [line["1"] for line in lines_of(tmp_path / "skynet.log")] == ["the gateway's own"]


async def test_debug_does_not_write_down_what_is_stored(tmp_path: Path) -> None:
    from skynet_memory.database import Database

    configure_logging("debug", tmp_path / "skynet.log", stream=io.StringIO())
    async with Database(tmp_path / "x.db") as db, db.transaction() as tx:
        await tx.execute("SELECT ?", ("what somebody said",))
    assert "what somebody said" not in (tmp_path / "skynet.log").read_text()
