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
import time
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from treadle.errors import Fault

PATH_LIMIT: Final = 107
"""Bytes of a Unix socket path that the kernel takes, its terminator aside."""

BACKLOG: Final = 1024
"""Clients that may wait for their accept."""

_PRIVATE: Final = 0o600
_FOR_ALL: Final = 0o666
_HOLDER_S: Final = 0.5  # how long a daemon that has just taken the lock may need to say who it is


class SocketRefused(Fault):
    """The socket cannot be had at ``path``; ``reason`` says why and what to do."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"cannot listen on {self.path}: {self.reason}"


class OwnedSocket(Struct, eq=False):
    """A listening socket of ours. ``lock`` is None for one that the service manager passed."""

    path: str
    sock: socket.socket
    lock: int | None
    inode: tuple[int, int] | None

    def admit(self, *, others: bool) -> None:
        """Let other accounts reach the socket, or not; one that the service manager passed is its business.

        Raises ``OSError``.
        """
        if self._is_ours:
            os.chmod(self.path, _FOR_ALL if others else _PRIVATE)

    def release(self) -> None:
        """Close the socket and remove its file if it is still ours; the lock goes last, its file stays."""
        self.sock.close()
        if self.lock is None:
            return
        with contextlib.suppress(OSError):
            if self._is_ours:
                os.unlink(self.path)
        with contextlib.suppress(OSError):
            os.ftruncate(self.lock, 0)
        os.close(self.lock)

    @property
    def _is_ours(self) -> bool:
        if self.lock is None:
            return False
        found = os.lstat(self.path)
        return (found.st_dev, found.st_ino) == self.inode


def claim(path: str, *, others: bool = False) -> OwnedSocket:
    """Bind and listen at ``path``, holding its lock.

    The socket has mode 0600 (with ``others`` 0666: then the peers' credentials decide alone), whatever the umask,
    and is never more open, not even for a moment. A missing directory is made, with mode 0700 (0711). Raises
    :class:`SocketRefused` for a path that is too long, a directory where others could replace the socket, a file
    that is no socket, a socket of another owner, and a path that another daemon holds.
    """
    path = os.path.abspath(path)
    _require_short(path)
    try:
        _make(os.path.dirname(path), 0o711 if others else 0o700)
        _require_safe(path, path)
    except OSError as error:
        raise _no_directory(path, error) from None
    lock = _lock(path)
    try:
        _clear(path)
        sock = _bind(path, _FOR_ALL if others else _PRIVATE)
    except BaseException:
        os.close(lock)
        raise
    found = os.lstat(path)
    return OwnedSocket(path, sock, lock, (found.st_dev, found.st_ino))


def require_claimable(path: str) -> None:
    """Raise the :class:`SocketRefused` that :func:`claim` would; nothing is made or taken.

    Who holds the path now is not asked.
    """
    path = os.path.abspath(path)
    _require_short(path)
    try:
        there = path
        while not os.path.lexists(os.path.dirname(there)):
            there = os.path.dirname(there)  # it would be made
        _require_safe(path, there)
        _require_own_socket(path)
    except OSError as error:
        raise _no_directory(path, error) from None


def _require_short(path: str) -> None:
    size = len(os.fsencode(path))
    if size > PATH_LIMIT:
        raise SocketRefused(
            path, f"the path has {size} bytes, a Unix socket takes {PATH_LIMIT}; choose a shorter one"
        )


def _require_safe(path: str, there: str) -> None:
    """That nobody else could replace the socket ``path``, as far as what leads to it is ``there``."""
    directory = os.path.dirname(path)
    for above in _above(there):
        problem = _unsafe(above, is_own=above in (directory, os.path.realpath(directory)))
        if problem is not None:
            raise SocketRefused(path, problem)


def _no_directory(path: str, error: OSError) -> SocketRefused:
    return SocketRefused(path, f"its directory cannot be used: {error.strerror}: {error.filename}")


def closed_at(path: str) -> str | None:
    """The first directory above ``path`` through which other accounts cannot pass; None when they can reach it."""
    for directory in sorted(_above(path), key=len):
        if not os.stat(directory).st_mode & stat.S_IXOTH:
            return directory
    return None


def _make(directory: str, mode: int) -> None:
    """Make a missing directory, and those above it, with exactly ``mode``, whatever the umask."""
    if os.path.lexists(directory):
        return
    _make(os.path.dirname(directory), mode)
    with contextlib.suppress(FileExistsError):
        # Private at first: the umask may only take permissions away, chmod gives what was meant.
        os.mkdir(directory, 0o700)
        os.chmod(directory, mode)


def _above(path: str) -> set[str]:
    """The directories whose owners decide what ``path`` is, by its names and by where symbolic links lead."""
    return {*_parents(path), *_parents(os.path.join(os.path.realpath(os.path.dirname(path)), "x"))}


def _parents(path: str) -> Iterator[str]:
    while (parent := os.path.dirname(path)) != path:
        yield parent
        path = parent


def _unsafe(directory: str, *, is_own: bool) -> str | None:
    """Why somebody else could replace what lies in ``directory``; ``is_own`` of the socket's own one."""
    found = os.stat(directory)
    if not stat.S_ISDIR(found.st_mode):
        return f"{directory} is not a directory"
    if directory == "/":
        return None
    if found.st_uid not in (0, os.geteuid()):
        return f"the directory {directory} belongs to uid {found.st_uid}, who could replace it"
    # Above, the group is that of a user alone on many systems; and in a sticky directory only owners rename.
    writable = found.st_mode & (0o022 if is_own else 0o002)
    if writable and (is_own or not found.st_mode & stat.S_ISVTX):
        return (
            f"others may write to the directory {directory} (mode {stat.S_IMODE(found.st_mode):04o}) and could "
            f"replace the socket; use a directory of its own, mode 0700"
        )
    return None


def _lock(path: str) -> int:
    lock_path = f"{path}.lock"
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        lock = os.open(lock_path, flags, 0o600)
    except OSError as error:
        raise SocketRefused(path, f"its lock {lock_path} cannot be opened: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.fchmod(lock, 0o600)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        holder = _holder(lock)
        os.close(lock)
        raise SocketRefused(path, f"{holder} holds it; stop that one first (treadle shutdown)") from None
    except OSError as error:
        os.close(lock)
        raise SocketRefused(path, f"its lock {lock_path} cannot be taken: {error.strerror}") from None
    return lock


def _holder(lock: int) -> str:
    """Who holds the lock. It says so right after it took it, so that there may be a moment to wait."""
    deadline = time.monotonic() + _HOLDER_S
    while time.monotonic() < deadline:
        pid = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        if pid.isdigit() and os.path.exists(f"/proc/{pid}"):
            return f"the daemon with pid {pid}"
        time.sleep(0.01)
    return "another daemon"


def _require_own_socket(path: str) -> bool:
    """Whether anything is at ``path``. Raises :class:`SocketRefused` for what is not ours to take."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(found.st_mode):
        kind = {stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a directory"}.get(
            stat.S_IFMT(found.st_mode), "a file"
        )
        raise SocketRefused(path, f"{kind} is there, not a socket; remove it or choose another path")
    if found.st_uid not in (0, os.geteuid()):
        raise SocketRefused(path, f"the socket there belongs to uid {found.st_uid}")
    return True


def _clear(path: str) -> None:
    """Remove a stale socket. We hold the lock, so no daemon of ours is behind it."""
    if not _require_own_socket(path):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        answer = probe.connect_ex(path)
    if answer in (0, errno.EAGAIN):
        # It accepts, or its backlog is full: somebody listens without our lock.
        raise SocketRefused(path, "another program listens there; stop it or choose another path")
    if answer not in (errno.ECONNREFUSED, errno.ENOENT):
        reason = f"it cannot be told whether the socket there is in use ({os.strerror(answer)}); remove it"
        raise SocketRefused(path, reason)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _bind(path: str, mode: int) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        # Set before the bind, the mode is there from the first moment; the umask may only take more away.
        os.fchmod(sock.fileno(), mode)
        sock.bind(path)
        os.chmod(path, mode)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise SocketRefused(path, error.strerror or str(error)) from None
    return sock
