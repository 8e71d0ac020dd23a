"""The log: one record in text or JSON, for a terminal, a file or the journal."""

from __future__ import annotations

import io
import json
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.journal import Receiver, fill, parsed
from treadle.background import Background
from treadle.journal import Journal, encode
from treadle.logs import Event, LineFormatter, Log, utc


def _record(
    message: str, level: int = logging.INFO, *, error: Exception | None = None, **extra: str
) -> logging.LogRecord:
    info = (type(error), error, None) if error is not None else None
    record = logging.LogRecord("treadle.test", level, "file", 1, message, (), info)
    record.created = 1_700_000_000.25
    record.__dict__ |= extra
    return record


def test_a_text_line_has_time_level_and_message() -> None:
    text = LineFormatter("text").format(_record("demo: ready", logging.WARNING))
    assert text == "2023-11-14T22:13:20.250Z WARNING demo: ready\n"


def test_further_lines_of_a_text_are_indented() -> None:
    text = LineFormatter("text").format(_record("failed", error=ValueError("why")))
    assert text == "2023-11-14T22:13:20.250Z INFO    failed\n    ValueError: why\n"


def test_json_is_one_line_with_the_server_as_a_field() -> None:
    text = LineFormatter("json").format(_record("one\ntwo", server="demo", error=ValueError("why")))
    assert text.count("\n") == 1
    assert json.loads(text) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "info",
        "logger": "treadle.test",
        "server": "demo",
        "message": "one\ntwo",
        "exception": "ValueError: why",
    }


def test_utc_is_rfc_3339() -> None:
    assert utc(0) == "1970-01-01T00:00:00.000Z"


# --- one record for the journal ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "priority"),
    [(logging.DEBUG, 7), (logging.INFO, 6), (logging.WARNING, 4), (logging.ERROR, 3), (logging.CRITICAL, 2)],
)
def test_an_entry_has_the_priority_of_its_level(level: int, priority: int) -> None:
    assert dict(Event.of(_record("one", level), "one").fields())["PRIORITY"] == str(priority)


def test_an_entry_names_the_program_the_logger_and_the_server() -> None:
    record = _record("demo: ready", server="demo")
    assert dict(Event.of(record, record.getMessage()).fields()) == {
        "MESSAGE": "demo: ready",
        "PRIORITY": "6",
        "SYSLOG_FACILITY": "3",
        "SYSLOG_IDENTIFIER": "treadle",
        "LOGGER": "treadle.test",
        "TREADLE_SERVER": "demo",
    }


def test_an_entry_about_no_server_names_none() -> None:
    assert "TREADLE_SERVER" not in dict(Event.of(_record("listening"), "listening").fields())


def test_as_lines_each_has_the_priority_before_it() -> None:
    assert Event("one\ntwo", 4, "treadle").lines() == "<4>one\n<4>    two\n"


@given(st.text(st.characters(exclude_categories=())), st.text(min_size=1))
def test_every_record_has_one_entry_with_each_field_once(message: str, server: str) -> None:
    record = _record("%s", server=server)
    fields = parsed(encode(Event.of(record, message).fields()))
    assert len(fields) == len(dict(fields)) == 6
    assert dict(fields)["MESSAGE"] == message.encode("utf-8", "backslashreplace")


# --- the handler -------------------------------------------------------------------------------------


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


# --- where standard error is the journal -------------------------------------------------------------


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[TextIO]:
    """Standard error, as the journal's stream."""
    with open(tmp_path / "stream", "w+", errors="backslashreplace") as stream:
        yield stream


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    receiver = Receiver(tmp_path / "journal")
    yield receiver
    receiver.close()


def journal_log(stream: TextIO, tmp_path: Path) -> Log:
    found = os.fstat(stream.fileno())
    journal = Journal(str(tmp_path / "journal"), patience_s=0.01)
    return Log(stream, {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}, journal)


def read(stream: TextIO) -> str:
    stream.seek(0)
    return stream.read()


def test_a_record_is_one_entry_and_no_line(
    root: logging.Logger, stream: TextIO, receiver: Receiver, tmp_path: Path
) -> None:
    log = journal_log(stream, tmp_path)
    log.configure("info", "text")
    root.warning("one\ntwo", extra={"server": "demo"})
    log.close()
    fields = dict(parsed(receiver.read()[0]))
    assert (fields["MESSAGE"], fields["PRIORITY"], fields["TREADLE_SERVER"]) == (b"one\ntwo", b"4", b"demo")
    assert read(stream) == ""


def test_a_traceback_is_in_the_entry_of_its_record(
    root: logging.Logger, stream: TextIO, receiver: Receiver, tmp_path: Path
) -> None:
    log = journal_log(stream, tmp_path)
    log.configure("info", "text")
    try:
        raise ValueError("why")
    except ValueError:
        root.exception("failed")
    root.info("next")
    log.close()
    first, second = (dict(parsed(receiver.read()[0]))["MESSAGE"].decode() for _ in range(2))
    assert first.startswith("failed\nTraceback (most recent call last):\n  File ")
    assert first.endswith("\nValueError: why")
    assert second == "next"


def test_in_json_the_message_of_an_entry_is_the_object(
    root: logging.Logger, stream: TextIO, receiver: Receiver, tmp_path: Path
) -> None:
    log = journal_log(stream, tmp_path)
    log.configure("info", "json")
    root.info("one\ntwo", extra={"server": "demo"})
    log.close()
    fields = dict(parsed(receiver.read()[0]))
    said = json.loads(fields["MESSAGE"])
    assert (said["message"], said["server"], fields["TREADLE_SERVER"]) == ("one\ntwo", "demo", b"demo")


def test_without_the_journals_socket_lines_come_out_and_say_why_once(
    root: logging.Logger, stream: TextIO, tmp_path: Path
) -> None:
    log = journal_log(stream, tmp_path)
    log.configure("info", "text")
    root.info("first", extra={"server": "demo"})
    root.error("second\nand more \udc80")
    log.close()
    why, *lines = read(stream).splitlines()
    assert why == (
        f"<4>no entry can be sent to {tmp_path}/journal: No such file or directory. Until one can, "
        "entries have no TREADLE_SERVER"
    )
    assert lines == ["<6>first", "<3>second", "<3>    and more \\udc80"]


def test_what_a_journal_that_does_not_read_leaves_comes_out_as_lines(
    root: logging.Logger, stream: TextIO, receiver: Receiver, tmp_path: Path
) -> None:
    filler = Journal(receiver.address, patience_s=0.01)
    others = fill(filler)
    filler.close()
    log = journal_log(stream, tmp_path)
    log.configure("info", "text")
    expected = {f"nr {number}" for number in range(2 * others)}
    for text in sorted(expected):
        root.info(text)
    log.close()
    lines = {line.removeprefix("<6>") for line in read(stream).splitlines()[1:]}
    entries = [receiver.read()[0] for _ in range(others + len(expected - lines))]
    assert lines
    assert lines | {dict(parsed(entry))["MESSAGE"].decode() for entry in entries[others:]} == expected


def test_once_the_journal_is_there_entries_go_to_it(root: logging.Logger, stream: TextIO, tmp_path: Path) -> None:
    log = journal_log(stream, tmp_path)
    log.configure("info", "text")
    written = threading.Event()
    log.show = lambda text: (stream.write(text), written.set())
    root.info("first")
    assert written.wait(10)
    receiver = Receiver(tmp_path / "journal")
    root.info("second")
    log.close()
    assert dict(parsed(receiver.read()[0]))["MESSAGE"] == b"second"
    assert "second" not in read(stream)
    receiver.close()


def test_what_was_lost_is_told_to_the_journal(
    root: logging.Logger, stream: TextIO, receiver: Receiver, tmp_path: Path
) -> None:
    log = journal_log(stream, tmp_path)
    log.configure("info", "text")
    log._background.dropped = 3
    root.info("heard again")
    log.close()
    receiver.read()
    fields = dict(parsed(receiver.read()[0]))
    assert fields["MESSAGE"] == b"(3 lines of the log were lost: nobody read it)"
    assert fields["PRIORITY"] == b"4"
