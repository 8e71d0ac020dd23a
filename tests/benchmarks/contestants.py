"""The ways to one server: raw pipe, a socket hop alone, and Treadle by its clients. Each offers the same calls.

A contestant measures itself in a process of its own (``python contestants.py NAME JOB``), so that all of them can
be pinned alike; it prints one JSON document of seconds.
"""

from __future__ import annotations

import asyncio
import functools
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
READ = 1024 * 1024
LF = ord("\n")
ID_AT = len(b'{"jsonrpc":"2.0","id":')
PREFIX = struct.Struct(">I")
HEAD = b"\x84\xa1v\x01\xa2id\xce"  # a u32 follows
OK, FAILED = b"\xa4body\x82\xa2ok\xc3", b"\xa4body\x82\xa2ok\xc2"
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
        self.buffer = bytearray(READ)
        self.view = memoryview(self.buffer)
        self.waiting: set[int] = set()
        self.last = 0
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}
        self.exchange(
            json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).encode() + b"\n"
        )

    def line(self, tool: str, arguments: bytes) -> bytes:
        self.last += 1
        self.waiting.add(self.last)
        return (b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%b","arguments":%b}}\n') % (
            self.last,
            tool.encode(),
            arguments,
        )

    def exchange(self, line: bytes) -> bytes:
        self.write(line)
        chunks = []
        while True:
            size = self.read()
            chunks.append(bytes(self.view[:size]))
            if self.buffer[size - 1] == LF:
                return b"".join(chunks)

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self.stdin, view) :]

    def read(self) -> int:
        """What is there, into a buffer that is reused; how many bytes."""
        return os.readv(self.stdout, [self.buffer])

    def call(self, tool: str = "echo", arguments: bytes = json.dumps(ARGUMENTS).encode()) -> None:
        self.waiting.clear()
        self.exchange(self.line(tool, arguments))

    def in_flight(self, width: int, count: int) -> float:
        """Seconds of ``count`` calls with ``width`` in flight."""
        arguments = json.dumps(ARGUMENTS).encode()
        start = now()
        self.write(b"".join(self.line("echo", arguments) for _ in range(width)))
        sent, done = width, 0
        rest = b""
        while done < count:
            *lines, rest = (rest + os.read(self.stdout, 65536)).split(b"\n")
            for line in lines:
                self.waiting.remove(int(line[ID_AT : line.index(b",", ID_AT)]))
            answers = len(lines)
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

    def answer_of(text: str) -> dict[str, Any]:
        return {"ok": True, "value": {"content": [{"type": "text", "text": text}], "is_error": False}}

    big = {f"big_{size}": answer_of("y" * (size * READ)) for size in (1, 10)}
    small = answer_of("x" * 220)

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
                answer = big.get(frame["body"].get("tool"), small)
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
    """A bare frame client: one sendall, one recv. As with the raw pipe, what it gets is the bytes of each message,
    and with many in flight which request that answers: what is measured is the way, not what a client makes of
    it."""

    def __init__(self, path: str, *, hello: bool) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.buffer = bytearray(READ)
        self.view = memoryview(self.buffer)
        self.rest = b""
        self.waiting: set[int] = set()
        self.last = 1_000_000  # so that each id is written with four bytes
        if hello:
            self.exchange(self.frame("hello", {"proto": 1, "peer": "bench", "features": []}))

    def frame(self, kind: str, body: dict[str, Any]) -> bytes:
        return self.numbered(parts(kind, body))

    def numbered(self, around: tuple[bytes, bytes]) -> bytes:
        """A frame with the next id; ``around`` is what stands before and after its four bytes."""
        self.last += 1
        self.waiting.add(self.last)
        return b"%b%b%b" % (around[0], self.last.to_bytes(4, "big"), around[1])

    def exchange(self, frame: bytes) -> bytes:
        """Send one frame and wait for the next one: its payload."""
        self.waiting.clear()
        self.sock.sendall(frame)
        got = self.sock.recv_into(self.buffer)
        missing = PREFIX.unpack_from(self.buffer)[0] + 4 - got
        chunks = [bytes(self.view[4:got])]
        while missing > 0:
            got = self.sock.recv_into(self.buffer)
            chunks.append(bytes(self.view[:got]))
            missing -= got
        return b"".join(chunks)

    def call(self, server: str = "fast", tool: str = "echo", arguments: dict[str, Any] = ARGUMENTS) -> bytes:
        payload = self.exchange(
            self.numbered(echo(server, tool))
            if arguments is ARGUMENTS
            else self.frame("call", {"server": server, "tool": tool, "arguments": arguments})
        )
        assert OK in payload[:64], payload[:200]
        return payload

    def more(self, count: int, server: str = "fast") -> None:
        """Send ``count`` calls."""
        around = echo(server, "echo")
        self.sock.sendall(b"".join([self.numbered(around) for _ in range(count)]))

    def answers(self) -> int:
        """Read what is there; how many answers it completes."""
        data = self.rest + self.sock.recv(65536)
        end, at, found = len(data), 0, 0
        while end - at >= 4:
            after = at + 4 + PREFIX.unpack_from(data, at)[0]
            if after > end:
                break
            answer = data[at + 4 : after]
            self.waiting.remove(PREFIX.unpack_from(answer, len(HEAD))[0])
            found += 1
            at = after
        assert FAILED not in data, data[:200]
        self.rest = data[at:]
        return found

    def in_flight(self, width: int, count: int, server: str = "fast") -> float:
        """Seconds of ``count`` calls with ``width`` in flight on this connection."""
        start = now()
        self.more(width, server)
        sent, done = width, 0
        while done < count:
            answers = self.answers()
            done += answers
            more = min(answers, count - sent)
            if more > 0:
                self.more(more, server)
                sent += more
        return now() - start


def parts(kind: str, body: dict[str, Any]) -> tuple[bytes, bytes]:
    """What stands in a frame before and after the four bytes of an id."""
    tail = b"\xa4kind" + msgpack.packb(kind) + b"\xa4body" + msgpack.packb(body)
    return PREFIX.pack(len(HEAD) + 4 + len(tail)) + HEAD, tail


@functools.cache
def echo(server: str, tool: str) -> tuple[bytes, bytes]:
    """The frame of the usual call."""
    return parts("call", {"server": server, "tool": tool, "arguments": ARGUMENTS})


def many_clients(path: str, clients: int, width: int, count: int) -> float:
    """Seconds of ``count`` calls by ``clients`` connections with ``width`` in flight each, in one thread."""
    import selectors

    connections = [Frames(path, hello=True) for _ in range(clients)]
    selector = selectors.DefaultSelector()
    start = now()
    for connection in connections:
        connection.more(width)
        selector.register(connection.sock, selectors.EVENT_READ, connection)
    sent, done = clients * width, 0
    while done < count:
        for key, _ in selector.select():
            connection = key.data
            answers = connection.answers()
            done += answers
            more = min(answers, count - sent)
            if more > 0:
                connection.more(more)
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
