"""One connection of the asyncio client, as a Protocol: many requests in flight, one write a loop turn."""

from __future__ import annotations

import asyncio
import os
import socket
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, cast

from treadle_client import _requests, paths
from treadle_client.frames import Frame, FrameReader, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from treadle_client.errors import BrokerError, Outcome

_HELLO_ID = 1
_HIGH_WATER = 1024 * 1024
_CONNECT_ATTEMPTS = 200
_CONNECT_PAUSE = 0.01


class Link(asyncio.Protocol):
    """Requests go out by :meth:`send` and settle the future that it returns: with the answering frame, or with the
    error that ended the connection."""

    def __init__(self, path: str, peer: str, sock: socket.socket) -> None:
        self.path = path
        self.loop = asyncio.get_running_loop()
        self.pid = os.getpid()
        self.lost = False
        self._sock = sock
        self._ids = count(_HELLO_ID + 1)
        self._reader = FrameReader()
        self._waiting: dict[int, asyncio.Future[Frame]] = {}
        self._out: dict[int, bytes] = {_HELLO_ID: _requests.hello(peer, _HELLO_ID)}
        self._flush_due = False
        self._room: asyncio.Future[None] | None = None  # set while the daemon does not read
        self._watch: asyncio.TimerHandle | None = None
        self._heard = False
        self._asked = False
        self._greeted = False

    # --- the transport's side ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        for frame in self._reader.feed(data):
            future = self._waiting.pop(frame.id, None)
            if future is not None:
                if not future.done():
                    future.set_result(frame)
            elif frame.kind == "hello":
                self._greeted = True
            elif frame.kind == "error" and frame.id <= _HELLO_ID:
                self._end(partial(self._refusal, frame))
                return
        if self._reader.fault is not None:
            self._end(partial(_requests.no_frames, self._reader.fault))

    def _refusal(self, frame: Frame, outcome: Outcome) -> BrokerError:
        # Who was not greeted was not listened to.
        return _requests.refusal(frame, outcome if self._greeted else "not_sent")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(partial(_requests.closed, self.path))

    def pause_writing(self) -> None:
        self._room = self.loop.create_future()

    def resume_writing(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    # --- requests ------------------------------------------------------------------------

    def is_usable(self) -> bool:
        """Whether a request may be sent: the link is this process's and this loop's, and was not closed."""
        if self.lost or self.pid != os.getpid() or self.loop is not asyncio.get_running_loop():
            return False
        if self._waiting or self._out:
            return True
        try:
            return self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    async def room(self) -> None:
        """Wait while the daemon does not read what it was sent."""
        while self._room is not None:
            await asyncio.shield(self._room)

    def send(self, request: _requests.Request) -> tuple[int, asyncio.Future[Frame]]:
        """Queue one request; all that is queued in one loop turn leaves in one write.

        Raises :class:`Denied` for what no frame can hold, and :class:`BrokerUnreachable` on a lost link.
        """
        if self.lost:
            raise _requests.closed(self.path, "not_sent")
        id_ = next(self._ids)
        self._queue(id_, _requests.encoded(id_, request))
        future = self._waiting[id_] = self.loop.create_future()
        if self._watch is None:
            self._heard, self._asked = False, False
            self._watch = self.loop.call_later(_requests.SILENCE, self._look)
        return id_, future

    def abandon(self, id: int, kind: str) -> None:  # noqa: A002
        """Nobody waits for this answer any more: take the request back, or cancel it if it is a call."""
        if self._waiting.pop(id, None) is None or self.lost:
            return
        if self._out.pop(id, None) is None and kind == "call":
            self._queue(id, encode(id, "cancel", {}))

    def close(self) -> None:
        """Close the connection; what is in flight fails."""
        self._end(partial(_requests.closed, self.path))

    def _queue(self, id: int, data: bytes) -> None:  # noqa: A002
        self._out[id] = data
        if not self._flush_due:
            self._flush_due = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self.lost:
            return
        out, self._out = self._out, {}
        for id_ in list(out):
            future = self._waiting.get(id_)
            if future is not None and future.cancelled():
                # Its task has not run yet to abandon it.
                del out[id_], self._waiting[id_]
        if out:
            self._transport.write(b"".join(out.values()))

    def _end(self, error: Callable[[Outcome], BrokerError]) -> None:
        if self.lost:
            return
        self.lost = True
        if self._watch is not None:
            self._watch.cancel()
        self.resume_writing()
        waiting, self._waiting = self._waiting, {}
        for id_, future in waiting.items():
            if not future.done():
                future.set_exception(error("not_sent" if id_ in self._out else "unknown"))
        self._out.clear()
        self._transport.abort()

    # --- signs of life -------------------------------------------------------------------

    def _look(self) -> None:
        # A timer that runs on costs less than one that every request starts and stops.
        if not self._waiting:
            self._watch = None
            return
        if self._asked and not self._heard:
            self._end(partial(_requests.hung, self.path))
            return
        self._asked = not self._heard
        if self._asked:
            self._queue(0, encode(0, "heartbeat", {}))
        self._heard = False
        self._watch = self.loop.call_later(_requests.SILENCE, self._look)


async def connect(path: str, peer: str) -> Link:
    """A link to the daemon at ``path``. Raises :class:`BrokerUnreachable`."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        await _connect(sock, path)
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(lambda: Link(path, peer, sock), sock=sock)
    except OSError as error:
        sock.close()
        raise _requests.cannot_connect(path, error) from None
    except BaseException:
        sock.close()
        raise
    return link


async def _connect(sock: socket.socket, path: str) -> None:
    # A Unix socket connects at once or, with a full backlog, not at all: there is nothing to poll for.
    for attempt in range(_CONNECT_ATTEMPTS):
        try:
            paths.connect(sock, path)
            return
        except BlockingIOError:
            if attempt == _CONNECT_ATTEMPTS - 1:
                raise
        await asyncio.sleep(_CONNECT_PAUSE)
