"""A listening socket that the service manager passed (``LISTEN_FDS``; floor 2)."""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping
from typing import Final

from treadle.socketfile import OwnedSocket, SocketRefused

FIRST: Final = 3
"""The descriptor of the first socket that is passed."""


def passed_socket(environ: MutableMapping[str, str], *, name: str = "treadle") -> OwnedSocket | None:
    """The listening socket that was passed to this process, or None.

    With ``LISTEN_FDNAMES``, the one called ``name`` or ``treadle.socket``; else the first. The variables are
    removed from ``environ``, so that no child believes they are meant for it. Never unlinked, never locked by us.
    Raises :class:`SocketRefused` when what was passed is no listening Unix stream socket.
    """
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    names = environ.pop("LISTEN_FDNAMES", "").split(":")
    if pid != str(os.getpid()) or not (count.isascii() and count.isdigit()) or int(count) < 1:
        return None
    descriptors = range(FIRST, FIRST + int(count))
    wanted = [fd for fd, label in zip(descriptors, names, strict=False) if label in (name, f"{name}.socket")]
    chosen = wanted[0] if wanted else FIRST
    try:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        sock = socket.socket(fileno=chosen)
    except OSError as error:
        what = f"what the service manager passed is no socket: {error.strerror}"
        raise SocketRefused(f"descriptor {chosen}", what) from None
    listening = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM or not listening:
        sock.detach()
        what = "what the service manager passed is no listening Unix stream socket"
        raise SocketRefused(f"descriptor {chosen}", what)
    sock.setblocking(False)
    path = os.fsdecode(sock.getsockname())
    return OwnedSocket(path or f"descriptor {chosen}", sock, None, None)
