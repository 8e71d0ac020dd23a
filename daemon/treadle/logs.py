"""The daemon's log: entries of the journal where standard error is that, else text or JSON lines on it (floor 3).

A record never makes the event loop wait: a thread writes it. The name of the server that a record is about is the
field ``server``; in the journal it is ``TREADLE_SERVER``.
"""

from __future__ import annotations

import datetime
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, TextIO

from msgspec import Struct

from treadle.background import Background
from treadle.journal import Journal, encode, is_journal

Form = Literal["text", "json"]

MOST_WAITING: Final = 10_000
"""Records that may wait for a reader that is slow; what comes beyond is dropped, and the log says how many."""

_FLUSH_S: Final = 2.0  # more than the journal's patience: what it leaves still comes out as lines

PRIORITIES: Final = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
"""Level to syslog priority, as syslog(3) numbers them."""


def utc(seconds: float) -> str:
    """Unix seconds as RFC 3339 in UTC with milliseconds."""
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class LineFormatter(logging.Formatter):
    """One record as whole lines, each ended by a line feed.

    ``form`` ``"text"``: time, level, message; the lines that follow the first are indented. ``"json"``: one object
    with ``time``, ``level``, ``logger``, ``message`` and, where they apply, ``server`` and ``exception``.
    """

    def __init__(self, form: Form) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        """The lines of ``record``."""
        text = self.message(record)
        if self._form == "text":
            text = f"{utc(record.created)} {record.levelname:<7} {_indented(text)}"
        return f"{text}\n"

    def message(self, record: logging.LogRecord) -> str:
        """What ``record`` says, for a reader that knows its time: message and traceback, or the JSON object."""
        if self._form == "json":
            return self._json(record)
        text = record.getMessage()
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text

    def _json(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": utc(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if (server := getattr(record, "server", None)) is not None:
            fields["server"] = server
        fields["message"] = record.getMessage()
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


class Event(Struct, frozen=True):
    """One record on its way to the journal."""

    message: str
    priority: int
    logger: str
    server: str | None = None

    @classmethod
    def of(cls, record: logging.LogRecord, message: str) -> Event:
        """``record``, worded as ``message``."""
        server = getattr(record, "server", None)
        priority = PRIORITIES.get(record.levelno, 6)
        return cls(message, priority, record.name, None if server is None else str(server))

    def fields(self) -> Iterator[tuple[str, str]]:
        """The fields of its entry, as systemd.journal-fields(7) names them."""
        yield "MESSAGE", self.message
        yield "PRIORITY", str(self.priority)
        yield "SYSLOG_FACILITY", "3"  # that of daemons, as a service's standard error has it
        yield "SYSLOG_IDENTIFIER", "treadle"
        yield "LOGGER", self.logger
        if self.server is not None:
            yield "TREADLE_SERVER", self.server

    def lines(self) -> str:
        """The lines for a standard error that is the journal: each is an entry, ``<3>`` at its beginning its
        priority (sd-daemon(3))."""
        mark = f"<{self.priority}>"
        return f"{mark}{_indented(self.message, mark)}\n"


def _indented(text: str, mark: str = "") -> str:
    return text.replace("\n", f"\n{mark}    ")


class Log(logging.Handler):
    """The handler of the root logger. :meth:`configure` may be called again, as a reload does.

    Where ``stream`` is the journal, each record goes to ``journal`` as one entry with fields; what that does not
    take goes to ``stream`` as lines, and the first time the log says why.
    """

    def __init__(self, stream: TextIO, environ: Mapping[str, str], journal: Journal | None = None) -> None:
        super().__init__()
        self.show: Callable[[str], object] = stream.write
        """Where lines go; replaced while something else draws on the same terminal."""
        self._stream = stream
        self._formatter = LineFormatter("text")
        self._told_dropped = 0
        self._told_refused = False
        self._journal: Journal | None = None
        try:
            if is_journal(environ, stream.fileno()):
                self._journal = journal or Journal()
        except OSError:
            pass  # a stream that is no file
        self._background: Background[str | Event] = Background(self._write, name="log", limit=MOST_WAITING)

    @property
    def to_journal(self) -> bool:
        """Whether standard error is the journal."""
        return self._journal is not None

    def configure(self, level: str, form: Form) -> None:
        """Log records of ``level`` (a name of the configuration page) and above, as ``form``."""
        self._formatter = LineFormatter(form)
        root = logging.getLogger()
        root.setLevel(level.upper())
        if self not in root.handlers:
            root.addHandler(self)
            if self._background.in_place:
                logging.getLogger(__name__).warning(
                    "no thread can be started: the log is written in place, and whoever reads it slowly slows all"
                )

    def emit(self, record: logging.LogRecord) -> None:
        """Take one record. Never waits, where there is a thread that writes."""
        try:
            if self._journal is None:
                self._background.put(self._formatter.format(record))
            else:
                self._background.put(Event.of(record, self._formatter.message(record)))
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Write what is left, within some seconds, and leave the root logger."""
        logging.getLogger().removeHandler(self)
        if self._background.close(_FLUSH_S) and self._journal is not None:
            self._journal.close()
        super().close()

    def _write(self, batch: list[str | Event]) -> None:
        dropped = self._background.dropped
        if dropped > self._told_dropped:
            text = f"({dropped - self._told_dropped} lines of the log were lost: nobody read it)"
            batch.append(f"{text}\n" if self._journal is None else _warning(text))
            self._told_dropped = dropped
        lines = "".join(item if isinstance(item, str) else self._hand_over(item) for item in batch)
        if not lines:
            return
        try:
            self.show(lines)
            self._stream.flush()
        except (OSError, ValueError):
            pass  # nobody is left who could be told

    def _hand_over(self, event: Event) -> str:
        """Give ``event`` to the journal; returns what is left for standard error to say."""
        assert self._journal is not None
        try:
            self._journal.send(encode(event.fields()))
        except OSError as error:
            reason = "" if self._told_refused else _warning(_refusal(self._journal, error)).lines()
            self._told_refused = True
            return reason + event.lines()
        return ""


def _warning(text: str) -> Event:
    return Event(text, PRIORITIES[logging.WARNING], __name__)


def _refusal(journal: Journal, error: OSError) -> str:
    what = "nobody reads there" if isinstance(error, BlockingIOError) else error.strerror or str(error)
    return f"no entry can be sent to {journal.address}: {what}. Until one can, entries have no TREADLE_SERVER"
