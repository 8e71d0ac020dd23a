"""Lines on their way into a server's stdin (floor 3): in few writes, and known to have left or not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from treadle.errors import Outcome

LIMIT: Final = 64 * 1024 * 1024
"""Bytes of requests that may wait for a server that does not read, before further calls are refused."""

_WRITE_CHUNK: Final = 256 * 1024

Line = tuple[int, bytes]
"""A line and the id of its request (0: no request)."""


class Unsent:
    """What a transport has not taken yet, in order.

    ``send`` is the transport's: it takes as many bytes as go without blocking. After it took less than it was
    given, :attr:`blocked` holds until :meth:`unblock`.
    """

    __slots__ = ("_head_sent", "_lines", "_send", "blocked", "bytes")

    def __init__(self, send: Callable[[bytes | memoryview], int]) -> None:
        self._send = send
        self._lines: deque[Line] = deque()
        self._head_sent = 0
        self.blocked = False
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._lines)

    def hold(self, lines: list[Line]) -> None:
        """Queue ``lines`` without writing anything."""
        for line in lines:
            self._lines.append(line)
            self.bytes += len(line[1])

    def write(self, lines: list[Line]) -> None:
        """Queue ``lines`` and hand over what the transport takes, in as few writes as possible."""
        if lines and not self._lines and not self.blocked:
            # Nothing waits: what the transport takes at once need not be queued at all.
            data = lines[0][1] if len(lines) == 1 else b"".join([line for _, line in lines])
            if len(data) <= _WRITE_CHUNK:
                sent = self._send(data)
                if sent == len(data):
                    return
                self.blocked = True
                self.hold(lines)
                self._drop(sent)
                return
        self.hold(lines)
        self._pump()

    def unblock(self) -> None:
        """The transport takes bytes again."""
        self.blocked = False
        self._pump()

    def withdraw(self, request_id: int) -> Outcome:
        """Drop the line of a request that was not begun to be written; say what is known of the request."""
        for index, (waiting, line) in enumerate(self._lines):
            if waiting == request_id:
                if index == 0 and self._head_sent:
                    return "unknown"
                del self._lines[index]
                self.bytes -= len(line)
                return "not_sent"
        return "unknown"

    def clear(self) -> None:
        """The channel is at its end."""
        self._lines.clear()
        self.bytes = self._head_sent = 0

    def _pump(self) -> None:
        while self._lines and not self.blocked:
            chunk = self._chunk()
            sent = self._send(chunk)
            self.blocked = sent < len(chunk)
            self._drop(sent)

    def _chunk(self) -> bytes | memoryview:
        head = self._lines[0][1]
        if self._head_sent or len(head) >= _WRITE_CHUNK:
            return memoryview(head)[self._head_sent :]
        lines: list[bytes] = []
        size = 0
        for _, line in self._lines:
            lines.append(line)
            size += len(line)
            if size >= _WRITE_CHUNK:
                break
        return b"".join(lines)

    def _drop(self, sent: int) -> None:
        self.bytes -= sent
        sent += self._head_sent
        lines = self._lines
        while lines and sent >= len(lines[0][1]):
            sent -= len(lines.popleft()[1])
        self._head_sent = sent
