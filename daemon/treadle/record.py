"""The file that names what the daemon has in custody (floor 2).

One for each socket, so that two daemons never take each other's processes for left-overs. Imports the standard
library alone: the guard of :mod:`treadle.custody` runs this in a bare interpreter.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from treadle import procfs

MARK: Final = "TREADLE_SERVER_MARK"
"""The variable by which a server's descendants are recognised; its value differs for every incarnation."""
FORMAT: Final = 1

log = logging.getLogger(__name__)


class Held(NamedTuple):
    """One recorded incarnation. ``pid`` is None until it was spawned, ``start`` its start time in clock ticks."""

    marker: str
    server: str
    pid: int | None
    start: int | None
    cgroup: str | None


def group_name(marker: str) -> str:
    """The name of the cgroup directory of an incarnation; no other incarnation has it."""
    return "treadle-" + re.sub(r"[^\w-]", "-", marker)


def group_of(one: Held) -> str | None:
    """The recorded cgroup directory, None when there is none or its name is not that of its incarnation."""
    path = one.cgroup
    return path if path is not None and os.path.basename(path) == group_name(one.marker) else None


class Record:
    """The file that names what the daemon has in custody; valid for this boot and this daemon process.

    Written whole, to a temporary file that is renamed (mode 0600), on every spawn and release, never per call.
    A failed write is logged and tried again by the next one: it takes recovery away, not service.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.daemon = os.urandom(8).hex()
        """What tells this daemon's record from that of any other start."""
        self._held: dict[str, Held] = {}
        self._orphans: list[Held] = []
        self._problem: str | None = None
        own = procfs.read(os.getpid())
        self._boot = procfs.boot_id()
        self._writer = {"id": self.daemon, "pid": os.getpid(), "start": own.start if own else 0}
        self._write()

    @property
    def empty(self) -> bool:
        """Whether nothing is in custody."""
        return not self._held and not self._orphans

    def hold(self, marker: str, server: str, pid: int | None, cgroup: str | None = None) -> None:
        """Record an incarnation: before its spawn by its marker, after it with its pid too."""
        process = procfs.read(pid) if pid is not None else None
        self._held[marker] = Held(marker, server, pid, process.start if process else None, cgroup)
        self._write()

    def drop(self, marker: str) -> None:
        """Nothing of that incarnation is left."""
        if self._held.pop(marker, None) is not None:
            self._write()

    def orphans(self, processes: Iterable[procfs.Process]) -> None:
        """Record the adopted processes that only pid and start time identify; replaces those recorded before."""
        orphans = [Held(f"orphan {one.pid} {one.start}", "", one.pid, one.start, None) for one in processes]
        if orphans != self._orphans:
            self._orphans = orphans
            self._write()

    def remove(self) -> None:
        """Remove the file, at an orderly end with nothing left; a record that still holds something stays.

        One that cannot be removed is logged.
        """
        if not self.empty:
            return
        try:
            with suppress(FileNotFoundError):
                os.unlink(self.path)
        except OSError as error:
            if os.path.lexists(self.path):  # a file system that cannot be written refuses before it looks
                what = error.strerror or error
                log.error(
                    "cannot remove the custody record %s: %s. Nothing is left to find by it", self.path, what
                )

    def _write(self) -> None:
        body = {
            "format": FORMAT,
            "boot": self._boot,
            "daemon": self._writer,
            "held": [held._asdict() for held in (*self._held.values(), *self._orphans)],
        }
        problem = None
        try:
            _replace(self.path, json.dumps(body).encode())
        except OSError as error:
            problem = error.strerror or str(error)
        if problem is not None and problem != self._problem:
            log.error(
                "cannot write the custody record %s: %s. Service goes on, but should this daemon be killed, what"
                " its servers leave will not be found: make the directory writable, or name another state_dir",
                self.path,
                problem,
            )
        elif problem is None and self._problem is not None:
            log.warning("the custody record %s is written again", self.path)
        self._problem = problem


def _replace(path: str, data: bytes) -> None:
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


class Recorded(NamedTuple):
    """A record read back. ``daemon_pid`` and ``daemon_start`` identify the process that wrote it."""

    boot: str
    daemon: str
    daemon_pid: int
    daemon_start: int
    held: tuple[Held, ...]

    def writer_lives(self) -> bool:
        """Whether that process still runs; False for the own one."""
        writer = procfs.read(self.daemon_pid)
        return (
            writer is not None and writer.start == self.daemon_start and writer.alive and writer.pid != os.getpid()
        )


def read_record(path: str | os.PathLike[str]) -> Recorded | None:
    """The record at ``path``, None when there is none. Raises ValueError, saying why, when it cannot be used."""
    try:
        with open(path, "rb") as file:
            data = file.read()
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
    if not held.marker or (held.pid is not None and held.pid <= 1):
        raise TypeError("this names no process that the daemon can have spawned")
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
