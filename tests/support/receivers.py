"""What tests of a transport need: a receiver that records, scratch custody, children in one line."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from treadle import procfs
from treadle.errors import Fault
from treadle.process import ChildProcess, Launch
from treadle.record import MARK, Record
from treadle.transport import KILL_NOW
from treadle.tree import Custody

_number = itertools.count()
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
WAIT_S = 10.0
"""Bound of every wait: only a failing test takes that long."""


class Recorder:
    """A receiver that keeps what it was told."""

    in_flight = 0
    others_wait = False

    def __init__(self) -> None:
        self.data = bytearray()
        self.chunks = 0
        self.writables = 0
        self.reasons: list[Fault] = []
        self._changed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        assert not self.reasons, "data after closed"
        self.data += data
        self.chunks += 1
        self._changed.set()

    def writable(self) -> None:
        self.writables += 1
        self._changed.set()

    def closed(self, reason: Fault) -> None:
        self.reasons.append(reason)
        self._changed.set()

    @property
    def reason(self) -> str:
        """The sentence of the one ``closed``."""
        (only,) = self.reasons
        return str(only)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a callback after which ``condition`` holds."""
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def line(self) -> str:
        """Take the next line of the data; fails when the channel ends without one."""
        await self.until(lambda: b"\n" in self.data or bool(self.reasons))
        assert b"\n" in self.data, self.reasons
        line, _, rest = bytes(self.data).partition(b"\n")
        self.data[:] = rest
        return line.decode()

    async def until_closed(self) -> str:
        """Wait for the end of the channel; returns its reason."""
        await self.until(lambda: bool(self.reasons))
        return self.reason


class Workshop:
    """Starts children in a scratch custody and knows them all."""

    def __init__(self, custody: Custody) -> None:
        self.custody = custody
        self.children: list[ChildProcess] = []
        self.stderr: list[str] = []

    async def run(
        self, *argv: str, redact: Callable[[str], str] = lambda text: text, **launch: object
    ) -> tuple[ChildProcess, Recorder]:
        """Run ``argv`` as a server."""
        number = next(_number)
        settings = {"env": ENVIRONMENT, "marker": f"test-{os.getpid()}-{number}"} | launch
        child = ChildProcess(
            Launch(server=f"server{number}", argv=argv, **settings),  # type: ignore[arg-type]
            custody=self.custody,
            redact=redact,
            on_stderr=self.stderr.append,
        )
        receiver = Recorder()
        await child.open(receiver)
        self.children.append(child)
        return child, receiver

    async def shell(self, script: str, **launch: object) -> tuple[ChildProcess, Recorder]:
        """Run a shell script as a server."""
        return await self.run("/bin/sh", "-c", script, **launch)  # type: ignore[arg-type]

    async def python(self, script: str, **launch: object) -> tuple[ChildProcess, Recorder]:
        """Run a Python script (isolated, without site) as a server."""
        return await self.run(sys.executable, "-I", "-S", "-c", script, **launch)  # type: ignore[arg-type]


@asynccontextmanager
async def workshop(*, record: Record | None = None, cgroup_root: Path | None = None) -> AsyncIterator[Workshop]:
    """A workshop whose children and orphans are all ended afterwards."""
    shop = Workshop(Custody(record=record, cgroup_root=cgroup_root))
    try:
        yield shop
    finally:
        await asyncio.gather(*(child.retire(KILL_NOW) for child in shop.children))
        await shop.custody.end_strangers()
        ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)  # orphans of other tests go where they went before


def alive(pid: int) -> bool:
    """Whether a process runs under that number; a zombie does not."""
    process = procfs.read(pid)
    return process is not None and process.alive


async def unmarked(pid: int) -> int:
    """Wait until the process has given up the mark that it inherited; returns its pid."""
    async with asyncio.timeout(WAIT_S):
        while procfs.variable(pid, MARK) is not None:
            await asyncio.sleep(0.005)
    return pid


async def gone(pid: int) -> None:
    """Wait until no process runs under that number."""
    async with asyncio.timeout(WAIT_S):
        while alive(pid):
            await asyncio.sleep(0.005)
