"""Each verb against a real daemon, as a user types it: its exit code and both outputs.

The verbs run in this process, which is what the console script does after its start; one test a verb at the most
pays for a process of its own.
"""

from __future__ import annotations

import base64
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support import script
from support.daemon import DEMO, Daemon, toml
from support.unruly import STUBBORN, scripted, until
from treadle.cli import progress

from .conftest import Done, Serve, Verb

DEMO_SERVER = {"command": list(DEMO)}
MISSING = {"command": ["treadle-no-such-program"]}
LAZY = {**DEMO_SERVER, "lazy": True}
_LINES = "import sys\nfor n in range(5): print('line', n, file=sys.stderr, flush=True)\nsys.stdin.read()"
LOUD = [sys.executable, "-c", _LINES]


@pytest.fixture(scope="module")
def shared(serve_module: Serve) -> Daemon:
    """One daemon for the tests that leave it as it is."""
    servers = {
        "demo": DEMO_SERVER,
        "missing": MISSING,
        "narrow": {**DEMO_SERVER, "tools": {"deny": ["fail"]}},
        "mute": {**DEMO_SERVER, "tools": {"deny": ["*"]}},
    }
    daemon = serve_module(servers)
    daemon.wait_ready()
    return daemon


# --- reading ----------------------------------------------------------------------------------------


def test_list_shows_servers_with_state_tools_and_reason(shared: Daemon, typed: Verb) -> None:
    done = typed(shared, "list")
    assert (done.code, done.err) == (0, "")
    demo, missing, narrow, _ = done.out.splitlines()
    assert demo.split() == ["demo", "ready", "6", "tools"]
    assert re.match(r"missing +retired +0 tools +command treadle-no-such-program was not found on PATH", missing)
    assert narrow.split() == ["narrow", "ready", "5", "tools"]
    assert [row["name"] for row in typed(shared, "list", "--json").json] == ["demo", "missing", "narrow", "mute"]


def test_list_of_a_server_shows_signatures_and_descriptions(shared: Daemon, typed: Verb) -> None:
    done = typed(shared, "list", "demo")
    assert (done.code, done.err) == (0, "")
    assert "add(a: number, b: number)       Add two numbers.\n" in done.out
    assert "fail(message?: string)" in done.out
    assert "image(colour?: red|green|blue)" in done.out


def test_list_with_schema_shows_the_whole_schemas(shared: Daemon, typed: Verb) -> None:
    done = typed(shared, "list", "demo", "--schema")
    assert done.code == 0
    assert '"What to return"' in done.out
    assert typed(shared, "list", "demo", "--schema", "--json").json["tools"][0]["input_schema"]["type"] == "object"


def test_tools_shows_one_tool_in_full_with_an_example(shared: Daemon, typed: Verb) -> None:
    done = typed(shared, "tools", "demo", "echo")
    assert (done.code, done.err) == (0, "")
    assert "Return the text that was given." in done.out
    assert re.search(r"text +string +required +What to return", done.out)
    assert done.out.endswith("Example: treadle call demo echo text=...\n")
    assert typed(shared, "tools", "demo", "echo", "--json").json["name"] == "echo"
    assert typed(shared, "tools", "demo").out == typed(shared, "list", "demo").out


def test_a_server_that_is_not_there_is_told_with_the_nearest(shared: Daemon, typed: Verb) -> None:
    told = "treadle: no server named 'deno'; configured: demo, missing, narrow, mute; did you mean 'demo'?\n"
    for line in ("call deno add a=1", "tools deno", "status deno", "logs deno", "restart deno", "wait deno"):
        assert typed(shared, *line.split()) == Done(2, "", told)


def test_a_server_that_offers_no_tools_is_told(shared: Daemon, typed: Verb) -> None:
    told = "server mute offers no tools: it lists none, or tools.allow and tools.deny leave none\n"
    for line in ("list mute", "tools mute", "list mute --schema"):
        assert typed(shared, *line.split()) == Done(0, "", told)
    assert typed(shared, "list", "mute", "--json").json == {"server": "mute", "tools": []}


def test_doctor_says_that_the_daemon_runs_another_file(shared: Daemon, typed: Verb, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.touch()

    def told(config: Path) -> list[str]:
        findings = typed(shared, "doctor", "--config", str(config), "--json").json
        return [one["what"] for one in findings if one["where"] == f"socket {shared.socket}"]

    said = f"the daemon runs {shared.config}, not {other}: its servers are others"
    assert said in told(other)
    assert not any("the daemon runs" in what for what in told(shared.config))


def test_doctor_sends_nobody_to_the_log_of_a_server_that_was_never_started(serve: Serve, typed: Verb) -> None:
    daemon = serve({"bad": {"command": "x"}})
    (told,) = [
        one for one in typed(daemon, "doctor", "--config", str(daemon.config), "--json").json
        if one["where"] == "server bad"
    ]  # fmt: skip
    assert told["fix"] == "put that right, then treadle reload or treadle start bad"


def test_a_tool_that_is_not_there_is_told_with_the_nearest(shared: Daemon, typed: Verb) -> None:
    assert typed(shared, "tools", "demo", "ecko") == Done(
        2, "", "treadle: server demo has no tool 'ecko'; did you mean 'echo'?\n"
    )


def test_status_shows_the_daemon_and_a_row_for_each_server(shared: Daemon, typed: Verb) -> None:
    done = typed(shared, "status")
    assert (done.code, done.err) == (0, "")
    head, columns, *rows = done.out.splitlines()
    assert re.match(rf"treadle \S+ \(pid {shared.pid}\) is ready, up \d+s, 0 in flight, containment: \w+$", head)
    assert columns.split()[:4] == ["SERVER", "STATE", "PID", "TOOLS"]
    states = {"demo": "ready", "missing": "retired", "narrow": "ready", "mute": "ready"}
    assert [row.split()[:2] for row in rows] == [list(pair) for pair in states.items()]


def test_status_of_a_server_tells_all_of_it_and_its_process_tree(shared: Daemon, typed: Verb) -> None:
    done = typed(shared, "status", "demo")
    assert re.search(r"tree +1 process, \d+ MiB, [\d.]+ s of CPU", done.out)
    assert re.search(r"speaks +MCP 2025-06-18", done.out)
    tree = typed(shared, "status", "demo", "--json").json["servers"][0]["tree"]
    assert set(tree) == {"processes", "rss_bytes", "cpu_s"}
    assert tree["rss_bytes"] > 2**20
    assert "tree" not in typed(shared, "status", "--json").json["servers"][0]


def test_top_once_prints_the_table_for_scripts(shared: Daemon, typed: Verb) -> None:
    done = typed(shared, "top", "--once", "--interval", "0.1")
    assert (done.code, done.err) == (0, "")
    header, demo, *_ = done.out.splitlines()
    assert header.split() == ["SERVER", "STATE", "FLY", "CALL/S", "P50", "P95", "ERR", "RST", "MEM", "CPU%"]
    assert demo.split()[:4] == ["demo", "ready", "0", "0.0"]
    assert typed(shared, "top", "--json", "--interval", "0.1").json[0]["name"] == "demo"


def test_version_tells_the_daemon_too(shared: Daemon, typed: Verb) -> None:
    versions = typed(shared, "version", "--json").json
    assert versions["treadle"] == versions["daemon"]
    assert re.search(r"^python +3\.\d+", typed(shared, "version").out, re.MULTILINE)


def test_logs_shows_what_the_server_wrote(serve: Serve, typed: Verb) -> None:
    daemon = serve({"loud": {"command": LOUD, "handshake_timeout_ms": 300}})
    daemon.wait_ready()
    assert typed(daemon, "logs", "loud") == Done(0, "".join(f"line {n}\n" for n in range(5)), "")
    assert typed(daemon, "logs", "loud", "-n", "2").out == "line 3\nline 4\n"
    assert typed(daemon, "logs", "loud", "-n", "1", "--json").json == {"server": "loud", "lines": ["line 4"]}


def test_logs_follow_shows_what_comes_and_ends_with_the_daemon(serve: Serve) -> None:
    says = script.command([script.per_tool("say", script.stderr(b"heard\n"), script.text("ok"))])
    daemon = serve({"says": {"command": says}})
    daemon.wait_ready()
    follow = subprocess.Popen(
        [sys.executable, "-m", "treadle", "logs", "says", "-f"],
        env=daemon.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with daemon.client() as broker:
        broker.call("says", "say")
    assert follow.stdout is not None
    assert follow.stdout.readline() == "heard\n"
    daemon.stop()
    assert follow.wait(20) == 3
    follow.communicate()


# --- calling ----------------------------------------------------------------------------------------


def test_a_call_prints_the_answer_in_the_form_that_was_asked_for(shared: Daemon, typed: Verb) -> None:
    assert typed(shared, "call", "demo", "add", "a=1", "b=2") == Done(0, "3\n", "")
    whole = {"content": [{"type": "text", "text": "3"}], "is_error": False, "structured": {"sum": 3}}
    for option in (["--json"], ["--output", "json"]):
        assert typed(shared, "call", "demo", "add", "a=1", "b=2", *option).json == whole
    assert typed(shared, "call", "demo", "echo", "text=plain", "--output", "raw") == Done(0, "plain", "")
    assert typed(shared, "call", "demo", "image") == Done(0, "[image]\n", "")


def test_raw_output_of_an_image_is_the_image(shared: Daemon) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "treadle", "call", "demo", "image", "--output", "raw"],
        env=shared.environ, capture_output=True, check=True,
    )  # fmt: skip
    with shared.client() as broker:
        (block,) = broker.call("demo", "image", content="all").content
    assert done.stdout == base64.b64decode(block["data"])
    assert done.stdout.startswith(b"\x89PNG")


def test_server_dot_tool_is_split_at_the_first_dot_of_a_known_name(serve: Serve, typed: Verb) -> None:
    dotted = script.command([script.per_tool("a.b", script.text("dotted"))])
    daemon = serve({"one": {"command": dotted}, "demo": DEMO_SERVER})
    daemon.wait_ready()
    assert typed(daemon, "call", "one.a.b").out == "dotted\n"
    assert typed(daemon, "call", "one", "a.b").out == "dotted\n"
    assert typed(daemon, "call", "demo.echo", "text=x").out == "x\n"
    unknown = typed(daemon, "call", "two.echo")
    assert (unknown.code, unknown.err) == (2, "treadle: no server named 'two'; configured: one, demo\n")


def test_a_tool_that_says_no_is_told_on_standard_error_and_by_1(shared: Daemon, typed: Verb) -> None:
    assert typed(shared, "call", "demo", "fail", "message=no") == Done(1, "", "no\n")
    assert typed(shared, "call", "demo", "fail", "--json").json["is_error"] is True


def test_a_lazy_server_is_started_before_its_schema_is_asked_for(serve: Serve, typed: Verb) -> None:
    daemon = serve({"lazy": LAZY})
    assert typed(daemon, "call", "lazy", "echo", "text=007").out == "007\n"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["nobody", "add"], 2, "no server named 'nobody'; configured: demo, missing, narrow, mute"),
        (["demo", "add", "a=one"], 2, "a=one: the tool asks for number"),
        (["demo", "add", "a=1", "--json-args", "{}"], 2, "give KEY=VALUE words or --json-args, not both"),
        (
            ["demo", "add", "--json-args", "@/nonexistent"],
            2,
            "--json-args @/nonexistent: No such file or directory",
        ),
        (["demo", "nope"], 1, "the server answered error -32602: unknown tool"),
        (["missing", "x"], 4, "server missing is retired: command treadle-no-such-program was not found on PATH"),
        (["demo", "slow", "seconds=5", "--timeout", "0.1"], 5, "no answer within 100 ms"),
        (["narrow", "fail"], 6, "tool 'fail' of server narrow is not offered (tools.allow, tools.deny)"),
        (["demo", "big", "bytes=16717216"], 7, "the limit is"),
    ],
)
def test_each_failure_has_its_exit_code_and_says_why(
    shared: Daemon, typed: Verb, words: list[str], code: int, message: str
) -> None:
    done = typed(shared, "call", *words)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("treadle: ")
    assert message in done.err


def test_with_json_a_failure_is_json_too(shared: Daemon, typed: Verb) -> None:
    done = typed(shared, "call", "missing", "x", "--json")
    assert done.code == 4
    assert {key: done.json["error"][key] for key in ("code", "outcome")} == {
        "code": "mcp_unavailable",
        "outcome": "not_sent",
    }


def test_verbose_tells_the_socket_the_time_and_the_code_of_a_failure(shared: Daemon, typed: Verb) -> None:
    assert re.search(
        rf"[\d.]+ ms with the daemon at {shared.socket}", typed(shared, "call", "demo", "fail", "-v").err
    )
    assert "code: unknown_server, outcome: not_sent" in typed(shared, "call", "nobody", "x", "-v").err


def test_progress_is_never_shown_in_a_pipe(shared: Daemon, typed: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "AFTER_S", 0.01)
    assert typed(shared, "call", "demo", "slow", "seconds=0.1").err == ""


def test_a_reader_that_has_seen_enough_ends_a_verb_quietly(shared: Daemon) -> None:
    line = f"{sys.executable} -m treadle call demo big bytes=4000000 | head -c 10"
    done = subprocess.run(["sh", "-c", line], env=shared.environ, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("xxxxxxxxxx", "")


# --- managing ---------------------------------------------------------------------------------------


def test_stop_start_and_restart_tell_the_evidence_and_the_state(serve: Serve, typed: Verb) -> None:
    daemon = serve({"demo": DEMO_SERVER})
    daemon.wait_ready()
    stopped = typed(daemon, "stop", "demo")
    assert (stopped.code, stopped.err) == (0, "")
    assert re.fullmatch(
        r"demo: exited with status 0 after its stdin was closed in \d+ ms; .*; now retired\n", stopped.out
    )
    assert typed(daemon, "call", "demo", "echo").code == 4
    assert typed(daemon, "start", "demo").out == "demo: now ready\n"
    again = typed(daemon, "restart", "--all", "--json")
    assert again.code == 0
    assert [(row["name"], row["state"], row["evidence"]["kind"]) for row in again.json] == [
        ("demo", "ready", "exited")
    ]


def test_a_start_that_fails_is_4_and_does_not_spare_the_others(serve: Serve, typed: Verb) -> None:
    daemon = serve({"missing": MISSING, "demo": DEMO_SERVER})
    daemon.wait_ready()
    done = typed(daemon, "restart", "missing", "demo", "nobody")
    assert done.code == 4
    assert re.search(
        r"^missing: .*now retired: command treadle-no-such-program was not found", done.out, re.MULTILINE
    )
    assert re.search(r"^demo: .*now ready$", done.out, re.MULTILINE)
    assert "no server named 'nobody'" in done.err


def test_an_interrupted_restart_says_that_the_daemon_goes_on_with_it(serve: Serve) -> None:
    daemon = serve({"slow": {"command": scripted(STUBBORN), "stop_timeout_ms": 2000}})
    daemon.wait_ready()
    with subprocess.Popen(
        [sys.executable, "-m", "treadle", "restart", "slow"],
        env=daemon.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as restart:  # fmt: skip
        until(lambda: daemon.server("slow")["state"] == "closing", "the restart")
        restart.send_signal(signal.SIGINT)
        out, err = restart.communicate(timeout=10)
    assert (restart.returncode, out) == (130, "")
    assert "interrupted; the daemon goes on with the restart, see treadle status" in err
    until(lambda: daemon.server("slow")["generation"] == 2, "the next incarnation")


def test_reload_tells_what_became_of_each_server(serve: Serve, typed: Verb) -> None:
    daemon = serve({"kept": DEMO_SERVER, "changed": DEMO_SERVER, "removed": DEMO_SERVER})
    daemon.wait_ready()
    daemon.config.write_text(toml({"kept": DEMO_SERVER, "changed": {**DEMO_SERVER, "queue": 1}, "added": LAZY}))
    done = typed(daemon, "reload")
    assert (done.code, done.err) == (0, "")
    assert [line.split()[:2] for line in done.out.splitlines()] == [
        ["added", "added"], ["changed", "changed"], ["removed", "removed"], ["unchanged", "kept"],
    ]  # fmt: skip


def test_a_reload_with_an_error_changes_nothing_and_is_2(serve: Serve, typed: Verb) -> None:
    daemon = serve({"demo": DEMO_SERVER})
    daemon.wait_ready()
    pid = daemon.server("demo")["pid"]
    daemon.config.write_text(toml({"other": DEMO_SERVER}) + "[mcp.bad]\ncomand = ['x']\n")
    done = typed(daemon, "reload")
    assert (done.code, done.out) == (2, "")
    assert "comand: unknown key" in done.err
    assert "fix: write command" in done.err
    assert daemon.server("demo")["pid"] == pid


def test_wait_tells_what_it_waits_for(serve: Serve, typed: Verb) -> None:
    silent = {"command": script.command([script.on("initialize")]), "handshake_timeout_ms": 60_000}
    daemon = serve({"demo": DEMO_SERVER, "silent": silent, "missing": MISSING})
    assert typed(daemon, "wait", "demo", "--timeout", "20") == Done(0, "", "")
    late = typed(daemon, "wait", "silent", "--timeout", "0.1")
    assert late == Done(5, "", "treadle: gave up after 0.1 s: still server silent is starting\n")
    assert typed(daemon, "wait", "missing").code == 4


def test_shutdown_tells_the_evidence_of_each_end(serve: Serve, typed: Verb) -> None:
    daemon = serve({"demo": DEMO_SERVER})
    daemon.wait_ready()
    done = typed(daemon, "shutdown", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json["confirmed"] is True
    assert typed(daemon, "status").code == 3


def test_status_watch_in_a_pipe_is_one_line_a_change(serve: Serve) -> None:
    daemon = serve({"demo": DEMO_SERVER})
    daemon.wait_ready()
    watch = subprocess.Popen(
        [sys.executable, "-m", "treadle", "status", "--watch"],
        env=daemon.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert watch.stdout is not None
    assert re.fullmatch(r"\d\d:\d\d:\d\d demo is ready\n", watch.stdout.readline())
    with daemon.client() as broker:
        broker.stop("demo")
    assert re.fullmatch(r"\d\d:\d\d:\d\d demo is retired: stopped by an administrator\n", watch.stdout.readline())
    daemon.stop()
    assert watch.wait(20) == 3
    watch.communicate()


# --- leanness ---------------------------------------------------------------------------------------

LEAN = {
    "_socket", "errno",
    "treadle", "treadle.cli", "treadle.cli.arguments", "treadle.cli.calling", "treadle.cli.codes",
    "treadle.cli.connection", "treadle.cli.options", "treadle.cli.output", "treadle.cli.plain",
    "treadle.cli.progress",
    "treadle_client", "treadle_client._requests", "treadle_client.client", "treadle_client.errors",
    "treadle_client.frames", "treadle_client.paths", "treadle_client.results",
}  # fmt: skip
"""What a plain call brings in besides the interpreter's own modules and those of msgpack; all of it is needed."""


@pytest.mark.parametrize(
    "words",
    [
        ["call", "demo", "add", "a=1", "b=2"],
        ["call", "demo", "fail"],
        ["call", "demo.echo", "text=hello", "-q"],
        ["--socket", "SOCKET", "call", "demo", "echo", "text=/a/path"],
    ],
    ids=" ".join,
)
def test_a_plain_call_imports_what_it_needs_and_nothing_else(shared: Daemon, words: list[str]) -> None:
    code = (
        "import __future__, itertools, os, sys, msgpack; before = set(sys.modules)\n"
        "from treadle.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sorted(set(sys.modules) - before), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, *(shared.socket if word == "SOCKET" else word for word in words)],
        env={**shared.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert set(done.stderr.splitlines()[-1].split()) == LEAN


@pytest.mark.parametrize(
    "words", [["--help"], ["status"], ["list", "demo"], ["top", "--once", "--interval", "0.1"]]
)
def test_what_draws_nothing_does_not_load_the_terminal_library_or_the_daemon(
    shared: Daemon, words: list[str]
) -> None:
    code = (
        "import sys\n"
        "from treadle.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*{'rich', 'uvloop', 'psutil', 'asyncio', 'treadle.daemon'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=shared.environ, capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == ""
