"""The log: one record in text or JSON, for a terminal, a file or the journal."""

from __future__ import annotations

import io
import json
import logging
import os
import threading
from collections.abc import Iterator

import pytest

from treadle.background import Background
from treadle.logs import LineFormatter, Log, is_journal, utc


def _record(
    message: str, level: int = logging.INFO, *, error: Exception | None = None, **extra: str
) -> logging.LogRecord:
    info = (type(error), error, None) if error is not None else None
    record = logging.LogRecord("treadle.test", level, "file", 1, message, (), info)
    record.created = 1_700_000_000.25
    record.__dict__ |= extra
    return record


def test_a_text_line_has_time_level_and_message() -> None:
    text = LineFormatter("text", journal=False).format(_record("demo: ready", logging.WARNING))
    assert text == "2023-11-14T22:13:20.250Z WARNING demo: ready\n"


def test_further_lines_of_a_text_are_indented() -> None:
    text = LineFormatter("text", journal=False).format(_record("failed", error=ValueError("why")))
    assert text == "2023-11-14T22:13:20.250Z INFO    failed\n    ValueError: why\n"


@pytest.mark.parametrize(
    ("level", "priority"),
    [(logging.DEBUG, 7), (logging.INFO, 6), (logging.WARNING, 4), (logging.ERROR, 3), (logging.CRITICAL, 2)],
)
def test_the_journal_gets_a_priority_before_each_line_and_no_time(level: int, priority: int) -> None:
    text = LineFormatter("text", journal=True).format(_record("one\ntwo", level))
    assert text == f"<{priority}>one\n<{priority}>    two\n"


def test_json_is_one_line_with_the_server_as_a_field() -> None:
    text = LineFormatter("json", journal=False).format(_record("one\ntwo", server="demo", error=ValueError("why")))
    assert text.count("\n") == 1
    assert json.loads(text) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "info",
        "logger": "treadle.test",
        "server": "demo",
        "message": "one\ntwo",
        "exception": "ValueError: why",
    }


def test_the_journal_is_known_by_device_and_inode(tmp_path: os.PathLike[str]) -> None:
    with open(os.path.join(tmp_path, "stream"), "w") as stream:
        found = os.fstat(stream.fileno())
        assert is_journal({"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}, stream.fileno())
        assert not is_journal({"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino + 1}"}, stream.fileno())
        for odd in ({}, {"JOURNAL_STREAM": ""}, {"JOURNAL_STREAM": "a:b"}, {"JOURNAL_STREAM": "1"}):
            assert not is_journal(odd, stream.fileno())


def test_utc_is_rfc_3339() -> None:
    assert utc(0) == "1970-01-01T00:00:00.000Z"


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    level = root.level
    yield root
    root.setLevel(level)


def test_levels_and_form_can_be_changed_while_it_runs(root: logging.Logger) -> None:
    stream = io.StringIO()
    log = Log(stream, {})
    log.configure("warning", "text")
    root.info("unseen")
    root.warning("seen")
    log.configure("debug", "json")
    root.debug("seen, too")
    log.close()
    assert log not in root.handlers
    first, second = stream.getvalue().splitlines()
    assert first.endswith("WARNING seen")
    assert json.loads(second)["message"] == "seen, too"


def test_a_reader_that_stalls_costs_lines_and_never_the_writer() -> None:
    written: list[str] = []
    may_go, waits = threading.Event(), threading.Event()

    def write(batch: list[str]) -> None:
        waits.set()
        may_go.wait(10)
        written.extend(batch)

    background = Background(write, name="test", limit=10)
    background.put("first")
    assert waits.wait(10)
    for number in range(25):
        background.put(str(number))
    assert background.dropped == 15
    may_go.set()
    assert background.close(10)
    assert written == ["first", *map(str, range(10))]


def test_what_was_lost_is_told(root: logging.Logger) -> None:
    stream = io.StringIO()
    log = Log(stream, {})
    log.configure("info", "text")
    log._background.dropped = 3
    root.info("heard again")
    log.close()
    assert stream.getvalue().endswith("(3 lines of the log were lost: nobody read it)\n")


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which no further thread can be started."""

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)


def test_without_a_thread_the_log_is_written_in_place_and_says_so_once(
    root: logging.Logger, no_threads: None
) -> None:
    stream = io.StringIO()
    log = Log(stream, {})
    log.configure("info", "text")
    log.configure("info", "text")
    root.info("first")
    assert stream.getvalue().endswith("first\n")
    root.info("second")
    log.close()
    told, first, second = stream.getvalue().splitlines()
    assert "no thread can be started: the log is written in place" in told
    assert (first.split()[-1], second.split()[-1]) == ("first", "second")
