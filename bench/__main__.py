"""``python -m bench``: measure the gateway against its budgets, if asked beside a peer; see README.md."""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from bench import report, usage
from bench.peers import PEERS, ROOT, SKYNET
from bench.process import Child, StartError
from bench.rows import ROWS
from bench.stages import STAGES, Bench

MODEL_SERVER_TIMEOUT_S = 20.0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", metavar="STAGES", help=f"some of {','.join(STAGES)}, separated by commas")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one sample of a rate (default: 2)")
    parser.add_argument("--repeat", type=int, default=3, help="samples of each row; the median counts (default: 3)")
    parser.add_argument("--peer", choices=sorted(PEERS), help="measure this gateway too, in pairs with ours")
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="the report as JSON to FILE, or instead of the table"
    )
    arguments = parser.parse_args(argv)
    chosen = arguments.only.split(",") if arguments.only else list(STAGES)
    if unknown := [stage for stage in chosen if stage not in STAGES]:
        parser.error(f"unknown stage {unknown[0]!r}, choose from {', '.join(STAGES)}")
    if arguments.seconds <= 0 or arguments.repeat < 1:
        parser.error("--seconds and --repeat must be positive")
    arguments.stages = chosen
    return arguments


def _terminate(_signum: int, _frame: FrameType | None) -> None:
    """Ending by SIGTERM leaves by the same door as ctrl-C, past everything that ends what was started."""
    raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if every budget is met, 1 if not, 2 if nothing could be measured."""
    arguments = _arguments(argv)
    signal.signal(signal.SIGTERM, _terminate)
    started = time.monotonic()

    def progress(line: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {line}", file=sys.stderr, flush=True)

    contenders = (SKYNET,) if arguments.peer is None else (SKYNET, PEERS[arguments.peer])
    others_cpu_s = usage.others_cpu_s()
    with tempfile.TemporaryDirectory(prefix="skynet-bench-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        command = (sys.executable, "-m", "tests.support.model_server", "--port", "0")
        try:
            with Child(command, env=os.environ, cwd=ROOT, log=directory / "model.log") as server:
                port = int(server.wait_for_output(r"http://127\.0\.0\.1:(\d+)/", MODEL_SERVER_TIMEOUT_S)[1])
                bench = Bench(contenders, directory, port, arguments.seconds, arguments.repeat, progress)
                for stage in arguments.stages:
                    STAGES[stage](bench)
        except StartError as exc:
            print(exc, file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            return 130
    measured_on = report.machine() | {
        "seconds": arguments.seconds,
        "repeat": arguments.repeat,
        "others_busy": (usage.others_cpu_s() - others_cpu_s) / (time.monotonic() - started),
    }
    rows = [row for row in ROWS if row.stage in arguments.stages]
    names = [peer.name for peer in contenders]
    result = report.report(rows, bench.found, names, measured_on)
    if arguments.json is not None:
        text = json.dumps(result, indent=2, ensure_ascii=False)
        if arguments.json == "-":
            print(text)
        else:
            Path(arguments.json).write_text(text + "\n")
    if arguments.json != "-":
        print(report.table(rows, bench.found, names))
        print(report.footer(measured_on))
    for failure in report.failures(bench.found):
        print(failure, file=sys.stderr)
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
