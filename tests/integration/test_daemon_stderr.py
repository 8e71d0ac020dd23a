"""The stderr of servers through the real daemon: it blocks nobody, fills nothing, and explains failures."""

from __future__ import annotations

import re

import pytest

from support import script, unruly
from support.daemon import Daemon
from support.unruly import scripted, until
from treadle_client import ServerUnavailable

from .conftest import Serve


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


def test_stderr_before_the_handshake_blocks_no_start(serve: Serve) -> None:
    daemon = serve({"loud": {"command": scripted(script.flood("warming up\n", 1 << 20, fd=2))}})
    assert unruly.settle(daemon)["loud"]["state"] == "ready"


def test_bytes_that_are_no_utf_8_and_controls_are_shown_escaped(serve: Serve) -> None:
    odd = script.stderr(b"bad \xff\xc0\x80 and \x1b[31mred\x1b[0m\n")
    daemon = serve({"odd": {"command": scripted(odd)}})
    unruly.settle(daemon)
    with daemon.client() as client:
        until(lambda: "red" in client.logs("odd"), "the line")
        tail = client.logs("odd")
    assert r"bad \xff\xc0\x80 and" in tail
    assert "\x1b" not in tail + daemon.log()


@pytest.mark.parametrize("when", ["at start", "in a call"])
def test_the_last_lines_are_in_the_reason_of_a_failure(serve: Serve, when: str) -> None:
    last = [script.stderr("one\ntwo\nError: no such table\nfatal: giving up\n"), script.exit(3)]
    steps = last if when == "at start" else [script.per_tool("echo", *last)]
    daemon = serve({"dies": {"command": scripted(*steps)}})
    unruly.settle(daemon)
    with daemon.client() as client, pytest.raises(ServerUnavailable, match="status 3") as caught:
        client.call("dies", "echo")
    assert "two | Error: no such table | fatal: giving up" in str(caught.value)
    row = unruly.settle(daemon)["dies"]
    assert "fatal: giving up" in row["reason"]
    assert "fatal: giving up" in row["last_failure"]["reason"]


def test_logs_shows_the_tail_of_a_server_that_ended(serve: Serve) -> None:
    daemon = serve({"dies": {"command": scripted(script.stderr("last words\n"), script.exit(3))}})
    unruly.settle(daemon)
    with daemon.client() as client:
        assert client.logs("dies") == "last words"
