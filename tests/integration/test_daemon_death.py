"""The daemon itself is killed: nothing of its servers is left shortly afterwards, whatever they are like."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support import script, unruly
from support.daemon import Daemon, toml
from support.unruly import STUBBORN, launched, nothing_left, scripted, untied, until
from treadle import procfs
from treadle.record import MARK, read_record
from treadle_client import BrokerError

Tables = dict[str, dict[str, Any]]
HANG = script.per_tool("echo", [])
KINDS: dict[str, list[str]] = {
    "clean": scripted(HANG),
    "ignoring": scripted(STUBBORN, HANG),
    "untied": untied(STUBBORN, HANG),
    "untied_session": untied(STUBBORN, HANG, setsid=True),
    "double_fork": scripted(STUBBORN, HANG, script.fork(STUBBORN, script.hang(), setsid=True, double=True)),
    "helper": untied(STUBBORN, HANG, script.fork(STUBBORN, script.hang(), keep_fds=(0, 1, 2))),
    "launcher": launched(HANG),
    "launcher_of_untied": ["/bin/sh", "-c", '"$0" "$@"; true', *untied(STUBBORN, HANG)],
}
STUBBORN_KINDS = [kind for kind in KINDS if kind not in ("clean", "launcher")]


def mixed(count: int) -> Tables:
    names = list(KINDS)
    kinds = [names[number % len(names)] for number in range(count)]
    return {f"{kind}_{at}": {"command": KINDS[kind], "stop_timeout_ms": 3000} for at, kind in enumerate(kinds)}


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[list[Daemon]]:
    """Daemons that a test kills; whatever survives a failing test is ended here."""
    made: list[Daemon] = []
    yield made
    for daemon in made:
        if daemon.process is not None and daemon.process.poll() is None:
            daemon.stop()
        for pid in daemon.leftovers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def prepare(daemons: list[Daemon], folder: Path, tables: Tables, **keys: Any) -> Daemon:
    folder.mkdir(exist_ok=True)
    daemon = Daemon(folder, toml(tables, keys or None))
    daemons.append(daemon)
    return daemon


def slay(daemon: Daemon) -> None:
    """kill -9, and reap."""
    assert daemon.process is not None
    daemon.process.kill()
    daemon.process.wait(10)


def slay_guard_first(daemon: Daemon) -> None:
    """The daemon is stopped meanwhile, so that it cannot start another guard."""
    guard = unruly.guard_of(daemon)
    os.kill(daemon.pid, signal.SIGSTOP)
    os.kill(guard, signal.SIGKILL)
    until(lambda: (seen := procfs.read(guard)) is None or not seen.alive, "the guard's end")
    slay(daemon)


def record_of(daemon: Daemon) -> Path:
    (path,) = (daemon.state / "treadle").glob("record-*.json")
    return path


def test_nothing_is_left_of_twenty_servers_after_kill_9(daemons: list[Daemon], tmp_path: Path) -> None:
    daemon = prepare(daemons, tmp_path / "d", mixed(20))
    daemon.start()
    rows = unruly.settle(daemon)
    assert {row["state"] for row in rows.values()} == {"ready"}
    guard = unruly.guard_of(daemon)
    before = unruly.family(daemon)
    assert len(before) > 30
    slay(daemon)
    nothing_left(daemon)
    until(lambda: procfs.read(guard) is None or not procfs.read(guard).alive, "the guard's end")  # type: ignore[union-attr]
    assert [one for one in before if (now := procfs.read(one.pid)) and now.key == one.key and now.alive] == []


def test_nothing_is_left_after_kill_9_while_servers_start(daemons: list[Daemon], tmp_path: Path) -> None:
    slow = [script.expect("initialize"), script.sleep(60)]
    tables = mixed(6) | {"slow": {"command": untied(STUBBORN, slow)}}
    daemon = prepare(daemons, tmp_path / "d", tables)
    for count in (1, 4, 7):
        daemon.start()
        until(lambda count=count: len(unruly.family(daemon)) > count, "some servers spawned")  # type: ignore[misc]
        slay(daemon)
        nothing_left(daemon)


def test_nothing_is_left_after_kill_9_during_calls_and_every_caller_hears_of_it(
    daemons: list[Daemon], tmp_path: Path
) -> None:
    tables = mixed(len(KINDS))
    daemon = prepare(daemons, tmp_path / "d", tables)
    daemon.start()
    unruly.settle(daemon)
    outcomes: list[BrokerError] = []

    def call(name: str) -> None:
        with daemon.client() as client, pytest.raises(BrokerError) as caught:
            client.call(name, "echo", timeout=30)
        outcomes.append(caught.value)

    callers = [threading.Thread(target=call, args=(name,)) for name in tables]
    for caller in callers:
        caller.start()
    with daemon.client() as client:
        until(lambda: client.status()["daemon"]["in_flight"] >= len(tables), "all calls in flight")
    slay(daemon)
    for caller in callers:
        caller.join(10)
    assert [(error.code, error.outcome) for error in outcomes] == [("unreachable", "unknown")] * len(tables)
    nothing_left(daemon)


@pytest.mark.parametrize("survivor", ["guard", "next start"])
def test_nothing_is_left_after_kill_9_during_shutdown(
    daemons: list[Daemon], tmp_path: Path, survivor: str
) -> None:
    daemon = prepare(daemons, tmp_path / "d", mixed(len(KINDS)))
    daemon.start()
    unruly.settle(daemon)
    os.kill(daemon.pid, signal.SIGTERM)
    until(lambda: "shutting down" in daemon.log(), "the shutdown begun")
    if survivor == "guard":
        slay(daemon)
    else:
        slay_guard_first(daemon)
        assert daemon.leftovers() != []
        daemon.config.write_text(toml({}))
        daemon.start()
        daemon.stop()
    nothing_left(daemon)


def test_with_the_guard_killed_first_the_next_start_ends_what_survived_before_it_spawns(
    daemons: list[Daemon], tmp_path: Path
) -> None:
    daemon = prepare(daemons, tmp_path / "d", mixed(len(KINDS)))
    daemon.start()
    unruly.settle(daemon)
    slay_guard_first(daemon)
    until(lambda: not any(procfs.read(pid) is None for pid in daemon.leftovers()), "a steady look")
    survivors = daemon.leftovers()
    assert len(survivors) >= 4
    pids = tmp_path / "pids"
    # The successor's only server looks whether any survivor still runs at the moment of its own start.
    look = f"""
    for pid in {" ".join(map(str, survivors))}; do
      read -r line </proc/$pid/stat && case "$line" in *') Z '*) ;; *) echo $pid >>{pids} ;; esac
    done 2>/dev/null
    """
    daemon.config.write_text(toml({"fresh": {"command": unruly.shell(f"{look}{unruly.HANDSHAKE}cat >&2")}}))
    daemon.start()
    assert unruly.settle(daemon)["fresh"]["state"] == "ready"
    assert not pids.exists()
    log = daemon.log()
    for kind in ("untied", "untied_session", "helper", "launcher_of_untied"):
        assert f"left by an earlier daemon: server {kind}_" in log
    assert log.count("and was killed") >= 4
    assert log.index("left by an earlier daemon") < log.rindex("fresh: ready")
    daemon.stop()
    assert daemon.leftovers() == []


def test_an_orphan_that_shed_session_and_mark_is_ended_after_kill_9_too(
    daemons: list[Daemon], tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    daemon = prepare(daemons, tmp_path / "d", {"escaping": {"command": unruly.escaping(pids)}})
    daemon.start()
    assert unruly.settle(daemon)["escaping"]["state"] == "ready"
    until(lambda: unruly.pids_in(pids), "the orphan")
    (orphan,) = unruly.pids_in(pids)
    until(lambda: f'"pid": {orphan}' in record_of(daemon).read_text(), "the record of it")
    slay(daemon)
    until(lambda: (seen := procfs.read(orphan)) is None or not seen.alive, "the orphan's end")
    nothing_left(daemon)


def test_a_guard_that_dies_is_reported_reaped_and_replaced(daemons: list[Daemon], tmp_path: Path) -> None:
    daemon = prepare(daemons, tmp_path / "d", {"untied": {"command": KINDS["untied"]}})
    daemon.start()
    unruly.settle(daemon)
    first = unruly.guard_of(daemon)
    os.kill(first, signal.SIGKILL)
    until(lambda: f"the guard (process {first}) ended; another one takes its place" in daemon.log(), "the report")
    assert unruly.zombies(daemon) == []
    assert unruly.guard_of(daemon) != first
    slay(daemon)
    nothing_left(daemon)


def test_two_daemons_with_one_state_directory_never_end_each_others_servers(
    daemons: list[Daemon], tmp_path: Path
) -> None:
    tables: Tables = {"untied": {"command": KINDS["untied"], "stop_timeout_ms": 300}}
    state = str(tmp_path / "shared")
    one = prepare(daemons, tmp_path / "one", tables, state_dir=state)
    two = prepare(daemons, tmp_path / "two", tables, state_dir=state)
    one.start()
    kept = unruly.settle(one)["untied"]["pid"]
    for end in (slay, slay_guard_first, lambda daemon: daemon.stop()):
        two.start()
        unruly.settle(two)
        end(two)
        assert procfs.read(kept) is not None
    two.start()  # recovers what the one without a guard had left
    assert "left by an earlier daemon" in two.log()
    two.stop()
    nothing_left(two)
    assert one.server("untied")["pid"] == kept
    with one.client() as client:
        assert client.stop("untied")["evidence"]["signal"] in ("SIGTERM", "SIGKILL")
    one.stop()
    nothing_left(one)


def test_a_pid_group_or_session_that_was_handed_out_again_is_spared_by_the_next_start(
    daemons: list[Daemon], tmp_path: Path
) -> None:
    daemon = prepare(daemons, tmp_path / "d", {"clean": {"command": KINDS["clean"]}})
    daemon.start()
    unruly.settle(daemon)
    slay_guard_first(daemon)
    nothing_left(daemon)
    # A stranger leads a session and group under the number of the recorded server, and has a child in them.
    command = ["/bin/sh", "-c", "sleep 60 & wait"]
    with subprocess.Popen(command, start_new_session=True) as stranger:
        until(lambda: procfs.children(stranger.pid), "the stranger's child")
        path = record_of(daemon)
        path.write_text(path.read_text().replace(f'"pid": {held_pid(path)}', f'"pid": {stranger.pid}'))
        assert held_pid(path) == stranger.pid
        child = procfs.children(stranger.pid)[0].pid
        daemon.start()
        unruly.settle(daemon)
        daemon.stop()
        spared = [stranger.poll() is None, procfs.read(child) is not None]
        os.killpg(stranger.pid, signal.SIGKILL)
    assert spared == [True, True]
    assert "left by an earlier daemon" not in daemon.log()


def held_pid(path: Path) -> int | None:
    record = read_record(path)
    assert record is not None
    (held,) = record.held
    return held.pid


def test_a_torn_record_is_reported_and_does_not_stop_the_start(daemons: list[Daemon], tmp_path: Path) -> None:
    daemon = prepare(daemons, tmp_path / "d", {"clean": {"command": KINDS["clean"]}})
    daemon.start()
    path = record_of(daemon)
    slay(daemon)
    nothing_left(daemon)
    path.write_text('{"format": 1, "boot"')
    daemon.start()
    assert unruly.settle(daemon)["clean"]["state"] == "ready"
    assert f"the custody record {path} is torn or was not written by this program; it was ignored" in daemon.log()
    daemon.stop()
    assert not path.exists()


def test_the_guard_of_a_killed_daemon_spares_everybody_who_is_not_in_its_record(
    daemons: list[Daemon], tmp_path: Path
) -> None:
    daemon = prepare(daemons, tmp_path / "d", {"clean": {"command": KINDS["clean"]}})
    daemon.start()
    guard = unruly.guard_of(daemon)
    with subprocess.Popen(["/bin/sleep", "60"], start_new_session=True, env={MARK: "another"}) as bystander:
        slay(daemon)
        until(lambda: (seen := procfs.read(guard)) is None or not seen.alive, "the guard's end")
        spared = bystander.poll() is None
        bystander.kill()
    assert spared


def test_a_guard_that_is_stopped_is_continued_and_one_that_is_stopped_again_is_replaced(
    daemons: list[Daemon], tmp_path: Path
) -> None:
    daemon = prepare(daemons, tmp_path / "stopped", {"clean": {"command": KINDS["clean"]}})
    daemon.start()
    unruly.settle(daemon)
    guard = unruly.guard_of(daemon)
    os.kill(guard, signal.SIGSTOP)
    until(
        lambda: f"the guard (process {guard}) was stopped by somebody; it is continued" in daemon.log(), "the word"
    )
    os.kill(guard, signal.SIGSTOP)
    until(lambda: f"the guard (process {guard}) ended; another one takes its place" in daemon.log(), "the report")
    until(lambda: unruly.guard_of(daemon) != guard, "another guard")
