"""A client in another language, written from docs/protocol.md alone, against the real daemon."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration.conftest import Serve
from support.daemon import DEMO

INTEROP = Path(__file__).parents[2] / "build" / "interop"
CLIENT = Path(__file__).parent / "node_client" / "client.mjs"

Play = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def play(serve: Serve, tmp_path: Path) -> Play:
    """Play steps against a daemon with the demo server; one result per step."""
    # Node looks for a module from where the script lies; nothing is installed into the repository.
    program = tmp_path / "client"
    program.mkdir()
    shutil.copy(CLIENT, program)
    shutil.copy(CLIENT.with_name("package.json"), program)
    (program / "node_modules").symlink_to(INTEROP / "npm" / "node_modules")
    daemon = serve({"demo": {"command": list(DEMO)}})
    daemon.wait_ready("demo")

    def run(*steps: dict[str, Any]) -> list[dict[str, Any]]:
        done = subprocess.run(
            ["node", str(program / "client.mjs"), daemon.socket],
            input=json.dumps(steps),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        results: list[dict[str, Any]] = json.loads(done.stdout)
        return results

    return run


HELLO = {"do": "hello", "peer": "node"}


def call(tool: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"do": "call", "server": "demo", "tool": tool, "arguments": arguments, **more}


def body(result: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = result["frame"]["body"]
    return found


def test_hello_names_the_daemon_and_its_limits(play: Play) -> None:
    (hello,) = play(HELLO)
    assert body(hello)["proto"] == 1
    assert body(hello)["peer"].startswith("treadle/")
    assert body(hello)["limits"]["max_frame_bytes"] == 16 * 1024 * 1024


def test_a_listing_and_a_call(play: Play) -> None:
    _, listing, result = play(HELLO, {"do": "list", "server": "demo"}, call("add", {"a": 1, "b": 2}))
    assert "echo" in {tool["name"] for tool in body(listing)["value"]["tools"]}
    assert body(result) == {
        "ok": True,
        "value": {"content": [{"type": "text", "text": "3"}], "is_error": False, "structured": {"sum": 3}},
    }


def test_an_error_carries_code_message_and_outcome(play: Play) -> None:
    _, failed = play(HELLO, call("nope", {}))
    error = body(failed)["error"]
    assert (error["code"], error["outcome"]) == ("jsonrpc_-32602", "answered")
    assert "unknown tool" in error["msg"]


def test_a_cancelled_call_is_answered_now_and_the_connection_goes_on(play: Play) -> None:
    results = play(
        HELLO,
        call("slow", {"seconds": 30}, **{"as": "slow"}),
        {"do": "cancel", "of": "slow"},
        {"do": "await", "of": "slow"},
        call("echo", {"text": "on"}),
    )
    assert body(results[3])["error"]["code"] == "cancelled"
    assert body(results[4])["value"]["content"] == [{"type": "text", "text": "on"}]


def test_a_byte_string_in_the_arguments_is_refused_in_band_with_its_path(play: Play) -> None:
    _, refused, fine = play(HELLO, call("echo", {"text": {"$bin": "00ff"}}), call("echo", {"text": "on"}))
    error = body(refused)["error"]
    assert (error["code"], error["outcome"]) == ("invalid_argument", "not_sent")
    assert "$.text" in error["msg"]
    assert body(fine)["ok"]


def test_an_oversized_length_is_refused_and_closes_the_connection(play: Play) -> None:
    _, refused = play(HELLO, {"do": "oversized", "size": 16 * 1024 * 1024 + 1})
    assert refused["closed"]
    assert refused["frames"][-1]["body"]["code"] == "bad_frame"


def test_a_malformed_frame_is_refused_and_closes_the_connection(play: Play) -> None:
    _, refused = play(HELLO, {"do": "raw", "hex": "0000000193"})
    assert refused["closed"]
    assert refused["frames"][-1]["body"]["code"] == "bad_frame"


def test_one_write_can_carry_hello_and_a_request(play: Play) -> None:
    (shot,) = play(
        {"do": "one_shot", "kind": "call", "body": {"server": "demo", "tool": "echo", "arguments": {"text": "x"}}}
    )
    assert [frame["kind"] for frame in shot["frames"]] == ["hello", "result"]
