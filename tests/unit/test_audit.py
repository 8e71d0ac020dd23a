"""The audit log: who called what, how it ended, in how many milliseconds."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from treadle.audit import MOST_ARGUMENT_BYTES, Audit, open_audit
from treadle.config import parse
from treadle.errors import CallTimedOut, ConfigError, Fault, InvalidArgument, Unavailable, UnknownServer
from treadle.peers import Peer
from treadle.wire.messages import CallResult

PEER = Peer(12, 1000, frozenset())
OK = CallResult([], False)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def _noted(path: Path, outcome: CallResult | Fault, given: bytes = b"{}", **options: Any) -> dict[str, Any]:
    audit = Audit(str(path), **options)
    audit.note(PEER, "demo", "add", outcome, 0.0125, given)
    audit.close()
    (line,) = _lines(path)
    return line


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (OK, {"result": "ok"}),
        (CallResult([], True), {"result": "tool_error"}),
        (CallTimedOut(50, "unknown"), {"result": "mcp_timeout", "outcome": "unknown"}),
        (Unavailable("gone"), {"result": "mcp_unavailable", "outcome": "not_sent"}),
        (UnknownServer("x", ()), {"result": "unknown_server", "outcome": "not_sent"}),
        (InvalidArgument("$", "odd"), {"result": "invalid_argument", "outcome": "not_sent"}),
    ],
)
def test_a_line_tells_who_what_and_how_it_ended(
    tmp_path: Path, outcome: CallResult | Fault, told: dict[str, str]
) -> None:
    line = _noted(tmp_path / "audit.log", outcome)
    assert line.pop("time").endswith("Z")
    assert line == {"uid": 1000, "pid": 12, "server": "demo", "tool": "add", **told, "ms": 12.5}


def test_the_usual_line_is_the_one_that_any_other_way_gives(tmp_path: Path) -> None:
    for outcome in (OK, CallResult([], True)):
        usual = _noted(tmp_path / "usual", outcome)
        other = _noted(tmp_path / "other", outcome, b"", arguments=True)
        assert list(usual) == list(other)
        assert {**usual, "time": ""} == {**other, "time": ""}
        for name in ("usual", "other"):
            (tmp_path / name).unlink()


def test_lines_are_made_some_at_once_and_in_order(tmp_path: Path) -> None:
    due: list[Callable[[], None]] = []
    audit = Audit(str(tmp_path / "audit.log"), later=lambda _, work: due.append(work))
    for number in range(1100):
        audit.note(PEER, "demo", str(number), OK, 0.0, b"")
    due[-1]()
    audit.note(None, "demo", "last", Unavailable("gone"), 0.0, b"")
    audit.close()
    assert [line["tool"] for line in _lines(tmp_path / "audit.log")] == [*map(str, range(1100)), "last"]


def test_after_a_full_disk_no_line_is_torn_into_another_and_the_missing_ones_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    due: list[Callable[[], None]] = []
    audit = Audit(str(tmp_path / "audit.log"), later=lambda _, work: due.append(work))
    room = 250  # two lines and a half

    def write(descriptor: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        part = bytes(data)[:room]
        room -= len(part)
        return real(descriptor, part)

    real = os.write
    monkeypatch.setattr("treadle.audit.os.write", write)
    for name in ("a", "b", "lost", "lost"):
        audit.note(PEER, "demo", name, OK, 0.0, b"")
    data = b"".join(audit._usual_line(*one) + b"\n" for one in audit._noted if isinstance(one, tuple))
    room = len(data) * 5 // 8
    audit._noted.clear()
    audit._write([data])
    audit._write([data])  # nothing of it goes in
    room = 10_000
    audit._write([data])
    audit.close()
    lines = (tmp_path / "audit.log").read_bytes().splitlines()
    assert [json.loads(line)["tool"] for line in lines if line.endswith(b"}")] == [
        "a",
        "b",
        "a",
        "b",
        "lost",
        "lost",
    ]
    assert len(lines) == 7
    assert "6 calls are missing in it" in caplog.text


def test_what_waits_for_a_disk_that_stands_still_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("treadle.audit.MOST_WAITING", 3)
    audit = Audit(str(tmp_path / "audit.log"))
    goes_on = threading.Event()
    real = audit._make_room
    monkeypatch.setattr(audit, "_make_room", lambda size: (goes_on.wait(10), real(size)))
    for number in range(5):
        audit.note(PEER, "demo", str(number), OK, 0.0, b"")
    goes_on.set()
    audit.close()
    assert [line["tool"] for line in _lines(tmp_path / "audit.log")] == ["0", "1", "2"]
    assert "2 calls are missing in it" in caplog.text


def test_values_of_arguments_are_written_on_request_alone(tmp_path: Path) -> None:
    assert "arguments" not in _noted(tmp_path / "one", OK, b'{"password":"hunter2"}')
    line = _noted(tmp_path / "two", OK, b'{"a":1}', arguments=True)
    assert line["arguments"] == {"a": 1}


def test_long_arguments_are_told_by_their_size(tmp_path: Path) -> None:
    long = b'"' + b"x" * MOST_ARGUMENT_BYTES + b'"'
    assert _noted(tmp_path / "audit.log", OK, long, arguments=True)["arguments_bytes"] == len(long)


def test_names_that_callers_make_up_are_cut(tmp_path: Path) -> None:
    audit = Audit(str(tmp_path / "audit.log"))
    audit.note(None, "s" * 10_000, 't"\n\u2028' * 10_000, OK, 0.0, b"")
    audit.close()
    (line,) = _lines(tmp_path / "audit.log")
    assert (len(line["server"]), len(line["tool"])) == (200, 200)


def test_the_file_is_for_its_owner_alone_and_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for _ in range(2):
        audit = Audit(str(path))
        audit.note(PEER, "demo", "add", OK, 0.0, b"")
        audit.close()
    assert len(_lines(path)) == 2
    assert path.stat().st_mode & 0o777 == 0o600


def test_it_is_rotated_by_size_and_old_files_go(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for number in range(5):
        audit = Audit(str(path), most_bytes=100, keep=2)  # one line each
        audit.note(PEER, "demo", str(number), OK, 0.0, b"")
        audit.close()
    assert sorted(os.listdir(tmp_path)) == ["audit.log", "audit.log.1", "audit.log.2"]
    files = [path, tmp_path / "audit.log.1", tmp_path / "audit.log.2"]
    assert [_lines(file)[0]["tool"] for file in files] == ["4", "3", "2"]


def test_a_file_that_was_moved_away_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit = Audit(str(path))
    path.rename(tmp_path / "moved")
    audit.note(PEER, "demo", "add", OK, 0.0, b"")
    audit.close()
    assert len(_lines(path)) == 1


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "audit.log").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        Audit(str(tmp_path / "audit.log"))


def test_a_file_that_cannot_be_opened_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    config = parse(f'[broker]\naudit_log = "{tmp_path}/none/audit.log"\n', "treadle.toml")
    with pytest.raises(ConfigError) as caught:
        open_audit(config)
    assert f"{tmp_path}/none/audit.log cannot be written" in caught.value.problems[0].what
    assert open_audit(parse("", "treadle.toml")) is None
