"""The audit log: one JSON line a call (floor 4; configuration page, ``audit_log``).

The loop makes the lines, some at once; a thread writes them, in batches. The values of arguments are written under
``audit_arguments`` alone.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable
from typing import Final

import msgspec

from treadle.background import Background
from treadle.config import Config
from treadle.errors import CallFault, ConfigError, Fault, Problem, failure_code
from treadle.logs import utc
from treadle.peers import Peer
from treadle.wire.messages import CallResult

log = logging.getLogger(__name__)

MOST_BYTES: Final = 16 * 1024 * 1024
"""Size at which the file is rotated: ``audit.log`` becomes ``audit.log.1``, that one ``audit.log.2``, ..."""
KEEP: Final = 4
"""Rotated files that are kept."""
DELAY_S: Final = 0.06
_WRITE_DELAY_S: Final = 0.04
_AT_ONCE: Final = 512  # so seldom that not one call in a hundred waits for it
_MOST_WHATS: Final = 1000
_MILLISECONDS: Final = tuple(b'.%03dZ","server":' % number for number in range(1000))
MOST_WAITING: Final = 100_000
"""Lines that may wait for the disk."""
MOST_ARGUMENT_BYTES: Final = 64 * 1024
"""Longer arguments are not written: the line tells their size instead."""
_NAME_LIMIT: Final = 200
_FLUSH_S: Final = 5.0
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW

Later = Callable[[float, Callable[[], None]], object]
"""Calls something after some seconds: the loop's ``call_later``."""

_encode = msgspec.json.Encoder().encode


class Entry(msgspec.Struct, omit_defaults=True):
    """The line of one call, its keys in this order.

    ``result`` is ``ok``, ``tool_error`` or the failure's code; a failure also has its ``outcome`` (client page,
    section 8). Where they were asked for, ``arguments`` (or ``arguments_bytes``, their size) stand at the end.
    """

    time: str
    server: str
    tool: str
    result: str
    ms: float
    uid: int | None = None
    pid: int | None = None
    outcome: str | None = None
    arguments_bytes: int = 0
    arguments: msgspec.Raw = msgspec.Raw(b"")


class Audit:
    """An open audit log."""

    def __init__(
        self,
        path: str,
        *,
        arguments: bool = False,
        most_bytes: int = MOST_BYTES,
        keep: int = KEEP,
        later: Later | None = None,
    ) -> None:
        """Open ``path`` for appending; a new file is for its owner alone. ``later`` is the loop's ``call_later``,
        for lines that are made some at once; without it each is made as its call is noted. Raises ``OSError``."""
        self.path = path
        self.arguments = arguments
        self._most_bytes = most_bytes
        self._keep = keep
        self._noted: list[bytes | tuple[float, Peer | None, str, str, bool, float]] = []
        self._later = later
        self._file = self._open()
        self._failing = False
        self._torn = False  # whether the file ends within a line
        self._lost = 0
        self._handed = self._dropped = 0  # lines, counted by the loop
        self._written = self._told_dropped = 0  # lines that it is done with, counted by the thread
        self._second = 0
        self._time = b""
        self._peer: Peer | None = None
        self._who = _who(None)
        self._whats: dict[tuple[str, str, bool], bytes] = {}
        self._background: Background[bytes] = Background(
            self._write, name="audit", limit=MOST_WAITING, delay=_WRITE_DELAY_S
        )
        if self._background.in_place:
            log.warning("no thread can be started: every call waits until the audit log %s has its line", path)

    def note(
        self,
        peer: Peer | None,
        server: str,
        tool: str,
        outcome: CallResult | Fault,
        seconds: float,
        arguments: bytes,
    ) -> None:
        """Take down one call, which took ``seconds``. ``arguments`` is JSON, empty when it got not so far."""
        noted = self._noted
        if type(outcome) is CallResult and not self.arguments:
            noted.append((time.time(), peer, server, tool, outcome.is_error, seconds))
        else:
            noted.append(self._line(time.time(), peer, server, tool, outcome, seconds, arguments))
        if len(noted) == _AT_ONCE or self._later is None:
            self._hand_over()
        elif len(noted) == 1:
            self._later(DELAY_S, self._hand_over)

    def _hand_over(self) -> None:
        """Make the lines of what was noted and give them to the thread.

        Some at once, since both take longer one by one, between system calls; and here, as a thread that computes
        would take the interpreter from the loop when a call comes.
        """
        noted, self._noted = self._noted, []
        if not noted:
            return
        if self._handed + len(noted) - self._written > MOST_WAITING:
            self._dropped += len(noted)
            return
        self._handed += len(noted)
        lines = [one if type(one) is bytes else self._usual_line(*one) for one in noted]
        self._background.put(b"\n".join([*lines, b""]))

    def _usual_line(
        self, at: float, peer: Peer | None, server: str, tool: str, is_error: bool, seconds: float
    ) -> bytes:
        """The line of a call that was answered, in parts of which most are as they were before."""
        second = int(at)
        if second != self._second:
            self._second, self._time = second, f'{{"time":"{utc(second)[:-5]}'.encode()
        if peer is not self._peer:
            self._peer, self._who = peer, _who(peer)
        key = server, tool, is_error
        what = self._whats.get(key) or self._what(key)
        took = _encode(int(seconds * 1_000_000) / 1000)
        return b"".join((self._time, _MILLISECONDS[int((at - second) * 1000)], what, took, self._who))

    def _what(self, key: tuple[str, str, bool]) -> bytes:
        if len(self._whats) == _MOST_WHATS:  # callers may make up any name
            self._whats.clear()
        server, tool, is_error = key
        names = _encode(server[:_NAME_LIMIT]), _encode(tool[:_NAME_LIMIT]), b"tool_error" if is_error else b"ok"
        self._whats[key] = what = b'%b,"tool":%b,"result":"%b","ms":' % names
        return what

    def _line(
        self,
        at: float,
        peer: Peer | None,
        server: str,
        tool: str,
        outcome: CallResult | Fault,
        seconds: float,
        arguments: bytes,
    ) -> bytes:
        took = int(seconds * 1_000_000) / 1000
        entry = Entry(utc(at), server[:_NAME_LIMIT], tool[:_NAME_LIMIT], "ok", took)
        if peer is not None:
            entry.uid, entry.pid = peer.uid, peer.pid
        if isinstance(outcome, Fault):
            entry.result = failure_code(outcome)
            entry.outcome = outcome.outcome if isinstance(outcome, CallFault) else None
        elif outcome.is_error:
            entry.result = "tool_error"
        if self.arguments and arguments:
            if len(arguments) <= MOST_ARGUMENT_BYTES:
                entry.arguments = msgspec.Raw(arguments)
            else:
                entry.arguments_bytes = len(arguments)
        return _encode(entry)

    def close(self) -> None:
        """Write what is left, within some seconds, and close the file."""
        self._hand_over()
        if self._background.close(_FLUSH_S):
            try:
                os.close(self._file)
            except OSError as error:  # some file systems write only now
                log.error("the audit log %s cannot be closed: %s", self.path, error.strerror)

    # --- on the thread ------------------------------------------------------------------------------

    def _open(self) -> int:
        return os.open(self.path, _FLAGS | os.O_CREAT, 0o600)

    def _write(self, batch: list[bytes]) -> None:
        data = b"".join(batch)
        count = data.count(b"\n")
        written = 0
        try:
            self._make_room(len(data))
            if self._torn:
                data = b"\n" + data  # so that the beginning of a line does not take the next one with it
            rest = memoryview(data)
            while written < len(data):
                written += os.write(self._file, rest[written:])
        except OSError as error:
            self._lost += min(count, data.count(b"\n", written))
            self._torn = self._torn if not written else not data.endswith(b"\n", 0, written)
            if not self._failing:
                log.error("the audit log %s cannot be written: %s", self.path, error.strerror)
            self._failing = True
        else:
            self._torn = False
            dropped = self._dropped
            if self._failing or dropped > self._told_dropped:
                lost = self._lost + dropped - self._told_dropped
                self._lost, self._told_dropped = 0, dropped
                log.error("the audit log %s is written again; %d calls are missing in it", self.path, lost)
            self._failing = False
        self._written += count

    def _make_room(self, size: int) -> None:
        """Rotate the file when it would grow too long; open it anew when somebody else has moved it."""
        own = os.fstat(self._file)
        try:
            there = os.stat(self.path, follow_symlinks=False)
            moved = (there.st_dev, there.st_ino) != (own.st_dev, own.st_ino)
        except FileNotFoundError:
            moved = True
        if not moved and (not own.st_size or own.st_size + size <= self._most_bytes):
            return
        if not moved:
            for number in range(self._keep, 0, -1):
                older = f"{self.path}.{number - 1}" if number > 1 else self.path
                if os.path.lexists(older):
                    os.replace(older, f"{self.path}.{number}")
        fresh = self._open()
        os.close(self._file)
        self._file = fresh
        self._torn = False


def _who(peer: Peer | None) -> bytes:
    return b"}" if peer is None else b',"uid":%d,"pid":%d}' % (peer.uid, peer.pid)


def open_audit(config: Config, later: Later | None = None) -> Audit | None:
    """The audit log that ``config`` asks for. Raises :class:`ConfigError` when its file cannot be written."""
    broker = config.broker
    if broker.audit_log is None:
        return None
    try:
        return Audit(broker.audit_log, arguments=broker.audit_arguments, later=later)
    except OSError as error:
        raise _refused(config, error) from None


def require_audit(config: Config) -> None:
    """Raise the :class:`ConfigError` that :func:`open_audit` would; nothing is made."""
    path = config.broker.audit_log
    if path is None:
        return
    folder = os.path.dirname(path) or "."
    try:
        if os.path.lexists(path):
            os.close(os.open(path, _FLAGS | os.O_NONBLOCK))
        else:
            os.stat(f"{folder}/")
            if os.statvfs(folder).f_flag & os.ST_RDONLY:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            if not os.access(folder, os.W_OK | os.X_OK):
                raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise _refused(config, error) from None


def _refused(config: Config, error: OSError) -> ConfigError:
    what = f"{config.broker.audit_log} cannot be written: {error.strerror}"
    fix = "make its directory, and let the daemon's user write there"
    return ConfigError((Problem(config.file, 0, 0, "[broker] audit_log", what, fix),))
