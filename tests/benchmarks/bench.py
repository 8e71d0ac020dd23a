"""Measures Treadle against the raw pipe, a socket hop and the official SDK, in one run, interleaved.

    python tests/benchmarks/bench.py [--full] [--gate] [--json FILE] [--svg FILE] [--cpu N]

Ratios travel between machines, absolute times do not: every row of the table is a ratio within this run, the
median of its rounds with their spread. Everything is pinned to one processor, as the goals are meant.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from contestants import (
    ARGUMENTS,
    HERE,
    SERVER,
    Frames,
    RawPipe,
    async_in_flight,
    many_clients,
    now,
    sequential,
)
from goals import GOALS
from report import svg, table

from treadle_client import Client

ROOT = HERE.parents[1]
SDK_PYTHON = ROOT / "build" / "bench" / "sdk" / "bin" / "python"
TREADLE = Path(sys.executable).with_name("treadle")


def p(values: list[float], percent: float) -> float:
    """A percentile."""
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


class Bench:
    """One run: a folder, a number of rounds, and what they measured."""

    def __init__(self, folder: Path, full: bool) -> None:
        self.folder = folder
        self.scale = 4 if full else 1
        self.environ = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}

    @contextmanager
    def daemon(self, servers: Mapping[str, list[str]], name: str = "bench") -> Iterator[str]:
        """A daemon with all limits, deadlines, counters and its audit log on; yields its socket."""
        config = self.folder / f"{name}.toml"
        audit = json.dumps(str(self.folder / "audit.log"))
        lines = ["[broker]", f"audit_log = {audit}", 'ready = "listening"']
        for key, command in servers.items():
            lines += [f"[mcp.{key}]", f"command = {json.dumps(command)}", "max_in_flight = 256"]
        config.write_text("\n".join(lines))
        path = str(self.folder / name / "t.sock")
        notify = self.folder / f"{name}.notify"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
            told.bind(str(notify))
            with (self.folder / f"{name}.log").open("w") as log:
                process = subprocess.Popen(
                    [str(TREADLE), "serve", "--config", str(config), "--socket", path],
                    env={**self.environ, "NOTIFY_SOCKET": str(notify)},
                    stderr=log,
                    stdout=log,
                )
            self.process = process
            try:
                self.await_ready(told)
                yield path
            finally:
                process.terminate()
                process.wait(30)
                notify.unlink()

    def await_ready(self, told: socket.socket) -> None:
        """Wait until the daemon says that it listens: to ask again and again would take its processor from it."""
        told.settimeout(1)
        while True:
            try:
                if b"READY=1" in told.recv(4096).split(b"\n"):
                    return
            except TimeoutError:
                assert self.process.poll() is None, "the daemon ended"

    # --- per round ---------------------------------------------------------------------------------

    def round(self, hop: Frames, raw: RawPipe) -> dict[str, float]:
        """Everything that is interleaved."""
        with self.daemon({"fast": SERVER}) as path:
            found = self.beside_each_other(path, hop, raw)
        return found | self.beside_noise() | self.sdk()

    def beside_each_other(self, path: str, hop: Frames, raw: RawPipe) -> dict[str, float]:
        """The raw pipe, the hop and the daemon's clients, in turn."""
        n, found = 2000 * self.scale, {}
        raw_times = sequential(raw.call, n)
        hop_times = sequential(hop.call, n)
        frames = Frames(path, hello=True)
        times = sequential(frames.call, n)
        client = Client(path)
        client_times = sequential(lambda: client.call("fast", "echo", ARGUMENTS), n)
        found |= {
            "raw_p50": p(raw_times, 50), "hop_p50": p(hop_times, 50), "p50": p(times, 50), "p99": p(times, 99),
            "client_p50": p(client_times, 50),
        }  # fmt: skip
        flood = 10000 * self.scale
        found["raw_rate"] = flood / raw.in_flight(64, flood)
        found["hop_rate"] = flood / hop.in_flight(64, flood)
        before = self.cpu()
        found["rate"] = flood / frames.in_flight(64, flood)
        found["cpu_per_call"] = (self.cpu() - before) / flood
        found["rate_16x8"] = flood / many_clients(path, 16, 8, flood)
        found["async_rate"] = flood / 2 / asyncio.run(async_in_flight(path, 64, flood // 2))
        for size in (1, 10):
            tool, text = f"big_{size}", "z" * (size * 1024 * 1024)
            line = json.dumps({"text": text}).encode()
            found[f"raw_{size}"] = p(sequential(partial(raw.call, tool), 9, 1), 50)
            found[f"hop_{size}"] = p(sequential(partial(hop.call, tool=tool), 9, 1), 50)
            found[f"result_{size}"] = p(sequential(partial(frames.call, tool=tool), 9, 1), 50)
            found[f"raw_argument_{size}"] = p(sequential(partial(raw.call, "swallow", line), 5, 1), 50)
            swallow = partial(frames.call, tool="swallow", arguments={"text": text})
            found[f"argument_{size}"] = p(sequential(swallow, 5, 1), 50)
        found["result_15"] = p(sequential(lambda: frames.call(tool="big_15"), 3, 1), 50)
        return found

    def cpu(self) -> float:
        """Seconds of processor time of the daemon so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def beside_noise(self) -> dict[str, float]:
        """The p99 of a good server while its neighbour floods and answers 15 MiB again and again.

        What the neighbour and its caller burn themselves they burn on another processor, where there is one: no
        broker could give that back. What they make the daemon do is what is measured.
        """
        others = os.sched_getaffinity(1) - os.sched_getaffinity(0)
        elsewhere = ",".join(map(str, others or os.sched_getaffinity(0)))
        code = (
            "import os, sys; sys.path.insert(0, sys.argv[1]); from contestants import Frames\n"
            "os.sched_setaffinity(0, set(map(int, sys.argv[3].split(','))))\n"
            "frames = Frames(sys.argv[2], hello=True)\n"
            "while True: frames.call(server='noisy', tool='big_15')"
        )
        noisy = [sys.executable, str(HERE / "noisy_server.py"), elsewhere]
        with self.daemon({"fast": SERVER, "noisy": noisy}, "noise") as path:
            frames = Frames(path, hello=True)
            frames.call(server="noisy")
            words = [sys.executable, "-c", code, str(HERE), path, elsewhere]
            abuser = subprocess.Popen(words, stderr=subprocess.DEVNULL)
            try:
                return {"p99_noisy": p(sequential(frames.call, 1000 * self.scale), 99)}
            finally:
                abuser.kill()
                abuser.wait()

    def sdk(self) -> dict[str, float]:
        """The official SDK without us; nothing when it is not installed."""
        if not SDK_PYTHON.exists():
            return {}
        calls, flood = str(500 * self.scale), str(1000 * self.scale)
        words = [str(SDK_PYTHON), str(HERE / "sdk_client.py"), sys.executable, calls, flood]
        done = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
        return {
            "sdk_p50": p(done["times"], 50), "sdk_p99": p(done["times"], 99), "sdk_rate": done["rate"],
            "sdk_1": done["big"]["1"], "sdk_10": done["big"]["10"],
        }  # fmt: skip

    # --- once --------------------------------------------------------------------------------------

    def starts(self) -> dict[str, float]:
        """Start-up, memory and one-shot figures."""
        found = {"python": self.command([sys.executable, "-c", "pass"])}
        one, pss_one = self.first_call(1)
        twenty, pss_twenty = self.first_call(20)
        found |= {"first_call": one, "first_call_20": twenty, "pss_1": pss_one, "pss_20": pss_twenty}
        found["pss_per_server"] = (pss_twenty - pss_one) / 19
        if self.scale > 1:
            found["first_call_100"], found["pss_100"] = self.first_call(100)
        with self.daemon({"fast": SERVER}, "oneshot") as path:
            words = [str(TREADLE), "--socket", path, "call", "fast", "echo", "text=hello"]
            found["one_shot"] = self.command(words)
        return found

    def command(self, words: list[str]) -> float:
        """The seconds of one command, median of some."""
        times = []
        for _ in range(11):
            start = now()
            subprocess.run(words, check=True, capture_output=True, env=self.environ)
            times.append(now() - start)
        return statistics.median(times)

    def first_call(self, count: int) -> tuple[float, float]:
        """Seconds from the daemon's start until each of ``count`` servers answered once, and its PSS in MiB."""
        results = []
        for attempt in range(3):
            names = [f"s{number}" for number in range(count)]
            start = now()
            with self.daemon(dict.fromkeys(names, SERVER), f"start{count}x{attempt}") as path:
                frames = Frames(path, hello=True)
                for name in names:
                    frames.call(server=name)
                results.append((now() - start, self.pss()))
        return statistics.median(r[0] for r in results), statistics.median(r[1] for r in results)

    def pss(self) -> float:
        """The proportional set size of the daemon in MiB."""
        text = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1024


def run(folder: Path, *, full: bool, rounds: int, say: Callable[[str], None]) -> list[dict[str, float]]:
    """All rounds; the figures that are taken once are in each of them."""
    bench = Bench(folder, full)
    say("start-up, memory, one-shot")
    once = bench.starts()
    hop_path = str(folder / "hop.sock")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from contestants import hop_server; hop_server(sys.argv[2])"
    )
    hop_process = subprocess.Popen([sys.executable, "-c", code, str(HERE), hop_path], stdout=subprocess.PIPE)
    assert hop_process.stdout
    hop_process.stdout.readline()
    raw, hop = RawPipe(), Frames(hop_path, hello=False)
    found = []
    try:
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            found.append(once | bench.round(hop, raw))
    finally:
        raw.close()
        hop_process.kill()
        hop_process.wait()
    return found


def missed(rounds: list[dict[str, float]], slack: float) -> list[str]:
    """The steady rows whose "must" is missed by more than ``slack``."""
    names = []
    for goal in GOALS:
        values = goal.measured(rounds)
        if goal.steady and values and not goal.met(statistics.median(values), goal.must, slack):
            names.append(goal.name)
    return names


def main() -> int:
    """Measure, print the table, write what was asked for. Returns 1 when ``--gate`` finds a missed must."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="more calls, more rounds, 100 servers")
    parser.add_argument("--gate", action="store_true", help="exit 1 when a steady ratio misses its must, twice")
    parser.add_argument("--slack", type=float, default=1.15, help="how many times its must a gated row may be")
    parser.add_argument("--json", type=Path, help="write every figure of every round")
    parser.add_argument("--svg", type=Path, help="draw the table")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)), help="-1: not pinned")
    options = parser.parse_args()
    # What was started is ended on the way out, whoever asks for it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.cpu >= 0:
        os.sched_setaffinity(0, {options.cpu})

    def say(text: str) -> None:
        print(f"# {text}", file=sys.stderr, flush=True)

    # As an installation has it. In a checkout Python may be told to write none: each start would compile again.
    for package in ("daemon/treadle", "client_stub/treadle_client"):
        compileall.compile_dir(ROOT / package, quiet=1)
    rounds = options.rounds or (5 if options.full else 3)
    with tempfile.TemporaryDirectory() as folder:
        found = run(Path(folder), full=options.full, rounds=rounds, say=say)
        print(table(found))
        if options.json:
            options.json.write_text(json.dumps({"cpu": options.cpu, "rounds": found}, indent=1) + "\n")
        if options.svg:
            options.svg.write_text(svg(found))
        if options.gate and missed(found, options.slack):
            say("a steady row missed its must: measuring once more")
            with tempfile.TemporaryDirectory() as again:
                still = missed(run(Path(again), full=False, rounds=3, say=say), options.slack)
            if still:
                print(f"missed twice: {', '.join(still)}")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
