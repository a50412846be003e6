"""``python -m bench.sandbox``: what a sandbox costs a command, as JSON: ``true`` in it and without it, by turns."""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from skynet_terminal.errors import SandboxUnavailable
from skynet_terminal.sandbox import Launch, Profile, Sandbox
from skynet_terminal.sandbox.choose import choose
from skynet_terminal.sandbox.unconfined import Unconfined

PAIRS = 100
WARM_UP = 10


async def once(sandbox: Sandbox, profile: Profile) -> float:
    """From the wish to run it to the time at which nothing of it is left, in milliseconds."""
    started = time.perf_counter()
    launch = await sandbox.prepare(profile, ["true"])
    try:
        _wait_for(launch)
    finally:
        await launch.release()
    return (time.perf_counter() - started) * 1000


def _wait_for(launch: Launch) -> None:
    process = subprocess.Popen(
        launch.argv,
        env=dict(launch.env),
        cwd=launch.cwd,
        pass_fds=tuple(launch.pass_fds),
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    launch.started(process.pid)
    process.communicate()
    if process.returncode != 0:
        raise SandboxUnavailable(f"true ended with status {process.returncode}")


async def measure(directory: Path, pairs: int = PAIRS) -> dict[str, float]:
    """The medians with and without, and that of the differences.

    Raises:
        SandboxUnavailable: bubblewrap does not work here.
    """
    folder = directory / "files"
    folder.mkdir()
    profile = Profile(folder=folder, env={"TOKEN": "x" * 40})
    confined, unconfined = await choose("bubblewrap", directory=directory / "sandbox"), Unconfined()
    found: list[tuple[float, float]] = []
    for number in range(WARM_UP + pairs):
        first, second = (confined, unconfined) if number % 2 == 0 else (unconfined, confined)
        times = {first.name: await once(first, profile), second.name: await once(second, profile)}
        if number >= WARM_UP:
            found.append((times[confined.name], times[unconfined.name]))
    return {
        "over_ms": statistics.median(inside - outside for inside, outside in found),
        "inside_ms": statistics.median(inside for inside, _ in found),
        "outside_ms": statistics.median(outside for _, outside in found),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sandbox", description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    with tempfile.TemporaryDirectory(prefix="skynet-bench-sandbox-") as name:
        try:
            print(json.dumps(asyncio.run(measure(Path(name), parser.parse_args().pairs))))
        except SandboxUnavailable as exc:
            print(exc, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
