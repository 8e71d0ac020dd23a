"""A secret shows itself to nobody, and is taken out of text in every likely form (configuration page)."""

from __future__ import annotations

import base64
import copy
import json
import pickle
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import effort
from treadle.secrets import MARK, Redactor, Secret
from treadle.text import cap, sanitise

VALUE = 'p/ä"\\ß+&7'
PEM = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nshort\n-----END KEY-----\n"


def redact(text: str, *values: str) -> str:
    return Redactor([Secret(value) for value in values])(text)


# --- Secret -------------------------------------------------------------------------------------------------


def test_a_secret_shows_its_value_only_when_asked() -> None:
    secret = Secret("hunter2")
    assert (repr(secret), str(secret), f"{secret:>30}", f"{secret!r}", f"{[secret]}") == (
        MARK,
        MARK,
        MARK,
        MARK,
        "[[redacted]]",
    )
    assert secret.reveal() == "hunter2"


def test_secrets_are_equal_by_value() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert len({Secret("a"), Secret("a")}) == 1
    assert Secret("a") != "a"


def test_a_secret_is_neither_pickled_nor_copied() -> None:
    for leave in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            leave(Secret("hunter2"))


# --- Redactor -----------------------------------------------------------------------------------------------


def test_text_without_a_secret_is_left_alone() -> None:
    assert redact("nothing here", "hunter2") == "nothing here"
    assert redact("anything") == "anything"


@pytest.mark.parametrize(
    "form",
    [
        VALUE,
        json.dumps(VALUE)[1:-1],
        json.dumps(VALUE, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps(VALUE))[3:-3],
        json.dumps(VALUE)[1:-1].replace("&", "\\u0026"),
        json.dumps(VALUE)[1:-1].replace("/", "\\/"),
        json.dumps(VALUE)[1:-1].replace("\\u00e4", "\\u00E4").replace("\\u00df", "\\u00DF"),
        repr(VALUE)[1:-1],
        urllib.parse.quote(VALUE),
        urllib.parse.quote(VALUE, safe=""),
        urllib.parse.quote(VALUE, safe="").lower(),
        base64.b64encode(VALUE.encode()).decode(),
        base64.urlsafe_b64encode(VALUE.encode()).decode().rstrip("="),
    ],
)
def test_a_secret_is_found_in_each_form_in_which_programs_print_it(form: str) -> None:
    assert redact(f"error: {form}, really", VALUE) == f"error: {MARK}, really"


@pytest.mark.parametrize("user", ["", "u:", "us:", "usr:"])
def test_basic_authentication_gives_no_secret_away(user: str) -> None:
    encoded = base64.b64encode(f"{user}hunter2-hunter3@host".encode()).decode()
    text = redact(f"Authorization: Basic {encoded}", "hunter2-hunter3")
    assert text.startswith("Authorization: Basic ")
    left = text.removeprefix("Authorization: Basic ").replace(MARK, "")
    # At each edge up to two characters belong to the secret and to its neighbour.
    assert len(left) <= len(base64.b64encode(f"{user}@host".encode())) + 4


def test_a_percent_encoded_space_may_be_a_plus() -> None:
    assert redact("q=open+sesame%21", "open sesame!") == f"q={MARK}"


def test_of_overlapping_secrets_nothing_is_left() -> None:
    assert redact("xabcdefghx", "abcde", "cdefgh") == f"x{MARK}x"
    assert redact("token-long token", "token", "token-long") == f"{MARK} {MARK}"


def test_a_secret_in_text_that_was_sanitised_is_still_found() -> None:
    assert redact(sanitise("x one\ttwo\x1bthree"), "one\ttwo\x1bthree") == f"x {MARK}"


def test_bytes_that_are_no_text_are_found_as_a_log_shows_them() -> None:
    value = b"key\xff\xfe-7".decode("utf-8", "surrogateescape")
    assert redact(b"got key\xff\xfe-7".decode("utf-8", "backslashreplace"), value) == f"got {MARK}"


def test_a_secret_with_a_lone_surrogate_is_found_like_any_other() -> None:
    assert redact("got \ud800key", "\ud800key") == f"got {MARK}"


def test_each_longer_line_of_a_secret_of_several_lines_is_found_by_itself() -> None:
    assert redact("read MIIEvQIBADANBg", PEM) == f"read {MARK}"
    assert redact("  -----END KEY-----", PEM) == f"  {MARK}"
    assert redact("short", PEM) == "short"
    assert redact(json.dumps(PEM), PEM) == f'"{MARK}\\n"'


def test_blanks_around_a_secret_are_no_part_of_it() -> None:
    assert redact("token hunter2.", " hunter2\n") == f"token {MARK}."


def test_an_empty_or_blank_secret_replaces_nothing() -> None:
    assert redact("a  b", "", " ", "\n") == "a  b"


def test_a_very_short_secret_is_replaced_only_where_it_stands_alone() -> None:
    assert redact("pin 12, port 1234, x12 12.", "12") == f"pin {MARK}, port 1234, x12 {MARK}."


@pytest.mark.parametrize("kept", range(4, 16))
def test_the_beginning_of_a_secret_at_the_end_of_a_cut_text_is_replaced(kept: int) -> None:
    text = cap("a line with hunter2-hunter3 and more", len("a line with ") + kept + 1)
    assert redact(text, "hunter2-hunter3") == f"a line with {MARK}…"


def test_a_text_that_was_cut_in_the_middle_of_a_message_is_covered() -> None:
    assert redact("said: tell hunt…; exit 1", "hunter2-hunter3") == f"said: tell {MARK}…; exit 1"


def test_an_ellipsis_after_something_else_changes_nothing() -> None:
    assert redact("hunting… hunt", "hunter2-hunter3") == "hunting… hunt"


def test_a_mark_is_not_marked_again() -> None:
    assert redact(redact("the word redacted", "redacted"), "redacted") == f"the word {MARK}"


SECRETS = st.text(min_size=4, max_size=12).filter(lambda text: len(text.strip()) >= 4)


@given(st.lists(SECRETS, min_size=1, max_size=3), st.lists(st.text(max_size=6), min_size=1, max_size=4), st.data())
def test_no_secret_survives_wherever_it_stands(values: list[str], around: list[str], data: st.DataObject) -> None:
    parts = [data.draw(st.sampled_from(values)) + piece for piece in around]
    left = redact("".join(parts), *values).split(MARK)
    assert not any(value.strip() in piece for value in values for piece in left)


@given(st.text(), st.lists(st.text(), max_size=4))
def test_redaction_is_total_and_leaves_other_text_alone(text: str, values: list[str]) -> None:
    pieces = redact(text, *values).split(MARK)
    at = 0
    for piece in pieces:
        at = text.index(piece, at) + len(piece)


def test_many_secrets_beside_many_marks_cost_no_more_than_their_number() -> None:
    redact = Redactor([Secret("hunter2-hunter2")])
    text = "hunter2-hunter2 [redacted] " * 20_000
    # Each secret looked up among all marks would be some 400 million steps.
    found = effort.within(400_000, lambda: redact(text))
    assert found == "[redacted] [redacted] " * 20_000
