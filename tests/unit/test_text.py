"""Untrusted text made fit for people's eyes."""

import re

from hypothesis import given
from hypothesis import strategies as st

from treadle import text


@given(st.text())
def test_sanitised_text_keeps_its_length_and_holds_no_forbidden_code_point(value: str) -> None:
    clean = text.sanitise(value)
    assert len(clean) == len(value)
    assert not re.search(f"[{text.FORBIDDEN}]", clean)


@given(st.text(), st.integers(1, 50))
def test_a_cut_text_has_exactly_the_limit_and_ends_in_an_ellipsis(value: str, limit: int) -> None:
    cut = text.cap(value, limit)
    if len(value) <= limit:
        assert cut == value
    else:
        assert (len(cut), cut[-1]) == (limit, "…")


@given(st.binary(max_size=2000) | st.text(max_size=600), st.integers(1, 200))
def test_a_quote_is_one_line_within_its_limit(value: bytes | str, limit: int) -> None:
    quoted = text.quote(value, limit)
    assert len(quoted) <= limit
    assert "\n" not in quoted


def test_bytes_that_are_not_utf8_are_quoted_as_escapes() -> None:
    assert text.quote(b"caf\xe9 ok") == "caf\\xe9 ok"


def test_the_quote_of_a_long_line_says_that_it_was_cut() -> None:
    assert text.quote(b"x" * 10_000, 20) == "x" * 19 + "…"
