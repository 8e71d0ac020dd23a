"""Framing of the stdio transport (client page, section 2; groups A and C of the hostile servers)."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import chunkings

from support import effort
from treadle.errors import LineTooLong, NotUtf8
from treadle.wire.lines import MAX_LINE, LineBuffer


def drain(chunks: list[bytes], limit: int = 64) -> tuple[list[bytes], LineBuffer]:
    buffer = LineBuffer(limit)
    return [line for chunk in chunks for line in buffer.push(chunk)], buffer


def test_the_limit_is_16_mib() -> None:
    assert MAX_LINE == 16_777_216


def test_a_stream_is_split_on_lf() -> None:
    assert drain([b"one\ntwo\n"])[0] == [b"one", b"two"]


def test_bytes_without_a_final_lf_are_held_back() -> None:
    lines, buffer = drain([b"one\ntw"])
    assert lines == [b"one"]
    assert buffer.pending == 2


def test_an_incomplete_line_can_be_discarded() -> None:
    buffer = LineBuffer()
    buffer.push(b"half \xe2\x82")
    buffer.discard()
    assert buffer.pending == 0
    assert buffer.push(b"whole\n") == [b"whole"]


def test_one_cr_before_the_lf_is_stripped() -> None:
    assert drain([b"one\r\ntwo\r\r\n"])[0] == [b"one", b"two\r"]


@pytest.mark.parametrize("separator", ["\r", "\u2028", "\u0085", "\x0b", "\x0c"])
def test_only_lf_splits(separator: str) -> None:
    line = f"a{separator}b".encode()
    assert drain([line + b"\n"])[0] == [line]


@pytest.mark.parametrize("blank", [b"", b" ", b"\t", b"\r", b" \t\r "])
def test_a_blank_line_is_dropped_and_counted(blank: bytes) -> None:
    lines, buffer = drain([blank + b"\na\n"])
    assert lines == [b"a"]
    assert buffer.blank == 1


@pytest.mark.parametrize("almost", ["\x0b", "\u00a0", "\x00"])
def test_other_white_space_is_content(almost: str) -> None:
    assert drain([almost.encode() + b"\n"])[0] == [almost.encode()]


def test_a_character_cut_across_chunks_is_put_together() -> None:
    text = "aé€😀".encode()
    assert drain([bytes([byte]) for byte in text + b"\n"])[0] == [text]


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_a_line_at_the_limit_passes_and_its_cr_counts(ending: bytes) -> None:
    line = b"x" * (65 - len(ending))
    lines, buffer = drain([line + ending])
    assert lines == [line]
    assert buffer.fault is None


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_a_completed_line_past_the_limit_is_a_fault(ending: bytes) -> None:
    lines, buffer = drain([b"ok\n" + b"x" * (66 - len(ending)) + ending])
    assert lines == [b"ok"]
    assert buffer.fault == LineTooLong(64, 65)


def test_a_pending_line_past_the_limit_is_a_fault_at_once() -> None:
    buffer = LineBuffer(64)
    assert buffer.push(b"x" * 64) == []
    assert buffer.fault is None
    buffer.push(b"y")
    assert buffer.fault == LineTooLong(64, 65)
    assert buffer.pending == 0


@pytest.mark.parametrize(
    ("octets", "offset"),
    [
        (b"ab\xff", 2),
        (b"ab\xc0\x80", 2),
        (b"ab\xed\xa0\x80", 2),
        (b"ab\xed\xa0", 2),
        (b"ab\xf4\x90", 2),
        (b"ab\x80", 2),
        ("é".encode() + b"\xe2\x28", 2),
        (b"caf\xe9\n", 3),
    ],
)
def test_bytes_that_can_never_become_utf_8_are_noticed_at_once(octets: bytes, offset: int) -> None:
    lines, buffer = drain([b"ok\n", octets])
    assert lines == [b"ok"]
    assert isinstance(buffer.fault, NotUtf8)
    assert buffer.fault.offset == offset


def test_a_character_that_may_still_come_is_waited_for() -> None:
    assert drain([b"ab\xf0\x9f\x98"])[1].fault is None


def test_utf_16_with_a_bom_is_not_utf_8() -> None:
    buffer = drain(["{}\n".encode("utf-16")])[1]
    assert isinstance(buffer.fault, NotUtf8)
    assert buffer.fault.offset == 0


def test_the_fault_quotes_the_line_up_to_its_end() -> None:
    buffer = drain([b"first\ncaf\xe9 ole\nnext"])[1]
    assert isinstance(buffer.fault, NotUtf8)
    assert buffer.fault.quoted == r"caf\xe9 ole"
    assert buffer.offending.startswith(b"caf\xe9 ole")


def test_lines_before_a_fault_are_delivered_and_nothing_after_it() -> None:
    buffer = LineBuffer()
    assert buffer.push(b"one\n\xff\ntwo\n") == [b"one"]
    fault = buffer.fault
    assert buffer.push(b"three\n") == []
    assert buffer.fault is fault


def test_the_first_fault_in_the_stream_counts() -> None:
    assert isinstance(drain([b"x" * 65 + b"\xff"])[1].fault, LineTooLong)
    assert isinstance(drain([b"x" * 63 + b"\xff" + b"x" * 9])[1].fault, NotUtf8)


def reference(stream: bytes, limit: int) -> tuple[list[bytes], type | None]:
    """The rules, one byte at a time."""
    lines: list[bytes] = []
    line = b""
    for octet in stream:
        if octet == 0x0A:
            try:
                line.decode()
            except UnicodeDecodeError:
                return lines, NotUtf8
            content = line.removesuffix(b"\r")
            if content.strip(b" \t\r"):
                lines.append(content)
            line = b""
            continue
        line += bytes([octet])
        try:
            line.decode()
        except UnicodeDecodeError as error:
            if error.reason != "unexpected end of data":
                return lines, NotUtf8
        if len(line) > limit:
            return lines, LineTooLong
    return lines, None


streams = st.lists(
    st.sampled_from(
        [b"\n", b"\r\n", b"\r", b" ", b"x", b"abcdef", "é€😀".encode(), b"\xe2\x82", b"\xf0", b"\xff"]
    ),
    max_size=20,
).map(b"".join)


@given(stream=streams, data=st.data())
def test_any_cut_of_a_stream_gives_what_the_rules_say(stream: bytes, data: st.DataObject) -> None:
    lines, buffer = drain(data.draw(chunkings(stream)), limit=16)
    expected, fault = reference(stream, 16)
    assert lines == expected
    assert type(buffer.fault) is (fault or type(None))


@given(stream=streams, data=st.data())
def test_any_cut_finds_a_bad_byte_at_the_same_offset(stream: bytes, data: st.DataObject) -> None:
    whole = drain([stream])[1].fault
    parts = drain(data.draw(chunkings(stream)))[1].fault
    assert getattr(whole, "offset", None) == getattr(parts, "offset", None)


@pytest.mark.parametrize("filler", [b"x", "é".encode()])
def test_a_push_copies_nothing_of_what_is_pending(filler: bytes) -> None:
    chunk = filler * (16_384 // len(filler))
    buffer = LineBuffer()
    pushes = 256
    # The check of what is not ASCII makes text of the chunk, which takes twice its bytes here.
    assert effort.moved([partial(buffer.push, chunk)] * pushes) < 3 * pushes * len(chunk)
    (line,) = buffer.push(b"\n")
    assert line == chunk * pushes


def test_a_push_does_the_same_work_whatever_is_pending() -> None:
    buffer = LineBuffer()
    first, *_, last = [effort.lines(partial(buffer.push, b"x" * 8192)) for _ in range(200)]
    assert last <= first + 1


def test_blank_lines_are_dropped_one_by_one() -> None:
    buffer = LineBuffer()
    assert effort.lines(lambda: buffer.push(b" \r\n" * 2_000)) < 2_000 * 10
    assert buffer.push(b" \r\n" * 98_000) == []
    assert buffer.blank == 100_000
