"""Large frames on a thread, and how many values one frame may hold; complaints that cannot fill a log."""

from __future__ import annotations

import asyncio
import gc
import struct
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from support import effort
from treadle.decoding import BYTES_A_SECOND, LARGE, MOST_CONTAINERS, MOST_VALUES, Decoder, Job, read, unpack
from treadle.listener import Complaints
from treadle_client import frames

MIB = 1024 * 1024
FEW = 1000
MANY: list[Any] = [["x" * 70]] * FEW


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that is quick to reach."""
    monkeypatch.setattr("treadle.decoding.MOST_CONTAINERS", FEW)


def reader() -> frames.FrameReader:
    return frames.FrameReader(unpack=unpack)


def framed(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


def call_of(arguments: bytes) -> bytes:
    """A call whose arguments are ``arguments``, msgpack already."""
    return framed(frames.encode(9, "call", {"server": "s", "tool": "t", "arguments": None})[4:-1] + arguments)


def test_a_frame_may_hold_a_hundred_thousand_arrays_and_maps() -> None:
    assert MOST_CONTAINERS == 100_000
    assert len(unpack(b"\xdd" + struct.pack(">I", MOST_CONTAINERS - 1) + b"\x90" * (MOST_CONTAINERS - 1)))
    with pytest.raises(frames.TooManyValues):
        unpack(b"\xdd" + struct.pack(">I", MOST_CONTAINERS) + b"\x80" * MOST_CONTAINERS)


def test_a_frame_may_hold_a_million_values() -> None:
    assert MOST_VALUES == 1_000_000
    half = b"\xdd" + struct.pack(">I", MOST_VALUES // 2 - 1) + b"\xc0" * (MOST_VALUES // 2 - 1)
    assert len(unpack(b"\x92" + half + half)) == 2
    with pytest.raises(frames.TooManyValues):
        unpack(b"\x93" + half + half + b"\x90")
    with pytest.raises(frames.TooManyValues):
        unpack(b"\xdd" + struct.pack(">I", MOST_VALUES + 1) + b"\xc0" * (MOST_VALUES + 1))


def test_text_is_one_value_however_long() -> None:
    assert unpack(msgpack.packb("\u00e9" * (2 * MIB))) == "\u00e9" * (2 * MIB)


@pytest.mark.parametrize("element", [b"\x90", b"\x80", b"\xc0", b"\x91\xc0", b"\x81\xa0\xc0"])
def test_values_that_are_too_many_are_not_built(element: bytes) -> None:
    count = 16 * 1000 * 1000 // len(element)
    data = call_of(b"\x81\xa1a\xdd" + struct.pack(">I", count) + element * count)
    # A frame is copied a few times; sixteen million arrays would be a gigabyte.
    assert effort.moved([lambda: read(reader(), data)]) < 8 * len(data)


@pytest.mark.parametrize("kind", ["call", "cap_call"])
@pytest.mark.usefixtures("bounded")
def test_a_call_of_too_many_values_fails_in_band(kind: str) -> None:
    inner: dict[str, Any] = {"tool": "t", "arguments": {"a": MANY}}
    body = {"server": "s", **inner} if kind == "call" else {"token": b"\0", "cap": "mcp.s", "args": inner}
    here = reader()
    (first, second), _ = read(here, frames.encode(1, kind, body) + frames.encode(2, "list", {}))
    assert first.invalid is not None
    assert "more than 1000 arrays and maps" in first.invalid[1]
    kept = first.body if kind == "call" else first.body["args"]
    assert (kept["tool"], kept["arguments"]) == ("t", {})
    assert (second.id, here.fault) == (2, None)


@pytest.mark.usefixtures("bounded")
def test_any_other_frame_of_too_many_values_ends_the_stream_after_those_before_it() -> None:
    here = reader()
    found, _ = read(here, frames.encode(1, "list", {}) + frames.encode(2, "status", {"a": MANY}))
    assert [frame.id for frame in found] == [1]
    assert here.fault is not None
    assert (here.fault.code, here.fault.id) == ("bad_frame", 2)


@pytest.mark.parametrize(
    "arguments",
    [b"\xc0" * 10, b"\x81\xa1a\xdd" + struct.pack(">I", 2_000_000) + b"\x90" * 1_000_000, b"\xdf\x00\x01"],
    ids=["too much", "too little", "half a header"],
)
@pytest.mark.usefixtures("bounded")
def test_a_damaged_frame_of_many_values_is_no_frame(arguments: bytes) -> None:
    here = reader()
    assert read(here, call_of(b"\x81\xa1a\xdc\x07\xd0" + b"\x91\xc0" * 100_000 + arguments))[0] == []
    assert here.fault is not None
    assert here.fault.code == "bad_frame"


@pytest.mark.parametrize("wrong", [b"\xc1", b"\xc4\x01x", b""], ids=["no msgpack", "a byte string", "its end"])
def test_what_is_wrong_behind_many_values_is_said_without_its_place(wrong: bytes) -> None:
    count = 400_000
    here = reader()
    data = call_of(b"\x81\xa1a\xdd" + struct.pack(">I", count + 1) + b"\xcc\x01" * count + wrong)
    found, _ = effort.within(5_000_000, lambda: read(here, data))
    said = found[0].invalid[1] if found and found[0].invalid else here.fault.msg if here.fault else ""
    assert "too large to say where" in said
    assert bool(found) is (wrong[:1] == b"\xc4")


def test_the_collector_is_as_it_was() -> None:
    for before in (True, False):
        (gc.enable if before else gc.disable)()
        try:
            read(reader(), b"")
            assert gc.isenabled() is before
        finally:
            gc.enable()


class Line:
    """Jobs of several clients, and the order in which their frames come back."""

    def __init__(self) -> None:
        self.decoder = Decoder()
        self.found: asyncio.Queue[int] = asyncio.Queue()

    def feed(self, number: int, size: int = LARGE, wanted: Callable[[], bool] = lambda: True) -> None:
        data = frames.encode(number, "heartbeat", {"x": "y" * size})
        self.decoder.feed(Job(reader(), data, wanted, self.done))

    def done(self, come: list[frames.Frame], memory: int) -> None:
        asyncio.get_running_loop()
        assert memory > LARGE
        for frame in come:
            self.found.put_nowait(frame.id)

    async def order(self, count: int) -> list[int]:
        try:
            return [await self.found.get() for _ in range(count)]
        finally:
            self.decoder.close()


async def test_frames_of_a_size_come_back_on_the_loop_in_order() -> None:
    line = Line()
    for number in range(5):
        line.feed(number)
    assert await line.order(5) == list(range(5))


async def test_a_small_frame_does_not_wait_behind_the_large_ones_of_others() -> None:
    line = Line()
    for number in range(4):
        line.feed(number, 8 * MIB)
    line.feed(9)
    assert await line.order(5) == [0, 9, 1, 2, 3]


async def test_a_large_frame_does_not_wait_behind_small_ones_for_ever() -> None:
    line = Line()
    line.feed(0)
    line.feed(1, BYTES_A_SECOND // 20)
    await asyncio.sleep(0.1)
    line.feed(2)
    assert await line.order(3) == [0, 1, 2]


async def test_what_nobody_waits_for_any_more_is_not_decoded() -> None:
    line = Line()
    gone = False
    line.feed(0)
    line.feed(1, wanted=lambda: not gone)
    line.feed(2)
    gone = True
    assert await line.order(2) == [0, 2]


async def test_what_is_forgotten_is_not_held() -> None:
    line = Line()

    def wanted() -> bool:
        raise AssertionError("it waits still")

    line.feed(0)
    line.feed(1, wanted=wanted)
    line.feed(2)
    line.decoder.forget(wanted)
    assert await line.order(2) == [0, 2]


def test_complaints_come_in_a_burst_and_then_one_a_second_with_the_number_left_out() -> None:
    complaints = Complaints()
    said = [complaints.admit(100.0) for _ in range(Complaints.BURST + 5)]
    assert said == [0] * Complaints.BURST + [None] * 5
    assert complaints.admit(100.5) is None
    assert complaints.admit(101.1) == 6
    assert complaints.admit(101.2) is None
    assert [complaints.admit(1000.0) for _ in range(Complaints.BURST)] == [1] + [0] * (Complaints.BURST - 1)
