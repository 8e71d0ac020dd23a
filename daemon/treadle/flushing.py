"""What one callback of the loop leaves to be written (floor 2): one write per peer, at the end of that
callback."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger(__name__)


class Flusher:
    """Collects who has something to write, and lets them write when the callback that made it ends.

    A callback that reads sets :attr:`is_open`, handles all that it read, and calls :meth:`flush`: many answers
    then leave in one write, and none waits for another round of the loop. What is added at any other time is
    written soon."""

    __slots__ = ("_due", "_loop", "_soon", "is_open")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_open = False
        """Whether the callback under way will call :meth:`flush`."""
        self._loop = loop
        self._due: list[Callable[[], None]] = []
        self._soon = False

    def add(self, write: Callable[[], None]) -> None:
        """Have ``write`` called once; whoever adds it sees to it that it is not added twice."""
        self._due.append(write)
        if not self.is_open and not self._soon:
            self._soon = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Let all write that were added, whatever becomes of one of them."""
        self.is_open = self._soon = False
        while self._due:
            due, self._due = self._due, []
            for write in due:
                try:
                    write()
                except Exception:
                    log.exception("writing failed")
