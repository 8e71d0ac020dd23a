"""What becomes of a verb whose output cannot be written: full, closed, or read by nobody any more."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from support import script
from support.daemon import DEMO, Daemon

from .conftest import Serve

_UNWRITABLE = {">/dev/full": "No space left on device", ">&-": "Bad file descriptor"}
_VERBS = [
    "--help", "completion bash", "list", "status", "tools demo", "call demo add a=1 b=2",
    "call demo big bytes=100000", "doctor --config treadle.toml", "generate demo --target python",
]  # fmt: skip


@pytest.fixture(scope="module")
def daemon(serve_module: Serve) -> Daemon:
    says = script.command([script.stderr(b"hello\n"), script.per_tool("say", script.text("ok"))])
    daemon = serve_module({"demo": {"command": list(DEMO)}, "narrow": {"command": says}})
    daemon.wait_ready()
    return daemon


def _shell(daemon: Daemon, line: str) -> subprocess.CompletedProcess[str]:
    line = line.replace("treadle ", f"{sys.executable} -m treadle ", 1)
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        env=daemon.environ, cwd=daemon.folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "to"), [*((verb, ">/dev/full") for verb in _VERBS), ("list", ">&-"), ("--help", ">&-")]
)
def test_output_that_cannot_be_written_is_one_line_and_74(daemon: Daemon, verb: str, to: str) -> None:
    done = _shell(daemon, f"treadle {verb} {to}")
    assert (done.returncode, done.stderr) == (
        74,
        f"treadle: cannot write to standard output: {_UNWRITABLE[to]}\n",
    )


@pytest.mark.parametrize("verb", _VERBS)
def test_a_reader_that_has_gone_is_no_failure(daemon: Daemon, verb: str) -> None:
    done = _shell(daemon, f"treadle {verb} | true")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_verb_that_prints_nothing_needs_no_output(daemon: Daemon) -> None:
    assert _shell(daemon, "treadle wait demo <&- >&- 2>&-").returncode == 0


def test_a_failure_is_told_and_keeps_its_code_when_nobody_reads_its_output(daemon: Daemon) -> None:
    done = _shell(daemon, "treadle call demo fail message=no | true")
    assert (done.returncode, done.stderr) == (1, "no\n")


def test_a_complaint_that_nobody_can_read_does_not_change_the_code(daemon: Daemon) -> None:
    for to in ("2>/dev/full", "2>&-", "2> >(true)"):
        assert _shell(daemon, f"treadle call nobody x {to}").returncode == 2


def test_a_reader_that_is_slow_gets_all_through_a_pipe_that_does_not_wait(daemon: Daemon) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    line = [sys.executable, "-m", "treadle", "call", "demo", "big", "bytes=300000"]
    with subprocess.Popen(line, env=daemon.environ, stdout=writer) as process:
        os.close(writer)
        with open(reader, "rb") as file:
            assert len(file.read()) == 300_001
    assert process.returncode == 0


@pytest.mark.parametrize("verb", ["logs demo -f", "status --watch --json"])
def test_a_watch_ends_when_nobody_reads_it_any_more(daemon: Daemon, verb: str) -> None:
    line = [sys.executable, "-m", "treadle", *verb.split()]
    with subprocess.Popen(line, env=daemon.environ, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(20) == 0


def test_following_a_log_ends_with_its_terminal_even_if_the_hangup_is_ignored(daemon: Daemon) -> None:
    master, slave = pty.openpty()
    line = [sys.executable, "-m", "treadle", "logs", "narrow", "-f"]
    with subprocess.Popen(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *line], env=daemon.environ, stdin=slave, stdout=slave
    ) as process:
        os.close(slave)
        assert os.read(master, 100) == b"hello\r\n"
        os.close(master)
        assert process.wait(20) == 0


def test_following_a_log_shows_another_incarnation_that_says_the_same(serve: Serve) -> None:
    daemon = serve({"says": {"command": script.command([script.stderr(b"begins\n")])}})
    daemon.wait_ready()
    with subprocess.Popen(
        [sys.executable, "-m", "treadle", "logs", "says", "-f"],
        env=daemon.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as follow:  # fmt: skip
        assert follow.stdout is not None
        assert follow.stdout.readline() == "begins\n"
        with daemon.client() as broker:
            broker.restart("says")
        assert follow.stdout.readline() == "begins\n"
        follow.terminate()
