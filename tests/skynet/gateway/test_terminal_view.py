"""Commands, jobs and terminals as clients see them."""

from dataclasses import replace

import msgspec
import pytest

from skynet.gateway.command_desk import ExecOutcome
from skynet.gateway.terminal_view import exec_result, job_of, output_of
from skynet_memory.ids import UserId
from skynet_terminal.capture import HEAD_BYTES, LONGEST_TEXT, NOTHING, TAIL_BYTES, Capture, Captured
from skynet_terminal.commands import CommandResult
from skynet_terminal.jobs import Job, JobOutput


def captured(text: str) -> Captured:
    capture = Capture()
    capture.write(text.encode())
    return capture.captured()


def outcome(output: str) -> ExecOutcome:
    result = CommandResult(
        stdout=captured(output),
        stderr=NOTHING,
        output=captured(output),
        exit_code=0,
        signal="",
        timed_out=False,
        overrun="",
        duration_ms=5,
    )
    return ExecOutcome(result=result, sandbox="none")


@pytest.mark.parametrize("length", [0, 1, LONGEST_TEXT - 1, LONGEST_TEXT])
def test_what_fits_is_whole(length: int) -> None:
    seen = exec_result(outcome("🙂" * length))
    assert (seen.output, seen.truncated, seen.omitted_chars) == ("🙂" * length, False, 0)


@pytest.mark.parametrize("length", [LONGEST_TEXT + 1, 100_000, (HEAD_BYTES + TAIL_BYTES) // 4 + 1000])
def test_of_what_does_not_it_is_told_how_much_is_missing(length: int) -> None:
    """SK-180: also where not all of it was kept."""
    seen = exec_result(outcome("🙂" * length))
    assert seen.truncated
    assert seen.output.count("🙂") + seen.omitted_chars == length


def test_a_command_cannot_say_that_something_is_missing() -> None:
    seen = exec_result(outcome("x\n[… 7 characters left out …]\ny"))
    assert (seen.truncated, seen.omitted_chars) == (False, 0)


def test_control_sequences_are_only_where_they_are_asked_for() -> None:
    plain, raw = (exec_result(outcome("\x1b[1mx\x1b[0m"), raw=each) for each in (False, True))
    assert plain.stdout == raw.stdout == plain.output == "x"
    assert "raw" not in msgspec.to_builtins(plain)
    assert msgspec.to_builtins(raw)["raw"] == {"stdout": "\x1b[1mx\x1b[0m", "stderr": ""}


def test_jobs() -> None:
    job = Job(
        id="j",
        owner=UserId("u"),
        command="true",
        title="",
        cwd="/files",
        sandbox="none",
        timeout_ms=None,
        status="running",
        started_at_ms=1,
    )
    assert msgspec.to_builtins(job_of(job)) == {
        "jobId": "j",
        "command": "true",
        "cwd": "/files",
        "sandbox": "none",
        "status": "running",
        "startedAt": 1,
        "outputBytes": 0,
    }
    ended = replace(job, status="failed", signal="SIGKILL", note="why", ended_at_ms=2, stdout_bytes=3, stderr_bytes=4)
    told = msgspec.to_builtins(job_of(ended))
    assert {name: told[name] for name in ("signal", "note", "endedAt", "outputBytes")} == {
        "signal": "SIGKILL",
        "note": "why",
        "endedAt": 2,
        "outputBytes": 7,
    }
    piece = JobOutput(data=b"\xff\n", cursor=2, dropped=0, ended=True)
    assert msgspec.to_builtins(output_of(piece, ended)) == {
        "data": "\N{REPLACEMENT CHARACTER}\n",
        "cursor": 2,
        "dropped": 0,
        "ended": True,
        "signal": "SIGKILL",
    }
