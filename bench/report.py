"""The table for people and the same as JSON."""

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.rows import Row
from bench.stages import Measured

BUSY = 0.1
"""Processors in use by others from which on figures are doubtful."""

Found = Mapping[str, Mapping[str, Measured]]


def value_of(measured: Measured | None) -> float | None:
    """The median of the samples; None if there are none, or if any of them failed."""
    if measured is None or measured.failure or not measured.samples:
        return None
    return statistics.median(measured.samples)


def passed(row: Row, found: Found, ours: str) -> bool:
    value = value_of(found.get(row.id, {}).get(ours))
    return value is not None and row.passes(value)


def table(rows: Sequence[Row], found: Found, names: Sequence[str]) -> str:
    """Return the table: ours with budget and verdict, then each peer with how many times better ours is."""
    ours, *peers = names
    lines = [["", ours, "budget", "", *(cell for peer in peers for cell in (peer, "better by"))]]
    for row in rows:
        verdict = "pass" if passed(row, found, ours) else "MISS"
        line = [row.what, _cell(row, found, ours), row.budget_text, verdict]
        for peer in peers:
            times = _times_better(row, found, ours, peer)
            line += [_cell(row, found, peer), "-" if times is None else f"× {times:.1f}"]
        lines.append(line)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in (0, 3) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _cell(row: Row, found: Found, name: str) -> str:
    measured = found.get(row.id, {}).get(name)
    value = value_of(measured)
    if value is not None:
        return row.text(value)
    return "failed" if measured is not None and measured.failure else "-"


def footer(measured_on: Mapping[str, Any]) -> str:
    """Return the line under the table: what it was measured on, and a warning if others worked there too."""
    line = (
        f"{measured_on['processors']} processors, Python {measured_on['python']}, medians of {measured_on['repeat']}"
        f" samples, rates over {measured_on['seconds']:g} s"
    )
    others = measured_on["others_busy"]
    return line if others < BUSY else f"{line}; doubtful: others used {others:.2f} processors meanwhile"


def failures(found: Found) -> list[str]:
    return [
        f"{name}: {row}: {measured.failure}"
        for row, measured_by in found.items()
        for name, measured in measured_by.items()
        if measured.failure
    ]


def machine() -> dict[str, Any]:
    return {
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
    }


def report(rows: Sequence[Row], found: Found, names: Sequence[str], measured_on: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that was measured, ready for JSON."""
    ours, *peers = names
    return {
        "machine": dict(measured_on),
        "passed": all(passed(row, found, ours) for row in rows),
        "rows": [
            {
                "id": row.id,
                "what": row.what,
                "unit": row.unit,
                "better": row.better,
                "budget": row.budget,
                "passed": passed(row, found, ours),
                "gateways": {name: _measured(row, found, name) for name in names},
                "times_better": {peer: _times_better(row, found, ours, peer) for peer in peers},
            }
            for row in rows
        ],
    }


def _measured(row: Row, found: Found, name: str) -> dict[str, Any]:
    measured = found.get(row.id, {}).get(name, Measured())
    return {
        "value": value_of(measured),
        "samples": measured.samples,
        "details": measured.details,
        "failure": measured.failure or None,
    }


def _times_better(row: Row, found: Found, ours: str, peer: str) -> float | None:
    """None where one of them has no value, and for shares, which are comparisons already."""
    value, other = value_of(found.get(row.id, {}).get(ours)), value_of(found.get(row.id, {}).get(peer))
    return None if value is None or not other or not row.unit else row.times_better(value, other)
