"""What a server writes to stderr: a bounded tail for failures, rate-limited lines for the log (floor 2).

A server's stderr is untrusted and endless. The memory kept for it is bounded whatever comes, and feeding costs
little even in a flood: lines are kept raw and are decoded, redacted and sanitised only when somebody reads them.
Redaction works on whole lines, so that a secret cut in two by the pipe is still found (configuration page:
a secret's value is in no log line, status or error).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from treadle.text import ELLIPSIS, cap, sanitise

LINE_LIMIT: Final = 4096
"""Longest line shown, in bytes; the rest of a longer one is dropped up to its end."""
OVERLAP: Final = 8192
"""Bytes kept beyond LINE_LIMIT, never shown: a secret that crosses the limit is recognised by them."""
BURST: Final = 50
LINES_PER_SECOND: Final = 10.0


class StderrTail:
    """The newest stderr of one incarnation of a server.

    ``limit`` bounds the raw bytes kept for complete lines (a pending line adds at most LINE_LIMIT + OVERLAP).
    ``redact`` removes secrets from a text. Not tied to a clock: ``now`` is in seconds, never decreasing.
    """

    def __init__(self, redact: Callable[[str], str], limit: int = 65536) -> None:
        self._redact = redact
        self._limit = limit
        self._lines: deque[bytes] = deque()
        self._kept = 0
        self._pending = bytearray()
        self._tokens = float(BURST)
        self._refilled: float | None = None
        self._suppressed = 0
        self.bytes = 0
        """How many bytes were fed in all."""

    def feed(self, data: bytes, now: float) -> list[str]:
        """Take the next chunk; returns the complete lines that the log may show (redacted, without line ends).

        CR ends a line as LF does (progress bars); blank lines are dropped. At most BURST lines at once and
        LINES_PER_SECOND after that; what was left out is told by one line when the next one is let through.
        """
        self.bytes += len(data)
        *complete, rest = data.replace(b"\r", b"\n").split(b"\n")
        shown: list[str] = []
        for piece in complete:
            self._append(piece)
            self._end_line(now, shown)
        self._append(rest)
        return shown

    def finish(self, now: float) -> list[str]:
        """The writer is gone: the pending line counts as complete. Returns log lines as :meth:`feed` does."""
        shown: list[str] = []
        self._end_line(now, shown)
        if self._suppressed:
            shown.append(self._suppression())
        return shown

    def tail(self, max_bytes: int = 65536) -> str:
        """The newest complete lines as one text of at most ``max_bytes`` UTF-8 bytes, redacted and sanitised."""
        newest: deque[str] = deque()
        room = max_bytes
        for line in reversed(self._lines):
            text = self._render(line)
            room -= len(text.encode()) + 1
            if room < -1:  # the last line needs no line end
                break
            newest.appendleft(text)
        return "\n".join(newest)

    def last_lines(self, count: int = 3, limit: int = 400) -> str:
        """The last ``count`` complete lines joined by ``" | "``, cut to ``limit`` characters from the front."""
        newest = [self._render(line).strip() for line in list(self._lines)[-count:]]
        text = " | ".join(newest)
        return text if len(text) <= limit else "…" + text[len(text) - limit + 1 :]

    def _append(self, piece: bytes) -> None:
        room = LINE_LIMIT + OVERLAP - len(self._pending)
        if room > 0:
            self._pending += piece[:room]

    def _end_line(self, now: float, shown: list[str]) -> None:
        line = bytes(self._pending)
        self._pending.clear()
        if not line.strip():
            return
        self._lines.append(line)
        self._kept += len(line)
        while self._kept > self._limit and len(self._lines) > 1:
            self._kept -= len(self._lines.popleft())
        if not self._admit(now):
            self._suppressed += 1
            return
        if self._suppressed:
            shown.append(self._suppression())
        shown.append(self._render(line))

    def _admit(self, now: float) -> bool:
        if self._refilled is not None:
            self._tokens = min(BURST, self._tokens + (now - self._refilled) * LINES_PER_SECOND)
        self._refilled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _suppression(self) -> str:
        count, self._suppressed = self._suppressed, 0
        return f"({count} lines suppressed)"

    def _render(self, line: bytes) -> str:
        text = self._redact(line.decode("utf-8", "backslashreplace"))
        if len(line) > LINE_LIMIT:
            # A secret across the limit is found only in the longer text: what both versions agree on is clean.
            head = self._redact(line[:LINE_LIMIT].decode("utf-8", "ignore"))
            pairs = zip(text, head, strict=False)
            agreed = next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(text), len(head)))
            text = cap(text[:agreed], LINE_LIMIT - 1) + ELLIPSIS
        return sanitise(text)
