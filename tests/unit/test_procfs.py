"""Reading /proc, and signals that never reach a recycled pid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle import procfs
from treadle.procfs import Process


def process(pid: int, ppid: int = 1, **fields: int) -> Process:
    base = Process(pid=pid, state="S", ppid=ppid, pgrp=pid, session=pid, cpu=0, threads=1, start=100, rss=0)
    return base._replace(**fields)


@given(st.binary(max_size=40))
def test_a_process_name_cannot_forge_the_fields_after_it(name: bytes) -> None:
    rest = b"S 7 8 9 0 -1 4194560 1 2 3 4 30 12 0 0 20 0 3 0 98765 1000 55 0 0"
    read = procfs.parse_stat(b"4711 (" + name + b") " + rest)
    assert read == Process(4711, "S", 7, 8, 9, 42, 3, 98765, 55)


@pytest.mark.parametrize("line", [b"", b"1 (x", b"1 (x) S 1 2", b"x (y) " + b"S " * 30])
def test_what_is_no_stat_line_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        procfs.parse_stat(line)


def test_the_own_process_is_read_as_it_is() -> None:
    own = procfs.read(os.getpid())
    assert own is not None
    assert (own.pid, own.ppid, own.pgrp, own.session) == (os.getpid(), os.getppid(), os.getpgrp(), os.getsid(0))
    assert own.alive
    assert own.rss > 0


def test_a_zombie_is_dead_but_a_leader_thread_that_ended_first_is_not() -> None:
    assert not process(5)._replace(state="Z").alive
    assert process(5)._replace(state="Z", threads=2).alive


def test_below_follows_the_chain_of_parents() -> None:
    tree = [process(2), process(3, 2), process(4, 3), process(5), process(6, 5)]
    assert {one.pid for one in procfs.below({2}, tree)} == {3, 4}


def test_below_ends_even_when_the_reading_was_torn_into_a_circle() -> None:
    assert {one.pid for one in procfs.below({2}, [process(2, 3), process(3, 2)])} == {3}


def test_children_and_descendants_are_found() -> None:
    with subprocess.Popen(["/bin/sh", "-c", "sleep 60 & echo ready; wait"], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in {one.pid for one in procfs.children(os.getpid())}
        (sleeper,) = procfs.children(child.pid)
        assert {child.pid, sleeper.pid} <= {one.pid for one in procfs.descendants(os.getpid())}
        assert procfs.kill(sleeper)


def test_the_search_without_children_files_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["/bin/sh", "-c", "sleep 60 & echo ready; wait"], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = {one.pid for one in procfs.descendants(child.pid)}
        with monkeypatch.context() as patch:
            patch.setattr(procfs, "_has_children_files", lambda: False)
            assert {one.pid for one in procfs.children(child.pid)} == found
            assert {one.pid for one in procfs.descendants(child.pid)} == found
        for one in procfs.children(child.pid):
            assert procfs.kill(one)


def test_a_variable_of_the_environment_is_read() -> None:
    with subprocess.Popen(
        ["/bin/sh", "-c", "echo; read x"], stdin=-1, stdout=-1, env={"A": "1", "AB": "x=y"}
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert procfs.variable(child.pid, "AB") == "x=y"
        assert procfs.variable(child.pid, "B") is None
        child.kill()


def test_a_process_that_may_not_be_read_has_no_variables() -> None:
    assert procfs.variable(2**22 + 1, "PATH") is None


def test_a_signal_reaches_the_process_that_was_looked_at() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        seen = procfs.read(child.pid)
        assert seen is not None
        assert procfs.kill(seen)
        assert child.wait() == -signal.SIGKILL
        assert not procfs.kill(seen)


def test_a_recycled_pid_is_never_signalled() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        seen = procfs.read(child.pid)
        assert seen is not None
        assert not procfs.kill(seen._replace(start=seen.start - 1))
        assert child.poll() is None
        child.kill()


def test_the_numbers_handed_out_since_are_told_newest_first_across_their_end() -> None:
    assert list(procfs.handed_out(7, 7)) == []
    assert list(procfs.handed_out(7, 10)) == [10, 9, 8]
    largest = int(Path("/proc/sys/kernel/pid_max").read_text())
    assert list(procfs.handed_out(largest - 2, 2)) == [2, 1, largest, largest - 1]
