"""The Unix socket: frames in, frames out, peers, admission (floor 6; socket page).

Answers that become ready in one turn of the loop leave in one write per connection. A client that does not read is
not read from; past :data:`UNREAD_LIMIT` bytes it is closed. Nothing that one connection does reaches another.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import treadle
from treadle import answers
from treadle.broker import Broker, shutdown_body
from treadle.errors import (
    Denied,
    Fault,
    InvalidArgument,
    Overloaded,
    UnknownServer,
)
from treadle.peers import Access, Peer, peer_of
from treadle.supervisor import Call
from treadle.wire.messages import CallResult, Content
from treadle_client import frames

log = logging.getLogger(__name__)

PROTOCOL: Final = 1
FEATURES: Final = ["cancel", "content", "cap_call"]
UNREAD_LIMIT: Final = 128 * 1024 * 1024
"""Bytes of answers that one client may leave unread before it is closed."""

_HIGH_WATER: Final = 1024 * 1024
_LOW_WATER: Final = 256 * 1024

Reload = Callable[[], Awaitable[dict[str, Any]]]


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
    ) -> None:
        self.broker = broker
        self.access = access
        self.reload = reload
        self.in_flight = 0
        self.connections: set[Connection] = set()
        self.handing_over = False
        self.tasks: set[asyncio.Task[None]] = set()
        self._socket_path = socket_path
        self._containment = containment
        self._on_drain = on_drain
        self._on_shutdown = on_shutdown
        self._server: asyncio.Server | None = None
        self._started = time.time()
        self._started_loop = asyncio.get_running_loop().time()

    async def serve(self, sock: socket.socket) -> None:
        """Begin to accept connections on ``sock``."""
        loop = asyncio.get_running_loop()
        # Whether the file goes is the owner's decision: a service manager keeps its socket for the next daemon.
        keep: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
        self._server = await loop.create_unix_server(lambda: Connection(self), sock=sock, **keep)

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

    async def close(self, grace: float = 1.0) -> None:
        """Stop accepting, answer what was sent up to now (``grace`` seconds at most), close everything."""
        self.stop_accepting()
        for connection in list(self.connections):
            connection.last_orders()
        deadline = asyncio.get_running_loop().time() + grace
        while self.connections and asyncio.get_running_loop().time() < deadline:
            gone = [connection.gone for connection in self.connections]
            left = deadline - asyncio.get_running_loop().time()
            await asyncio.wait(gone, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        for connection in list(self.connections):
            connection.abort()

    def status(self, server: str | None) -> dict[str, Any]:
        """The shape ``status`` of the socket page. Raises :class:`UnknownServer`."""
        broker = self.broker
        chosen = [broker.find(server)] if server is not None else list(broker.servers)
        state = "draining" if broker.draining else "starting" if broker.starting else "ready"
        return {
            "daemon": {
                "version": treadle.__version__,
                "pid": os.getpid(),
                "state": state,
                "started_at": self._started,
                "uptime_s": asyncio.get_running_loop().time() - self._started_loop,
                "socket": self._socket_path,
                "config": broker.config.file,
                "connections": len(self.connections),
                "in_flight": broker.in_flight,
                "containment": self._containment,
            },
            "servers": [supervisor.row() for supervisor in chosen],
        }

    async def shutdown(self, within_ms: int | None) -> dict[str, Any]:
        """Shut the broker down; the daemon exits once the caller has its answer."""
        self._on_drain()
        rows = await self.broker.shutdown(within_ms)
        self._on_shutdown()
        return shutdown_body(rows)


class SocketCall(Call):
    """A call that came over a connection."""

    __slots__ = ("connection", "frame_id", "kind")

    def __init__(
        self, connection: Connection, frame_id: int, kind: str, tool: str, timeout_ms: int, content: Content
    ) -> None:
        super().__init__(tool, b"", timeout_ms, content)
        self.connection = connection
        self.frame_id = frame_id
        self.kind = kind

    def deliver(self, outcome: CallResult | Fault) -> None:
        """Answer the client, if it is still there."""
        connection = self.connection
        if connection.forget(self):
            if self.kind == "cap_call":
                code = "unsupported_cap" if isinstance(outcome, UnknownServer) else None
                connection.send(answers.cap_result_frame(self.frame_id, outcome, code))
            elif isinstance(outcome, CallResult):
                connection.send(answers.result_frame(self.frame_id, outcome.to_value()))
            else:
                connection.send(answers.failure_frame(self.frame_id, outcome))


class Connection(asyncio.Protocol):
    """One client of the socket."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._broker = listener.broker
        self._reader = frames.FrameReader()
        self._greeted = False
        self._peer: Peer | None = None
        self._live: dict[int, SocketCall | asyncio.Task[None]] = {}
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._flush_due = False
        self._finishing = False
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[None] = self._loop.create_future()

    # --- the transport's side ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Check who connected before a byte of theirs is looked at."""
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=_HIGH_WATER, low=_LOW_WATER)
        listener = self._listener
        try:
            self._peer = peer_of(transport.get_extra_info("socket"))
        except OSError as error:
            self._refuse("denied", f"the peer's credentials cannot be read: {error.strerror}")
            return
        limit = self._broker.config.broker.max_connections
        if not listener.access.may_connect(self._peer):
            log.warning("refused a connection of %s", self._peer)
            self._refuse("denied", f"uid {self._peer.uid} may not use this broker (allow_users, allow_groups)")
        elif len(listener.connections) >= limit:
            log.warning("refused a connection of %s: max_connections = %d", self._peer, limit)
            self._refuse("denied", f"overloaded: max_connections = {limit} is reached")
        else:
            listener.connections.add(self)

    def _refuse(self, code: str, msg: str) -> None:
        self._finishing = True
        self._transport.write(answers.error_frame(0, code, msg))
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Take in what came; frames before a bad one are served."""
        if self._finishing:
            return
        for frame in self._reader.feed(data):
            self._take(frame)
            if self._finishing:
                return
        fault = self._reader.fault
        if fault is not None:
            log.warning("closed a connection of %s: %s: %s", self._peer, fault.code, fault.msg)
            self.send(answers.error_frame(fault.id, fault.code, fault.msg))
            self.finish()

    def eof_received(self) -> bool:
        """A half-closed client still gets the answers to what it asked."""
        if not self._live:
            self.finish()
        self._finishing = True
        return True

    def pause_writing(self) -> None:
        """The client does not read its answers: it is not read from."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The client reads again."""
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Its calls are forgotten: late answers are dropped, nothing is sent again."""
        self._finishing = True
        self._listener.connections.discard(self)
        live, self._live = self._live, {}
        for waiting in live.values():
            self._listener.in_flight -= 1
            if isinstance(waiting, SocketCall) and waiting.supervisor is not None:
                waiting.supervisor.cancel(waiting)
        if not self.gone.done():
            self.gone.set_result(None)

    # --- out --------------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        """Queue one frame; all frames of one loop turn leave in one write."""
        self._out.append(frame)
        self._out_bytes += len(frame)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        out, self._out, self._out_bytes = self._out, [], 0
        transport = self._transport
        if transport.is_closing():
            return
        transport.write(out[0] if len(out) == 1 else b"".join(out))
        unread = transport.get_write_buffer_size()
        if unread > UNREAD_LIMIT:
            log.warning("closed a connection of %s: it left %d bytes of answers unread", self._peer, unread)
            self.abort()

    def finish(self) -> None:
        """Close once what is queued has left."""
        self._finishing = True
        if self._out:
            self._flush()
        self._transport.close()

    def last_orders(self) -> None:
        """Take no byte more from the client, answer what it has sent, then close.

        The kernel refuses the client's further writes, so that it knows of every request either its answer or that
        it did not leave: nothing is lost between a write of theirs and a close of ours.
        """
        if self._finishing or self._transport.is_closing():
            self.finish()
            return
        with contextlib.suppress(OSError):
            descriptor = os.dup(self._transport.get_extra_info("socket").fileno())
            with socket.socket(fileno=descriptor) as connected:
                connected.shutdown(socket.SHUT_RD)

    def let_go_if_idle(self) -> None:
        """After the last answer: the end of a half-closed client, and of one whose next daemon waits."""
        if self._live:
            return
        if self._finishing:
            self._loop.call_soon(self.finish)
        elif self._listener.handing_over and self._greeted:
            self._loop.call_soon(self.last_orders)

    def abort(self) -> None:
        """Close now, whatever is unread."""
        self._finishing = True
        self._transport.abort()

    # --- in ------------------------------------------------------------------------------------------

    def _take(self, frame: frames.Frame) -> None:
        kind = frame.kind
        if not self._greeted:
            self._greet(frame)
        elif kind in ("call", "cap_call"):
            self._call(frame)
        elif kind == "cancel":
            live = self._live.get(frame.id)
            if isinstance(live, SocketCall) and live.supervisor is not None:
                live.supervisor.cancel(live)
        elif kind == "heartbeat":
            self.send(frames.encode(frame.id, "heartbeat", frame.body))
        elif kind == "hello":
            self.send(answers.error_frame(frame.id, "bad_hello", "hello was already said on this connection"))
            self.finish()
        elif kind in _REQUESTS:
            self._request(frame)
        else:
            known = ", ".join(sorted({"hello", "call", "cap_call", "cancel", "heartbeat", *_REQUESTS}))
            msg = f"unknown kind {kind[:40]!r}; known: {known}"
            self.send(answers.error_frame(frame.id, "unknown_kind", msg))

    def _greet(self, frame: frames.Frame) -> None:
        proto, peer = frame.body.get("proto"), frame.body.get("peer", "")
        features = frame.body.get("features", [])
        problem = None
        if frame.kind != "hello":
            problem = f"the first frame must be hello, found {frame.kind[:40]!r}"
        elif type(proto) is not int or proto != PROTOCOL:
            problem = f"hello.proto must be {PROTOCOL}"
        elif type(peer) is not str or type(features) is not list:
            problem = "hello.peer must be a string and hello.features an array"
        if problem is not None:
            self.send(answers.error_frame(frame.id, "bad_hello", problem))
            self.finish()
            return
        self._greeted = True
        config = self._broker.config.broker
        limits = {
            "max_frame_bytes": frames.MAX_FRAME,
            "max_depth": frames.MAX_DEPTH,
            "max_in_flight": config.max_in_flight_per_connection,
            "max_call_timeout_ms": config.max_call_timeout_ms,
        }
        peer_name = f"treadle/{treadle.__version__}"
        body = {"proto": PROTOCOL, "peer": peer_name, "features": FEATURES, "limits": limits}
        self.send(frames.encode(frame.id, "hello", body))

    def _admit(self, frame_id: int) -> Fault | None:
        """Why a further request may not be taken, if so."""
        config = self._broker.config.broker
        if frame_id in self._live:
            return InvalidArgument("id", f"{frame_id} is still in flight on this connection")
        if len(self._live) >= config.max_in_flight_per_connection:
            limit = config.max_in_flight_per_connection
            return Overloaded("max_in_flight_per_connection", limit, "this connection")
        if self._listener.in_flight >= config.max_in_flight:
            return Overloaded("max_in_flight", config.max_in_flight, "the daemon ([broker])")
        return None

    def _call(self, frame: frames.Frame) -> None:
        capability = frame.kind == "cap_call"
        call: SocketCall | None = None
        refusal = self._admit(frame.id)
        if refusal is None:
            try:
                server, arguments, call = self._read_cap(frame) if capability else self._read_call(frame)
            except Fault as fault:
                refusal = fault
        if refusal is not None or call is None:
            assert refusal is not None
            code = "unsupported_cap" if isinstance(refusal, UnknownServer) else None
            self.send(
                answers.cap_result_frame(frame.id, refusal, code)
                if capability
                else answers.failure_frame(frame.id, refusal)
            )
            return
        self._live[frame.id] = call
        self._listener.in_flight += 1
        self._broker.call(server, arguments, call)

    def _read_call(self, frame: frames.Frame) -> tuple[str, dict[str, Any], SocketCall]:
        body = frame.body
        server = answers.text(body, "server")
        tool = answers.text(body, "tool")
        if frame.invalid is not None:
            raise InvalidArgument(*frame.invalid)
        arguments = answers.mapping(body, "arguments")
        timeout_ms = answers.whole(body, "timeout_ms") or 0
        content = answers.content_of(body) or self._content(server)
        return server, arguments, SocketCall(self, frame.id, "call", tool, timeout_ms, content)

    def _read_cap(self, frame: frames.Frame) -> tuple[str, dict[str, Any], SocketCall]:
        body = frame.body
        cap = answers.text(body, "cap")
        args = answers.mapping(body, "args")
        deadline_ms = answers.whole(body, "deadline_ms")
        namespace, _, server = cap.partition(".")
        if namespace != "mcp":
            raise UnknownServer(cap, tuple(f"mcp.{supervisor.name}" for supervisor in self._broker.servers))
        tool = answers.text(args, "tool")
        if frame.invalid is not None:
            raise InvalidArgument(*frame.invalid)
        arguments = answers.mapping(args, "arguments")
        supervisor = self._broker.find(server)
        timeout_ms = deadline_ms or 0
        if deadline_ms is not None and supervisor.config is not None:
            timeout_ms = min(deadline_ms, supervisor.config.call_timeout_ms)
        return server, arguments, SocketCall(self, frame.id, "cap_call", tool, timeout_ms, self._content(server))

    def _content(self, server: str) -> Content:
        try:
            config = self._broker.find(server).config
        except UnknownServer:
            return "text"
        return config.content if config is not None else "text"

    def forget(self, call: SocketCall) -> bool:
        """Take a settled call off the list; False when the client has gone and nobody is to be told."""
        if self._live.pop(call.frame_id, None) is None:
            return False
        self._listener.in_flight -= 1
        self.let_go_if_idle()
        return True

    def _request(self, frame: frames.Frame) -> None:
        refusal = self._admit(frame.id)
        handler, administrative = _REQUESTS[frame.kind]
        assert self._peer is not None
        if refusal is None and administrative and not self._listener.access.may_administrate(self._peer):
            log.warning("denied %s to %s", frame.kind, self._peer)
            refusal = Denied(f"{frame.kind} needs an administrator (admin_users); you are uid {self._peer.uid}")
        if refusal is not None:
            self.send(answers.failure_frame(frame.id, refusal))
            return
        if administrative:
            log.info("%s by %s", frame.kind, self._peer)
        task = self._loop.create_task(self._answer(frame, handler(self._listener, frame.body)))
        self._live[frame.id] = task
        self._listener.in_flight += 1
        self._listener.tasks.add(task)
        task.add_done_callback(self._listener.tasks.discard)

    async def _answer(self, frame: frames.Frame, work: Awaitable[Any]) -> None:
        try:
            answer = answers.result_frame(frame.id, await work)
        except Fault as fault:
            answer = answers.failure_frame(frame.id, fault)
        except Exception as error:
            log.exception("%s failed", frame.kind)
            answer = answers.failure_frame(frame.id, _Internal(frame.kind, error))
        if self._live.pop(frame.id, None) is not None:
            self._listener.in_flight -= 1
            self.send(answer)
            self.let_go_if_idle()


class _Internal(Fault):
    """An error of our own; the log has its traceback."""

    def __init__(self, kind: str, error: Exception) -> None:
        self.what = f"{kind}: an internal error ({type(error).__name__}); the daemon's log has the details"

    def __str__(self) -> str:
        return self.what


# --- what the requests do -------------------------------------------------------------------------


async def _list(listener: Listener, body: dict[str, Any]) -> Any:
    server = answers.optional_text(body, "server")
    schemas = answers.flag(body, "schemas", True)
    if server is None:
        return listener.broker.summary()
    return listener.broker.listing(server, schemas=schemas)


async def _status(listener: Listener, body: dict[str, Any]) -> Any:
    answers.flag(body, "processes", False)
    return listener.status(answers.optional_text(body, "server"))


async def _logs(listener: Listener, body: dict[str, Any]) -> Any:
    most = answers.whole(body, "max_bytes", least=1, most=frames.MAX_FRAME) or 65536
    return listener.broker.logs(answers.text(body, "server"), most)


async def _restart(listener: Listener, body: dict[str, Any]) -> Any:
    name = answers.text(body, "server")
    done = await listener.broker.restart(name, answers.whole(body, "within_ms"), "restart")
    value = {**done.row.to_body(), "state": done.state.value}
    if done.reason is not None:
        value["reason"] = done.reason
    return value


async def _stop(listener: Listener, body: dict[str, Any]) -> Any:
    name = answers.text(body, "server")
    row = await listener.broker.stop(name, answers.whole(body, "within_ms"), "an administrator")
    return {**row.to_body(), "state": listener.broker.find(name).state.value}


async def _start(listener: Listener, body: dict[str, Any]) -> Any:
    supervisor = await listener.broker.start(answers.text(body, "server"))
    value = {"name": supervisor.name, "state": supervisor.state.value}
    if supervisor.reason is not None:
        value["reason"] = supervisor.reason
    return value


async def _reload(listener: Listener, body: dict[str, Any]) -> Any:
    return await listener.reload()


async def _shutdown(listener: Listener, body: dict[str, Any]) -> Any:
    return await listener.shutdown(answers.whole(body, "within_ms"))


_REQUESTS: Final[dict[str, tuple[Callable[[Listener, dict[str, Any]], Awaitable[Any]], bool]]] = {
    "list": (_list, False),
    "status": (_status, False),
    "logs": (_logs, False),
    "restart": (_restart, True),
    "stop": (_stop, True),
    "start": (_start, True),
    "reload": (_reload, True),
    "shutdown": (_shutdown, True),
}
"""The request kinds besides calls, and whether each needs an administrator."""
