"""Decoding of large frames on a thread, so that what one client sends does not stop the loop for others (floor 6).

A frame of the smallest values is decoded at some 20 MB/s, and one that is wrong in its last byte far slower still.
The thread shares the interpreter with the loop, but not the loop's turns. What a frame holds is counted while it
is decoded, so that one of too many values is given up before they are built.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import heapq
import itertools
import queue
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from msgpack import unpackb

from treadle_client.frames import Frame, FrameFault, FrameReader, TooManyValues

LARGE: Final = 64 * 1024
"""Bytes of a payload up to which it is decoded where it is received."""

MOST_CONTAINERS: Final = 100_000
"""Arrays and maps that one frame may hold: they are some 25 MB at the most."""
MOST_VALUES: Final = 1_000_000
"""Elements of arrays, and keys and values of maps, that one frame may hold: they are some 100 MB at the most."""

BYTES_A_SECOND: Final = 250_000
"""A frame waits for those that came before it, but for none that is larger by more than this for each second that
it came earlier: small frames do not wait behind the large ones of others, and no frame waits for ever."""

_VALUE_BYTES: Final = 100
"""What one value takes in memory, an entry of a map being the largest."""


class Job(NamedTuple):
    """``reader`` is to be fed with ``data``; nobody else may, until ``done`` hears the frames, and how many bytes
    of memory they take at the most. When ``wanted`` says that nobody waits any more, nothing is done. Both are
    called on the loop."""

    reader: FrameReader
    data: bytes
    wanted: Callable[[], bool]
    done: Callable[[list[Frame], int], None]


class Decoder:
    """One thread, started at the first large frame. It has one job at a time; the others wait on the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[float, int, Job]] = []
        self._numbers = itertools.count()
        self._busy = False
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def feed(self, job: Job) -> None:
        """Have ``job`` done when it is its turn."""
        size = job.reader.pending + len(job.data)
        turn = self._loop.time() + size / BYTES_A_SECOND
        heapq.heappush(self._waiting, (turn, next(self._numbers), job))
        if not self._busy:
            self._next()

    def forget(self, wanted: Callable[[], bool]) -> None:
        """Drop the job of ``wanted``, if it waits still, and what it holds."""
        left = [entry for entry in self._waiting if entry[2].wanted != wanted]
        if len(left) < len(self._waiting):
            heapq.heapify(left)
            self._waiting = left

    def close(self) -> None:
        """Decode nothing more after the frame under way."""
        self._waiting.clear()
        self._jobs.put(None)

    def _next(self) -> None:
        self._busy = False
        while self._waiting:
            job = heapq.heappop(self._waiting)[2]
            if not job.wanted():
                continue
            self._busy = True
            if self._has_thread():
                self._jobs.put(job)
            else:  # rather slow than not at all
                self._loop.call_soon(self._finished, job, *read(job.reader, job.data))
            return

    def _has_thread(self) -> bool:
        if self._thread is None:
            # A daemon thread: the end of the process does not wait for a frame.
            thread = threading.Thread(target=self._run, name="decode", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no thread can be had
                return False
            self._thread = thread
        return True

    def _finished(self, job: Job, found: list[Frame], memory: int) -> None:
        try:
            job.done(found, memory)
        finally:
            self._next()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            found, memory = read(job.reader, job.data)
            # The loop may be closed by now: then nobody waits for the frames.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._finished, job, found, memory)
            del job, found


def read(reader: FrameReader, data: bytes) -> tuple[list[Frame], int]:
    """The frames that ``data`` completes, and how many bytes of memory they take at the most."""
    size = reader.pending + len(data)
    collecting = gc.isenabled()
    # Every value that a frame holds is alive until the end: looking for garbage meanwhile only takes time.
    gc.disable()
    try:
        found = reader.feed(data)
    except MemoryError:
        reader.fault = FrameFault("bad_frame", "there is no memory for the values of the frame")
        return [], 0
    finally:
        if collecting:
            gc.enable()
    return found, size + _VALUE_BYTES * min(size, MOST_VALUES) if found else 0


def unpack(payload: bytes | bytearray | memoryview) -> Any:
    """The value of a payload. Raises :class:`TooManyValues` before more than :data:`MOST_CONTAINERS` arrays and
    maps, or about twice :data:`MOST_VALUES` values, are built, and the errors of msgpack.

    A key that a map has twice counts once.
    """
    containers = values = 0

    def count(container: Any) -> Any:
        nonlocal containers, values
        containers += 1
        values += len(container) if type(container) is list else 2 * len(container)
        if containers > MOST_CONTAINERS or values > MOST_VALUES:
            raise _too_many()
        return container

    try:
        return unpackb(
            payload,
            list_hook=count,
            object_hook=count,
            max_array_len=MOST_VALUES,
            max_map_len=MOST_VALUES // 2,
        )
    except ValueError as error:
        # A length alone says it, before any element is looked at.
        if "exceeds max_" in str(error):
            raise _too_many() from None
        raise


def _too_many() -> TooManyValues:
    return TooManyValues(f"more than {MOST_CONTAINERS} arrays and maps, or {MOST_VALUES} values, in one frame")
