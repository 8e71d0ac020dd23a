"""Where the daemon's socket is, and how to connect to it."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Mapping

LONGEST = 107
"""Bytes of a socket's path that the kernel takes: no daemon listens on a longer one."""


def default_socket_path(environ: Mapping[str, str], uid: int) -> str:
    """The path of the daemon's socket for a user (configuration page, ``[broker] socket``).

    ``$TREADLE_SOCKET``; for root ``/run/treadle/treadle.sock``; else ``$XDG_RUNTIME_DIR/treadle/treadle.sock``.
    A variable that is empty, or an ``$XDG_RUNTIME_DIR`` that is no absolute path, counts as unset; the runtime
    directory is then ``/run/user/<uid>``, where systemd puts it.

        >>> default_socket_path({"XDG_RUNTIME_DIR": "/run/user/1000"}, 1000)
        '/run/user/1000/treadle/treadle.sock'
        >>> default_socket_path({"TREADLE_SOCKET": "/tmp/t.sock"}, 0)
        '/tmp/t.sock'
    """
    named = environ.get("TREADLE_SOCKET")
    if named:
        return named
    if uid == 0:
        return "/run/treadle/treadle.sock"
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if not runtime.startswith("/"):
        runtime = f"/run/user/{uid}"
    return f"{runtime.rstrip('/')}/treadle/treadle.sock"


def connect(sock: socket, path: str) -> None:
    """Connect a Unix stream socket to ``path``, however long the path is. Raises OSError."""
    if len(os.fsencode(path)) <= LONGEST:
        sock.connect(path)
        return
    folder, name = os.path.split(path)
    descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        sock.connect(f"/proc/self/fd/{descriptor}/{name}")
    finally:
        os.close(descriptor)
