"""What the daemon does when its own protection cannot be had, and when its own start goes wrong."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import script, unruly
from support.daemon import Daemon, toml
from support.unruly import STUBBORN, scripted, until
from treadle import procfs

SERVER = {"command": scripted()}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that is not started yet, with one server."""
    made = Daemon(tmp_path, toml({"one": SERVER}))
    yield made
    if made.process is not None:
        made.stop()
    assert made.leftovers() == []


def patched(code: str) -> tuple[str, ...]:
    """``treadle`` with something of it replaced."""
    return (sys.executable, "-c", f"{code}\nfrom treadle.cli import main\nmain()")


# Nothing short of the kernel makes a process unkillable: the daemon is made to see one more descendant.
UNPROVABLE = patched(
    "from treadle.tree import Custody, Drain\n"
    "async def drain(self, *_, **__): return Drain(False, 'sweep', 0)\n"
    "Custody.drain = Custody.end_strangers = drain"
)


def serves(daemon: Daemon) -> None:
    daemon.start()
    with daemon.client() as client:
        assert client.call("one", "echo", {"text": "served"}).text == "served"
    assert daemon.stop() == 0
    assert "Traceback" not in daemon.log()


def test_without_a_state_directory_service_goes_on_and_what_is_missing_is_said(daemon: Daemon) -> None:
    daemon.config.write_text(toml({"one": SERVER}, {"state_dir": "/proc/treadle-nowhere"}))
    serves(daemon)
    errors = [line for line in daemon.log().splitlines() if " ERROR " in line]
    assert len(errors) == 3
    assert "cannot make the state directory /proc/treadle-nowhere" in errors[0]
    assert "cannot write the custody record /proc/treadle-nowhere/" in errors[1]
    assert "what its servers leave will not be found" in errors[1]
    assert "one: runs in /, cannot make /proc/treadle-nowhere/servers/one" in errors[2]


def mounting(command: str) -> tuple[str, ...]:
    """What runs a program in a mount namespace of its own, after ``command`` of the shell; else the test is
    skipped."""
    unshare = ("unshare", "--mount", "/bin/sh", "-c", f'{command}; exec "$@"', "sh")
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no mount namespace can be made here")
    return unshare


@pytest.fixture
def frozen_daemon(daemon: Daemon) -> Daemon:
    """A daemon whose state directory, with the record of an earlier one in it, cannot be written."""
    daemon.start()
    daemon.stop(signal.SIGKILL)
    state = daemon.state / "treadle"
    assert list(state.glob("record-*"))
    daemon.program = (*mounting(f"mount --bind -o ro {state} {state}"), *daemon.program)
    return daemon


def test_on_a_read_only_state_directory_the_daemon_serves_and_ends_well(frozen_daemon: Daemon) -> None:
    serves(frozen_daemon)
    (record,) = (frozen_daemon.state / "treadle").glob("record-*")
    assert f"cannot remove the custody record {record}: Read-only file system" in frozen_daemon.log()


def test_a_state_directory_that_becomes_read_only_does_not_spoil_the_end(daemon: Daemon) -> None:
    state = daemon.state / "treadle"
    state.mkdir(parents=True)
    daemon.program = (*mounting(f"mount --bind {state} {state}"), *daemon.program)
    daemon.start()
    unruly.settle(daemon)
    remount = ["nsenter", "--mount", "--target", str(daemon.pid), "mount", "-o", "remount,bind,ro", str(state)]
    subprocess.run(remount, check=True, capture_output=True)
    with daemon.client() as client:
        assert client.shutdown()["confirmed"] is True
    assert daemon.stop() == 0
    assert "cannot remove the custody record" in daemon.log()
    assert "Traceback" not in daemon.log()


def test_a_wrong_audit_log_is_told_although_the_end_goes_wrong_too(frozen_daemon: Daemon) -> None:
    audit = frozen_daemon.state / "treadle" / "audit.log"
    frozen_daemon.config.write_text(toml({"one": SERVER}, {"audit_log": str(audit)}))
    command = [*frozen_daemon.program, "serve", "--config", str(frozen_daemon.config)]
    done = subprocess.run(
        command, env=frozen_daemon.environ, capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 2
    assert f"{audit} cannot be written: Read-only file system" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_costs_the_record_alone(daemon: Daemon, tmp_path: Path) -> None:
    state = tmp_path / "full"
    state.mkdir()
    fill = f"mount -t tmpfs -o size=16k,mode=700 none {state} && head -c 1M /dev/zero >{state}/filler"
    unshare = mounting(f"{fill} 2>/dev/null")
    daemon.config.write_text(toml({"one": SERVER}, {"state_dir": str(state)}))
    daemon.program = (*unshare, *daemon.program)
    serves(daemon)
    assert "cannot write the custody record" in daemon.log()
    assert "No space left on device" in daemon.log()


def test_without_a_guard_service_goes_on_and_what_is_missing_is_said(daemon: Daemon) -> None:
    daemon.program = patched(
        "from treadle.custody import Guard\n"
        "def start(record): raise BlockingIOError(11, 'Resource temporarily unavailable')\n"
        "Guard.start = start"
    )
    serves(daemon)
    (error,) = [line for line in daemon.log().splitlines() if " ERROR " in line]
    assert "no guard runs: Resource temporarily unavailable" in error


NO_THREADS = patched(
    "import threading\n"
    'def start(self): raise RuntimeError("can\'t start new thread")\n'
    "threading.Thread.start = start"
)


def test_without_threads_the_daemon_does_all_its_work_on_the_loop(daemon: Daemon, tmp_path: Path) -> None:
    audit = tmp_path / "audit.log"
    daemon.config.write_text(toml({"one": SERVER}, {"audit_log": str(audit)}))
    daemon.program = NO_THREADS
    daemon.start()
    with daemon.client() as client:
        large = "x" * 300_000
        assert client.call("one", "echo", {"text": large}).text == large
        assert "echo" in client.generate("one", "python")["source"]
        until(lambda: len(audit.read_text().splitlines()) == 1, "the line of the call")
    assert daemon.stop() == 0
    assert "Traceback" not in daemon.log()
    assert daemon.log().count("no thread can be started") == 2


def test_without_threads_the_metrics_are_refused_in_one_line(daemon: Daemon) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [*NO_THREADS, "serve", "--config", str(daemon.config), "--metrics-port", port]
    done = subprocess.run(command, env=daemon.environ, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert "cannot serve the metrics: can't start new thread" in done.stderr
    assert "Traceback" not in done.stderr
    assert daemon.leftovers() == []


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("file", "it, or a directory above it, is a file"),
        ("below a file", "it, or a directory above it, is a file"),
        ("foreign", "it belongs to another account (uid 12345)"),
        ("open", "other accounts can write to it"),
    ],
)
def test_a_state_directory_that_must_not_be_used_ends_the_start_with_one_message(
    daemon: Daemon, tmp_path: Path, kind: str, message: str
) -> None:
    state = tmp_path / "bad"
    if kind in ("file", "below a file"):
        state.write_text("")
        state = state / "below" if kind == "below a file" else state
    else:
        state.mkdir()
        if kind == "open":
            state.chmod(0o777)
        elif os.geteuid() == 0:
            os.chown(state, 12345, -1)
        else:
            pytest.skip("only root can give a directory away")
    daemon.config.write_text(toml({"one": SERVER}, {"state_dir": str(state)}))
    done = daemon.cli("serve", "--config", str(daemon.config))
    assert done.returncode == 2
    assert f"the state directory {state} cannot be used: {message}" in done.stderr
    assert "state_dir" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("cannot be used: ") == 1
    assert daemon.leftovers() == []
    assert not Path(daemon.socket).exists()


def test_an_error_of_the_start_itself_still_retires_every_server_that_was_begun(
    daemon: Daemon, tmp_path: Path
) -> None:
    daemon.config.write_text(
        toml({"one": SERVER, "stubborn": {"command": scripted(STUBBORN), "stop_timeout_ms": 300}})
    )
    daemon.program = patched(
        "import asyncio\n"
        "from treadle.listener import Listener\n"
        "async def serve(self, sock):\n"
        "    await self.service.broker.settled()\n"
        "    raise RuntimeError('made to fail')\n"
        "Listener.serve = serve"
    )
    with daemon.log_path.open("ab") as log:
        command = [*daemon.program, "serve", "--config", str(daemon.config)]
        status = subprocess.run(command, env=daemon.environ, stderr=log, timeout=20, check=False).returncode
    assert status != 0
    log_text = daemon.log()
    assert "made to fail" in log_text
    assert "one: retired: exited with status 0 after its stdin was closed" in log_text
    assert "stubborn: retired: killed by SIGKILL" in log_text
    assert daemon.leftovers() == []
    assert list((daemon.state / "treadle").glob("record-*")) == []


def test_an_end_that_cannot_be_proven_is_named_kept_in_the_record_and_left_to_the_guard(daemon: Daemon) -> None:
    daemon.program = UNPROVABLE
    daemon.start()
    unruly.settle(daemon)
    guard = unruly.guard_of(daemon)
    with daemon.client() as client:
        done = client.shutdown()
    (row,) = done["servers"]
    assert done["confirmed"] is False
    assert row["error"] == "retirement_unconfirmed"
    assert (row["evidence"]["kind"], row["evidence"]["drained"]) == ("exited", False)
    assert daemon.process is not None
    assert daemon.process.wait(10) == 8
    last = daemon.log().splitlines()[-1]
    assert "one: NOT CONFIRMED" in last
    assert "descendants still alive" in last
    assert len(list((daemon.state / "treadle").glob("record-*"))) == 1
    until(lambda: (seen := procfs.read(guard)) is None or not seen.alive, "the guard's end")


def test_stop_restart_and_shutdown_exit_with_8_and_name_the_server_when_an_end_is_not_proven(
    daemon: Daemon,
) -> None:
    daemon.program = UNPROVABLE
    daemon.start()
    unruly.settle(daemon)
    for words in (["restart", "one"], ["stop", "one"], ["shutdown"]):
        done = daemon.cli(*words)
        assert done.returncode == 8, done.stderr
        assert "one" in done.stdout
        assert "NOT CONFIRMED" in done.stdout
    # Nothing was started in its place.
    assert daemon.log().count("one: ready") == 1
    assert daemon.process is not None
    assert daemon.process.wait(10) == 8


def test_without_a_free_descriptor_the_daemon_serves_claims_nothing_and_ends_all_once_it_has_some(
    daemon: Daemon,
) -> None:
    stubborn = scripted(STUBBORN, script.fork(STUBBORN, script.hang(), setsid=True, double=True))
    keys = {"command": stubborn, "stop_timeout_ms": 200}
    daemon.config.write_text(toml({"one": keys, "two": keys, "three": keys}))
    daemon.start()
    rows = unruly.settle(daemon)
    with daemon.client() as client:
        client.ping()  # the connection is there
        soft, hard = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (0, hard))
        os.kill(rows["one"]["pid"], signal.SIGKILL)
        told = client.stop("two", within=0.5)
        assert told["error"] == "retirement_timed_out"
        assert client.call("three", "echo", {"text": "served"}).text == "served"
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (soft, hard))
        until(lambda: client.status("two")["servers"][0]["state"] == "retired", "the end of two")
        until(lambda: client.status("one")["servers"][0]["state"] == "retired", "the end of one")
        for row in client.status()["servers"][:2]:
            assert row["evidence"].items() >= {"kind": "exited", "drained": True, "stragglers": 1}.items()
        assert client.restart("two")["state"] == "ready"
