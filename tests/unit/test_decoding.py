"""Large frames on a thread, and how many values one frame may hold; complaints that cannot fill a log."""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from typing import Any

import pytest

from treadle.decoding import MOST_CONTAINERS, Decoder, has_too_many_containers, read
from treadle.listener import Complaints
from treadle_client import frames

FEW = 1000
MANY: list[Any] = [[]] * FEW


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that is quick to reach."""
    monkeypatch.setattr("treadle.decoding.has_too_many_containers", partial(has_too_many_containers, most=FEW))


def test_a_frame_may_hold_a_million_containers() -> None:
    assert MOST_CONTAINERS == 1_000_000
    assert not has_too_many_containers([[]] * (MOST_CONTAINERS - 1))
    assert has_too_many_containers([[]] * MOST_CONTAINERS)


@pytest.mark.parametrize(
    ("body", "count"),
    [({"a": [1, "x", None]}, 2), ({"a": [[], {}, [[]]], "b": {"c": {}}}, 8), ([[[[]]]], 4)],
)
def test_containers_are_counted_exactly(body: Any, count: int) -> None:
    assert not has_too_many_containers(body, count)
    assert has_too_many_containers(body, count - 1)


@pytest.mark.parametrize("kind", ["call", "cap_call"])
@pytest.mark.usefixtures("bounded")
def test_a_call_of_too_many_values_fails_in_band(kind: str) -> None:
    inner: dict[str, Any] = {"tool": "t", "arguments": {"a": MANY}}
    body = {"server": "s", **inner} if kind == "call" else {"cap": "mcp.s", "args": inner}
    reader = frames.FrameReader()
    first, second = read(reader, frames.encode(1, kind, body) + frames.encode(2, "list", {}))
    assert first.invalid is not None
    assert "more than 1000000" in first.invalid[1]
    assert (second.id, reader.fault) == (2, None)


@pytest.mark.usefixtures("bounded")
def test_any_other_frame_of_too_many_values_ends_the_stream_after_those_before_it() -> None:
    reader = frames.FrameReader()
    found = read(reader, frames.encode(1, "list", {}) + frames.encode(2, "status", {"a": MANY}))
    assert [frame.id for frame in found] == [1]
    assert reader.fault is not None
    assert (reader.fault.code, reader.fault.id) == ("bad_frame", 2)


def test_the_collector_is_as_it_was() -> None:
    for before in (True, False):
        (gc.enable if before else gc.disable)()
        try:
            read(frames.FrameReader(), b"")
            assert gc.isenabled() is before
        finally:
            gc.enable()


async def test_frames_come_back_on_the_loop_in_order() -> None:
    decoder = Decoder()
    loop = asyncio.get_running_loop()
    found: asyncio.Queue[int] = asyncio.Queue()

    def done(come: list[frames.Frame]) -> None:
        assert asyncio.get_running_loop() is loop
        for frame in come:
            found.put_nowait(frame.id)

    for number in range(5):
        decoder.feed(frames.FrameReader(), frames.encode(number, "heartbeat", {"x": "y" * 100_000}), done)
    assert [await found.get() for _ in range(5)] == list(range(5))
    decoder.close()


def test_complaints_come_in_a_burst_and_then_one_a_second_with_the_number_left_out() -> None:
    complaints = Complaints()
    said = [complaints.admit(100.0) for _ in range(Complaints.BURST + 5)]
    assert said == [0] * Complaints.BURST + [None] * 5
    assert complaints.admit(100.5) is None
    assert complaints.admit(101.1) == 6
    assert complaints.admit(101.2) is None
    assert [complaints.admit(1000.0) for _ in range(Complaints.BURST)] == [1] + [0] * (Complaints.BURST - 1)
