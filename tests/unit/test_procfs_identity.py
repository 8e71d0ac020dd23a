"""Which processes of a machine are a recorded server's: the rules of identity, on made-up process tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle import procfs
from treadle.custody import identify
from treadle.procfs import Process
from treadle.record import Held

SERVER = Held(marker="m", server="s", pid=500_000_100, start=1000, cgroup=None)
LEADER = 500_000_100  # beyond any real pid, so that nothing of this machine is read


def process(pid: int, start: int = 2000, ppid: int = 1, number: int | None = None, state: str = "S") -> Process:
    own = pid if number is None else number
    return Process(pid, state, ppid, own, own, cpu=0, threads=1, start=start, rss=0)


def ours(*processes: Process, before: int | None = None) -> dict[int, str]:
    return {one.pid: how for one, _, how in identify([SERVER], list(processes), before)[0]}


def doubtful(*processes: Process, before: int | None = None) -> list[int]:
    return [one.pid for one, _ in identify([SERVER], list(processes), before)[1]]


def test_the_recorded_pid_with_its_start_time_is_ours() -> None:
    assert ours(process(LEADER, start=1000)) == {LEADER: "pid and start time"}


@given(st.integers(0, 10_000).filter(lambda start: start != 1000))
def test_the_recorded_pid_with_another_start_time_is_a_stranger(start: int) -> None:
    assert ours(process(LEADER, start=start)) == {}
    assert doubtful(process(LEADER, start=start)) == []


def test_a_session_is_ours_while_its_recorded_leader_lives() -> None:
    assert ours(process(LEADER, start=1000), process(7_000_001, number=LEADER))[7_000_001] == "session"


def test_a_session_under_a_recycled_number_is_a_strangers() -> None:
    table = (process(LEADER, start=3000), process(7_000_001, start=3001, number=LEADER))
    assert ours(*table) == {}
    assert doubtful(*table) == []


def test_a_session_without_its_leader_is_doubtful_and_not_ours() -> None:
    assert ours(process(7_000_001, number=LEADER)) == {}
    assert doubtful(process(7_000_001, number=LEADER)) == [7_000_001]


def test_at_the_moment_of_the_daemons_death_a_session_is_proof() -> None:
    assert ours(process(7_000_001, start=2000, number=LEADER), before=2000) == {7_000_001: "session"}
    assert doubtful(process(7_000_001, start=2001, number=LEADER), before=2000) == [7_000_001]


def test_what_is_older_than_the_leader_is_never_ours() -> None:
    assert ours(process(7_000_001, start=999, number=LEADER), before=5000) == {}
    assert doubtful(process(7_000_001, start=999, number=LEADER)) == []


def test_descendants_are_ours_whatever_session_they_are_in() -> None:
    table = (process(LEADER, start=1000), process(7_000_001, ppid=LEADER), process(7_000_002, ppid=7_000_001))
    assert ours(*table) == {LEADER: "pid and start time", 7_000_001: "parent", 7_000_002: "parent"}


def test_the_mark_is_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "variable", lambda pid, _: {7_000_001: "m", 7_000_002: "other"}.get(pid))
    assert ours(process(7_000_001), process(7_000_002), process(7_000_003)) == {7_000_001: "mark"}


def test_a_zombie_needs_no_end() -> None:
    assert ours(process(LEADER, start=1000, state="Z")) == {}
