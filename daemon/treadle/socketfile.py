"""The Unix socket as a file: who may own it, where it may lie, and who holds it now (floor 2).

A lock beside the socket, held for the daemon's life, tells a stale socket from a live daemon's; nothing is
guessed from pids or from whether somebody answers (socket page, "who may connect").
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from treadle.errors import Fault

PATH_LIMIT: Final = 107
"""Bytes of a Unix socket path that the kernel takes, its terminator aside."""


@dataclass(eq=False)
class SocketRefused(Fault):
    """The socket cannot be had at ``path``; ``reason`` says why and what to do."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"cannot listen on {self.path}: {self.reason}"


@dataclass(slots=True)
class OwnedSocket:
    """A listening socket of ours. ``lock`` is None for one that the service manager passed."""

    path: str
    sock: socket.socket
    lock: int | None
    inode: tuple[int, int] | None

    def release(self) -> None:
        """Close the socket and remove its file if it is still ours; the lock goes last, its file stays."""
        self.sock.close()
        if self.lock is None:
            return
        with contextlib.suppress(OSError):
            found = os.lstat(self.path)
            if (found.st_dev, found.st_ino) == self.inode:
                os.unlink(self.path)
        os.close(self.lock)


def claim(path: str, *, mode: int = 0o600, directory_mode: int = 0o700) -> OwnedSocket:
    """Bind and listen at ``path``, holding its lock.

    The socket never has more permissions than ``mode``, not even for a moment. A missing directory is made with
    ``directory_mode``. Raises :class:`SocketRefused` for a path that is too long, a directory that others may
    write to, a file that is no socket, a socket of another owner, and a path that another daemon holds.
    """
    size = len(os.fsencode(path))
    if size > PATH_LIMIT:
        raise SocketRefused(
            path, f"the path has {size} bytes, a Unix socket takes {PATH_LIMIT}; choose a shorter one"
        )
    if not os.path.isabs(path):
        path = os.path.abspath(path)
    _check_directory(path, directory_mode)
    lock = _lock(path)
    try:
        _clear(path)
        sock = _bind(path, mode)
    except BaseException:
        os.close(lock)
        raise
    found = os.lstat(path)
    return OwnedSocket(path, sock, lock, (found.st_dev, found.st_ino))


def _check_directory(path: str, mode: int) -> None:
    directory = os.path.dirname(path)
    try:
        parent = os.path.dirname(directory)
        Path(parent).mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            # The umask may only take permissions away; chmod gives exactly what was meant.
            os.mkdir(directory, mode & 0o700)
            os.chmod(directory, mode)
        found = os.stat(directory)
    except OSError as error:
        raise SocketRefused(path, f"its directory cannot be used: {error.strerror}: {error.filename}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise SocketRefused(path, f"{directory} is not a directory")
    if found.st_uid not in (0, os.geteuid()):
        raise SocketRefused(path, f"the directory {directory} belongs to uid {found.st_uid}, who could replace it")
    if found.st_mode & 0o022:
        raise SocketRefused(
            path,
            f"others may write to the directory {directory} (mode {stat.S_IMODE(found.st_mode):04o}) and could "
            f"replace the socket; use a directory of its own, mode 0700",
        )


def _lock(path: str) -> int:
    lock_path = f"{path}.lock"
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        lock = os.open(lock_path, flags, 0o600)
    except OSError as error:
        raise SocketRefused(path, f"its lock {lock_path} cannot be opened: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(lock, 64, 0).decode("ascii", "replace").strip()
        os.close(lock)
        who = f"the daemon with pid {holder}" if holder else "another daemon"
        raise SocketRefused(path, f"{who} holds it; stop that one first (treadle shutdown)") from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _clear(path: str) -> None:
    """Remove a stale socket. We hold the lock, so no daemon of ours is behind it."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        kind = {stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a directory"}.get(
            stat.S_IFMT(found.st_mode), "a file"
        )
        raise SocketRefused(path, f"{kind} is there, not a socket; remove it or choose another path")
    if found.st_uid not in (0, os.geteuid()):
        raise SocketRefused(path, f"the socket there belongs to uid {found.st_uid}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        answer = probe.connect_ex(path)
    if answer not in (errno.ECONNREFUSED, errno.ENOENT):
        # It accepts, or its backlog is full: somebody listens without our lock.
        raise SocketRefused(path, "another program listens there; stop it or choose another path")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _bind(path: str, mode: int) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        # Set before the bind, the mode is there from the first moment; the umask may only take more away.
        os.fchmod(sock.fileno(), mode)
        sock.bind(path)
        os.chmod(path, mode)
        sock.listen(1024)
    except OSError as error:
        sock.close()
        raise SocketRefused(path, error.strerror or str(error)) from None
    return sock


def passed_socket(environ: MutableMapping[str, str], *, name: str = "treadle") -> OwnedSocket | None:
    """The listening socket that a service manager passed (``LISTEN_FDS``), or None.

    With ``LISTEN_FDNAMES``, the one called ``name`` or ``treadle.socket``; else the first. The variables are
    removed from ``environ``, so that no child believes they are meant for it. Never unlinked, never locked by us.
    Raises :class:`SocketRefused` when what was passed is no listening Unix stream socket.
    """
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    names = environ.pop("LISTEN_FDNAMES", "").split(":")
    if pid != str(os.getpid()) or not count.isdigit() or int(count) < 1:
        return None
    wanted = [
        index for index in range(int(count)) if index < len(names) and names[index] in (name, f"{name}.socket")
    ]
    fd = 3 + (wanted[0] if wanted else 0)
    for number in range(3, 3 + int(count)):
        os.set_inheritable(number, False)
    try:
        sock = socket.socket(fileno=fd)
    except OSError as error:
        raise SocketRefused(
            f"fd {fd}", f"what the service manager passed is no socket: {error.strerror}"
        ) from None
    listening = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM or not listening:
        raise SocketRefused(f"fd {fd}", "what the service manager passed is no listening Unix stream socket")
    sock.setblocking(False)
    return OwnedSocket(sock.getsockname() or f"fd {fd}", sock, None, None)
