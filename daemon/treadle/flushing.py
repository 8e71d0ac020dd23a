"""What the callbacks of the loop leave to be written (floor 2): one write per peer, at the end of a round or
sooner."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

FEW: Final = 2
"""Calls in flight below which what a callback leaves is written at its end. With more of them other callbacks of
this round of the loop have something for the same peers, and one write serves all."""


class Flusher:
    """Collects who has something to write, and lets them write once, when all that was read is handled.

    A callback that reads while less than :data:`FEW` calls are in flight sets :attr:`is_open`, handles all that it
    read, and calls :meth:`flush`: a lone call does not wait for the end of the round. What is added at any other
    time is written then.
    """

    __slots__ = ("_due", "_loop", "_soon", "is_open", "others_wait")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_open = False
        """Whether the callback under way will call :meth:`flush`."""
        self.others_wait: Callable[[], bool] = lambda: False
        """Whether somebody waits for the end of a turn besides the one for whom a large message is read."""
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
