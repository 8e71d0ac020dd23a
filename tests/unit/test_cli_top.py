"""What `treadle top` makes of two looks at the daemon, and `treadle logs -f` of two tails."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.cli.logs import added
from treadle.cli.output import span
from treadle.cli.sampling import HEADER, Row, rows


def _status(ok: int, cpu_s: float, pid: int = 7) -> dict[str, Any]:
    calls = {"ok": ok, "tool_error": 1, "failed": 2, "timed_out": 3, "cancelled": 4, "refused": 5}
    server = {
        "name": "demo", "state": "ready", "in_flight": 1, "calls": calls, "latency_ms": {"p50": 0.25, "p95": 12.0},
        "restarts": 6, "pid": pid, "tree": {"processes": 1, "rss_bytes": 11 * 2**20, "cpu_s": cpu_s},
    }  # fmt: skip
    return {"servers": [server]}


def test_rate_and_cpu_are_differences_over_the_time_between() -> None:
    assert rows(_status(10, 1.0), _status(30, 1.5), 2.0) == [
        Row("demo", "ready", 1, 10.0, 0.25, 12.0, 11, 6, 11 * 2**20, 25.0)
    ]


def test_the_first_look_has_no_rate_and_another_incarnation_no_cpu_yet() -> None:
    (first,) = rows(None, _status(10, 1.0), 0.0)
    assert (first.rate, first.cpu) == (None, None)
    (second,) = rows(_status(10, 9.0), _status(10, 1.0, pid=8), 1.0)
    assert (second.rate, second.cpu) == (0.0, None)


def test_before_the_first_answer_there_is_no_latency() -> None:
    status = _status(0, 1.0)
    status["servers"][0]["calls"]["tool_error"] = 0
    (row,) = rows(None, status, 0.0)
    assert (row.p50, row.p95) == (None, None)


def test_cells_are_short() -> None:
    row = Row("demo", "ready", 4096, 123_456.0, 0.123, 99_999.0, 12, 3, 3 * 2**30, 100.0)
    assert row.cells() == ("demo", "ready", "4096", "123k", "0.12", "100k", "12", "3", "3.0G", "100")
    assert len(row.cells()) == len(HEADER)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([], ["a"], ["a"]),
        (["a"], ["a"], []),
        (["a"], ["a", "b"], ["b"]),
        (["a", "b"], ["b", "c"], ["c"]),
        (["a", "a"], ["a", "a", "a"], ["a"]),
        (["a", "b"], ["x", "y"], ["x", "y"]),
        (["a", "b"], [], []),
    ],
)
def test_the_new_lines_are_those_after_what_both_tails_show(
    before: list[str], after: list[str], expected: list[str]
) -> None:
    assert added(before, after) == expected


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59, "59s"), (61, "1m 1s"), (3600, "1h"), (90_061, "1d 1h")]
)
def test_a_span_is_told_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert span(seconds) == text
