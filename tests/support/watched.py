"""One supervisor under watch: its server is what a test says, and it must end with evidence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from support import script as s
from support.household import Deaf, Household, config
from support.twin import TwinPeer
from support.virtual import now, turns
from treadle.census import Census
from treadle.config import Refused, ServerConfig
from treadle.phases import Phase
from treadle.states import State
from treadle.supervisor import Supervisor

WORKS = s.script()
FAILS = s.script(s.exit(1))
NEVER_READY = s.script(s.on("initialize"))
DIES_SOON = s.script(s.expect("tools/list"), s.default(), s.sleep(0.1), s.exit(1))
QUICK: dict[str, Any] = {"restart_backoff_ms": 1000, "restart_backoff_max_ms": 8000}


class Deathless(TwinPeer):
    """Serves well, and ends by nothing but the test."""

    def __init__(self) -> None:
        super().__init__(s.script(s.on_eof(), s.ignore()))

    def killed(self) -> None:
        pass


class Watched(Household):
    """One supervisor, with every state that it went through."""

    def __init__(self, entry: ServerConfig | Refused, *incarnations: Any) -> None:
        super().__init__()
        self.plays(entry.name, *(incarnations or (WORKS,)))
        self.census = Census()
        self.one = Supervisor(entry, self.make, self.census, jitter=lambda: 0.5)
        self.states: list[tuple[str, float]] = []

    def note(self) -> bool:
        seen = (self.one.state.value, round(now(), 3))
        if not self.states or self.states[-1][0] != seen[0]:
            self.states.append(seen)
        return False

    @property
    def clients(self) -> list[Any]:
        return self.made.get(self.one.name, [])

    async def until(self, *states: State) -> None:
        await self.one.until(lambda: self.one.state in states)

    async def stop(self, within: float = 30.0) -> Any:
        return await self.one.stop(None, within, "the test")


@asynccontextmanager
async def watched(*incarnations: Any, begin: bool = True, **keys: Any) -> AsyncIterator[Watched]:
    """A supervisor of a server that is what ``incarnations`` are; stopped and ended afterwards."""
    house = Watched(config(**QUICK | keys), *incarnations)
    house.one.prepare()
    if begin:
        house.one.begin()
    watcher = asyncio.ensure_future(house.one.until(house.note))
    await turns(1)
    try:
        yield house
    finally:
        for client in house.clients:
            peer = client._transport._peer
            if isinstance(peer, Deathless | Deaf) and client.phase is not Phase.PREPARED:
                peer.link.die("SIGKILL")
        watcher.cancel()
        await house.stop()
        await house.one.end()
        # One at a time, and each with evidence: that holds in every test.
        assert house.census.uncertain == []
