"""From the words of a command line to a tool's arguments."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.cli.arguments import BadWord, arguments_of, coerce, parsed_json, whole

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "flag": {"type": "boolean"},
        "list": {"type": "array"},
        "map": {"type": "object"},
        "maybe": {"type": ["integer", "null"]},
        "either": {"anyOf": [{"type": "number"}, {"type": "string"}]},
    },
}


def _none(path: str) -> str:
    raise AssertionError(f"nothing is to be read, and {path} was")


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("text=1", "1"),
        ("text=true", "true"),
        ("text=", ""),
        ("text=a=b", "a=b"),
        ("count=1", 1),
        ("count=-7", -7),
        ("share=2", 2),
        ("share=2.5", 2.5),
        ("flag=true", True),
        ("flag=false", False),
        ("list=[1, 2]", [1, 2]),
        ('map={"a": 1}', {"a": 1}),
        ("maybe=null", None),
        ("maybe=3", 3),
        ("either=3", 3),
        ("either=three", "three"),
        ("unknown=3", 3),
        ("unknown=007", "007"),
        ("unknown=word", "word"),
        ("text:=1", 1),
    ],
)
def test_a_value_becomes_what_the_schema_asks_for(word: str, value: Any) -> None:
    (found,) = arguments_of([word], SCHEMA, _none).values()
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["count=one"], "count=one: the tool asks for integer"),
        (["count=1.5"], "count=1.5: the tool asks for integer"),
        (["flag=1"], "flag=1: the tool asks for boolean"),
        (["list={}"], "list={}: the tool asks for array"),
        (["alone"], "'alone' is not key=value, key:=JSON or key=@FILE"),
        (["=1"], "'=1' is not key=value, key:=JSON or key=@FILE"),
        (["a=1", "a=2"], "'a' is given twice"),
        (["a:={"], "a:={: is not JSON"),
        (["a:=NaN"], "a:=NaN: is not JSON: NaN is not JSON"),
    ],
)
def test_a_word_that_does_not_fit_is_refused_with_its_key(words: list[str], message: str) -> None:
    with pytest.raises(BadWord) as caught:
        arguments_of(words, SCHEMA, _none)
    assert str(caught.value).startswith(message)


def _read(path: str) -> str:
    return Path(path).read_text()


def test_a_file_gives_its_text(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("12\n")
    assert arguments_of([f"text=@{file}"], SCHEMA, _read) == {"text": "12\n"}
    with pytest.raises(BadWord, match="No such file"):
        arguments_of([f"text=@{tmp_path}/none"], SCHEMA, _read)


@given(st.text(), st.recursive(st.none() | st.booleans() | st.text(), lambda one: st.lists(one) | st.dictionaries(
    st.sampled_from(["type", "anyOf", "oneOf"]), one)))  # fmt: skip
def test_any_schema_gives_a_value_or_says_what_it_asks_for(value: str, schema: Any) -> None:
    said = "the tool asks for"
    try:
        coerce("a", value, schema)
    except BadWord as error:
        said = str(error)
    assert "the tool asks for" in said


_WORDS = st.sampled_from(
    ["true", "false", "null", "True", "nul", "NaN", "Infinity", "-Infinity", "\ufeff", "[]", "{}", '"a"', "/", "é"]
)


@given(st.text(alphabet="0123456789-.eE \u0660") | st.lists(_WORDS | st.text(max_size=2), max_size=3).map("".join))
def test_a_value_is_read_or_refused_as_the_standard_reader_does(text: str) -> None:
    def constant(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    def read(reader: Callable[[str], Any]) -> Any:
        try:
            value = reader(text)
        except ValueError as error:
            return str(error)
        return value, type(value)

    assert read(parsed_json) == read(partial(json.loads, parse_constant=constant))


def test_the_whole_arguments_are_one_json_object() -> None:
    assert whole('{"a": 1}') == {"a": 1}
    for bad in ("[1]", "{", "NaN", "[" * 100_000):
        with pytest.raises(BadWord, match="--json-args"):
            whole(bad)
