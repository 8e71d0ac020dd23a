"""Clients of the other brokers, as lean as our bare frame client: one send, one receive, one decode.

Each has the two calls of ``contestants.Frames``: ``call`` returns the result of one tool call, ``in_flight`` the
seconds of many with some in flight. What is not the result raises `Failed`.
"""

from __future__ import annotations

import itertools
import os
import selectors
import socket
import subprocess
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
from contestants import ARGUMENTS, now
from peers_report import Failed

Request = Callable[[str, str], bytes]
"""The bytes that call a tool of a server."""
Result = Callable[[bytes], Mapping[str, Any]]
"""The tool's result out of the bytes of an answer, or `Failed`."""
CHUNK = 1024 * 1024
decode = msgspec.json.decode
encode = msgspec.json.encode
ids = itertools.count(1)


class Caller(Protocol):
    """What a contestant's client offers."""

    def call(self, server: str = "fast", tool: str = "echo") -> Any:
        """The result of one call."""

    def in_flight(self, width: int, count: int) -> float:
        """The seconds of ``count`` calls of `echo` with ``width`` in flight."""

    def close(self) -> None:
        """Hang up."""


def call_line(name: str, **more: str) -> bytes:
    """A JSON-RPC call of a tool by the name it is advertised under, with an id of its own."""
    params = {"name": name, "arguments": ARGUMENTS, **more}
    return encode({"jsonrpc": "2.0", "id": next(ids), "method": "tools/call", "params": params}) + b"\n"


def rpc_result(data: bytes) -> Mapping[str, Any]:
    """The result in a JSON-RPC answer."""
    return checked(decode(data), "result")


def checked(answer: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The tool's result at ``key`` of an answer, unless it is an error of the broker or of the tool."""
    result = answer.get(key)
    if not isinstance(result, dict):
        error = answer.get("error") or answer
        raise Failed(error["message"] if isinstance(error, dict) and "message" in error else str(error))
    if result.get("isError"):
        raise Failed(result["content"][0]["text"])
    return result


class Documents:
    """One request and one answer a connection on a Unix socket, each a JSON document; ``end`` closes an answer."""

    def __init__(self, path: str, request: Request, result: Result, end: bytes) -> None:
        self.path, self.request, self.result, self.end = path, request, result, end

    def open(self, data: bytes) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(self.path)
        sock.sendall(data)
        return sock

    def ask(self, data: bytes) -> bytes:
        """The whole answer to one request."""
        with self.open(data) as sock:
            answer = sock.recv(65536)
            if answer.endswith(self.end):
                return answer
            chunks = [answer]
            while answer := sock.recv(CHUNK):
                chunks.append(answer)
            return b"".join(chunks) or closed()

    def call(self, server: str = "fast", tool: str = "echo") -> Mapping[str, Any]:
        return self.result(self.ask(self.request(server, tool)))

    def in_flight(self, width: int, count: int) -> float:
        selector = selectors.DefaultSelector()
        start = now()
        for _ in range(width):
            selector.register(self.open(self.request("fast", "echo")), selectors.EVENT_READ)
        left = count - width
        try:
            while selector.get_map():
                for key, _ in selector.select():
                    sock = key.fileobj
                    assert isinstance(sock, socket.socket)
                    # Small answers arrive whole.
                    self.result(sock.recv(65536) or closed())
                    selector.unregister(sock)
                    sock.close()
                    if left > 0:
                        left -= 1
                        selector.register(self.open(self.request("fast", "echo")), selectors.EVENT_READ)
            return now() - start
        finally:
            for key in list(selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
            selector.close()

    def close(self) -> None:
        pass


class Http:
    """POST on kept connections, one call at a time on each, as HTTP 1.1 has it; `in_flight` opens as many."""

    def __init__(self, port: int, path: str, request: Request, result: Result, headers: bytes = b"") -> None:
        self.port, self.request, self.result = port, request, result
        self.head = (
            b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Accept: application/json, text/event-stream\r\n" % path.encode()
        ) + headers
        self.sock = self.open()

    def open(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def whole(self, body: bytes) -> bytes:
        return self.head + b"Content-Length: %d\r\n\r\n" % len(body) + body

    def exchange(self, body: bytes) -> tuple[bytes, bytes]:
        """The head and the body of the answer."""
        self.sock.sendall(self.whole(body))
        return receive(self.sock)

    def call(self, server: str = "fast", tool: str = "echo") -> Mapping[str, Any]:
        return self.result(self.exchange(self.request(server, tool))[1])

    def in_flight(self, width: int, count: int) -> float:
        socks = [self.open() for _ in range(width)]
        selector = selectors.DefaultSelector()
        try:
            start = now()
            for sock in socks:
                selector.register(sock, selectors.EVENT_READ)
                sock.sendall(self.whole(self.request("fast", "echo")))
            sent, done = width, 0
            while done < count:
                for key, _ in selector.select():
                    sock = key.fileobj  # type: ignore[assignment]
                    self.result(receive(sock)[1])
                    done += 1
                    if sent < count:
                        sent += 1
                        sock.sendall(self.whole(self.request("fast", "echo")))
            return now() - start
        finally:
            selector.close()
            for sock in socks:
                sock.close()

    def close(self) -> None:
        self.sock.close()


def receive(sock: socket.socket) -> tuple[bytes, bytes]:
    """The head, in lower case, and the body of one HTTP answer of known length."""
    data = sock.recv(65536) or closed()
    while (at := data.find(b"\r\n\r\n")) < 0:
        data += sock.recv(65536) or closed()
    head, body = data[:at].lower(), data[at + 4 :]
    size = int(field(head, b"content-length") or 0)
    if len(body) < size:
        chunks, got = [body], len(body)
        while got < size:
            chunk = sock.recv(CHUNK) or closed()
            got += len(chunk)
            chunks.append(chunk)
        body = b"".join(chunks)
    return head, body


def field(head: bytes, name: bytes) -> bytes:
    """A field of an HTTP head in lower case, or nothing."""
    return head.partition(b"\r\n" + name + b": ")[2].partition(b"\r\n")[0]


class Lines:
    """JSON-RPC lines on a child's own pipes, many in flight."""

    def __init__(self, child: subprocess.Popen[bytes], request: Request) -> None:
        assert child.stdin
        assert child.stdout
        self.stdin, self.stdout, self.request = child.stdin.fileno(), child.stdout.fileno(), request

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self.stdin, view) :]

    def lines(self, count: int) -> bytes:
        return b"".join(self.request("fast", "echo") for _ in range(count))

    def exchange(self, line: bytes) -> bytes:
        """The line that comes after ``line``; every message of the other side is an answer."""
        self.write(line)
        chunks = [os.read(self.stdout, 65536) or closed()]
        while not chunks[-1].endswith(b"\n"):
            chunks.append(os.read(self.stdout, CHUNK) or closed())
        return b"".join(chunks)

    def call(self, server: str = "fast", tool: str = "echo") -> Mapping[str, Any]:
        return rpc_result(self.exchange(self.request(server, tool)))

    def in_flight(self, width: int, count: int) -> float:
        start = now()
        self.write(self.lines(width))
        sent, done, rest = width, 0, b""
        while done < count:
            *lines, rest = (rest + (os.read(self.stdout, CHUNK) or closed())).split(b"\n")
            for one in lines:
                rpc_result(one)
            done += len(lines)
            more = min(len(lines), count - sent)
            self.write(self.lines(more))
            sent += more
        return now() - start

    def close(self) -> None:
        pass


def closed() -> bytes:
    """Raises: the other side hung up instead of answering."""
    raise ConnectionResetError("hung up")
