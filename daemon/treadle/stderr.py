"""What a server writes to stderr: a bounded tail for failures, rate-limited lines for the log (floor 2).

A server's stderr is untrusted and endless. The memory kept for it is bounded whatever comes, and feeding costs
little even in a flood: bytes are kept raw and are decoded, redacted and sanitised only when somebody reads them,
and past the rate limit lines are counted together instead of one by one. Redaction works on whole lines, so that a
secret cut in two by the pipe is still found (configuration page: a secret's value is in no log line, status or
error).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Final

from treadle.text import ELLIPSIS, cap, sanitise

LINE_LIMIT: Final = 4096
"""Longest line shown, in bytes; the rest of a longer one is dropped up to its end."""
OVERLAP: Final = 8192
"""Bytes kept beyond LINE_LIMIT, never shown: a secret that crosses the limit is recognised by them."""
_SLICE: Final = OVERLAP
"""Bytes looked at together, so that no line inside of them is longer than what is kept of one."""
_MARGIN: Final = 16
"""Characters that the cut bytes of one character, escaped, can add to the beginning of a secret."""
_BLANK: Final = b" \t\v\f"
_INK: Final = re.compile(rb"[^ \t\n\v\f]")

BURST: Final = 50
LINES_PER_SECOND: Final = 10.0


class StderrTail:
    """The newest stderr of one incarnation of a server.

    ``limit`` bounds the raw bytes kept for complete lines (a pending line adds at most LINE_LIMIT + OVERLAP).
    ``redact`` removes secrets from a text; its attribute ``reach``, where it has one, is the length of the longest
    of them. Not tied to a clock: ``now`` is in seconds, never decreasing.
    """

    def __init__(self, redact: Callable[[str], str], limit: int = 65536) -> None:
        self._redact = redact
        self._reach: int = getattr(redact, "reach", OVERLAP - _MARGIN)
        self._limit = limit
        self._kept = bytearray()  # complete lines, each with its LF
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
        shown: list[str] = []
        for start in range(0, len(data), _SLICE):
            complete, lf, rest = data[start : start + _SLICE].replace(b"\r", b"\n").rpartition(b"\n")
            if lf:
                first, lf, others = complete.partition(b"\n")
                self._append(first)
                self._end_line(now, shown)
                if lf:
                    self._take_lines(others + lf, now, shown)
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
        for text in reversed(self._render_all(self._lines())):
            room -= len(text.encode()) + 1
            if room < -1:  # the last line needs no line end
                break
            newest.appendleft(text)
        return "\n".join(newest)

    def last_lines(self, count: int = 3, limit: int = 400) -> str:
        """The last ``count`` complete lines joined by ``" | "``, cut to ``limit`` characters from the front."""
        text = " | ".join(line.strip() for line in self._render_all(self._lines()[-count:]))
        return text if len(text) <= limit else "…" + text[len(text) - limit + 1 :]

    def _lines(self) -> list[bytes]:
        return [line for line in bytes(self._kept).split(b"\n") if line.strip()]

    def _append(self, piece: bytes) -> None:
        room = LINE_LIMIT + OVERLAP - len(self._pending)
        if room > 0:
            self._pending += piece[:room]

    def _end_line(self, now: float, shown: list[str]) -> None:
        line = bytes(self._pending)
        self._pending.clear()
        if line.strip():
            self._keep(line + b"\n")
            self._show(line, now, shown)

    def _take_lines(self, lines: bytes, now: float, shown: list[str]) -> None:
        """Take complete lines, each with its LF: one by one as long as the log may show them."""
        lines = _without_empty_lines(lines)
        self._keep(lines)
        at = 0
        while (ink := _INK.search(lines, at)) is not None:
            start = lines.rfind(b"\n", at, ink.start()) + 1 or at
            end = lines.index(b"\n", start)
            at = end + 1
            if not self._show(lines[start:end], now, shown):
                rest = _without_empty_lines(lines[at:].translate(None, _BLANK))
                self._suppressed += rest.count(b"\n") - rest.startswith(b"\n")
                return

    def _keep(self, lines: bytes) -> None:
        kept = self._kept
        kept += lines
        excess = len(kept) - self._limit
        if excess > 0:
            # Whole lines go, and the last one stays, however long it is.
            del kept[: min(kept.index(b"\n", excess - 1), kept.rfind(b"\n", 0, -1)) + 1]

    def _show(self, line: bytes, now: float, shown: list[str]) -> bool:
        """Let the line through, or count it and return False."""
        if not self._admit(now):
            self._suppressed += 1
            return False
        if self._suppressed:
            shown.append(self._suppression())
        shown.append(self._render(line))
        return True

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

    def _render_all(self, lines: list[bytes]) -> list[str]:
        if max(map(len, lines), default=0) > LINE_LIMIT:
            return [self._render(line) for line in lines]
        text = self._redact(b"\n".join(lines).decode("utf-8", "backslashreplace"))
        return [sanitise(line) for line in text.split("\n")] if lines else []

    def _render(self, line: bytes) -> str:
        text = self._redact(line.decode("utf-8", "backslashreplace"))
        if len(line) >= LINE_LIMIT + OVERLAP:
            # What was left out may be the rest of a secret, whose beginning is not recognised: as much as could be
            # one is taken off the end. Redaction may have brought that end close to the beginning of the line.
            text = text[: max(0, len(text) - self._reach - _MARGIN)] + ELLIPSIS
        return sanitise(cap(text, LINE_LIMIT))


def _without_empty_lines(lines: bytes) -> bytes:
    """``lines`` with LFs that follow each other made one."""
    while b"\n\n" in lines:
        lines = lines.replace(b"\n\n", b"\n")
    return lines
