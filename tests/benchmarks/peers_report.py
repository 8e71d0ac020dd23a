"""The table of the brokers beside each other: ratios with their spread, and a word where one of them failed.

Pure: what was measured goes in, text comes out.
"""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Figures = Mapping[str, float | str]
"""What one contestant did in one round: seconds, calls a second or MiB by measure; a word where it failed."""
Round = Mapping[str, Figures]
"""The figures of one round by contestant."""


class Failed(Exception):
    """A contestant answered, but not with the result."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One column: its key in the figures, and the key of what its ratio is to (none: it is shown as it is)."""

    key: str
    title: str
    factor: float
    unit: str
    over: str = ""
    more_is_better: bool = False


MEASURES = (
    Measure("p50", "p50", 1e6, "us", "raw_p50"),
    Measure("p99", "p99", 1e6, "us", "raw_p99"),
    Measure("rate", "64 in flight", 1, "calls/s", "raw_rate", more_is_better=True),
    Measure("mib_1", "1 MiB", 1e3, "ms", "raw_mib_1"),
    Measure("mib_10", "10 MiB", 1e3, "ms", "raw_mib_10"),
    Measure("start", "first call", 1e3, "ms", "python_start"),
    Measure("one_shot", "one-shot", 1e3, "ms", "python_one_shot"),
    Measure("pss_20", "PSS", 1, "MiB"),
)


def reason(error: BaseException) -> str:
    """Why a call failed, in a word or a few: what the contestant said last, "timeout" or "closed"."""
    if isinstance(error, (TimeoutError, subprocess.TimeoutExpired)):
        return "timeout"
    if isinstance(error, OSError):
        return "closed"
    # A contestant wraps what it was told: "MCP error -32000: Connection closed".
    said = " ".join(str(error).rpartition(": ")[2].split())
    return said[:40].rstrip(" .").lower() or type(error).__name__


def values(rounds: Sequence[Round], name: str, measure: Measure, *, ratio: bool) -> list[float | str]:
    """The ratio or the figure of each round that has it; the reason where it failed.

    A ratio is to the baseline that was measured beside it, and always "this many times worse".
    """
    found: list[float | str] = []
    for one in rounds:
        figures = one.get(name, {})
        own = figures.get(measure.key)
        if own is None:
            continue
        if isinstance(own, str):
            found.append(own)
        elif not (ratio and measure.over):
            found.append(own * measure.factor)
        else:
            base = figures[measure.over]
            assert not isinstance(base, str)
            found.append(base / own if measure.more_is_better else own / base)
    return found


def cell(found: Sequence[float | str]) -> str:
    """The median with the spread; in how many rounds and why it failed, if it did in any; "-" for nothing."""
    failures = [value for value in found if isinstance(value, str)]
    numbers = [value for value in found if not isinstance(value, str)]
    if failures:
        often = "" if not numbers else f" in {len(failures)} of {len(found)}"
        return f"fails{often}: {failures[0]}"
    if not numbers:
        return "-"
    middle, least, most = (number(f(numbers)) for f in (statistics.median, min, max))
    return middle if least == most else f"{middle} ({least} .. {most})"


def number(value: float) -> str:
    """Three digits, with a comma in thousands; never an exponent."""
    if value >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"


def table(rounds: Sequence[Round], *, ratio: bool) -> str:
    """A Markdown table: every contestant's ratios, or the figures themselves."""
    titles = [m.title if ratio and m.over else f"{m.title}, {m.unit}" for m in MEASURES]
    names = dict.fromkeys(name for one in rounds for name in one)
    rows = [[name, *(cell(values(rounds, name, m, ratio=ratio)) for m in MEASURES)] for name in names]
    return markdown(["", *titles], rows)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that reads well as it is and as Markdown."""
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    lines = [
        " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in (head, *rows)
    ]
    rule = "|".join("-" * (width + 2) for width in widths)
    return "\n".join([f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])])
