"""The daemon's ends of a server's pipes: non-blocking, driven by the loop, fair to the other servers (floor 2)."""

from __future__ import annotations

import array
import asyncio
import fcntl
import os
import termios
from collections.abc import Callable
from typing import Final

FIRST_READ: Final = 32 * 1024
LARGEST_READ: Final = 256 * 1024
"""While nobody else waits; else a read stays as small as the first one."""
LEAST_LINES: Final = 8
MOST_LINES: Final = 64
"""Lines that are delivered before the loop turns to others: each may cost its receiver some ten microseconds."""


def largest_read(others_wait: bool) -> int:
    """The largest read of a server's output, when others wait for its end or not."""
    return FIRST_READ if others_wait else LARGEST_READ


def lines_a_turn(in_flight: int) -> int:
    """How many lines of a server are delivered in one turn: as many as may be answers to the requests in flight,
    which leave together then, between :data:`LEAST_LINES` and :data:`MOST_LINES`."""
    return max(LEAST_LINES, min(in_flight, MOST_LINES))


class OutputPipe:
    """What the server writes: one read for each turn of the loop, so that a flood starves nobody.

    A read that came back full of one line doubles the next one, up to ``largest`` of that moment; any other falls
    back: a long line costs few turns, and a flood of short ones keeps nobody waiting for more than a small read.
    After either the processor is offered to others: the kernel would let a busy loop run to the end of its slice,
    for a millisecond or more, while those wait for whom it has just written. With ``lines``, what holds more lines
    is delivered over several turns, and nothing is read meanwhile. ``on_end`` is called once: with None at end of
    file, with the error otherwise; never after :meth:`close`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        on_data: Callable[[bytes], None],
        on_end: Callable[[OSError | None], None],
        *,
        largest: Callable[[], int] = lambda: LARGEST_READ,
        lines: Callable[[], int] | None = None,
    ) -> None:
        self._loop = loop
        self._fd = fd
        self.on_data = on_data
        """Where what was read goes; may be replaced."""
        self._on_end = on_end
        self._largest = largest
        self._size = FIRST_READ
        self._lines = lines
        self._held = b""  # read, and not yet delivered
        self._held_at = 0
        self._after: Callable[[], None] | None = None
        loop.add_reader(fd, self._readable)

    @property
    def open(self) -> bool:
        """Whether more may come."""
        return self._fd >= 0

    def drain(self, after: Callable[[], None] = lambda: None) -> None:
        """Deliver what is in the pipe at this moment, then call ``after``, unless the pipe is closed before; what
        others write meanwhile is not waited for."""
        if self._fd < 0:
            after()
            return
        waiting = array.array("i", [0])
        fcntl.ioctl(self._fd, termios.FIONREAD, waiting)
        left = waiting[0]
        parts = [self._held[self._held_at :]]
        while left > 0:
            try:
                part = os.read(self._fd, left)
            except OSError:
                break
            parts.append(part)
            left -= len(part) or left
        if not self._held:
            self._loop.remove_reader(self._fd)
        self._after = after
        self._held, self._held_at = b"".join(parts), 0
        self._deliver()

    def close(self) -> None:
        """Stop reading; nothing is delivered after this."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
            self._held = b""

    def _readable(self) -> None:
        size = self._size if self._size <= FIRST_READ else min(self._size, self._largest())
        try:
            data = os.read(self._fd, size)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(error)
            return
        if not data:
            self._end(None)
            return
        read, first = len(data), data.find(b"\n")
        if first < 0:
            os.sched_yield()
        if first < 0 and read == size:
            self._size = min(size * 2, self._largest())
        elif size > FIRST_READ:
            self._size = FIRST_READ
        # Mostly it is one line, or a part of one: there is nothing to count, which takes longer than to read it.
        if first < 0 or first == read - 1 or self._lines is None or data.count(b"\n") <= self._lines():
            self.on_data(data)
        else:
            self._loop.remove_reader(self._fd)
            self._held, self._held_at = data, 0
            self._deliver()

    def _deliver(self) -> None:
        """Deliver some lines of what is held; the rest in later turns, then read on."""
        if self._fd < 0:
            return
        held, start = self._held, self._held_at
        end = start if self._lines is not None else len(held)
        for _ in range(self._lines() if self._lines is not None else 0):
            end = held.find(b"\n", end) + 1
            if not end:
                end = len(held)
                break
        if end > start:
            self._held_at = end
            self.on_data(held if end - start == len(held) else held[start:end])
        if self._fd < 0:
            return
        if end < len(held):
            os.sched_yield()
            self._loop.call_soon(self._deliver)
            return
        self._held, self._held_at = b"", 0
        self._loop.add_reader(self._fd, self._readable)
        after, self._after = self._after, None
        if after is not None:
            after()

    def _end(self, error: OSError | None) -> None:
        self.close()
        self._on_end(error)


class InputPipe:
    """What the server reads. Writes go straight to the kernel; the loop is asked only while the pipe is full."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        on_writable: Callable[[], None],
        on_broken: Callable[[OSError], None],
    ) -> None:
        self._loop = loop
        self._fd = fd
        self._on_writable = on_writable
        self._on_broken = on_broken
        self._waiting = False

    def write(self, data: bytes | memoryview) -> int:
        """How many bytes of ``data`` the pipe took. Less than all: ``on_writable`` comes once, later.

        A broken pipe takes nothing and calls ``on_broken`` once, from the loop.
        """
        if self._fd < 0 or not data:
            return 0
        try:
            taken = os.write(self._fd, data)
        except (BlockingIOError, InterruptedError):
            taken = 0
        except OSError as error:
            self.close()
            self._loop.call_soon(self._on_broken, error)
            return 0
        if taken < len(data) and not self._waiting:
            self._waiting = True
            self._loop.add_writer(self._fd, self._writable)
        return taken

    def close(self) -> None:
        """End of file for the server."""
        if self._fd >= 0:
            self._stop_waiting()
            os.close(self._fd)
            self._fd = -1

    def _stop_waiting(self) -> None:
        if self._waiting:
            self._waiting = False
            self._loop.remove_writer(self._fd)

    def _writable(self) -> None:
        self._stop_waiting()
        self._on_writable()
