"""The params of ``terminal.*``: closed, bounded, and named in what is wrong with them."""

import time

import msgspec
import pytest

from skynet_protocol import terminal
from skynet_protocol.errors import RequestError
from skynet_protocol.params import Params, decode_params


def refusal(params: type[Params], raw: object) -> str | None:
    try:
        decode_params(msgspec.json.encode(raw), msgspec.json.Decoder(params), "m")
    except RequestError as error:
        return error.message.removeprefix("invalid m params: ")
    return None


@pytest.mark.parametrize(
    ("params", "raw", "told"),
    [
        (terminal.TerminalExecParams, {}, "must have required property 'command'"),
        (terminal.TerminalExecParams, {"command": " \n"}, "at /command: must match pattern"),
        (terminal.TerminalExecParams, {"command": "ls\0"}, "at /command: must match pattern"),
        (terminal.TerminalExecParams, {"command": "x" * 65_537}, "at /command: must NOT have more than 65536 char"),
        (terminal.TerminalExecParams, {"command": "ls", "timeoutMs": 300_001}, "at /timeoutMs: must be <= 300000"),
        (terminal.TerminalExecParams, {"command": "ls", "timeoutMs": 0}, "at /timeoutMs: must be >= 1"),
        (terminal.TerminalExecParams, {"command": "ls", "host": "moon"}, "at /host: "),
        (terminal.TerminalExecParams, {"command": "ls", "force": True}, "at root: unexpected property 'force'"),
        (terminal.TerminalExecParams, {"command": "ls", "skipSafety": True}, "unexpected property 'skipSafety'"),
        (terminal.TerminalExecParams, {"command": ["ls"]}, "at /command: must be string"),
        (terminal.TerminalCreateParams, {"cols": 0}, "at /cols: must be >= 1"),
        (terminal.TerminalCreateParams, {"rows": 1001}, "at /rows: must be <= 1000"),
        (terminal.TerminalCreateParams, {"env": {"A B": "x"}}, "at /env"),
        (terminal.TerminalCreateParams, {"env": {"A": "x\0"}}, "at /env"),
        (terminal.TerminalReadParams, {"terminalId": "t", "waitMs": 30_001}, "at /waitMs: must be <= 30000"),
        (terminal.TerminalReadParams, {"terminalId": "t", "cursor": -1}, "at /cursor: must be >= 0"),
        (terminal.TerminalSignalParams, {"terminalId": "t", "signal": "SEGV"}, "at /signal: "),
        (terminal.TerminalJobListParams, {"limit": 201}, "at /limit: must be <= 200"),
    ],
)
def test_what_is_wrong_is_named(params: type[Params], raw: object, told: str) -> None:
    assert told in (refusal(params, raw) or "")


def test_defaults() -> None:
    created = decode_params(None, msgspec.json.Decoder(terminal.TerminalCreateParams), "m")
    assert (created.cols, created.rows) == (220, 50)
    assert refusal(terminal.TerminalExecParams, {"command": " ls -l\n", "timeoutMs": 300_000}) is None
    assert refusal(terminal.TerminalCreateParams, {"env": {"_A1": "x"}, "cwd": "sub dir"}) is None


def test_nothing_makes_the_check_of_a_command_slow() -> None:
    started = time.process_time()
    for text in (" " * 65_536, "x" * 65_535 + "\0", " " * 65_535 + "\0", "x " * 32_767 + "\0"):
        assert refusal(terminal.TerminalExecParams, {"command": text}) is not None
    assert time.process_time() - started < 2


def test_results_leave_out_what_is_not_there_and_say_null_where_there_is_no_exit_code() -> None:
    result = terminal.TerminalExecResult(
        stdout="",
        stderr="",
        output="",
        exit_code=None,
        signal="KILL",
        timed_out=True,
        duration_ms=1,
        truncated=False,
        omitted_chars=0,
        sandbox="none",
    )
    assert msgspec.json.decode(msgspec.json.encode(result)) == {
        "stdout": "",
        "stderr": "",
        "output": "",
        "exitCode": None,
        "signal": "KILL",
        "timedOut": True,
        "durationMs": 1,
        "truncated": False,
        "omittedChars": 0,
        "sandbox": "none",
    }
