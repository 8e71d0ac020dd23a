"""The end of the daemon (catalogue K7; client page, section 5): drain, settle, retire, within bounds."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support import script
from support.daemon import DEMO, Daemon
from support.wire import RawClient, raw
from treadle_client import BrokerError, Denied

from .conftest import Serve

DEMO_SERVER = {"command": list(DEMO)}
STUBBORN = {"command": list(script.command([script.on_eof(), script.ignore("SIGTERM")]))}
HANGS = {"command": list(script.command([script.on("tools/call")]))}
NEVER_READY = {"command": list(script.command([script.on("initialize")]))}
DIES = {"command": list(script.command([script.on("initialize", script.exit(3))])), "restart": "always"}


class Outcome(threading.Thread):
    """A call in the background, and what came of it."""

    def __init__(self, daemon: Daemon, server: str, tool: str, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.text: str | None = None
        self.error: BrokerError | None = None
        self._daemon_ = daemon
        self._call = (server, tool, arguments)
        self.start()

    def run(self) -> None:
        with self._daemon_.client() as client:
            try:
                self.text = client.call(*self._call).text
            except BrokerError as error:
                self.error = error


def wait_in_flight(daemon: Daemon, server: str, count: int = 1) -> None:
    with daemon.client() as client:
        while client.status(server)["servers"][0]["in_flight"] < count:
            time.sleep(0.002)


def wait_state(client: RawClient, state: str) -> None:
    while client.ask("status", {}).body["value"]["daemon"]["state"] != state:
        time.sleep(0.002)


@contextmanager
def ends(daemon: Daemon) -> Iterator[None]:
    """The daemon ends with 0, and says nothing that a person would have to worry about. What a test says must not
    be waited for takes a minute at the least, which is more than this waits."""
    yield
    assert daemon.process is not None
    assert daemon.process.wait(30) == 0, daemon.log()
    assert daemon.leftovers() == []
    for noise in ("Traceback", "loop is closed", "never retrieved", "was destroyed", "Exception"):
        assert noise not in daemon.log()
    assert not Path(daemon.socket).exists()


def test_calls_in_flight_end_and_new_ones_are_turned_away(serve: Serve) -> None:
    daemon = serve({"demo": DEMO_SERVER})
    daemon.wait_ready()
    slow = Outcome(daemon, "demo", "slow", {"seconds": 0.6})
    wait_in_flight(daemon, "demo")
    with raw(daemon.socket) as old, ends(daemon):
        os.kill(daemon.pid, signal.SIGTERM)
        wait_state(old, "draining")
        with daemon.client() as late, pytest.raises(Denied, match="shutting down") as caught:
            late.call("demo", "echo", {"text": "late"})
        assert (caught.value.code, caught.value.outcome) == ("shutting_down", "not_sent")
        refused = old.ask("call", {"server": "demo", "tool": "echo", "arguments": {}}).body["error"]
        assert (refused["code"], refused["outcome"]) == ("shutting_down", "not_sent")
        slow.join()
    assert slow.error is None
    assert slow.text is not None


def test_past_the_budget_calls_are_settled_with_an_unknown_outcome(serve: Serve) -> None:
    daemon = serve({"odd": HANGS}, {"drain_timeout_ms": 300})
    daemon.wait_ready()
    hanging = Outcome(daemon, "odd", "echo", {"text": "x"})
    wait_in_flight(daemon, "odd")
    with ends(daemon):
        os.kill(daemon.pid, signal.SIGTERM)
        hanging.join()
    assert hanging.error is not None
    assert hanging.error.outcome == "unknown"
    assert "shutdown" in str(hanging.error) or "shut down" in str(hanging.error)


def test_a_second_signal_skips_the_drain(serve: Serve) -> None:
    daemon = serve({"odd": HANGS}, {"drain_timeout_ms": 60_000})
    daemon.wait_ready()
    hanging = Outcome(daemon, "odd", "echo", {"text": "x"})
    wait_in_flight(daemon, "odd")
    with raw(daemon.socket) as client, ends(daemon):
        os.kill(daemon.pid, signal.SIGTERM)
        wait_state(client, "draining")
        os.kill(daemon.pid, signal.SIGINT)
        hanging.join()
    assert hanging.error is not None


def test_a_third_signal_kills_at_once(serve: Serve) -> None:
    daemon = serve({"odd": {**STUBBORN, "stop_timeout_ms": 60_000}})
    daemon.wait_ready()
    with raw(daemon.socket) as client, ends(daemon):
        os.kill(daemon.pid, signal.SIGTERM)
        wait_state(client, "draining")
        for _ in range(2):
            os.kill(daemon.pid, signal.SIGTERM)
            client.ask("heartbeat", {})
    assert "SIGKILL" in daemon.log()


def test_a_shutdown_request_has_its_budget_and_answers_with_a_row_for_each_server(serve: Serve) -> None:
    servers = {
        "one": DEMO_SERVER,
        "two": {**STUBBORN, "stop_timeout_ms": 60_000},
        "off": {**DEMO_SERVER, "enabled": False},
    }
    daemon = serve(servers)
    daemon.wait_ready("one", "two")
    with raw(daemon.socket) as client, ends(daemon):
        answer = client.ask("shutdown", {"within_ms": 2000}).body["value"]
        assert client.frame() is None
    rows = {row["name"]: row["evidence"] for row in answer["servers"]}
    assert answer["confirmed"] is True
    assert (rows["one"]["kind"], rows["two"]["signal"], rows["off"]["kind"]) == (
        "exited",
        "SIGKILL",
        "no_resource",
    )


def test_two_shutdown_requests_and_a_signal_share_one_end(serve: Serve) -> None:
    daemon = serve({"demo": DEMO_SERVER})
    daemon.wait_ready()
    slow = Outcome(daemon, "demo", "slow", {"seconds": 0.3})
    wait_in_flight(daemon, "demo")
    with raw(daemon.socket) as one, raw(daemon.socket) as two, ends(daemon):
        one.send("shutdown", {})
        wait_state(two, "draining")
        two.send("shutdown", {})
        os.kill(daemon.pid, signal.SIGTERM)
        answers = [client.frame() for client in (one, two)]
        slow.join()
    assert all(answer is not None and answer.body["value"]["confirmed"] for answer in answers)
    assert slow.error is None


def test_a_stop_while_servers_start_hang_and_back_off_is_bounded(serve: Serve) -> None:
    servers = {
        "starting": {**NEVER_READY, "handshake_timeout_ms": 60_000, "stop_timeout_ms": 500},
        "in_call": {**HANGS, "stop_timeout_ms": 500},
        "in_backoff": {**DIES, "restart_backoff_ms": 60_000},
        "crashing": {**DIES, "restart_backoff_ms": 1, "restart_limit": 1000},
        "stubborn": {**STUBBORN, "stop_timeout_ms": 500},
    }
    daemon = serve(servers, {"drain_timeout_ms": 300})
    daemon.wait_ready("in_call", "stubborn")
    hanging = Outcome(daemon, "in_call", "echo", {"text": "x"})
    waiting = Outcome(daemon, "starting", "echo", {"text": "x"})
    wait_in_flight(daemon, "in_call")
    with raw(daemon.socket) as client:
        while client.ask("status", {"server": "in_backoff"}).body["value"]["servers"][0]["state"] != "backoff":
            pass
        with ends(daemon):
            os.kill(daemon.pid, signal.SIGTERM)
            wait_state(client, "draining")
            os.kill(daemon.pid, signal.SIGTERM)
            hanging.join()
            waiting.join()
    assert hanging.error is not None
    assert hanging.error.outcome == "unknown"
    assert waiting.error is not None
    assert waiting.error.outcome == "not_sent"
    told_to_stop = daemon.log().partition("shutting down")[2]
    assert "ready:" not in told_to_stop


def test_a_stop_right_after_the_start_is_an_end_like_any_other(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "")
    daemon.config.write_text("")
    daemon.start()
    with ends(daemon):
        os.kill(daemon.pid, signal.SIGTERM)


def test_clients_that_do_not_read_do_not_hold_up_the_end(serve: Serve) -> None:
    daemon = serve({"demo": DEMO_SERVER}, {"drain_timeout_ms": 60_000})
    daemon.wait_ready()
    with raw(daemon.socket) as client, raw(daemon.socket) as half:
        for _ in range(3):
            client.send("call", {"server": "demo", "tool": "big", "arguments": {"bytes": 4 * 2**20}})
        half.sock.sendall(b"\0\0\1")
        with ends(daemon):
            os.kill(daemon.pid, signal.SIGTERM)
