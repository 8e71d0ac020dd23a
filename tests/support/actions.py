"""What a playing script asks of the host that it runs in (standard library alone)."""

from __future__ import annotations

from typing import Any, NamedTuple


class Write(NamedTuple):
    """All of ``data`` on descriptor ``fd`` (1 or 2), waiting for the reader like a blocking write."""

    fd: int
    data: bytes


class Close(NamedTuple):
    """Close descriptor ``fd``."""

    fd: int


class Exit(NamedTuple):
    """End with this status; nothing after it is performed."""

    code: int


class Signal(NamedTuple):
    """Send the signal of this name to itself."""

    name: str


class Trap(NamedTuple):
    """From now on a signal of this name is ignored, or given to :meth:`Engine.signalled` when ``handled``."""

    name: str
    handled: bool


class Append(NamedTuple):
    """Append ``data`` to the file ``path``."""

    path: str
    data: bytes


class StopReading(NamedTuple):
    """Read nothing from stdin from now on."""


class Spin(NamedTuple):
    """Burn the processor for ``seconds``; forever when None."""

    seconds: float | None


class Fork(NamedTuple):
    """Start a child that plays ``script``; ``keep_fds`` are the descriptors of 0, 1, 2 that it keeps."""

    script: list[Any]
    setsid: bool
    keep_fds: list[int]
    double: bool


Action = Write | Close | Exit | Signal | Trap | Append | StopReading | Spin | Fork
