"""Decoding of large frames on a thread, so that what one client sends does not stop the loop for others (floor 6).

A frame of the smallest values is decoded at some 20 MB/s, and one that is wrong in its last byte far slower still.
The thread shares the interpreter with the loop, but not the loop's turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import queue
import threading
from collections.abc import Callable
from typing import Any, Final

from treadle_client.frames import Frame, FrameFault, FrameReader

LARGE: Final = 64 * 1024
"""Bytes of a payload up to which it is decoded where it is received."""

MOST_CONTAINERS: Final = 1_000_000
"""Arrays and maps that one frame may hold: a million of them is taken on in a fraction of a second, the sixteen
million that fit a frame would take gigabytes and half a minute."""

Done = Callable[[list[Frame]], None]


class Decoder:
    """One thread, started at the first large frame. Frames are decoded in the order of their completion."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[tuple[FrameReader, bytes, Done] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def feed(self, reader: FrameReader, data: bytes, done: Done) -> None:
        """Have ``reader`` fed with ``data``; nobody else may, until ``done`` hears the frames on the loop."""
        if self._thread is None:
            # A daemon thread: the end of the process does not wait for a frame.
            thread = threading.Thread(target=self._run, name="decode", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no thread can be had: rather slow than not at all
                self._loop.call_soon(done, read(reader, data))
                return
            self._thread = thread
        self._jobs.put((reader, data, done))

    def close(self) -> None:
        """Decode nothing more after the frame under way."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            reader, data, done = job
            found = read(reader, data)
            # The loop may be closed by now: then nobody waits for the frames.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(done, found)
            del reader, data, done, found, job


def read(reader: FrameReader, data: bytes) -> list[Frame]:
    """The frames that ``data`` completes, without those past :data:`MOST_CONTAINERS`, which end the stream with a
    fault, or fail a call in band."""
    collecting = gc.isenabled()
    # Every value that a frame holds is alive until the end: looking for garbage meanwhile only takes time.
    gc.disable()
    try:
        found = reader.feed(data)
    except MemoryError:
        reader.fault = FrameFault("bad_frame", "there is no memory for the values of the frame")
        return []
    finally:
        if collecting:
            gc.enable()
    for index, frame in enumerate(found):
        if not has_too_many_containers(frame.body):
            continue
        what = f"more than {MOST_CONTAINERS} arrays and maps in one frame"
        if frame.kind not in ("call", "cap_call") or frame.invalid is not None:
            reader.fault = FrameFault("bad_frame", what, frame.id)
            return found[:index]
        found[index] = _without_arguments(frame, what)
    return found


def _without_arguments(frame: Frame, what: str) -> Frame:
    body = frame.body
    holder = body.get("args") if frame.kind == "cap_call" else body
    if isinstance(holder, dict) and "arguments" in holder:
        holder["arguments"] = {}
    # What else is large in the body is ignored by its reader, and dropped with it.
    return Frame(frame.id, frame.kind, body, ("$", what))


def has_too_many_containers(body: Any, most: int = MOST_CONTAINERS) -> bool:
    """Whether ``body`` holds more than ``most`` arrays and maps, itself included."""
    pending = [body]
    seen = 1
    while pending:
        container = pending.pop()
        for value in container.values() if type(container) is dict else container:
            if type(value) is dict or type(value) is list:
                seen += 1
                if seen > most:
                    return True
                pending.append(value)
    return False
