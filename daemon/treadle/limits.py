"""Which resource limit is enforced by what, and what cannot be enforced (floor 2).

By the server's cgroup where its controller is delegated, otherwise by a resource limit of each process:

- ``memory_mb``: ``memory.max`` for the whole tree; else RLIMIT_DATA for each process. RLIMIT_AS is not used: it
  counts reserved addresses, and runtimes such as node reserve gigabytes that they never touch.
- ``pids``: ``pids.max``; else nothing. RLIMIT_NPROC counts all processes of the user, and root is exempt.
- ``open_files``: RLIMIT_NOFILE of each process.
- ``cpu_seconds``: RLIMIT_CPU of each process, SIGXCPU at the limit.
"""

from __future__ import annotations

import resource
from collections.abc import Collection
from typing import Protocol

from msgspec import Struct, field


class Limits(Protocol):
    """The resource limits of one server (configuration page, ``limits``); None: no limit."""

    @property
    def memory_mb(self) -> int | None: ...
    @property
    def pids(self) -> int | None: ...
    @property
    def open_files(self) -> int | None: ...
    @property
    def cpu_seconds(self) -> int | None: ...


class Plan(Struct, frozen=True):
    """``rlimits``: letter of the shell's ``ulimit`` to value; ``cgroup``: file name to value; ``unenforced``:
    sentences for people about what the configuration asks for and this machine does not give."""

    rlimits: dict[str, int] = field(default_factory=dict)
    cgroup: dict[str, int] = field(default_factory=dict)
    unenforced: list[str] = field(default_factory=list)


def plan(limits: Limits | None, controllers: Collection[str]) -> Plan:
    """How to enforce ``limits`` where the cgroup ``controllers`` (``"memory"``, ``"pids"``) are at hand."""
    made = Plan()
    if limits is None:
        return made
    if limits.memory_mb is not None:
        if "memory" in controllers:
            made.cgroup["memory.max"] = limits.memory_mb * 1024 * 1024
        else:
            made.rlimits["d"] = _within_hard(resource.RLIMIT_DATA, limits.memory_mb * 1024 * 1024) // 1024
            made.unenforced.append(
                f"limits.memory_mb = {limits.memory_mb} bounds each process by itself, not the server with its"
                " descendants: no cgroup memory controller is delegated to the daemon (Delegate=memory pids)"
            )
    if limits.pids is not None:
        if "pids" in controllers:
            made.cgroup["pids.max"] = limits.pids
        else:
            made.unenforced.append(
                f"limits.pids = {limits.pids} is not enforced: no cgroup pids controller is delegated to the"
                " daemon (Delegate=memory pids), and a resource limit would count every process of the user"
            )
    if limits.open_files is not None:
        made.rlimits["n"] = _within_hard(resource.RLIMIT_NOFILE, limits.open_files)
    if limits.cpu_seconds is not None:
        made.rlimits["t"] = limits.cpu_seconds
    return made


def _within_hard(which: int, value: int) -> int:
    """An unprivileged process cannot raise its hard limit; a lower one is already stricter than what was asked."""
    hard = resource.getrlimit(which)[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)
