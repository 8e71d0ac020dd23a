"""The in-process peer: a transport whose server is an object in the same event loop (floor 2).

Everything that a client of one server does can be shown over it without an operating-system process: two
bounded byte pipes, a stderr, an end with a wait status, and a stop ladder that asks a :class:`Peer`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from treadle.errors import ChannelClosed, TransportFailed
from treadle.text import sanitise
from treadle.transport import NO_RESOURCE, Evidence, Ladder, Receiver, Rung, Transport

WINDOW: Final = 65536
"""How many bytes one pipe holds by default; the size of a Linux pipe."""

STDERR_KEPT: Final = 65536
"""How many bytes of stderr are kept."""

REASON_LINES: Final = 3
"""How many of the last lines of stderr a reason carries."""


class Peer:
    """A server in the same event loop. The defaults behave: they exit on EOF, on SIGTERM and on SIGKILL.

    All methods run on the event loop. The end is the peer's own decision: it is over only when it calls
    :meth:`Link.exit`, :meth:`Link.die` or :meth:`Link.vanish`, so that a peer can also play one that not even
    SIGKILL ends in time.
    """

    link: Link

    def opened(self, link: Link) -> None:
        """The transport was opened; ``link`` is the peer's side of it."""
        self.link = link

    def data_received(self, data: bytes) -> None:
        """A chunk that the client sent, never empty."""

    def writable(self) -> None:
        """After :meth:`Link.send` took less than it was given: more may be sent now."""

    def eof_received(self) -> None:
        """The client closed the peer's stdin; everything sent before was received."""
        self.link.exit(0)

    def terminated(self) -> None:
        """The stop ladder sent SIGTERM (and SIGCONT, so that a stopped process gets it, too)."""
        self.link.die("SIGTERM")

    def killed(self) -> None:
        """The stop ladder sent SIGKILL."""
        self.link.die("SIGKILL")


class _Pipe:
    """One direction: holds at most ``window`` bytes, delivers one chunk as it was written per loop turn.

    ``space`` is called once after a short write, when there is room again; ``ended`` once after :meth:`finish`
    and the last chunk.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        window: int,
        *,
        deliver: Callable[[bytes], None],
        space: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._window = window
        self._deliver = deliver
        self._space = space
        self._ended = ended
        self._chunks: deque[bytes] = deque()
        self._held = 0
        self._starved = False
        self._paused = False
        self._finishing = False
        self._over = False
        self._turn: asyncio.Handle | None = None

    def write(self, data: bytes | memoryview) -> int:
        if self._finishing:
            return 0
        taken = min(len(data), self._window - self._held)
        if taken:
            self._chunks.append(bytes(data[:taken]))
            self._held += taken
            self._schedule()
        self._starved = self._starved or taken < len(data)
        return taken

    def finish(self) -> None:
        self._finishing = True
        self._schedule()

    def discard(self) -> None:
        """Break the pipe: what it holds is lost and nothing is called any more."""
        self._finishing = self._over = True
        self._chunks.clear()
        if self._turn is not None:
            self._turn.cancel()

    def pause(self, paused: bool) -> None:
        self._paused = paused
        self._schedule()

    def _schedule(self) -> None:
        if self._turn is None and not self._over and not self._paused and (self._chunks or self._finishing):
            self._turn = self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        if self._paused:
            return
        if self._chunks:
            chunk = self._chunks.popleft()
            self._held -= len(chunk)
            self._schedule()
            self._deliver(chunk)
            if self._starved and not self._finishing:
                self._starved = False
                self._space()
        elif self._finishing and not self._over:
            self._over = True
            self._ended()


class Link:
    """The peer's side of a :class:`ChannelTransport`: what a process does with its descriptors and its life."""

    def __init__(self, transport: ChannelTransport) -> None:
        self._transport = transport

    def send(self, data: bytes | memoryview) -> int:
        """Write to stdout as many bytes of ``data`` as fit; returns how many. Each write arrives as one chunk."""
        return self._transport._to_client.write(data)

    def stderr(self, data: bytes) -> None:
        """Write to stderr."""
        self._transport._capture(data)

    def close_stdout(self) -> None:
        """Close stdout: the client is told that the channel ended, after the last chunk."""
        self._transport._to_client.finish()

    def close_stdin(self) -> None:
        """Close stdin: the client's next write fails, which ends the channel."""
        self._transport._break_stdin()

    def pause_reading(self) -> None:
        """Take nothing more from stdin: the window fills up, and EOF goes unnoticed."""
        self._transport._to_peer.pause(True)

    def resume_reading(self) -> None:
        """Read on after :meth:`pause_reading`."""
        self._transport._to_peer.pause(False)

    def exit(self, status: int) -> None:
        """End with an exit status (0 to 255). The first end counts."""
        self._transport._ended_by(f"the server exited with status {status}", status=status, signal=None)

    def die(self, signal: str) -> None:
        """End by the signal of this name (``"SIGKILL"``). The first end counts."""
        self._transport._ended_by(f"the server was killed by {signal}", status=None, signal=signal)

    def vanish(self, reason: str) -> None:
        """End without a wait status, as when somebody else reaped the child: the evidence is ``unknown``."""
        self._transport._ended_by(reason, status=None, signal=None)


class ChannelTransport(Transport):
    """A transport to ``peer``, an object in the running event loop.

    Like a pipe pair: each direction holds ``window`` bytes, so ``send`` takes at most what is free, and
    a chunk is delivered in a later loop turn, never inside ``open`` or ``send``. ``opening`` is awaited by
    :meth:`open` and may raise :class:`treadle.errors.TransportFailed`: then nothing was created. ``redact``
    is applied to the stderr text that leaves.

    The evidence of :meth:`retire` is :data:`treadle.transport.NO_RESOURCE` while nothing was created. Otherwise
    it is ``exited`` with the status or signal of the peer's end, ``unknown`` when the peer vanished.
    ``rung`` is the last step of the ladder before that end (``itself``: no stop was asked for), ``elapsed_ms``
    the time since the first request to stop (0 without one). A peer has no descendants: ``drained`` is True,
    by no means at all; None when it vanished.
    """

    def __init__(
        self,
        peer: Peer,
        *,
        window: int = WINDOW,
        opening: Callable[[], Awaitable[None]] | None = None,
        redact: Callable[[str], str] = str,
    ) -> None:
        self._peer = peer
        self._window = window
        self._opening = opening
        self._redact = redact
        self._opened = False
        self._abandoned = False
        self._stderr = bytearray()
        self._stderr_bytes = 0
        self._stdin_broken = False
        self._end_reason: str | None = None
        self._rung: Rung = "itself"
        self._asked_at: float | None = None
        self._term_timer: asyncio.TimerHandle | None = None
        self._kill_timer: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """Always None: there is no process."""
        return None

    async def open(self, receiver: Receiver) -> None:
        """Open the channel to the peer. Raises TransportFailed when ``opening`` does, or after :meth:`retire`."""
        if self._opening is not None:
            await self._opening()
        if self._abandoned:
            raise TransportFailed("the server was stopped before its transport was open")
        self._loop = asyncio.get_running_loop()
        self._receiver = receiver
        self._gone: asyncio.Future[Evidence] = self._loop.create_future()
        self._to_client = _Pipe(
            self._loop,
            self._window,
            deliver=receiver.data_received,
            space=self._peer.writable,
            ended=self._tell_closed,
        )
        self._to_peer = _Pipe(
            self._loop,
            self._window,
            deliver=self._peer.data_received,
            space=receiver.writable,
            ended=self._peer.eof_received,
        )
        self._opened = True
        self._loop.call_soon(self._peer.opened, Link(self))

    def send(self, data: bytes | memoryview) -> int:
        """See :meth:`treadle.transport.Transport.send`; 0 before ``open`` and after the end."""
        if not self._opened:
            return 0
        if self._stdin_broken and self._end_reason is None:
            self._end_reason = "a write to the server failed: it closed its stdin"
            self._to_client.finish()
        return self._to_peer.write(data)

    async def retire(self, ladder: Ladder) -> Evidence:
        """See :meth:`treadle.transport.Transport.retire`; the class says what the evidence means."""
        if not self._opened:
            self._abandoned = True
            return NO_RESOURCE
        if not self._gone.done():
            self._hurry(ladder)
        return await asyncio.shield(self._gone)

    def stderr_tail(self, max_bytes: int = STDERR_KEPT) -> str:
        """The newest captured stderr text, at most ``max_bytes`` of UTF-8, sanitised line by line and redacted."""
        text = self._redact(self._stderr.decode("utf-8", "replace"))
        clean = "\n".join(sanitise(line) for line in text.split("\n")).encode()
        return clean[max(0, len(clean) - max_bytes) :].decode("utf-8", "ignore")

    @property
    def stderr_bytes(self) -> int:
        """How many bytes of stderr came so far."""
        return self._stderr_bytes

    def usage(self) -> None:
        """Nothing: no process stands behind it."""

    # --- what the peer's side does -------------------------------------------------------------------------

    def _capture(self, data: bytes) -> None:
        self._stderr_bytes += len(data)
        self._stderr += data[-STDERR_KEPT:]
        del self._stderr[:-STDERR_KEPT]

    def _break_stdin(self) -> None:
        self._stdin_broken = True
        self._to_peer.discard()

    def _ended_by(self, reason: str, *, status: int | None, signal: str | None) -> None:
        if self._gone.done():
            return
        self._end_reason = reason
        for timer in (self._term_timer, self._kill_timer):
            if timer is not None:
                timer.cancel()
        known = status is not None or signal is not None
        elapsed = 0.0 if self._asked_at is None else self._loop.time() - self._asked_at
        evidence = Evidence(
            kind="exited" if known else "unknown",
            status=status,
            signal=signal,
            rung=self._rung,
            elapsed_ms=round(elapsed * 1000),
            drained=True if known else None,
        )
        self._gone.set_result(evidence)
        self._to_peer.discard()
        self._to_client.finish()

    def _tell_closed(self) -> None:
        reason = self._end_reason or "the server closed its stdout"
        said = [line for line in self.stderr_tail().split("\n") if line.strip()][-REASON_LINES:]
        self._receiver.closed(ChannelClosed(f"{reason}; stderr: {' | '.join(said)}" if said else reason))

    # --- the stop ladder -----------------------------------------------------------------------------------

    def _hurry(self, ladder: Ladder) -> None:
        now = self._loop.time()
        if self._asked_at is None:
            self._asked_at = now
            self._rung = "eof"
            self._to_peer.finish()
        term_at, kill_at = now + ladder.term_after, now + ladder.kill_after
        if self._kill_timer is not None:
            kill_at = min(kill_at, self._kill_timer.when())
            self._kill_timer.cancel()
        if self._rung != "kill":
            self._kill_timer = self._loop.call_at(kill_at, self._kill)
        if self._term_timer is not None:
            term_at = min(term_at, self._term_timer.when())
            self._term_timer.cancel()
        # With equal times the order of the two would be the heap's choice: SIGKILL alone says it all.
        if self._rung == "eof" and term_at < kill_at:
            self._term_timer = self._loop.call_at(term_at, self._terminate)

    def _terminate(self) -> None:
        self._rung = "term"
        self._peer.terminated()

    def _kill(self) -> None:
        self._rung = "kill"
        self._peer.killed()
