"""The table of a run, as text and as a picture."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from html import escape

from goals import GOALS, Goal, Round

UNITS = {
    "raw_p50": ("raw pipe, p50", 1e6, "us"),
    "hop_p50": ("socket hop alone, p50", 1e6, "us"),
    "p50": ("Treadle, bare frames, p50", 1e6, "us"),
    "p99": ("Treadle, bare frames, p99", 1e6, "us"),
    "client_p50": ("Treadle, Client, p50", 1e6, "us"),
    "sdk_p50": ("official SDK direct, p50", 1e6, "us"),
    "sdk_p99": ("official SDK direct, p99", 1e6, "us"),
    "raw_rate": ("raw pipe, 64 in flight", 1e-3, "k/s"),
    "hop_rate": ("socket hop alone, 64 in flight", 1e-3, "k/s"),
    "rate": ("Treadle, 64 in flight", 1e-3, "k/s"),
    "rate_16x8": ("Treadle, 16 clients x 8", 1e-3, "k/s"),
    "async_rate": ("Treadle, AsyncClient, 64 in flight", 1e-3, "k/s"),
    "sdk_rate": ("official SDK direct, 64 in flight", 1e-3, "k/s"),
    "cpu_per_call": ("daemon's processor time per call, 64 in flight", 1e6, "us"),
    "result_1": ("1 MiB result", 1e3, "ms"),
    "result_10": ("10 MiB result", 1e3, "ms"),
    "result_15": ("15 MiB result", 1e3, "ms"),
    "argument_1": ("1 MiB argument", 1e3, "ms"),
    "argument_10": ("10 MiB argument", 1e3, "ms"),
    "raw_1": ("1 MiB result, raw pipe", 1e3, "ms"),
    "raw_10": ("10 MiB result, raw pipe", 1e3, "ms"),
    "hop_1": ("1 MiB result, socket hop alone", 1e3, "ms"),
    "hop_10": ("10 MiB result, socket hop alone", 1e3, "ms"),
    "sdk_1": ("1 MiB result, official SDK", 1e3, "ms"),
    "sdk_10": ("10 MiB result, official SDK", 1e3, "ms"),
    "p99_noisy": ("p99 beside a noisy neighbour", 1e6, "us"),
    "pss_1": ("PSS with 1 server", 1, "MiB"),
    "pss_20": ("PSS with 20 servers", 1, "MiB"),
    "pss_100": ("PSS with 100 servers", 1, "MiB"),
    "python": ("python -c pass", 1e3, "ms"),
    "first_call": ("start to first call, 1 server", 1e3, "ms"),
    "first_call_20": ("start to first call, 20 servers", 1e3, "ms"),
    "first_call_100": ("start to first call, 100 servers", 1e3, "ms"),
    "one_shot": ("one-shot treadle call", 1e3, "ms"),
}


def verdict(goal: Goal, value: float) -> str:
    """One word on a measured ratio."""
    if goal.met(value, goal.aim):
        return "aim"
    return "must" if goal.met(value, goal.must) else "MISSED"


def table(rounds: Sequence[Round]) -> str:
    """Must, aim, measured (median, least and most of the rounds), and below it the absolute figures."""
    lines = [f"{'ratio':48} {'must':>7} {'aim':>7} {'measured':>9} {'spread':>15}  met"]
    for goal in GOALS:
        values = goal.measured(rounds)
        if not values:
            lines.append(f"{goal.name:48} {goal.must:7.3g} {goal.aim:7.3g} {'-':>9} {'not measured':>15}")
            continue
        middle = statistics.median(values)
        spread = f"{min(values):.3g} .. {max(values):.3g}"
        lines.append(
            f"{goal.name:48} {goal.must:7.3g} {goal.aim:7.3g} {middle:9.3g} {spread:>15}  {verdict(goal, middle)}"
        )
    lines.append("")
    for key, (name, factor, unit) in UNITS.items():
        values = [one[key] for one in rounds if key in one]
        if values:
            lines.append(f"{name:48} {statistics.median(values) * factor:9.4g} {unit}")
    return "\n".join(lines)


def svg(rounds: Sequence[Round]) -> str:
    """One bar a goal: how far the measured ratio is from its aim and its must, on a logarithmic scale."""
    rows = [(goal, statistics.median(values)) for goal in GOALS if (values := goal.measured(rounds))]
    left, width, height = 330, 420, 26
    size = f'width="{left + width + 120}" height="{height * len(rows) + 60}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="18">cost relative to "must" (1.0): shorter is better; tick: aim</text>',
    ]

    def place(share: float) -> float:
        # From a twentieth of "must" to twice of it. A growth may be measured as nothing, or less.
        shown = min(2.0, max(0.05, share))
        return (math.log(shown) - math.log(0.05)) / (math.log(2) - math.log(0.05)) * width

    for number, (goal, value) in enumerate(rows):
        top = 32 + number * height
        share = goal.must / value if goal.at_least else value / goal.must
        aim = goal.must / goal.aim if goal.at_least else goal.aim / goal.must
        colour = {"aim": "#2a7", "must": "#e90", "MISSED": "#c33"}[verdict(goal, value)]
        parts += [
            f'<text x="{left - 8}" y="{top + 14}" text-anchor="end">{escape(goal.name)}</text>',
            f'<rect x="{left}" y="{top + 3}" width="{place(share):.1f}" height="15" fill="{colour}"/>',
            f'<path d="M{left + place(aim):.1f} {top}v21" stroke="#333"/>',
            f'<text x="{left + place(share) + 6:.1f}" y="{top + 14}">{value:.3g}</text>',
        ]
    x = left + place(1.0)
    parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="28" y2="{32 + len(rows) * height}" stroke="#c33"/>')
    parts.append(f'<text x="{x:.1f}" y="{50 + len(rows) * height}" text-anchor="middle">must</text></svg>')
    return "\n".join(parts) + "\n"
