"""What work costs, counted instead of timed: the same figures on every machine, whatever its load."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


class TooMuchWork(AssertionError):
    """The work went past the calls that it may take."""


def within(calls: int, work: Callable[[], T]) -> T:
    """The result of ``work``, which may make that many calls of functions, in Python and in C. It is stopped at
    the first one more, so that what would grow without bound fails a test instead of hanging it."""
    left = calls

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal left
        if event in ("call", "c_call"):
            left -= 1
            if left < 0:
                raise TooMuchWork(f"more than {calls} calls")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        return work()
    finally:
        sys.setprofile(before)


def lines(work: Callable[[], object]) -> int:
    """How many lines of Python ``work`` runs."""
    number = 0

    def count(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal number
        number += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return number


def moved(steps: Iterable[Callable[[], object]]) -> int:
    """Bytes of memory that ``steps`` took, one after the other, beyond what was in use when each began: what a
    step copies is in it, what is given back between two steps does not make up for it."""
    total = 0
    tracemalloc.start()
    try:
        for step in steps:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            step()
            _, peak = tracemalloc.get_traced_memory()
            total += peak - before
    finally:
        tracemalloc.stop()
    return total
