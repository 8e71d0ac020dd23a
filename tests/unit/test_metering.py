"""What is counted of the calls of one server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import CallFault, CallTimedOut, Cancelled, Overloaded, ServerError, Unavailable
from treadle.metering import BOUNDS_S, MOST_TOOLS, OTHER, Meter
from treadle.wire.messages import CallResult, decode_call_result

GOOD = decode_call_result(b'{"content":[]}', "text")
BAD = decode_call_result(b'{"content":[],"isError":true}', "text")


@pytest.mark.parametrize(("result", "kind"), [(GOOD, "ok"), (BAD, "tool_error")])
def test_an_answer_counts_as_what_the_tool_said(result: CallResult, kind: str) -> None:
    meter = Meter()
    meter.answered(result, 0.001, "echo")
    assert {name for name, count in meter.calls().items() if count} == {kind}


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (CallTimedOut(5), "timed_out"),
        (CallTimedOut(5, "not_sent"), "timed_out"),
        (Cancelled(), "cancelled"),
        (Overloaded("queue", 1, "the queue"), "refused"),
        (Unavailable("dead"), "refused"),
        (Unavailable("dead", "unknown"), "failed"),
        (ServerError(-1, "no"), "failed"),
    ],
)
def test_a_fault_counts_by_its_kind(fault: CallFault, kind: str) -> None:
    meter = Meter()
    meter.failed_with(fault, "echo")
    assert {name for name, count in meter.calls().items() if count} == {kind}


def test_without_answers_the_latencies_are_there_and_zero() -> None:
    assert Meter().latency_ms() == {"p50": 0.0, "p95": 0.0, "p99": 0.0}


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=40))
def test_percentiles_are_latencies_that_happened_in_their_order(latencies: list[int]) -> None:
    meter = Meter()
    for latency in latencies:
        meter.answered(GOOD, latency / 1000, "echo")
    shown = meter.latency_ms()
    assert set(shown.values()) <= set(latencies)
    assert min(latencies) <= shown["p50"] <= shown["p95"] <= shown["p99"] <= max(latencies)


def test_the_newest_1024_answers_count() -> None:
    meter = Meter()
    for latency in [9.0] * 1024 + [0.001] * 1024:
        meter.answered(GOOD, latency, "echo")
    assert meter.latency_ms() == {"p50": 1.0, "p95": 1.0, "p99": 1.0}


def test_a_tool_is_counted_by_its_name_only_when_a_listing_had_it() -> None:
    meter = Meter()
    meter.know(["echo"])
    for tool in ("echo", "made up", "made up, too"):
        meter.answered(GOOD, 0.001, tool)
    assert meter.metrics()["tools"] == {OTHER: {"ok": 2}, "echo": {"ok": 1}}
    assert meter.calls()["ok"] == 3


def test_no_more_tools_are_counted_by_name_than_the_limit() -> None:
    meter = Meter()
    meter.know(str(number) for number in range(MOST_TOOLS + 10))
    for number in range(MOST_TOOLS + 10):
        meter.answered(GOOD, 0.001, str(number))
    assert meter.metrics()["tools"][OTHER] == {"ok": 10}


@given(st.lists(st.floats(0, 1000), max_size=40))
def test_each_latency_falls_into_one_bucket(latencies: list[float]) -> None:
    meter = Meter()
    for latency in latencies:
        meter.answered(GOOD, latency, "echo")
    assert sum(meter.metrics()["buckets"]) == len(latencies)
    for place, bound in enumerate(BOUNDS_S):
        assert sum(meter.metrics()["buckets"][: place + 1]) == sum(latency <= bound for latency in latencies)
