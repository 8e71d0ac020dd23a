"""A call on its way through the broker (floor 4)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from treadle.errors import Fault
from treadle.waiter import Waiter
from treadle.wire.messages import CallResult, Content

if TYPE_CHECKING:
    from treadle.supervisor import Supervisor


class Call(Waiter, eq=False, kw_only=True):
    """One ``tools/call`` on its way through the broker. A subclass says in :meth:`deliver` who hears of it."""

    tool: str
    timeout_ms: int = 0
    """0 means the server's own."""
    content: Content | None = None
    """None means the server's own."""
    arguments: bytes = b""
    deadline: float = 0.0
    left: float = 0.0
    received: float = 0.0
    """The loop's time from which its time-out counts; 0.0 is the time at which it is submitted."""
    started: float = 0.0
    """When it was received, in seconds of ``time.perf_counter``, for its latency: the loop counts whole
    milliseconds. 0.0 is the time at which it is submitted."""
    seconds: float = 0.0
    """What it took, once it was answered."""
    timer: asyncio.TimerHandle | None = None
    supervisor: Supervisor | None = None

    def settle(self, outcome: CallResult | Fault) -> None:
        """Called by the client of the server."""
        assert self.supervisor is not None
        self.supervisor.settled(self, outcome)

    def deliver(self, outcome: CallResult | Fault) -> None:
        """The end of the call, exactly once."""
        raise NotImplementedError
