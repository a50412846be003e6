"""The rows of the table: what is measured, in which unit, and its budget."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Row:
    """``better`` says on which side of ``budget`` a value has to be."""

    id: str
    stage: str
    what: str
    unit: str
    better: Literal["less", "more"]
    budget: float
    digits: int = 0

    def passes(self, value: float) -> bool:
        return value <= self.budget if self.better == "less" else value >= self.budget

    def times_better(self, value: float, other: float) -> float:
        """How many times ``value`` is better than ``other``."""
        return other / value if self.better == "less" else value / other

    def text(self, value: float) -> str:
        return f"{value:,.{self.digits}f} {self.unit}".rstrip()

    @property
    def budget_text(self) -> str:
        return f"{'≤' if self.better == 'less' else '≥'} {self.text(self.budget)}"


APIS = ("openai-completions", "openai-responses", "anthropic-messages", "ollama", "bedrock", "vertex", "vertex-claude")
"""The providers of ``labs.py``, each with two rows."""


def _of_api(name: str) -> tuple[Row, Row]:
    return (
        Row(f"{name}-chunk", "providers", f"{name}: processor time of a chunk", "µs", "less", 25, 1),
        Row(f"{name}-first", "providers", f"{name}: first delta, over the model's own", "ms", "less", 2, 2),
    )


ROWS = (
    Row("start", "start", "exec to first answered /health", "s", "less", 0.45, 2),
    Row("start-five", "start", "the same with five providers and a pool", "s", "less", 0.45, 2),
    Row("memory", "memory", "idle memory, one provider configured", "MB", "less", 70),
    Row("memory-five", "memory", "the same with five providers and a pool", "MB", "less", 70),
    Row("connection", "memory", "memory for an idle connection", "KB", "less", 40, 1),
    Row("health", "rpc", "health, 8 connections × 8 in flight", "/s", "more", 45_000),
    Row("list", "rpc", "sessions.list, 40 sessions", "/s", "more", 20_000),
    Row("health-stored", "rpc", "health with 10,000 sessions: share of that rate", "", "more", 0.8, 2),
    Row("list-stored", "rpc", "sessions.list, 50 of 10,000: share of 50 of 50", "", "more", 0.8, 2),
    Row("turns", "turns", "chat.send turns of 100 tokens, 20 connections", "/s", "more", 150, 1),
    Row("turn-cpu", "turns", "processor time of such a turn", "ms", "less", 6, 2),
    Row("first", "turns", "first delta, over the model's own", "ms", "less", 6, 2),
    Row("stream", "stream", "/v1 streams of 100 tokens, 20 connections", "/s", "more", 150, 1),
    *(row for name in APIS for row in _of_api(name)),
    Row("sandbox", "sandbox", "`true` in the sandbox, over the same without", "ms", "less", 15, 1),
    Row("search-one-p50", "search", "memory.search among 100,000 of one person, p50", "ms", "less", 2, 2),
    Row("search-one-p99", "search", "the same, p99", "ms", "less", 10, 2),
    Row("search-many-p50", "search", "among 1,000 people's 1,000 each, p50", "ms", "less", 2, 2),
    Row("search-many-p99", "search", "the same, p99", "ms", "less", 10, 2),
    Row("learn-one", "search", "learning one more with 100,000", "ms", "less", 2, 2),
    Row("learn-many", "search", "learning one more with a million of others", "ms", "less", 2, 2),
    Row("forget-one", "search", "forgetting one of 100,000 without a trace", "ms", "less", 250),
    Row("forget-many", "search", "forgetting one of 1,000 beside a million", "ms", "less", 500),
    Row("hit-5", "search", "questions answered by the first 5 hits", "%", "more", 85, 1),
    Row("hit-10", "search", "by the first 10", "%", "more", 90, 1),
    Row("hit-20", "search", "by the first 20", "%", "more", 90, 1),
)
STAGES = tuple(dict.fromkeys(row.stage for row in ROWS))
