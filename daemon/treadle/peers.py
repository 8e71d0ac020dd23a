"""Who is at the other end of a Unix socket, and what they may do (floor 2; socket page, "who may connect")."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import socket
import struct
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

SO_PEERGROUPS: Final = 59  # linux/socket.h; the socket module has no name for it
_MOST_GROUPS: Final = 65536  # NGROUPS_MAX of linux/limits.h


class Peer(Struct, frozen=True):
    """The credentials of a connected process, as the kernel vouches for them."""

    pid: int
    uid: int
    gids: frozenset[int]

    def __str__(self) -> str:
        return f"uid {self.uid}, pid {self.pid}"


def peer_of(sock: socket.socket) -> Peer:
    """The credentials of the process that connected ``sock``. Raises ``OSError`` when the kernel has none."""
    pid, uid, gid = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return Peer(pid, uid, frozenset({gid, *_groups(sock, uid, gid)}))


def _groups(sock: socket.socket, uid: int, gid: int) -> Iterable[int]:
    for size in (1024, _MOST_GROUPS * 4):
        try:
            raw = sock.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, size)
        except OSError as error:
            if error.errno != errno.ERANGE:
                break
        else:
            return struct.unpack(f"{len(raw) // 4}I", raw)
    # Kernels before 4.13: what the user database says instead.
    with contextlib.suppress(KeyError):
        return os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)
    return ()


class UnknownAccount(ValueError):
    """A user or group of the configuration does not exist; the text names it."""


class Access(Struct, frozen=True):
    """Who may connect, and who may administrate: numeric ids."""

    users: frozenset[int]
    groups: frozenset[int]
    admins: frozenset[int]

    @classmethod
    def of(
        cls, allow_users: Iterable[str | int], allow_groups: Iterable[str | int], admin_users: Iterable[str | int]
    ) -> Access:
        """Resolve names to ids. The daemon's own uid and root are always in. Raises :class:`UnknownAccount`."""
        always = {0, os.geteuid()}
        admins = {_uid(user) for user in admin_users} | always
        users = {_uid(user) for user in allow_users} | admins
        return cls(frozenset(users), frozenset(_gid(group) for group in allow_groups), frozenset(admins))

    @property
    def others(self) -> bool:
        """Whether anybody besides the daemon's own uid and root may connect."""
        return bool(self.groups or self.users - {0, os.geteuid()})

    def may_connect(self, peer: Peer) -> bool:
        """Whether ``peer`` may use the socket at all."""
        return peer.uid in self.users or not self.groups.isdisjoint(peer.gids)

    def may_administrate(self, peer: Peer) -> bool:
        """Whether ``peer`` may stop, start, restart, reload and shut down."""
        return peer.uid in self.admins


def _uid(user: str | int) -> int:
    if isinstance(user, int):
        return user
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise UnknownAccount(f"no user {user!r} on this machine") from None


def _gid(group: str | int) -> int:
    if isinstance(group, int):
        return group
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise UnknownAccount(f"no group {group!r} on this machine") from None
