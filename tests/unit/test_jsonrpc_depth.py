"""Nesting past 256 levels: found without a decoder, and charged to the payload (client page, sections 1 and 7)."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import values, written

from support import effort
from treadle.errors import BadMessage, Malformed, NotCarriable
from treadle.wire.jsonrpc import ErrorResponse, Notification, Request, Response, decode
from treadle.wire.nesting import MAX_VALUES, too_deep, too_many_values
from treadle.wire.scan import TOKEN_BUDGET, Member, NotJson, members

TOO_DEEP = NotCarriable("nesting past 256 levels")


def nested(levels: int, core: str = "") -> str:
    """Arrays and objects in turn, ``levels`` deep."""
    brackets = list(itertools.islice(itertools.cycle([("[", "]"), ('{"a":', "}")]), levels))
    return (
        "".join(opening for opening, _ in brackets)
        + (core or "1")
        + "".join(closing for _, closing in reversed(brackets))
    )


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


def nests(text: bytes, levels: int) -> bool:
    """Whether ``text`` is found to nest ``levels`` deep, no deeper and no less."""
    return not too_deep(text, levels) and (levels == 0 or too_deep(text + b" " * 2 * levels, levels - 1))


# --- measuring -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("1", 0),
        ('"[[[["', 0),
        ("[]", 1),
        ("{}", 1),
        ("[[],[[]]]", 3),
        (r'["\"[[[\\"]', 1),
        (r'["\\",[[]]]', 3),
        (r'{"a\\\"[":{"b":["]]]"]}}', 3),
        (nested(300), 300),
    ],
)
def test_nesting_counts_levels_outside_of_strings(text: str, levels: int) -> None:
    assert nests(text.encode(), levels)


@given(values, st.booleans())
def test_nesting_agrees_with_the_decoded_value(value: Any, ensure_ascii: bool) -> None:
    assert nests(written(value, ensure_ascii=ensure_ascii), depth_of(value))


def test_nesting_sees_strings_across_its_segments() -> None:
    text = '["' + "x" * (1024 * 1024) + '",["' + "[" * (1024 * 1024) + '"]]'
    assert nests(text.encode(), 2)


def test_a_limit_is_inclusive() -> None:
    wide = ",[1]" * 300
    for levels, verdict in ((256, False), (257, True)):
        assert too_deep(f"[{nested(levels - 1)}{wide}]".encode()) is verdict


def test_brackets_in_strings_are_no_nesting() -> None:
    assert not too_deep(json.dumps(["[" * 5000, "{" * 5000]).encode())


@pytest.mark.parametrize(
    ("text", "levels"),
    [("[" + "[]," * 700_000 + "1]", 2), ("[" + '"[",' * 500_000 + "1]", 1), (nested(100_000), 100_000)],
    ids=["pairs", "strings", "deep"],
)
def test_measuring_takes_a_few_passes_whatever_the_number_of_brackets(text: str, levels: int) -> None:
    raw = text.encode()
    assert effort.lines(lambda: too_deep(raw)) < 2500
    assert nests(raw, levels)


def test_a_text_that_is_too_deep_at_its_beginning_is_not_measured_to_its_end() -> None:
    deep = b"[" * 8_000_000
    assert effort.lines(lambda: too_deep(deep)) < effort.lines(lambda: too_deep(deep[:2_000_000])) + 10


@pytest.mark.parametrize("size", [1, 100, 1_000_000])
def test_depth_adds_up_over_the_segments_of_a_long_text(size: int) -> None:
    before = b"[" * 200 + b"[]," * size
    assert not too_deep(before + nested(56).encode() + b"]" * 200)
    assert too_deep(before + nested(57).encode() + b"]" * 200)


# --- counting --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1", 0),
        ("[1,2,3]", 3),
        ('[",,,[[[",1]', 2),
        (r'["\\",",\",[",{"a":1,"b,":[]}]', 6),
        ('{"a":{"b":{}}}', 3),
    ],
)
def test_values_are_commas_and_opened_brackets_outside_of_strings(text: str, count: int) -> None:
    padded = text.encode() + b" " * 20
    assert not too_many_values(padded, count)
    assert count == 0 or too_many_values(padded, count - 1)


@given(values)
def test_no_value_holds_more_than_is_counted(value: Any) -> None:
    def count(node: Any) -> int:
        children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        return 1 + sum(map(count, children))

    number = count(value)
    assert number < 3 or too_many_values(written(value) + b" " * 2 * number, number - 2)


@pytest.mark.parametrize(
    "many", ["0," * MAX_VALUES, "[]," * (MAX_VALUES // 2), '"",' * MAX_VALUES], ids=["numbers", "arrays", "texts"]
)
@pytest.mark.parametrize("member", ['"result":%s', '"error":{"code":1,"message":"m","data":%s}'])
def test_an_answer_of_too_many_values_costs_only_its_call_and_is_not_decoded(many: str, member: str) -> None:
    text = ('{"jsonrpc":"2.0","id":1,' + member % f"[{many}[0]]" + "}").encode()
    assert decode(text) == Response(1, NotCarriable("more than 1000000 values"))


def test_a_long_text_full_of_commas_is_one_value() -> None:
    rows = json.dumps("1,2,[3]\n" * 500_000)
    payload = f'{{"content":[{{"type":"text","text":{rows}}}]}}'.encode()
    assert decode(b'{"jsonrpc":"2.0","id":1,"result":' + payload + b"}") == Response(1, payload)


# --- the scanner -----------------------------------------------------------------------------------------------


def test_the_scanner_finds_the_members_of_an_object() -> None:
    text = b'{"a" : [1,{"b":[]}], "a":"x\\"y" ,"c":-1.5e3}'
    found = members(text)
    assert found is not None
    assert [(member.key, text[member.start : member.end], member.depth) for member in found] == [
        (b'"a"', b'[1,{"b":[]}]', 4),
        (b'"a"', b'"x\\"y"', 1),
        (b'"c"', b"-1.5e3", 1),
    ]
    assert members(b'{"k":1}') == [Member(b'"k"', 5, 6, 1)]


@pytest.mark.parametrize("text", [b"[]", b'[{"a":1}]', b"1", b'"x"', b" null "])
def test_the_scanner_tells_other_json_from_an_object(text: bytes) -> None:
    assert members(text) is None


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"}", b"[}", b"{]", b"[1 2]", b"[1,]", b"[,1]", b'{"a"}', b'{"a":}', b'{"a":1,}', b"{1:2}",
     b'{"a":1 "b":2}', b"[1]]", b"1 2", b"[01]", b"[1.]", b"[.5]", b"[+1]", b'["\\x"]', b'["\\u12"]', b'["\n"]',
     b"[nul]", b"[NaN]", b'["a', b",", b":", b"[:]", b'{"a":1:2}', b"1,2"],
)  # fmt: skip
def test_the_scanner_refuses_what_is_not_json(text: bytes) -> None:
    with pytest.raises(NotJson):
        members(text)


@given(values)
def test_the_scanner_accepts_every_document(value: Any) -> None:
    found = members(written(value))
    assert (found is None) is not isinstance(value, dict)


@given(values, st.data())
def test_the_scanner_agrees_with_another_parser_about_damage(value: Any, data: st.DataObject) -> None:
    text = written(value)
    at = data.draw(st.integers(0, len(text)))
    damaged = (
        text[:at] + data.draw(st.sampled_from([b"", b",", b"]", b"}", b'"', b"\\", b"1", b"x"])) + text[at + 1 :]
    )
    try:
        json.loads(damaged, parse_constant=int, parse_int=str)
    except ValueError:
        with pytest.raises(NotJson):
            members(damaged)
    else:
        members(damaged)


def test_the_scanner_gives_up_past_its_budget() -> None:
    with pytest.raises(NotJson, match="more than 3 tokens"):
        members(b"[1,2]", budget=3)
    assert members(b"[1]", budget=4) is None


# --- lines -----------------------------------------------------------------------------------------------------


def line(member: str, levels: int) -> bytes:
    """A response whose ``member`` reaches down to level ``levels`` of the line."""
    return f'{{"jsonrpc":"2.0","id":1,"{member}":{nested(levels - 1)}}}'.encode()


def test_a_line_of_256_levels_passes() -> None:
    assert decode(line("result", 256)) == Response(1, nested(255).encode())


@pytest.mark.parametrize("levels", [257, 1_000, 50_000])
def test_a_result_past_256_levels_costs_only_the_call(levels: int) -> None:
    assert decode(line("result", levels)) == Response(1, TOO_DEEP)


def test_an_error_past_256_levels_costs_only_the_call() -> None:
    assert decode(line("error", 257)) == Response(1, TOO_DEEP)


def test_params_past_256_levels_harm_nobody() -> None:
    deep = nested(300)
    assert decode(f'{{"jsonrpc":"2.0","method":"x","params":{deep}}}'.encode()) == Notification("x")
    request = decode(f'{{"jsonrpc":"2.0","id":1,"method":"x","params":{deep}}}'.encode())
    assert request == Request(b"1", "x", TOO_DEEP)


def test_an_unknown_key_past_256_levels_harms_nobody() -> None:
    text = f'{{"x":{nested(300)},"jsonrpc":"2.0","id":1,"result":{{}},"\\ud800":{nested(300)}}}'
    assert decode(text.encode()) == Response(1, b"{}")


def test_of_a_deep_and_a_flat_duplicate_the_last_counts() -> None:
    deep = nested(300)
    flat_last = f'{{"jsonrpc":"2.0","id":1,"result":{deep},"r\\u0065sult":2}}'
    deep_last = f'{{"jsonrpc":"2.0","id":1,"result":2,"result":{deep}}}'
    assert decode(flat_last.encode()) == Response(1, b"2")
    assert decode(deep_last.encode()) == Response(1, TOO_DEEP)


@pytest.mark.parametrize("key", ["id", "method", "jsonrpc"])
def test_an_envelope_field_past_256_levels_is_a_bad_message(key: str) -> None:
    with pytest.raises(BadMessage):
        decode(f'{{"jsonrpc":"2.0","id":1,"result":1,"{key}":{nested(300)}}}'.encode())


def test_a_deep_value_beside_an_error_leaves_the_error_alone() -> None:
    text = f'{{"jsonrpc":"2.0","id":1,"error":{{"code":1,"message":"m"}},"x":{nested(300)}}}'
    assert decode(text.encode()) == ErrorResponse(1, 1, "m", None)


def test_a_deep_batch_is_a_bad_message() -> None:
    with pytest.raises(BadMessage, match="not a batch"):
        decode(("[" * 300 + "]" * 300).encode())


@pytest.mark.parametrize(
    "text", ["[" * 300 + "]" * 299, "[" * 300 + "]" * 300 + "x", '{"a":' * 300, "[" * 1_000_000]
)
def test_a_deep_line_that_is_no_json_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        decode(text.encode())


def test_a_deep_line_past_the_token_budget_is_malformed_and_says_so() -> None:
    with pytest.raises(Malformed, match=f"more than {TOKEN_BUDGET} tokens"):
        decode(line("result", TOKEN_BUDGET))
