"""Untrusted text made fit for people's eyes and for source comments (floor 0, pure)."""

from __future__ import annotations

import re

TYPE_CHECKING = False  # the typing module would double what `treadle list` costs
if TYPE_CHECKING:
    from typing import Final

FORBIDDEN: Final = (
    "\u0000-\u001f\u007f-\u009f\u2028\u2029\u200b-\u200f\u202a-\u202e\u2061-\u2069\ufeff\U000e0000-\U000e007f"
)
"""Invisible and direction-changing code points, as the inside of a regular-expression class.

The set is that of the codegen page, section 3.
"""

_FORBIDDEN = re.compile(f"[{FORBIDDEN}\ud800-\udfff]")
ELLIPSIS: Final = "…"


def sanitise(text: str) -> str:
    """``text`` with every invisible or direction-changing code point (and lone surrogate) made one space."""
    return _FORBIDDEN.sub(" ", text)


def cap(text: str, limit: int) -> str:
    """``text`` cut to ``limit`` code points (1 and up); a cut text ends in an ellipsis, counted inside."""
    return text if len(text) <= limit else text[: limit - 1] + ELLIPSIS


def quote(data: bytes | str, limit: int = 200) -> str:
    """The first ``limit`` code points of what a server sent, on one line, safe to print.

    Bytes that are not UTF-8 appear as ``\\xNN``. The cost is bounded by ``limit``, not by the size of ``data``.
    """
    if isinstance(data, bytes):
        # A code point takes at most 4 bytes; an escaped byte takes 4 characters: one slice serves both.
        text = data[: limit * 4 + 4].decode("utf-8", "backslashreplace")
        longer = len(data) > limit * 4 + 4
    else:
        text, longer = data[: limit + 1], False
    clean = sanitise(text).strip()
    return cap(clean + ELLIPSIS if longer and len(clean) < limit else clean, limit)
