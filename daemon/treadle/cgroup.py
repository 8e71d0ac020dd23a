"""One cgroup for each server, where the daemon has a cgroup v2 subtree of its own (floor 2).

The strongest containment there is without namespaces: nothing leaves the group by forking, ``cgroup.kill`` ends
all of it at once, and ``populated 0`` is the kernel's word that nothing is left. Used only in a subtree that was
delegated to the daemon (systemd's ``Delegate=``), never in the machine's own hierarchy.
"""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from treadle import procfs
from treadle.record import group_name

if TYPE_CHECKING:
    from pathlib import Path

FIRST_POLL_S: Final = 0.001
SLOWEST_POLL_S: Final = 0.05
WANTED: Final = ("memory", "pids")


class Cgroup:
    """The group of one incarnation of a server; a directory below :class:`CgroupRoot`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def procs(self) -> str:
        """The file that a process writes ``0`` to in order to enter."""
        return str(self.path / "cgroup.procs")

    def members(self) -> list[procfs.Process]:
        """The live processes in the group and in groups below it."""
        pids = {int(word) for file in self.path.glob("**/cgroup.procs") for word in _read(file).split()}
        return [process for pid in pids if (process := procfs.read(pid)) is not None and process.alive]

    def populated(self) -> bool:
        """Whether the kernel counts a live process in the group or below it."""
        told = _read(self.path / "cgroup.events")
        # What cannot be read, for want of a descriptor, is no proof of emptiness.
        return "populated 0" not in told if told else self.path.exists()

    async def end(self, within: float) -> bool:
        """Kill everything in it; True once the kernel counts nothing in it, False after ``within`` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        pause = FIRST_POLL_S
        while self.populated():
            try:
                (self.path / "cgroup.kill").write_text("1")
            except OSError:  # before Linux 5.14
                for process in self.members():
                    procfs.kill(process)
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(pause)
            pause = min(pause * 2, SLOWEST_POLL_S)
        return True

    def remove(self) -> None:
        """Remove the empty group with those that the server made below it; what is still in use stays."""
        for folder, _, _ in os.walk(self.path, topdown=False):
            with suppress(OSError):
                os.rmdir(folder)


class CgroupRoot:
    """The directory below which the daemon makes one group for each server."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        from pathlib import Path  # not cheap to import, and most daemons have no such directory

        self.path = Path(path)
        self.controllers = self._enable()

    def make(self, marker: str, limits: dict[str, int]) -> Cgroup:
        """The group for the incarnation ``marker`` with its limits set. Raises OSError."""
        group = Cgroup(self.path / group_name(marker))
        group.path.mkdir()
        try:
            for name, value in limits.items():
                (group.path / name).write_text(str(value))
        except OSError:
            group.remove()
            raise
        return group

    def _enable(self) -> frozenset[str]:
        """Hand the wanted controllers on to the groups below; returns those that are there afterwards.

        A cgroup that has processes of its own cannot do so, hence the daemon first steps into a leaf.
        """
        with suppress(OSError):
            self._step_aside()
        control = self.path / "cgroup.subtree_control"
        for name in WANTED:
            if name in _read(self.path / "cgroup.controllers").split():
                with suppress(OSError):
                    control.write_text(f"+{name}")
        return frozenset(_read(control).split()) & frozenset(WANTED)

    def _step_aside(self) -> None:
        if str(os.getpid()) in _read(self.path / "cgroup.procs").split():
            leaf = self.path / "treadle"
            leaf.mkdir(exist_ok=True)
            (leaf / "cgroup.procs").write_text("0")


def delegated() -> str | None:
    """The cgroup v2 directory that a service manager delegated to this daemon, None when there is none.

    systemd marks it by an extended attribute; the directory above counts as well, because with
    ``DelegateSubgroup=`` the daemon starts one level below the delegated one. A user's systemd cannot set that
    attribute: there the unit says it by ``$TREADLE_DELEGATED``, which counts for the unit's main process alone.
    """
    own = own_cgroup(_read("/proc/self/cgroup"), _read("/proc/self/mountinfo"))
    if own is None:
        return None
    main = os.environ.get("SYSTEMD_EXEC_PID") == str(os.getpid())
    if main and os.environ.get("TREADLE_DELEGATED") and os.access(os.path.join(own, "cgroup.procs"), os.W_OK):
        return own
    return next((path for path in (own, os.path.dirname(own)) if _is_delegated(path)), None)


def own_cgroup(membership: str, mountinfo: str) -> str | None:
    """The directory of the own cgroup v2 group, from the texts of /proc/self/cgroup and /proc/self/mountinfo.

    None without cgroup v2, and for the root of the hierarchy, which is nobody's to use.
    """
    group = next((line[3:] for line in membership.splitlines() if line.startswith("0::")), "/")
    if group == "/":
        return None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if after.startswith("cgroup2 ") and len(fields) > 4:
            inside = os.path.relpath(group, fields[3])
            if not inside.startswith(".."):
                return os.path.normpath(os.path.join(_unescape(fields[4]), inside))
    return None


def _unescape(field: str) -> str:
    return re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), field)


def _is_delegated(path: str) -> bool:
    return any(_attribute(path, name) == b"1" for name in ("trusted.delegate", "user.delegate")) and os.access(
        os.path.join(path, "cgroup.procs"), os.W_OK
    )


def _attribute(path: str, name: str) -> bytes | None:
    try:
        return os.getxattr(path, name)
    except OSError:
        return None


def _read(path: str | os.PathLike[str]) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
