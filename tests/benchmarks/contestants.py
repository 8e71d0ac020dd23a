"""The ways to one server: raw pipe, a socket hop alone, and Treadle by its clients. Each offers the same calls.

A contestant measures itself in a process of its own (``python contestants.py NAME JOB``), so that all of them can
be pinned alike; it prints one JSON document of seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack

HERE = Path(__file__).parent
SERVER = [sys.executable, str(HERE / "fast_server.py")]
ARGUMENTS = {"text": "x" * 40}
now = time.perf_counter


def sequential(call: Callable[[], Any], count: int, warm_up: int = 200) -> list[float]:
    """The seconds of ``count`` calls, one after the other."""
    for _ in range(min(warm_up, count)):
        call()
    times = []
    for _ in range(count):
        start = now()
        call()
        times.append(now() - start)
    return times


# --- the raw pipe ----------------------------------------------------------------------------------


class RawPipe:
    """The server's own pipes and nothing else: what cannot be beaten."""

    def __init__(self) -> None:
        self.child = subprocess.Popen(SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self.child.stdin
        assert self.child.stdout
        self.stdin, self.stdout = self.child.stdin.fileno(), self.child.stdout.fileno()
        self.last = 0
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}
        self.exchange(
            json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).encode() + b"\n"
        )

    def line(self, tool: str, arguments: bytes) -> bytes:
        self.last += 1
        return (b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%b","arguments":%b}}\n') % (
            self.last,
            tool.encode(),
            arguments,
        )

    def exchange(self, line: bytes) -> bytes:
        self.write(line)
        return self.read(1)

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self.stdin, view) :]

    def read(self, lines: int) -> bytes:
        chunks, seen = [], 0
        while seen < lines:
            chunk = os.read(self.stdout, 1024 * 1024)
            seen += chunk.count(b"\n")
            chunks.append(chunk)
        return b"".join(chunks)

    def call(self, tool: str = "echo", arguments: bytes = json.dumps(ARGUMENTS).encode()) -> None:
        self.exchange(self.line(tool, arguments))

    def in_flight(self, width: int, count: int) -> float:
        """Seconds of ``count`` calls with ``width`` in flight."""
        arguments = json.dumps(ARGUMENTS).encode()
        start = now()
        self.write(b"".join(self.line("echo", arguments) for _ in range(width)))
        sent, done = width, 0
        while done < count:
            answers = self.read(1).count(b"\n")
            done += answers
            more = min(answers, count - sent)
            if more > 0:
                self.write(b"".join(self.line("echo", arguments) for _ in range(more)))
                sent += more
        return now() - start

    def close(self) -> None:
        assert self.child.stdin
        self.child.stdin.close()
        self.child.wait()


# --- the socket hop alone --------------------------------------------------------------------------


def hop_server(path: str) -> None:
    """Frames in, frames out, nothing behind: the cost of a socket hop under uvloop."""
    import uvloop

    answer = {"ok": True, "value": {"content": [{"type": "text", "text": "x" * 220}], "is_error": False}}

    class Hop(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport
            self.buffer = bytearray()

        def data_received(self, data: bytes) -> None:
            buffer = self.buffer
            buffer += data
            at, out = 0, []
            while len(buffer) - at >= 4:
                size = int.from_bytes(buffer[at : at + 4], "big")
                if len(buffer) - at - 4 < size:
                    break
                frame = msgpack.unpackb(memoryview(buffer)[at + 4 : at + 4 + size])
                body = msgpack.packb({"v": 1, "id": frame["id"], "kind": "result", "body": answer})
                out.append(struct.pack(">I", len(body)) + body)
                at += 4 + size
            del buffer[:at]
            self.transport.write(b"".join(out))

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(Hop, path)
        print("ready", flush=True)
        await server.serve_forever()

    uvloop.run(serve())


class Frames:
    """A bare frame client: one sendall, one recv, msgpack."""

    def __init__(self, path: str, *, hello: bool) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.last = 0
        if hello:
            self.ask("hello", {"proto": 1, "peer": "bench", "features": []})

    def frame(self, kind: str, body: dict[str, Any]) -> bytes:
        self.last += 1
        data = msgpack.packb({"v": 1, "id": self.last, "kind": kind, "body": body})
        return struct.pack(">I", len(data)) + data

    def ask(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        self.sock.sendall(self.frame(kind, body))
        data = self.sock.recv(65536)
        size = int.from_bytes(data[:4], "big") + 4
        if len(data) < size:
            chunks = [data]
            got = len(data)
            while got < size:
                chunk = self.sock.recv(1024 * 1024)
                got += len(chunk)
                chunks.append(chunk)
            data = b"".join(chunks)
        answer: dict[str, Any] = msgpack.unpackb(memoryview(data)[4:])
        return answer

    def call(
        self, server: str = "fast", tool: str = "echo", arguments: dict[str, Any] = ARGUMENTS
    ) -> dict[str, Any]:
        answer = self.ask("call", {"server": server, "tool": tool, "arguments": arguments})
        assert answer["body"]["ok"], answer
        return answer

    def in_flight(self, width: int, count: int, server: str = "fast") -> float:
        """Seconds of ``count`` calls with ``width`` in flight on this connection."""
        body = {"server": server, "tool": "echo", "arguments": ARGUMENTS}
        start = now()
        self.sock.sendall(b"".join(self.frame("call", body) for _ in range(width)))
        sent, done = width, 0
        buffer = bytearray()
        while done < count:
            buffer += self.sock.recv(1024 * 1024)
            at, answers = 0, 0
            while len(buffer) - at >= 4:
                size = int.from_bytes(buffer[at : at + 4], "big")
                if len(buffer) - at - 4 < size:
                    break
                answer = msgpack.unpackb(memoryview(buffer)[at + 4 : at + 4 + size])
                assert answer["body"]["ok"], answer
                at += 4 + size
                answers += 1
            del buffer[:at]
            done += answers
            more = min(answers, count - sent)
            if more > 0:
                self.sock.sendall(b"".join(self.frame("call", body) for _ in range(more)))
                sent += more
        return now() - start


def many_clients(path: str, clients: int, width: int, count: int) -> float:
    """Seconds of ``count`` calls by ``clients`` connections with ``width`` in flight each, in one thread."""
    import selectors

    connections = [Frames(path, hello=True) for _ in range(clients)]
    selector = selectors.DefaultSelector()
    body = {"server": "fast", "tool": "echo", "arguments": ARGUMENTS}
    start = now()
    buffers = {}
    for connection in connections:
        connection.sock.sendall(b"".join(connection.frame("call", body) for _ in range(width)))
        selector.register(connection.sock, selectors.EVENT_READ, connection)
        buffers[connection] = bytearray()
    sent, done = clients * width, 0
    while done < count:
        for key, _ in selector.select():
            connection = key.data
            buffer = buffers[connection]
            buffer += connection.sock.recv(1024 * 1024)
            at, answers = 0, 0
            while len(buffer) - at >= 4:
                size = int.from_bytes(buffer[at : at + 4], "big")
                if len(buffer) - at - 4 < size:
                    break
                msgpack.unpackb(memoryview(buffer)[at + 4 : at + 4 + size])
                at += 4 + size
                answers += 1
            del buffer[:at]
            done += answers
            more = min(answers, count - sent)
            if more > 0:
                connection.sock.sendall(b"".join(connection.frame("call", body) for _ in range(more)))
                sent += more
    return now() - start


async def async_in_flight(path: str, width: int, count: int) -> float:
    """Seconds of ``count`` calls with ``width`` in flight through ``AsyncClient``."""
    from treadle_client import AsyncClient

    async with AsyncClient(path) as broker:
        left = count

        async def worker() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await broker.call("fast", "echo", ARGUMENTS)

        start = now()
        await asyncio.gather(*(worker() for _ in range(width)))
        return now() - start
