"""The two messages that a broker mostly reads, each in one pass: the same as the general way gives, or nothing."""

from __future__ import annotations

from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import arguments, damaged_lines, lines, values, written

from treadle.answers import call_result_frame, result_frame
from treadle.errors import Malformed
from treadle.wire.interchange import arguments_to_json
from treadle.wire.jsonrpc import Notification, Response, decode
from treadle.wire.messages import CallResult, decode_call_result
from treadle.wire.nesting import MAX_VALUES
from treadle.wire.quick import MANY_BLOCKS, Usual, call_frame, read
from treadle_client.frames import Frame, FrameReader, encode

# --- answers ------------------------------------------------------------------------------------------

_blocks = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image", "x"])}, optional={"text": st.text()}
) | (st.dictionaries(st.sampled_from(["type", "text", "data"]), values, max_size=3))
_results = st.fixed_dictionaries(
    {"content": st.lists(_blocks, max_size=3)},
    optional={"isError": st.booleans() | values, "structuredContent": values, "_meta": values},
)
_answers = st.builds(
    written,
    st.fixed_dictionaries(
        {"jsonrpc": st.just("2.0"), "id": st.integers(0, 2**40), "result": _results},
        optional={"error": values, "method": st.text(max_size=3)},
    ),
    ensure_ascii=st.booleans(),
)


def _generally(line: bytes) -> tuple[Any, CallResult]:
    message = decode(line)
    assert isinstance(message, Response)
    assert isinstance(message.result, bytes)
    return message.id, decode_call_result(message.result)


@given(_answers | lines | damaged_lines())
@example(b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text"}]}}')
@example(b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"image","text":"caption","data":"AA=="}]}}')
@example(b'{"jsonrpc":"2.0","id":1,"result":{"content":[],"structuredContent":{"a":18446744073709551616}}}')
@example(b'{"jsonrpc":"2.0","id":1,"result":{"content":[],"structuredContent":null}}')
@example(b'{"jsonrpc":"2.0","id":1.0,"result":{"content":[]}}')
@example(b'{"jsonrpc":"2.0","id":1,"result":{"content":[]},"result":5}')
@example(b'{"jsonrpc":"2.0","id":1,"result":5,"result":{"content":[]}}')
@example(b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"\\ud800"}]}}')
@example(b'{"jsonrpc":"2.0","id":1,"result":{"content":[]},"error":null}')
def test_what_is_read_of_a_line_is_what_the_general_way_reads(line: bytes) -> None:
    try:
        line.decode()
    except UnicodeDecodeError:
        return  # no line of the framing
    found = read(line)
    if isinstance(found, Usual):
        assert isinstance(decode(line), Notification)
    elif found is not None:
        assert repr(found) == repr(_generally(line))


@pytest.mark.parametrize(
    "result",
    [
        {"content": []},
        {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "\u00e4"}], "isError": True},
        {"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}]},
        {"content": [{"type": "text", "text": "x", "annotations": {"audience": ["user"]}}], "_meta": {"a": [1]}},
        {"content": [], "structuredContent": {"a": [1, 2.5, None]}},
        {"content": [{"type": "text", "text": "y" * 2 * MAX_VALUES}]},
    ],
)
def test_the_usual_answers_are_read_at_once(result: Any) -> None:
    line = written({"jsonrpc": "2.0", "id": 7, "result": result})
    assert read(line) == _generally(line)


@pytest.mark.parametrize("more", [{}, {"params": {"level": "info", "data": [1]}}])
def test_the_usual_notifications_are_read_at_once(more: dict[str, Any]) -> None:
    line = written({"jsonrpc": "2.0", "method": "notifications/message", **more})
    assert read(line) is Usual.NOTIFICATION


@pytest.mark.parametrize("more", [{"id": 1}, {"id": None}, {"result": 1}, {"error": None}])
def test_a_request_is_no_notification(more: dict[str, Any]) -> None:
    assert read(written({"jsonrpc": "2.0", "method": "ping", **more})) is None


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "x"}] * (MANY_BLOCKS + 1) + [{"type": "text", "text": "y" * MAX_VALUES}],
        [{"type": "text", "text": "{" * 2 * MAX_VALUES}],
    ],
    ids=["blocks", "braces"],
)
def test_a_long_line_that_may_hold_many_blocks_is_left_to_the_way_that_counts(content: Any) -> None:
    assert read(written({"jsonrpc": "2.0", "id": 7, "result": {"content": content}})) is None


def test_a_line_that_nests_too_deep_is_left_to_the_general_way() -> None:
    deep = b'{"jsonrpc":"2.0","id":1,"result":{"content":[]},"x":%b}' % (b"[" * 300 + b"]" * 300)
    assert read(deep) is None


def test_whatever_breaks_leaves_the_line_to_the_general_way() -> None:
    assert read(b"no JSON") is None
    with pytest.raises(Malformed):
        decode(b"no JSON")


# --- frames -------------------------------------------------------------------------------------------

_bodies = st.fixed_dictionaries(
    {"server": st.text(max_size=5), "tool": st.text(max_size=5), "arguments": arguments},
    optional={
        "timeout_ms": st.integers(-1, 2**64 - 1) | st.none() | st.just(1.0),
        "content": st.sampled_from(["text", "all", "none", None]),
        "more": values,
    },
)
_odd = st.sampled_from([b"x", msgpack.ExtType(5, b"a"), msgpack.Timestamp(0), float("nan"), {1: 2}, {b"k": 1}])
_envelopes = st.fixed_dictionaries(
    {
        "v": st.sampled_from([1, 1, 1, 2, True, 1.0]),
        "id": st.integers(-1, 2**64 - 1) | st.just(True),
        "kind": st.sampled_from(["call", "call", "cap_call", "list"]),
        "body": _bodies | st.builds(lambda body, odd: {**body, "arguments": {"a": odd}}, _bodies, _odd),
    },
    optional={"more": values},
)


def _read_generally(payload: bytes) -> list[Frame]:
    return FrameReader().feed(len(payload).to_bytes(4, "big") + payload)


@given(_envelopes, st.integers(0, 400), st.binary(max_size=2))
def test_what_is_read_of_a_call_is_what_the_frame_codec_reads(envelope: Any, at: int, damage: bytes) -> None:
    payload: bytes = msgpack.packb(envelope)
    for each in (payload, payload[:at] + damage + payload[at + len(damage) :]):
        try:
            found = call_frame(each)
        except msgspec.DecodeError:
            continue
        (frame,) = _read_generally(each)
        assert (found.id, found.kind, frame.invalid) == (frame.id, frame.kind, None)
        body = found.body
        given = {"server": body.server, "tool": body.tool, "arguments": body.arguments}
        given |= {key: getattr(body, key) for key in ("timeout_ms", "content") if key in frame.body}
        assert repr({key: given[key] for key in frame.body}) == repr(frame.body)


@pytest.mark.parametrize(
    "more",
    [{}, {"timeout_ms": 1}, {"timeout_ms": None, "content": None}, {"content": "all", "timeout_ms": 2**64 - 1}],
)
def test_the_usual_calls_are_read_at_once(more: dict[str, Any]) -> None:
    given = {"text": "x", "n": 1, "f": 0.5, "b": True, "none": None, "list": ["a", 1], "map": {"k": "v"}}
    frame = encode(7, "call", {"server": "s", "tool": "t", "arguments": given, **more})
    found = call_frame(frame[4:])
    assert arguments_to_json(found.body.arguments, plain=True) == arguments_to_json(given)


@pytest.mark.parametrize("text", [b"\xff", b"\xed\xa0\x80"])
def test_text_that_is_no_unicode_is_left_to_the_frame_codec(text: bytes) -> None:
    payload = msgpack.packb(
        {
            "v": 1,
            "id": 1,
            "kind": "call",
            "body": {"server": "s", "tool": "t", "arguments": {"a": "QQQ"[: len(text)]}},
        }
    ).replace(b"Q" * len(text), text)
    with pytest.raises(msgspec.DecodeError):
        call_frame(payload)


# --- what goes back -----------------------------------------------------------------------------------


@given(
    st.integers(0, 2**64 - 1),
    st.lists(st.dictionaries(st.text(max_size=4), values, max_size=3), max_size=3),
    st.booleans(),
    st.none() | values,
)
def test_the_frame_of_a_result_is_that_of_the_frame_codec(
    frame_id: int, content: list[dict[str, Any]], is_error: bool, structured: Any
) -> None:
    for result in (CallResult(content, is_error), CallResult(content, is_error, structured)):
        size, parts = call_result_frame(frame_id, result)
        assert b"".join(parts) == result_frame(frame_id, result.to_value())
        assert size == sum(map(len, parts))


def test_a_result_that_is_too_large_is_refused_as_by_the_frame_codec() -> None:
    result = CallResult([{"type": "text", "text": "x" * (16 * 1024 * 1024)}], False)
    assert b"".join(call_result_frame(1, result)[1]) == result_frame(1, result.to_value())
    assert b"mcp_malformed" in result_frame(1, result.to_value())
