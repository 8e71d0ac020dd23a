"""What the service manager is told, and when (``sd_notify(3)``)."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.virtual import now, turns, virtual
from treadle.sdnotify import Notifier, Service, status_of


class Manager:
    """The receiving end of a service manager."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.setblocking(False)

    def told(self) -> list[list[str]]:
        """The lines of every message that has come."""
        messages = []
        while True:
            try:
                messages.append(self._socket.recv(65536).decode().split("\n"))
            except BlockingIOError:
                return messages

    async def hear(self) -> list[str]:
        """The next message."""
        data = await asyncio.get_running_loop().sock_recv(self._socket, 65536)
        return data.decode().split("\n")

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(str(tmp_path / "notify"))
    yield manager
    manager.close()


@pytest.fixture
def service(manager: Manager) -> Iterator[Service]:
    service = Service(Notifier(manager.address))
    yield service
    service.close()


# --- the messages ------------------------------------------------------------------------------------


def test_a_message_is_one_datagram_of_lines(manager: Manager) -> None:
    notifier = Notifier(manager.address)
    assert notifier.send("READY=1", "STATUS=all well")
    assert manager.told() == [["READY=1", "STATUS=all well"]]
    notifier.close()


def test_an_address_with_an_at_sign_is_abstract() -> None:
    manager = Manager(f"@treadle-test-{os.getpid()}")
    notifier = Notifier(manager.address)
    assert notifier.send("READY=1")
    assert manager.told() == [["READY=1"]]
    notifier.close()
    manager.close()


def test_a_line_end_inside_a_value_cannot_begin_another_line(manager: Manager) -> None:
    notifier = Notifier(manager.address)
    notifier.send("STATUS=one\nMAINPID=1")
    assert manager.told() == [["STATUS=one MAINPID=1"]]
    notifier.close()


@pytest.mark.parametrize("address", [None, "", "relative", "vsock:2:1234"])
def test_without_an_address_that_can_be_used_nothing_is_sent(address: str | None) -> None:
    notifier = Notifier(address)
    assert not notifier.enabled
    assert not notifier.send("READY=1")


def test_a_manager_that_is_gone_is_no_error(tmp_path: Path) -> None:
    notifier = Notifier(str(tmp_path / "gone"))
    assert not notifier.send("READY=1")
    notifier.close()


def test_a_manager_that_does_not_read_does_not_block(manager: Manager) -> None:
    notifier = Notifier(manager.address)
    sent = [notifier.send("STATUS=" + "x" * 1000) for _ in range(2000)]
    assert sent[0]
    assert not sent[-1]
    notifier.close()


# --- the phases --------------------------------------------------------------------------------------


async def test_a_start_says_how_long_it_may_take_and_how_it_stands(manager: Manager, service: Service) -> None:
    service.begin(lambda: "starting; servers: 2 starting", 12.5)
    assert manager.told()[0] == ["EXTEND_TIMEOUT_USEC=12500000", "STATUS=starting; servers: 2 starting"]


async def test_ready_is_said_once_with_the_own_pid(manager: Manager, service: Service) -> None:
    service.ready()
    service.ready()
    assert manager.told() == [["READY=1", f"MAINPID={os.getpid()}", "STATUS="]]


async def test_a_reload_is_framed_by_reloading_and_ready(manager: Manager, service: Service) -> None:
    service.ready()
    before = time.monotonic_ns() // 1000
    service.reloading()
    service.reloaded()
    _, reloading, reloaded = manager.told()
    assert reloading[0] == "RELOADING=1"
    name, value = reloading[1].split("=")
    assert name == "MONOTONIC_USEC"
    assert before <= int(value) <= time.monotonic_ns() // 1000
    assert reloaded[0] == "READY=1"


async def test_a_reload_before_ready_does_not_make_the_service_ready(manager: Manager, service: Service) -> None:
    service.reloading()
    service.reloaded()
    assert manager.told() == []


async def test_a_stop_says_once_how_long_it_may_take(manager: Manager, service: Service) -> None:
    service.ready()
    service.stopping(30)
    service.stopping(60)
    assert manager.told()[1:] == [["STOPPING=1", "EXTEND_TIMEOUT_USEC=30000000", "STATUS="]]


async def test_a_service_that_stops_is_not_ready_any_more(manager: Manager, service: Service) -> None:
    service.stopping(30)
    manager.told()
    service.ready()
    service.reloading()
    service.reloaded()
    assert manager.told() == []


# --- the beat ----------------------------------------------------------------------------------------


@virtual
async def test_a_status_that_changed_is_sent_by_itself(manager: Manager, service: Service) -> None:
    status = ["ready; servers: 1 ready"]
    service.begin(lambda: status[0], 1)
    assert len(await manager.hear()) == 2
    status[0] = "ready; servers: 1 parked"
    assert await manager.hear() == ["STATUS=ready; servers: 1 parked"]
    await asyncio.sleep(60)
    assert manager.told() == []


@virtual
async def test_the_sign_of_life_comes_three_times_in_the_watchdogs_time(manager: Manager) -> None:
    service = Service(Notifier(manager.address), watchdog_s=1.5)
    service.begin(lambda: "", 1)
    await manager.hear()
    manager.told()
    began = now()
    times = []
    for _ in range(6):
        assert await manager.hear() == ["WATCHDOG=1"]
        times.append(now() - began)
    assert times == pytest.approx([0.5, 1, 1.5, 2, 2.5, 3])
    service.close()


async def test_only_a_loop_that_turns_gives_a_sign_of_life(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    service = Service(Notifier(manager.address), watchdog_s=30)
    service.begin(lambda: "", 1)
    manager.told()
    late = loop.time() + 3600
    monkeypatch.setattr(loop, "time", lambda: late)
    assert manager.told() == []
    await turns(2)
    assert manager.told() == [["WATCHDOG=1"]]
    service.close()


# --- the environment ---------------------------------------------------------------------------------


def test_the_variables_are_taken_out_of_the_environment(manager: Manager) -> None:
    environ = {
        "NOTIFY_SOCKET": manager.address,
        "WATCHDOG_USEC": "30000000",
        "WATCHDOG_PID": str(os.getpid()),
        "PATH": "/usr/bin",
    }
    Service.from_environ(environ).close()
    assert environ == {"PATH": "/usr/bin"}


@pytest.mark.parametrize(
    ("usec", "pid", "watched"),
    [
        ("200000", None, True),
        ("200000", "own", True),
        ("200000", "1", False),
        ("0", None, False),
        ("-5", None, False),
        ("soon", None, False),
        (None, None, False),
    ],
)
async def test_the_watchdog_is_ours_only_when_it_names_us_and_a_time(
    manager: Manager, usec: str | None, pid: str | None, watched: bool
) -> None:
    environ = {"NOTIFY_SOCKET": manager.address}
    if usec is not None:
        environ["WATCHDOG_USEC"] = usec
    if pid is not None:
        environ["WATCHDOG_PID"] = str(os.getpid()) if pid == "own" else pid
    service = Service.from_environ(environ)
    service.begin(lambda: "", 1)
    assert (["WATCHDOG=1"] in manager.told()) == watched
    service.close()


async def test_without_a_manager_every_phase_is_silent_and_leaves_no_timer() -> None:
    service = Service.from_environ({"WATCHDOG_USEC": "1000"})
    service.begin(lambda: pytest.fail("nobody is to be told"), 1)
    service.ready()
    service.reloading()
    service.reloaded()
    service.stopping(1)
    service.close()


def test_the_status_line_counts_the_servers_by_state() -> None:
    assert status_of("ready", ["ready", "backoff", "ready"]) == "ready; servers: 2 ready, 1 backoff"
    assert status_of("starting", []) == "starting; no servers are configured"
