"""Who waits for a request of a client (floor 3)."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from treadle.errors import Fault
from treadle.wire.messages import CallResult


class Waiter(Struct, eq=False, kw_only=True):
    """Somebody who waits for one request. Subclasses say in :meth:`settle` what an outcome means to them."""

    request_id: int = 0
    """Of the request at the server; 0 when there is none."""

    def settle(self, outcome: CallResult | Fault) -> None:
        """Called exactly once, on the event loop, with the result or the fault. Must not raise."""
        raise NotImplementedError


class FutureWaiter(Waiter, eq=False):
    """Lets a coroutine await a request."""

    future: asyncio.Future[CallResult]

    def settle(self, outcome: CallResult | Fault) -> None:
        """Resolve the future, unless whoever awaited it has gone."""
        if self.future.done():
            return
        if isinstance(outcome, Fault):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)
