"""Reload (configuration and socket page): all of the file or nothing of it; what did not change goes on."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support import script
from support.daemon import DEMO, Daemon, toml
from treadle_client import Denied, ServerUnavailable, ToolResult

from .conftest import Serve

DEMO_SERVER = {"command": list(DEMO)}
OTHER = {"command": list(DEMO), "env": {"MARK": "other"}}
STUBBORN = {"command": list(script.command([script.on_eof(), script.ignore("SIGTERM")])), "stop_timeout_ms": 200}


def rewrite(
    daemon: Daemon, servers: Mapping[str, Mapping[str, Any]], broker: Mapping[str, Any] | None = None
) -> None:
    daemon.config.write_text(toml(servers, broker))


def states(daemon: Daemon) -> dict[str, tuple[str, int | None]]:
    with daemon.client() as client:
        return {row["name"]: (row["state"], row.get("pid")) for row in client.status()["servers"]}


def wait_for_log(daemon: Daemon, text: str) -> None:
    deadline = time.monotonic() + 10
    while text not in daemon.log():
        assert time.monotonic() < deadline, daemon.log()
        time.sleep(0.01)


def test_what_changed_is_replaced_on_evidence_and_what_did_not_keeps_its_process_and_its_calls(
    serve: Serve,
) -> None:
    daemon = serve({"same": DEMO_SERVER, "changes": DEMO_SERVER, "goes": DEMO_SERVER})
    daemon.wait_ready()
    before = states(daemon)
    results: list[ToolResult] = []
    with daemon.client() as caller, daemon.client() as admin:
        calling = threading.Thread(target=lambda: results.append(caller.call("same", "slow", {"seconds": 1.0})))
        calling.start()
        while not admin.status("same")["servers"][0]["in_flight"]:
            pass
        rewrite(daemon, {"comes": DEMO_SERVER, "changes": OTHER, "same": DEMO_SERVER})
        done = admin.reload()
        calling.join()
    daemon.wait_ready()
    after = states(daemon)
    assert (done["added"], done["unchanged"], done["needs_restart"]) == (["comes"], ["same"], [])
    (changed,), (removed,) = done["changed"], done["removed"]
    assert [(row["name"], row["evidence"]["kind"]) for row in (changed, removed)] == [
        ("changes", "exited"), ("goes", "exited"),
    ]  # fmt: skip
    assert [result.is_error for result in results] == [False]
    assert list(after) == ["comes", "changes", "same"]
    assert after["same"] == before["same"]
    assert after["changes"][1] not in (None, before["changes"][1])


@pytest.fixture(scope="module")
def untouched(serve_module: Serve) -> Daemon:
    """A daemon that no reload changes."""
    daemon = serve_module({"demo": DEMO_SERVER})
    daemon.wait_ready()
    return daemon


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[mcp.demo\n", "treadle.toml:1:"),
        ('[mcp.demo]\ncomand = ["x"]\n', "comand"),
        ("[broker]\nmax_in_flight = -1\n", "max_in_flight"),
        ('[broker]\nallow_users = ["nobody-of-that-name"]\n', "nobody-of-that-name"),
        ('[mcp.fresh]\ncommand = ["x"]\napi_key_env = "TREADLE_UNSET_KEY"\n', "TREADLE_UNSET_KEY"),
        (None, "cannot be read"),
    ],
    ids=["no TOML", "an unknown key", "a bad broker table", "an unknown account", "an unset variable", "no file"],
)
def test_a_bad_file_changes_nothing_and_says_why(untouched: Daemon, text: str | None, message: str) -> None:
    before = states(untouched)
    if text is None:
        untouched.config.unlink(missing_ok=True)
    else:
        untouched.config.write_text(text)
    with untouched.client() as client:
        with pytest.raises(Denied) as caught:
            client.reload()
        assert client.call("demo", "echo", {"text": "on"}).text == "on"
    assert caught.value.code == "invalid_argument"
    assert message in str(caught.value)
    assert states(untouched) == before


def test_sighup_reloads_and_a_bad_file_is_an_error_in_the_log(serve: Serve) -> None:
    daemon = serve({"demo": DEMO_SERVER})
    daemon.wait_ready()
    rewrite(daemon, {"demo": DEMO_SERVER, "more": DEMO_SERVER})
    os.kill(daemon.pid, signal.SIGHUP)
    wait_for_log(daemon, "reloaded ")
    assert list(states(daemon)) == ["demo", "more"]
    daemon.config.write_text("")  # as some editors leave it for a moment
    os.kill(daemon.pid, signal.SIGHUP)
    wait_for_log(daemon, "there is no [mcp.<name>] table, while the daemon serves 2 servers")
    daemon.config.write_text("nonsense")
    os.kill(daemon.pid, signal.SIGHUP)
    wait_for_log(daemon, "not TOML")
    assert daemon.log().count("reload refused, nothing was changed") == 2
    assert list(states(daemon)) == ["demo", "more"]


def test_the_limits_of_the_broker_hold_for_new_requests(serve: Serve) -> None:
    daemon = serve({"demo": DEMO_SERVER})
    daemon.wait_ready()
    with daemon.client() as client:
        client.call("demo", "echo", {"text": "before"})
        rewrite(daemon, {"demo": DEMO_SERVER}, {"max_call_timeout_ms": 60, "max_connections": 1})
        client.reload()
        with pytest.raises(Exception, match="no answer within 60 ms"):
            client.call("demo", "slow", {"seconds": 5}, timeout=5)
        with daemon.client() as second, pytest.raises(Denied, match="max_connections = 1"):
            second.ping()


def test_what_cannot_change_at_run_time_is_said(serve: Serve, tmp_path: Path) -> None:
    daemon = serve({"demo": DEMO_SERVER})
    rewrite(daemon, {"demo": DEMO_SERVER}, {"socket": str(tmp_path / "x.sock"), "state_dir": str(tmp_path / "s")})
    with daemon.client() as client:
        done = client.reload()
        assert client.reload()["needs_restart"] == done["needs_restart"] == ["broker.socket", "broker.state_dir"]
    assert "a restart of the daemon is needed for what changed in broker.socket, broker.state_dir" in daemon.log()
    assert not (tmp_path / "x.sock").exists()


def test_a_server_that_will_not_end_is_killed_and_replaced(serve: Serve) -> None:
    daemon = serve({"odd": STUBBORN})
    daemon.wait_ready()
    rewrite(daemon, {"odd": {**STUBBORN, "env": {"A": "1"}}})
    with daemon.client() as client:
        (row,) = client.reload()["changed"]
    assert (row["evidence"]["signal"], row["evidence"]["rung"]) == ("SIGKILL", "kill")
    daemon.wait_ready()
    assert states(daemon)["odd"][0] == "ready"


def test_a_disabled_server_is_stopped_and_an_enabled_one_started(serve: Serve) -> None:
    daemon = serve({"demo": DEMO_SERVER})
    daemon.wait_ready()
    with daemon.client() as client:
        rewrite(daemon, {"demo": {**DEMO_SERVER, "enabled": False}})
        client.reload()
        with pytest.raises(ServerUnavailable, match="disabled"):
            client.call("demo", "echo", {"text": "x"})
        rewrite(daemon, {"demo": DEMO_SERVER})
        client.reload()
        assert client.call("demo", "echo", {"text": "again"}).text == "again"


def test_two_reloads_at_once_come_one_after_the_other(serve: Serve) -> None:
    daemon = serve({"demo": DEMO_SERVER})
    daemon.wait_ready()
    rewrite(daemon, {"demo": OTHER, "fresh": DEMO_SERVER})
    done: list[dict[str, Any]] = []

    def reload() -> None:
        with daemon.client() as client:
            done.append(client.reload())

    threads = [threading.Thread(target=reload) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(len(one["changed"]) for one in done) == [0, 1]
    assert sorted(len(one["added"]) for one in done) == [0, 1]
    daemon.wait_ready()
    assert {state for state, _ in states(daemon).values()} == {"ready"}


def test_the_verb_prints_what_became_of_each_server(serve: Serve) -> None:
    daemon = serve({"demo": DEMO_SERVER})
    daemon.wait_ready()
    rewrite(daemon, {"fresh": DEMO_SERVER})
    done = daemon.cli("reload", "--json")
    body = json.loads(done.stdout)
    assert (body["added"], [row["name"] for row in body["removed"]]) == (["fresh"], ["demo"])
