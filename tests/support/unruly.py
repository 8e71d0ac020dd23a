"""Servers that do not want to end, as commands, and looks at what is left of them."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from support import script
from support.daemon import Daemon
from treadle import procfs

Command = list[str]
WITHIN_S: Final = 10.0
"""Bound of every wait: only a failing test takes that long."""

STUBBORN: Final[script.Steps] = [script.ignore("SIGTERM"), script.ignore("SIGHUP"), script.on_eof()]
"""Steps after which neither end of file nor a polite signal ends the server."""

UNTIED: Final = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 0)
if "setsid" in sys.argv[1] and os.fork():
    os.wait()
    os._exit(0)
if "setsid" in sys.argv[1]:
    os.setsid()
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Clears the parent-death signal (and leaves the session) before it becomes the server."""

ESCAPEE: Final = """
import os, sys
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    with open(sys.argv[1], "a") as file:
        file.write(f"{os.getpid()}\\n")
    for fd in range(3):
        os.close(fd)
    os.execve("/bin/sleep", ["sleep", "60"], {})
os.wait()
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Leaves a process that nothing ties to the server any more: an orphan in its own session without a variable."""

HANDSHAKE: Final = """
read -r line
printf '%s\\n' '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},\
"serverInfo":{"name":"shell","version":"1"}}}'
read -r line
read -r line
printf '%s\\n' '{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}}'
"""
"""The whole start of an MCP session in a shell, which starts ten times faster than Python."""


def scripted(*steps: script.Step | script.Steps) -> Command:
    """The command of a server that plays ``steps``."""
    return list(script.command(list(steps)))


def launched(*steps: script.Step | script.Steps) -> Command:
    """The same behind ``sh -c 'server; true'``: a shell that stays, and passes no signal on."""
    return ["/bin/sh", "-c", '"$0" "$@"; true', *scripted(*steps)]


def untied(*steps: script.Step | script.Steps, setsid: bool = False) -> Command:
    """The same without a parent-death signal; ``setsid``: in another session, below a parent that waits."""
    return [sys.executable, "-I", "-S", "-c", UNTIED, "setsid" if setsid else "stay", *scripted(*steps)]


def escaping(pids: Path, *steps: script.Step | script.Steps) -> Command:
    """The same, after leaving an ESCAPEE that writes its pid to the file ``pids``."""
    return [sys.executable, "-I", "-S", "-c", ESCAPEE, str(pids), *scripted(*steps)]


def shell(text: str) -> Command:
    """A shell script as a server."""
    return ["/bin/sh", "-c", text]


def npx(folder: Path, *steps: script.Step | script.Steps) -> dict[str, Any]:
    """A server behind ``npx --no-install``: a package of its own in ``folder``. Needs npx."""
    package = folder / "node_modules" / "scripted-server"
    package.mkdir(parents=True)
    (folder / "package.json").write_text('{"name": "test", "version": "1.0.0"}')
    (package / "package.json").write_text(
        '{"name": "scripted-server", "version": "1.0.0", "bin": {"scripted-server": "run.sh"}}'
    )
    quoted = " ".join(f"'{word}'" for word in script.command(list(steps), folder / "script.json"))
    run = package / "run.sh"
    run.write_text(f"#!/bin/sh\nexec {quoted}\n")
    run.chmod(0o755)
    links = folder / "node_modules" / ".bin"
    links.mkdir()
    (links / "scripted-server").symlink_to(run)
    environ = {"npm_config_update_notifier": "false", "npm_config_offline": "true", "npm_config_audit": "false"}
    return {"command": ["npx", "--no-install", "scripted-server"], "cwd": str(folder), "env": environ}


HAS_NPX: Final = shutil.which("npx") is not None


# --- looks -------------------------------------------------------------------------------------------


def until(condition: Callable[[], object], what: str, within: float = WITHIN_S) -> None:
    """Wait for what nobody announces: a state of the machine. Fails after ``within`` seconds."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within} s: {what}"
        time.sleep(0.005)


def settle(daemon: Daemon) -> dict[str, dict[str, Any]]:
    """Wait until no server of ``daemon`` is starting or closing; returns its rows by name."""
    with daemon.client() as client:
        rows: dict[str, dict[str, Any]] = {}

        def still() -> bool:
            rows.update((row["name"], row) for row in client.status()["servers"])
            return all(row["state"] not in ("starting", "closing") for row in rows.values())

        until(still, "every server ready or down", 30)
        return rows


def nothing_left(daemon: Daemon, within: float = WITHIN_S) -> None:
    """Wait until no process carries the HOME of ``daemon``, itself included."""
    until(lambda: not daemon.leftovers(), f"nothing left of {daemon.folder}", within)


def family(daemon: Daemon) -> list[procfs.Process]:
    """The daemon's descendants now."""
    return procfs.descendants(daemon.pid)


def guard_of(daemon: Daemon) -> int:
    """The pid of the daemon's guard; waits for one that is being started."""
    found: list[int] = []

    def look() -> bool:
        children = procfs.children(daemon.pid)
        found[:] = [child.pid for child in children if child.alive and b"treadle-guard" in command_line(child.pid)]
        return bool(found)

    until(look, "a guard")
    (guard,) = found
    return guard


def command_line(pid: int) -> bytes:
    """The command line of a process as /proc has it; empty when it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def zombies(daemon: Daemon) -> list[int]:
    """Children of the daemon that ended and were not reaped."""
    return [child.pid for child in procfs.children(daemon.pid) if not child.alive]


def descriptors(pid: int) -> int:
    """How many descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def status_of(pid: int, key: str) -> int:
    """A number from /proc/PID/status: ``Threads``, ``VmRSS`` (in KiB)."""
    text = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in text.splitlines() if line.startswith(f"{key}:"))
    return int(line.split()[1])


def pids_in(path: Path) -> list[int]:
    """The pids that servers wrote to a file, one a line."""
    return [int(line) for line in path.read_text().split()] if path.exists() else []
