"""The process's own memory: kept for the next large message, and given back when none comes (floor 2).

By default the allocator takes each large block from the kernel anew and returns it when it is freed, so that every
page of a message is faulted in once for each copy of it: that takes four times as long as all the copying.
"""

from __future__ import annotations

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1  # malloc.h
_M_MMAP_THRESHOLD: Final = -3
_LARGEST_KEPT: Final = 32 * 1024 * 1024
"""Bytes of a block up to which it is kept: the allocator's own limit."""
_MOST_KEPT: Final = 256 * 1024 * 1024
"""Free bytes beyond which memory is given back at once."""
WORTH_IT: Final = 8 * 1024 * 1024
"""Free bytes that are worth the milliseconds that giving them back takes."""


class _MallInfo(ctypes.Structure):
    """``struct mallinfo2``."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


class Heap:
    """The allocator of the C library. Where that is not glibc (2.33 or newer), all of this does nothing."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        self._known = all(hasattr(self._libc, name) for name in ("mallopt", "malloc_trim", "mallinfo2"))
        if self._known:
            self._libc.mallinfo2.restype = _MallInfo

    def keep(self) -> None:
        """From now on, keep what is freed for what comes next."""
        if self._known:
            self._libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT)
            self._libc.mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT)

    @property
    def free(self) -> int:
        """Bytes that are kept and not used."""
        return int(self._libc.mallinfo2().fordblks) if self._known else 0

    def give_back(self) -> None:
        """Return to the kernel what is kept, if that is much."""
        if self.free > WORTH_IT:
            self._libc.malloc_trim(0)
