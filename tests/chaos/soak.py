"""A long run against a real daemon: memory and descriptors must stay flat (not part of the test suite).

    python tests/chaos/soak.py --calls 100000

Some clients pipeline calls without a pause; beside them others connect and go away in the middle of a call, cancel
what they asked, leave answers unread, and send garbage. After each tenth of the calls the daemon's memory and
descriptors are taken down. Ends with 1 when they grow past the first tenth, or when a call is lost.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import itertools
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.daemon import DEMO, Daemon, toml
from support.wire import Wire, descriptors

CLIENTS = 8
IN_FLIGHT = 8
MEMORY_GROWTH = 1.10
"""What the daemon may need at the end, times what it needed after the first tenth."""


@dataclass
class Sample:
    """The daemon at one moment."""

    calls: int
    seconds: float
    rss_kib: int
    descriptors: int
    threads: int

    def __str__(self) -> str:
        return (
            f"{self.calls:>8} calls {self.seconds:>7.1f} s   {self.rss_kib / 1024:>7.1f} MiB"
            f"   {self.descriptors:>4} descriptors   {self.threads:>2} threads"
        )


class Soak:
    """One run of ``calls`` calls against ``daemon``."""

    def __init__(self, daemon: Daemon, calls: int) -> None:
        self._daemon = daemon
        self._numbers = iter(range(calls))
        self._random = random.Random(1)
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.done = 0
        self.rude = 0

    def sample(self, began: float) -> Sample:
        lines = Path(f"/proc/{self._daemon.pid}/status").read_text().splitlines()
        status = {
            key: value.split()[0] for key, _, value in (line.partition(":") for line in lines) if value.split()
        }
        seconds = time.monotonic() - began
        rss, threads = int(status["VmRSS"]), int(status["Threads"])
        return Sample(self.done, seconds, rss, descriptors(self._daemon.pid), threads)

    async def caller(self) -> None:
        """Keep :data:`IN_FLIGHT` calls in flight until there are no more to make."""
        wire = await Wire.connect(self._daemon.socket)
        expected: dict[int, str] = {}
        for number in self._numbers:
            text = f"call {number} " + "x" * self._random.choice((0, 100, 5000))
            expected[wire.call("echo", "demo", arguments={"text": text})] = text
            while len(expected) >= IN_FLIGHT:
                await self._answer(wire, expected)
        while expected:
            await self._answer(wire, expected)
        await wire.close()

    async def _answer(self, wire: Wire, expected: dict[int, str]) -> None:
        answer = await wire.frame()
        assert answer is not None, self._daemon.log()
        text = expected.pop(answer.id)
        body = answer.body
        good = body["ok"] and body["value"]["content"] == [{"type": "text", "text": text}]
        self.outcomes["good" if good else body.get("error", {}).get("code", "WRONG")] += 1
        self.done += 1

    async def rudeness(self) -> None:
        """Clients that misbehave, one after the other, until cancelled."""
        for turn in itertools.count():
            wire = await Wire.connect(self._daemon.socket)
            try:
                await self._be_rude(wire, turn % 5)
            finally:
                wire.writer.transport.abort()
            self.rude += 1
            await asyncio.sleep(0.01)

    async def _be_rude(self, wire: Wire, how: int) -> None:
        match how:
            case 0:
                wire.call("slow", "demo", arguments={"seconds": 0.2})
            case 1:
                for number in range(100, 108):
                    wire.call("slow", "demo", number, arguments={"seconds": 0.05})
                    wire.send("cancel", {}, number)
            case 2:
                wire.writer.write(b"\0\1\0\0 half a frame")
            case 3:
                wire.writer.write(b"garbage of no known kind")
                await wire.all()
            case _:
                for _ in range(200):
                    wire.send("status", {})
        await wire.writer.drain()

    async def run(self, calls: int) -> list[Sample]:
        """Make all calls; a sample after each tenth."""
        began = time.monotonic()
        samples: list[Sample] = []
        rude = asyncio.create_task(self.rudeness())
        callers = [asyncio.create_task(self.caller()) for _ in range(CLIENTS)]
        while len(samples) < 10:
            await asyncio.sleep(0.05)
            for task in (*callers, rude):
                if task.done() and not task.cancelled() and task.exception() is not None:
                    await task
            if self.done >= calls * (len(samples) + 1) // 10:
                samples.append(self.sample(began))
                print(samples[-1], flush=True)
        await asyncio.gather(*callers)
        rude.cancel()
        await asyncio.gather(rude, return_exceptions=True)
        # What the last clients left is gone in a moment.
        await asyncio.sleep(1.0)
        samples.append(self.sample(began))
        print(samples[-1], flush=True)
        return samples


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100_000)
    calls = parser.parse_args().calls
    with tempfile.TemporaryDirectory(prefix="treadle-soak-") as folder:
        servers = {"demo": {"command": list(DEMO), "max_in_flight": 512}}
        with Daemon(Path(folder), toml(servers)) as daemon:
            daemon.wait_ready()
            before = descriptors(daemon.pid)
            soak = Soak(daemon, calls)
            samples = asyncio.run(soak.run(calls))
            log_bytes = len(daemon.log())
        leftovers = daemon.leftovers()
    first, last = samples[0], samples[-1]
    growth = last.rss_kib / first.rss_kib
    print(f"{dict(soak.outcomes)}; {soak.rude} rude clients; {log_bytes} bytes of log")
    print(f"memory {growth:.3f} times that after the first tenth")
    print(f"descriptors {before} before, {last.descriptors} after")
    problems = []
    if soak.outcomes["good"] != calls:
        problems.append("calls were lost, refused or mixed up")
    if growth > MEMORY_GROWTH:
        problems.append(f"the memory grew past {MEMORY_GROWTH} times")
    if last.descriptors != before:
        problems.append("descriptors were left open")
    if leftovers:
        problems.append(f"processes were left: {leftovers}")
    print("; ".join(problems) or "flat")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
