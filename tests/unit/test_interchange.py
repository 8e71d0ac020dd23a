"""Values between msgpack and JSON (client page, section 7)."""

from __future__ import annotations

import json
import math
import struct
from datetime import UTC, datetime
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import arguments, values, written

from support import effort
from treadle.errors import InvalidArgument, NotCarriable
from treadle.wire.interchange import (
    ARGUMENTS_DEPTH,
    BLOCK_DEPTH,
    RESULT_LIMIT,
    VALUE_DEPTH,
    arguments_to_json,
    check_value,
    json_to_value,
    redact_json,
)
from treadle.wire.paths import json_path


def nested(levels: int, core: Any = 1) -> Any:
    for _ in range(levels):
        core = [core]
    return core


# --- limits ----------------------------------------------------------------------------------------------------


def test_the_limits_follow_from_256_levels_and_16_mib() -> None:
    assert (ARGUMENTS_DEPTH, VALUE_DEPTH, BLOCK_DEPTH) == (254, 253, 252)
    assert RESULT_LIMIT == 16_777_216 - 65_536


# --- msgpack to JSON -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1, "1"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (0.1, "0.1"),
        (2**64 - 1, "18446744073709551615"),
        (-(2**63), "-9223372036854775808"),
        ("é\n\u2028", '"é\\n\u2028"'),
        ([], "[]"),
        ({}, "{}"),
        ([1, [2.5, {"b": None}]], '[1,[2.5,{"b":null}]]'),
    ],
)
def test_arguments_become_compact_json(value: Any, text: str) -> None:
    assert arguments_to_json({"a": value}) == f'{{"a":{text}}}'.encode()


def test_the_order_of_keys_is_kept() -> None:
    assert arguments_to_json({"z": 1, "a": {"y": 2, "b": 3}}) == b'{"z":1,"a":{"y":2,"b":3}}'


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"x", "a byte string"),
        (msgpack.ExtType(5, b"x"), "an extension value"),
        (msgpack.Timestamp(1), "a timestamp"),
        (datetime.now(UTC), "a timestamp"),
        (math.nan, "NaN"),
        (math.inf, "infinity"),
        (-math.inf, "infinity"),
        ("\ud800", "text that is not valid Unicode"),
        ({"\udc00": 1}, "a map key that is not valid Unicode"),
        ({b"k": 1}, "a map key that is a byte string"),
        ({1: 1}, "a map key that is an integer"),
        ({1.5: 1}, "a map key that is a float"),
        ({True: 1}, "a map key that is a boolean"),
        ({None: 1}, "a map key that is nil"),
        ((1, 2), "a value of type tuple"),
        ({1, 2}, "a value of type set"),
    ],
)
def test_what_json_cannot_say_is_refused_with_its_path(value: Any, found: str) -> None:
    for inside, path in (({"a": value}, "$.a"), ({"a": [0, 1, 2, {"b": value}]}, "$.a[3].b")):
        with pytest.raises(InvalidArgument) as raised:
            arguments_to_json(inside)
        assert raised.value == InvalidArgument(path, found)
        assert raised.value.outcome == "not_sent"


def test_the_first_bad_value_in_document_order_is_named() -> None:
    with pytest.raises(InvalidArgument) as raised:
        arguments_to_json({"a": [{"deep": [b"first"]}], "b": b"second"})
    assert raised.value.path == "$.a[0].deep[0]"


def test_a_key_of_the_outermost_map_is_named_by_the_root() -> None:
    with pytest.raises(InvalidArgument) as raised:
        arguments_to_json({1: 1})  # type: ignore[dict-item]
    assert raised.value == InvalidArgument("$", "a map key that is an integer")


def test_arguments_may_nest_254_levels() -> None:
    deepest = {"a": nested(253)}
    assert json.loads(arguments_to_json(deepest)) == deepest
    for too_deep in ({"a": nested(254)}, {"a": nested(253, {})}, {"a": nested(253, [])}):
        with pytest.raises(InvalidArgument) as raised:
            arguments_to_json(too_deep)
        assert raised.value.found == "nesting past 256 levels"
        assert raised.value.path.startswith("$.a[0][0]")


def test_a_large_list_of_numbers_is_checked_in_bulk() -> None:
    assert arguments_to_json({"a": [1.5] * 1000}) == b'{"a":[' + b",".join([b"1.5"] * 1000) + b"]}"
    with pytest.raises(InvalidArgument, match=r"\$.a\[999\]"):
        arguments_to_json({"a": [1.5] * 999 + [math.nan]})


@given(arguments)
def test_every_representable_map_becomes_the_same_value(value: dict[str, Any]) -> None:
    assert identical(json.loads(arguments_to_json(value)), value)


BAD = st.sampled_from([b"x", math.nan, math.inf, "\ud800", {1: 2}, {"\udfff": 2}, (), msgpack.ExtType(1, b"")])


@st.composite
def spoiled(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """Arguments with one bad value put somewhere, and the path to it."""
    node: Any = draw(BAD)
    steps: list[str | int] = []
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            before = draw(st.lists(values, max_size=3))
            steps.append(len(before))
            node = [*before, node, *draw(st.lists(values, max_size=2))]
        else:
            others = draw(arguments)
            key = draw(st.text(max_size=5))
            steps.append(key)
            others.pop(key, None)
            node = {**others, key: node}
    return {"top": node}, json_path(["top", *reversed(steps)])


@given(spoiled())
def test_one_bad_value_anywhere_is_named_by_its_path(case: tuple[dict[str, Any], str]) -> None:
    value, path = case
    with pytest.raises(InvalidArgument) as raised:
        arguments_to_json(value)
    assert raised.value.path == path


# --- paths -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "path"),
    [
        ([], "$"),
        (["a", 3, "b"], "$.a[3].b"),
        (["odd key"], '$["odd key"]'),
        ([""], '$[""]'),
        (["1st"], '$["1st"]'),
        (["é"], '$["é"]'),
        (['say "hi"\\'], '$["say \\"hi\\"\\\\"]'),
        (["new\nline\u202e"], '$["new line "]'),
        (["\ud800"], '$[" "]'),
        (["k" * 80], "$." + "k" * 80),
        (["k" * 81], '$["' + "k" * 79 + '…"]'),
    ],
)
def test_a_path_is_fit_to_print(steps: list[str | int], path: str) -> None:
    assert json_path(steps) == path


def test_a_long_path_is_cut() -> None:
    path = json_path(["key"] * 254)
    assert len(path) == 400
    assert path.startswith("$.key.key.")
    assert path.endswith("…")


# --- JSON to msgpack -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("null", None),
        ("1", 1),
        ("1.0", 1.0),
        ("-0.0", -0.0),
        ("-0", 0),
        ("1E5", 100000.0),
        ("0.1000000000000000055511151231257827", 0.1),
        ("9007199254740993", 2**53 + 1),
        ("18446744073709551615", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
        ("5e-324", 5e-324),
        ("1.7976931348623157e308", 1.7976931348623157e308),
        ('"9999999999999999999999"', "9999999999999999999999"),
        (r'"\ud83d\ude00"', "😀"),
        (r'"\u0000"', "\0"),
        ('{"a":1,"b":2,"a":3}', {"a": 3, "b": 2}),
    ],
)
def test_json_becomes_the_exact_value(raw: str, value: Any) -> None:
    assert identical(json_to_value(raw.encode()), value)


def test_keys_keep_their_order() -> None:
    assert list(json_to_value(b'{"z":1,"a":2,"m":3}')) == ["z", "a", "m"]


OUT_OF_RANGE = "an integer outside [-2^63, 2^64-1]"


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        ("18446744073709551616", OUT_OF_RANGE),
        ("-9223372036854775809", OUT_OF_RANGE),
        ("1" + "0" * 30, OUT_OF_RANGE),
        ("9" * 5000, OUT_OF_RANGE),
        ("-" + "9" * 5000, OUT_OF_RANGE),
        ("1e400", "a number past the range of a float"),
        ("-1e400", "a number past the range of a float"),
        (r'"\ud800"', "text that is not valid Unicode"),
        (r'{"\udc00":1}', "a map key that is not valid Unicode"),
    ],
)
def test_what_msgpack_cannot_say_fails_the_whole_conversion_with_its_path(raw: str, what: str) -> None:
    with pytest.raises(NotCarriable) as raised:
        json_to_value(f'{{"ok":1,"a":[0,{{"b":{raw}}}],"z":1e400}}'.encode())
    assert raised.value == NotCarriable(what, "$.a[1].b")


def test_a_path_may_begin_further_up() -> None:
    with pytest.raises(NotCarriable) as raised:
        json_to_value(b"[1e400]", at=("content", 2))
    assert raised.value.path == "$.content[2][0]"


@pytest.mark.parametrize("raw", [b"", b"[1", b"NaN", b"[Infinity]", b"\xff", b"1 2"])
def test_text_that_is_no_json_is_a_fault_and_no_crash(raw: bytes) -> None:
    with pytest.raises(NotCarriable):
        json_to_value(raw)


def test_a_value_may_nest_253_levels() -> None:
    assert json_to_value(b"[" * 253 + b"]" * 253)
    for levels in (254, 50_000):
        with pytest.raises(NotCarriable) as raised:
            json_to_value(b"[" * levels + b"]" * levels)
        assert raised.value == NotCarriable("nesting past 256 levels", "$")


@given(values, st.booleans())
def test_every_representable_value_crosses_json_and_msgpack_unchanged(value: Any, ensure_ascii: bool) -> None:
    crossed = json_to_value(written(value, ensure_ascii=ensure_ascii))
    assert identical(crossed, value)
    assert identical(msgpack.unpackb(msgpack.packb(crossed)), value)


@given(st.integers())
def test_an_integer_crosses_exactly_or_not_at_all(number: int) -> None:
    if -(2**63) <= number <= 2**64 - 1:
        assert json_to_value(str(number).encode()) == number
    else:
        with pytest.raises(NotCarriable):
            json_to_value(str(number).encode())


@given(st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", fullmatch=True))
def test_a_number_reads_as_another_parser_reads_it_or_is_refused(text: str) -> None:
    expected = json.loads(text)
    in_range = math.isfinite(expected) if isinstance(expected, float) else -(2**63) <= expected <= 2**64 - 1
    if in_range:
        assert identical(json_to_value(text.encode()), expected)
    else:
        with pytest.raises(NotCarriable):
            json_to_value(text.encode())


@given(values)
def test_a_value_that_msgpack_packs_passes_the_check(value: Any) -> None:
    check_value(value)


def test_a_legal_integer_of_twenty_digits_makes_nobody_look_at_the_rest() -> None:
    raw = b"[" * 250 + b"0," * 20_000 + b"10000000000000000000" + b"]" * 250
    assert effort.lines(lambda: json_to_value(raw)) < 2000


def test_finding_a_place_in_a_deep_value_takes_no_path_for_each_element() -> None:
    value: Any = [0] * 20_000 + [2**64]
    for _ in range(249):
        value = [value]
    with pytest.raises(NotCarriable) as raised:
        check_value(value)
    assert raised.value.path.startswith("$[0][0]")

    def look() -> None:
        with pytest.raises(NotCarriable):
            check_value(value)

    assert effort.moved([look]) < 200_000


def test_scalars_that_fit_are_looked_at_in_bulk() -> None:
    value = [[0] * 20_000, ["a"] * 20_000, [1.5] * 20_000, {"k": 2**64 - 1, "l": -(2**63)}]
    assert effort.lines(lambda: check_value(value)) < 500


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b'{"a":{"b":1},"c":[1,2,3,4,5,6,7,8,[0],99999999999999999999],"d":99999999999999999999}', "$.c[9]"),
        (b"[1,2,3,4,5,6,7,8,[[-9223372036854775809]],99999999999999999999]", "$[8][0][0]"),
        (b"-9223372036854775809", "$"),
        (b"[18446744073709551616]", "$[0]"),
        (b'["99999999999999999999",0.99999999999999999999,[],1e999]', "$[3]"),
    ],
)
def test_the_first_place_in_document_order_is_named_whatever_stands_around_it(raw: bytes, path: str) -> None:
    with pytest.raises(NotCarriable) as raised:
        json_to_value(raw)
    assert raised.value.path == path


@pytest.mark.parametrize("number", ["1.7976931348623157e308", "5e-324", "2.2250738585072011e-308", "-0.0", "0.1"])
def test_a_long_text_reads_its_floats_as_a_short_one_does(number: str) -> None:
    raw = f"[{','.join([number] * 3000)}]".encode()
    assert struct.pack(">d", json_to_value(raw)[-1]) == struct.pack(">d", float(number))


def test_a_number_past_the_range_of_a_float_is_found_in_a_long_text() -> None:
    with pytest.raises(NotCarriable) as raised:
        json_to_value(b"[" + b"0," * 10_000 + b"1e999]")
    assert (raised.value.what, raised.value.path) == ("a number past the range of a float", "$[10000]")


@pytest.mark.parametrize("bad", [2**64, -(2**63) - 1, "\ud800"])
def test_the_check_names_what_msgpack_would_refuse(bad: Any) -> None:
    with pytest.raises((OverflowError, UnicodeEncodeError)):
        msgpack.packb({"a": [bad]})
    with pytest.raises(NotCarriable) as raised:
        check_value({"a": [bad]}, at=("structuredContent",))
    assert raised.value.path == "$.structuredContent.a[0]"


# --- redaction -------------------------------------------------------------------------------------------------


def hide(text: str) -> str:
    return text.replace("s3cret", "[redacted]").replace("12345678", "[redacted]")


@pytest.mark.parametrize(
    ("raw", "redacted"),
    [
        ('{"a":"x s3cret y"}', {"a": "x [redacted] y"}),
        (r'{"a":"\u00733cret"}', {"a": "[redacted]"}),
        ('{"s3cret":[1,"s3cret"]}', {"[redacted]": [1, "[redacted]"]}),
        ("[12345678,1.5,true,null]", ["[redacted]", 1.5, True, None]),
        (r'"a \" s3cret \\"', 'a " [redacted] \\'),
    ],
)
def test_secrets_are_taken_out_of_json_however_they_are_written(raw: str, redacted: Any) -> None:
    assert json.loads(redact_json(raw.encode(), hide)) == redacted


@given(values)
def test_json_without_secrets_is_left_as_it_was(value: Any) -> None:
    raw = written(value)
    assert redact_json(raw, hide) == raw


def identical(left: Any, right: Any) -> bool:
    """Equal in value and in type, floats bit for bit, keys in order."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(identical(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(identical, left, right))
    if isinstance(left, float):
        return struct.pack(">d", left) == struct.pack(">d", right)
    return bool(left == right)


# --- arguments that the frame codec looked at -------------------------------------------------------------------


@given(st.dictionaries(st.text(), values, max_size=4))
def test_what_is_vouched_for_gives_the_same_text(arguments: dict[str, Any]) -> None:
    assert arguments_to_json(arguments, plain=True) == arguments_to_json(arguments)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("beside", [{}, {"none": None}, {"text": "null"}])
def test_a_number_that_json_cannot_say_is_found_in_what_is_vouched_for(
    number: float, beside: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        arguments_to_json({**beside, "a": [1, number]}, plain=True)
    assert caught.value.path == "$.a[1]"


def test_a_value_that_is_one_number_is_checked_as_well() -> None:
    for good in (2**64 - 1, "text", None, ()):
        check_value(good)
    with pytest.raises(NotCarriable) as caught:
        check_value(2**64)
    assert caught.value.path == "$"


def test_a_bad_number_is_found_behind_many_good_ones() -> None:
    good: list[Any] = [0] * 1000
    check_value([good, {"rows": good}])
    with pytest.raises(NotCarriable) as caught:
        check_value({"rows": [*good, {"sum": 2**64}, *good]})
    assert caught.value.path == "$.rows[1000].sum"
