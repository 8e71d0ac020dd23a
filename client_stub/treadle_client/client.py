"""The blocking client."""

from __future__ import annotations

import os
import time

# The socket module proper costs more to import than everything else here together (enum, selectors); a client of
# the command line imports it for nothing.
from _socket import (
    AF_UNIX,
    MSG_NOSIGNAL,
    SO_RCVTIMEO,
    SO_SNDTIMEO,
    SOCK_STREAM,
    SOL_SOCKET,
    socket,
)
from itertools import count
from struct import Struct

from treadle_client import _requests
from treadle_client._requests import Request
from treadle_client.errors import CallTimedOut
from treadle_client.frames import FrameReader, encode
from treadle_client.paths import connect, default_socket_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal

    from treadle_client.frames import Frame
    from treadle_client.results import ToolResult

    _Maps = list[dict[str, Any]]
    _Connections = list["_Connection"]

_TIMEVAL = Struct("@ll")
_READ = 64 * 1024
_LARGEST_READ = 1024 * 1024
_HELLO_ID = 1
_MOST_IDLE = 16  # connections that are kept when as many threads were inside a request at once


class _NothingSent(Exception):
    """The connection was found closed before a byte of the request left."""


class _Connection:
    """One connection; one request at a time."""

    __slots__ = ("_hello", "_path", "_reader", "_sock", "_waits")

    def __init__(self, path: str, peer: str, patience: float | None) -> None:
        self._path = path
        self._hello = _requests.hello(peer, _HELLO_ID)  # leaves with the first request; empty then
        self._reader = FrameReader()
        self._sock = socket(AF_UNIX, SOCK_STREAM)
        # The kernel's own time-outs: a socket with a Python time-out polls before every send and receive.
        self._sock.setblocking(True)
        self._waits: dict[int, float] = {}
        try:
            wait = _requests.SILENCE if patience is None else min(patience, _requests.SILENCE)
            self._wait_at_most(SO_SNDTIMEO, wait)
            connect(self._sock, path)
        except OSError as error:
            self._sock.close()
            raise _requests.cannot_connect(path, error) from None
        except BaseException:
            self._sock.close()
            raise

    def close(self) -> None:
        self._sock.close()

    def exchange(self, id: int, data: bytes, patience: float | None) -> Frame:  # noqa: A002
        """Send one request and wait for its answer, ``patience`` seconds at the most.

        None means: while the daemon shows life. Raises :class:`_NothingSent` or a :class:`BrokerError`; the
        connection is of no more use then.
        """
        deadline = None if patience is None else time.monotonic() + patience
        if self._hello:
            data = self._hello + data
        self._send(data, deadline)
        self._hello = b""
        return self._receive(id, deadline)

    def _send(self, data: bytes, deadline: float | None) -> None:
        # A request is never longer than the room that the kernel has for it, unless it is a large one.
        if len(data) > _READ:
            self._wait_at_most(SO_SNDTIMEO, _left(deadline, "not_sent"))
        try:
            sent = self._sock.send(data, MSG_NOSIGNAL)
        except (BrokenPipeError, ConnectionResetError):
            if self._hello:
                self._raise_refusal()
            raise _NothingSent from None
        except BlockingIOError:
            _left(deadline, "not_sent")
            raise _requests.hung(self._path, "not_sent") from None
        if sent < len(data):
            self._send_rest(memoryview(data)[sent:], deadline)

    def _send_rest(self, rest: memoryview, deadline: float | None) -> None:
        # An incomplete frame is never acted on: a failure here is known to have reached no server.
        try:
            while rest:
                self._wait_at_most(SO_SNDTIMEO, _left(deadline, "not_sent"))
                rest = rest[self._sock.send(rest, MSG_NOSIGNAL) :]
        except BlockingIOError:
            _left(deadline, "not_sent")
            raise _requests.hung(self._path, "not_sent") from None
        except OSError:
            self._raise_refusal()
            raise _requests.closed(self._path, "not_sent") from None

    def _raise_refusal(self) -> None:
        """Raise what the daemon said before it closed the connection, if it said anything."""
        try:
            frames = self._reader.feed(self._sock.recv(_READ))
        except OSError:
            return
        for frame in frames:
            if frame.kind == "error":
                raise _requests.refusal(frame)

    def _receive(self, id: int, deadline: float | None) -> Frame:  # noqa: A002
        asked = False
        reader = self._reader
        while True:
            wait = _left(deadline, "unknown")
            self._wait_at_most(SO_RCVTIMEO, wait)
            try:
                data = self._sock.recv(max(_READ, min(reader.missing, _LARGEST_READ)))
            except BlockingIOError:
                if wait == _requests.SILENCE:
                    if asked:
                        raise _requests.hung(self._path) from None
                    asked = True
                    self._ask()
                continue
            except OSError:
                data = b""
            if not data:
                raise _requests.closed(self._path, "unknown")
            asked = False
            for frame in reader.feed(data):
                if frame.id == id or (frame.kind == "error" and frame.id <= _HELLO_ID):
                    return frame
            if reader.fault is not None:
                raise _requests.no_frames(reader.fault)

    def _ask(self) -> None:
        """Ask for a sign of life; what comes back is no answer to the request, but it comes."""
        try:
            self._sock.send(encode(0, "heartbeat", {}), MSG_NOSIGNAL)
        except OSError:
            raise _requests.closed(self._path, "unknown") from None

    def _wait_at_most(self, option: int, seconds: float) -> None:
        if self._waits.get(option) != seconds:
            self._waits[option] = seconds
            # Zero would mean no time-out at all.
            whole, micro = divmod(max(1, round(seconds * 1_000_000)), 1_000_000)
            self._sock.setsockopt(SOL_SOCKET, option, _TIMEVAL.pack(whole, micro))


def _left(deadline: float | None, outcome: Literal["not_sent", "unknown"]) -> float:
    """The seconds that one step may block. Raises :class:`CallTimedOut` past the deadline."""
    if deadline is None:
        return _requests.SILENCE
    left = deadline - time.monotonic()
    if left <= 0:
        raise CallTimedOut("client_timeout", "gave up waiting for the daemon's answer", outcome)
    return min(left, _requests.SILENCE)


class Client:
    """A blocking client of the broker. Thread-safe and fork-safe; connects when it is first used.

    ``socket`` is the path of the daemon's socket; without it :func:`treadle_client.default_socket_path` decides.
    ``peer`` is the name that the daemon's log knows this client by.

    ``timeout`` limits every request, in seconds. None, the default, leaves it to the daemon, which settles every
    call by its own deadline; the client then waits as long as the daemon shows life: after 15 s without a byte it
    sends a heartbeat, and after 15 s more it raises :class:`BrokerUnreachable`. A daemon that dies is noticed at
    once.

    Each thread that is inside a request has a connection to itself; idle ones are kept and shared. A daemon that
    was restarted is connected to again by the next request. A request that may have been sent is never repeated.
    After a fork the child makes its own connections.

        >>> with Client() as broker:
        ...     print(broker.call("demo", "add", {"a": 1, "b": 2}).text)
        3
    """

    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        *,
        timeout: float | None = None,
        peer: str = "treadle-client",
    ) -> None:
        self.path = default_socket_path(os.environ, os.getuid()) if socket is None else os.fspath(socket)
        if timeout is not None:
            _requests.require_number(timeout, "timeout")
        self.timeout = timeout
        self.peer = peer
        self._ids = count(_HELLO_ID + 1)
        self._idle: _Connections = []
        self._pid = os.getpid()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections. A later request connects again.

        >>> broker.close()
        """
        idle, self._idle = self._idle, []
        _close_all(idle)

    def call(
        self,
        server: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        content: Literal["text", "all"] | None = None,
        check: bool = False,
    ) -> ToolResult:
        """Call one tool of an MCP server.

        ``arguments`` are JSON values in a dict. ``timeout`` in seconds replaces the server's own call time-out (up
        to the daemon's ``max_call_timeout_ms``); the client waits 5 s longer for the daemon to say so. ``content``
        asks for ``"text"`` or ``"all"`` blocks, by default as the server is configured. A result with ``is_error``
        is returned like any other, unless ``check`` asks for :class:`ToolFailed`.

        Raises the subclasses of :class:`BrokerError`.

            >>> broker.call("demo", "echo", {"text": "hello"}, timeout=10).text
            'hello'
        """
        result: ToolResult = self._request(_requests.call(server, tool, arguments, timeout, content, check))
        return result

    def list(self, server: str | None = None, schemas: bool = True) -> _Maps:
        """The servers (``name``, ``state``, ``tools``: how many, ...), or the tools of one ``server``.

        A tool has ``name``, ``input_schema`` and where given ``title``, ``description``, ``output_schema`` and
        ``annotations``; without ``schemas`` the schemas are left out. A server that is not ready raises
        :class:`ServerUnavailable`.

            >>> [(server["name"], server["state"]) for server in broker.list()]
            [('demo', 'ready'), ('broken', 'retired')]
            >>> [tool["name"] for tool in broker.list("demo")]
            ['add', 'echo']
        """
        rows: _Maps = self._request(_requests.listing(server, schemas))
        return rows

    def status(self, server: str | None = None, processes: bool = False) -> dict[str, Any]:
        """The state of the daemon and its servers, or of one: the shape ``status`` of the socket page.

        >>> broker.status()["daemon"]["state"]
        'ready'
        """
        status: dict[str, Any] = self._request(_requests.status(server, processes))
        return status

    def logs(self, server: str, max_bytes: int | None = None) -> str:
        """What a server wrote to its standard error last, ``max_bytes`` at the most.

        >>> broker.logs("demo")
        'demo: ready'
        """
        tail: str = self._request(_requests.logs(server, max_bytes))
        return tail

    def generate(self, server: str, target: Literal["gleam", "python", "typescript"]) -> dict[str, Any]:
        """A typed module for the tools of a server: ``module_name``, ``source`` and ``surface``.

        >>> broker.generate("demo", "python")["module_name"]
        'demo'
        """
        module: dict[str, Any] = self._request(_requests.generate(server, target))
        return module

    def restart(self, server: str, within: float | None = None) -> dict[str, Any]:
        """Retire a server and start it anew: the retirement evidence of the old one, the state of the new one.

        ``within`` seconds are what the retirement may take. For administrators.

            >>> broker.restart("demo")["state"]
            'ready'
        """
        done: dict[str, Any] = self._request(_requests.manage("restart", server, within))
        return done

    def stop(self, server: str, within: float | None = None) -> dict[str, Any]:
        """Retire a server within ``within`` seconds and leave it so: its retirement evidence. For administrators.

        >>> broker.stop("demo")["state"]
        'retired'
        """
        done: dict[str, Any] = self._request(_requests.manage("stop", server, within))
        return done

    def start(self, server: str) -> dict[str, Any]:
        """Start a server that is stopped or parked: its state. For administrators.

        >>> broker.start("demo")["state"]
        'ready'
        """
        done: dict[str, Any] = self._request(_requests.manage("start", server))
        return done

    def reload(self) -> dict[str, Any]:
        """Read the configuration again: what was added, removed, changed and left alone. For administrators.

        >>> broker.reload()["added"]
        []
        """
        done: dict[str, Any] = self._request(_requests.manage("reload"))
        return done

    def shutdown(self, within: float | None = None) -> dict[str, Any]:
        """Retire all servers within ``within`` seconds each and end the daemon: one row of evidence per server.

        For administrators.

            >>> broker.shutdown()["confirmed"]
            True
        """
        done: dict[str, Any] = self._request(_requests.manage("shutdown", within=within))
        return done

    def ping(self) -> float:
        """Ask the daemon for a sign of life: the seconds that it took.

        >>> broker.ping() < 5
        True
        """
        start = time.perf_counter()
        self._request(_requests.heartbeat())
        return time.perf_counter() - start

    def _request(self, request: Request) -> Any:
        patience = request.patience
        if self.timeout is not None:
            patience = self.timeout if patience is None else min(patience, self.timeout)
        if self._pid != os.getpid():
            # After a fork: the parent goes on to use these connections; closing our copies does not end them.
            self._pid = os.getpid()
            self.close()
        id_ = next(self._ids)
        data = _requests.encoded(id_, request)
        idle = self._idle
        connection, frame = self._exchange(idle, id_, data, patience)
        if frame.kind == "error" or len(idle) >= _MOST_IDLE:
            connection.close()
        else:
            idle.append(connection)
            if idle is not self._idle:  # the client was closed meanwhile
                _close_all(idle)
        return _requests.value_of(frame, request)

    def _exchange(
        self,
        idle: _Connections,
        id: int,  # noqa: A002
        data: bytes,
        patience: float | None,
    ) -> tuple[_Connection, Frame]:
        while True:
            try:
                connection, fresh = idle.pop(), False
            except IndexError:
                connection, fresh = _Connection(self.path, self.peer, patience), True
            try:
                return connection, connection.exchange(id, data, patience)
            except _NothingSent:
                connection.close()
                if fresh:
                    raise _requests.closed(self.path, "not_sent") from None
            except BaseException:
                connection.close()
                raise


def _close_all(connections: _Connections) -> None:
    while connections:
        connections.pop().close()
