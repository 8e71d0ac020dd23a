"""Lines that wait to be sent (floor 1, pure)."""

from __future__ import annotations

from typing import Final

MAX_UNSENT_REPLIES: Final = 1000
"""How many answers to a server's own requests may wait to be taken; further requests are dropped."""

MAX_UNSENT_REPLY_BYTES: Final = 1024 * 1024
"""How many bytes these answers may have together: each echoes an id that the server chose."""

NO_REQUEST: Final = 0
"""Stands for the id of a line that is no request."""


class Outbox:
    """Lines in the order in which they leave, each with the id of its request.

    Requests are bounded by what the shell admits; answers to the server's own requests are bounded here, so that
    a server that asks and does not read cannot make memory grow.
    """

    __slots__ = ("_replies", "_reply_bytes", "lines")

    def __init__(self) -> None:
        self.lines: list[tuple[int, bytes]] = []
        """All that waits, in order."""
        self._replies = 0
        self._reply_bytes = 0

    def add(self, line: bytes, request_id: int = NO_REQUEST) -> None:
        """Queue the line of a request or notification."""
        self.lines.append((request_id, line))

    def add_reply(self, line: bytes) -> bool:
        """Queue an answer to the server; False when too many wait already, and this one is dropped."""
        if self._replies == MAX_UNSENT_REPLIES or self._reply_bytes + len(line) > MAX_UNSENT_REPLY_BYTES:
            return False
        self._replies += 1
        self._reply_bytes += len(line)
        self.lines.append((NO_REQUEST, line))
        return True

    def withdraw(self, request_id: int) -> bool:
        """Take back the line of a request; False when it has left already."""
        waiting = len(self.lines)
        self.lines = [entry for entry in self.lines if entry[0] != request_id]
        return len(self.lines) < waiting

    def take(self) -> list[tuple[int, bytes]]:
        """All that waits, in order; the outbox is empty afterwards."""
        lines, self.lines = self.lines, []
        self._replies = self._reply_bytes = 0
        return lines
