"""The journal's end of its native protocol."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

from treadle.journal import Journal


def parsed(entry: bytes) -> list[tuple[str, bytes]]:
    """The fields of ``entry``, read as the journal does."""
    fields = []
    while entry:
        line, _, rest = entry.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            size = int.from_bytes(rest[:8], "little")
            value, end, rest = rest[8 : 8 + size], rest[8 + size : 9 + size], rest[9 + size :]
            assert end == b"\n"
        fields.append((name.decode("ascii"), value))
        entry = rest
    return fields


class Receiver:
    """A journal's socket, bound at ``path``."""

    def __init__(self, path: Path) -> None:
        self.address = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address)
        self._socket.settimeout(10)

    def read(self) -> tuple[bytes, list[int]]:
        """The next datagram and the descriptors that came with it."""
        data, descriptors, _flags, _address = socket.recv_fds(self._socket, 1 << 20, 4)
        return data, descriptors

    def close(self) -> None:
        self._socket.close()


def fill(journal: Journal) -> int:
    """Send numbered entries until nothing more is taken; returns how many were."""
    sent = 0
    with suppress(BlockingIOError):
        while True:
            journal.send(b"MESSAGE=%d\n" % sent)
            sent += 1
    return sent
