"""Processes that fork away from every look: ended, or not claimed to be (custody page)."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from support import unruly
from support.daemon import Daemon, toml
from support.hoppers import COMPILER, Hoppers
from support.receivers import Recorder, Workshop, workshop
from treadle.custody import RECOVERY_S, recover
from treadle.process import ChildProcess
from treadle.record import MARK, Record
from treadle.transport import Ladder

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler")

QUICK = Ladder(term_after=0.1, kill_after=0.2)
LOOPS = ("uvloop",)


@pytest.fixture
def hoppers(tmp_path: Path) -> Iterator[Hoppers]:
    made = Hoppers(tmp_path)
    yield made
    made.end()


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Workshop]:
    async with workshop(record=Record(tmp_path / "record.json")) as made:
        yield made


async def hopping(shop: Workshop, hoppers: Hoppers, command: str) -> tuple[ChildProcess, Recorder]:
    child, receiver = await shop.shell(f"{command}; cat")
    async with asyncio.timeout(10):
        while hoppers.beats() < 50:
            await asyncio.sleep(0.01)
    return child, receiver


@pytest.mark.parametrize(("lines", "pause_us"), [(1, 0), (8, 0), (4, 500), (1, 20_000)])
async def test_what_hops_with_the_mark_is_ended_or_reported_as_left(
    shop: Workshop, hoppers: Hoppers, lines: int, pause_us: int
) -> None:
    child, _ = await hopping(shop, hoppers, hoppers.command(lines, pause_us))
    async with asyncio.timeout(QUICK.kill_after + 6):
        evidence = await child.retire(QUICK)
    assert evidence.drained is not True or hoppers.still()
    ended = await shop.custody.end_strangers()
    assert ended.drained is not True or hoppers.still()


@pytest.mark.parametrize("lines", [1, 8])
async def test_what_hops_without_a_mark_makes_every_drain_unknown_and_ends_with_the_daemon(
    shop: Workshop, hoppers: Hoppers, lines: int
) -> None:
    neighbour, _ = await shop.run("cat")
    child, _ = await hopping(shop, hoppers, hoppers.command(lines, marked=False))
    for one in (neighbour, child):
        async with asyncio.timeout(3):
            evidence = await one.retire(QUICK)
        assert (evidence.kind, evidence.drained) == ("exited", None)
    assert not hoppers.still()
    ended = await shop.custody.end_strangers()
    assert ended.drained is not True or hoppers.still()


@pytest.mark.parametrize(("lines", "pause_us"), [(8, 0), (1, 20_000)])
def test_what_hops_with_a_recorded_mark_is_chased_by_the_recovery(
    tmp_path: Path, hoppers: Hoppers, lines: int, pause_us: int
) -> None:
    path = tmp_path / "record.json"
    Record(path).hold("the-hoppers", "github", None)
    body = json.loads(path.read_text())
    body["daemon"]["start"] -= 1  # of a daemon that is gone
    path.write_text(json.dumps(body))
    subprocess.run(["/bin/sh", "-c", hoppers.command(lines, pause_us)], env={MARK: "the-hoppers"}, check=True)
    assert not hoppers.still()
    began = time.monotonic()
    findings = recover(path)
    assert time.monotonic() - began < RECOVERY_S + 1
    assert hoppers.still() or any("cannot be ended" in str(one) for one in findings)
    assert {one.server for one in findings} == {"github"}


@pytest.mark.parametrize("marked", [True, False])
def test_a_daemon_ends_what_hops_or_says_that_its_end_is_not_proven(
    tmp_path: Path, hoppers: Hoppers, marked: bool
) -> None:
    hop = unruly.shell(f"{hoppers.command(8, marked=marked)}; {unruly.HANDSHAKE} while read -r line; do :; done")
    tables = {"hopping": {"command": hop, "stop_timeout_ms": 500}, "good": {"command": unruly.scripted()}}
    with Daemon(tmp_path, toml(tables)) as daemon:
        unruly.settle(daemon)
        with daemon.client(timeout=30) as client:
            for name in ("good", "hopping"):
                told = client.stop(name)
                assert told["evidence"]["elapsed_ms"] < (3000 if name == "good" else 500 + 6000)
                assert told["evidence"]["drained"] is not True or name == "good" or hoppers.still()
                assert marked or told["evidence"]["drained"] is None
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGTERM)
        status = daemon.process.wait(20)
        assert status in (0, 8)
        assert status == 8 or hoppers.still()


@pytest.mark.parametrize("lines", [2, 8])
def test_the_guard_chases_what_hops_with_the_mark_when_the_daemon_is_killed(
    tmp_path: Path, hoppers: Hoppers, lines: int
) -> None:
    hop = unruly.shell(f"{hoppers.command(lines)}; {unruly.HANDSHAKE} while read -r line; do :; done")
    with Daemon(tmp_path, toml({"hopping": {"command": hop}})) as daemon:
        unruly.settle(daemon)
        assert daemon.process is not None
        assert not hoppers.still()
        daemon.process.kill()
        daemon.process.wait(5)
        unruly.until(hoppers.still, "the guard's chase", 2 * RECOVERY_S)
