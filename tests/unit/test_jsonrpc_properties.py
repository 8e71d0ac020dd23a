"""The codec against anything at all."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from strategies import arguments, damaged_lines, ids, messages, values, written

from treadle.errors import BadMessage, Malformed
from treadle.wire.jsonrpc import (
    ErrorResponse,
    Message,
    Notification,
    Request,
    Response,
    decode,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)


def verdict(line: bytes) -> Message | Malformed | BadMessage:
    try:
        return decode(line)
    except (Malformed, BadMessage) as fault:
        return fault


def is_json(line: bytes) -> bool:
    """What another parser, made as strict as the grammar, says."""

    def refuse(token: str) -> None:
        raise ValueError(token)

    try:
        json.loads(line.decode(), parse_constant=refuse, parse_int=str, parse_float=str)
    except ValueError:
        return False
    return True


@given(st.binary(max_size=80) | damaged_lines())
@example(b"[1")
@example(b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 300 + b"]" * 300 + b"}")
def test_any_bytes_give_a_message_or_a_fault_and_malformed_means_not_json(line: bytes) -> None:
    assert isinstance(verdict(line), Malformed) is not is_json(line)


@given(messages(), st.booleans(), st.sampled_from([None, (" , ", " : ")]))
def test_a_good_message_is_read_as_it_was_meant(
    message: dict[str, Any], ensure_ascii: bool, separators: tuple[str, str] | None
) -> None:
    read = decode(written(message, ensure_ascii=ensure_ascii, separators=separators))
    match read:
        case Response(request_id, result):
            assert isinstance(result, bytes)
            assert (request_id, json.loads(result)) == (message["id"], message["result"])
        case ErrorResponse(request_id, code, text, data):
            error = message["error"]
            assert (request_id, code, text) == (message["id"], error["code"], error["message"])
            assert (data is not None) is ("data" in error)
            assert data is None or json.loads(data) == error["data"]
        case Request(id_raw, method, params):
            assert (json.loads(id_raw), method) == (message["id"], message["method"])
            assert isinstance(params, bytes | None)
            assert (params is not None) is ("params" in message)
        case Notification(method):
            assert method == message["method"]
            assert "id" not in message


@given(st.integers(1), st.text(max_size=12), st.none() | arguments)
def test_a_request_is_read_back(request_id: int, method: str, params: dict[str, Any] | None) -> None:
    raw = None if params is None else written(params, separators=(",", ":"))
    line = encode_request(request_id, method, raw)
    assert line.count(b"\n") == 1
    assert decode(line.rstrip(b"\n")) == Request(str(request_id).encode(), method, raw)


@given(ids, values, st.integers(), st.text(max_size=12))
def test_answers_are_read_back(request_id: int | str, value: Any, code: int, message: str) -> None:
    id_raw, result = written(request_id), written(value, separators=(",", ":"))
    assert decode(encode_result(id_raw, result).rstrip(b"\n")) == Response(request_id, result)
    error = encode_error(id_raw, code, message).rstrip(b"\n")
    assert decode(error) == ErrorResponse(request_id, code, message, None)


@given(st.text(max_size=12))
def test_a_notification_is_read_back(method: str) -> None:
    assert decode(encode_notification(method).rstrip(b"\n")) == Notification(method)
