"""What is left when the daemon is killed: the record, the recovery by the next start, the guard."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from support.receivers import alive, gone, workshop
from treadle import procfs
from treadle.custody import Guard, recover
from treadle.record import MARK, Record, read_record

LOOPS = ("uvloop",)
SOURCES = str(Path(procfs.__file__).resolve().parent.parent)
SLEEP = ["/bin/sleep", "60"]
DOOMED = Path(__file__).parent.parent / "support" / "doomed_daemon.py"
DOOMED_SERVERS = 7  # single, and three kinds of two processes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.json"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SLEEP, start_new_session=True, env={MARK: "sleeper"}) as child:
        yield child
        child.kill()


def abandon(path: Path) -> None:
    """Make the record at ``path`` that of a daemon that is gone."""
    body = json.loads(path.read_text())
    body["daemon"]["start"] -= 1
    path.write_text(json.dumps(body))


# --- the record ------------------------------------------------------------------------------------------------


def test_the_record_names_what_runs_and_only_that(path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    record = Record(path)
    record.hold("one", "github", None)
    record.hold("one", "github", sleeper.pid)
    record.hold("two", "files", None)
    record.drop("two")
    read = read_record(path)
    assert read is not None
    (held,) = read.held
    process = procfs.read(sleeper.pid)
    assert process is not None
    assert (held.marker, held.server, held.pid, held.start) == ("one", "github", sleeper.pid, process.start)


def test_the_record_is_for_its_owner_alone_and_leaves_no_temporary_file(path: Path) -> None:
    Record(path).hold("m", "s", None)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == [path.name]


def test_a_record_that_cannot_be_written_costs_no_service(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record = Record(tmp_path / "missing" / "record.json")
    record.hold("m", "s", None)
    assert caplog.text.count("cannot write the custody record") == 1
    (tmp_path / "missing").mkdir()
    record.hold("n", "s", None)
    assert "is written again" in caplog.text
    read = read_record(record.path)
    assert read is not None
    assert [one.marker for one in read.held] == ["m", "n"]


async def test_a_server_is_recorded_from_its_spawn_until_its_end(path: Path) -> None:
    record = Record(path)
    async with workshop(record=record) as shop:
        child, _ = await shop.run("cat", marker="the-marker")
        read = read_record(path)
        assert read is not None
        assert [(one.marker, one.pid) for one in read.held] == [("the-marker", child.pid)]
    read = read_record(path)
    assert read is not None
    assert read.held == ()


# --- the recovery ----------------------------------------------------------------------------------------------


def test_without_a_record_there_is_nothing_to_recover(path: Path) -> None:
    assert recover(path) == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"format": 1, "boot"',
        b"\xff\xfe",
        b"[]",
        b'{"format": 99}',
        b'{"format": 1, "boot": "b", "daemon": {"id": "d", "pid": 2, "start": 3}, "held": [{"pid": "x"}]}',
        b'{"format": 1, "boot": 7, "daemon": {"id": "d", "pid": 2, "start": 3}, "held": []}',
        b"[" * 100_000,
    ],
)
def test_a_record_that_cannot_be_used_is_reported_and_never_fatal(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    (finding,) = recover(path)
    assert str(path) in str(finding)
    assert "ignored" in str(finding)


def test_a_record_that_names_init_or_everybody_is_refused(path: Path) -> None:
    for bad in ({"pid": 1}, {"pid": 0}, {"marker": ""}):
        record = Record(path)
        record.hold("m", "s", os.getpid())
        body = json.loads(path.read_text())
        body["held"][0] |= bad
        path.write_text(json.dumps(body))
        with pytest.raises(ValueError, match="not written by this program"):
            read_record(path)


def test_a_server_that_outlived_its_daemon_is_ended_with_its_tree(path: Path) -> None:
    script = "/bin/sleep 60 & setsid /bin/sleep 60 & wait"
    with subprocess.Popen(["/bin/sh", "-c", script], start_new_session=True, env={MARK: "left"}) as child:
        while len(procfs.descendants(child.pid)) < 2:
            time.sleep(0.005)
        tree = [child.pid, *(one.pid for one in procfs.descendants(child.pid))]
        Record(path).hold("left", "github", child.pid)
        abandon(path)
        findings = recover(path)
        assert {finding.pid for finding in findings} == set(tree)
        assert all("server github" in str(finding) and "was killed" in str(finding) for finding in findings)
        assert not any(alive(pid) for pid in tree)


def test_a_helper_is_ended_by_its_mark_when_the_server_is_long_gone(
    path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    Record(path).hold("sleeper", "github", None)
    abandon(path)
    (finding,) = recover(path)
    assert (finding.pid, finding.server) == (sleeper.pid, "github")
    assert sleeper.wait() == -signal.SIGKILL


def test_a_recycled_pid_is_left_alone(path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    Record(path).hold("other-mark", "github", sleeper.pid)
    abandon(path)
    body = json.loads(path.read_text())
    body["held"][0]["start"] -= 1
    path.write_text(json.dumps(body))
    assert recover(path) == []
    assert alive(sleeper.pid)


def test_a_record_of_another_boot_is_void(path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    Record(path).hold("sleeper", "github", sleeper.pid)
    abandon(path)
    body = json.loads(path.read_text())
    body["boot"] = "another"
    path.write_text(json.dumps(body))
    assert recover(path) == []
    assert alive(sleeper.pid)


def test_what_a_living_daemon_owns_is_left_alone(path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    Record(path).hold("sleeper", "github", sleeper.pid)
    owner = procfs.read(os.getppid())
    assert owner is not None
    body = json.loads(path.read_text())
    body["daemon"] |= {"pid": owner.pid, "start": owner.start}
    path.write_text(json.dumps(body))
    (finding,) = recover(path)
    assert "left alone" in str(finding)
    assert alive(sleeper.pid)


def test_a_pid_that_the_kernel_handed_out_again_is_never_signalled(tmp_path: Path) -> None:
    script = f"""
import json, os, subprocess, sys, time
from pathlib import Path
sys.path.insert(0, {SOURCES!r})
from treadle import procfs
from treadle.custody import recover
from treadle.record import Record
path = Path({str(tmp_path / "record.json")!r})
sleep = ["/bin/sleep", "60"]
first = subprocess.Popen(sleep, start_new_session=True)
seen = procfs.read(first.pid)
Record(path).hold("m", "s", first.pid)
first.kill(); first.wait()
time.sleep(0.03)
Path("/proc/sys/kernel/ns_last_pid").write_text(str(first.pid - 1))
second = subprocess.Popen(sleep, start_new_session=True)
assert second.pid == first.pid, (second.pid, first.pid)
assert not procfs.kill(seen)
body = json.loads(path.read_text()); body["daemon"]["start"] -= 1; path.write_text(json.dumps(body))
assert recover(path) == []
assert second.poll() is None
print("spared")
"""
    unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no pid namespace can be made here")
    done = subprocess.run(
        [*unshare, sys.executable, "-I", "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("spared\n", "")


# --- the guard -------------------------------------------------------------------------------------------------


@pytest.fixture
async def guard(path: Path) -> AsyncIterator[Guard]:
    started = Guard.start(Record(path))
    yield started
    await started.release()


async def test_the_guard_goes_when_it_is_released(guard: Guard) -> None:
    assert alive(guard.pid)
    await guard.release()
    assert procfs.read(guard.pid) is None
    await guard.release()


def _ignored(pid: int) -> int:
    """The signals that a process ignores, as a mask."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigIgn:"))
    return int(line.split()[1], 16)


async def test_the_guard_ignores_polite_signals_and_holds_one_pipe(guard: Guard) -> None:
    polite = sum(1 << (number - 1) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM))
    async with asyncio.timeout(5):
        while _ignored(guard.pid) & polite != polite:
            await asyncio.sleep(0.005)
    folder = f"/proc/{guard.pid}/fd"
    links = {fd: os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder)}
    assert links.pop("0").startswith("pipe:")
    assert set(links.values()) <= {"/dev/null"}
    assert os.readlink(f"/proc/{guard.pid}/cwd") == "/"
    assert os.getsid(guard.pid) == guard.pid


async def test_an_orderly_end_ends_nothing_that_is_recorded(path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    record = Record(path)
    record.hold("sleeper", "github", sleeper.pid)
    guard = Guard.start(record)
    await guard.release()
    assert alive(sleeper.pid)


async def test_a_guard_that_is_killed_is_reaped_and_reported_once(path: Path) -> None:
    guard = Guard.start(Record(path))
    ended: asyncio.Queue[int] = asyncio.Queue()
    guard.watch(asyncio.get_running_loop(), lambda: ended.put_nowait(guard.pid))
    os.kill(guard.pid, signal.SIGKILL)
    async with asyncio.timeout(5):
        await ended.get()
    assert procfs.read(guard.pid) is None
    await guard.release()
    assert ended.empty()


async def test_a_guard_that_is_released_is_not_reported(path: Path) -> None:
    guard = Guard.start(Record(path))
    ended: list[int] = []
    guard.watch(asyncio.get_running_loop(), lambda: ended.append(guard.pid))
    await guard.release()
    await asyncio.sleep(0)
    assert ended == []


def test_a_killed_daemon_leaves_nothing_even_of_servers_that_refuse_to_end(path: Path) -> None:
    command = [sys.executable, str(DOOMED), SOURCES, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        pids = [int(daemon.stdout.readline()) for _ in range(DOOMED_SERVERS)]
        family = procfs.descendants(daemon.pid)  # with the guard
        daemon.kill()
        deadline = time.monotonic() + 5
        while any(alive(one.pid) for one in family) and time.monotonic() < deadline:
            time.sleep(0.01)
        left = [one for one in family if alive(one.pid)]
        for one in left:
            procfs.kill(one)
        assert left == []
        assert {one.pid for one in family} >= set(pids)


async def test_the_guard_of_a_killed_daemon_does_not_touch_its_successors_servers(path: Path) -> None:
    guard = Guard.start(Record(path))
    successor = Record(path)
    with subprocess.Popen(SLEEP, start_new_session=True, env={MARK: "fresh"}) as server:
        successor.hold("fresh", "github", server.pid)
        abandon(path)  # so that only the identity of the record protects it
        os.close(guard._pipe)
        guard._pipe = -1
        await gone(guard.pid)
        await guard.release()
        assert alive(server.pid)
        server.kill()
