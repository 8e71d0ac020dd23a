"""A call on its way through the broker (floor 4)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from treadle.errors import Fault
from treadle.waiter import Waiter
from treadle.wire.messages import CallResult, Content

if TYPE_CHECKING:
    from treadle.supervisor import Supervisor


class Call(Waiter):
    """One ``tools/call`` on its way through the broker. A subclass says in :meth:`deliver` who hears of it."""

    __slots__ = (
        "arguments",
        "content",
        "deadline",
        "left",
        "received",
        "started",
        "supervisor",
        "timeout_ms",
        "timer",
        "tool",
    )

    def __init__(self, tool: str, arguments: bytes, timeout_ms: int, content: Content) -> None:
        self.request_id = 0
        self.tool = tool
        self.arguments = arguments
        self.timeout_ms = timeout_ms
        self.content = content
        self.deadline = 0.0
        self.left = 0.0
        self.received = 0.0
        """The loop's time from which its time-out counts; 0.0 is the time at which it is submitted."""
        self.started = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self.supervisor: Supervisor | None = None

    def settle(self, outcome: CallResult | Fault) -> None:
        """Called by the client of the server."""
        assert self.supervisor is not None
        self.supervisor.settled(self, outcome)

    def deliver(self, outcome: CallResult | Fault) -> None:
        """The end of the call, exactly once."""
        raise NotImplementedError
