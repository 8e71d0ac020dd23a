"""The main job, end to end: real servers, the real daemon, its socket, the stub and the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from support import script, unruly
from support.daemon import DEMO, Daemon, toml
from treadle_client import Client, Denied, ServerErrored, ServerUnavailable, ToolFailed

from .conftest import Serve, Verb

DEMO_SERVER = {"command": list(DEMO)}
MISSING_SERVER = {"command": ["treadle-no-such-program"]}
SILENT_SERVER = {"command": list(script.command([script.per_tool("echo", [])]))}


@pytest.fixture(scope="module")
def daemon(serve_module: Serve) -> Daemon:
    """One daemon for the tests that leave it as it is."""
    keyed = {**DEMO_SERVER, "api_key_env": "TREADLE_TEST_KEY"}
    running = serve_module(
        {"demo": DEMO_SERVER, "missing": MISSING_SERVER, "silent": SILENT_SERVER, "keyed": keyed}
    )
    running.wait_ready()
    return running


def test_a_call_travels_from_the_stub_to_the_server_and_back(daemon: Daemon) -> None:
    with daemon.client() as broker:
        result = broker.call("demo", "add", {"a": 1, "b": 2})
    assert (result.text, result.structured, result.is_error) == ("3", {"sum": 3}, False)


def test_the_listing_carries_names_descriptions_and_schemas(daemon: Daemon) -> None:
    with daemon.client() as broker:
        broker.call("demo", "echo", {"text": "up"})
        tools = {tool["name"]: tool for tool in broker.list("demo")}
        bare = broker.list("demo", schemas=False)
    assert list(tools) == ["echo", "add", "slow", "fail", "image", "big"]
    assert tools["echo"]["input_schema"]["required"] == ["text"]
    assert tools["add"]["output_schema"]["properties"] == {"sum": {"type": "number"}}
    assert [set(tool) for tool in bare] == [{"name", "description"}] * 6


def test_a_tool_that_says_no_is_an_answer_and_check_makes_it_an_exception(daemon: Daemon) -> None:
    with daemon.client() as broker:
        assert broker.call("demo", "fail", {"message": "no"}).is_error
        with pytest.raises(ToolFailed, match="no"):
            broker.call("demo", "fail", {"message": "no"}, check=True)


def test_an_error_of_the_server_keeps_its_code_and_message(daemon: Daemon) -> None:
    with (
        daemon.client() as broker,
        pytest.raises(ServerErrored, match="unknown tool") as caught,
    ):
        broker.call("demo", "nope")
    assert (caught.value.code, caught.value.outcome) == ("jsonrpc_-32602", "answered")


def test_an_unknown_server_is_refused_with_the_names_there_are(daemon: Daemon) -> None:
    with (
        daemon.client() as broker,
        pytest.raises(Denied, match="configured: demo, missing, silent, keyed") as caught,
    ):
        broker.call("demon", "echo")
    assert (caught.value.code, caught.value.outcome) == ("unknown_server", "not_sent")


def test_an_answer_of_10_mib_crosses_whole(daemon: Daemon) -> None:
    with daemon.client() as broker:
        assert broker.call("demo", "big", {"bytes": 10 * 2**20}).text == "x" * (10 * 2**20)


def test_an_answer_past_the_limit_costs_its_call_and_says_both_sizes(daemon: Daemon) -> None:
    with daemon.client() as broker:
        with pytest.raises(Exception, match=r"16\d{6} bytes, the limit is 16711680") as caught:
            broker.call("demo", "big", {"bytes": 16 * 2**20 - 60_000})
        assert getattr(caught.value, "code", None) == "mcp_malformed"
        assert broker.call("demo", "echo", {"text": "alive"}).text == "alive"


def test_a_server_that_cannot_be_spawned_is_one_row_and_stops_no_other(daemon: Daemon) -> None:
    with daemon.client() as broker:
        assert broker.call("demo", "echo", {"text": "hi"}).text == "hi"
        with pytest.raises(ServerUnavailable, match="treadle-no-such-program was not found on PATH") as caught:
            broker.call("missing", "echo")
        assert caught.value.outcome == "not_sent"
        rows = {row["name"]: row for row in broker.list()}
    assert [rows["missing"]["state"], rows["demo"]["state"]] == ["retired", "ready"]
    assert "was not found on PATH" in rows["missing"]["reason"]


def test_a_variable_that_is_unset_refuses_its_server_before_anything_runs(daemon: Daemon) -> None:
    row = daemon.server("keyed")
    assert row["state"] == "refused"
    assert "TREADLE_TEST_KEY" in row["reason"]
    assert row["generation"] == 0


def test_kill_9_of_a_server_settles_its_calls_at_once_and_names_the_signal(serve: Serve) -> None:
    daemon = serve({"demo": DEMO_SERVER})
    with daemon.client() as broker:
        broker.call("demo", "echo", {"text": "up"})
        pid = broker.status("demo")["servers"][0]["pid"]
        killer = threading.Timer(0.1, os.kill, [pid, signal.SIGKILL])
        killer.start()
        with pytest.raises(ServerUnavailable, match="SIGKILL") as caught:
            broker.call("demo", "slow", {"seconds": 30})
        killer.join()
        assert caught.value.outcome == "unknown"
        with pytest.raises(ServerUnavailable, match="SIGKILL") as again:
            broker.call("demo", "echo", {"text": "later"})
        assert again.value.outcome == "not_sent"
    row = unruly.settle(daemon)["demo"]
    assert row["state"] == "retired"
    assert (row["evidence"]["kind"], row["evidence"]["signal"]) == ("exited", "SIGKILL")


def test_a_server_that_never_answers_costs_one_call_its_deadline(daemon: Daemon) -> None:
    with daemon.client() as broker:
        with pytest.raises(Exception, match="no answer within 150 ms") as caught:
            broker.call("silent", "echo", timeout=0.15)
        assert getattr(caught.value, "code", None) == "mcp_timeout"
        assert broker.call("demo", "echo", {"text": "fine"}).text == "fine"


def test_shutdown_leaves_no_process_and_tells_each_exit(serve: Serve) -> None:
    daemon = serve({"one": DEMO_SERVER, "two": DEMO_SERVER})
    daemon.wait_ready()
    done = daemon.cli("shutdown")
    assert done.returncode == 0
    rows = done.stdout.splitlines()
    assert [row.split()[0] for row in rows] == ["one", "two"]
    assert all("exited with status 0 after its stdin was closed" in row for row in rows)
    assert daemon.process is not None
    assert daemon.process.wait(10) == 0
    assert daemon.leftovers() == []
    assert not Path(daemon.socket).exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_daemon_as_shutdown_does(serve: Serve, number: signal.Signals) -> None:
    daemon = serve({"demo": DEMO_SERVER})
    daemon.wait_ready()
    assert daemon.stop(number) == 0
    assert "exited with status 0 after its stdin was closed" in daemon.log()
    assert daemon.leftovers() == []


def test_the_socket_is_private_and_lies_in_a_private_directory(daemon: Daemon) -> None:
    path = Path(daemon.socket)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_second_daemon_on_the_socket_refuses_and_says_who_holds_it(daemon: Daemon) -> None:
    second = daemon.cli("serve", "--config", str(daemon.config))
    assert second.returncode == 2
    assert f"the daemon with pid {daemon.pid} holds it" in second.stderr
    with daemon.client() as broker:
        assert broker.call("demo", "echo", {"text": "still here"}).text == "still here"


def test_garbage_on_the_socket_closes_that_connection_only(daemon: Daemon) -> None:
    with daemon.client() as broker:
        broker.ping()
        with socket.socket(socket.AF_UNIX) as rude:
            rude.connect(daemon.socket)
            rude.sendall(b"GET / HTTP/1.1\r\n\r\n")
            rude.settimeout(5)
            answer = b""
            while chunk := rude.recv(65536):
                answer += chunk
        assert b"bad_frame" in answer
        assert broker.call("demo", "echo", {"text": "unharmed"}).text == "unharmed"


# --- the command line ------------------------------------------------------------------------------


def test_verbs_without_a_daemon_say_how_to_start_one(tmp_path: Path, typed: Verb) -> None:
    daemon = Daemon(tmp_path, toml({"demo": DEMO_SERVER}))
    for verb in (["list"], ["status"], ["shutdown"], ["call", "demo", "echo"]):
        done = typed(daemon, *verb)
        assert (done.code, done.out) == (3, "")
        assert "treadle serve" in done.err
        assert daemon.socket in done.err


def test_values_are_coerced_by_the_schema_of_the_tool(daemon: Daemon, typed: Verb) -> None:
    assert typed(daemon, "call", "demo", "echo", "text=000123").out == "000123\n"
    assert typed(daemon, "call", "demo", "add", "a=1", "b=2.5").out == "3.5\n"


@pytest.mark.parametrize("form", ["-", "@file", "inline"])
def test_arguments_may_be_one_json_object(daemon: Daemon, form: str, tmp_path: Path) -> None:
    text = '{"a": 40, "b": 2}'
    file = tmp_path / "arguments.json"
    file.write_text(text)
    word = {"-": "-", "@file": f"@{file}", "inline": text}[form]
    done = daemon.cli("call", "demo", "add", "--json-args", word, "--json", stdin=text)
    assert json.loads(done.stdout) == {
        "content": [{"type": "text", "text": "42"}],
        "is_error": False,
        "structured": {"sum": 42},
    }


def test_exit_codes_tell_the_failures_apart(daemon: Daemon, typed: Verb) -> None:
    codes = {
        ("call", "demo", "add", "a=1", "b=2"): 0,
        ("call", "demo", "fail"): 1,
        ("call", "demo", "nope"): 1,
        ("call", "demo", "add", "a=one", "b=2"): 2,
        ("call", "nobody", "add"): 2,
        ("call", "demo"): 2,
        ("call", "missing", "x"): 4,
        ("call", "demo", "slow", "seconds=5", "--timeout", "0.1"): 5,
    }
    assert {words: typed(daemon, *words).code for words in codes} == codes


def test_readers_print_the_shapes_of_the_protocol_as_json(daemon: Daemon, typed: Verb) -> None:
    assert typed(daemon, "list", "--json").json[0] == {"name": "demo", "state": "ready", "tools": 6}
    assert typed(daemon, "list", "demo", "--json").json["server"] == "demo"
    status = typed(daemon, "status", "--json").json
    assert (status["daemon"]["state"], status["servers"][0]["state"]) == ("ready", "ready")


# --- bad configuration -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file"),
        ("[mcp.demo\n", r"treadle.toml:1:"),
        ("[broker]\nmax_in_flght = 3\n", r"treadle.toml:2:1: .*max_in_flght(.|\n)*max_in_flight"),
    ],
    ids=["missing", "not TOML", "a bad broker table"],
)
def test_a_configuration_that_cannot_be_used_ends_serve_with_2(
    tmp_path: Path, text: str | None, message: str
) -> None:
    daemon = Daemon(tmp_path, text or "")
    if text is None:
        daemon.config.unlink()
    done = daemon.cli("serve", "--config", str(daemon.config))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert re.search(message, done.stderr), done.stderr


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('[mcp.bad]\ncomand = ["x"]\n', "comand"),
        ('[mcp.bad]\ncommand = "python -m thing"\n', r'["python", "-m", "thing"]'),
    ],
    ids=["an unknown key", "a command that is a string"],
)
def test_an_error_in_one_table_refuses_that_server_with_file_line_and_fix(
    tmp_path: Path, table: str, message: str
) -> None:
    text = toml({"demo": DEMO_SERVER}) + table
    with Daemon(tmp_path, text) as daemon:
        row = daemon.server("bad")
        assert row["state"] == "refused"
        assert message in daemon.log()
        assert "treadle.toml:4:" in daemon.log()
        with daemon.client() as broker:
            assert broker.call("demo", "echo", {"text": "served"}).text == "served"
    assert daemon.leftovers() == []


def test_strict_refuses_to_start_with_any_error(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, toml({"demo": DEMO_SERVER}) + '[mcp.bad]\ncomand = ["x"]\n')
    done = daemon.cli("serve", "--strict", "--config", str(daemon.config))
    assert done.returncode == 2
    assert "comand" in done.stderr


def test_the_stub_never_imports_the_daemon() -> None:
    code = "import sys, treadle_client; sys.exit(any(name.split('.')[0] == 'treadle' for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_client_finds_the_socket_in_the_environment(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_SOCKET", daemon.socket)
    with Client() as broker:
        assert broker.call("demo", "echo", {"text": "found"}).text == "found"
