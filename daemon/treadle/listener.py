"""The Unix socket: who is accepted, whose turn it is, what all clients may hold together (floor 6; socket page).

What one client does costs its own share of the loop: clients with a backlog take turns, memory is bounded over all
of them, and a connection that only holds resources is ended.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from msgspec import Struct

from treadle.audit import Audit
from treadle.broker import Broker
from treadle.connection import Connection
from treadle.decoding import LARGE, Decoder
from treadle.flushing import Flusher
from treadle.heap import Heap
from treadle.peers import Access
from treadle.requests import Reload, Service
from treadle.socketfile import BACKLOG
from treadle.stream import FrameStream

log = logging.getLogger(__name__)

TURN_S: Final = 0.002
"""How long clients with a backlog are served before the loop looks at everything else again."""
JUST_NOW_S: Final = 0.02
HANDOVER_POLL_S: Final = 0.001
LAST_ANSWERS_S: Final = 5.0
"""How long clients that read have at a shutdown for the answers that are written; part of the budget of a stop."""


class Bounds(Struct, frozen=True):
    """What a connection may hold, and for how long. Seconds and bytes."""

    hello_s: float = 30.0
    """From the connect to a hello."""
    stall_s: float = 60.0
    """Without a byte more of a frame that was begun."""
    linger_s: float = 5.0
    """From our last word to the close, for a client that does not read it or does not close."""
    leaving: int = 64
    """Connections whose close waits for the client; the next ones are closed at once."""
    unread: int = 128 * 1024 * 1024
    """Answers that one client may leave unread."""
    memory: int = 512 * 1024 * 1024
    """Half frames and unread answers of all clients together."""
    look_s: float = 5.0
    """Between two looks at all connections."""


class Listener:
    """Serves one listening socket for one broker."""

    def __init__(
        self,
        broker: Broker,
        access: Access,
        *,
        socket_path: str,
        containment: str,
        reload: Reload,
        on_drain: Callable[[], None],
        on_shutdown: Callable[[], None],
        bounds: Bounds | None = None,
        audit: Audit | None = None,
        flusher: Flusher | None = None,
    ) -> None:
        """``flusher`` is shared by all that write at the end of one callback of the loop."""
        self.access = access
        self.audit = audit
        self.bounds = bounds or Bounds()
        self.in_flight = 0
        self.connections: set[Connection] = set()
        self.leaving: set[FrameStream] = set()
        self.latest: FrameStream | None = None
        """Who sent something last."""
        self.handing_over = False
        self.service = Service(
            broker,
            socket_path=socket_path,
            containment=containment,
            connections=lambda: len(self.connections),
            reload=reload,
            on_drain=on_drain,
            on_shutdown=on_shutdown,
        )
        self._loop = asyncio.get_running_loop()
        self.flusher = flusher or Flusher(self._loop)
        self.flusher.others_wait = self._others_wait
        self.decoder = Decoder()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns: deque[FrameStream] = deque()
        self._turn_due = False
        self._looking: asyncio.TimerHandle | None = None
        self._complaints = Complaints()
        self._heap = Heap()

    async def serve(self, sock: socket.socket) -> None:
        """Begin to accept connections on ``sock``."""
        self._heap.keep()
        # Whether the file goes is the owner's decision: a service manager keeps its socket for the next daemon.
        keep: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
        self._server = await self._loop.create_unix_server(
            lambda: Connection(self), sock=sock, backlog=BACKLOG, **keep
        )
        self._looking = self._loop.call_later(self.bounds.look_s, self._look)

    def stop_accepting(self) -> None:
        """Accept no further client."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def hand_over(self) -> None:
        """Leave the clients to the next daemon on the same socket, which somebody else holds open.

        New ones wait in its backlog. Those that have nothing in flight are let go, the others after their last
        answer: when they connect again, they wait in the backlog, too.
        """
        self.stop_accepting()
        self.handing_over = True
        for connection in list(self.connections):
            connection.let_go_if_idle()

    async def serve_what_came(self, within: float = 0.1) -> None:
        """After :meth:`hand_over`: wait until nothing is unread of the clients that were let go, and those that
        have just connected have asked for something: no request that was already written shall be turned away.
        ``within`` seconds at most."""
        deadline = self._loop.time() + within
        while self._loop.time() < deadline:
            if all(connection.is_ending or not connection.is_idle for connection in self.connections):
                return
            await asyncio.sleep(HANDOVER_POLL_S)

    async def close(self, grace: float = 1.0, most: float = LAST_ANSWERS_S) -> None:
        """Stop accepting, answer what was sent up to now, close everything. Clients have ``grace`` seconds to read
        what they are owed, and again as long as they get on with it, ``most`` seconds in all."""
        self.stop_accepting()
        for connection in list(self.connections):
            connection.last_orders()
        now = self._loop.time()
        end, patience, unread = now + most, now + grace, sys.maxsize
        while self.connections and now < min(end, patience):
            gone = [connection.gone for connection in self.connections]
            await asyncio.wait(gone, timeout=grace / 4, return_when=asyncio.FIRST_COMPLETED)
            now, left = self._loop.time(), sum(connection.unread for connection in self.connections)
            if left < unread:
                unread, patience = left, now + grace
        for stream in (*self.connections, *self.leaving):
            stream.cut_off()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._looking is not None:
            self._looking.cancel()
        self.decoder.close()

    def set_access(self, access: Access) -> None:
        """Go over to other access lists. Who may not connect any more is turned away, calls and all."""
        self.access = access
        for connection in list(self.connections):
            if connection.peer is not None and not access.may_connect(connection.peer):
                connection.refuse_peer()

    # --- for connections --------------------------------------------------------------------------

    def is_active(self, stream: FrameStream | None) -> bool:
        """Whether a client asked for something just now, and may do so again."""
        return stream is not None and self._loop.time() - stream.received <= JUST_NOW_S

    def _others_wait(self) -> bool:
        # Who has nothing in flight does not wait for the one call that is.
        latest = self.latest
        return self.in_flight > 1 or (latest is not None and latest.is_idle and self.is_active(latest))

    @property
    def has_turns(self) -> bool:
        """Whether a client waits for its turn."""
        return bool(self._turns)

    def ask_turn(self, connection: FrameStream) -> None:
        """Let ``connection`` work when those before it had their turn."""
        if not connection.waits_for_turn:
            connection.waits_for_turn = True
            self._turns.append(connection)
            if not self._turn_due:
                self._turn_due = True
                self._loop.call_soon(self._take_turns)

    def _take_turns(self) -> None:
        end = time.perf_counter() + TURN_S
        for _ in range(len(self._turns)):
            connection = self._turns.popleft()
            connection.waits_for_turn = False
            connection.work()
            if time.perf_counter() > end:
                break
        self._turn_due = bool(self._turns)
        if self._turn_due:
            self._loop.call_soon(self._take_turns)

    def lets_linger(self, stream: FrameStream) -> bool:
        """Whether there is room for a ``stream`` that was told the last word and waits for the client's close."""
        if len(self.leaving) >= self.bounds.leaving:
            return False
        self.leaving.add(stream)
        return True

    def keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a request that takes its time. It counts as in flight to its end, even when its client has gone."""
        self.in_flight += 1
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._kept)
        return task

    def _kept(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.in_flight -= 1

    def relieve(self) -> None:
        """When all clients together hold too much: end those that were silent the longest, the largest first."""
        excess = sum(connection.held for connection in self.connections) - self.bounds.memory
        if excess <= 0:
            return
        # Who holds next to nothing is no part of it, however silent.
        holders = [connection for connection in self.connections if connection.held > LARGE]
        for worst in sorted(holders, key=lambda connection: (connection.silent, connection.held), reverse=True):
            held = worst.held
            worst.give_up(f"{held} bytes were held for it, and too many for all clients together")
            excess -= held
            if excess <= 0:
                break

    def complain(self, text: str) -> None:
        """Log what a client did wrong; a client cannot fill the log with it."""
        suppressed = self._complaints.admit(self._loop.time())
        if suppressed is not None:
            log.warning("%s%s", text, f" ({suppressed} messages before it were left out)" if suppressed else "")

    # --- now and then -----------------------------------------------------------------------------

    def _look(self) -> None:
        now = self._loop.time()
        for stream in {*self.connections, *self.leaving}:
            stream.look(now)
        self._heap.give_back()
        self._looking = self._loop.call_later(self.bounds.look_s, self._look)


class Complaints:
    """Lets :attr:`BURST` messages through at once, then one a second."""

    BURST: Final = 20

    def __init__(self) -> None:
        self._left = float(self.BURST)
        self._at = 0.0
        self._suppressed = 0

    def admit(self, now: float) -> int | None:
        """How many messages were left out before the one of ``now`` (seconds); None when it is left out, too."""
        self._left = min(float(self.BURST), self._left + now - self._at)
        self._at = now
        if self._left < 1:
            self._suppressed += 1
            return None
        self._left -= 1
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed


__all__ = ["Bounds", "Complaints", "Listener"]
