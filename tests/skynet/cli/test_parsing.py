"""The quick way into ``gateway run`` means what the command-line library would make of the same words."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest
from cyclopts import CycloptsError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skynet.cli import RunOptions, plain_run_options
from skynet.cli.app import build_app
from skynet.cli.run import run, run_options

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no failure


def slow_run_options(arguments: Sequence[str]) -> RunOptions | None:
    """What the library parses; None where it refuses, or is asked for help."""
    try:
        command, bound, _ = build_app().parse_args(
            ["gateway", "run", *arguments], exit_on_error=False, print_error=False
        )
    except CycloptsError:
        return None
    if command is not run:
        return None
    given_options = {"host": None, "port": None, "config": None, "verbose": False, **bound.arguments}
    return run_options(**given_options)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ([], {}),
        (["--port", "1"], {"port": 1}),
        (["--port=1", "--host=::1"], {"port": 1, "host": "::1"}),
        (["--config", "a b.toml", "-v"], {"config": "a b.toml", "verbose": True}),
        (["--verbose", "--host", "h"], {"verbose": True, "host": "h"}),
    ],
)
def test_plain_options(arguments: list[str], options: RunOptions) -> None:
    assert plain_run_options(arguments) == slow_run_options(arguments) == options


@pytest.mark.parametrize(
    "words",
    ["--help", "-h", "--port", "--port x", "--port -1", "--port=", "x", "--port 1 --port 2", "--verbose=1",
     "--host --port", "-- x", "--port 1_0", "--port \N{SUPERSCRIPT TWO}"],
)  # fmt: skip
def test_all_else_goes_to_the_library(words: str) -> None:
    assert plain_run_options(words.split()) is None


WORDS = [
    "--port",
    "--host",
    "--config",
    "--verbose",
    "-v",
    "--port=8",
    "--host=h",
    "8",
    "h",
    "70000",
    "-",
    "--",
    "--help",
]


@patient
@given(st.lists(st.sampled_from(WORDS), max_size=5))
def test_both_agree(arguments: list[str]) -> None:
    quick = plain_run_options(arguments)
    if quick is not None and quick.get("port", 0) <= 65535:
        assert slow_run_options(arguments) == quick


def test_the_quick_way_imports_nothing_it_does_not_use() -> None:
    program = (
        "import sys; import skynet.cli, skynet.cli.gateway, skynet.app; skynet.cli.plain_run_options(['--port', '1'])\n"
        "print(*sorted(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in result.stdout.split()}
    heavy = {"cyclopts", "rich", "prompt_toolkit", "httpx", "httpx2", "openai", "pydantic", "aiohttp", "argon2"}
    assert not loaded & heavy
