"""What is done to several servers is done to all of them at once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from support.fake_daemon import FakeConnection, FakeDaemon, answer
from treadle.cli import app
from treadle_client.frames import Frame

EVIDENCE = {"kind": "exited", "status": 0, "rung": "eof", "elapsed_ms": 1, "drained": True, "stragglers": 0}


@pytest.mark.parametrize("verb", ["stop", "restart"])
def test_servers_are_managed_at_once_and_told_in_the_order_they_were_named(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    all_there = threading.Barrier(3, timeout=10)

    def managing(connection: FakeConnection, frame: Frame) -> None:
        if frame.kind != verb:
            answer(connection, frame)
            return
        all_there.wait()
        connection.result(frame, {"state": "ready", "evidence": EVIDENCE})

    monkeypatch.setenv("TREADLE_SOCKET", str(tmp_path / "s"))
    with FakeDaemon(str(tmp_path / "s"), managing):
        assert app.run([verb, "c", "a", "b", "a"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in told] == ["c", "a", "b"]
    assert not all_there.broken
