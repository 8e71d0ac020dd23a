"""Crashes and restarts through the real daemon: nothing grows, nothing overlaps, no call is sent twice."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support import script, unruly
from support.daemon import DEMO, Daemon, toml
from support.unruly import STUBBORN, scripted, until
from treadle_client import BrokerError, Denied, ServerUnavailable

from .conftest import Serve

FAST = {"restart_backoff_ms": 1, "restart_backoff_max_ms": 2, "restart_limit": 1000, "stop_timeout_ms": 500}
COUNTED = Path(unruly.__file__).with_name("counted_daemon.py")


@dataclass
class Measured:
    """What a daemon holds at one moment."""

    descriptors: int
    threads: int
    tasks: int
    rss_kib: int


def measure(daemon: Daemon) -> Measured:
    path = Path(daemon.environ["TREADLE_TEST_TASKS"])
    path.unlink(missing_ok=True)
    os.kill(daemon.pid, signal.SIGUSR1)
    until(path.exists, "the count of tasks")
    pid = daemon.pid
    return Measured(
        unruly.descriptors(pid),
        unruly.status_of(pid, "Threads"),
        int(path.read_text()),
        unruly.status_of(pid, "VmRSS"),
    )


def test_two_hundred_crashes_leave_nothing_behind_in_the_daemon(tmp_path: Path) -> None:
    crash = unruly.shell(f"{unruly.HANDSHAKE} exit 3")
    keys = {"command": crash, "restart": "on-failure", "lazy": True, **FAST}
    daemon = Daemon(tmp_path, toml({"crash": keys}), environ={"TREADLE_TEST_TASKS": str(tmp_path / "tasks")})
    daemon.program = (sys.executable, str(COUNTED))
    with daemon, daemon.client() as client:

        def crashed(times: int) -> None:
            until(lambda: client.status("crash")["servers"][0]["restarts"] >= times, f"{times} restarts", 60)
            client.stop("crash")

        client.ping()
        before = measure(daemon)
        client.start("crash")
        crashed(40)
        warm = measure(daemon)
        client.start("crash")
        crashed(200)
        after = measure(daemon)
        assert after.descriptors == before.descriptors
        assert after.threads == before.threads
        # The supervisor of a lazy server has one task from its beginning.
        assert after.tasks == before.tasks
        assert after.rss_kib - warm.rss_kib < 3 * 1024
        assert unruly.zombies(daemon) == []
    assert daemon.leftovers() == []


def test_a_replacement_starts_only_when_nothing_of_its_predecessor_is_left(serve: Serve, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    overlap = tmp_path / "overlap"
    helper = script.fork(STUBBORN, script.write_pid(pids), script.hang(), setsid=True, double=True)
    look = f"""
    [ -e {pids} ] && while read -r pid; do
      read -r line </proc/$pid/stat && case "$line" in *') Z '*) ;; *) echo $pid >>{overlap} ;; esac
    done <{pids} 2>/dev/null
    exec "$0" "$@"
    """
    command = ["/bin/sh", "-c", look, *scripted(STUBBORN, script.write_pid(pids), helper)]
    daemon = serve({"crash": {"command": command, "restart": "always", **FAST}})
    with daemon.client() as client:
        for nth in range(1, 6):
            unruly.settle(daemon)
            until(lambda nth=nth: len(unruly.pids_in(pids)) == 2 * nth, "server and helper")  # type: ignore[misc]
            pid = client.status("crash")["servers"][0]["pid"]
            os.kill(pid, signal.SIGKILL)
            until(lambda nth=nth: client.status("crash")["servers"][0]["generation"] > nth, "the replacement")  # type: ignore[misc]
        unruly.settle(daemon)
    assert not overlap.exists()


def sent(record: Path) -> list[str]:
    """The texts of the calls that the incarnations of a server received, in order."""
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    return [line["params"]["arguments"]["text"] for line in lines if line.get("method") == "tools/call"]


@pytest.mark.parametrize("end", ["SIGKILL", "exit"])
def test_no_call_is_sent_twice_across_restarts_and_every_failure_says_what_is_known(
    serve: Serve, tmp_path: Path, end: str
) -> None:
    record = tmp_path / "received"
    last = script.kill_self() if end == "SIGKILL" else script.exit(4)
    steps = [script.record(record), script.per_tool("echo", []), script.per_tool("fail", last)]
    daemon = serve({"crash": {"command": scripted(*steps), "restart": "always", **FAST}})
    unruly.settle(daemon)
    outcomes: dict[str, str | None] = {}

    def call(tool: str, text: str) -> None:
        with daemon.client() as client:
            try:
                client.call("crash", tool, {"text": text}, timeout=20)
            except BrokerError as error:
                outcomes[text] = error.outcome
            else:
                outcomes[text] = "answered"

    made: list[str] = []
    for round_ in range(3):
        texts = [f"{round_}.{number}" for number in range(20)]
        callers = [threading.Thread(target=call, args=("echo", text)) for text in texts]
        for caller in callers:
            caller.start()
        with daemon.client() as client:
            until(lambda: client.status("crash")["servers"][0]["in_flight"] == 20, "all in flight")
        call("fail", f"{round_}.last")
        for caller in callers:
            caller.join(10)
        made += [*texts, f"{round_}.last"]
        generation = round_ + 2
        until(lambda n=generation: daemon.server("crash")["generation"] >= n, "the replacement")  # type: ignore[misc]
        unruly.settle(daemon)
    assert outcomes == dict.fromkeys(made, "unknown")
    assert sorted(sent(record)) == sorted(made)


def test_a_call_to_a_server_in_backoff_fails_at_once_and_reaches_no_incarnation(
    serve: Serve, tmp_path: Path
) -> None:
    record = tmp_path / "received"
    backoff = {"restart": "always", "restart_backoff_ms": 60_000}
    daemon = serve({"crash": {"command": scripted(script.record(record)), **backoff}})
    unruly.settle(daemon)
    with daemon.client() as client:
        with pytest.raises(ServerUnavailable):
            client.call("crash", "exit", {"code": 3, "text": "first"})
        until(lambda: daemon.server("crash")["state"] == "backoff", "the backoff")
        with pytest.raises(ServerUnavailable, match=r"backoff.*status 3") as caught:
            client.call("crash", "echo", {"text": "second"})
        assert caught.value.outcome == "not_sent"
        assert client.start("crash")["state"] == "ready"
        assert client.call("crash", "echo", {"text": "third"}).text == "third"
    assert sent(record) == ["first", "third"]


def test_a_crash_loop_is_parked_with_its_reason_and_a_restart_clears_it(serve: Serve, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"restart": "on-failure", **FAST, "restart_limit": 3}
    works_fifth = script.by_start(tmp_path / "starts", {5: []}, script.stderr("no licence\n"), script.exit(9))
    daemon = serve({"crash": {"command": scripted(works_fifth), **keys}})
    until(lambda: daemon.server("crash")["state"] == "parked", "the end of the restarts")
    row = daemon.server("crash")
    assert (row["generation"], row["restarts"]) == (4, 3)
    assert "restart_limit" in row["reason"]
    assert "status 9" in row["reason"]
    assert "no licence" in row["reason"]
    with daemon.client() as client:
        assert client.restart("crash")["state"] == "ready"


def test_a_shutdown_in_the_middle_of_starts_calls_and_backoffs_is_bounded_and_starts_nothing(
    serve: Serve, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    mark = script.write_pid(pids)
    tables: dict[str, dict[str, Any]] = {
        "starting": {"command": scripted(mark, script.on("initialize"))},
        "busy": {"command": scripted(mark, script.per_tool("echo", []))},
        "waiting": {"command": scripted(mark, script.exit(1)), "restart": "always", "restart_backoff_ms": 60_000},
        "looping": {"command": unruly.shell(f"echo $$ >>{pids}; exit 1"), "restart": "always", **FAST},
    }
    daemon = serve(tables, broker={"drain_timeout_ms": 200})
    until(lambda: daemon.server("busy")["state"] == "ready", "busy")

    def call() -> None:
        with daemon.client() as client, pytest.raises(Denied, match="the daemon shut down before the answer"):
            client.call("busy", "echo", timeout=30)

    caller = threading.Thread(target=call)
    caller.start()
    until(lambda: daemon.server("busy")["in_flight"] == 1, "the call")
    until(lambda: daemon.server("waiting")["state"] == "backoff", "the backoff")
    with daemon.client() as client:
        done = client.shutdown()
    count = len(unruly.pids_in(pids))
    caller.join(10)
    assert done["confirmed"]
    assert daemon.process is not None
    assert daemon.process.wait(5) == 0
    assert len(unruly.pids_in(pids)) == count


def test_a_server_refused_for_a_missing_file_starts_once_the_file_is_there(serve: Serve, tmp_path: Path) -> None:
    key = tmp_path / "key"
    daemon = serve({"keyed": {"command": list(DEMO), "env_files": {"THE_KEY": str(key)}}})
    with daemon.client() as client:
        with pytest.raises(ServerUnavailable, match="No such file"):
            client.start("keyed")
        assert daemon.server("keyed")["state"] == "refused"
        key.write_text("s3cret-value")
        assert client.start("keyed")["state"] == "ready"
        assert client.call("keyed", "echo", {"text": "up"}).text == "up"


def test_a_reload_looks_anew_at_a_server_that_was_refused(serve: Serve, tmp_path: Path) -> None:
    key = tmp_path / "key"
    daemon = serve({"keyed": {"command": list(DEMO), "env_files": {"THE_KEY": str(key)}}})
    key.write_text("s3cret-value")
    with daemon.client() as client:
        assert [row["name"] for row in client.reload()["changed"]] == ["keyed"]
        assert client.call("keyed", "echo", {"text": "up"}).text == "up"
