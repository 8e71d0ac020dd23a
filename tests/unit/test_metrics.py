"""The counters of calls, and their OpenMetrics text."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from treadle.errors import CallTimedOut, Cancelled, Overloaded, Unavailable
from treadle.metering import BOUNDS_S, MOST_TOOLS, OTHER, Meter
from treadle.metrics import render
from treadle.wire.messages import CallResult

OK, NO = CallResult([], False), CallResult([], True)

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def _status(meter: Meter, name: str = "demo") -> dict[str, Any]:
    daemon = {"version": "1", "containment": "sweep", "uptime_s": 1.5, "connections": 2, "in_flight": 3}
    server = {
        "name": name, "state": "ready", "generation": 1, "tools": 1, "in_flight": 3, "bad_lines": 0,
        "tree": {"processes": 2, "rss_bytes": 4096, "cpu_s": 0.25}, "metrics": {"queue": 4, **meter.metrics()},
    }  # fmt: skip
    return {"daemon": {**daemon, "refusals": {"overloaded": 2}}, "servers": [server]}


def _read(text: str) -> Samples:
    """What Prometheus' own parser, which is strict, makes of the text."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _meter() -> Meter:
    meter = Meter()
    meter.know(["add"])
    meter.answered(OK, 0.002, "add")
    meter.answered(NO, 0.4, "add")
    meter.failed_with(CallTimedOut(5, "unknown"), "add")
    meter.failed_with(Cancelled("unknown"), "add")
    meter.failed_with(Unavailable("x", "unknown"), "add")
    meter.failed_with(Overloaded("queue", 1, "x"), "add")
    return meter


def test_calls_are_counted_by_outcome() -> None:
    assert _meter().calls() == {
        "ok": 1, "tool_error": 1, "failed": 1, "timed_out": 1, "cancelled": 1, "refused": 1,
    }  # fmt: skip


def test_a_name_that_no_listing_had_is_counted_without_it() -> None:
    meter = Meter()
    meter.know(["add"])
    for number in range(1000):
        meter.answered(OK, 0.0, f"made up {number}")
    assert meter.metrics()["tools"] == {OTHER: {"ok": 1000}}


def test_a_listing_without_end_is_counted_by_its_first_names() -> None:
    meter = Meter()
    meter.know(str(number) for number in range(10_000))
    for number in range(1000):
        meter.answered(OK, 0.0, str(number))
    tools = meter.metrics()["tools"]
    assert len(tools) == MOST_TOOLS + 1
    assert tools[OTHER] == {"ok": 1000 - MOST_TOOLS}
    assert meter.calls()["ok"] == 1000


def test_the_text_tells_each_count_with_its_labels() -> None:
    samples = _read(render(_status(_meter())))

    def call(outcome: str) -> float:
        return samples["treadle_calls_total", (("outcome", outcome), ("server", "demo"), ("tool", "add"))]

    assert [call(outcome) for outcome in ("ok", "tool_error", "timed_out", "refused")] == [1, 1, 1, 1]
    server = (("server", "demo"),)
    assert samples["treadle_server_refusals_total", (("code", "overloaded"), *server)] == 1
    assert samples["treadle_refusals_total", (("code", "overloaded"),)] == 2
    assert samples["treadle_queue", server] == 4
    assert samples["treadle_server_in_flight", server] == 3
    assert samples["treadle_server_resident_bytes", server] == 4096
    assert samples["treadle_server_cpu_seconds", server] == 0.25
    assert samples["treadle_server_state", (*server, ("treadle_server_state", "ready"))] == 1
    assert samples["treadle_server_state", (*server, ("treadle_server_state", "parked"))] == 0


@given(st.lists(st.floats(0, 1000), max_size=50))
def test_the_histogram_is_cumulative_and_ends_with_all(seconds: list[float]) -> None:
    meter = Meter()
    for one in seconds:
        meter.answered(OK, one, "add")
    samples = _read(render(_status(meter)))
    for bound in BOUNDS_S:
        labels = (("le", repr(bound)), ("server", "demo"))
        assert samples["treadle_call_duration_seconds_bucket", labels] == sum(one <= bound for one in seconds)
    assert samples["treadle_call_duration_seconds_bucket", (("le", "+Inf"), ("server", "demo"))] == len(seconds)


@given(st.text(max_size=20))
def test_any_name_of_a_tool_is_a_label_that_can_be_read_back(name: str) -> None:
    meter = Meter()
    meter.know([name])
    meter.answered(OK, 0.0, name)
    tools = {
        dict(labels).get("tool")
        for metric, labels in _read(render(_status(meter)))
        if metric.endswith("calls_total")
    }
    assert tools == {name}


def test_a_name_without_an_utf_8_form_is_replaced() -> None:
    meter = Meter()
    meter.know(["a\ud800"])
    meter.answered(OK, 0.0, "a\ud800")
    assert 'tool="a\ufffd"' in render(_status(meter))
