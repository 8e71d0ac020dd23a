"""What a terminal shows: live views and progress, driven in a pseudo-terminal. Nothing of it appears in a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest

from support import script
from support.daemon import DEMO, Daemon, toml

from .conftest import Serve

DEMO_SERVER = {"command": list(DEMO)}
WITHIN_S = 20.0
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")


class Terminal:
    """A program on a pseudo-terminal of 80 columns and 24 rows."""

    def __init__(self, words: Sequence[str], environ: Mapping[str, str], cwd: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "treadle", *words],
            env={**environ, "TERM": "xterm"},
            cwd=cwd,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.raw = ""

    @property
    def text(self) -> str:
        """All that was shown, without the escape sequences."""
        return _ESCAPE.sub("", self.raw.replace("\x1b[H", "\n"))  # a screen begins at its home

    def wait_for(self, pattern: str) -> str:
        """Read until ``pattern`` was shown; returns what it matched."""
        deadline = time.monotonic() + WITHIN_S
        while (found := re.search(pattern, self.text)) is None:
            assert time.monotonic() < deadline, f"{pattern!r} was not shown:\n{self.text}"
            assert self._read(), f"it ended without {pattern!r}:\n{self.text}"
        return found[0]

    def end(self) -> int:
        """Read to the end; returns the exit status."""
        deadline = time.monotonic() + WITHIN_S
        while self._read():
            assert time.monotonic() < deadline, f"it does not end:\n{self.text[-2000:]}"
        return self.process.wait(WITHIN_S)

    def _read(self) -> bool:
        if not select.select([self.master], [], [], WITHIN_S)[0]:
            raise AssertionError(f"nothing more was shown:\n{self.text}")
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the other side was closed
            return False
        self.raw += data.decode("utf-8", "replace")
        return bool(data)

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())


@contextmanager
def on_terminal(daemon: Daemon, *words: str, **environ: str) -> Iterator[Terminal]:
    terminal = Terminal(words, {**daemon.environ, **environ}, str(daemon.folder))
    try:
        yield terminal
    finally:
        if terminal.process.poll() is None:
            terminal.process.kill()
            terminal.process.wait()
        os.close(terminal.master)


LONG_NAME = "a_server_with_a_name_of_32_chars"


@pytest.fixture(scope="module")
def shared(serve_module: Serve) -> Daemon:
    """One daemon for the tests that leave it as it is."""
    daemon = serve_module({"demo": DEMO_SERVER, LONG_NAME: DEMO_SERVER})
    daemon.wait_ready()
    return daemon


def test_top_shows_the_servers_at_work_in_80_columns_and_ends_with_q(shared: Daemon) -> None:
    with shared.client() as broker, on_terminal(shared, "top", "--interval", "0.1") as terminal:
        terminal.wait_for(r"SERVER +STATE +FLY +CALL/S +P50 +P95 +ERR +RST +MEM +CPU%")
        broker.call("demo", "fail")
        # Name, state, in flight, rate, p50, p95, one error, no restart, memory, CPU.
        terminal.wait_for(r"demo +ready +0 +[\d.]+ +[\d.]+ +[\d.]+ +1 +0 +\d+M +[\d.]+ *\n")
        terminal.wait_for(rf"{LONG_NAME} +ready")
        assert max(len(line) for line in terminal.text.split("\n")) <= 80
        terminal.type("q")
        assert terminal.end() == 0


def test_top_goes_on_when_the_daemon_goes_and_ends_on_an_interrupt(serve: Serve) -> None:
    daemon = serve({"demo": DEMO_SERVER})
    daemon.wait_ready()
    with on_terminal(daemon, "top", "--interval", "0.1") as terminal:
        terminal.wait_for(r"demo +ready")
        daemon.stop()
        terminal.wait_for(r"trying again")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 0


def test_status_watch_shows_a_change_as_it_comes(serve: Serve) -> None:
    daemon = serve({"demo": DEMO_SERVER})
    daemon.wait_ready()
    with daemon.client() as broker, on_terminal(daemon, "status", "--watch") as terminal:
        terminal.wait_for(r"demo +ready")
        broker.stop("demo")
        terminal.wait_for(r"demo +retired")
        terminal.type("q")
        assert terminal.end() == 0


def test_a_call_shows_the_time_that_it_takes_after_two_seconds(shared: Daemon) -> None:
    with on_terminal(shared, "call", "demo", "slow", "seconds=2.1") as terminal:
        terminal.wait_for(r"demo slow … 2 s")
        assert terminal.end() == 0


def test_serve_shows_a_row_for_each_server_that_came_up_or_did_not(serve: Serve) -> None:
    daemon = serve({})  # its folder and environment; the one looked at is another
    other = {"TREADLE_SOCKET": f"{daemon.folder}/other.sock"}
    config = daemon.folder / "other.toml"
    config.write_text(toml({"demo": DEMO_SERVER, "missing": {"command": ["treadle-no-such-program"]}}))
    with on_terminal(daemon, "serve", "--config", str(config), **other) as terminal:
        terminal.wait_for(r"✓ +demo +ready +6 tools, [\d.]+ s")
        terminal.wait_for(r"✗ +missing +\w+ +command treadle-no-such-program was not found")
        terminal.process.send_signal(signal.SIGTERM)
        terminal.wait_for(r"demo: retired: exited with status 0")
        assert terminal.end() == 0


def test_serve_that_is_interrupted_during_the_start_shows_the_evidence_of_every_server(serve: Serve) -> None:
    daemon = serve({})
    other = {"TREADLE_SOCKET": f"{daemon.folder}/other.sock"}
    config = daemon.folder / "other.toml"
    silent = {"command": script.command([script.on("initialize")]), "handshake_timeout_ms": 60_000}
    config.write_text(toml({"one": silent, "two": silent, "three": silent}))
    with on_terminal(daemon, "serve", "--config", str(config), **other) as terminal:
        terminal.wait_for(r"three +starting")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 0
    for name in ("one", "two", "three"):
        assert re.search(rf"{name}: retired: exited with status 0", terminal.text)
        assert re.search(rf"· +{name} +(retired|closing) +stopped by shutdown", terminal.text)
    assert "✗" not in terminal.text


@pytest.mark.parametrize(("environ", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colour_is_for_terminals_and_not_against_no_color(
    shared: Daemon, environ: dict[str, str], coloured: bool
) -> None:
    with on_terminal(shared, "status", **environ) as terminal:
        assert terminal.end() == 0
    assert ("\x1b[32mready" in terminal.raw) is coloured
    assert "\x1b" not in shared.cli("status").stdout


def test_control_characters_of_a_tool_do_not_reach_a_terminal(shared: Daemon) -> None:
    evil = "a\x1b]0;title\x07b"
    with on_terminal(shared, "call", "demo", "echo", f"text={evil}") as terminal:
        assert terminal.end() == 0
    assert terminal.raw.strip() == "a ]0;title b"
    assert shared.cli("call", "demo", "echo", f"text={evil}").stdout == f"{evil}\n"
