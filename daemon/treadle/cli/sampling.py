"""What ``treadle top`` shows of two looks at ``status`` (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from treadle.cli.statusview import answered

_ERRORS: Final = ("tool_error", "failed", "timed_out", "refused")

HEADER: Final = ("SERVER", "STATE", "FLY", "CALL/S", "P50", "P95", "ERR", "RST", "MEM", "CPU%")


@dataclass(frozen=True, slots=True)
class Row:
    """One server at work: ``rate`` in calls a second, ``p50`` and ``p95`` in ms, ``cpu`` in percent of one core.

    None: not known (yet).
    """

    name: str
    state: str
    in_flight: int
    rate: float | None
    p50: float | None
    p95: float | None
    errors: int
    restarts: int
    memory: int | None
    cpu: float | None

    def cells(self) -> tuple[str, ...]:
        """The row under :data:`HEADER`, each cell as short as its number allows."""
        return (
            self.name,
            self.state,
            str(self.in_flight),
            _short(self.rate),
            _short(self.p50),
            _short(self.p95),
            str(self.errors),
            str(self.restarts),
            "-" if self.memory is None else _bytes(self.memory),
            _short(self.cpu),
        )


def rows(before: Mapping[str, Any] | None, now: Mapping[str, Any], seconds: float) -> list[Row]:
    """The rows of ``now``; what needs a difference is one to ``before``, ``seconds`` earlier."""
    earlier = {server["name"]: server for server in before["servers"]} if before is not None else {}
    return [_row(earlier.get(server["name"]), server, seconds) for server in now["servers"]]


def _row(before: Mapping[str, Any] | None, now: Mapping[str, Any], seconds: float) -> Row:
    tree = now.get("tree")
    rate = cpu = None
    if before is not None and seconds > 0:
        rate = max(0, sum(now["calls"].values()) - sum(before["calls"].values())) / seconds
        # Another incarnation counts its CPU from the start.
        if tree is not None and "tree" in before and before.get("pid") == now.get("pid"):
            cpu = max(0.0, tree["cpu_s"] - before["tree"]["cpu_s"]) / seconds * 100
    return Row(
        name=now["name"],
        state=now["state"],
        in_flight=now["in_flight"],
        rate=rate,
        p50=now["latency_ms"]["p50"] if answered(now["calls"]) else None,
        p95=now["latency_ms"]["p95"] if answered(now["calls"]) else None,
        errors=sum(now["calls"][key] for key in _ERRORS),
        restarts=now["restarts"],
        memory=None if tree is None else tree["rss_bytes"],
        cpu=cpu,
    )


def _short(number: float | None) -> str:
    """A number in at most five characters, as far as it goes."""
    if number is None:
        return "-"
    if number >= 9999.5:
        return f"{number / 1000:.0f}k"
    return (
        f"{number:.0f}"
        if number >= 99.95
        else f"{number:.1f}"
        if number >= 0.995 or not number
        else f"{number:.2f}"
    )


def _bytes(count: int) -> str:
    for unit, size in (("G", 2**30), ("M", 2**20)):
        if count >= size:
            amount = count / size
            return f"{amount:.1f}{unit}" if amount < 10 else f"{amount:.0f}{unit}"
    return f"{count // 1024}K"
