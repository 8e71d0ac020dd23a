"""The frames of one client: bytes in, frames out, and the limits on both (floor 6; socket page, "Load").

What has come is served in turns of a few frames, so that a client that sends thousands at once shares the loop
with all others. A client is read from only when what it sent before is served and when it reads its answers.
Answers that become ready in one turn of the loop leave in one write.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import sys
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Final, cast

from treadle import answers
from treadle.decoding import LARGE, Job, unpack
from treadle.flushing import FEW
from treadle.peers import Peer
from treadle.wire.quick import CallFrame, call_frame
from treadle_client import frames

if TYPE_CHECKING:
    from treadle.listener import Listener

FRAMES_A_TURN: Final = 16
"""Frames of one client that are served before the others' turn."""
FRAMES_ALONE: Final = 64
"""The same while no other client waits for its turn: each turn costs a write to every server that it calls."""

_SLICE: Final = 16 * 1024  # bytes decoded at a time; some hundred of the smallest frames
_PIECE: Final = 256 * 1024  # bytes of answers that are written in one turn
_SMALL_PIECE: Final = 16 * 1024  # the same while others are active
_MUCH: Final = 96 * 1024  # bytes of a read after which others have their turn
_HIGH_WATER: Final = 1024 * 1024
_LOW_WATER: Final = 512 * 1024  # more than a piece: whoever leaves no more than that may never be blocked again


class FrameStream(asyncio.Protocol):
    """The stream of one client, from its connect to its end. A subclass says what a frame means.

    ``silent`` counts the listener's looks since the client's last byte.
    """

    __slots__ = (
        "_backlog",
        "_backlog_bytes",
        "_blocked",
        "_decoding",
        "_ending",
        "_eof",
        "_flush_due",
        "_flusher",
        "_frames",
        "_input",
        "_input_at",
        "_left",
        "_out",
        "_out_bytes",
        "_pump_due",
        "_reader",
        "_reading",
        "_resting",
        "_unread",
        "_values_held",
        "gone",
        "listener",
        "loop",
        "peer",
        "received",
        "silent",
        "started",
        "transport",
        "waits_for_turn",
    )

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.loop = asyncio.get_running_loop()
        self.peer: Peer | None = None
        self.gone: asyncio.Future[None] = self.loop.create_future()
        self.silent = 0
        self.received = 0.0
        """The loop's time at which the last byte came of what is being served: nothing is read meanwhile."""
        self.started = 0.0
        """The same in seconds of ``time.perf_counter``."""
        self.waits_for_turn = False
        self._flusher = listener.flusher
        self._reader = frames.FrameReader(unpack=unpack, quick=call_frame)
        self._input = b""
        self._input_at = 0
        self._frames: deque[frames.Frame | CallFrame] = deque()
        self._decoding = False
        self._values_held = 0
        self._reading = True
        self._eof = False
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._flush_due = False
        self._backlog: deque[bytes | memoryview] = deque()  # answers that are too much for one turn, or for now
        self._backlog_bytes = 0
        self._blocked = False
        self._pump_due = False
        self._resting = False
        self._unread = False
        self._ending: float | None = None
        self._left = sys.maxsize  # bytes unread when it was last seen to read, after the last word

    # --- what a subclass says ---------------------------------------------------------------------

    def take(self, frame: frames.Frame | CallFrame) -> None:
        """Serve one frame. Must not raise."""
        raise NotImplementedError

    def ended(self) -> None:
        """Nothing more is taken from the client, and no answer that is not queued yet will reach it."""
        raise NotImplementedError

    @property
    def is_idle(self) -> bool:
        """Whether no answer is due."""
        raise NotImplementedError

    # --- the transport's side ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client connected."""
        self.transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=_PIECE, low=_PIECE // 4)

    def data_received(self, data: bytes) -> None:
        """Take in what came."""
        if self._ending is not None:
            return
        self.silent = 0
        self.received = self.loop.time()
        self.started = perf_counter()
        self.listener.latest = self
        reader, flusher = self._reader, self._flusher
        flusher.is_open = self.listener.in_flight < FEW
        try:
            if self._input or self._frames or self._decoding or reader.pending or len(data) > _SLICE:
                self._input = self._input[self._input_at :] + data if self._input else data
                self._input_at = 0
            else:
                found = reader.feed(data)
                if reader.fault is None and not self._unread and len(found) <= self._most_frames():
                    # Mostly all of it is served at once, and there is nothing else to see to.
                    taken = 0
                    for frame in found:
                        self.take(frame)
                        taken += 1
                        if self._ending is not None or self._out_bytes > _HIGH_WATER:
                            break
                    found = found[taken:]
                    if not found or self._ending is not None:
                        if self._eof:
                            self._go_on()
                        return
                self._frames.extend(found)
            if len(data) > _MUCH:
                # Else the loop would read on here, many times, while there is something to read.
                self._resting = True
                self.loop.call_soon(self._rested)
            self.work()
        finally:
            if flusher.is_open:
                flusher.flush()
        if reader.pending > _HIGH_WATER:
            self.listener.relieve()

    def eof_received(self) -> bool:
        """A half-closed client still gets the answers to what it asked."""
        self._eof = True
        if self._ending is not None:
            return False
        self._go_on()
        return True

    def _rested(self) -> None:
        self._resting = False
        self._go_on()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is written to."""
        self._blocked = True

    def resume_writing(self) -> None:
        """The client reads again."""
        self._blocked = False
        self._pump()

    def connection_lost(self, exc: Exception | None) -> None:
        """The stream is at its end, whoever ended it."""
        self._end()
        self._backlog.clear()
        self.listener.leaving.discard(self)
        if not self.gone.done():
            self.gone.set_result(None)

    # --- in: a few frames a turn ------------------------------------------------------------------

    def work(self) -> None:
        """Serve what has come, some frames at most; the rest has its turn later."""
        served = 0
        most = self._most_frames()
        while self._ending is None and not self._unread and not self._decoding:
            if self._frames:
                if served == most or self._out_bytes > _HIGH_WATER:
                    break
                served += 1
                self.take(self._frames.popleft())
            elif self._input:
                self._decode()
            else:
                break
        self._go_on()

    def _most_frames(self) -> int:
        return FRAMES_A_TURN if self.listener.has_turns else FRAMES_ALONE

    @property
    def is_busy(self) -> bool:
        """Whether something that has come is not served yet."""
        return bool(self._frames or self._input or self._decoding)

    def _go_on(self) -> None:
        """After any change: end what is to end, ask for another turn, read or do not read."""
        busy = self.is_busy
        if self._ending is None and not busy:
            if self._reader.fault is not None:
                self._break_off(self._reader.fault)
            elif self._eof and (self.is_idle or self._has_hung_up()):
                self.finish()
        if self._ending is not None:
            return
        if busy and not self._unread and not self._decoding:
            self.listener.ask_turn(self)
        reading = not (busy or self._unread or self._eof or self._resting)
        if reading is not self._reading and not self.transport.is_closing():
            self._reading = reading
            if reading:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def _decode(self) -> None:
        """Decode the next slice of the input; the end of a large frame aside, on a thread."""
        reader = self._reader
        missing = reader.missing
        is_large = reader.pending + missing > LARGE
        end = self._input_at + max(_SLICE, missing)
        data = self._input
        if self._input_at or end < len(data):
            data = data[self._input_at : end]
        self._input_at = end
        if end >= len(self._input):
            self._input, self._input_at = b"", 0
        if is_large and len(data) >= missing:
            self._decoding = True
            self.listener.decoder.feed(Job(reader, data, self._is_there, self._decoded))
        else:
            self._frames.extend(reader.feed(data))

    def _is_there(self) -> bool:
        """Whether somebody still waits for what is to be decoded. The end of a client that is not read from is not
        seen otherwise."""
        if self._ending is None and self._has_hung_up():
            self.abort()
        return self._ending is None

    def _decoded(self, found: list[frames.Frame], memory: int) -> None:
        self._decoding = False
        if self._ending is None:
            self._frames.extend(found)
            self._values_held = memory
            self.work()

    def _break_off(self, fault: frames.FrameFault) -> None:
        self.listener.complain(f"closed a connection of {self.peer}: {fault.code}: {fault.msg}")
        self.send(answers.error_frame(fault.id, fault.code, fault.msg))
        self.finish()

    # --- out --------------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        """Queue one frame. None follows the last word."""
        self.send_parts(len(frame), (frame,))

    def send_parts(self, size: int, parts: tuple[bytes, ...]) -> None:
        """Queue one frame of ``size`` bytes; all frames of one loop turn leave in one write."""
        if self._ending is not None:
            return
        self._out += parts
        self._out_bytes += size
        if not self._flush_due:
            self._flush_due = True
            self._flusher.add(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        out, size = self._out, self._out_bytes
        self._out, self._out_bytes = [], 0
        if not out or self.transport.is_closing():
            return
        if size <= _PIECE and not (self._backlog or self._blocked or self._unread):
            self.transport.write(b"".join(out))
            return
        self._backlog += out
        self._backlog_bytes += size
        if not self._pump_due:
            self._pump()

    def _pump(self) -> None:
        """Write a piece of what waits, the next one in the next turn: others have their turns between."""
        self._pump_due = False
        if self.transport.is_closing():
            return
        if self._backlog and not self._blocked:
            self.transport.write(self._piece())
            os.sched_yield()  # as in pipes: whoever shares the processor need not wait for the end of our slice
            # The transport may have called back meanwhile.
            if self._backlog and not self._blocked and not self._pump_due:
                self._pump_due = True
                self.loop.call_soon(self._pump)
        unread = self._backlog_bytes + self.transport.get_write_buffer_size()
        if unread > self.listener.bounds.unread:
            self.give_up(f"it left {unread} bytes of answers unread")
        elif unread > _HIGH_WATER:
            self.listener.relieve()
            self._is_unread(True)
        elif unread < _LOW_WATER:
            self._is_unread(False)

    def _piece(self) -> bytes | memoryview:
        most = _PIECE if self._is_alone() else _SMALL_PIECE
        backlog, parts, room = self._backlog, list[bytes | memoryview](), most
        while backlog and room:
            part = backlog.popleft()
            if len(part) > room:
                backlog.appendleft(memoryview(part)[room:])
                part = memoryview(part)[:room]
            parts.append(part)
            room -= len(part)
        self._backlog_bytes -= most - room
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _is_alone(self) -> bool:
        """Whether no other client waits for an answer, or asked for something just now and may do so again."""
        listener = self.listener
        return not listener.in_flight and (listener.latest is self or not listener.is_active(listener.latest))

    def _is_unread(self, unread: bool) -> None:
        """Who leaves much unread is not served, and not read from."""
        if unread is not self._unread:
            self._unread = unread
            self._go_on()

    def _write_all(self) -> None:
        parts = [*self._backlog, *self._out]
        self._backlog.clear()
        self._out.clear()
        self._backlog_bytes = self._out_bytes = 0
        if parts and not self.transport.is_closing():
            self.transport.writelines(parts)

    # --- the end ----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Say what is queued, take nothing more, and close when the client has read it and closed, too.

        Closed at once, a client that is still writing would see its write fail, and never read why.
        """
        lingers = self._ending is None and not self._eof and self.listener.lets_linger(self)
        self._end()
        self._write_all()
        if not lingers or self.transport.is_closing():
            self.transport.close()
            return
        self.transport.write_eof()
        if not self._reading:
            self._reading = True
            self.transport.resume_reading()

    def abort(self) -> None:
        """Close now, whatever is unread."""
        self._end()
        self._backlog.clear()
        self._backlog_bytes = 0
        self.transport.abort()

    def give_up(self, reason: str) -> None:
        """Close now, and say why in the log."""
        self.listener.complain(f"closed a connection of {self.peer}: {reason}")
        self.abort()

    def cut_off(self) -> None:
        """Close now what should have closed by itself; what is lost with it is said in the log."""
        if self.unread:
            self.listener.complain(
                f"closed a connection of {self.peer}: it did not read {self.unread} bytes of answers"
            )
        self.abort()

    def last_orders(self) -> None:
        """Take no byte more from the client, answer what it has sent, then close.

        The kernel refuses the client's further writes, so that it knows of every request either its answer or that
        it did not leave: nothing is lost between a write of theirs and a close of ours.
        """
        if self._ending is not None:
            self.transport.close()
            return
        with contextlib.suppress(OSError):
            descriptor = os.dup(self.transport.get_extra_info("socket").fileno())
            with socket.socket(fileno=descriptor) as connected:
                connected.shutdown(socket.SHUT_RD)

    def let_go_if_idle(self) -> None:
        """After the last answer: the end of a half-closed client, and of one whose next daemon waits."""
        if self._ending is not None or not self.is_idle:
            return
        if self._eof:
            self.loop.call_soon(self._go_on)
        elif self.listener.handing_over:
            self.loop.call_soon(self.last_orders)

    @property
    def is_ending(self) -> bool:
        """Whether nothing more is taken from the client."""
        return self._ending is not None

    def _end(self) -> None:
        if self._ending is None:
            self._ending = self.loop.time()
            self._frames.clear()
            self._input = b""
            if self._decoding:
                self.listener.decoder.forget(self._is_there)
            self.ended()

    def _has_hung_up(self) -> bool:
        """Whether the client has gone altogether: a half-closed one still reads."""
        poll = select.poll()
        try:
            poll.register(self.transport.get_extra_info("socket").fileno(), 0)
            return any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))
        except (OSError, ValueError):
            return True

    # --- what the listener looks at now and then --------------------------------------------------

    @property
    def unread(self) -> int:
        """Bytes of answers that the client has not read, as far as is known here."""
        return self._out_bytes + self._backlog_bytes + self.transport.get_write_buffer_size()

    @property
    def held(self) -> int:
        """Bytes that are kept for this client: of half frames, of values that are not served yet, and of answers
        that it has not read."""
        values = self._values_held if self._frames else 0
        return self._reader.pending + len(self._input) + values + self.unread

    def look(self, now: float) -> None:
        """End a stream that holds resources and will not get on by itself (``Bounds`` of the listener)."""
        bounds = self.listener.bounds
        self.silent += 1
        if self._ending is not None:
            left = self.unread
            if left < self._left:  # it reads still, however slowly
                self._left, self._ending = left, now
            elif now - self._ending > bounds.linger_s:
                self.cut_off()
        elif self._decoding:
            self._is_there()
        elif self._eof:
            self._go_on()
        elif self._reader.pending and self._reading and self.silent * bounds.look_s > bounds.stall_s:
            missing = self._reader.missing
            msg = f"{missing} bytes of a frame are missing, and none came within {bounds.stall_s:g} s"
            self._break_off(frames.FrameFault("bad_frame", msg))
