"""The socket without a stub: a real one in the test's own loop, and clients that may be as rude as they like."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from support.household import Household
from treadle.broker import Broker
from treadle.config import ServerConfig
from treadle.listener import Bounds, Listener
from treadle.peers import Access
from treadle.socketfile import claim
from treadle_client import frames

WITHIN_S = 10.0
HELLO = {"proto": 1, "peer": "test", "features": []}


class Wire:
    """A client of the socket that sends what it is told, byte for byte, and reads frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._frames = frames.FrameReader()
        self._come: list[frames.Frame] = []
        self._ids = itertools.count(1)

    @classmethod
    async def connect(cls, path: str, *, hello: bool = True) -> Wire:
        """A connection, greeted already unless ``hello`` is False."""
        wire = cls(*await asyncio.open_unix_connection(path))
        if hello:
            answer = await wire.ask("hello", HELLO)
            assert answer.kind == "hello"
        return wire

    def send(self, kind: str, body: dict[str, Any], frame_id: int | None = None) -> int:
        """Write one frame; returns its id."""
        chosen = next(self._ids) if frame_id is None else frame_id
        self.writer.write(frames.encode(chosen, kind, body))
        return chosen

    def call(self, tool: str = "echo", server: str = "odd", frame_id: int | None = None, **keys: Any) -> int:
        """Write one call; ``keys`` are further keys of its body."""
        body = {"server": server, "tool": tool, "arguments": {"text": "hello"}, **keys}
        return self.send("call", body, frame_id)

    async def ask(self, kind: str, body: dict[str, Any], frame_id: int | None = None) -> frames.Frame:
        """Write one frame and read the next one, which must answer it."""
        chosen = self.send(kind, body, frame_id)
        answer = await self.frame()
        assert answer is not None
        assert answer.id == chosen, answer
        return answer

    async def value(self, kind: str, body: dict[str, Any]) -> Any:
        """The value of a request that must succeed."""
        answer = await self.ask(kind, body)
        assert answer.body["ok"] is True, answer
        return answer.body["value"]

    async def frame(self) -> frames.Frame | None:
        """The next frame; None at the end of the stream."""
        while not self._come:
            try:
                data = await asyncio.wait_for(self.reader.read(1 << 20), WITHIN_S)
            except ConnectionError:
                return None
            if not data:
                return None
            self._come += self._frames.feed(data)
        return self._come.pop(0)

    async def all(self) -> list[frames.Frame]:
        """Every frame up to the end of the stream."""
        found = []
        while (frame := await self.frame()) is not None:
            found.append(frame)
        return found

    async def close(self) -> None:
        """Close both directions."""
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


class Hall:
    """A listening socket and a broker of twins behind it."""

    def __init__(self, house: Household, broker: Broker, listener: Listener, path: str) -> None:
        self.house = house
        self.broker = broker
        self.listener = listener
        self.path = path
        self.reloads = 0
        self.wires: list[Wire] = []

    async def connect(self, *, hello: bool = True) -> Wire:
        """A new client. What the test does not close ends with the hall."""
        self.wires.append(await Wire.connect(self.path, hello=hello))
        return self.wires[-1]

    async def until(self, condition: Any) -> None:
        """Wait until ``condition()`` holds."""
        async with asyncio.timeout(WITHIN_S):
            while not condition():
                await asyncio.sleep(0.002)

    @property
    def row(self) -> dict[str, Any]:
        """The status row of the first server."""
        return self.broker.servers[0].row()


@asynccontextmanager
async def hall(
    tmp_path: Path,
    *servers: ServerConfig,
    plays: dict[str, Any] | None = None,
    bounds: Bounds | None = None,
    access: Access | None = None,
    settled: bool = True,
    **keys: Any,
) -> AsyncIterator[Hall]:
    """A socket in ``tmp_path`` that serves twins; ``keys`` are those of ``[broker]``."""
    house = Household()
    for name, script in (plays or {}).items():
        house.plays(name, script)
    broker = house.broker(*servers, **keys)
    if settled:
        await broker.settled()
    owned = claim(str(tmp_path / "run" / "t.sock"))

    async def reload() -> dict[str, Any]:
        made.reloads += 1
        return {"added": []}

    listener = Listener(
        broker,
        access or Access.of((), (), ()),
        socket_path=owned.path,
        containment="sweep",
        reload=reload,
        on_drain=lambda: None,
        on_shutdown=lambda: None,
        bounds=bounds,
    )
    made = Hall(house, broker, listener, owned.path)
    await listener.serve(owned.sock)
    try:
        yield made
    finally:
        for wire in made.wires:
            await wire.close()
        broker.hurry(kill=True)
        await broker.shutdown()
        await listener.close(grace=0.1)
        owned.release()


class RawClient:
    """The same, blocking, for daemons in processes of their own."""

    def __init__(self, path: str, *, hello: bool = True) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(WITHIN_S)
        self.sock.connect(path)
        self._frames = frames.FrameReader()
        self._come: list[frames.Frame] = []
        self._ids = itertools.count(1)
        if hello:
            assert self.ask("hello", HELLO).kind == "hello"

    def send(self, kind: str, body: dict[str, Any]) -> int:
        """Write one frame; returns its id."""
        chosen = next(self._ids)
        self.sock.sendall(frames.encode(chosen, kind, body))
        return chosen

    def frame(self) -> frames.Frame | None:
        """The next frame; None at the end of the stream."""
        while not self._come:
            try:
                data = self.sock.recv(1 << 20)
            except ConnectionError:
                return None
            if not data:
                return None
            self._come += self._frames.feed(data)
        return self._come.pop(0)

    def ask(self, kind: str, body: dict[str, Any]) -> frames.Frame:
        """Write one frame and read the next one."""
        self.send(kind, body)
        answer = self.frame()
        assert answer is not None
        return answer

    def close(self) -> None:
        self.sock.close()


@contextmanager
def raw(path: str, *, hello: bool = True) -> Iterator[RawClient]:
    """A blocking client, closed afterwards."""
    client = RawClient(path, hello=hello)
    try:
        yield client
    finally:
        client.close()


def descriptors(pid: int | None = None) -> int:
    """How many descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid or 'self'}/fd"))
