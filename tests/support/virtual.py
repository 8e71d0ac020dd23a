"""Virtual time: an event loop whose clock jumps to the next timer, so that a test of minutes takes no time.

Everything is deterministic, and a wait that nothing will ever end fails at once instead of hanging.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class Stuck(AssertionError):
    """Everybody waits, and no timer runs: the test would never end."""


class _Selector(selectors.SelectSelector):
    """Never sleeps: where a real one would, the clock advances."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise Stuck("nobody will ever do anything again")
        self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """For peers in the same loop: nothing in it may wait for another process or thread."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)
        self.complaints: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.complaints.append(context))

    def time(self) -> float:
        return self._virtual.now


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an asynchronous test in virtual time; an exception that nobody handled fails it."""

    @functools.wraps(test)
    def run(*args: Any, **keys: Any) -> None:
        loop = VirtualLoop()
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(test(*args, **keys))
        assert not loop.complaints

    return run


def now() -> float:
    """Virtual seconds since the test began."""
    return asyncio.get_running_loop().time()


async def turns(number: int = 20) -> None:
    """Let everything that is ready happen, without advancing the clock."""
    for _ in range(number):
        await asyncio.sleep(0)
