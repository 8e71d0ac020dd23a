"""What happens to the servers when the daemon is killed: the recovery by the next start, and the guard (floor 2).

``SIGKILL`` gives the daemon no last word. Its servers normally die with it (parent-death signal, end of file on
stdin), but a process may have cleared that signal, ignore the end of file, and live on. So the daemon keeps a
record (:mod:`treadle.record`), and its next start ends what the record names before it spawns anything (MCP
client page, section 5); the :class:`Guard` does the same at the moment of the death.

Identity before everything: a pid is a number that anybody may have by now. A process is ours when its pid *and*
start time are recorded, when it carries a recorded mark in its environment, when it descends from such a process,
or when it is in the session or group of one that still holds that number.

Imports the standard library alone: the guard runs this in a bare interpreter.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from treadle import procfs
from treadle.procfs import Process
from treadle.record import MARK, Held, Record, group_of, read_record

if TYPE_CHECKING:
    import asyncio
    import subprocess
    from collections.abc import Callable

__all__ = ["Finding", "Guard", "Record", "recover"]

RECOVERY_S: Final = 5.0
FIRST_POLL_S: Final = 0.002
SLOWEST_POLL_S: Final = 0.1
QUIET_LOOKS: Final = 3
"""So many looks in a row, FIRST_POLL_S apart, must show no new process before a chase is over."""
CHASE_S: Final = 1.0
"""How long one chase may take: on a busy machine there is always a new process."""
MOST_NEW: Final = 20_000
"""So many new numbers are judged in one look at most, should the kernel's count have been set by hand."""
RELEASE_S: Final = 2.0
DEATH_S: Final = 2.0
"""How long the guard waits for a daemon that closed its pipe to be gone altogether."""


class Finding(NamedTuple):
    """One thing that the recovery met, for the log. ``pid`` is 0 when it concerns no process."""

    server: str
    pid: int
    name: str
    how: str

    def __str__(self) -> str:
        subject = f"server {self.server}: " if self.server else ""
        return f"{subject}process {self.pid} ({self.name}) {self.how}" if self.pid else f"{subject}{self.how}"


def recover(
    path: str | os.PathLike[str], *, daemon: str | None = None, before: int | None = None
) -> list[Finding]:
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
    if record.writer_lives():
        what = f"still runs and owns what {path} names; it was left alone"
        return [Finding("", record.daemon_pid, _name(record.daemon_pid), what)]
    findings = _end(record.held, before)
    for one in record.held:
        if (group := group_of(one)) is not None:
            with suppress(OSError):
                os.rmdir(group)
    return findings


def _end(held: tuple[Held, ...], before: int | None) -> list[Finding]:
    """Freeze what is identified until nothing new turns up, kill it, and look again until nothing is left.

    Freezing first keeps every parent in place, so that a child forked meanwhile is still found below it.
    """
    deadline = time.monotonic() + RECOVERY_S
    findings: dict[tuple[int, int], Finding] = {}
    pause = FIRST_POLL_S
    marks = {one.marker for one in held}
    while True:
        newest = procfs.newest()
        ours, doubtful = identify(held, list(procfs.everyone()), before)
        late = time.monotonic() >= deadline
        fresh = [item for item in ours if item[0].key not in findings]
        for process, one, how in fresh:
            procfs.kill(process, signal.SIGSTOP)
            what = f"was left over (known by its {how}) and was killed"
            findings[process.key] = Finding(one.server, process.pid, _name(process.pid), what)
        if fresh and not late:
            continue
        for process, one, how in ours:
            procfs.kill(process)
            if late:
                what = f"was left over (known by its {how}) and cannot be ended: end it by hand"
                findings[process.key] = Finding(one.server, process.pid, _name(process.pid), what)
        if late:
            break
        if not ours:
            if not _chase(marks, newest, deadline):
                break
            continue
        time.sleep(pause)
        pause = min(pause * 2, SLOWEST_POLL_S)
    for process, one in doubtful:
        what = "may be left over: its session or group has the number of the ended server; it was left alone"
        findings[process.key] = Finding(one.server, process.pid, _name(process.pid), what)
    return list(findings.values())


def _chase(marks: set[str], seen: int, deadline: float) -> bool:
    """Stop what carries one of ``marks`` and is newer than the number ``seen``, as fast as it forks away.

    Returns whether there was any. Over when nothing new appears any more, CHASE_S after the last one that was
    caught, or at the ``deadline`` (monotonic). One that ended before it could be judged may have left another.
    """
    end = min(deadline, time.monotonic() + CHASE_S)
    found = False
    quiet = 0
    while quiet < QUIET_LOOKS and time.monotonic() < end:
        newest = procfs.newest() or seen
        judged = [procfs.halt(pid, MARK, marks) for pid in islice(procfs.handed_out(seen, newest), MOST_NEW)]
        seen = newest
        if True in judged:
            found = True
            end = min(deadline, time.monotonic() + CHASE_S)
        if True in judged or None in judged:
            quiet = 0
        else:
            quiet += 1
            time.sleep(FIRST_POLL_S)
    return found


def identify(
    held: Iterable[Held], processes: list[Process], before: int | None
) -> tuple[list[tuple[Process, Held, str]], list[tuple[Process, Held]]]:
    """Which live ``processes`` are of a recorded incarnation, and by what; and which only may be.

    The own process is never among them.
    """
    held = tuple(held)
    by_mark = {one.marker: one for one in held}
    by_group = {pid: one for one in held for pid in _group_pids(one)}
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
        elif process.pid in by_group:
            ours[process.pid] = (process, by_group[process.pid], "cgroup")
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


def _group_pids(one: Held) -> list[int]:
    group = group_of(one)
    if group is None:
        return []
    pids = []
    try:
        for folder, _, files in os.walk(group):
            if "cgroup.procs" in files:
                with open(f"{folder}/cgroup.procs") as file:
                    pids += [int(word) for word in file.read().split()]
    except OSError:
        return []
    return pids


def _name(pid: int) -> str:
    try:
        with open(f"{procfs.PROC}/{pid}/comm", "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return "?"
    return "".join(char if char.isprintable() else " " for char in text.strip())


class Guard:
    """A tiny process that outlives the daemon by the time it takes to end what the daemon left.

    A shell that reads one line from a pipe whose only writer is the daemon. ``done`` ends it. End of file without
    it means that the daemon was killed: the shell becomes a Python that runs :func:`recover` once. It has a
    session of its own, ignores the polite signals, and holds nothing but the pipe. Recovery is restricted to the
    very record of this daemon, so that a successor that starts at the same moment is not hurt.
    """

    _WAIT: Final = 'trap "" HUP INT TERM; read -r word; [ "$word" = done ] || exec "$@"'
    _RECOVER: Final = (
        "import sys; sys.path.append(sys.argv[1]); from treadle.custody import main; sys.exit(main(sys.argv[2:]))"
    )

    def __init__(self, popen: subprocess.Popen[bytes], pipe: int) -> None:
        self._popen = popen
        self._pipe = pipe
        self._pidfd = -1

    @classmethod
    def start(cls, record: Record) -> Guard:
        """Start it for this daemon's record, whether or not that could be written yet. Raises OSError. Name its
        :attr:`pid` to :meth:`treadle.tree.Custody.own`."""
        import subprocess

        package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
        recovery = [cls._RECOVER, package, os.path.realpath(record.path), record.daemon]
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            popen = subprocess.Popen(
                ["/bin/sh", "-c", cls._WAIT, "treadle-guard", sys.executable, "-I", "-S", "-c", *recovery],
                stdin=reader,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
                start_new_session=True,
            )
        except BaseException:
            os.close(writer)
            raise
        finally:
            os.close(reader)
        return cls(popen, writer)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    def watch(self, loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
        """Have ``ended`` called, once, when it ends before it is released or left; it is reaped then."""
        self._pidfd = os.pidfd_open(self.pid)
        self._loop = loop

        def gone() -> None:
            self._unwatch()
            self._close()
            if self._popen.poll() is None:  # a tracer has the status first; reaped as an orphan when it lets go
                self._popen.returncode = -signal.SIGKILL
            ended()

        loop.add_reader(self._pidfd, gone)

    @property
    def stopped(self) -> bool:
        """Whether somebody stopped it: it would sleep through the daemon's death."""
        process = procfs.read(self.pid)
        return process is not None and process.state in "Tt"

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; nothing when it has ended."""
        self._popen.send_signal(number)

    def _unwatch(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _close(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1

    def leave(self) -> None:
        """Let it live on: it ends what the record still holds as soon as this process is gone and its end of the
        pipe with it."""
        self._unwatch()
        self._popen.send_signal(signal.SIGCONT)

    async def release(self, within: float = RELEASE_S) -> None:
        """Send it home at the daemon's orderly end and reap it; killed when it does not go within ``within``
        seconds. Idempotent."""
        import asyncio

        self._unwatch()
        self._popen.send_signal(signal.SIGCONT)
        if self._pipe >= 0:
            with suppress(OSError):
                os.write(self._pipe, b"done\n")
        self._close()
        deadline = time.monotonic() + within
        while self._popen.poll() is None:
            if time.monotonic() >= deadline:
                self._popen.kill()
            await asyncio.sleep(FIRST_POLL_S)


def main(arguments: list[str]) -> int:
    """The guard's recovery: ``RECORD DAEMON``, run when the daemon's pipe reached its end."""
    path, daemon = arguments
    # The leaders were unreaped until now: whoever is in their sessions already got there by birth.
    before = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
    deadline = time.monotonic() + DEATH_S
    try:
        record = read_record(path)
        while record is not None and record.writer_lives() and time.monotonic() < deadline:
            time.sleep(FIRST_POLL_S)
    except ValueError:
        return 1
    recover(path, daemon=daemon, before=before)
    return 0
