"""How the frames of one client leave and come: few writes, large ones in pieces, others' turns between."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from treadle.flushing import Flusher
from treadle.listener import Bounds
from treadle.stream import _HIGH_WATER, _PIECE, _SMALL_PIECE, FrameStream
from treadle.wire.quick import CallFrame
from treadle_client.frames import Frame, encode


class _Transport(asyncio.Transport):
    """Keeps each write; ``room`` bytes go at once, the rest waits in its buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.read_from = True
        self.room = 1 << 30
        self.waiting = 0
        self.protocol: Any = None
        self.high = 0
        self.closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))
        gone = min(self.room, len(data))
        self.room -= gone
        self.waiting += len(data) - gone
        if self.waiting > self.high:
            self.protocol.pause_writing()

    def take(self) -> None:
        """The client reads all that waits."""
        self.waiting, self.room = 0, 1 << 30
        self.protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def pause_reading(self) -> None:
        assert self.read_from
        self.read_from = False

    def resume_reading(self) -> None:
        assert not self.read_from
        self.read_from = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class _Stream(FrameStream):
    def __init__(self, listener: Any) -> None:
        super().__init__(listener)
        self.taken: list[Frame | CallFrame] = []

    def take(self, frame: Frame | CallFrame) -> None:
        self.taken.append(frame)

    def ended(self) -> None:
        pass

    @property
    def is_idle(self) -> bool:
        return True


@pytest.fixture
async def stream() -> _Stream:
    listener = SimpleNamespace(
        flusher=Flusher(asyncio.get_running_loop()),
        bounds=Bounds(),
        has_turns=False,
        in_flight=0,
        latest=None,
        is_active=lambda other: other is not None and other.received > 0,
        lets_linger=lambda _: False,
        relieve=lambda: None,
        ask_turn=lambda _: None,
    )
    made = _Stream(listener)
    transport = _Transport()
    transport.protocol = made
    made.connection_made(transport)
    return made


def _transport(stream: _Stream) -> _Transport:
    assert isinstance(stream.transport, _Transport)
    return stream.transport


async def test_the_frames_of_one_turn_leave_in_one_write(stream: _Stream) -> None:
    stream.send(b"one")
    stream.send_parts(4, (b"t", b"wo."))
    await asyncio.sleep(0)
    assert _transport(stream).writes == [b"onetwo."]


async def test_a_large_frame_leaves_in_pieces_one_a_turn(stream: _Stream) -> None:
    data = bytes(range(256)) * (3 * _PIECE // 256) + b"end"
    stream.send_parts(len(data) + 4, (b"head", data))
    writes = _transport(stream).writes
    for turn in range(1, 5):
        await asyncio.sleep(0)
        assert len(writes) == turn
    assert max(map(len, writes)) == _PIECE
    await asyncio.sleep(0)
    assert b"".join(writes) == b"head" + data


async def test_while_others_wait_for_an_answer_the_pieces_are_small(stream: _Stream) -> None:
    stream.listener.in_flight = 1
    stream.send(b"x" * (_PIECE + 1))
    for _ in range(20):
        await asyncio.sleep(0)
    writes = _transport(stream).writes
    assert max(map(len, writes)) == _SMALL_PIECE
    assert sum(map(len, writes)) == _PIECE + 1


async def test_when_another_has_just_asked_for_something_the_pieces_are_small(stream: _Stream) -> None:
    other = _Stream(stream.listener)
    other.received = 1.0
    stream.listener.latest = other
    stream.send(b"x" * (_PIECE + 1))
    await asyncio.sleep(0)
    assert len(_transport(stream).writes[0]) == _SMALL_PIECE
    other.received = 0.0
    await asyncio.sleep(0)
    assert len(_transport(stream).writes[1]) == _PIECE + 1 - _SMALL_PIECE


async def test_a_small_frame_does_not_overtake_a_large_one(stream: _Stream) -> None:
    stream.send(b"l" * 2 * _PIECE)
    await asyncio.sleep(0)
    stream.send(b"small")
    for _ in range(4):
        await asyncio.sleep(0)
    assert b"".join(_transport(stream).writes) == b"l" * 2 * _PIECE + b"small"


async def test_nothing_is_written_while_the_client_does_not_read(stream: _Stream) -> None:
    transport = _transport(stream)
    transport.room = 0
    stream.send(b"x" * 5 * _PIECE)
    for _ in range(9):
        await asyncio.sleep(0)
    written = sum(map(len, transport.writes))
    assert written <= 2 * _PIECE
    assert stream.held == 5 * _PIECE
    transport.take()
    for _ in range(9):
        await asyncio.sleep(0)
    assert sum(map(len, transport.writes)) == 5 * _PIECE
    assert stream.held == 0


async def test_who_leaves_much_unread_is_not_read_from_until_it_has_read(stream: _Stream) -> None:
    transport = _transport(stream)
    transport.room = 0
    stream.send(b"x" * (_HIGH_WATER + 1))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not transport.read_from
    transport.take()
    for _ in range(30):
        await asyncio.sleep(0)
    assert transport.read_from


async def test_who_reads_on_is_read_from_again_whatever_becomes_ready_meanwhile(stream: _Stream) -> None:
    transport = _transport(stream)
    transport.room = 0
    stream.send(b"x" * (_HIGH_WATER + _PIECE))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not transport.read_from
    transport.take()
    while stream.unread > _PIECE:
        await asyncio.sleep(0)

    def drained() -> None:
        transport.waiting, transport.room = 0, 1 << 30

    # The last piece goes into the transport's buffer, which is not enough to block; it is read; an answer follows.
    transport.room = 0
    stream.loop.call_soon(drained)
    stream.send(b"y" * (_PIECE - 1))
    for _ in range(5):
        await asyncio.sleep(0)
    assert transport.read_from
    assert stream.unread == 0


async def test_the_last_word_takes_with_it_all_that_waits(stream: _Stream) -> None:
    transport = _transport(stream)
    stream.send(b"x" * 3 * _PIECE)
    await asyncio.sleep(0)
    stream.send(b"bye")
    stream.finish()
    assert transport.closed
    assert b"".join(transport.writes) == b"x" * 3 * _PIECE + b"bye"


async def test_after_a_large_read_others_have_their_turn(stream: _Stream) -> None:
    transport = _transport(stream)
    stream.data_received(encode(1, "heartbeat", {"x": "y" * _PIECE})[:_PIECE])
    assert not transport.read_from
    await asyncio.sleep(0)
    assert transport.read_from
