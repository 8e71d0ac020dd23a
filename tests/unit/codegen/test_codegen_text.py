"""Codegen page, section 3: hostile text."""

import ast
import re

from hypothesis import given
from hypothesis import strategies as st

from treadle.codegen import text
from treadle.text import FORBIDDEN

ANY_TEXT = st.text(st.characters(exclude_categories=()) | st.sampled_from('\\"\n \u202e@*/'), max_size=300)


@given(ANY_TEXT, st.integers(1, 400))
def test_clipped_text_is_clean_and_counts_code_points(value: str, limit: int) -> None:
    clipped = text.clip(value, limit)
    assert not re.search(f"[{FORBIDDEN}]", clipped)
    assert len(clipped) == min(len(value), limit)
    assert len(value) <= limit or clipped[-1] == "…"


def test_a_code_point_outside_the_basic_plane_counts_once() -> None:
    assert text.clip("😀" * 401, text.DESCRIPTION_LIMIT) == "😀" * 399 + "…"


@given(ANY_TEXT, st.integers(1, 80))
def test_wrapped_lines_keep_the_words_and_the_width(value: str, width: int) -> None:
    lines = text.wrap(value, width)
    assert (
        " ".join(lines).split()
        == value.translate(dict.fromkeys(map(ord, re.findall(f"[{FORBIDDEN}\ud800-\udfff]", value)), " ")).split()
    )
    for line in lines:
        assert line == line.strip()
        assert len(line) <= width or " " not in line
        assert "\n" not in line


def test_a_word_goes_to_the_next_line_only_where_it_does_not_fit() -> None:
    assert text.wrap("aa bb cc", 5) == ["aa bb", "cc"]
    assert text.wrap("aa bbbbbbb c", 5) == ["aa", "bbbbbbb", "c"]


def test_a_bullet_hangs() -> None:
    assert text.bullet("one two three", 9) == ["- one two", "  three"]


def test_a_long_enumeration_names_the_first_members_and_counts_the_rest() -> None:
    prose = text.enumeration(tuple(f"m{index}" for index in range(20)))
    assert prose.startswith('one of "m0", "m1"')
    assert prose.endswith('"m15" and 4 more')


@given(ANY_TEXT)
def test_a_python_literal_is_ascii_without_inner_quotes_and_reads_back(value: str) -> None:
    literal = text.python_literal(value)
    assert re.fullmatch(r'"[ !#-~]*"', literal)
    assert ast.literal_eval(literal) == value


@given(ANY_TEXT)
def test_gleam_and_typescript_literals_are_printable_ascii_and_read_back(value: str) -> None:
    for literal in (text.gleam_literal(value), text.typescript_literal(value)):
        assert re.fullmatch(r'"(?:[ !#-\[\]-~]|\\["\\]|\\u\{[0-9a-f]+\})*"', literal)
    read = re.sub(
        r"\\u\{([0-9a-f]+)\}|\\(.)",
        lambda hit: hit[2] or chr(int(hit[1], 16)),
        text.typescript_literal(value)[1:-1],
    )
    assert read == value


def test_a_lone_surrogate_becomes_the_replacement_character_in_gleam() -> None:
    assert text.gleam_literal("a\ud800") == '"a\\u{fffd}"'


@given(ANY_TEXT)
def test_a_docstring_line_neither_ends_nor_escapes_its_docstring(value: str) -> None:
    for line in text.wrap(value):
        # Two quotes at the start would join the opening ones: the renderer escapes that place itself.
        parsed = ast.parse(f'"""\n{text.docstring_line(line)}\n"""').body
        assert ast.literal_eval(parsed[0].value) == f"\n{line}\n"  # type: ignore[attr-defined]
        assert len(parsed) == 1


@given(ANY_TEXT)
def test_a_block_comment_line_neither_ends_its_comment_nor_starts_a_tag(value: str) -> None:
    for line in text.wrap(value):
        escaped = text.block_comment_line(line)
        assert "*/" not in escaped
        assert not re.search(r"(?<![\w\\])@", escaped)
