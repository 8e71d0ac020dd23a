"""What is counted of one server's calls (floor 4)."""

from __future__ import annotations

from treadle.errors import CallFault, CallTimedOut, Cancelled, Fault
from treadle.wire.messages import CallResult

_WINDOW = 1024


class Meter:
    """Counts of outcomes and the latencies of the newest 1024 answered calls."""

    __slots__ = ("_at", "_latencies", "cancelled", "failed", "ok", "refused", "timed_out", "tool_error")

    def __init__(self) -> None:
        self.ok = 0
        self.tool_error = 0
        self.failed = 0
        self.timed_out = 0
        self.cancelled = 0
        self.refused = 0
        self._latencies: list[float] = []
        self._at = 0

    def answered(self, result: CallResult, seconds: float) -> None:
        """One call was answered with a result after ``seconds``."""
        if result.is_error:
            self.tool_error += 1
        else:
            self.ok += 1
        if len(self._latencies) < _WINDOW:
            self._latencies.append(seconds)
        else:
            self._latencies[self._at] = seconds
            self._at = (self._at + 1) % _WINDOW

    def failed_with(self, fault: Fault) -> None:
        """One call ended in ``fault``."""
        if isinstance(fault, CallTimedOut):
            self.timed_out += 1
        elif isinstance(fault, Cancelled):
            self.cancelled += 1
        elif isinstance(fault, CallFault) and fault.outcome == "not_sent":
            self.refused += 1
        else:
            self.failed += 1

    def calls(self) -> dict[str, int]:
        """The key ``calls`` of the shape ``server`` (socket page)."""
        names = ("ok", "tool_error", "failed", "timed_out", "cancelled", "refused")
        return {name: getattr(self, name) for name in names}

    def latency_ms(self) -> dict[str, float]:
        """Percentiles of the window in milliseconds; empty when nothing was answered yet."""
        if not self._latencies:
            return {}
        ordered = sorted(self._latencies)
        last = len(ordered) - 1
        return {f"p{p}": round(ordered[round(last * p / 100)] * 1000, 3) for p in (50, 95, 99)}
