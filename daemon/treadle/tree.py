"""Custody of everything that a server may have left running (floor 2).

The daemon is a child subreaper: a descendant whose parent ends becomes the daemon's own child, whatever session
or group it moved to, so nothing escapes upwards. The difficulty is to tell whose it was: a helper of a live
neighbour must never be killed because another server is retired. A descendant is attributed by its chain of
parents, by the session or group of the unreaped leader, by having been seen in the tree before the leader was
signalled, and by the mark in its environment. What nobody can attribute is said to be unknown.

A process can also hide in motion: it forks, ends, and its child does the same. Each look then meets dead parents
and newborn children. Nothing but stillness is proof: several looks in which nobody came or went.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Literal

from msgspec import Struct, field

from treadle import cgroup, procfs
from treadle.limits import Limits, plan
from treadle.procfs import Process
from treadle.record import MARK, Record

DRAIN_S: Final = 5.0
"""How long a drain may take before what is left is reported as left."""
TICK_S: Final = 2.0
"""How often adopted processes are looked for while servers run (between retirements, which look at once)."""
FIRST_POLL_S: Final = 0.001
SLOWEST_POLL_S: Final = 0.05
QUIET_LOOKS: Final = 3
"""So many looks in a row, FIRST_POLL_S apart, that find nothing and no movement are proof that nothing is left."""
RESTLESS_S: Final = 1.0
"""How long a drain waits for the end of a movement in which it found nothing of its own."""
BURST_S: Final = 0.02
"""How long the event loop may be held to stop processes faster than they fork away."""

_PR_SET_CHILD_SUBREAPER = 36
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

log = logging.getLogger(__name__)


class Incarnation(Struct, eq=False):
    """One start of one server, from before its spawn until its release."""

    server: str
    marker: str
    group: cgroup.Cgroup | None = None
    pid: int | None = None
    reserved: bool = False
    """Whether the leader is unreaped, so that no other process can have its pid, group or session number."""
    known: set[tuple[int, int]] = field(default_factory=set)
    """Descendants seen while their chain of parents still led to the leader."""
    frozen: set[tuple[int, int]] = field(default_factory=set)
    """Descendants that were stopped before they are killed."""
    restless: bool = False
    """Whether its drain was given up while orphans still came and went."""

    @property
    def cgroup_procs(self) -> str | None:
        """The file by which the child enters its cgroup, None without one."""
        return None if self.group is None else self.group.procs


class Drain(Struct, frozen=True):
    """``drained``: True when nothing is left, False when something is known to be, None when it cannot be known.
    ``stragglers`` counts the descendants that were killed."""

    drained: bool | None
    by: Literal["cgroup", "sweep"]
    stragglers: int


class Survey(Struct, frozen=True):
    """One look at the tree of an incarnation: its live ``members`` by pid, the pids of the orphans of ``others``
    and of those ``unknown`` to everybody, and whether something ``moved``: it had ended, or could not be read."""

    members: dict[int, Process]
    others: frozenset[int]
    unknown: frozenset[int]
    moved: bool


class Usage(Struct, frozen=True):
    """What a tree uses: processes, resident bytes (shared pages counted for each), CPU seconds of live ones."""

    processes: int
    rss_bytes: int
    cpu_s: float


class Custody:
    """The daemon's custody of all its servers. One for each process; belongs to its event loop's thread.

    ``record`` is told of every spawn and release. ``cgroup_root`` is the directory for the servers' cgroups;
    without one a delegated subtree is looked for, and without that the sweep does the work. Makes the process
    a child subreaper: orphans are adopted and reaped. A process of the daemon's own session, or one named by
    :meth:`own`, is never taken for an orphan.
    """

    def __init__(self, *, record: Record | None = None, cgroup_root: str | os.PathLike[str] | None = None) -> None:
        self._record = record
        self._live: set[Incarnation] = set()
        self._leaders: dict[int, Incarnation] = {}
        self._owned: set[int] = set()
        self._session = os.getsid(0)
        self._tick: asyncio.TimerHandle | None = None
        self._watched = False  # whether adopted processes without a mark were met
        self._restless: set[str] = set()  # the marks of drains that were given up in movement
        self._subreaper = ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        path = cgroup_root or cgroup.delegated()
        self._root = cgroup.CgroupRoot(path) if path is not None else None

    @property
    def containment(self) -> Literal["cgroup", "sweep"]:
        """By which means descendants are found and ended."""
        return "sweep" if self._root is None else "cgroup"

    def unenforced(self, limits: Limits | None) -> list[str]:
        """Sentences about what of ``limits`` this machine does not enforce as asked."""
        return plan(limits, self._controllers()).unenforced

    def rlimits(self, limits: Limits | None) -> dict[str, int]:
        """The resource limits to set in the child: letter of ``ulimit`` to value."""
        return plan(limits, self._controllers()).rlimits

    def own(self, pid: int) -> None:
        """Name a child that somebody else here waits for, such as the guard."""
        self._owned.add(pid)

    def disown(self, pid: int) -> None:
        """Take :meth:`own` back once that child was reaped."""
        self._owned.discard(pid)

    # --- the life of an incarnation --------------------------------------------------------------------------

    def admit(self, server: str, marker: str, limits: Limits | None) -> Incarnation:
        """Take an incarnation into custody, before anything of it runs. Pair it with :meth:`release`."""
        incarnation = Incarnation(server, marker)
        if self._root is not None:
            try:
                incarnation.group = self._root.make(marker, plan(limits, self._root.controllers).cgroup)
            except OSError as error:
                log.warning(
                    "server %s runs without a cgroup of its own: %s", server, error, extra={"server": server}
                )
        self._live.add(incarnation)
        self._write(incarnation)
        return incarnation

    def spawned(self, incarnation: Incarnation, pid: int) -> None:
        """Its leader runs as ``pid``, a child that only its owner reaps."""
        incarnation.pid = pid
        incarnation.reserved = True
        self._leaders[pid] = incarnation
        self._write(incarnation)
        self._schedule()

    def leader_reaped(self, incarnation: Incarnation) -> None:
        """From now on its pid may belong to anybody."""
        incarnation.reserved = False
        if incarnation.pid is not None:
            self._leaders.pop(incarnation.pid, None)

    def release(self, incarnation: Incarnation, *, drained: bool | None) -> None:
        """End its custody. What is known to be left stays in the record, for the next start."""
        self._live.discard(incarnation)
        if incarnation.group is not None:
            incarnation.group.remove()
        if drained is False or incarnation.restless:
            incarnation.pid = None  # reaped: from now on the mark alone identifies what is left
            self._write(incarnation)
            self._restless.add(incarnation.marker)
        elif self._record is not None:
            self._record.drop(incarnation.marker)
        self.reap_strangers()

    def _write(self, incarnation: Incarnation) -> None:
        if self._record is not None:
            group = None if incarnation.group is None else str(incarnation.group.path)
            self._record.hold(incarnation.marker, incarnation.server, incarnation.pid, group)

    def _controllers(self) -> frozenset[str]:
        return frozenset() if self._root is None else self._root.controllers

    # --- who belongs to whom ---------------------------------------------------------------------------------

    def snapshot(self, incarnation: Incarnation) -> None:
        """Remember its descendants while their parents live. Call before each signal."""
        incarnation.known.update(process.key for process in self.members(incarnation))

    def members(self, incarnation: Incarnation) -> list[Process]:
        """Its live descendants, without the leader."""
        found = self._survey(incarnation).members
        if incarnation.group is not None:
            found.update((process.pid, process) for process in incarnation.group.members())
        if incarnation.reserved and incarnation.pid is not None:
            found.pop(incarnation.pid, None)
        return list(found.values())

    def usage(self, incarnation: Incarnation) -> Usage:
        """What the leader and its descendants use at this moment. Changes nothing: any thread may ask."""
        leader = procfs.read(incarnation.pid) if incarnation.pid is not None and incarnation.reserved else None
        tree = [*([] if leader is None else [leader]), *self.members(incarnation)]
        return Usage(
            processes=len(tree),
            rss_bytes=sum(process.rss for process in tree) * _PAGE,
            cpu_s=sum(process.cpu for process in tree) / _TICKS_PER_SECOND,
        )

    def _survey(self, incarnation: Incarnation) -> Survey:
        """It suffices to judge the daemon's own children: a descendant is below one of them."""
        roots: list[int] = []
        found: dict[int, Process] = {}
        others: set[int] = set()
        unknown: set[int] = set()
        moved = False
        for pid in procfs.child_pids(os.getpid()):
            if self._leaders.get(pid) is incarnation:
                roots.append(pid)
            elif self._is_adopted(pid):
                child = procfs.read(pid)
                owner = None if child is None else self._owner(child)
                if child is None or (not child.alive and owner in (None, incarnation)):
                    moved = True
                elif owner is None:
                    unknown.add(pid)
                elif owner is incarnation:
                    roots.append(pid)
                    found[pid] = child
                else:
                    others.add(pid)
        for root in roots:
            found.update((process.pid, process) for process in procfs.descendants(root) if process.alive)
        return Survey(found, frozenset(others), frozenset(unknown), moved)

    def _is_adopted(self, pid: int) -> bool:
        if pid in self._leaders or pid in self._owned:
            return False
        # No descendant of a server can get back into the daemon's session: what is in it was forked right here.
        with suppress(OSError):
            return os.getsid(pid) != self._session
        return False

    def _owner(self, child: Process) -> Incarnation | None:
        for number in (child.session, child.pgrp):
            if (leader := self._leaders.get(number)) is not None:
                return leader
        live = tuple(self._live)  # usage() may be asked on a thread
        if (seen := next((one for one in live if child.key in one.known), None)) is not None:
            return seen
        mark = procfs.variable(child.pid, MARK)
        return next((one for one in live if one.marker == mark), None)

    # --- ending ----------------------------------------------------------------------------------------------

    async def drain(self, incarnation: Incarnation, within: float = DRAIN_S) -> Drain:
        """End its descendants (never its leader) and say what is known. Takes at most some ``within`` seconds.

        Call it while the dead leader is unreaped: then even the group can be signalled safely.
        """
        killed: set[tuple[int, int]] = set()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        by_cgroup = False
        if incarnation.group is not None:
            killed.update(process.key for process in self.members(incarnation))
            by_cgroup = await incarnation.group.end(within)
        pause = FIRST_POLL_S
        settled: set[int] = set()  # adopted processes that were judged: there is no haste about them
        last: Survey | None = None
        quiet = 0
        restless_since = loop.time()
        while True:
            stopped = self._halt(settled) if last is not None and last.moved else set()
            look = self._look(incarnation, last)
            settled.update(look.members, look.others, look.unknown)
            for pid in stopped.difference(look.members):
                with suppress(OSError):
                    os.kill(pid, signal.SIGCONT)
            last = look
            sighted = procfs.sighted()
            members = look.members
            quiet = 0 if members or look.moved or not sighted else quiet + 1
            if quiet == QUIET_LOOKS:
                break
            now = loop.time()
            if members or not sighted:
                restless_since = now
            in_vain = now >= restless_since + RESTLESS_S
            if now >= deadline or in_vain:
                incarnation.restless = look.moved
                known_left = bool(members) or (look.moved and bool(killed) and not in_vain)
                return Drain(False if known_left else None, self._by(incarnation), len(killed))
            if not sighted:
                await asyncio.sleep(SLOWEST_POLL_S)
            elif not members:
                await asyncio.sleep(0 if look.moved else FIRST_POLL_S)
            elif self._freeze(incarnation, members.values()):
                await asyncio.sleep(0)  # look again at once, but let the other servers live
            else:
                killed.update(self._kill(incarnation, members.values()))
                await asyncio.sleep(pause)
                pause = min(pause * 2, SLOWEST_POLL_S)
        if incarnation.group is not None:
            return Drain(by_cgroup, "cgroup", len(killed))
        return Drain(None if look.unknown or not self._subreaper else True, "sweep", len(killed))

    def _look(self, incarnation: Incarnation, last: Survey | None) -> Survey:
        """A survey without the leader. Orphans of nobody that came or went since the ``last`` one moved too."""
        look = self._survey(incarnation)
        self.reap_strangers()
        if incarnation.reserved and incarnation.pid is not None:
            look.members.pop(incarnation.pid, None)
        moved = look.moved or look.unknown != (last.unknown if last is not None else frozenset())
        return Survey(look.members, look.others, look.unknown, moved)

    def _halt(self, settled: set[int]) -> set[int]:
        """Stop every adopted process that is not among ``settled``, until a list shows no other; returns them.

        What forks away without pause is not there any more after it was looked at: it is stopped first, and judged
        then. By number, which is sound: the own children keep theirs until they are reaped right here.
        """
        stopped: set[int] = set()
        end = time.monotonic() + BURST_S
        while True:
            listed = procfs.child_pids(os.getpid())
            settled.intersection_update(listed)
            fresh = [pid for pid in listed if pid not in settled and pid not in stopped and self._is_adopted(pid)]
            for pid in fresh:
                with suppress(OSError):
                    os.kill(pid, signal.SIGSTOP)
            stopped.update(fresh)
            if not fresh or time.monotonic() >= end:
                return stopped

    def end_tracer(self, incarnation: Incarnation) -> None:
        """Kill what keeps the status of the dead leader from its parent: a descendant that traces it and does not
        wait. A debugger from elsewhere is left alone: it will wait."""
        assert incarnation.pid is not None
        look = self._survey(incarnation)
        for process in look.members.values():
            if process.pid != incarnation.pid:
                procfs.kill(process)
        if (tracer := procfs.tracer(incarnation.pid)) in look.unknown:
            with suppress(OSError):
                os.kill(tracer, signal.SIGKILL)

    async def end_strangers(self, within: float = DRAIN_S) -> Drain:
        """At the daemon's end, when no server is left: kill every orphan that was adopted. ``drained`` is False
        when some are known to be left after ``within`` seconds, None when some still come and go."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        pause = FIRST_POLL_S
        killed: set[tuple[int, int]] = set()
        quiet = 0
        while True:
            self._halt(set())
            listed = [pid for pid in procfs.child_pids(os.getpid()) if self._is_adopted(pid)]
            adopted = [child for pid in listed if (child := procfs.read(pid)) is not None and child.alive]
            self.reap_strangers()
            quiet = 0 if listed or not procfs.sighted() else quiet + 1
            late = loop.time() >= deadline
            if quiet == QUIET_LOOKS or late:
                self._settle(quiet == QUIET_LOOKS)
                drained = True if quiet == QUIET_LOOKS else False if adopted else None
                return Drain(drained, "sweep", len(killed))
            tree = [*adopted, *(process for child in adopted for process in procfs.descendants(child.pid))]
            killed.update(process.key for process in tree if process.alive and procfs.kill(process))
            await asyncio.sleep(pause)
            pause = min(pause * 2, SLOWEST_POLL_S) if adopted else FIRST_POLL_S

    def _settle(self, proven: bool) -> None:
        """Record what the daemon leaves. Without an orphan nothing is left of any server that was released."""
        self.note_orphans()
        if proven and self._record is not None:
            for marker in self._restless:
                self._record.drop(marker)
            self._restless.clear()

    def note_orphans(self) -> None:
        """Record the adopted processes that no mark identifies: nothing but their parent tells whose they are, and
        that is gone with the daemon."""
        if self._record is None:
            return
        marks = {one.marker for one in self._live}
        adopted = (child for child in procfs.children(os.getpid()) if child.alive and self._is_adopted(child.pid))
        unmarked = [child for child in adopted if procfs.variable(child.pid, MARK) not in marks]
        self._record.orphans(unmarked)
        self._watched = bool(unmarked)

    def reap_strangers(self) -> None:
        """Reap the adopted orphans that ended. Cheap when there are none; touches no child that has an owner."""
        try:
            if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return
        except ChildProcessError:
            return
        for pid in procfs.child_pids(os.getpid()):
            if self._is_adopted(pid):
                with suppress(ChildProcessError):
                    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)

    def _by(self, incarnation: Incarnation) -> Literal["cgroup", "sweep"]:
        return "sweep" if incarnation.group is None else "cgroup"

    def _freeze(self, incarnation: Incarnation, members: Iterable[Process]) -> bool:
        """Stop the ones not met before, so that their children stay below them until all are known."""
        fresh = [process for process in members if process.key not in incarnation.frozen]
        for process in fresh:
            incarnation.frozen.add(process.key)
            procfs.kill(process, signal.SIGSTOP)
        incarnation.known.update(incarnation.frozen)
        return bool(fresh)

    def _kill(self, incarnation: Incarnation, members: Iterable[Process]) -> set[tuple[int, int]]:
        """Kill ``members``; the group at once, so that one that forks cannot outrun the sweep."""
        killed: set[tuple[int, int]] = set()
        group = [process for process in members if incarnation.reserved and process.pgrp == incarnation.pid]
        if group:
            with suppress(OSError):
                os.killpg(group[0].pgrp, signal.SIGKILL)
                killed.update(process.key for process in group)
        killed.update(process.key for process in members if process.key not in killed and procfs.kill(process))
        return killed

    def _schedule(self) -> None:
        if self._tick is None and (self._live or self._watched):
            self._tick = asyncio.get_running_loop().call_later(TICK_S, self._ticked)

    def _ticked(self) -> None:
        self._tick = None
        self.reap_strangers()
        self.note_orphans()
        self._schedule()
