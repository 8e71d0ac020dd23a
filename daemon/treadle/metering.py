"""What is counted of one server's calls (floor 4). A reload hands the counts on to its next supervisor."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, Final

from treadle.errors import CallFault, CallTimedOut, Cancelled, Fault, failure_code
from treadle.wire.messages import CallResult

_WINDOW: Final = 1024
_AT_ONCE: Final = 512

OUTCOMES: Final = ("ok", "tool_error", "failed", "timed_out", "cancelled", "refused")
OK, TOOL_ERROR, FAILED, TIMED_OUT, CANCELLED, REFUSED = range(len(OUTCOMES))

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the latency histogram's buckets, in seconds; a last bucket has no bound."""

MOST_TOOLS: Final = 256
"""Tools of a server that are counted each by its name; a name that no listing had is counted as :data:`OTHER`."""
OTHER: Final = "(other)"


class Meter:
    """Counts of outcomes, in all and by tool, and the latencies of the answered calls."""

    __slots__ = (
        "_at",
        "_buckets",
        "_fresh",
        "_latencies",
        "_other",
        "_sum_s",
        "_tools",
        "refusals",
        "restarts",
        "stragglers",
    )

    def __init__(self) -> None:
        self.restarts = 0
        self.stragglers = 0
        self.refusals: dict[str, int] = {}
        self._buckets = [0] * (len(BOUNDS_S) + 1)
        self._sum_s = 0.0
        self._fresh: list[tuple[str, bool, float]] = []  # answers that are noted and not counted yet
        self._other = [0] * len(OUTCOMES)
        self._tools: dict[str, list[int]] = {}
        self._latencies: list[float] = []
        self._at = 0

    def know(self, tools: Iterable[str]) -> None:
        """Count these tools by their names, :data:`MOST_TOOLS` at the most: callers may make up any name."""
        self._count()
        for tool in tools:
            if len(self._tools) >= MOST_TOOLS:
                return
            if tool not in self._tools:
                self._tools[tool] = [0] * len(OUTCOMES)

    def answered(self, result: CallResult, seconds: float, tool: str) -> None:
        """One call of ``tool`` was answered with a result after ``seconds``."""
        fresh = self._fresh
        fresh.append((tool, result.is_error, seconds))
        if len(fresh) == _AT_ONCE:
            self._count()

    def _count(self) -> None:
        """Count what was noted. Many at once cost a third of what each would alone, between two system calls."""
        fresh, self._fresh = self._fresh, []
        tools, other, buckets = self._tools, self._other, self._buckets
        for tool, is_error, seconds in fresh:
            tools.get(tool, other)[TOOL_ERROR if is_error else OK] += 1
            buckets[bisect_left(BOUNDS_S, seconds)] += 1
            self._sum_s += seconds
        latencies = self._latencies
        for _, _, seconds in fresh:
            if len(latencies) < _WINDOW:
                latencies.append(seconds)
            else:
                latencies[self._at] = seconds
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
        self._count()
        counts = zip(*self._tools.values(), self._other, strict=True)
        return dict(zip(OUTCOMES, map(sum, counts), strict=True))

    def latency_ms(self) -> dict[str, float]:
        """Percentiles of the newest 1024 answered calls in milliseconds; 0.0 when none was answered yet."""
        self._count()
        ordered = sorted(self._latencies) or [0.0]
        last = len(ordered) - 1
        return {f"p{p}": round(ordered[round(last * p / 100)] * 1000, 3) for p in (50, 95, 99)}

    def metrics(self) -> dict[str, Any]:
        """All counters as plain values, for :mod:`treadle.metrics`; a tool that was never called is left out."""
        self._count()
        tools = {OTHER: self._other, **self._tools}
        return {
            "tools": {
                tool: {outcome: count for outcome, count in zip(OUTCOMES, counts, strict=True) if count}
                for tool, counts in tools.items()
                if any(counts)
            },
            "bounds_s": list(BOUNDS_S),
            "buckets": list(self._buckets),
            "sum_s": self._sum_s,
            "restarts": self.restarts,
            "stragglers": self.stragglers,
            "refusals": dict(self.refusals),
        }
