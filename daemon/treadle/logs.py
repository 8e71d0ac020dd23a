"""The daemon's log: text or JSON lines on standard error, with priorities where that is the journal (floor 3).

A record never makes the event loop wait: a thread writes it. The name of the server that a record is about is the
field ``server``.
"""

from __future__ import annotations

import datetime
import json
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TextIO

from treadle.background import Background

Form = Literal["text", "json"]

MOST_WAITING: Final = 10_000
"""Lines that may wait for a reader that is slow; what comes beyond is dropped, and the log says how many."""

_FLUSH_S: Final = 2.0

PRIORITIES: Final = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
"""Level to syslog priority, as sd-daemon(3) has them before a line: ``<3>`` is an error."""


def is_journal(environ: Mapping[str, str], descriptor: int) -> bool:
    """Whether ``descriptor`` is the stream that ``$JOURNAL_STREAM`` (device:inode, systemd.exec(5)) speaks of."""
    try:
        device, inode = (int(part) for part in environ.get("JOURNAL_STREAM", "").split(":"))
        found = os.fstat(descriptor)
    except (ValueError, OSError):
        return False
    return (found.st_dev, found.st_ino) == (device, inode)


def utc(seconds: float) -> str:
    """Unix seconds as RFC 3339 in UTC with milliseconds."""
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class LineFormatter(logging.Formatter):
    """One record as whole lines, each ended by a line feed.

    ``form`` ``"text"``: time, level, message; the lines that follow the first are indented. ``"json"``: one object
    with ``time``, ``level``, ``logger``, ``message`` and, where they apply, ``server`` and ``exception``. For the
    journal each line begins with its priority, and a text has no time of its own.
    """

    def __init__(self, form: Form, *, journal: bool) -> None:
        super().__init__()
        self._form = form
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        """The lines of ``record``."""
        text = self._json(record) if self._form == "json" else self._text(record)
        lines = text.split("\n")
        prefix = f"<{PRIORITIES.get(record.levelno, 6)}>" if self._journal else ""
        return "".join(f"{prefix}{line}\n" for line in lines)

    def _text(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text += f"\n{self.formatException(record.exc_info)}"
        text = text.replace("\n", "\n    ")
        return text if self._journal else f"{utc(record.created)} {record.levelname:<7} {text}"

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


class Log(logging.Handler):
    """The handler of the root logger. :meth:`configure` may be called again, as a reload does."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str]) -> None:
        super().__init__()
        self.show: Callable[[str], object] = stream.write
        """Where lines go; replaced while something else draws on the same terminal."""
        self._stream = stream
        self._told_dropped = 0
        try:
            self._journal = is_journal(environ, stream.fileno())
        except OSError:
            self._journal = False
        self._background: Background[str] = Background(self._write, name="log", limit=MOST_WAITING)

    def configure(self, level: str, form: Form) -> None:
        """Log records of ``level`` (a name of the configuration page) and above, as ``form``."""
        self.setFormatter(LineFormatter(form, journal=self._journal))
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
            self._background.put(self.format(record))
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Write what is left, within some seconds, and leave the root logger."""
        logging.getLogger().removeHandler(self)
        self._background.close(_FLUSH_S)
        super().close()

    def _write(self, batch: list[str]) -> None:
        dropped = self._background.dropped
        if dropped > self._told_dropped:
            prefix = "<4>" if self._journal else ""
            batch.append(f"{prefix}({dropped - self._told_dropped} lines of the log were lost: nobody read it)\n")
            self._told_dropped = dropped
        try:
            self.show("".join(batch))
            self._stream.flush()
        except (OSError, ValueError):
            pass  # nobody is left who could be told
