"""Every hostile and odd server of the catalogue against the real client, over both transports, and a few of them
against a real daemon. One behaviour, one test; what must hold after each is asserted by the stage."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import script as s
from support.catalogue import BY_ID, ENTRIES
from support.catalogue.life import fails_at_start
from support.catalogue.model import SECRET
from support.daemon import DEMO, Daemon, toml
from support.stage import Means, recording, staged
from treadle import procfs
from treadle_client import BrokerError, ServerUnavailable

from .conftest import Serve

PLAYED = [
    pytest.param(entry.id, means, id=f"{entry.id}-{means}")
    for entry in ENTRIES
    for means in ("channel", "process")
    if means == "process" or not entry.needs_process
]


@pytest.mark.parametrize(("identifier", "means"), PLAYED)
async def test_the_client_meets_the_catalogue(
    identifier: str, means: Means, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "treadle")
    async with staged(BY_ID[identifier], means, tmp_path, caplog.records):
        pass


@pytest.mark.parametrize("means", ["channel", "process"])
async def test_no_call_is_sent_twice_when_its_server_is_killed(
    means: Means, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen = tmp_path / "seen"
    entry = recording(BY_ID["H1"], seen)
    async with staged(entry, means, tmp_path, caplog.records) as stage:
        received = seen.read_bytes() if means == "process" else stage.world.files[str(seen)]
    ids = [json.loads(line)["id"] for line in received.splitlines() if b"tools/call" in line]
    assert sorted(ids) == list(range(ids[0], ids[0] + 20))


# --- a real daemon ---------------------------------------------------------------------------------------------

REPRESENTATIVES: dict[str, tuple[str, str]] = {
    "A4/past-limit": ("mcp_unavailable", "line too long"),
    "B1/secret": ("mcp_unavailable", "not JSON"),
    "B3": ("mcp_timeout", "no answer within"),  # it waits for three calls and gets one
    "C3/ff": ("mcp_unavailable", "not UTF-8"),
    "D-10": ("mcp_unavailable", "no JSON-RPC 2.0 message"),
    "E5/3": ("mcp_unavailable", "status 3.*cannot find the database"),
    "F5/two-pages": ("mcp_unavailable", r"tools\[2\] repeats the name"),
    "G2/null": ("mcp_malformed", "tools/call result"),
    "G6": ("mcp_timeout", "no answer within"),
    "H8/not-utf8": ("", ""),
    "I3/busy": ("", ""),
}
"""Of each group a server, the code of one call to it, and words of its message; none: the call succeeds."""


class HostileHouse:
    """The daemon, and what it had open before anything hostile ran."""

    def __init__(self, folder: Path) -> None:
        servers: dict[str, dict[str, Any]] = {"good": {"command": list(DEMO)}}
        for identifier in REPRESENTATIVES:
            entry = BY_ID[identifier]
            name = self.name(identifier)
            servers[name] = {
                "command": list(s.command(entry.script, folder / f"{name}.json")),
                "lazy": True,
                "stop_timeout_ms": 1000,
            }
            if entry.secret is not None:
                servers[name]["api_key_env"] = "TREADLE_TEST_KEY"
        broker = {"drain_timeout_ms": 1000}
        self.daemon = Daemon(folder, toml(servers, broker), environ={"TREADLE_TEST_KEY": SECRET})

    @staticmethod
    def name(identifier: str) -> str:
        return re.sub(r"\W", "_", identifier).lower()

    def settle(self) -> None:
        """Note what is open once the good server serves and nothing else runs."""
        with self.daemon.client() as client:
            client.call("good", "echo", {"text": "up"})
            self.open = self.descriptors()

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.daemon.pid}/fd"))


@pytest.fixture(scope="module")
def hostile_house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileHouse]:
    """One daemon with all the representatives, each lazy, beside one good server."""
    house = HostileHouse(tmp_path_factory.mktemp("hostile"))
    with house.daemon:
        house.settle()
        yield house
        house.daemon.stop()
    assert house.daemon.leftovers() == []
    assert "Traceback" not in house.daemon.log()
    assert SECRET not in house.daemon.log()


@pytest.mark.parametrize("identifier", REPRESENTATIVES)
def test_a_hostile_server_costs_a_daemon_nothing_but_its_own_calls(
    identifier: str, hostile_house: HostileHouse
) -> None:
    code, words = REPRESENTATIVES[identifier]
    daemon, name = hostile_house.daemon, hostile_house.name(identifier)
    with daemon.client(timeout=20) as client:
        tool = "stuck" if identifier == "G6" else "echo"
        if code:
            with pytest.raises(BrokerError) as caught:
                client.call(name, tool, {"text": "hello"}, timeout=0.5 if code == "mcp_timeout" else 20)
            assert caught.value.code == code
            assert re.search(words, str(caught.value)), str(caught.value)
            assert SECRET not in str(caught.value)
        else:
            assert client.call(name, tool, {"text": "hello"}).text == "hello"
        assert client.call("good", "echo", {"text": "alive"}).text == "alive"
        row = client.stop(name)
        assert row["state"] == "retired"
        assert row["evidence"]["kind"] == "exited"
        assert row["evidence"]["drained"] is True
        status = client.status()
        assert status["daemon"]["in_flight"] == 0
        assert {server["in_flight"] for server in status["servers"]} == {0}
        assert SECRET not in json.dumps(status) + client.logs(name)
        assert hostile_house.descriptors() == hostile_house.open
    zombies = [child.pid for child in procfs.children(daemon.pid) if not child.alive]
    assert zombies == []


def test_failing_starts_come_with_growing_delays_and_one_child_at_a_time(serve: Serve, tmp_path: Path) -> None:
    """I8 and I9: three failures, then it works; calls during a backoff are refused at once."""
    starts, times = tmp_path / "starts", tmp_path / "times"
    script = [s.write_pid(times), *fails_at_start(starts, 3)]
    flaky = {
        "command": list(s.command(script)),
        "restart": "on-failure",
        "restart_backoff_ms": 100,
        "restart_backoff_max_ms": 1000,
    }
    daemon = serve({"flaky": flaky, "good": {"command": list(DEMO)}})
    with daemon.client(timeout=20) as client:
        seen: Counter[str] = Counter()
        deadline = time.monotonic() + 20
        while (row := client.status("flaky")["servers"][0])["state"] != "ready":
            if row["state"] == "backoff" and not seen["refused"]:
                with pytest.raises(ServerUnavailable, match="status 1"):
                    client.call("flaky", "echo", {"text": "x"})
                seen["refused"] += 1
            assert client.call("good", "echo", {"text": "alive"}).text == "alive"
            seen[row["state"]] += 1
            assert time.monotonic() < deadline
            time.sleep(0.005)  # a status is asked for, nobody tells it
        assert row["generation"] == 4
        assert row["restarts"] == 3
        assert seen["refused"] == 1
        assert client.call("flaky", "echo", {"text": "works"}).text == "works"
    pids = times.read_text().split()
    assert len(set(pids)) == len(pids) == 4
