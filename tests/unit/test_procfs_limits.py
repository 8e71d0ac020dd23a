"""Which limit is enforced by what, and where the own cgroup is; from texts and directories alone."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

import pytest

from treadle import cgroup
from treadle.limits import plan


@dataclass(frozen=True)
class Limited:
    memory_mb: int | None = None
    pids: int | None = None
    open_files: int | None = None
    cpu_seconds: int | None = None


def test_no_limits_need_nothing() -> None:
    for limits in (None, Limited()):
        made = plan(limits, {"memory", "pids"})
        assert (made.rlimits, made.cgroup, made.unenforced) == ({}, {}, [])


def test_the_controllers_of_a_cgroup_enforce_memory_and_processes() -> None:
    made = plan(Limited(memory_mb=64, pids=10), {"memory", "pids"})
    assert made.cgroup == {"memory.max": 64 << 20, "pids.max": 10}
    assert made.rlimits == {}
    assert made.unenforced == []


def test_without_controllers_it_is_said_what_is_not_enforced() -> None:
    made = plan(Limited(memory_mb=64, pids=10, open_files=99, cpu_seconds=7), ())
    assert made.rlimits == {"d": 64 * 1024, "n": 99, "t": 7}
    memory, pids = made.unenforced
    assert "limits.memory_mb = 64 bounds each process by itself" in memory
    assert "limits.pids = 10 is not enforced" in pids


def test_a_limit_above_the_hard_one_is_already_enforced_by_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 200))
    assert plan(Limited(open_files=5000), ()).rlimits == {"n": 200}


MOUNTS = """
22 1 0:20 / /proc rw - proc proc rw
30 22 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs rw
31 30 0:27 /{inside} /sys/fs/cgroup/my\\040unified rw shared:9 - cgroup2 cgroup2 rw
"""


def test_the_own_cgroup_is_found_below_its_mount() -> None:
    membership = "9:name=systemd:/x\n0::/system.slice/treadle.service\n"
    found = cgroup.own_cgroup(membership, MOUNTS.replace("{inside}", ""))
    assert found == "/sys/fs/cgroup/my unified/system.slice/treadle.service"


def test_the_own_cgroup_is_found_where_only_a_part_is_mounted() -> None:
    found = cgroup.own_cgroup("0::/system.slice/treadle.service\n", MOUNTS.replace("{inside}", "system.slice"))
    assert found == "/sys/fs/cgroup/my unified/treadle.service"


@pytest.mark.parametrize(
    ("membership", "mounts"),
    [("0::/\n", MOUNTS), ("1:cpu:/a\n", MOUNTS), ("0::/a\n", ""), ("0::/a\n", MOUNTS.replace("{inside}", "b"))],
)
def test_without_a_cgroup_of_its_own_there_is_none(membership: str, mounts: str) -> None:
    assert cgroup.own_cgroup(membership, mounts.replace("{inside}", "")) is None


def test_the_machines_hierarchy_is_never_used_unasked() -> None:
    assert cgroup.delegated() is None or cgroup.delegated() != "/sys/fs/cgroup"


def fake_root(path: Path, controllers: str) -> Path:
    (path / "cgroup.controllers").write_text(controllers)
    (path / "cgroup.subtree_control").write_text("")
    return path


def test_each_controller_is_probed_for_itself(tmp_path: Path) -> None:
    assert cgroup.CgroupRoot(fake_root(tmp_path, "cpu hugetlb")).controllers == frozenset()


def test_a_group_gets_its_limits_and_a_name_that_is_a_plain_directory(tmp_path: Path) -> None:
    group = cgroup.CgroupRoot(fake_root(tmp_path, "")).make("a/../b", {"memory.max": 5})
    assert group.path.parent == tmp_path
    assert (group.path / "memory.max").read_text() == "5"
