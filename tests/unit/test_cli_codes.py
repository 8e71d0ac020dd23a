"""The exit codes: one for each way that a request can end, and 8 when an end was not confirmed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.fake_daemon import FakeConnection, FakeDaemon, answer
from treadle.cli import _run, codes
from treadle_client import (
    BrokerUnreachable,
    CallTimedOut,
    Denied,
    ResultMalformed,
    ServerErrored,
    ServerUnavailable,
)
from treadle_client.frames import Frame

UNPROVEN = {"name": "demo", "error": "retirement_timed_out"}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ServerErrored("jsonrpc_-32602", "x"), 1),
        (Denied("unknown_server", "x"), 2),
        (Denied("invalid_argument", "x"), 2),
        (BrokerUnreachable("/s", "x"), 3),
        (ServerUnavailable("mcp_unavailable", "x"), 4),
        (CallTimedOut("mcp_timeout", "x"), 5),
        (CallTimedOut("client_timeout", "x"), 5),
        (Denied("denied", "x"), 6),
        (Denied("overloaded", "x"), 6),
        (Denied("shutting_down", "x"), 6),
        (Denied("cancelled", "x"), 6),
        (Denied("too_large", "x"), 6),
        (Denied("some_code_to_come", "x"), 6),
        (ResultMalformed("mcp_malformed", "x"), 7),
        (ResultMalformed("bad_answer", "x"), 7),
    ],
)
def test_each_way_to_fail_has_its_code(error: Any, code: int) -> None:
    assert codes.exit_code(error) == code


def test_every_code_is_explained() -> None:
    assert list(codes.MEANINGS) == [*range(9), codes.OUTPUT_LOST, codes.INTERRUPTED]


def _saying(kind: str, value: Any) -> Callable[[FakeConnection, Frame], None]:
    def said(connection: FakeConnection, frame: Frame) -> None:
        if frame.kind == kind:
            connection.result(frame, value)
        else:
            answer(connection, frame)

    return said


@pytest.mark.parametrize(
    ("words", "kind", "value"),
    [
        (["shutdown"], "shutdown", {"confirmed": False, "servers": [UNPROVEN]}),
        (["stop", "demo"], "stop", {**UNPROVEN, "state": "unconfirmed"}),
        (["restart", "demo"], "restart", {**UNPROVEN, "state": "unconfirmed", "reason": "not gone"}),
        (["reload"], "reload", {"added": [], "changed": [UNPROVEN], "removed": [], "unchanged": []}),
    ],
)
def test_an_end_that_is_not_confirmed_is_8_and_loud(
    words: list[str],
    kind: str,
    value: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TREADLE_SOCKET", str(tmp_path / "s"))
    with FakeDaemon(str(tmp_path / "s"), _saying(kind, value)):
        assert _run(words) == 8
        assert "NOT CONFIRMED" in capsys.readouterr().out
        assert _run([*words, "--json"]) == 8
        assert "retirement_timed_out" in json.dumps(json.loads(capsys.readouterr().out))
