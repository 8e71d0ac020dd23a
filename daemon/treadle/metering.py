"""What is counted of one server's calls (floor 4). A reload hands the counts on to its next supervisor."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, Final

from treadle.errors import CallFault, CallTimedOut, Cancelled, Fault, failure_code
from treadle.wire.messages import CallResult

_WINDOW: Final = 1024

OUTCOMES: Final = ("ok", "tool_error", "failed", "timed_out", "cancelled", "refused")
OK, TOOL_ERROR, FAILED, TIMED_OUT, CANCELLED, REFUSED = range(len(OUTCOMES))

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the latency histogram's buckets, in seconds; a last bucket has no bound."""

MOST_TOOLS: Final = 256
"""Tools of a server that are counted each by its name; a name that no listing had is counted as :data:`OTHER`."""
OTHER: Final = "(other)"


class Meter:
    """Counts of outcomes, in all and by tool, and the latencies of the answered calls."""

    __slots__ = ("_at", "_latencies", "_other", "_tools", "buckets", "refusals", "restarts", "stragglers", "sum_s")

    def __init__(self) -> None:
        self.restarts = 0
        self.stragglers = 0
        self.refusals: dict[str, int] = {}
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0
        self._other = [0] * len(OUTCOMES)
        self._tools: dict[str, list[int]] = {}
        self._latencies: list[float] = []
        self._at = 0

    def know(self, tools: Iterable[str]) -> None:
        """Count these tools by their names, :data:`MOST_TOOLS` at the most: callers may make up any name."""
        for tool in tools:
            if len(self._tools) >= MOST_TOOLS:
                return
            if tool not in self._tools:
                self._tools[tool] = [0] * len(OUTCOMES)

    def answered(self, result: CallResult, seconds: float, tool: str) -> None:
        """One call of ``tool`` was answered with a result after ``seconds``."""
        self._tools.get(tool, self._other)[TOOL_ERROR if result.is_error else OK] += 1
        self.buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds
        if len(self._latencies) < _WINDOW:
            self._latencies.append(seconds)
        else:
            self._latencies[self._at] = seconds
            self._at = (self._at + 1) % _WINDOW

    def failed_with(self, fault: Fault, tool: str) -> None:
        """One call of ``tool`` ended in ``fault``."""
        if isinstance(fault, CallTimedOut):
            outcome = TIMED_OUT
        elif isinstance(fault, Cancelled):
            outcome = CANCELLED
        elif isinstance(fault, CallFault) and fault.outcome == "not_sent":
            outcome = REFUSED
            code = failure_code(fault)
            self.refusals[code] = self.refusals.get(code, 0) + 1
        else:
            outcome = FAILED
        self._tools.get(tool, self._other)[outcome] += 1

    def calls(self) -> dict[str, int]:
        """The key ``calls`` of the shape ``server`` (socket page)."""
        counts = zip(*self._tools.values(), self._other, strict=True)
        return dict(zip(OUTCOMES, map(sum, counts), strict=True))

    def latency_ms(self) -> dict[str, float]:
        """Percentiles of the newest 1024 answered calls in milliseconds; 0.0 when none was answered yet."""
        ordered = sorted(self._latencies) or [0.0]
        last = len(ordered) - 1
        return {f"p{p}": round(ordered[round(last * p / 100)] * 1000, 3) for p in (50, 95, 99)}

    def metrics(self) -> dict[str, Any]:
        """All counters as plain values, for :mod:`treadle.metrics`; a tool that was never called is left out."""
        tools = {OTHER: self._other, **self._tools}
        return {
            "tools": {
                tool: {outcome: count for outcome, count in zip(OUTCOMES, counts, strict=True) if count}
                for tool, counts in tools.items()
                if any(counts)
            },
            "bounds_s": list(BOUNDS_S),
            "buckets": list(self.buckets),
            "sum_s": self.sum_s,
            "restarts": self.restarts,
            "stragglers": self.stragglers,
            "refusals": dict(self.refusals),
        }
