"""Descendants: found, attributed and ended whatever they did to hide, and nobody else's touched."""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partialmethod
from pathlib import Path

import pytest

from support.receivers import Recorder, Workshop, alive, gone, unmarked, workshop
from treadle import procfs
from treadle.keeping import Keeper
from treadle.record import MARK, Record, read_record
from treadle.transport import Ladder
from treadle.tree import Custody

LOOPS = ("uvloop",)
QUICK = Ladder(term_after=0.1, kill_after=0.2)


@pytest.fixture
async def shop() -> AsyncIterator[Workshop]:
    async with workshop() as made:
        yield made


async def pid_from(receiver: Recorder) -> int:
    return int(await receiver.line())


# A double fork with a new session: what a program does that makes itself a daemon.
DAEMONISE = """
import os, sys, time
def daemonise(env=None):
    r, w = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            if env is not None:
                os.write(w, b"%d" % os.getpid())
                os.execve("/bin/sleep", ["sleep", "60"], env)
            os.write(w, b"%d" % os.getpid())
            time.sleep(60)
        os._exit(0)
    os.wait()
    print(os.read(r, 20).decode(), flush=True)
"""


async def test_a_shell_wrapper_is_ended_with_the_server_behind_it(shop: Workshop) -> None:
    child, receiver = await shop.shell("sleep 60 & echo $!; wait; true")
    worker = await pid_from(receiver)
    evidence = await child.retire(QUICK)
    assert evidence.rung == "term"
    assert (evidence.drained, evidence.stragglers) == (True, 0)  # SIGTERM reached it through the group
    assert not alive(worker)


async def test_a_server_behind_a_wrapper_that_ends_first_may_end_gracefully(
    shop: Workshop, tmp_path: Path
) -> None:
    worker = "trap 'sleep 0.1; echo saved >state; exit' TERM; echo ready; while :; do sleep 0.01; done"
    wrapper = ("/bin/sh", "-c", '/bin/sh -c "$0" & wait')
    child, receiver = await shop.run(*wrapper, worker, cwd=str(tmp_path))
    assert await receiver.line() == "ready"
    evidence = await child.retire(Ladder(term_after=0.05, kill_after=5))
    assert (evidence.rung, evidence.drained) == ("term", True)
    assert (tmp_path / "state").read_text() == "saved\n"


async def test_a_launcher_that_exits_at_once_leaves_no_worker(shop: Workshop) -> None:
    child, receiver = await shop.shell("sh -c 'trap \"\" TERM; exec sleep 60' & echo $!; exit 0")
    worker = await pid_from(receiver)
    await receiver.until_closed()
    evidence = await child.retire(QUICK)
    assert (evidence.rung, evidence.status, evidence.drained) == ("itself", 0, True)
    assert evidence.stragglers == 1
    assert not alive(worker)


async def test_a_daemonised_helper_is_found_and_ended(shop: Workshop) -> None:
    child, receiver = await shop.python(DAEMONISE + "daemonise(); sys.stdin.read()")
    helper = await pid_from(receiver)
    evidence = await child.retire(Ladder(term_after=5, kill_after=6))
    assert (evidence.rung, evidence.drained, evidence.by) == ("eof", True, "sweep")
    assert not alive(helper)


async def test_a_helper_that_ignores_sigterm_is_killed_and_counted(shop: Workshop) -> None:
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    child, receiver = await shop.python(ignore + DAEMONISE + "daemonise(); sys.stdin.read()")
    helper = await pid_from(receiver)
    evidence = await child.retire(Ladder(term_after=0.2, kill_after=0.3))
    assert (evidence.rung, evidence.drained, evidence.stragglers) == ("eof", True, 1)
    assert not alive(helper)


async def test_a_tree_that_forks_while_it_is_killed_is_ended(shop: Workshop) -> None:
    bomb = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
for _ in range(3):
    os.fork()
while True:
    if os.fork() == 0:
        os.setsid()
        time.sleep(0.05)
        os._exit(0)
    time.sleep(0.01)
    try:
        os.waitpid(-1, os.WNOHANG)
    except OSError:
        pass
"""
    child, receiver = await shop.python(bomb, marker="the-bomb")

    def bombs() -> list[int]:
        return [one.pid for one in procfs.everyone() if procfs.variable(one.pid, MARK) == "the-bomb"]

    await pid_from(receiver)
    async with asyncio.timeout(30):
        while len(bombs()) <= 8:  # eight that stay, and a child of theirs that does not
            await asyncio.sleep(0.01)
    evidence = await child.retire(Ladder(term_after=0, kill_after=0))
    assert evidence.drained is True
    assert evidence.stragglers >= 7
    assert bombs() == []


async def test_a_live_neighbours_helper_is_not_touched(shop: Workshop) -> None:
    neighbour, heard = await shop.python(DAEMONISE + "daemonise(); sys.stdin.read()")
    helper = await pid_from(heard)
    child, receiver = await shop.python(DAEMONISE + "daemonise(); sys.stdin.read()")
    own = await pid_from(receiver)
    evidence = await child.retire(QUICK)
    assert evidence.drained is True
    assert not alive(own)
    assert alive(helper)
    assert alive(neighbour.pid or 0)
    await neighbour.retire(QUICK)
    assert not alive(helper)


async def test_an_orphan_that_nobody_can_attribute_makes_the_drain_unknown_and_is_left_alone(
    shop: Workshop,
) -> None:
    _neighbour, heard = await shop.python(DAEMONISE + "daemonise({}); sys.stdin.read()")
    orphan = await unmarked(await pid_from(heard))
    child, _ = await shop.run("cat")
    evidence = await child.retire(QUICK)
    assert (evidence.kind, evidence.drained) == ("exited", None)
    assert evidence.confirmed
    assert alive(orphan)


async def test_the_orphans_of_nobody_are_ended_with_the_daemon(shop: Workshop) -> None:
    child, heard = await shop.python(DAEMONISE + "daemonise({}); sys.stdin.read()")
    orphan = await unmarked(await pid_from(heard))
    await child.retire(QUICK)
    ended = await shop.custody.end_strangers()
    assert (ended.drained, ended.stragglers) == (True, 1)
    assert not alive(orphan)


async def test_an_orphan_that_cannot_be_ended_is_reported_and_kept_in_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = Keeper(tmp_path, "socket")
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as orphan:
        with monkeypatch.context() as powerless:
            powerless.setattr(procfs, "kill", lambda *_: False)
            powerless.setattr("treadle.tree.Custody.end_strangers", partialmethod(Custody.end_strangers, 0.1))
            assert await keeper.end() is False
        (path,) = tmp_path.glob("record-*.json")
        record = read_record(path)
        assert record is not None
        assert [held.pid for held in record.held] == [orphan.pid]
        assert keeper._guard is not None
        assert alive(keeper._guard.pid)
        await keeper._guard.release()
        orphan.kill()
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)  # orphans of other tests go where they went before


async def test_an_orphan_without_a_mark_is_recorded_until_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.tree.TICK_S", 0.02)
    path = tmp_path / "record.json"

    def recorded() -> set[int | None]:
        record = read_record(path)
        assert record is not None
        return {held.pid for held in record.held}

    async with workshop(record=Record(path)) as shop:
        child, heard = await shop.python(DAEMONISE + "daemonise({}); sys.stdin.read()")
        orphan = await unmarked(await pid_from(heard))
        async with asyncio.timeout(5):
            while recorded() != {child.pid, orphan}:
                await asyncio.sleep(0.01)
        await child.retire(QUICK)
        assert recorded() == {orphan}
        await shop.custody.end_strangers()
        assert recorded() == set()


@pytest.fixture
def blind() -> Iterator[Callable[[bool], None]]:
    """Takes this process's free descriptors away, so that nothing of /proc can be read, or gives them back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield lambda on: resource.setrlimit(resource.RLIMIT_NOFILE, (0 if on else soft, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_without_a_free_descriptor_a_drain_claims_nothing(
    shop: Workshop, blind: Callable[[bool], None]
) -> None:
    child, heard = await shop.python(DAEMONISE + "daemonise(); sys.stdin.read()")
    helper = await pid_from(heard)
    blind(True)
    drain = await shop.custody.drain(child._incarnation, within=0.1)
    blind(False)
    assert drain.drained is None
    assert alive(helper)


async def test_a_drain_goes_on_when_descriptors_are_free_again(
    shop: Workshop, blind: Callable[[bool], None]
) -> None:
    child, heard = await shop.python(DAEMONISE + "daemonise(); sys.stdin.read()")
    helper = await pid_from(heard)
    blind(True)
    asyncio.get_running_loop().call_later(0.1, blind, False)
    drain = await shop.custody.drain(child._incarnation)
    assert (drain.drained, drain.stragglers) == (True, 1)
    assert not alive(helper)


async def test_a_descendant_seen_before_the_signal_is_known_without_a_mark(shop: Workshop) -> None:
    # Its own session, no mark, but still below the server when the retirement begins.
    script = "import os, subprocess, sys\n"
    script += "p = subprocess.Popen(['sleep', '60'], start_new_session=True, env={'PATH': os.defpath})\n"
    child, receiver = await shop.python(script + "print(p.pid, flush=True); sys.stdin.read()")
    helper = await pid_from(receiver)
    evidence = await child.retire(Ladder(term_after=5, kill_after=6))
    assert evidence.drained is True
    assert not alive(helper)


async def test_a_child_that_somebody_here_started_is_never_taken_for_an_orphan(shop: Workshop) -> None:
    with (
        subprocess.Popen(["sleep", "60"]) as mine,
        subprocess.Popen(["sleep", "60"], start_new_session=True) as named,
    ):
        shop.custody.own(named.pid)
        child, _ = await shop.run("cat")
        assert (await child.retire(QUICK)).drained is True
        ended = await shop.custody.end_strangers()
        assert (ended.drained, ended.stragglers) == (True, 0)
        assert mine.poll() is None
        assert named.poll() is None
        for child_of_ours in (mine, named):
            child_of_ours.kill()
            os.waitid(os.P_PID, child_of_ours.pid, os.WEXITED | os.WNOWAIT)
        shop.custody.reap_strangers()
        assert mine.wait() == named.wait() == -9  # their status was not taken away
        shop.custody.disown(named.pid)


async def test_an_adopted_zombie_is_reaped(shop: Workshop) -> None:
    _child, receiver = await shop.shell("(setsid sh -c 'echo $$; exit 0' &) ; cat")
    orphan = await pid_from(receiver)
    await gone(orphan)
    shop.custody.reap_strangers()
    assert procfs.read(orphan) is None


async def test_an_adopted_zombie_is_reaped_without_being_asked(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.tree.TICK_S", 0.02)
    _child, receiver = await shop.shell("(setsid sh -c 'echo $$; exit 0' &) ; cat")
    orphan = await pid_from(receiver)
    async with asyncio.timeout(5):
        while procfs.read(orphan) is not None:
            await asyncio.sleep(0.01)


async def test_something_that_cannot_be_ended_is_reported_within_the_bound(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    child, receiver = await shop.shell("sleep 60 & echo $!; cat")
    await pid_from(receiver)
    with monkeypatch.context() as powerless:
        powerless.setattr(procfs, "kill", lambda *_: False)
        powerless.setattr(os, "killpg", lambda *_: None)
        async with asyncio.timeout(30):  # the child that cannot be ended runs for a minute
            drain = await shop.custody.drain(child._incarnation, within=0.1)
    assert drain.drained is False


async def test_the_usage_counts_the_whole_tree(shop: Workshop) -> None:
    child, receiver = await shop.shell("(setsid sleep 60 &); sleep 60 & echo $!; cat")
    await pid_from(receiver)
    async with asyncio.timeout(5):
        while (usage := child.usage()) is None or usage.processes < 4:
            await asyncio.sleep(0.01)
    assert usage.rss_bytes > 4 * 4096
    assert usage.cpu_s >= 0
    await child.retire(QUICK)
    assert child.usage() is None


# --- limits and cgroups ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limited:
    memory_mb: int | None = None
    pids: int | None = None
    open_files: int | None = None
    cpu_seconds: int | None = None


async def test_open_files_are_limited(shop: Workshop) -> None:
    _, receiver = await shop.shell("ulimit -n", limits=Limited(open_files=64))
    assert await receiver.line() == "64"


async def test_memory_is_limited_for_each_process(shop: Workshop) -> None:
    _, receiver = await shop.python("bytearray(400 << 20)", limits=Limited(memory_mb=200))
    assert "MemoryError" in await receiver.until_closed()


async def test_cpu_seconds_end_a_busy_server_with_its_own_signal(shop: Workshop) -> None:
    _, receiver = await shop.shell("ulimit -St; ulimit -Ht", limits=Limited(cpu_seconds=5))
    assert (await receiver.line(), await receiver.line()) == ("5", "7")


async def test_the_limited_child_is_still_the_process_that_was_spawned(shop: Workshop) -> None:
    child, receiver = await shop.shell("echo $$", limits=Limited(open_files=64))
    assert await receiver.line() == str(child.pid or int(bytes(receiver.data) or b"0"))


def own_cgroup_directory() -> Path | None:
    """A directory for a subtree of the test's own in the cgroup v2 hierarchy, None where that cannot be."""
    for base in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")):
        if (base / "cgroup.procs").exists() and (base / "cgroup.subtree_control").exists():
            path = base / f"treadle-test-{os.getpid()}"
            try:
                path.mkdir()
            except OSError:
                return None
            return path
    return None


@pytest.fixture
async def cgroups() -> AsyncIterator[Workshop]:
    path = own_cgroup_directory()
    if path is None:
        pytest.skip("no cgroup v2 directory can be made here")
    try:
        async with workshop(cgroup_root=path) as made:
            yield made
    finally:
        path.rmdir()


async def test_a_cgroup_proves_that_nothing_is_left_even_of_what_hid(cgroups: Workshop) -> None:
    assert cgroups.custody.containment == "cgroup"
    child, receiver = await cgroups.python(DAEMONISE + "daemonise({}); daemonise({}); sys.stdin.read()")
    helpers = [await pid_from(receiver), await pid_from(receiver)]
    usage = child.usage()
    assert usage is not None
    assert usage.processes == 3
    evidence = await child.retire(Ladder(term_after=0.0, kill_after=0.0))
    assert (evidence.drained, evidence.by, evidence.stragglers) == (True, "cgroup", 2)
    assert not any(alive(pid) for pid in helpers)


async def test_a_cgroup_is_removed_with_its_server(cgroups: Workshop) -> None:
    child, _ = await cgroups.run("cat")
    group = child._incarnation.group
    assert group is not None
    assert group.path.exists()
    await child.retire(QUICK)
    assert not group.path.exists()


async def test_another_servers_cgroup_is_not_touched(cgroups: Workshop) -> None:
    _neighbour, heard = await cgroups.python(DAEMONISE + "daemonise({}); sys.stdin.read()")
    helper = await pid_from(heard)
    child, _ = await cgroups.run("cat")
    assert (await child.retire(QUICK)).drained is True
    assert alive(helper)
