"""The end of every kind of server through the real daemon: what it is proven by, and that nothing is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support import script, unruly
from support.daemon import Daemon, toml
from support.unruly import STUBBORN, launched, scripted, untied, until
from treadle import procfs
from treadle_client import CallTimedOut, ServerUnavailable

from .conftest import Serve

QUICK = {"stop_timeout_ms": 500}
# A server with a family takes longer to end, and to be proven gone, than a budget of one millisecond.
SLOW_TO_DIE = {"command": scripted([script.fork(STUBBORN, script.hang())] * 20, STUBBORN)}
GRACEFUL = script.trap("SIGTERM", script.sleep(0.05), script.exit(3))
ENDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # server: what is configured, what its evidence must say
    "polite": ({"command": scripted()}, {"status": 0, "rung": "eof", "stragglers": 0}),
    "slow_at_eof": (
        {"command": scripted(script.on_eof(script.sleep(0.1), script.exit(0)))},
        {"status": 0, "rung": "eof"},
    ),
    "ignores_eof": ({"command": scripted(script.on_eof()), **QUICK}, {"signal": "SIGTERM", "rung": "term"}),
    "ignores_all": ({"command": scripted(STUBBORN), **QUICK}, {"signal": "SIGKILL", "rung": "kill"}),
    "exits_in_term_grace": (
        {
            "command": scripted(script.on_eof(), script.trap("SIGTERM", script.sleep(0.05), script.exit(3))),
            **QUICK,
        },
        {"status": 3, "rung": "term"},
    ),
    "launcher": ({"command": launched()}, {"status": 0, "rung": "eof", "stragglers": 0}),
    "launcher_of_stubborn": (
        {"command": launched(STUBBORN), **QUICK},
        {"signal": "SIGTERM", "rung": "term", "stragglers": 1},
    ),
    "helper": (
        {"command": scripted(script.fork(STUBBORN, script.hang())), **QUICK},
        {"status": 0, "rung": "eof", "stragglers": 1},
    ),
    "double_fork": (
        {"command": scripted(script.fork(STUBBORN, script.hang(), setsid=True, double=True)), **QUICK},
        {"status": 0, "rung": "eof", "stragglers": 1},
    ),
    "untied_session": (
        {"command": untied(STUBBORN, setsid=True), **QUICK},
        {"signal": "SIGTERM", "rung": "term", "stragglers": 1},
    ),
    "stopped": (
        {"command": scripted(STUBBORN, script.per_tool("echo", script.stop_self())), **QUICK},
        {"signal": "SIGKILL", "rung": "kill"},
    ),
}


@dataclass
class Ended:
    """What a daemon said about the end of its servers, and what was left."""

    told: dict[str, dict[str, Any]]
    confirmed: bool
    log: str
    left: list[int]
    status: int


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    """One daemon with all of ENDS, shut down."""
    folder = tmp_path_factory.mktemp("ends")
    with Daemon(folder, toml({name: table for name, (table, _) in ENDS.items()})) as daemon:
        rows = unruly.settle(daemon)
        assert {row["state"] for row in rows.values()} == {"ready"}, rows
        with daemon.client() as client:
            with pytest.raises(CallTimedOut):
                client.call("stopped", "echo", timeout=0.2)
            done = client.shutdown()
        assert daemon.process is not None
        status = daemon.process.wait(10)
        told = {row["name"]: row["evidence"] for row in done["servers"]}
        yield Ended(told, done["confirmed"], daemon.log(), daemon.leftovers(), status)


@pytest.mark.parametrize("name", ENDS)
def test_shutdown_tells_the_end_of_every_server_and_the_log_says_the_same(ended: Ended, name: str) -> None:
    told = ended.told[name]
    expected = {"kind": "exited", "drained": True, "by": "sweep", **ENDS[name][1]}
    assert expected.items() <= told.items()
    line = next(line for line in ended.log.splitlines() if f"{name}: retired:" in line)
    assert told.get("signal", f"status {told.get('status')}") in line
    assert "no descendant left" in line
    if told["stragglers"]:
        assert f"{told['stragglers']} straggler killed" in line


def test_nothing_is_left_and_the_daemon_ends_well(ended: Ended) -> None:
    assert ended.confirmed
    assert ended.left == []
    assert ended.status == 0


@pytest.mark.skipif(not unruly.HAS_NPX, reason="npx is not installed")
def test_a_server_behind_npx_ends_whole(serve: Serve, tmp_path: Path) -> None:
    daemon = serve({"wrapped": {**unruly.npx(tmp_path / "package", STUBBORN), "stop_timeout_ms": 500}})
    row = unruly.settle(daemon)["wrapped"]
    assert row["state"] == "ready", row
    assert len(procfs.descendants(row["pid"])) >= 1  # npx and npm do not become the server
    with daemon.client() as client:
        told = client.stop("wrapped")
    assert told["evidence"]["kind"] == "exited"
    assert told["evidence"]["drained"] is True
    assert told["evidence"]["stragglers"] >= 1
    assert [process.pid for process in unruly.family(daemon)] == [unruly.guard_of(daemon)]


def test_a_helper_that_holds_stdout_does_not_hide_the_exit(serve: Serve) -> None:
    holding = scripted(script.fork(script.sleep(60), keep_fds=(1, 2), setsid=True))
    daemon = serve({"held": {"command": holding, **QUICK}})
    unruly.settle(daemon)
    with daemon.client(timeout=30) as client:  # the helper holds it for twice as long
        with pytest.raises(ServerUnavailable, match="status 5") as caught:
            client.call("held", "exit", {"code": 5})
        assert caught.value.outcome == "unknown"
    row = unruly.settle(daemon)["held"]
    assert (row["evidence"]["status"], row["evidence"]["rung"]) == (5, "itself")
    assert (row["evidence"]["drained"], row["evidence"]["stragglers"]) == (True, 1)


def test_stop_returns_the_evidence_and_restart_that_of_the_old_incarnation(serve: Serve) -> None:
    daemon = serve({"one": {"command": scripted()}})
    old = unruly.settle(daemon)["one"]["pid"]
    with daemon.client() as client:
        again = client.restart("one")
        assert (again["name"], again["state"]) == ("one", "ready")
        assert again["evidence"].items() >= {"kind": "exited", "status": 0, "rung": "eof", "drained": True}.items()
        assert daemon.server("one")["pid"] != old
        stopped = client.stop("one")
        assert (stopped["name"], stopped["state"]) == ("one", "retired")
        assert stopped["evidence"].items() >= {"kind": "exited", "status": 0, "rung": "eof"}.items()
        assert "error" not in stopped
        assert daemon.server("one")["evidence"] == stopped["evidence"]


def test_an_end_without_evidence_in_time_is_named_and_still_ended(serve: Serve) -> None:
    daemon = serve({"slow_to_die": SLOW_TO_DIE, "good": {"command": scripted()}})
    unruly.settle(daemon)
    with daemon.client() as client:
        told = client.stop("slow_to_die", within=0.001)
        assert told["error"] == "retirement_timed_out"
        assert "evidence" not in told
    # Custody goes on: the evidence comes, and only then may a replacement start.
    until(lambda: daemon.server("slow_to_die")["state"] == "retired", "the late evidence")
    assert daemon.server("slow_to_die")["evidence"]["signal"] == "SIGKILL"


def test_shutdown_names_a_server_whose_end_is_not_proven_in_time_and_the_daemon_then_kills_it(
    serve: Serve,
) -> None:
    daemon = serve({"slow_to_die": SLOW_TO_DIE})
    unruly.settle(daemon)
    with daemon.client() as client:
        done = client.shutdown(within=0.001)
    assert done["confirmed"] is False
    assert done["servers"] == [{"name": "slow_to_die", "error": "retirement_timed_out"}]
    assert daemon.process is not None
    assert daemon.process.wait(10) == 0  # the evidence came late, but it came
    assert "no evidence in time of the end of slow_to_die" in daemon.log()
    assert "slow_to_die: retired late: killed by SIGKILL" in daemon.log()


def test_a_server_that_was_never_started_has_the_evidence_no_resource(serve: Serve) -> None:
    table = {"lazy": {"command": scripted(), "lazy": True}, "off": {"command": scripted(), "enabled": False}}
    daemon = serve(table)
    with daemon.client() as client:
        done = client.shutdown()
    assert done["confirmed"]
    assert [row["evidence"]["kind"] for row in done["servers"]] == ["no_resource", "no_resource"]


def test_fifty_servers_start_at_once_and_ten_failures_disturb_none_of_the_others(serve: Serve) -> None:
    good = unruly.shell(unruly.HANDSHAKE + "while read -r line; do :; done")
    bad = unruly.shell("echo broken >&2; exit 7")
    tables = {f"s{number}": {"command": bad if number % 5 == 0 else good} for number in range(50)}
    daemon = serve(tables)
    rows = unruly.settle(daemon)
    assert [name for name, row in rows.items() if row["state"] == "ready"] == [
        f"s{number}" for number in range(50) if number % 5
    ]
    failed = [row for row in rows.values() if row["state"] == "retired"]
    assert len(failed) == 10
    assert all("status 7" in row["reason"] and "broken" in row["reason"] for row in failed)
    assert unruly.zombies(daemon) == []
    with daemon.client() as client:
        done = client.shutdown()
    assert done["confirmed"]
    assert len(done["servers"]) == 50


def test_a_second_signal_skips_the_drain_and_a_third_kills(serve: Serve) -> None:
    daemon = serve(
        {"busy": {"command": scripted(STUBBORN), "stop_timeout_ms": 20_000}}, broker={"drain_timeout_ms": 20_000}
    )
    pid = unruly.settle(daemon)["busy"]["pid"]
    assert daemon.process is not None
    for number in range(3):
        os.kill(daemon.pid, signal.SIGTERM)
        until(lambda seen=number: daemon.log().count("shutting down") > seen, "the signal taken")  # type: ignore[misc]
    assert daemon.process.wait(5) == 0
    assert procfs.read(pid) is None
    assert "busy: retired: killed by SIGKILL" in daemon.log()
