"""A daemon to be killed: ``python doomed_daemon.py SOURCES RECORD`` starts servers that refuse to end.

Each of them, and each of their children, writes its pid on the daemon's stdout. Standard library alone.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])

from treadle.custody import Guard
from treadle.errors import Fault
from treadle.process import ChildProcess, Launch
from treadle.record import Record
from treadle.tree import Custody

STUBBORN = """
import ctypes, os, signal, sys, time
ctypes.CDLL(None).prctl(1, 0)  # no parent-death signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
kind = sys.argv[1]
child = kind != "single" and os.fork() == 0
if child and kind == "session":
    os.setsid()
if child and kind == "unmarked":
    os.execve("/bin/sh", ["sh", "-c", "echo $$; exec sleep 60"], {"PATH": os.defpath})
os.write(1, b"%d\\n" % os.getpid())
while True:
    time.sleep(60)  # end of file on stdin is ignored
"""
KINDS = ("single", "group", "session", "unmarked")


class Relay:
    """Passes what the servers say on to whoever started this."""

    in_flight = 0
    others_wait = False

    def data_received(self, data: bytes) -> None:
        os.write(1, data)

    def writable(self) -> None:
        pass

    def closed(self, reason: Fault) -> None:
        pass


async def main() -> None:
    path = Path(sys.argv[2])
    record = Record(path)
    custody = Custody(record=record)
    guard = Guard.start(record)
    custody.own(guard.pid)
    for kind in KINDS:
        argv = (sys.executable, "-I", "-S", "-c", STUBBORN, kind)
        launch = Launch(server=kind, argv=argv, env={"PATH": os.defpath}, marker=f"{os.getpid()}-{kind}")
        await ChildProcess(launch, custody=custody, redact=str).open(Relay())
    await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main())
