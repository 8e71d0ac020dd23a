"""Who waits for a request of a client (floor 3)."""

from __future__ import annotations

import asyncio

from treadle.errors import Fault
from treadle.wire.messages import CallResult


class Waiter:
    """Somebody who waits for one request. Subclasses say in :meth:`settle` what an outcome means to them."""

    __slots__ = ("request_id",)

    request_id: int

    def settle(self, outcome: CallResult | Fault) -> None:
        """Called exactly once, on the event loop, with the result or the fault. Must not raise."""
        raise NotImplementedError


class FutureWaiter(Waiter):
    """Lets a coroutine await a request."""

    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[CallResult]) -> None:
        self.future = future

    def settle(self, outcome: CallResult | Fault) -> None:
        """Resolve the future, unless whoever awaited it has gone."""
        if self.future.done():
            return
        if isinstance(outcome, Fault):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)
