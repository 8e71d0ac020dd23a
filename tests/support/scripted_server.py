#!/usr/bin/env python3
"""A stdio MCP server that plays a script: ``scripted_server.py SCRIPT`` (a file, or the JSON itself).

A plain executable on the standard library alone: it performs the actions of :class:`support.engine.Engine` with
blocking writes on real descriptors, so that it behaves like the servers it stands for.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from typing import Any, NoReturn

# No pathlib: hundreds of these are started, and it costs a third of a start.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

from support import actions
from support.engine import Engine
from support.payload import ScriptError

READ_SIZE = 65536
INHERITED: dict[str, str] = {}
"""The descriptors that the process was started with, number to target; filled by :func:`main`."""


class Process:
    """One operating-system process that performs the actions of one engine."""

    def __init__(self, script: list[Any], *, serving: bool, reads: bool) -> None:
        self._engine = Engine(script, fact, serving=serving)
        self._reading = reads
        self._wakeup_read, wakeup_write = os.pipe()
        os.set_blocking(wakeup_write, False)
        os.set_blocking(self._wakeup_read, False)
        self._wakeup = (self._wakeup_read, wakeup_write)
        signal.set_wakeup_fd(wakeup_write)

    def run(self) -> NoReturn:
        """Play until the script exits."""
        while True:
            for action in self._engine.advance(time.monotonic()):
                self._perform(action)
            self._wait()

    def _wait(self) -> None:
        wakeup = self._engine.next_wakeup
        timeout = None if wakeup is None else max(0.0, wakeup - time.monotonic())
        watched = [self._wakeup_read, 0] if self._reading else [self._wakeup_read]
        ready, _, _ = select.select(watched, [], [], timeout)
        if self._wakeup_read in ready:
            for number in os.read(self._wakeup_read, 512):
                self._engine.signalled(signal.Signals(number).name)
        if 0 in ready:
            data = os.read(0, READ_SIZE)
            if data:
                self._engine.feed(data)
            else:
                self._reading = False
                self._engine.feed_eof()

    def _perform(self, action: actions.Action) -> None:
        match action:
            case actions.Write(fd, data):
                write_all(fd, data)
            case actions.Close(fd):
                self._reading = self._reading and fd != 0
                os.close(fd)
            case actions.Exit(code):
                os._exit(code)
            case actions.Signal(name):
                os.kill(os.getpid(), signal.Signals[name])
            case actions.Trap(name, handled):
                # The wakeup descriptor carries the number; the handler itself has nothing to do.
                signal.signal(signal.Signals[name], (lambda *_: None) if handled else signal.SIG_IGN)
            case actions.Append(path, data):
                with open(path, "ab", buffering=0) as file:
                    file.write(data)
            case actions.StopReading():
                self._reading = False
            case actions.Spin(seconds):
                end = None if seconds is None else time.monotonic() + seconds
                while end is None or time.monotonic() < end:
                    pass
            case actions.Fork():
                self._fork(action)

    def _fork(self, action: actions.Fork) -> None:
        child = os.fork()
        if child:
            if action.double:
                os.waitpid(child, 0)
            return
        if action.setsid:
            os.setsid()
        if action.double and os.fork():
            os._exit(0)
        signal.set_wakeup_fd(-1)
        for fd in self._wakeup:
            os.close(fd)
        for fd in {0, 1, 2} - set(action.keep_fds):
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, fd)
            os.close(null)
        Process(action.script, serving=False, reads=False).run()


def write_all(fd: int, data: bytes) -> None:
    """All of ``data`` on ``fd``; a reader that is gone ends the process quietly, as it ends most servers."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        os._exit(1)


def fact(name: str, argument: str) -> Any:
    """What a script may ask of its process; ``start`` counts, in the file ``argument``, how often it was asked."""
    match name:
        case "environ":
            return dict(os.environ)
        case "argv":
            return sys.argv
        case "cwd":
            return os.getcwd()
        case "pid":
            return os.getpid()
        case "fds":
            return INHERITED
        case "start":
            with open(argument, "a+") as file:
                file.seek(0)
                starts = int(file.read() or "0") + 1
                file.truncate(0)
                file.write(str(starts))
            return starts
        case _:
            raise ScriptError(f"no such fact: {name}")


def open_descriptors() -> dict[str, str]:
    """Every open descriptor and what it points at, without the one that the look itself needs."""
    found = {}
    for fd in sorted(os.listdir("/proc/self/fd"), key=int):
        with contextlib.suppress(OSError):
            found[fd] = os.readlink(f"/proc/self/fd/{fd}")
    return found


def main() -> NoReturn:
    """Play the script that the last argument names or holds."""
    INHERITED.update(open_descriptors())
    given = sys.argv[-1]
    if not given.lstrip().startswith("["):
        with open(given, encoding="utf-8") as file:
            given = file.read()
    Process(json.loads(given), serving=True, reads=True).run()


if __name__ == "__main__":
    main()
