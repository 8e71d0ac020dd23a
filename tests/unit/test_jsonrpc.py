"""The JSON-RPC envelope (client page, section 1; groups B, C and D of the hostile servers)."""

from __future__ import annotations

import json

import pytest

from treadle.errors import BadMessage, Malformed, NotCarriable
from treadle.wire.jsonrpc import (
    ErrorResponse,
    Notification,
    Request,
    Response,
    decode,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)

GOOD_ERROR = "an error object with an integer code and a string message"


def envelope(rest: str, version: str = '"2.0"') -> bytes:
    return f'{{"jsonrpc":{version},{rest}}}'.encode()


def answer(result: str, request_id: str = "1") -> bytes:
    return envelope(f'"id":{request_id},"result":{result}')


# --- what is what ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", ["{}", "null", "0", '"x"', "[1,2]", "false"])
def test_a_result_crosses_raw(result: str) -> None:
    assert decode(answer(result)) == Response(1, result.encode())


def test_a_result_keeps_its_numbers_as_they_were_written() -> None:
    assert decode(answer("[1.0,1E5,-0,1e400]")) == Response(1, b"[1.0,1E5,-0,1e400]")


def test_a_method_with_an_id_is_a_request() -> None:
    assert decode(envelope('"id":7,"method":"roots/list"')) == Request(b"7", "roots/list", None)
    assert decode(envelope('"id":"a","method":"x","params":{}')) == Request(b'"a"', "x", b"{}")


def test_a_method_without_an_id_is_a_notification() -> None:
    assert decode(envelope('"method":"notifications/message","params":{}')) == Notification(
        "notifications/message"
    )


def test_absent_and_null_params_of_a_request_differ() -> None:
    assert decode(envelope('"id":1,"method":"x"')) == Request(b"1", "x", None)
    assert decode(envelope('"id":1,"method":"x","params":null')) == Request(b"1", "x", b"null")


@pytest.mark.parametrize(
    ("data", "expected"), [("", None), (',"data":null', b"null"), (',"data":{"a":1e400}', b'{"a":1e400}')]
)
def test_an_error_keeps_code_message_and_raw_data(data: str, expected: bytes | None) -> None:
    line = envelope(f'"id":3,"error":{{"code":-32602,"message":"no"{data}}}')
    assert decode(line) == ErrorResponse(3, -32602, "no", expected)


def test_unknown_keys_are_ignored() -> None:
    assert decode(envelope('"id":1,"result":{},"x":[1],"params":5')) == Response(1, b"{}")
    assert decode(envelope('"id":1,"error":{"code":1,"message":"m","y":0}')) == ErrorResponse(1, 1, "m", None)


def test_the_version_may_be_written_with_escapes() -> None:
    assert decode(envelope('"method":"x"', r'"2\u002e0"')) == Notification("x")


@pytest.mark.parametrize("version", ["2.0", '"1.0"', '"2"', "null", "2", '["2.0"]'])
def test_any_other_version_is_refused(version: str) -> None:
    for rest in ('"id":1,"result":{}', '"method":"x"', '"id":1,"error":{"code":1,"message":""}'):
        with pytest.raises(BadMessage) as raised:
            decode(envelope(rest, version))
        assert raised.value.expected == '"jsonrpc": "2.0"'


def test_a_missing_version_is_refused() -> None:
    with pytest.raises(BadMessage, match="jsonrpc"):
        decode(b'{"id":1,"result":{}}')


@pytest.mark.parametrize(
    "beside", ['"result":1', '"error":{"code":1,"message":""}', '"result":null', '"error":null']
)
@pytest.mark.parametrize("request_id", ['"id":1,', ""])
def test_a_method_beside_a_result_or_error_is_refused(beside: str, request_id: str) -> None:
    with pytest.raises(BadMessage, match="no result or error beside a method"):
        decode(envelope(f'{request_id}"method":"x",{beside}'))


@pytest.mark.parametrize(
    "rest",
    [
        '"id":1',
        '"id":1,"result":{},"error":{"code":1,"message":""}',
        '"id":1,"result":{},"error":null',
        '"id":1,"result":null,"error":null',
    ],
)
def test_an_answer_needs_exactly_one_of_result_and_error(rest: str) -> None:
    with pytest.raises(BadMessage, match="exactly one of result and error"):
        decode(envelope(rest))


@pytest.mark.parametrize("method", ["null", "1", "[]", "{}", "true"])
def test_a_method_must_be_a_string(method: str) -> None:
    with pytest.raises(BadMessage, match="a method that is a string"):
        decode(envelope(f'"method":{method}'))


@pytest.mark.parametrize(
    "error",
    [
        "null",
        '"text"',
        "[]",
        "1",
        "{}",
        '{"code":1}',
        '{"message":"m"}',
        *(
            f'{{"code":{code},"message":"m"}}'
            for code in ('"x"', "1.5", "1.0", "true", "null", "1e100", "1E2", "[]")
        ),
        *(f'{{"code":1,"message":{message}}}' for message in ("1", "null", "[]", "{}", "true")),
    ],
)
def test_an_error_needs_an_integer_code_and_a_string_message(error: str) -> None:
    with pytest.raises(BadMessage) as raised:
        decode(envelope(f'"id":1,"error":{error}'))
    assert raised.value.expected == GOOD_ERROR


@pytest.mark.parametrize("code", [0, -32700, 2**31, -(2**63) - 1, pytest.param(10**4000, id="long")])
def test_an_error_code_may_have_any_size(code: int) -> None:
    assert decode(envelope(f'"id":1,"error":{{"code":{code},"message":""}}')) == ErrorResponse(1, code, "", None)


def test_a_code_past_what_python_converts_costs_the_call() -> None:
    line = envelope(f'"id":1,"error":{{"code":{"9" * 5000},"message":""}}')
    assert decode(line) == Response(1, NotCarriable("an integer of more than 4300 digits", "$.code"))


# --- ids -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("1", 1),
        ("-1", -1),
        ("0", 0),
        (str(2**70), 2**70),
        ('"1"', "1"),
        ('"1.0"', "1.0"),
        ('""', ""),
        (r'"\u0031"', "1"),
    ],
)
def test_an_id_is_an_integer_of_any_size_or_a_string(written: str, read: int | str) -> None:
    for message in (
        decode(answer("{}", written)),
        decode(envelope(f'"id":{written},"error":{{"code":1,"message":""}}')),
    ):
        assert isinstance(message, Response | ErrorResponse)
        assert message.id == read
        assert type(message.id) is type(read)


@pytest.mark.parametrize("digits", ["9" * 5000, "-" + "9" * 5000])
def test_an_id_past_what_python_converts_is_nobody_s(digits: str) -> None:
    assert decode(answer("{}", digits)) == Response(digits.encode(), b"{}")


@pytest.mark.parametrize("written", ["1.0", "1e0", "-0.0", "1e400", "true", "false", "null", "[]", "[1]", "{}"])
@pytest.mark.parametrize("rest", ['"result":{}', '"error":{"code":1,"message":""}', '"method":"x"'])
def test_any_other_id_is_refused(written: str, rest: str) -> None:
    with pytest.raises(BadMessage, match="an id that is an integer or a string"):
        decode(envelope(f'"id":{written},{rest}'))


def test_an_answer_without_an_id_is_refused() -> None:
    for rest in ('"result":{}', '"error":{"code":1,"message":""}'):
        with pytest.raises(BadMessage, match="an id"):
            decode(envelope(rest))


@pytest.mark.parametrize("written", ["7", "-7", "9" * 5000, '"7"', r'"\u0037\n"', '"é"'])
def test_a_request_s_id_is_kept_as_it_was_written(written: str) -> None:
    assert decode(envelope(f'"id":{written},"method":"x"')) == Request(written.encode(), "x", None)


def test_a_request_s_id_that_cannot_be_echoed_is_refused() -> None:
    with pytest.raises(BadMessage, match="an id"):
        decode(envelope(r'"id":"\ud800","method":"x"'))


# --- duplicate keys --------------------------------------------------------------------------------------------


def test_of_duplicate_keys_the_last_counts() -> None:
    assert decode(envelope('"id":1,"id":2,"result":1,"result":2')) == Response(2, b"2")
    assert decode(envelope('"id":1.5,"id":2,"result":{}')) == Response(2, b"{}")
    assert decode(envelope('"id":1,"error":7,"error":{"code":"x","code":5,"message":""}')) == ErrorResponse(
        1, 5, "", None
    )
    assert decode(b'{"jsonrpc":"1.0","jsonrpc":"2.0","id":1,"result":{}}') == Response(1, b"{}")


def test_a_last_duplicate_that_is_bad_counts_too() -> None:
    with pytest.raises(BadMessage, match="an id"):
        decode(envelope('"id":1,"id":1.5,"result":{}'))


# --- malformed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b" ",
        b"{",
        b'{"jsonrpc":"2.0","id":1,"result":{}',
        b'{"jsonrpc":"2.0","id":1,"result":{}} x',
        b'{"jsonrpc":"2.0","id":1,"result":{}}{}',
        b'{"jsonrpc":"2.0","id":1,"result":{},}',
        b'{"jsonrpc":"2.0","id":01,"result":{}}',
        b"{'jsonrpc':'2.0'}",
        b"// a comment",
        b"[1",
        b"[1,]",
        b'"x',
        b"nul",
        b"2024-01-01 INFO started",
        b'INFO {"jsonrpc":"2.0","id":1,"result":{}}',
        b"\x1b[32mready\x1b[0m",
        b'{"jsonrpc":"2.0","id":1,"result":"a\tb"}',
        b'{"jsonrpc":"2.0","id":1,"result":"\x00"}',
        b'{"jsonrpc":"2.0","id":1,"result":{}}\x00',
        '{"jsonrpc":"2.0"}'.encode("utf-16-le"),
        b'{"jsonrpc":"2.0","id":1,"result":"\\x41"}',
        b'{"jsonrpc":"2.0","id":1,"result":"\\ud8"}',
        b'["\\ud800"',
    ],
)
def test_what_is_not_one_json_document_is_malformed(line: bytes) -> None:
    with pytest.raises(Malformed):
        decode(line)


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity"])
def test_tokens_that_json_does_not_know_are_malformed(token: str) -> None:
    with pytest.raises(Malformed):
        decode(answer(token))


@pytest.mark.parametrize("octets", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"caf\xe9"])
@pytest.mark.parametrize("place", [b'{"jsonrpc":"2.0","id":1,"result":"%b"}', b"%b", b'{"%b":1}'])
def test_bytes_that_are_not_utf_8_are_malformed_also_inside_a_payload(octets: bytes, place: bytes) -> None:
    with pytest.raises(Malformed, match="not UTF-8"):
        decode(place % octets)


def test_a_byte_order_mark_is_malformed_and_named() -> None:
    with pytest.raises(Malformed, match="byte order mark"):
        decode(b"\xef\xbb\xbf" + answer("{}"))


def test_content_length_framing_is_malformed_and_gets_a_hint() -> None:
    for header in (b"Content-Length: 52", b"content-length:52"):
        with pytest.raises(Malformed, match="Content-Length framing"):
            decode(header)


def test_a_fault_quotes_the_beginning_of_the_line() -> None:
    with pytest.raises(Malformed) as malformed:
        decode(b"banner \x1b[1m" + b"x" * 1000)
    assert malformed.value.quoted == "banner  [1m" + "x" * 188 + "…"
    with pytest.raises(BadMessage) as bad:
        decode(b'{"status":200}')
    assert bad.value.quoted == '{"status":200}'


# --- JSON, but no message --------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [b'{"status":200}', b'"x"', b"7", b"null", b"{}", b"true", b"1e400", b"9" * 5000])
def test_json_that_is_no_message_is_a_bad_message(line: bytes) -> None:
    with pytest.raises(BadMessage):
        decode(line)


@pytest.mark.parametrize("line", [b"[]", b"[1]", b" [%b]" % answer("{}"), b'["\\ud800"]'])
def test_a_batch_is_a_bad_message_and_named(line: bytes) -> None:
    with pytest.raises(BadMessage, match="not a batch"):
        decode(line)


# --- not carriable ---------------------------------------------------------------------------------------------

LONE = [r"\ud800", r"\uDBFF", r"\udc00", r"\uDfFf"]


@pytest.mark.parametrize("escape", LONE)
@pytest.mark.parametrize("around", ["%s", "a%sb", r"\\%s", r"\n%s\n", r"\ud83d\ude00%s", r"%s\u0041", r"\\\\%s"])
def test_a_lone_surrogate_costs_only_the_payload(escape: str, around: str) -> None:
    message = decode(answer(f'{{"t":"{around % escape}"}}'))
    assert message == Response(1, NotCarriable("an escaped lone surrogate"))


@pytest.mark.parametrize("text", [r"\ud83d\ude00", r"\\ud800", r"\\\\udc00", r"\uD83D\uDE00\ud83d\ude00"])
def test_pairs_and_escaped_backslashes_are_no_lone_surrogates(text: str) -> None:
    assert decode(answer(f'"{text}"')) == Response(1, f'"{text}"'.encode())


def test_an_escaped_backslash_before_a_low_half_does_not_make_a_pair() -> None:
    assert decode(answer(r'"\\ud83d\ude00"')) == Response(1, NotCarriable("an escaped lone surrogate"))


def test_a_lone_surrogate_in_an_error_costs_only_the_call() -> None:
    for error in (r'{"code":1,"message":"\ud800"}', r'{"code":1,"message":"","data":"\ud800"}'):
        line = envelope(f'"id":1,"error":{error}')
        assert decode(line) == Response(1, NotCarriable("an escaped lone surrogate"))


def test_a_lone_surrogate_beside_the_payload_does_no_harm() -> None:
    assert decode(envelope(r'"id":1,"result":"\ufffd","x":"\ud800"')) == Response(1, rb'"\ufffd"')
    assert decode(envelope(r'"id":1,"result":{},"\ud800":1')) == Response(1, b"{}")
    assert decode(envelope(r'"method":"x","params":"\ud800"')) == Notification("x")


def test_a_text_full_of_replacement_characters_is_never_taken_for_carriable() -> None:
    every = "".join(rf"\u{a}{b}{c}d" for a in "fF" for b in "fF" for c in "fF") + r"\ufffD\uFFFD"
    line = envelope(rf'"id":1,"result":"\ud800","x":"{every}"')
    assert decode(line) == Response(1, NotCarriable("an escaped lone surrogate"))


def test_a_lone_surrogate_in_a_line_that_is_no_json_is_malformed() -> None:
    with pytest.raises(Malformed):
        decode(b'{"jsonrpc":"2.0","id":1,"result":"\\ud800"')


def test_a_method_with_a_lone_surrogate_is_still_a_method() -> None:
    assert isinstance(decode(envelope(r'"method":"\ud800"')), Notification)


def test_a_lone_surrogate_in_a_request_s_params_is_carried_as_a_fault() -> None:
    line = envelope(r'"id":1,"method":"x","params":["\ud800"]')
    assert decode(line) == Request(b"1", "x", NotCarriable("an escaped lone surrogate"))


# --- sent ------------------------------------------------------------------------------------------------------


def test_a_request_is_one_compact_line() -> None:
    line = encode_request(1, "tools/call", b'{"name":"x"}')
    assert line == b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}\n'


def test_params_are_omitted_when_there_are_none() -> None:
    assert encode_request(2, "ping") == b'{"jsonrpc":"2.0","id":2,"method":"ping"}\n'
    assert encode_notification("notifications/initialized") == (
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
    )


@pytest.mark.parametrize("id_raw", [b"7", b'"7"', b"9" * 5000])
def test_an_answer_echoes_the_id_as_it_was_written(id_raw: bytes) -> None:
    assert encode_result(id_raw, b"{}") == b'{"jsonrpc":"2.0","id":%b,"result":{}}\n' % id_raw
    error = encode_error(id_raw, -32601, "method not found")
    assert error == b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32601,"message":"method not found"}}\n' % id_raw


def test_what_is_sent_is_json() -> None:
    assert json.loads(encode_request(3, 'a\nb"c\u2028é', b"{}"))["method"] == 'a\nb"c\u2028é'
    assert encode_request(3, "a\nb").count(b"\n") == 1
