"""Reading /proc, and signals that hit exactly the process that was looked at (floor 2).

Imports the standard library alone: the guard of :mod:`treadle.custody` runs this in a bare interpreter.
A process is identified by its pid *and* its start time, because a pid is handed out again after its end.
"""

from __future__ import annotations

import functools
import itertools
import os
import signal
from collections.abc import Container, Iterable, Iterator
from typing import Final, NamedTuple

PROC: Final = "/proc"


class Process(NamedTuple):
    """One line of /proc/PID/stat: ``start`` in clock ticks since boot, ``cpu`` in ticks, ``rss`` in pages."""

    pid: int
    state: str
    ppid: int
    pgrp: int
    session: int
    cpu: int
    threads: int
    start: int
    rss: int

    @property
    def alive(self) -> bool:
        """False for a zombie. A leader thread that ended before its siblings looks like one but is alive."""
        return self.state not in "ZXx" or self.threads > 1

    @property
    def key(self) -> tuple[int, int]:
        """What names this process for ever within one boot."""
        return self.pid, self.start


def parse_stat(line: bytes) -> Process:
    """The fields of one /proc/PID/stat (proc(5)); the name in it may hold anything. Raises ValueError."""
    pid, _, rest = line.partition(b" ")
    _, closed, tail = rest.rpartition(b")")
    fields = tail.split()
    if not closed or len(fields) < 22:
        raise ValueError("not a stat line")
    return Process(
        pid=int(pid),
        state=fields[0].decode("ascii", "replace"),
        ppid=int(fields[1]),
        pgrp=int(fields[2]),
        session=int(fields[3]),
        cpu=int(fields[11]) + int(fields[12]),
        threads=int(fields[17]),
        start=int(fields[19]),
        rss=int(fields[21]),
    )


def read(pid: int) -> Process | None:
    """The process of that pid as it is now, None when there is none."""
    data = _slurp(f"{PROC}/{pid}/stat")
    try:
        return parse_stat(data) if data else None
    except ValueError:
        return None


def everyone() -> Iterator[Process]:
    """Every process that /proc shows; nobody when it cannot be read (see :func:`sighted`)."""
    try:
        with os.scandir(PROC) as entries:
            names = [entry.name for entry in entries if entry.name.isdecimal()]
    except OSError:
        return
    for name in names:
        if (process := read(int(name))) is not None:
            yield process


def children(pid: int) -> list[Process]:
    """The children of ``pid``, zombies included.

    A child that is reaped by another process meanwhile may hide a younger sibling for this once (proc(5)). One
    that ends between the list and the look is left out: where absence has to be proven, take :func:`child_pids`.
    """
    return [process for child in child_pids(pid) if (process := read(child)) is not None]


def child_pids(pid: int) -> list[int]:
    """The pids of the children of ``pid``, oldest first, zombies included. For the own children complete, as long
    as nobody reaps one meanwhile: one that is orphaned during the look is listed behind its dead parent."""
    if not _has_children_files():
        return [process.pid for process in everyone() if process.ppid == pid]
    try:
        with os.scandir(f"{PROC}/{pid}/task") as entries:
            threads = [entry.name for entry in entries]
    except OSError:
        return []
    return [int(word) for tid in threads for word in (_slurp(f"{PROC}/{pid}/task/{tid}/children") or b"").split()]


def descendants(pid: int) -> list[Process]:
    """Everything below ``pid``, zombies included, parents before their children."""
    if not _has_children_files():
        return list(below({pid}, list(everyone())))
    found: dict[int, Process] = {}
    level = children(pid)
    while level:
        found.update((process.pid, process) for process in level)
        # One that moved up meanwhile, because its parent ended, is met twice.
        level = [child for parent in level for child in children(parent.pid) if child.pid not in found]
    return list(found.values())


def below(roots: set[int], processes: Iterable[Process]) -> Iterator[Process]:
    """Those of ``processes`` whose chain of parents leads to one of ``roots`` (the roots themselves excluded)."""
    by_parent: dict[int, list[Process]] = {}
    for process in processes:
        by_parent.setdefault(process.ppid, []).append(process)
    stack = list(roots)
    seen = set(roots)
    while stack:
        for process in by_parent.get(stack.pop(), ()):
            if process.pid not in seen:
                seen.add(process.pid)
                stack.append(process.pid)
                yield process


def variable(pid: int, name: str) -> str | None:
    """The value of a variable in the initial environment of ``pid``; None when absent or not readable."""
    return _value(_slurp(f"{PROC}/{pid}/environ") or b"", name)


def _value(environment: bytes, name: str) -> str | None:
    wanted = name.encode() + b"="
    for item in environment.split(b"\0"):
        if item.startswith(wanted):
            return item[len(wanted) :].decode("utf-8", "replace")
    return None


def halt(pid: int, name: str, values: Container[str | None]) -> bool | None:
    """Stop ``pid`` if its variable ``name`` has one of ``values``; whether it has, None when it had ended already.

    The quickest there is for a process that forks away. The pidfd is older than the look at the environment: if
    the number passed to another process meanwhile, the signal goes nowhere.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    try:
        environment = _slurp(f"{PROC}/{pid}/environ")
        if not environment:
            return None
        if _value(environment, name) not in values:
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
    except OSError:
        return None
    finally:
        os.close(pidfd)
    return True


def newest() -> int:
    """The number that was handed out last, to a process or a thread; 0 when it cannot be read. They are handed out
    in order, so what is newer than an earlier answer is known without a list of all, however long that is."""
    words = (_slurp(f"{PROC}/loadavg") or b"").split()
    return int(words[-1]) if words else 0


def handed_out(since: int, until: int) -> Iterable[int]:
    """The numbers after ``since`` up to ``until``, the newest first; they begin anew after the largest."""
    if since <= until:
        return range(until, since, -1)
    largest = int(_slurp(f"{PROC}/sys/kernel/pid_max") or b"32768")
    return itertools.chain(range(until, 0, -1), range(largest, since, -1))


def tracer(pid: int) -> int:
    """The pid of the debugger of ``pid``, 0 when there is none."""
    for line in (_slurp(f"{PROC}/{pid}/status") or b"").splitlines():
        if line.startswith(b"TracerPid:"):
            return int(line.split()[1])
    return 0


def kill(process: Process, number: signal.Signals = signal.SIGKILL) -> bool:
    """Send a signal to exactly this process; False when it is gone, was replaced, or may not be signalled.

    The pidfd is opened first and the start time read after it: if both fit, the pidfd is that process.
    """
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        now = read(process.pid)
        if now is None or now.start != process.start:
            return False
        signal.pidfd_send_signal(pidfd, number)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True


def sighted() -> bool:
    """Whether /proc can be read now. Without a free descriptor every look is empty, which proves nothing."""
    return read(os.getpid()) is not None


def boot_id() -> str:
    """What tells this boot of the machine from every other; pids and start times mean nothing beyond it."""
    data = _slurp(f"{PROC}/sys/kernel/random/boot_id")
    return (data or b"").decode("ascii", "replace").strip()


@functools.cache
def _has_children_files() -> bool:
    """Whether the kernel lists children (CONFIG_PROC_CHILDREN); without it all of /proc is searched."""
    return os.path.exists(f"{PROC}/thread-self/children")  # needs no descriptor, of which there may be none


def _slurp(path: str) -> bytes | None:
    """The whole of a /proc file; None when the process is gone or it may not be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = b""
        while chunk := os.read(fd, 65536):
            data += chunk
        return data
    except OSError:
        return None
    finally:
        os.close(fd)
