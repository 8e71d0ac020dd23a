"""Measures Treadle beside other brokers: mcporter, mcp-hub, a FastMCP proxy and mcp-broker, in one run.

    python tests/benchmarks/peers.py [--json FILE] [--rounds N] [--cpu N]

`make bench-peers` installs them under build/bench. One that is not installed or does not start is left out. All
call the same server, pinned to one processor, in turns with the raw pipe: every ratio is to what that took at the
same time. What fails is shown with its reason and never with a number.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Protocol

from bench import ROOT, p
from contestants import HERE, Frames, RawPipe, now, sequential
from gateways import BENCH, GATEWAYS, Gateway
from lean_clients import Caller
from peers_report import MEASURES, Failed, reason, table

STEP_SECONDS = 90
"""What takes longer has failed."""
SDK_PYTHON = BENCH / "sdk" / "bin" / "python"

Figures = dict[str, float | str]


class Contestant(Protocol):
    """One row of the table."""

    name: str

    def measure(self, raw: RawPipe) -> Figures:
        """The figures of one round, each with that of ``raw`` at the same time."""


def say(text: str) -> None:
    """Tell whoever waits."""
    print(f"# {text}", file=sys.stderr, flush=True)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """A `TimeoutError` out of whatever blocks for longer."""

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def attempt(figures: Figures, step: Callable[[], Figures], *keys: str) -> None:
    """Add what ``step`` measures, or the reason why it could not under each of ``keys``."""
    try:
        with limited(STEP_SECONDS):
            figures |= step()
    except Exception as error:  # whatever a peer does wrong is a result, not the end of the run
        figures |= dict.fromkeys(keys, reason(error))


def settle(call_seconds: float) -> None:
    """Let a broker finish what it does after its answers, before the raw pipe has its turn on the same processor.

    mcp-broker works on for some 100 ms, ten times as long as a call takes.
    """
    time.sleep(min(0.25, 20 * call_seconds))


# --- what is measured ------------------------------------------------------------------------------


def latency(call: Callable[[], object], raw: RawPipe) -> Figures:
    """p50 and p99 of calls in sequence, once they are warm, in turns with the raw pipe: noise meets both."""
    begin, calls = now(), 0
    while calls < 1000 and now() - begin < 1.5:
        call()
        calls += 1
    took = (now() - begin) / calls
    size = max(20, min(200, int(0.2 / took)))
    own: list[float] = []
    base: list[float] = []
    for _ in range(10):
        settle(took)
        base += sequential(raw.call, 200, 20)
        own += sequential(call, size, 20)
    return {
        "p50": p(own, 50), "p99": p(own, 99),
        "raw_p50": p(base, 50), "raw_p99": p(base, 99),
    }  # fmt: skip


def rate(in_flight: Callable[[int, int], float], raw: RawPipe) -> Figures:
    """Calls a second with 64 in flight, over some two seconds, in turns with the raw pipe."""
    size = max(128, min(2500, int(0.5 * 256 / in_flight(64, 256))))
    own = base = 0.0
    for _ in range(4):
        settle(1)
        base += raw.in_flight(64, 5000)
        own += in_flight(64, size)
    return {"rate": 4 * size / own, "raw_rate": 4 * 5000 / base}


def large(call: Callable[[str], object], size: int, raw: RawPipe) -> Figures:
    """The seconds of a result of ``size`` MiB: the median of up to nine, in turns of three after one uncounted."""
    tool = f"big_{size}"
    begin = now()
    call(tool)
    took = now() - begin
    own: list[float] = []
    base: list[float] = []
    while len(own) < 9 and sum(own) < 4:
        settle(took)
        base += sequential(partial(raw.call, tool), 3, 1)
        own += sequential(partial(call, tool), 3, 1)
    return {f"mib_{size}": statistics.median(own), f"raw_mib_{size}": statistics.median(base)}


def one_shot(words: list[str], environ: Mapping[str, str]) -> Figures:
    """The seconds of one command line, in turns with a Python that does nothing."""
    own: list[float] = []
    base: list[float] = []
    for _ in range(5):
        base.append(command([sys.executable, "-c", "pass"], environ))
        own.append(command(words, environ))
    return {"one_shot": statistics.median(own), "python_one_shot": statistics.median(base)}


def command(words: list[str], environ: Mapping[str, str]) -> float:
    """The seconds of one command line; `Failed` when it does not exit with 0."""
    start = now()
    done = subprocess.run(words, env=environ, capture_output=True, stdin=subprocess.DEVNULL)
    took = now() - start
    if done.returncode:
        raise Failed(f"exit {done.returncode}")
    return took


def python() -> float:
    """The seconds of starting a Python that does nothing."""
    return statistics.median(command([sys.executable, "-c", "pass"], os.environ) for _ in range(3))


# --- without a broker ------------------------------------------------------------------------------


class Raw:
    """The server's own pipes, beside themselves: how far its ratios are from 1 is the noise of the run."""

    name = "raw pipe"

    def measure(self, raw: RawPipe) -> Figures:
        figures: Figures = {"python_start": python()}
        begin = now()
        with closing(RawPipe()) as pipe:
            pipe.call()
            figures["start"] = now() - begin
            figures |= latency(pipe.call, raw) | rate(pipe.in_flight, raw)
            for size in (1, 10):
                figures |= large(pipe.call, size, raw)
            return figures


class Hop:
    """A Unix-socket hop with nothing behind."""

    name = "socket hop alone"

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "hop.sock")
        code = "import sys; sys.path.insert(0, sys.argv[1]); import contestants as c; c.hop_server(sys.argv[2])"
        self.process = subprocess.Popen([sys.executable, "-c", code, str(HERE), self.path], stdout=subprocess.PIPE)
        assert self.process.stdout
        self.process.stdout.readline()

    def measure(self, raw: RawPipe) -> Figures:
        frames = Frames(self.path, hello=False)
        with closing(frames.sock):
            figures = latency(frames.call, raw) | rate(frames.in_flight, raw)
            for size in (1, 10):
                figures |= large(partial(frames.call, "fast"), size, raw)
            return figures

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class Sdk:
    """The official Python SDK on the server's pipes, in a process and an environment of its own."""

    name = "official Python SDK direct"

    def measure(self, raw: RawPipe) -> Figures:
        figures: Figures = {}
        attempt(figures, lambda: self.run(raw), "p50", "p99", "rate", "mib_1", "mib_10")
        return figures

    def run(self, raw: RawPipe) -> Figures:
        """It measures itself in one go: the raw pipe has its turns before and after."""
        words = [str(SDK_PYTHON), str(HERE / "sdk_client.py"), sys.executable, "500", "1000"]
        before = self.base(raw)
        done = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
        after = self.base(raw)
        return {
            "p50": p(done["times"], 50), "p99": p(done["times"], 99), "rate": done["rate"],
            "mib_1": done["big"]["1"], "mib_10": done["big"]["10"],
            **{key: (before[key] + after[key]) / 2 for key in before},
        }  # fmt: skip

    def base(self, raw: RawPipe) -> dict[str, float]:
        """The raw pipe's figures."""
        times = sequential(raw.call, 2000)
        found = {
            "raw_p50": p(times, 50), "raw_p99": p(times, 99),
            "raw_rate": 20000 / raw.in_flight(64, 20000),
        }  # fmt: skip
        for size in (1, 10):
            times = sequential(partial(raw.call, f"big_{size}"), 5, 1)
            found[f"raw_mib_{size}"] = statistics.median(times)
        return found


# --- the brokers -----------------------------------------------------------------------------------


class Broker:
    """A gateway, started anew in every round: once with one server for the times, once with 20 for the memory."""

    def __init__(self, kind: type[Gateway], folder: Path) -> None:
        self.kind, self.folder, self.name = kind, folder, kind.name()
        self.starts = 0

    @contextmanager
    def gateway(self, servers: list[str]) -> Iterator[Gateway]:
        """A gateway not yet started; ended afterwards with all it started."""
        self.starts += 1
        gateway = self.kind(self.folder / f"{self.kind.__name__}{self.starts}", servers)
        try:
            yield gateway
        finally:
            gateway.stop()

    def tried(self) -> str:
        """Start it once: why it does not, or nothing. Whatever it caches is in the cache afterwards."""
        with self.gateway(["fast"]) as gateway:
            try:
                with limited(STEP_SECONDS):
                    gateway.start()
            except Exception as error:  # whatever a peer does wrong leaves it out, not the others
                return str(error) or reason(error)
        return ""

    def measure(self, raw: RawPipe) -> Figures:
        figures: Figures = {}
        attempt(figures, self.first_call, "start")
        with self.gateway(["fast"]) as gateway:
            attempt(figures, lambda: {"": gateway.start()}, "")
            if isinstance(why := figures.pop(""), str):
                return dict.fromkeys((measure.key for measure in MEASURES), why)

            def attempt_with(step: Callable[[Caller], Figures], *keys: str) -> None:
                # A connection for each step: one that failed tells nothing about the next.
                def connected() -> Figures:
                    with closing(gateway.connect()) as client:
                        return step(client)

                attempt(figures, connected, *keys)

            attempt_with(lambda client: latency(client.call, raw), "p50", "p99")
            attempt_with(lambda client: rate(client.in_flight, raw), "rate")
            if words := gateway.one_shot():
                attempt(figures, lambda: one_shot(words, gateway.environ), "one_shot")
            for size in (1, 10):

                def big(client: Caller, size: int = size) -> Figures:
                    if len(gateway.text(client.call("fast", f"big_{size}"))) != size * 1024 * 1024:
                        raise Failed("wrong size")
                    return large(partial(client.call, "fast"), size, raw)

                attempt_with(big, f"mib_{size}")
        attempt(figures, self.memory, "pss_20")
        return figures

    def first_call(self) -> Figures:
        """From the start of its process to its first answer, the median of three, in turns with Python's start."""
        own, base = [], []
        for _ in range(3):
            base.append(python())
            with self.gateway(["fast"]) as gateway:
                own.append(gateway.start())
        return {"start": statistics.median(own), "python_start": statistics.median(base)}

    def memory(self) -> Figures:
        """The memory of the gateway alone, once each of 20 servers has answered."""
        with self.gateway([f"s{number}" for number in range(20)]) as gateway:
            gateway.start()
            return {"pss_20": gateway.pss()}


@contextmanager
def field(left_out: dict[str, str]) -> Iterator[list[Contestant]]:
    """Everyone who can take part; those who cannot are added to ``left_out`` with the reason."""
    with tempfile.TemporaryDirectory(prefix="peers") as name, ExitStack() as stack:
        folder = Path(name)
        found: list[Contestant] = [Raw(), stack.enter_context(closing(Hop(folder)))]
        if SDK_PYTHON.exists():
            found.append(Sdk())
        else:
            left_out[Sdk.name] = "not installed"
        for kind in GATEWAYS:
            if not kind.installed():
                left_out[kind.label] = "not installed"
                continue
            broker = Broker(kind, folder)
            say(f"starting {broker.name}")
            if why := broker.tried():
                left_out[broker.name] = f"does not start: {why}"
            else:
                found.append(broker)
        yield found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write every figure of every round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)), help="-1: not pinned")
    options = parser.parse_args()
    # What was started is ended on the way out, whoever asks for it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # As an installation has it: what pip installs is compiled, a checkout need not be.
    for package in ("daemon/treadle", "client_stub/treadle_client"):
        compileall.compile_dir(ROOT / package, quiet=1)
    if options.cpu >= 0:
        os.sched_setaffinity(0, {options.cpu})
    rounds: list[dict[str, Figures]] = []
    left_out: dict[str, str] = {}
    with field(left_out) as contestants, closing(RawPipe()) as raw:
        for number in range(options.rounds):
            rounds.append({})
            for one in contestants:
                say(f"round {number + 1} of {options.rounds}: {one.name}")
                rounds[-1][one.name] = one.measure(raw)
    print("times the raw pipe; first call and one-shot: times `python -c pass`; median (spread)\n")
    print(table(rounds, ratio=True))
    print("\nthe figures themselves\n")
    print(table(rounds, ratio=False))
    for missing, why in left_out.items():
        print(f"\nleft out: {missing}: {why}")
    if options.json:
        found = {"cpu": options.cpu, "left_out": left_out, "rounds": rounds}
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
