"""The stderr of servers through the real daemon: it blocks nobody, fills nothing, and explains failures."""

from __future__ import annotations

import re

import pytest

from support import script, unruly
from support.daemon import Daemon
from support.unruly import scripted, until
from treadle_client import ServerUnavailable

from .conftest import Serve

LAST_WORDS = [script.stderr("one\ntwo\nError: no such table\nfatal: giving up\n"), script.exit(3)]
SERVERS = {
    "loud": scripted(script.flood("warming up\n", 1 << 20, fd=2)),
    "odd": scripted(script.stderr(b"bad \xff\xc0\x80 and \x1b[31mred\x1b[0m\n")),
    "dies_at_start": scripted(*LAST_WORDS),
    "dies_in_a_call": scripted(script.per_tool("echo", *LAST_WORDS)),
}


@pytest.fixture(scope="module")
def daemon(serve_module: Serve) -> Daemon:
    """One daemon with a server for each test."""
    running = serve_module({name: {"command": command} for name, command in SERVERS.items()})
    unruly.settle(running)
    return running


def rss_mib(daemon: Daemon) -> float:
    return unruly.status_of(daemon.pid, "VmRSS") / 1024


def test_fifty_mebibytes_without_a_newline_block_nobody_and_are_not_kept(serve: Serve) -> None:
    flood = script.per_tool(
        "echo", script.flood("x", 50 << 20, fd=2), script.stderr("\nthe end\n"), script.text("done")
    )
    daemon = serve({"loud": {"command": scripted(flood)}, "quiet": {"command": scripted()}})
    unruly.settle(daemon)
    before = rss_mib(daemon)
    with daemon.client() as client:
        assert client.call("loud", "echo", timeout=20).text == "done"
        assert client.call("quiet", "echo", {"text": "fine"}).text == "fine"
        until(lambda: client.logs("loud").endswith("the end"), "the last line")
        assert len(client.logs("loud")) < 70_000
        assert client.status("loud")["servers"][0]["stderr_bytes"] == (50 << 20) + len("\nthe end\n")
    assert rss_mib(daemon) - before < 8
    assert len(daemon.log()) < 100_000


def test_a_flood_of_lines_is_rate_limited_in_the_log_and_says_so(serve: Serve) -> None:
    flood = script.per_tool("echo", script.flood("a line of chatter\n", 18 * 20_000, fd=2), script.text("done"))
    daemon = serve({"loud": {"command": scripted(flood)}})
    with daemon.client() as client:
        assert client.call("loud", "echo", timeout=20).text == "done"
        client.stop("loud")
    assert 40 <= daemon.log().count("a line of chatter") < 200
    counts = [int(number) for number in re.findall(r"\((\d+) lines suppressed\)", daemon.log())]
    assert sum(counts) + daemon.log().count("a line of chatter") == 20_000


def test_stderr_before_the_handshake_blocks_no_start(daemon: Daemon) -> None:
    assert daemon.server("loud")["state"] == "ready"


def test_bytes_that_are_no_utf_8_and_controls_are_shown_escaped(daemon: Daemon) -> None:
    with daemon.client() as client:
        until(lambda: "red" in client.logs("odd"), "the line")
        tail = client.logs("odd")
    assert r"bad \xff\xc0\x80 and" in tail
    assert "\x1b" not in tail + daemon.log()


@pytest.mark.parametrize("server", ["dies_at_start", "dies_in_a_call"])
def test_the_last_lines_are_in_the_reason_of_a_failure(daemon: Daemon, server: str) -> None:
    with daemon.client() as client, pytest.raises(ServerUnavailable, match="status 3") as caught:
        client.call(server, "echo")
    assert "two | Error: no such table | fatal: giving up" in str(caught.value)
    row = unruly.settle(daemon)[server]
    assert "fatal: giving up" in row["reason"]
    assert "fatal: giving up" in row["last_failure"]["reason"]


def test_logs_shows_the_tail_of_a_server_that_ended(daemon: Daemon) -> None:
    with daemon.client() as client:
        assert client.logs("dies_at_start").endswith("fatal: giving up")
