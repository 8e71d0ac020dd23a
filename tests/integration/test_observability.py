"""What a running daemon lets operators see: its log, its audit log, its metrics."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from support import script
from support.daemon import DEMO, Daemon, toml
from treadle_client import BrokerError

from .conftest import Serve, Verb

DEMO_SERVER = {"command": list(DEMO)}
SECRET = "hunter2-hunter2"


def _samples(text: str) -> dict[str, float]:
    """``name{label=value,...}`` to value, as Prometheus' own parser reads the text."""
    return {
        f"{one.name}{{{','.join(f'{key}={value}' for key, value in sorted(one.labels.items()))}}}": one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


# --- the log ------------------------------------------------------------------------------------------


def test_the_log_is_one_json_object_a_line_with_the_server_as_a_field(serve: Serve) -> None:
    daemon = serve({"demo": DEMO_SERVER}, {"log_format": "json", "log_level": "debug"})
    daemon.wait_ready()
    daemon.stop()
    records = [json.loads(line) for line in daemon.log().splitlines()]
    assert all({"time", "level", "logger", "message"} <= set(record) for record in records)
    assert [one["message"] for one in records if one.get("server") == "demo" and "ready" in one["message"]]


def test_a_level_leaves_out_what_is_below_it(serve: Serve) -> None:
    daemon = serve(
        {"demo": DEMO_SERVER, "missing": {"command": ["treadle-no-such-program"]}}, {"log_level": "warning"}
    )
    daemon.wait_ready()
    daemon.stop()
    assert "was not found on PATH" in daemon.log()
    assert not re.search(r" INFO ", daemon.log())


def test_verbose_and_quiet_go_before_the_configuration(serve: Serve) -> None:
    daemon = serve({"demo": DEMO_SERVER}, {"log_level": "debug"}, options=["--quiet"])
    daemon.wait_ready()
    daemon.stop()
    assert daemon.log() == ""


def test_a_reload_changes_the_level(serve: Serve) -> None:
    daemon = serve({"demo": DEMO_SERVER}, {"log_level": "error"})
    daemon.wait_ready()
    daemon.config.write_text(toml({"demo": DEMO_SERVER}, {"log_level": "info", "log_format": "json"}))
    with daemon.client() as broker:
        broker.reload()
        broker.restart("demo")
    daemon.stop()
    assert json.loads(daemon.log().splitlines()[0])["message"].startswith("reloaded ")


def test_what_a_server_writes_is_in_the_log_with_its_name_and_without_secrets(serve: Serve) -> None:
    says = script.command([script.stderr(f"my key is {SECRET}\n".encode())])
    daemon = serve({"says": {"command": says, "api_key_env": "SAYS_KEY"}}, environ={"SAYS_KEY": SECRET})
    daemon.wait_ready()
    daemon.stop()
    assert "says: stderr: my key is [redacted]" in daemon.log()
    assert SECRET not in daemon.log()


# --- the audit log ------------------------------------------------------------------------------------


def _audited(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_every_call_is_audited_however_it_ends(serve: Serve) -> None:
    narrow = {**DEMO_SERVER, "tools": {"deny": ["fail"]}}
    daemon = serve({"demo": DEMO_SERVER, "narrow": narrow}, {"audit_log": "audit.log"})
    daemon.wait_ready()
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("demo", "echo", {"text": SECRET}),
        ("demo", "fail", {}),
        ("demo", "nope", {}),
        ("narrow", "fail", {}),
        ("nobody", "echo", {}),
    ]
    with daemon.client() as broker:
        for server, tool, arguments in calls:
            with contextlib.suppress(BrokerError):
                broker.call(server, tool, arguments)
        with pytest.raises(BrokerError, match="no answer"):
            broker.call("demo", "slow", {"seconds": 5}, timeout=0.05)
    daemon.stop()
    path = daemon.folder / "audit.log"
    lines = _audited(path)
    assert [(line["server"], line["tool"], line["result"]) for line in lines] == [
        ("demo", "echo", "ok"),
        ("demo", "fail", "tool_error"),
        ("demo", "nope", "jsonrpc_-32602"),
        ("narrow", "fail", "denied"),
        ("nobody", "echo", "unknown_server"),
        ("demo", "slow", "mcp_timeout"),
    ]
    assert {(line["uid"], line["pid"]) for line in lines} == {(os.getuid(), os.getpid())}
    assert lines[-1]["ms"] >= 48  # the loop counts whole milliseconds
    assert lines[-1]["outcome"] == "unknown"
    assert SECRET not in path.read_text()


def test_a_call_whose_client_went_away_is_audited(serve: Serve) -> None:
    daemon = serve({"demo": DEMO_SERVER}, {"audit_log": "audit.log"})
    daemon.wait_ready()
    from treadle_client.frames import encode

    with socket.socket(socket.AF_UNIX) as client:
        client.connect(daemon.socket)
        hello = encode(1, "hello", {"proto": 1, "peer": "test", "features": []})
        call = {"server": "demo", "tool": "slow", "arguments": {"seconds": 30}}
        client.sendall(hello + encode(2, "call", call))
        while daemon.server("demo")["in_flight"] == 0:
            pass
    daemon.stop()
    assert [(line["tool"], line["result"]) for line in _audited(daemon.folder / "audit.log")] == [
        ("slow", "cancelled")
    ]


def test_an_audit_log_that_cannot_be_written_stops_the_start(serve: Serve) -> None:
    daemon = serve({})
    config = daemon.folder / "other.toml"
    config.write_text('[broker]\naudit_log = "/nonexistent/audit.log"\n')
    done = daemon.cli("serve", "--config", str(config), TREADLE_SOCKET=f"{daemon.folder}/other.sock")
    assert done.returncode == 2
    assert "[broker] audit_log: /nonexistent/audit.log cannot be written: No such file or directory" in done.stderr


# --- metrics ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def port() -> int:
    """A port on the loopback that is free."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
        return number


@pytest.fixture(scope="module")
def counting(serve_module: Serve, port: int) -> Daemon:
    """A daemon that counts, with a server for each test that calls one."""
    servers = dict.fromkeys(("counted", "guessed", "shown"), DEMO_SERVER)
    missing = {"command": ["treadle-no-such-program"]}
    daemon = serve_module({**servers, "missing": missing}, options=["--metrics-port", str(port)])
    daemon.wait_ready()
    return daemon


def test_metrics_tells_calls_by_server_tool_and_outcome(counting: Daemon, typed: Verb) -> None:
    with counting.client() as broker:
        for _ in range(3):
            broker.call("counted", "echo", {"text": "x"})
        broker.call("counted", "fail")
    done = typed(counting, "metrics")
    assert (done.code, done.err) == (0, "")
    samples = _samples(done.out)
    assert samples["treadle_calls_total{outcome=ok,server=counted,tool=echo}"] == 3
    assert samples["treadle_calls_total{outcome=tool_error,server=counted,tool=fail}"] == 1
    assert samples["treadle_call_duration_seconds_count{server=counted}"] == 4
    assert samples["treadle_server_state{server=counted,treadle_server_state=ready}"] == 1
    assert samples["treadle_server_processes{server=counted}"] == 1
    assert samples["treadle_server_resident_bytes{server=counted}"] > 2**20


def test_names_of_tools_that_callers_make_up_are_no_labels(counting: Daemon, typed: Verb) -> None:
    with counting.client() as broker:
        for number in range(20):
            with pytest.raises(BrokerError):
                broker.call("guessed", f"made_up_{number}")
    text = typed(counting, "metrics").out
    assert "made_up" not in text
    assert _samples(text)["treadle_calls_total{outcome=failed,server=guessed,tool=(other)}"] == 20


def test_counters_survive_a_reload_that_replaces_the_server(serve: Serve, typed: Verb) -> None:
    daemon = serve({"demo": DEMO_SERVER})
    daemon.wait_ready()
    with daemon.client() as broker:
        broker.call("demo", "echo", {"text": "x"})
        daemon.config.write_text(toml({"demo": {**DEMO_SERVER, "queue": 5}}))
        assert [row["name"] for row in broker.reload()["changed"]] == ["demo"]
        broker.call("demo", "echo", {"text": "x"})
    assert _samples(typed(daemon, "metrics").out)["treadle_calls_total{outcome=ok,server=demo,tool=echo}"] == 2


def test_restarts_are_counted(serve: Serve, typed: Verb) -> None:
    daemon = serve({"demo": {**DEMO_SERVER, "restart": "always", "restart_backoff_ms": 1}})
    daemon.wait_ready()
    os.kill(daemon.server("demo")["pid"], signal.SIGKILL)
    while daemon.server("demo")["generation"] < 2:
        pass
    daemon.wait_ready()
    samples = _samples(typed(daemon, "metrics").out)
    assert samples["treadle_server_restarts_total{server=demo}"] == 1
    assert samples["treadle_server_generation{server=demo}"] == 2


def test_what_is_turned_away_is_counted(counting: Daemon, typed: Verb) -> None:
    with counting.client() as broker:
        with pytest.raises(BrokerError):
            broker.call("missing", "x")
    samples = _samples(typed(counting, "metrics").out)
    assert samples["treadle_server_refusals_total{code=mcp_unavailable,server=missing}"] == 1


def test_the_listener_serves_the_same_over_http_on_the_loopback(counting: Daemon, port: int, typed: Verb) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        text = answer.read().decode()
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    served, printed = _samples(text), _samples(typed(counting, "metrics").out)
    passing = re.compile(r"uptime|connections|cpu|resident")
    assert {key: value for key, value in served.items() if not passing.search(key)} == {
        key: value for key, value in printed.items() if not passing.search(key)
    }


def test_a_port_that_is_taken_stops_the_start_and_leaves_nothing(serve: Serve) -> None:
    daemon = serve({"demo": DEMO_SERVER})
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        other = f"{daemon.folder}/other.sock"
        words = ("serve", "--config", str(daemon.config), "--metrics-port", str(port))
        done = daemon.cli(*words, TREADLE_SOCKET=other)
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in done.stderr
    assert not Path(other).exists()


# --- the dashboard ------------------------------------------------------------------------------------


def test_the_dashboard_asks_for_metrics_that_there_are(counting: Daemon, typed: Verb) -> None:
    with counting.client() as broker:
        broker.call("shown", "echo", {"text": "x"})
    text = typed(counting, "metrics").out
    names = {re.split(r"[{ ]", line)[0] for line in text.splitlines() if line[0] != "#"}
    declared = set(re.findall(r"# TYPE (\S+) counter", text))
    dashboard = json.loads((Path(__file__).parents[2] / "config" / "grafana-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    asked = set(re.findall(r"\btreadle_\w+", " ".join(expressions)))
    assert expressions
    assert asked - names - {f"{name}_total" for name in declared} == set()
