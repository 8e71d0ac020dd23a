"""The requests in flight and their deadlines (floor 1, pure)."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, Final, Literal

import msgspec

from treadle.errors import Outcome
from treadle.wire.listing import Listing
from treadle.wire.messages import Content

_STRAY_DEADLINES: Final = 64


class Pending(msgspec.Struct, gc=False):
    """A request without an answer yet. Of a listing each page is a request of its own, with the same facts.

    Not looked at by the garbage collector: it is in no circle that outlives its settling.
    """

    kind: Literal["initialize", "list", "call", "ping"]
    deadline: float
    timeout_ms: int
    token: Any = None
    content: Content = "text"
    listing: Listing | None = None

    def outcome(self, unsent: bool) -> Outcome:
        """What is known when no answer comes, and the line of the last request did not leave, or may have."""
        began = self.listing is not None and self.listing.pages > 0
        return "not_sent" if unsent and not began else "unknown"


class InFlight(dict[int, Pending]):
    """Requests by id, in the order in which they were made, and a heap of their deadlines that forgets lazily.

    Settling a request costs one look-up. What is stale in the heap is skipped at its top and swept out when it
    outweighs what lives, so that memory stays in proportion to the requests in flight.
    """

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[float, int]] = []

    def add(self, request_id: int, pending: Pending) -> None:
        """Note a request; ids are never reused."""
        self[request_id] = pending
        heap = self._heap
        heappush(heap, (pending.deadline, request_id))
        if len(heap) > 2 * len(self) + _STRAY_DEADLINES:
            self._heap = [(each.deadline, number) for number, each in self.items()]
            heapify(self._heap)

    def next_deadline(self) -> float | None:
        """The earliest deadline of a live request."""
        heap = self._heap
        while heap and heap[0][1] not in self:
            heappop(heap)
        return heap[0][0] if heap else None

    def pop_expired(self, now: float) -> tuple[int, Pending] | None:
        """Settle the request with the earliest deadline if that is not after ``now``."""
        deadline = self.next_deadline()
        if deadline is None or deadline > now:
            return None
        _, request_id = heappop(self._heap)
        return request_id, self.pop(request_id)

    def pop_all(self) -> list[tuple[int, Pending]]:
        """Settle every request, in the order in which they were made."""
        requests = list(self.items())
        self.clear()
        self._heap.clear()
        return requests
