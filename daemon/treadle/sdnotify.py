"""What the daemon tells its service manager: ready, reloading, stopping, alive (floor 6).

The protocol is that of ``sd_notify(3)``: one datagram of ``NAME=value`` lines to the socket named by
``$NOTIFY_SOCKET``. Without that variable every method does nothing, so the daemon needs not to ask who started it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, MutableMapping
from contextlib import suppress
from typing import Final

BEAT_S: Final = 1.0
"""How often the status line is looked at; it is sent when it differs from the one before."""
WATCHDOG_SHARE: Final = 3
"""A sign of life is due this many times in the time that the service manager waits for one."""


class Notifier:
    """The way to the service manager: ``address`` is the value of ``$NOTIFY_SOCKET``, None where there is none.

    An address that begins with ``@`` is in the abstract namespace. Sending never blocks and never raises: a
    service manager that does not listen must not take the service with it.
    """

    def __init__(self, address: str | None) -> None:
        self._target = None
        if address is not None and address[:1] in ("/", "@"):
            self._target = "\0" + address[1:] if address[0] == "@" else address
        self._socket: socket.socket | None = None

    @property
    def enabled(self) -> bool:
        """Whether somebody is to be told."""
        return self._target is not None

    def send(self, *lines: str) -> bool:
        """Send ``lines`` (``NAME=value``, a line end inside becomes a space) as one message; whether it left."""
        if self._target is None:
            return False
        if self._socket is None:
            self._socket = socket.socket(
                socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
            )
        message = "\n".join(line.replace("\n", " ") for line in lines)
        with suppress(OSError, UnicodeEncodeError):
            self._socket.sendto(message.encode(), self._target)
            return True
        return False

    def close(self) -> None:
        """Give the descriptor back."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Service:
    """The daemon as a service: its phases, its status line, its sign of life.

    ``watchdog_s`` is the time after which the service manager kills a service that gave no sign of life, None
    where it does not watch. The sign comes from the event loop itself, so that a blocked loop gives none.
    """

    def __init__(self, notifier: Notifier, watchdog_s: float | None = None) -> None:
        self._notifier = notifier
        self._watchdog_s = watchdog_s
        self._status: Callable[[], str] = lambda: ""
        self._told = ""
        self._ready = self._stopping = False
        self._timer: asyncio.TimerHandle | None = None
        self._alive_at = 0.0

    @classmethod
    def from_environ(cls, environ: MutableMapping[str, str]) -> Service:
        """What ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID`` say.

        They are removed from ``environ``: no child may believe that they are meant for it.
        """
        notifier = Notifier(environ.pop("NOTIFY_SOCKET", None))
        usec, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        watched = usec.isdecimal() and int(usec) > 0 and pid in ("", str(os.getpid()))
        return cls(notifier, int(usec) / 1_000_000 if watched and notifier.enabled else None)

    def begin(self, status: Callable[[], str], within_s: float) -> None:
        """Start to report. ``status`` gives the status line; becoming ready takes at most ``within_s`` seconds,
        which extends a shorter start time-out of the service manager. Needs the running loop."""
        if not self._notifier.enabled:
            return
        self._status = status
        self._notifier.send(_extension(within_s), self._status_line())
        self._beat(asyncio.get_running_loop())

    def ready(self) -> None:
        """The service serves. Further calls say nothing new."""
        if self._ready or self._stopping:
            return
        self._ready = True
        self._notifier.send("READY=1", f"MAINPID={os.getpid()}", self._status_line())

    def reloading(self) -> None:
        """The configuration is being read again; :meth:`reloaded` must follow, whatever came of it."""
        if self._ready and not self._stopping:
            self._notifier.send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def reloaded(self) -> None:
        """The end of :meth:`reloading`."""
        if self._ready and not self._stopping:
            self._notifier.send("READY=1", self._status_line())

    def stopping(self, within_s: float) -> None:
        """The service ends, within ``within_s`` seconds. That extends a shorter stop time-out."""
        if not self._stopping:
            self._stopping = True
            self._notifier.send("STOPPING=1", _extension(within_s), self._status_line())

    def close(self) -> None:
        """The last sign of life was given."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._notifier.close()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        lines = []
        pause = BEAT_S
        if self._watchdog_s is not None:
            period = self._watchdog_s / WATCHDOG_SHARE
            pause = min(pause, period)
            # The loop counts whole milliseconds: without the margin every second beat would come just too early.
            if loop.time() >= self._alive_at + period - pause / 2:
                self._alive_at = loop.time()
                lines.append("WATCHDOG=1")
        if self._status() != self._told:
            lines.append(self._status_line())
        if lines:
            self._notifier.send(*lines)
        self._timer = loop.call_later(pause, self._beat, loop)

    def _status_line(self) -> str:
        self._told = self._status()
        return f"STATUS={self._told}"


def status_of(phase: str, states: Iterable[str]) -> str:
    """The status line: the daemon's ``phase``, and how many servers are in which state.

    >>> status_of("ready", ["ready", "parked", "ready"])
    'ready; servers: 2 ready, 1 parked'
    >>> status_of("ready", [])
    'ready; no servers are configured'
    """
    counted = Counter(states)
    if not counted:
        return f"{phase}; no servers are configured"
    return f"{phase}; servers: " + ", ".join(f"{count} {state}" for state, count in counted.items())


def _extension(seconds: float) -> str:
    return f"EXTEND_TIMEOUT_USEC={round(seconds * 1_000_000)}"
