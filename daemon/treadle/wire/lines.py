"""Bytes in, lines out: the framing of MCP's stdio transport (floor 0, pure; client page, section 2)."""

from __future__ import annotations

import codecs
from typing import Final

from treadle.errors import LineTooLong, NotUtf8
from treadle.text import quote

MAX_LINE: Final = 16 * 1024 * 1024
"""The most bytes that a line may have before its LF, whether or not that LF has come."""

_BLANK: Final = b" \t\r"
_OFFENDING_BYTES: Final = 64 * 1024
_SMALL: Final = 4096


class LineBuffer:
    """Splits a byte stream on LF and nothing else, checking it as it comes.

    A push costs its chunk, whatever is pending, and the memory in use is the pending line. The first fault is
    latched in :attr:`fault`: lines that were complete before it are still delivered, nothing after it is
    looked at.
    """

    __slots__ = ("_blank", "_cut", "_limit", "_pending", "_pending_bytes", "fault", "offending")

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._cut = b""  # the first bytes of a UTF-8 character whose rest has not come; also in _pending
        self._blank = 0
        self.fault: LineTooLong | NotUtf8 | None = None
        self.offending = b""
        """The beginning (at most 64 KiB) of the line that is not UTF-8."""

    @property
    def pending(self) -> int:
        """How many bytes of the incomplete line are held."""
        return self._pending_bytes

    @property
    def blank(self) -> int:
        """How many lines of nothing but SP, TAB and CR were dropped."""
        return self._blank

    def push(self, chunk: bytes) -> list[bytes]:
        """The lines that ``chunk`` completes, in order, each valid UTF-8, not blank, without LF and without the
        one CR that may stand before it. Raises nothing; look at :attr:`fault` after the lines are handled.
        """
        if self.fault is not None:
            return []
        if chunk.isascii() and not self._cut:
            # Mostly it is one line, no part of one pending.
            last = len(chunk) - 1
            if (
                not self._pending
                and last <= self._limit
                and chunk.startswith(b"{")
                and chunk.endswith(b"}\n")
                and chunk.find(b"\n") == last
            ):
                return [chunk[:last]]
            return self._split(chunk)
        data = self._cut + chunk
        start, wrong = _check_utf8(data)
        if wrong is None:
            self._cut = data[start:]
            return self._split(chunk)
        good = wrong - len(self._cut)
        lines = self._split(chunk[:good])
        if self.fault is None:
            offset = self._pending_bytes - (wrong - start)
            line = b"".join([*self._pending, chunk[good:][:_OFFENDING_BYTES]])
            self.offending = line[:_OFFENDING_BYTES]
            self._latch(NotUtf8(offset, quote(self.offending.partition(b"\n")[0])))
        return lines

    def discard(self) -> None:
        """Forget the incomplete line: at the end of the stream it is no message."""
        self._pending = []
        self._pending_bytes = 0
        self._cut = b""

    def _split(self, chunk: bytes) -> list[bytes]:
        if b"\n" not in chunk:
            self._hold(chunk)
            return []
        *ended, rest = chunk.split(b"\n")
        lines: list[bytes] = []
        if self._pending:
            self._pending.append(ended[0])
            ended[0] = b"".join(self._pending)
            self._pending = []
            self._pending_bytes = 0
        for line in ended:
            if len(line) > self._limit:
                self._latch(LineTooLong(self._limit, len(line)))
                return lines
            if line.endswith(b"\r"):
                line = line[:-1]
            if line.strip(_BLANK):
                lines.append(line)
            else:
                self._blank += 1
        if rest:
            self._hold(rest)
        return lines

    def _hold(self, part: bytes) -> None:
        """Keep a part of the incomplete line; small parts are put together, so that they cost what they hold."""
        pending = self._pending
        if pending and len(pending[-1]) < _SMALL:
            pending[-1] += part
        else:
            pending.append(part)
        self._pending_bytes += len(part)
        if self._pending_bytes > self._limit:
            self._latch(LineTooLong(self._limit, self._pending_bytes))

    def _latch(self, fault: LineTooLong | NotUtf8) -> None:
        self.fault = fault
        self.discard()


def _check_utf8(data: bytes) -> tuple[int, int | None]:
    """Where the first incomplete or impossible character of ``data`` begins (its length when there is none), and
    the index of the byte that makes it impossible, None when it may still be completed.
    """
    try:
        _, start = codecs.utf_8_decode(data, "strict", False)
    except UnicodeDecodeError as error:
        # A byte that can begin a character is wrong only by what follows its good part.
        return error.start, error.end if 0xC2 <= data[error.start] <= 0xF4 else error.start
    # The codec waits for the end of an encoded surrogate, which is none whatever comes.
    is_surrogate = data[start : start + 1] == b"\xed" and data[start + 1 : start + 2] >= b"\xa0"
    return start, start + 1 if is_surrogate else None
