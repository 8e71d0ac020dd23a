"""Who is in custody: every client ever prepared, until there is evidence of its end (floor 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from treadle.client import Client
from treadle.errors import RetirementFault, RetirementTimedOut, RetirementUnconfirmed, Stopped
from treadle.phases import Phase
from treadle.transport import NO_RESOURCE, Evidence, Ladder


class Row(Struct, frozen=True):
    """What is known of one server's end: its evidence, or the fault that stands for the lack of it."""

    server: str
    evidence: Evidence | None = None
    fault: RetirementFault | None = None

    @property
    def confirmed(self) -> bool:
        """Whether the end is proven."""
        return self.evidence is not None and self.evidence.confirmed

    def to_body(self) -> dict[str, Any]:
        """A row of the shape ``shutdown`` of the socket page."""
        body: dict[str, Any] = {"name": self.server}
        if self.evidence is not None:
            body["evidence"] = self.evidence.to_body()
        if isinstance(self.fault, RetirementTimedOut):
            body["error"] = "retirement_timed_out"
        elif self.fault is not None:
            body["error"] = "retirement_unconfirmed"
        return body


class Census:
    """The register of clients. A failed start stays in it until its retirement is proven."""

    def __init__(self) -> None:
        self._clients: dict[str, list[Client]] = {}

    def publish(self, client: Client) -> None:
        """Take custody of a client, before it is started."""
        row = self._clients.setdefault(client.server, [])
        # Proven ends are history; the newest is kept as the row's evidence.
        row[:] = [one for one in row if one.phase is not Phase.RETIRED or not _proven(one)]
        row.append(client)

    def of(self, server: str) -> tuple[Client, ...]:
        """The clients of one server that are in custody, oldest first."""
        return tuple(self._clients.get(server, ()))

    @property
    def uncertain(self) -> list[str]:
        """The names of servers that have a client without proof of its end."""
        return [name for name, row in self._clients.items() if any(not _proven(client) for client in row)]

    async def retire(
        self, servers: Iterable[str], ladder: Ladder | None, within: float, by: str = "shutdown"
    ) -> list[Row]:
        """Retire the clients of ``servers``, all at once; one row each, in the given order.

        ``ladder`` None means each server's own. Never raises: what could not be proven is in the row.
        """
        return list(await asyncio.gather(*(self._retire_one(name, ladder, within, by) for name in servers)))

    async def _retire_one(self, server: str, ladder: Ladder | None, within: float, by: str) -> Row:
        row = Row(server, NO_RESOURCE)
        deadline = asyncio.get_running_loop().time() + within
        for client in self.of(server):
            left = max(0.0, deadline - asyncio.get_running_loop().time())
            try:
                evidence = await client.shutdown(within=left, ladder=ladder, by=by)
            except RetirementFault as fault:
                row = Row(server, client.evidence, fault)
            else:
                if not evidence.confirmed:
                    gone = RetirementUnconfirmed(server, "descendants of it are still alive")
                    row = Row(server, evidence, gone)
                elif row.fault is None:
                    row = Row(server, evidence)
        return row

    def hurry(self, ladder: Ladder) -> None:
        """Shorten every retirement under way, and begin those that are not."""
        for row in self._clients.values():
            for client in row:
                if client.phase in (Phase.SERVING, Phase.CLOSING):
                    client.close(Stopped("shutdown"), ladder)


def _proven(client: Client) -> bool:
    return client.evidence is not None and client.evidence.confirmed
