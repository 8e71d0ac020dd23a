"""How deep a JSON text nests and how much it holds, found without decoding it (floor 0, pure).

A decoder's own limit is the free stack of its thread, so it gives no stable answer; this one does, at the
speed of the C functions that it is made of.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Final

MAX_DEPTH: Final = 256
"""Levels that a line or a frame may have, its outermost container being level 1 (client page, section 7)."""

SURELY_SHALLOW: Final = 2 * MAX_DEPTH
"""Bytes of a JSON text that cannot open and close more than :data:`MAX_DEPTH` brackets."""

MAX_VALUES: Final = 1_000_000
"""Values that an answer may hold: commas and opened arrays and objects, outside of strings. A decoder needs some
0.1 us and 100 bytes for each, so that a line of 16 MiB could otherwise hold up everybody for seconds."""

_OPEN, _CLOSE = b"\x01", b"\xff"  # +1 and -1 as signed bytes
_STEPS: Final = bytes.maketrans(b"[{]}", _OPEN * 2 + _CLOSE * 2)
_SEPARATORS: Final = b",[{"
_QUOTE: Final = ord('"')
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
    left = limit - count_up_to(text, b"[", limit)
    return left < count_up_to(text, b"{", left + 1) and _passes(text, limit)


def count_up_to(text: bytes, byte: bytes, most: int) -> int:
    """How often ``byte`` stands in ``text``; where it is more than ``most`` times, some number above it.

    A long text with few brackets is searched many times faster than it is counted.
    """
    found, at = 0, text.find(byte)
    while at >= 0 and found <= most:
        found += 1
        at = text.find(byte, at + 1)
    return found


def too_many_values(text: bytes, limit: int = MAX_VALUES) -> bool:
    """Whether the JSON ``text`` holds more than ``limit`` values, which is counted as at :data:`MAX_VALUES`."""
    # Each has a byte of its own; usually even a count that looks into strings is low.
    if len(text) <= limit or sum(map(text.count, (b",", b"[", b"{"))) <= limit:
        return False
    return sum(map(len, _outside_strings(text, _SEPARATORS))) > limit


def _passes(text: bytes, limit: int) -> bool:
    """Whether ``text`` nests past ``limit`` levels; what follows the first place that does is not looked at."""
    depth = 0
    for part in _outside_strings(text, b"[]{}"):
        steps = part.translate(_STEPS)
        if depth + _at_most(steps) > limit and depth + _highest(steps) > limit:
            return True
        depth += steps.count(_OPEN) - steps.count(_CLOSE)
    return False


def _at_most(steps: bytes) -> int:
    """At least the levels that ``steps`` rise to, and usually exactly these."""
    levels = 0
    # Removing every innermost pair lowers the whole tree by one level, and shrinks usual documents to little.
    while levels < _PAIR_PASSES and _OPEN + _CLOSE in steps:
        steps = steps.replace(_OPEN + _CLOSE, b"")
        levels += 1
    return levels + _highest(steps)


def _highest(steps: bytes) -> int:
    return max(accumulate(memoryview(steps).cast("b")), default=0)


def _outside_strings(text: bytes, kept: bytes) -> Iterator[bytes]:
    """The bytes of ``text`` out of ``kept`` that stand outside of its strings, in a few parts."""
    if b"\\" in text:
        text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    # What is left of a string without any of these is two quotes. Taking away any two neighbours leaves every
    # other byte inside or outside of a string as it was.
    dropped = bytes(byte for byte in range(256) if byte not in kept and byte != _QUOTE)
    text = text.translate(None, dropped).replace(b'""', b"")
    in_string = 0
    # In segments, because a text of tiny strings falls into very many parts.
    for start in range(0, len(text), _SEGMENT):
        parts = text[start : start + _SEGMENT].split(b'"')
        yield b"".join(parts[in_string::2])
        in_string ^= (len(parts) - 1) & 1
