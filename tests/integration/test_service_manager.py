"""The daemon below a service manager: what it is told, and the hand-over of its socket to the next daemon."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.daemon import DEMO, ENDS_WITHIN_S, Daemon, toml
from treadle_client import BrokerError, Client, frames

LAUNCH = """\
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="treadle")
os.execv(sys.argv[2], sys.argv[2:])
"""
SLOW_START = ["sh", "-c", f"sleep 0.5; exec {sys.executable} -m treadle.demo_server"]


class Manager:
    """Holds the listening socket, starts daemons on it, and hears what they say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = str(folder / "t.sock")
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(self.path)
        self.listening.listen(100)
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind(str(folder / "notify"))
        self._notify.settimeout(ENDS_WITHIN_S)
        self.heard: list[list[str]] = []
        self._daemons: list[Daemon] = []

    def start(self, servers: dict[str, dict[str, Any]], broker: dict[str, Any] | None = None) -> Daemon:
        """Start a daemon; it is not waited for."""
        folder = self.folder / f"daemon{len(self._daemons)}"
        folder.mkdir()
        notify = {"NOTIFY_SOCKET": str(self.folder / "notify"), "WATCHDOG_USEC": "300000"}
        daemon = Daemon(folder, toml(servers, broker), environ=notify)
        daemon.socket = self.path
        fd = self.listening.fileno()
        with daemon.log_path.open("ab") as log:
            daemon.process = subprocess.Popen(
                [sys.executable, "-c", LAUNCH, str(fd), *daemon.program, "serve", "--config", str(daemon.config)],
                env=daemon.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, pass_fds=(fd,),
            )  # fmt: skip
        self._daemons.append(daemon)
        return daemon

    def until(self, line: str) -> list[str]:
        """The next message that has ``line``."""
        while True:
            message = self._notify.recv(65536).decode().split("\n")
            self.heard.append(message)
            if line in message:
                return message

    def close(self) -> None:
        for daemon in self._daemons:
            daemon.stop()
            assert daemon.leftovers() == []
            assert "Traceback" not in daemon.log(), daemon.log()
        self.listening.close()
        self._notify.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path)
    yield manager
    manager.close()


def add(client: Client) -> str:
    return client.call("demo", "add", {"a": 1, "b": 2}).text


# --- what the manager hears --------------------------------------------------------------------------


def test_ready_is_said_when_every_eager_server_has_settled(manager: Manager) -> None:
    daemon = manager.start({"demo": {"command": SLOW_START}, "broken": {"command": ["/absent"]}})
    ready = manager.until("READY=1")
    assert f"MAINPID={daemon.pid}" in ready
    assert "STATUS=ready; servers: 1 ready, 1 retired" in ready
    assert "WATCHDOG=1" in [line for message in manager.heard for line in message]


def test_ready_may_be_said_once_the_socket_is_served(manager: Manager) -> None:
    manager.start({"demo": {"command": SLOW_START}}, {"ready": "listening"})
    assert "STATUS=starting; servers: 1 starting" in manager.until("READY=1")


def test_a_reload_is_told_from_its_beginning_to_its_end_refused_or_not(manager: Manager) -> None:
    daemon = manager.start({"demo": {"command": list(DEMO)}})
    manager.until("READY=1")
    daemon.config.write_text("[mcp.demo]\ncommand = 'no list'\n")
    os.kill(daemon.pid, signal.SIGHUP)
    assert any(line.startswith("MONOTONIC_USEC=") for line in manager.until("RELOADING=1"))
    manager.until("READY=1")


@pytest.mark.parametrize("way", ["signal", "client"])
def test_a_stop_is_told_with_the_time_that_it_may_take(manager: Manager, way: str) -> None:
    daemon = manager.start({"demo": {"command": list(DEMO)}}, {"drain_timeout_ms": 7000})
    manager.until("READY=1")
    if way == "signal":
        os.kill(daemon.pid, signal.SIGTERM)
    else:
        with daemon.client() as client:
            client.shutdown()
    stopping = manager.until("STOPPING=1")
    budget = next(line for line in stopping if line.startswith("EXTEND_TIMEOUT_USEC=")).partition("=")[2]
    assert 7_000_000 < int(budget) < 60_000_000
    assert daemon.stop() == 0


# --- the hand-over -----------------------------------------------------------------------------------


def test_a_client_that_is_early_is_served(manager: Manager) -> None:
    with Client(manager.path, timeout=30) as client:
        answers: list[str] = []
        early = threading.Thread(target=lambda: answers.append(add(client)))
        early.start()
        manager.start({"demo": {"command": SLOW_START}})
        early.join()
    assert answers == ["3"]


def test_an_idle_client_notices_nothing_of_the_next_daemon(manager: Manager) -> None:
    first = manager.start({"demo": {"command": list(DEMO)}})
    with Client(manager.path, timeout=30) as client:
        assert add(client) == "3"
        assert first.stop() == 0
        assert Path(manager.path).exists()
        manager.start({"demo": {"command": list(DEMO)}})
        assert add(client) == "3"


def test_a_call_in_flight_is_answered_while_later_clients_wait_for_the_next_daemon(manager: Manager) -> None:
    first = manager.start({"demo": {"command": list(DEMO)}})
    manager.until("READY=1")
    ended: list[str] = []

    def slow() -> None:
        with Client(manager.path, timeout=30) as client:
            ended.append(client.call("demo", "slow", {"seconds": 1.0}).text)

    def late() -> None:
        with Client(manager.path, timeout=30) as client:
            ended.append(f"{add(client)} by {client.status()['daemon']['pid']}")

    threads = [threading.Thread(target=one) for one in (slow, late)]
    threads[0].start()
    until(lambda: first.server("demo")["in_flight"] == 1)
    os.kill(first.pid, signal.SIGTERM)
    manager.until("STOPPING=1")
    threads[1].start()
    assert first.process is not None
    assert first.process.wait(ENDS_WITHIN_S) == 0
    second = manager.start({"demo": {"command": list(DEMO)}})
    for thread in threads:
        thread.join()
    assert len(ended) == 2
    assert ended[1] == f"3 by {second.pid}"


def test_what_was_written_is_served_and_what_is_written_later_does_not_leave(manager: Manager) -> None:
    first = manager.start({"demo": {"command": list(DEMO)}})
    manager.until("READY=1")
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(manager.path)
        client.sendall(frames.encode(1, "hello", {"proto": 1, "peer": "test", "features": []}))
        assert client.recv(65536)
        os.kill(first.pid, signal.SIGSTOP)
        call = {"server": "demo", "tool": "slow", "arguments": {"seconds": 0.3}}
        client.sendall(frames.encode(2, "call", call))
        os.kill(first.pid, signal.SIGTERM)
        os.kill(first.pid, signal.SIGCONT)
        manager.until("STOPPING=1")
        until(lambda: refused(client))
        reader = frames.FrameReader()
        answers = [frame for data in iter(lambda: client.recv(65536), b"") for frame in reader.feed(data)]
    assert [(frame.id, frame.kind, frame.body["ok"]) for frame in answers] == [(2, "result", True)]
    assert first.stop() == 0


def refused(client: socket.socket) -> bool:
    """Whether the kernel refuses a write. What is written until then asks for nothing."""
    try:
        client.send(frames.encode(3, "cancel", {}))
    except BrokenPipeError:
        return True
    return False


def until(condition: Callable[[], bool]) -> None:
    event = threading.Event()
    for _ in range(2000):
        if condition():
            return
        event.wait(0.005)
    raise AssertionError("it did not happen")


def test_the_two_daemons_share_the_custody_record_of_the_socket(manager: Manager) -> None:
    first = manager.start({"demo": {"command": list(DEMO)}}, {"state_dir": str(manager.folder / "state")})
    manager.until("READY=1")
    names = [path.name for path in (manager.folder / "state").iterdir() if path.name.startswith("record-")]
    assert len(names) == 1
    os.kill(first.pid, signal.SIGKILL)
    assert first.process is not None
    first.process.wait()
    manager.start({"demo": {"command": list(DEMO)}}, {"state_dir": str(manager.folder / "state")})
    manager.until("READY=1")
    assert [p.name for p in (manager.folder / "state").iterdir() if p.name.startswith("record-")] == names


def test_a_call_past_the_drain_is_settled_as_unknown(manager: Manager) -> None:
    first = manager.start({"demo": {"command": list(DEMO)}}, {"drain_timeout_ms": 200})
    manager.until("READY=1")
    errors: list[BrokerError] = []

    def slow() -> None:
        with Client(manager.path, timeout=30) as client:
            try:
                client.call("demo", "slow", {"seconds": 20})
            except BrokerError as error:
                errors.append(error)

    thread = threading.Thread(target=slow)
    thread.start()
    until(lambda: first.server("demo")["in_flight"] == 1)
    assert first.stop() == 0
    thread.join()
    assert [error.outcome for error in errors] == ["unknown"]
