"""What `treadle call` makes of a server that is not ready at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.fake_daemon import FakeConnection, FakeDaemon, answer
from treadle.cli import calling
from treadle.cli.options import Options
from treadle_client.frames import Frame


def test_a_server_that_becomes_ready_between_two_questions_is_asked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def becoming_ready(connection: FakeConnection, frame: Frame) -> None:
        if frame.kind == "list" and len(daemon.seen("list")) == 1:
            connection.failure(frame, "mcp_unavailable", "server demo is starting", outcome="not_sent")
        elif frame.kind == "status":
            connection.result(frame, {"servers": [{"name": "demo", "state": "ready"}]})
        else:
            answer(connection, frame)

    with FakeDaemon(str(tmp_path / "t.sock"), becoming_ready) as daemon:
        assert calling.run(["demo", "echo", "text=hello"], Options(socket=daemon.path)) == 0
    assert capsys.readouterr().out == "hello\n"
