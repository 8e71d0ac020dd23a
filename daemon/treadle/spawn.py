"""How one server is started: its launch, the checks before it, the wrappers around it, its pipes (floor 2)."""

from __future__ import annotations

import codecs
import errno
import fcntl
import functools
import os
import resource
import stat
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from msgspec import Struct

from treadle.config.wording import spelled, unexpanded
from treadle.errors import TransportFailed
from treadle.limits import Limits
from treadle.record import MARK
from treadle.text import quote

PIPE_BYTES: Final = 256 * 1024
"""Wanted pipe size. Bigger ones gain nothing measurable, and the kernel budgets 64 MiB of pipes for each user."""
_SHELL_VARIABLES: Final = ("PWD", "OLDPWD", "SHLVL")
GRACE_CPU_S: Final = 2
"""Seconds between SIGXCPU and the kernel's SIGKILL."""


class Launch(Struct, frozen=True, kw_only=True):
    """What to run for one incarnation of a server.

    ``env`` is the whole environment (its PATH also finds the command), ``marker`` a value that no other
    incarnation ever had. ``repr`` shows neither environment nor arguments: they may hold secrets.
    """

    server: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None = None
    limits: Limits | None = None
    marker: str

    def __repr__(self) -> str:
        return f"Launch(server={self.server!r}, cwd={self.cwd!r}, limits={self.limits!r}, marker={self.marker!r})"


def check(launch: Launch) -> str:
    """The path of the program that ``launch`` would run. Raises TransportFailed with what stands in the way.

    Done before the spawn because behind a wrapper the error of ``exec`` would reach nobody but stderr.
    """
    cwd = launch.cwd
    if cwd is not None:
        _require_directory(cwd)
    if not launch.argv or not launch.argv[0]:
        raise TransportFailed("command is empty", "name an executable as its first element")
    path = launch.env.get("PATH", os.defpath)
    program = _locate(launch.argv[0], path, cwd)
    _check_interpreter(os.path.join(cwd or "", program), path, cwd)
    return program


def _require_directory(cwd: str) -> None:
    try:
        mode = os.stat(cwd).st_mode
    except FileNotFoundError:
        raise TransportFailed(
            f"working directory {quote(cwd)} does not exist", "make it, or correct cwd"
        ) from None
    except OSError as error:
        reason = f"working directory {quote(cwd)} cannot be used: {_worded(error)}"
        raise TransportFailed(reason, "correct cwd, or who may enter it") from None
    if not stat.S_ISDIR(mode):
        raise TransportFailed(f"working directory {quote(cwd)} is not a directory", "correct cwd")


def _locate(name: str, path: str, cwd: str | None) -> str:
    """``name`` made a path as ``exec`` would; a relative one is relative to ``cwd``."""
    if "/" in name:
        if (problem := _not_runnable(name, cwd)) is not None:
            raise TransportFailed(f"command {quote(name)} {problem}", _misread(name) or _FIXES.get(problem, ""))
        return name
    first: TransportFailed | None = None
    for folder in path.split(os.pathsep):
        candidate = os.path.join(folder or ".", name)
        problem = _not_runnable(candidate, cwd)
        if problem is None:
            return candidate
        if problem != _ABSENT and first is None:
            first = TransportFailed(f"command {quote(candidate)} {problem}", _FIXES.get(problem, ""))
    if first is not None:
        raise first
    # The advice comes first: the path is long, and whoever reads it in a column sees its beginning alone.
    fix = f"install it, give its full path, or set PATH in the server's env; PATH is {quote(path, 500)}"
    raise TransportFailed(f"command {quote(name)} was not found on PATH", _misread(name) or fix)


def _misread(name: str) -> str | None:
    """What to do about a command that was written for a shell."""
    if (part := unexpanded(name)) is not None:
        return f"{part} is only expanded by a shell; write the path in full"
    return f"it is one word; write {spelled(name)}" if len(name.split()) > 1 else None


_ABSENT: Final = "does not exist"
_DIRECTORY: Final = "is a directory"
_NOT_EXECUTABLE: Final = "is not executable"
_FIXES: Final = {
    _ABSENT: "install it, or correct its path",
    _DIRECTORY: "name the program in it",
    _NOT_EXECUTABLE: "chmod +x it, or name its interpreter first",
}


def _not_runnable(program: str, cwd: str | None) -> str | None:
    full = os.path.join(cwd or "", program)
    try:
        mode = os.stat(full).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return _ABSENT
    except (OSError, ValueError) as error:
        return f"cannot be used: {_worded(error)}"
    if stat.S_ISDIR(mode):
        return _DIRECTORY
    if not stat.S_ISREG(mode):
        return "is not a regular file"
    return None if os.access(full, os.X_OK) else _NOT_EXECUTABLE


def _check_interpreter(full: str, path: str, cwd: str | None) -> None:
    head = _head(full)
    _refuse_text(full, head)
    line = head.partition(b"\n")[0]
    if not line.startswith(b"#!"):
        return
    words = line[2:].strip(b" \t").split(None, 1) or [b""]
    interpreter = os.fsdecode(words[0])
    if line.endswith(b"\r"):
        reason = f"command {quote(full)}: its first line has a Windows line end (carriage return)"
        raise TransportFailed(reason, "convert the file")
    if (problem := _not_runnable(interpreter, cwd)) is not None:
        reason = f"command {quote(full)}: its interpreter {quote(interpreter)} {problem}"
        raise TransportFailed(reason, "install it, or correct the first line")
    _refuse_text(interpreter, _head(os.path.join(cwd or "", interpreter)))
    argument = os.fsdecode(words[1].strip()) if len(words) > 1 else ""
    if os.path.basename(interpreter) == "env" and argument and argument[0] != "-" and "=" not in argument:
        try:
            _locate(argument, path, cwd)
        except TransportFailed as failure:
            reason = f"command {quote(full)} runs through env: {failure.reason}"
            raise TransportFailed(reason, failure.fix) from None


def _head(full: str) -> bytes:
    try:
        with open(full, "rb") as file:
            return file.read(256)
    except OSError:
        return b"\0"  # may be executable without being readable, but not as a script


def _refuse_text(full: str, head: bytes) -> None:
    """The kernel runs no text without ``#!``; the ``execvp`` of a wrapper would then have a shell run it."""
    if head.startswith(b"#!") or b"\0" in head:
        return
    if head.startswith(codecs.BOM_UTF8 + b"#!"):
        reason = f"command {quote(full)}: its #! stands behind a byte-order mark (EF BB BF)"
        raise TransportFailed(reason, "save the file without one")
    what = "a text without a #! line" if head else "an empty file"
    reason = f"command {quote(full)} is {what}: no shell is asked to run it"
    raise TransportFailed(reason, "begin it with #! and its interpreter, or name the interpreter first")


def _worded(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


@functools.cache
def parent_death_prefix() -> tuple[str, ...]:
    """The command prefix that has the kernel kill the child when the daemon dies; empty where there is none.

    ``preexec_fn`` could do it without a program but turns vfork into a fork of the whole daemon.
    """
    try:
        program = _locate("setpriv", os.environ.get("PATH", os.defpath), None)
    except TransportFailed:
        return ()
    prefix = (program, "--pdeathsig", "KILL", "--")
    try:
        probe = subprocess.run([*prefix, "/bin/sh", "-c", ":"], capture_output=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return prefix if probe.returncode == 0 else ()


def command_line(program: str, launch: Launch, cgroup_procs: str | None, rlimits: Mapping[str, int]) -> list[str]:
    """The argument vector that enters the cgroup, sets the limits (letter of ``ulimit`` to value), and becomes
    the program. Each step replaces the process, so that the pid is the server's own."""
    steps: list[str] = []
    if cgroup_procs is not None:
        steps.append('echo 0 >"$0"')
    for letter, value in rlimits.items():
        if letter == "t":
            steps.append(f"ulimit -S -t {value} && ulimit -H -t {value + GRACE_CPU_S}")
        else:
            steps.append(f"ulimit -{letter} {value}")
    if steps:
        # Shells export what they find out themselves: it is no part of the server's environment.
        own = [name for name in _SHELL_VARIABLES if name not in launch.env]
        steps += [f"unset {' '.join(own)}"] if own else []
    shell = ["/bin/sh", "-c", " && ".join([*steps, 'exec "$@"']), cgroup_procs or "sh"] if steps else []
    # The signal is tied to the thread that spawned: anywhere but in the main thread it would come too early.
    death = parent_death_prefix() if threading.current_thread() is threading.main_thread() else ()
    return [*shell, *death, program, *launch.argv[1:]]


def claim_descriptors() -> None:
    """Raise the daemon's own limit of open descriptors to the most it may have: a server takes five of them.

    Its servers keep the limit that the daemon was started with: a program that cannot deal with numbers past 1023
    counts on it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        _inherited.setdefault("limit", (soft, hard))


_inherited: Final[dict[str, tuple[int, int]]] = {}


class Spawned(Struct, eq=False):
    """A running child and the daemon's ends of what leads to it."""

    popen: subprocess.Popen[bytes]
    pidfd: int
    stdin: int
    stdout: int
    stderr: int


def spawn(command: list[str], launch: Launch) -> Spawned:
    """Run ``command`` as the leader of a session and group of its own, with a pipe for each of 0, 1 and 2.

    The daemon's ends are close-on-exec and non-blocking. Raises TransportFailed; then nothing is left behind.
    """
    ends: list[int] = []
    try:
        for writer in (1, 0, 0):
            pair = os.pipe2(os.O_CLOEXEC)
            ends.extend(pair)
            os.set_blocking(pair[writer], False)
        stdin_r, stdin_w, stdout_r, stdout_w, stderr_r, stderr_w = ends
        for fd in (stdin_w, stdout_w):
            with suppress(OSError):  # over the user's budget: the default size does as well
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        popen = subprocess.Popen(
            command,
            stdin=stdin_r,
            stdout=stdout_w,
            stderr=stderr_w,
            cwd=launch.cwd,
            env={**launch.env, MARK: launch.marker},
            start_new_session=True,
        )
        if (limit := _inherited.get("limit")) is not None and not (launch.limits and launch.limits.open_files):
            # Long before the server itself runs: the program that ties it to the daemon's life is not through yet.
            with suppress(OSError):
                resource.prlimit(popen.pid, resource.RLIMIT_NOFILE, limit)
        try:
            pidfd = os.pidfd_open(popen.pid)
        except OSError:
            popen.kill()
            popen.wait()
            raise
    except (OSError, ValueError) as error:
        for fd in ends:
            os.close(fd)
        raise _spawn_failure(launch, error) from None
    for fd in (stdin_r, stdout_w, stderr_w):
        os.close(fd)
    return Spawned(popen, pidfd, stdin_w, stdout_r, stderr_r)


def _spawn_failure(launch: Launch, error: OSError | ValueError) -> TransportFailed:
    head = f"cannot start {quote(launch.argv[0])}"
    match getattr(error, "errno", None):
        case errno.E2BIG:
            reason = "its arguments and environment are too long for the kernel"
            return TransportFailed(f"{head}: {reason}", "hand over less, or hand it over in a file")
        case errno.ENOEXEC:
            reason = "not a program for this machine, and no #! line says what should run it"
            return TransportFailed(f"{head}: {reason}", "name its interpreter first")
        case errno.EMFILE | errno.ENFILE:
            return TransportFailed(f"{head}: no file descriptors are left", "raise LimitNOFILE of the daemon")
        case errno.EAGAIN | errno.ENOMEM:
            return TransportFailed(f"{head}: {_worded(error)}: the limit of processes or memory is reached")
        case _:
            return TransportFailed(f"{head}: {_worded(error)}")
