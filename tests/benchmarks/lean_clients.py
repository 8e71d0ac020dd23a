"""Clients of the other brokers, as lean as our bare frame client: one send, one receive, nothing decoded.

Each has the calls of ``contestants.Frames``: ``call`` returns the bytes of an answer, ``in_flight`` the seconds
of many calls with some of them in flight. What is not a result raises `Failed`.
"""

from __future__ import annotations

import functools
import itertools
import os
import selectors
import socket
import subprocess
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from contestants import ARGUMENTS, now
from peers_report import Failed

Request = Callable[[str, str], bytes]
"""The bytes that call a tool of a server."""
CHUNK = 1024 * 1024
encode = msgspec.json.encode
ids = itertools.count(1)


class Caller(Protocol):
    """What a contestant's client offers."""

    def call(self, server: str = "fast", tool: str = "echo") -> Any:
        """The answer to one call, as it came."""

    def in_flight(self, width: int, count: int) -> float:
        """The seconds of ``count`` calls of `echo` with ``width`` in flight."""

    def close(self) -> None:
        """Hang up."""


def call_line(name: str, profile: str = "") -> bytes:
    """A JSON-RPC call of a tool by the name it is advertised under, with an id of its own."""
    before, after = around(name, profile)
    return b"%b%d%b" % (before, next(ids), after)


@functools.cache
def around(name: str, profile: str) -> tuple[bytes, bytes]:
    """What stands in a call before and after its id."""
    params = {"name": name, "arguments": ARGUMENTS} | ({"profile": profile} if profile else {})
    return b'{"jsonrpc":"2.0","id":', b',"method":"tools/call","params":%b}\n' % encode(params)


def passed(answer: bytes) -> bytes:
    """``answer``, which is decoded only if it does not look like a result at both ends; `Failed` if it is none."""
    if b'"result":' not in answer[:100] or b'"isError":true' in answer[-200:].replace(b" ", b""):
        text_in(answer)
    return answer


def text_in(answer: bytes) -> str:
    """The text of the tool's result in a JSON answer; `Failed` for an error of the broker or of the tool."""
    try:
        decoded = msgspec.json.decode(answer)
    except msgspec.DecodeError as error:
        raise Failed("no JSON") from error
    result = decoded.get("result")
    if not isinstance(result, dict):
        said = decoded.get("error") or decoded
        raise Failed(said["message"] if isinstance(said, dict) and "message" in said else str(said))
    text = result["content"][0]["text"]
    if result.get("isError"):
        raise Failed(text)
    return str(text)


class Documents:
    """One request and one answer a connection on a Unix socket, each a JSON document; ``end`` closes an answer."""

    def __init__(self, path: str, request: Request, end: bytes) -> None:
        self.path, self.request, self.end = path, request, end

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

    def call(self, server: str = "fast", tool: str = "echo") -> bytes:
        return passed(self.ask(self.request(server, tool)))

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
                    passed(sock.recv(65536) or closed())
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

    def __init__(self, port: int, path: str, request: Request, headers: bytes = b"") -> None:
        self.port, self.request = port, request
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

    def call(self, server: str = "fast", tool: str = "echo") -> bytes:
        return passed(self.exchange(self.request(server, tool))[1])

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
                    passed(receive(sock)[1])
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
        self.waiting: set[int] = set()

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self.stdin, view) :]

    def lines(self, count: int) -> bytes:
        """Calls, each remembered until its answer is there."""
        lines = [self.request("fast", "echo") for _ in range(count)]
        self.waiting.update(map(number_in, lines))
        return b"".join(lines)

    def exchange(self, line: bytes) -> bytes:
        """The line that comes after ``line``; every message of the other side is an answer."""
        self.write(line)
        chunks = [os.read(self.stdout, 65536) or closed()]
        while not chunks[-1].endswith(b"\n"):
            chunks.append(os.read(self.stdout, CHUNK) or closed())
        return b"".join(chunks)

    def call(self, server: str = "fast", tool: str = "echo") -> bytes:
        self.waiting.clear()
        return passed(self.exchange(self.request(server, tool)))

    def in_flight(self, width: int, count: int) -> float:
        start = now()
        self.write(self.lines(width))
        sent, done, rest = width, 0, b""
        while done < count:
            *lines, rest = (rest + (os.read(self.stdout, CHUNK) or closed())).split(b"\n")
            for one in lines:
                self.waiting.remove(number_in(passed(one)))
            done += len(lines)
            more = min(len(lines), count - sent)
            self.write(self.lines(more))
            sent += more
        return now() - start

    def close(self) -> None:
        pass


def number_in(line: bytes) -> int:
    """The id of a JSON-RPC line that has it before everything large."""
    at = line.index(b'"id":') + 5
    return int(line[at : line.index(b",", at)])


def closed() -> bytes:
    """Raises: the other side hung up instead of answering."""
    raise ConnectionResetError("hung up")
