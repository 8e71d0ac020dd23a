"""What outlives the daemon's death: the record of its servers, the recovery by the next start (floor 2).

``SIGKILL`` gives the daemon no last word. Its servers normally die with it (parent-death signal, end of file on
stdin), but a process may have cleared that signal, ignore the end of file, and live on. So the daemon keeps a
record, one file for each socket, and its next start ends what the record names before it spawns anything (MCP
client page, section 5); the guard (:mod:`treadle.guard`) does the same at the moment of the death.

Identity before everything: a pid is a number that anybody may have by now. A process is ours when its pid *and*
start time are recorded, when it carries a recorded mark in its environment, when it descends from such a process,
or when it is in the session or group of one that still holds that number.

Imports the standard library alone: the guard runs this in a bare interpreter.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from treadle import procfs
from treadle.procfs import Process

MARK: Final = "TREADLE_SERVER_MARK"
"""The variable by which a server's descendants are recognised; its value differs for every incarnation."""
FORMAT: Final = 1
RECOVERY_S: Final = 5.0
FIRST_POLL_S: Final = 0.002
SLOWEST_POLL_S: Final = 0.1

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Held:
    """One recorded incarnation. ``pid`` is None until it was spawned, ``start`` its start time in clock ticks."""

    marker: str
    server: str
    pid: int | None
    start: int | None
    cgroup: str | None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the recovery met, for the log. ``pid`` is 0 when it concerns no process."""

    server: str
    pid: int
    name: str
    how: str

    def __str__(self) -> str:
        subject = f"server {self.server}: " if self.server else ""
        return f"{subject}process {self.pid} ({self.name}) {self.how}" if self.pid else f"{subject}{self.how}"


class Record:
    """The file that names what the daemon has in custody; valid for this boot and this daemon process.

    Written whole, to a temporary file that is renamed (mode 0600), on every spawn and release, never per call.
    A failed write is logged and tried again by the next one: it takes recovery away, not service.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.daemon = os.urandom(8).hex()
        """What tells this daemon's record from that of any other start."""
        self._held: dict[str, Held] = {}
        self._write()

    def hold(self, marker: str, server: str, pid: int | None, cgroup: str | None = None) -> None:
        """Record an incarnation: before its spawn by its marker, after it with its pid too."""
        process = procfs.read(pid) if pid is not None else None
        self._held[marker] = Held(marker, server, pid, process.start if process else None, cgroup)
        self._write()

    def drop(self, marker: str) -> None:
        """Nothing of that incarnation is left."""
        if self._held.pop(marker, None) is not None:
            self._write()

    def remove(self) -> None:
        """Remove the file, at an orderly end with nothing left; a record that still holds something stays."""
        if not self._held:
            self.path.unlink(missing_ok=True)

    def _write(self) -> None:
        own = procfs.read(os.getpid())
        body = {
            "format": FORMAT,
            "boot": procfs.boot_id(),
            "daemon": {"id": self.daemon, "pid": os.getpid(), "start": own.start if own else 0},
            "held": [asdict(held) for held in self._held.values()],
        }
        try:
            _replace(self.path, json.dumps(body, indent=1).encode())
        except OSError as error:
            log.warning("cannot write the custody record %s: %s", self.path, error)


def _replace(path: Path, data: bytes) -> None:
    fd, temporary = tempfile.mkstemp(prefix=path.name + ".", dir=path.parent)  # mode 0600
    try:
        with open(fd, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise


@dataclass(frozen=True, slots=True)
class Recorded:
    """A record read back. ``daemon_pid`` and ``daemon_start`` identify the process that wrote it."""

    boot: str
    daemon: str
    daemon_pid: int
    daemon_start: int
    held: tuple[Held, ...]


def read_record(path: Path) -> Recorded | None:
    """The record at ``path``, None when there is none. Raises ValueError, saying why, when it cannot be used."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    try:
        body = json.loads(data)
        if body["format"] != FORMAT:
            raise ValueError(f"has the unknown format {body['format']!r}")
        daemon = body["daemon"]
        return Recorded(
            _typed(body["boot"], str),
            _typed(daemon["id"], str),
            _typed(daemon["pid"], int),
            _typed(daemon["start"], int),
            tuple(_held(item) for item in _typed(body["held"], list)),
        )
    except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise ValueError("is torn or was not written by this program") from None


def _held(item: Any) -> Held:
    held = Held(**item)
    if not held.marker:
        raise TypeError("an empty marker would fit every process without one")
    _typed(held.server, str)
    _typed(held.marker, str)
    for number in (held.pid, held.start):
        if number is not None:
            _typed(number, int)
    if held.cgroup is not None:
        _typed(held.cgroup, str)
    return held


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"expected {kind.__name__}")
    return value


def recover(path: Path, *, daemon: str | None = None, before: int | None = None) -> list[Finding]:
    """End everything that the record at ``path`` names and that still runs; returns what was met, for the log.

    Call it while the socket's lock is held and before anything is spawned. Never raises: an unusable record is
    a finding. ``daemon`` restricts it to the record of that daemon (the guard's: a newer daemon's servers are not
    its business). ``before``, in clock ticks since boot, is a moment until which the recorded leaders were
    unreaped for certain: a process of that session or group that started earlier is theirs beyond doubt.
    """
    try:
        record = read_record(path)
    except ValueError as error:
        return [Finding("", 0, "", f"the custody record {path} {error}; it was ignored")]
    if record is None or record.boot != procfs.boot_id() or daemon not in (None, record.daemon):
        return []
    writer = procfs.read(record.daemon_pid)
    if writer is not None and writer.start == record.daemon_start and writer.alive and writer.pid != os.getpid():
        return [
            Finding("", writer.pid, "treadle", f"still runs and owns the servers in {path}; they were left alone")
        ]
    return _end(record.held, before)


def _end(held: tuple[Held, ...], before: int | None) -> list[Finding]:
    """Kill what is identified, again and again, because it may fork meanwhile, until nothing is left."""
    deadline = time.monotonic() + RECOVERY_S
    findings: dict[tuple[int, int], Finding] = {}
    pause = FIRST_POLL_S
    while True:
        ours, doubtful = identify(held, list(procfs.everyone()), before)
        late = time.monotonic() >= deadline
        for process, one, how in ours:
            if late:
                what = f"was left over (known by its {how}) and cannot be ended: end it by hand"
            elif process.key in findings:
                what = findings[process.key].how
            else:
                what = f"was left over (known by its {how}) and was killed"
            findings[process.key] = Finding(one.server, process.pid, _name(process.pid), what)
            procfs.kill(process)
        if not ours or late:
            break
        time.sleep(pause)
        pause = min(pause * 2, SLOWEST_POLL_S)
    for process, one in doubtful:
        what = "may be left over: its session or group has the number of the ended server; it was left alone"
        findings[process.key] = Finding(one.server, process.pid, _name(process.pid), what)
    return list(findings.values())


def identify(
    held: Iterable[Held], processes: list[Process], before: int | None
) -> tuple[list[tuple[Process, Held, str]], list[tuple[Process, Held]]]:
    """Which live ``processes`` are of a recorded incarnation, and by what; and which only may be.

    The own process is never among them.
    """
    by_mark = {one.marker: one for one in held}
    by_number = {one.pid: one for one in held if one.pid is not None and one.start is not None}
    starts = {process.pid: process.start for process in processes}
    ours: dict[int, tuple[Process, Held, str]] = {}
    doubtful: dict[int, tuple[Process, Held]] = {}
    for process in processes:
        if not process.alive or process.pid == os.getpid():
            continue
        leader = by_number.get(process.pid)
        if leader is not None and leader.start == process.start:
            ours[process.pid] = (process, leader, "pid and start time")
        elif (mark := procfs.variable(process.pid, MARK)) is not None and mark in by_mark:
            ours[process.pid] = (process, by_mark[mark], "mark")
        elif leader is None and (one := by_number.get(process.session) or by_number.get(process.pgrp)) is not None:
            assert one.pid is not None
            assert one.start is not None
            holder = starts.get(one.pid)
            if process.start < one.start or (holder is not None and holder != one.start):
                continue  # older than the leader, or the number was handed out again
            if holder == one.start or (before is not None and process.start <= before):
                ours[process.pid] = (process, one, "session")
            else:
                doubtful[process.pid] = (process, one)
    for root in list(ours.values()):
        for process in procfs.below({root[0].pid}, processes):
            if process.alive and process.pid != os.getpid():
                ours.setdefault(process.pid, (process, root[1], "parent"))
    return list(ours.values()), [pair for pid, pair in doubtful.items() if pid not in ours]


def _name(pid: int) -> str:
    try:
        text = Path(f"{procfs.PROC}/{pid}/comm").read_bytes().decode("utf-8", "replace")
    except OSError:
        return "?"
    return "".join(char if char.isprintable() else " " for char in text.strip())
