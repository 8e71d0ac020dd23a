"""Entries for the journal by its native protocol, in which each field has a name that can be matched on (floor 2).

Specification: https://systemd.io/JOURNAL_NATIVE_PROTOCOL/. One datagram is one entry; what is too large for a
datagram is handed over as a sealed file in memory.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Iterable, Mapping
from typing import Final

ADDRESS: Final = "/run/systemd/journal/socket"

PATIENCE_S: Final = 1.0
"""How long one entry waits for a journal that does not read, as while it starts anew."""

_TOO_LARGE: Final = (errno.EMSGSIZE, errno.ENOBUFS)
# All four, or the journal does not trust the file of an unprivileged sender.
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def is_journal(environ: Mapping[str, str], descriptor: int) -> bool:
    """Whether ``descriptor`` is the stream that ``$JOURNAL_STREAM`` (device:inode, systemd.exec(5)) speaks of."""
    try:
        device, inode = (int(part) for part in environ.get("JOURNAL_STREAM", "").split(":"))
        found = os.fstat(descriptor)
    except (ValueError, OSError):
        return False
    return (found.st_dev, found.st_ino) == (device, inode)


def encode(fields: Iterable[tuple[str, str]]) -> bytes:
    """``fields`` as the bytes of one entry.

    A name is upper-case ASCII letters, digits and underscores, and begins with a letter: the journal drops any
    other field. A value may be any text; a lone surrogate in it is written as its escape, as on standard error.
    """
    parts: list[bytes] = []
    for name, value in fields:
        data = value.encode("utf-8", "backslashreplace")
        if b"\n" in data:
            parts += (name.encode(), b"\n", len(data).to_bytes(8, "little"), data, b"\n")
        else:
            parts += (name.encode(), b"=", data, b"\n")
    return b"".join(parts)


class Journal:
    """The way to the journal at ``address``. Nothing is opened before the first entry.

    The address is looked up for each entry, so that a journal whose socket was made anew is found again.
    ``patience_s`` is above 0.
    """

    def __init__(self, address: str = ADDRESS, patience_s: float = PATIENCE_S) -> None:
        self.address = address
        self._patience_s = patience_s
        self._socket: socket.socket | None = None
        self._stalled = False

    def send(self, entry: bytes) -> None:
        """Hand over one entry, as :func:`encode` makes it.

        Waits ``patience_s`` seconds at the most for a journal that does not read; once that was in vain, not at
        all until it reads again. Raises ``OSError`` when the entry was not taken.
        """
        flags = socket.MSG_DONTWAIT if self._stalled else 0
        try:
            way = self._opened()
            try:
                way.sendto(entry, flags, self.address)
            except OSError as error:
                if error.errno not in _TOO_LARGE:
                    raise
                self._send_file(way, entry, flags)
        except BlockingIOError:
            self._stalled = True
            raise
        self._stalled = False

    def close(self) -> None:
        """Give the descriptor back."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _opened(self) -> socket.socket:
        if self._socket is None:
            way = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            # The kernel's own time-out. One of Python's would poll first, and a socket without a peer is writable
            # however full the queue of its receiver is: it would turn in circles.
            way.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", *_timeval(self._patience_s)))
            self._socket = way
        return self._socket

    def _send_file(self, way: socket.socket, entry: bytes, flags: int) -> None:
        with open(os.memfd_create("journal-entry", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "wb") as file:
            file.write(entry)
            file.flush()
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()]))
            way.sendmsg([], [rights], flags, self.address)


def _timeval(seconds: float) -> tuple[int, int]:
    return int(seconds), int(seconds % 1 * 1_000_000)
