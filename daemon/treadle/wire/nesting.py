"""How deep a JSON text nests, found without decoding it (floor 0, pure).

A decoder's own limit is the free stack of its thread, so it gives no stable answer; this one does, at the
speed of the C functions that it is made of.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final

MAX_DEPTH: Final = 256
"""Levels that a line or a frame may have, its outermost container being level 1 (client page, section 7)."""

_OPEN, _CLOSE = b"\x01", b"\xff"  # +1 and -1 as signed bytes
_STEPS: Final = bytes.maketrans(b"[{]}", _OPEN * 2 + _CLOSE * 2)
_NOT_STRUCTURE: Final = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_SEGMENT: Final = 1024 * 1024
_PAIR_PASSES: Final = 4


def too_deep(text: bytes, limit: int = MAX_DEPTH) -> bool:
    """Whether the JSON ``text`` nests past ``limit`` levels.

    Of text that is not JSON the answer is exact up to the first byte that is wrong, which is all that a decoder
    looks at.
    """
    # A text that opens no more than `limit` brackets, in strings or out of them, cannot be too deep; a short
    # one cannot close so many again.
    if len(text) <= 2 * limit:
        return False
    left = limit - _count(text, b"[", limit)
    return left < _count(text, b"{", left + 1) and nesting(text) > limit


def _count(text: bytes, byte: bytes, most: int) -> int:
    """How often ``byte`` stands in ``text``; where it is more than ``most`` times, some number above it.

    A long text with few brackets is searched many times faster than it is counted.
    """
    found, at = 0, text.find(byte)
    while at >= 0 and found <= most:
        found += 1
        at = text.find(byte, at + 1)
    return found


def nesting(text: bytes) -> int:
    """The number of levels of the JSON ``text``: 0 for a scalar, 1 for ``[]``, 2 for ``[[]]``."""
    steps = _brackets(text)
    levels = 0
    # Removing every innermost pair lowers the whole tree by one level, and shrinks usual documents to little.
    while levels < _PAIR_PASSES and _OPEN + _CLOSE in steps:
        steps = steps.replace(_OPEN + _CLOSE, b"")
        levels += 1
    return levels + max(accumulate(memoryview(steps).cast("b")), default=0)


def _brackets(text: bytes) -> bytes:
    """The brackets of ``text`` outside of its strings, as signed steps."""
    if b"\\" in text:
        text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    # What is left of a string without brackets is two quotes. Taking away any two neighbours leaves every other
    # byte inside or outside of a string as it was.
    text = text.translate(None, _NOT_STRUCTURE).replace(b'""', b"")
    steps = []
    in_string = 0
    # In segments, because a text of tiny strings falls into very many parts.
    for start in range(0, len(text), _SEGMENT):
        parts = text[start : start + _SEGMENT].split(b'"')
        steps.append(b"".join(parts[in_string::2]))
        in_string ^= (len(parts) - 1) & 1
    return b"".join(steps).translate(_STEPS)
