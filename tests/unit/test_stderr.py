"""The bounded tail of a server's stderr and the lines that the log gets from it."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import effort
from treadle.secrets import Redactor, Secret
from treadle.stderr import BURST, LINE_LIMIT, OVERLAP, StderrTail

SECRET = "s3cr3t-value-of-some-length"


def redact(text: str) -> str:
    return text.replace(SECRET, "[redacted]")


def tail_of(*chunks: bytes, limit: int = 65536) -> StderrTail:
    tail = StderrTail(redact, limit)
    for chunk in chunks:
        tail.feed(chunk, 0.0)
    return tail


def test_a_line_is_shown_once_it_is_complete() -> None:
    tail = StderrTail(redact)
    assert tail.feed(b"hel", 0.0) == []
    assert tail.tail() == ""
    assert tail.feed(b"lo\nwor", 0.0) == ["hello"]
    assert tail.finish(0.0) == ["wor"]
    assert tail.tail() == "hello\nwor"


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=6))
def test_how_the_pipe_cuts_the_bytes_makes_no_difference(data: bytes, cuts: list[int]) -> None:
    whole, pieces = StderrTail(redact), StderrTail(redact)
    bounds = sorted({0, *(min(cut, len(data)) for cut in cuts), len(data)})
    shown = [line for a, b in pairwise(bounds) for line in pieces.feed(data[a:b], 0.0)]
    assert shown == whole.feed(data, 0.0)
    assert pieces.finish(0.0) == whole.finish(0.0)
    assert pieces.tail() == whole.tail()


@given(st.integers(0, len(SECRET)))
def test_a_secret_cut_across_chunks_is_redacted(cut: int) -> None:
    text = f"token={SECRET}!\n".encode()
    tail = StderrTail(redact)
    shown = tail.feed(text[: 6 + cut], 0.0) + tail.feed(text[6 + cut :], 0.0)
    assert shown == ["token=[redacted]!"]
    assert tail.tail() == "token=[redacted]!"


def test_a_pending_line_is_not_shown_because_it_may_end_in_half_a_secret() -> None:
    tail = tail_of(b"done\ntoken=" + SECRET[:10].encode())
    assert tail.tail() == "done"
    assert tail.last_lines() == "done"


@given(st.integers(-len(SECRET) - 3, 3), st.integers(0, 40))
def test_no_part_of_a_secret_at_the_cut_of_a_long_line_is_shown(offset: int, earlier: int) -> None:
    line = (SECRET * earlier).encode().ljust(LINE_LIMIT + offset, b".") + SECRET.encode() + b"x" * 2 * OVERLAP
    (shown,) = StderrTail(redact).feed(line + b"\n", 0.0)
    assert not any(SECRET[:length] in shown for length in range(4, len(SECRET) + 1))
    assert shown.endswith("…")


@pytest.mark.parametrize("before", [0, 1, 5, 63])
@pytest.mark.parametrize("copies", [100, 190, 193, 800])
def test_a_long_line_of_nothing_but_a_secret_shows_none_of_it(before: int, copies: int) -> None:
    secret = "s3cr3t-0123456789-abcdefghijklmnopqrstuvwxyz-ABCDEFGHIJKLMNOPQR-"
    tail = StderrTail(Redactor([Secret(secret)]))
    (shown,) = tail.feed(f"{'x' * before}{secret * copies}\n".encode(), 0.0)
    for text in (shown, tail.tail(), tail.last_lines(limit=4000)):
        assert not any(secret[at : at + 5] in text for at in range(len(secret) - 4))


def test_of_a_line_that_is_too_long_the_beginning_is_shown() -> None:
    (shown,) = StderrTail(Redactor([Secret("hunter2-hunter2")])).feed(b"x" * 100_000 + b"\n", 0.0)
    assert shown == "x" * (LINE_LIMIT - 1) + "…"


@pytest.mark.parametrize("line", [b"\n", b"x\n", b"x\r", b" \n", b"\n \nxy\n"])
def test_a_flood_of_lines_costs_little_for_each_once_the_log_has_its_share(line: bytes) -> None:
    tail = StderrTail(redact)
    chunk = line * (32_768 // len(line))
    tail.feed(chunk, 0.0)
    assert effort.lines(lambda: tail.feed(chunk, 0.0)) < 500
    assert len(tail._kept) <= 65536


@given(st.lists(st.sampled_from([b"\n", b"x\n", b" \t\n", b" y\r", b"\r\n", b" z"]), max_size=300))
def test_every_line_is_shown_or_counted(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    tail = StderrTail(redact)
    lines = [line.decode() for line in data.replace(b"\r", b"\n").split(b"\n") if line.strip()]
    shown = tail.feed(data, 0.0) + tail.finish(0.0)
    left_out = len(lines) - BURST
    assert shown == [line.replace("\t", " ") for line in lines[:BURST]] + (
        [f"({left_out} lines suppressed)"] if left_out > 0 else []
    )
    assert tail.tail() == "\n".join(lines).replace("\t", " ")


def test_fifty_megabytes_without_a_newline_cost_bounded_memory_and_little_work() -> None:
    tail = StderrTail(redact)
    chunk = b"x" * 65536
    shown: list[str] = []
    work = effort.lines(lambda: shown.extend(tail.feed(chunk, 0.0)))
    for _ in range(798):
        shown += tail.feed(chunk, 0.0)
    assert effort.lines(lambda: shown.extend(tail.feed(chunk, 0.0))) <= work
    assert effort.moved([partial(tail.feed, b"", 0.0)]) < LINE_LIMIT  # what is pending is not copied
    assert shown == []
    assert tail.bytes == 800 * 65536
    assert len(tail._pending) == LINE_LIMIT + OVERLAP
    (shown,) = tail.feed(b"\n", 0.0)
    assert len(shown) <= LINE_LIMIT


def test_the_tail_keeps_the_newest_lines_within_its_limit() -> None:
    tail = tail_of(*(f"line {number:04}\n".encode() for number in range(1000)), limit=100)
    assert tail.tail().splitlines()[-1] == "line 0999"
    assert len(tail.tail()) <= 110


@given(st.integers(0, 60))
def test_the_tail_never_passes_the_bytes_asked_for(limit: int) -> None:
    tail = tail_of("äöü\nsecond line\nthird\n".encode())
    assert len(tail.tail(limit).encode()) <= limit
    assert "äöü\nsecond line\nthird".endswith(tail.tail(limit))


def test_bytes_that_are_not_utf8_are_shown_escaped() -> None:
    assert StderrTail(redact).feed(b"bad \xff\xfe byte\n", 0.0) == [r"bad \xff\xfe byte"]


def test_control_characters_do_not_reach_the_log() -> None:
    assert StderrTail(redact).feed(b"\x1b[31mred\x07\n", 0.0) == [" [31mred "]


def test_a_carriage_return_ends_a_line_and_blank_lines_are_dropped() -> None:
    assert StderrTail(redact).feed(b"10%\r20%\r\n\n  \n30%\n", 0.0) == ["10%", "20%", "30%"]


def test_a_flood_is_cut_to_the_burst_and_says_how_much_was_left_out() -> None:
    tail = StderrTail(redact)
    assert len(tail.feed(b"x\n" * 1000, 10.0)) == BURST
    assert tail.feed(b"y\n", 11.0) == [f"({1000 - BURST} lines suppressed)", "y"]


def test_what_was_suppressed_is_told_at_the_end_too() -> None:
    tail = StderrTail(redact)
    tail.feed(b"x\n" * (BURST + 7), 0.0)
    assert tail.finish(0.0) == ["(7 lines suppressed)"]


def test_ten_lines_a_second_are_let_through_after_the_burst() -> None:
    tail = StderrTail(redact)
    tail.feed(b"x\n" * BURST, 0.0)
    shown = [line for tenth in range(1, 11) for line in tail.feed(b"y\n", tenth / 10 + 0.001)]
    assert shown == ["y"] * 10


def test_the_last_lines_explain_a_failure_in_one_bounded_line() -> None:
    tail = tail_of(b"one\ntwo\nthree\nfour\n")
    assert tail.last_lines(3) == "two | three | four"
    assert tail.last_lines(3, limit=10) == "…ee | four"
