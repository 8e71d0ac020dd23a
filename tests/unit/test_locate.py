"""The places of tables, keys and array elements in a TOML text."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.config.locate import MAX_DEPTH, Path, locate


def place(text: str, *path: str | int) -> tuple[int, int] | None:
    return locate(text).places.get(path)


def test_a_key_is_found_at_its_first_character() -> None:
    assert place("# note\n\n  answer = 42\n", "answer") == (3, 3)


def test_a_table_is_found_at_its_name_in_the_header() -> None:
    text = "[mcp.github]\n[ broker ]\n"
    assert place(text, "mcp") == (1, 2)
    assert place(text, "mcp", "github") == (1, 6)
    assert place(text, "broker") == (2, 3)


def test_each_part_of_a_dotted_key_is_found() -> None:
    text = "[mcp.a]\ntools . allow = []\n"
    assert place(text, "mcp", "a", "tools") == (2, 1)
    assert place(text, "mcp", "a", "tools", "allow") == (2, 9)


def test_the_definition_of_a_table_counts_more_than_an_earlier_mention() -> None:
    assert place("[mcp.a.limits]\n[mcp.a]\n", "mcp", "a") == (2, 6)


def test_of_two_definitions_the_first_counts() -> None:
    assert place("a = 1\na = 2\n", "a") == (1, 1)


def test_quoted_keys_are_found_under_what_they_mean() -> None:
    text = '"a b" = 1\n\'c"d\' = 2\n"\\u00e9" = 3\n'
    assert [place(text, key) for key in ("a b", 'c"d', "é")] == [(1, 1), (2, 1), (3, 1)]


def test_keys_of_nested_inline_tables_are_found() -> None:
    text = 'a = { b = 1, c = { "d" = 2 } }\n'
    assert place(text, "a", "b") == (1, 7)
    assert place(text, "a", "c", "d") == (1, 20)


def test_elements_of_an_array_are_found_over_lines_and_comments() -> None:
    text = 'command = [\n  "a", # "x", "y"\n\n  "b",\n]\nnext = 1\n'
    assert place(text, "command", 0) == (2, 3)
    assert place(text, "command", 1) == (4, 3)
    assert place(text, "next") == (6, 1)


def test_tables_of_an_array_are_told_apart() -> None:
    text = "[[a]]\nx = 1\n[[a]]\nx = 2\n[a.b]\ny = 3\n"
    assert place(text, "a", 0, "x") == (2, 1)
    assert place(text, "a", 1, "x") == (4, 1)
    assert place(text, "a", 1, "b", "y") == (6, 1)


@pytest.mark.parametrize(
    "value",
    [
        '"""\nb = 1\n"quoted" ""\\" \n"""',
        '"""a""""',
        '""""""',
        "'''\nb = 1\n''a'''",
        "'b = 1'",
        '"# \\" b = 1"',
        "1979-05-27 07:32:00",
        "[[1, [2]], [], {x = [3]}]",
    ],
)
def test_what_looks_like_a_key_inside_a_value_is_none(value: str) -> None:
    text = f"a = {value}\nafter = 2\n"
    assert set(tomllib.loads(text)) == {"a", "after"}
    assert {path[0] for path in locate(text).places} == {"a", "after"}
    assert place(text, "after") == (text.count("\n"), 1)


def test_a_key_with_an_impossible_escape_is_found_as_it_is_written() -> None:
    assert place('"\\q" = 1', "\\q") == (1, 1)


def test_crlf_counts_as_one_line_end() -> None:
    assert place("a = 1\r\n\r\nb = 2\r\n", "b") == (3, 1)


def test_a_missing_key_is_placed_at_its_nearest_parent() -> None:
    found = locate("\n[mcp.a]\n")
    assert found.nearest(("mcp", "a", "command")) == (2, 6)
    assert found.nearest(("broker", "socket")) is None


def test_the_key_around_a_place_is_told() -> None:
    found = locate("[a]\nx = [\n1,\n\n")
    assert found.at(found.places[("a", "x")]) == ("a", "x")
    assert found.at(found.places[("a",)]._replace(line=9)) == ("a", "x")
    assert locate("").at(found.places[("a",)]) == ()


def test_deep_nesting_costs_neither_recursion_nor_quadratic_memory() -> None:
    deep = locate("a = " + "[" * 100_000)
    assert max(map(len, deep.places)) <= MAX_DEPTH
    dotted = locate("a" + ".a" * 20_000 + " = 1")
    assert max(map(len, dotted.places)) <= MAX_DEPTH


@given(st.text(alphabet="ab.=[]{},\"'\\#\n\r \t1") | st.text())
def test_any_text_is_located_and_every_place_lies_inside_it(text: str) -> None:
    lines = text.replace("\r\n", "\n").split("\n")
    for line, column in locate(text).places.values():
        assert 1 <= column <= len(lines[line - 1])


# --- every key that the TOML reader finds is found ------------------------------------------------------------

KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4) | st.sampled_from(
    ["a", "b-1", "x_y", "[", "#"]
)
SCALARS = (
    st.sampled_from(
        ["1", "-0.5", "true", "1979-05-27 07:32:00", '"""\n[x]\n"""', "'''\n'a = 1\n'''", "'#'", '"\\""']
    )
    | st.integers().map(str)
    | st.text(max_size=5).map(lambda text: quote(text))
)


def quote(text: str) -> str:
    return '"' + "".join(f"\\U{ord(c):08X}" if not c.isalnum() and c != " " else c for c in text) + '"'


def inline(value: Any) -> str:
    match value:
        case dict():
            return "{ " + ", ".join(f"{quote(k)} = {inline(v)}" for k, v in value.items()) + " }"
        case list():
            return "[ # first\n" + "".join(f"  {inline(item)},\n" for item in value) + "]"
        case _:
            return str(value)


VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
TABLES = st.dictionaries(KEYS, VALUES, max_size=3)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """A document with top-level keys, tables, tables below them, and arrays of tables, in shuffled layout."""
    blank = st.sampled_from(["", "\n", "# note = 1\n", "\t"])
    parts: list[str] = []
    for name, table in draw(st.dictionaries(KEYS, TABLES, max_size=3)).items():
        style = draw(st.sampled_from(["table", "array", "dotted", "nested"]))
        pairs = list(table.items())
        if style == "dotted" and pairs:
            parts.insert(0, "".join(f"{quote(name)}.{quote(k)} = {inline(v)}\n" for k, v in pairs))
        else:
            header = {"array": f"[[{quote(name)}]]", "nested": f"[{quote(name)}. {quote('in')}]"}
            body = "".join(draw(blank) + f"{quote(k)} = {inline(v)}\n" for k, v in pairs)
            section = f"{header.get(style, f'[{quote(name)}]')}\n{body}"
            parts.append(section * draw(st.integers(1, 2)) if style == "array" else section)
    return draw(blank).join(parts)


def paths(value: Any, at: Path = ()) -> list[Path]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for name, member in members for path in [(*at, name), *paths(member, (*at, name))]]


@given(documents(), st.booleans())
def test_every_path_of_a_document_is_found(text: str, crlf: bool) -> None:
    text = text.replace("\n", "\r\n") if crlf else text
    assert set(locate(text).places) == set(paths(tomllib.loads(text)))
