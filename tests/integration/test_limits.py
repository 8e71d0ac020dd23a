"""The limits of a server through the real daemon, where no cgroup controller is delegated: resource limits."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest

from support import unruly
from support.daemon import Daemon
from treadle_client import ServerUnavailable

from .conftest import Serve

PROBE = [sys.executable, "-I", "-S", str(Path(unruly.__file__).with_name("probe_server.py"))]


@pytest.fixture(scope="module")
def daemon(serve_module: Serve) -> Daemon:
    """One daemon for the tests that leave it as it is."""
    limits = {
        "memory": {"memory_mb": 64},
        "files": {"open_files": 32},
        "pids": {"memory_mb": 512, "pids": 10, "open_files": 100},
        "free": {},
    }
    daemon = serve_module({name: {"command": PROBE, "limits": table} for name, table in limits.items()})
    unruly.settle(daemon)
    return daemon


def test_memory_mb_bounds_what_a_process_can_allocate(daemon: Daemon) -> None:
    with daemon.client() as client:
        refused = client.call("memory", "allocate", {"mib": 100})
        assert refused.is_error
        assert "MemoryError" in refused.text
        assert client.call("memory", "allocate", {"mib": 16}).text == "16 MiB"
        assert client.call("free", "allocate", {"mib": 100}).text == "100 MiB"


def test_open_files_bounds_the_descriptors_of_a_process(daemon: Daemon) -> None:
    with daemon.client() as client:
        refused = client.call("files", "open_files", {"number": 40})
        assert refused.is_error
        assert "Too many open files" in refused.text
        assert client.call("files", "open_files", {"number": 20}).text == "20 files"
        assert client.call("free", "open_files", {"number": 40}).text == "40 files"


def test_cpu_seconds_ends_a_process_that_burns_more_and_the_reason_names_the_signal(serve: Serve) -> None:
    daemon = serve({"bounded": {"command": PROBE, "limits": {"cpu_seconds": 1}}})
    with daemon.client() as client, pytest.raises(ServerUnavailable, match="SIGXCPU"):
        client.call("bounded", "spin", timeout=20)
    assert unruly.settle(daemon)["bounded"]["evidence"]["signal"] == "SIGXCPU"


def test_what_is_not_enforced_as_asked_is_said_at_the_start(daemon: Daemon) -> None:
    with daemon.client() as client:
        containment = client.status()["daemon"]["containment"]
    if containment == "cgroup":
        pytest.skip("a cgroup is delegated to this test: everything can be enforced")
    warnings = [line for line in daemon.log().splitlines() if " WARNING " in line and "pids: " in line]
    assert len(warnings) == 2
    assert "pids: limits.memory_mb = 512 bounds each process by itself" in warnings[0]
    assert "pids: limits.pids = 10 is not enforced" in warnings[1]


def test_a_limit_of_one_server_bounds_no_other_and_not_the_daemon(daemon: Daemon) -> None:
    limits = Path(f"/proc/{daemon.pid}/limits").read_text()
    own = Path("/proc/self/limits").read_text()
    assert limits == own


def test_the_daemon_takes_all_descriptors_it_may_have_and_its_servers_keep_the_limit_that_it_came_with(
    serve: Serve,
) -> None:
    def soft_limit(pid: int) -> int:
        lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Max open files")).split()[3])

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert before[1] > 300
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, before[1]))
    try:
        daemon = serve({"one": {"command": PROBE}})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert soft_limit(daemon.pid) == before[1]
    assert soft_limit(unruly.settle(daemon)["one"]["pid"]) == 300
