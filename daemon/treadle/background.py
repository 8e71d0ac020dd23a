"""Work for a thread of its own, so that a slow disk or terminal never holds up the event loop (floor 2)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class Background(Generic[_Item]):
    """Hands what is put in, in order and in batches, to ``write`` on a thread.

    At most ``limit`` items wait; what comes beyond is dropped and counted in :attr:`dropped`. ``delay`` seconds
    pass between the first item and its batch: a busy writer then wakes the thread seldom. ``write`` must not
    raise. Where no thread can be started (a limit of processes), every item is written as it is put in, which the
    owner should say: :attr:`in_place`.
    """

    def __init__(self, write: Callable[[list[_Item]], None], *, name: str, limit: int, delay: float = 0.0) -> None:
        self.dropped = 0
        self._write = write
        self._limit = limit
        self._delay = delay
        self._items: deque[_Item] = deque()
        self._due = False
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.in_place = False
        try:
            self._thread.start()
        except RuntimeError:
            self.in_place = True

    def put(self, item: _Item, count: int = 1) -> None:
        """Hand over one item, from any thread; dropped, it counts as ``count``. Never raises; never waits, except
        :attr:`in_place`."""
        if self.in_place:
            self._write([item])
            return
        if len(self._items) >= self._limit:
            self.dropped += count
            return
        self._items.append(item)
        if not self._due:
            self._due = True
            self._wake.set()

    def close(self, within: float) -> bool:
        """Write what is left, ``within`` seconds at the most. Returns whether all was written."""
        if self.in_place:
            return True
        self._closing.set()
        self._wake.set()
        self._thread.join(within)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not (self._closing.is_set() and not self._items):
            self._wake.wait()
            self._closing.wait(self._delay)
            self._wake.clear()
            # Lowered before the items are taken: one that comes now sets it again.
            self._due = False
            batch = [self._items.popleft() for _ in range(len(self._items))]
            if batch:
                self._write(batch)
            if self._closing.is_set():
                self._wake.set()
