"""From outcomes to answer frames, from bodies to requests (socket page, "Requests"; client page, section 8)."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle import answers
from treadle.errors import (
    CallTimedOut,
    Cancelled,
    ConfigError,
    Fault,
    InvalidArgument,
    Overloaded,
    Problem,
    ResultMalformed,
    ServerError,
    Unavailable,
    UnknownServer,
)
from treadle.wire.interchange import RESULT_LIMIT
from treadle.wire.messages import CallResult, decode_call_result
from treadle_client import frames

FAULTS: list[tuple[Fault, str, str | None]] = [
    (Unavailable("gone"), "mcp_unavailable", "not_sent"),
    (CallTimedOut(5), "mcp_timeout", "unknown"),
    (ServerError(-32602, "no"), "jsonrpc_-32602", "answered"),
    (ResultMalformed("odd"), "mcp_malformed", "answered"),
    (UnknownServer("x", ("y",)), "unknown_server", "not_sent"),
    (InvalidArgument("$", "x"), "invalid_argument", "not_sent"),
    (Overloaded("queue", 1, "here"), "overloaded", "not_sent"),
    (Cancelled(), "cancelled", "unknown"),
    (ConfigError((Problem("f", 1, 1, "", "bad", ""),)), "invalid_argument", None),
]


def decoded(data: bytes) -> frames.Frame:
    reader = frames.FrameReader()
    (frame,) = reader.feed(data)
    assert reader.fault is None
    return frame


def call_result(structured: str = '{"a":1}') -> CallResult:
    return decode_call_result(
        f'{{"content":[{{"type":"text","text":"hi"}}],"structuredContent":{structured}}}'.encode(), "text"
    )


@pytest.mark.parametrize(("fault", "code", "outcome"), FAULTS)
def test_a_failure_has_its_code_its_sentence_and_its_outcome(fault: Fault, code: str, outcome: str | None) -> None:
    frame = decoded(answers.failure_frame(7, fault))
    assert (frame.id, frame.kind, frame.body["ok"]) == (7, "result", False)
    error = frame.body["error"]
    assert (error["code"], error["msg"], error.get("outcome")) == (code, str(fault), outcome)
    assert set(error) <= {"code", "msg", "outcome"}


@pytest.mark.parametrize(("fault", "code", "outcome"), FAULTS)
def test_a_failed_capability_call_has_exactly_two_keys(fault: Fault, code: str, outcome: str | None) -> None:
    frame = decoded(answers.cap_result_frame(7, fault))
    expected = "unsupported_cap" if code == "unknown_server" else code
    assert (frame.kind, frame.body) == (
        "cap_result",
        {"ok": False, "error": {"code": expected, "msg": str(fault)}},
    )


def test_a_capability_result_has_exactly_ok_and_value() -> None:
    frame = decoded(answers.cap_result_frame(7, call_result()))
    value = {"content": [{"type": "text", "text": "hi"}], "is_error": False, "structured": {"a": 1}}
    assert (frame.kind, frame.body) == ("cap_result", {"ok": True, "value": value})


def test_the_data_of_a_servers_error_rides_along() -> None:
    assert decoded(answers.failure_frame(1, ServerError(1, "m", b"[1,null]"))).body["error"]["data"] == [1, None]


@pytest.mark.parametrize("data", [b"[1e400]", b"[18446744073709551616]"])
def test_data_that_cannot_be_carried_is_left_out_and_said(data: bytes) -> None:
    error = decoded(answers.failure_frame(1, ServerError(1, "m", data))).body["error"]
    assert "data" not in error
    assert "its data cannot be carried" in error["msg"]


def test_data_that_is_too_large_is_left_out_and_said() -> None:
    large = b'"' + b"x" * RESULT_LIMIT + b'"'
    error = decoded(answers.failure_frame(1, ServerError(1, "m", large))).body["error"]
    assert (set(error), error["code"]) == ({"code", "msg", "outcome"}, "jsonrpc_1")


@pytest.mark.parametrize("kind", ["result", "cap_result"])
def test_a_result_past_the_limit_is_malformed_and_says_both_sizes(kind: str) -> None:
    result = CallResult(content=[{"type": "text", "text": "x" * RESULT_LIMIT}], is_error=False)
    data = answers.result_frame(1, result.to_value()) if kind == "result" else answers.cap_result_frame(1, result)
    error = decoded(data).body["error"]
    assert error["code"] == "mcp_malformed"
    assert str(RESULT_LIMIT) in error["msg"]
    assert ("outcome" in error) == (kind == "result")


@pytest.mark.parametrize("value", [{"a": 2**64}, {"a": "\ud800"}, {"a": object()}])
def test_a_value_that_no_frame_can_hold_is_malformed(value: Any) -> None:
    assert decoded(answers.result_frame(1, value)).body["error"]["code"] == "mcp_malformed"


# --- requests --------------------------------------------------------------------------------------


def refusal(read: Any, *args: Any, **keys: Any) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as caught:
        read(*args, **keys)
    return caught.value


def test_what_is_missing_or_of_another_type_is_named_with_its_path() -> None:
    assert refusal(answers.text, {}, "tool", "body.args") == InvalidArgument(
        "body.args.tool", "must be a string, and is missing"
    )
    assert refusal(answers.mapping, {"args": [1]}, "args").found == "must be a map, found array"
    assert refusal(answers.flag, {"schemas": 1}, "schemas", True).found == "must be a boolean, found 1"
    assert refusal(answers.content_of, {"content": "most"}).found == 'must be "text" or "all", found \'most\''


@pytest.mark.parametrize("value", [0, -1, 2**64, 1.0, math.nan, True, "1", [1], {}])
def test_a_number_is_a_whole_one_within_bounds(value: Any) -> None:
    assert refusal(answers.whole, {"n": value}, "n").path == "body.n"


@pytest.mark.parametrize("body", [{}, {"n": None}])
def test_absent_and_nil_are_the_default(body: dict[str, Any]) -> None:
    assert answers.whole(body, "n") is None
    assert answers.optional_text(body, "n") is None


PLAIN = st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=5) | st.binary(max_size=3)
BODIES = st.dictionaries(st.sampled_from(["a", "b"]), PLAIN | st.lists(PLAIN, max_size=2), max_size=2)


@given(BODIES)
def test_the_readers_return_or_refuse_and_nothing_else(body: dict[str, Any]) -> None:
    for read in (answers.text, answers.mapping, answers.whole, answers.optional_text):
        with contextlib.suppress(InvalidArgument):
            read(body, "a")


def test_a_heartbeat_that_cannot_be_echoed_is_an_error_frame() -> None:
    frame = frames.Frame(3, "heartbeat", {"a": "x" * frames.MAX_FRAME})
    assert decoded(answers.echo_frame(frame)).kind == "error"


@pytest.mark.parametrize("kind", ["result", "cap_result"])
def test_memory_that_runs_out_while_an_answer_is_encoded_still_answers_the_call(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = frames.encode

    def encode(frame_id: int, kind: str, body: dict[str, Any], **options: bool) -> bytes:
        if len(body.get("value") or body["error"].get("data") or ()) > 1:
            raise MemoryError
        return whole(frame_id, kind, body, **options)

    monkeypatch.setattr(frames, "encode", encode)
    outcome = CallResult([], False)
    made = (
        answers.result_frame(7, outcome.to_value()) if kind == "result" else answers.cap_result_frame(7, outcome)
    )
    (frame,) = frames.FrameReader().feed(made)
    assert (frame.id, frame.kind, frame.body["ok"]) == (7, kind, False)
    assert "memory ran out" in frame.body["error"]["msg"]
    (frame,) = frames.FrameReader().feed(answers.failure_frame(8, ServerError(-1, "no", b"[1,2]")))
    assert frame.body["error"]["code"] == "jsonrpc_-1"
    assert "memory ran out" in frame.body["error"]["msg"]
