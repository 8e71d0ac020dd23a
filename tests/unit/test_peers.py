"""Who is at the other end, and what they may do (socket page, "Who may connect")."""

from __future__ import annotations

import os
import pwd
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.peers import Access, Peer, UnknownAccount, peer_of

SELF = os.geteuid()
IDS = st.integers(0, 2**32 - 2)


def test_the_credentials_of_the_other_end_are_read() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        peer = peer_of(ours)
    assert (peer.pid, peer.uid) == (os.getpid(), SELF)
    assert {os.getegid(), *os.getgroups()} == peer.gids
    assert str(peer) == f"uid {SELF}, pid {os.getpid()}"


@given(st.frozensets(IDS, max_size=4), st.frozensets(IDS, max_size=4), st.frozensets(IDS, max_size=4), IDS, IDS)
def test_who_is_listed_may_connect_and_only_administrators_may_manage(
    users: frozenset[int], groups: frozenset[int], admins: frozenset[int], uid: int, gid: int
) -> None:
    access = Access.of(users, groups, admins)
    peer = Peer(1, uid, frozenset({gid, 7}))
    own = uid in (0, SELF)
    assert access.may_administrate(peer) == (own or uid in admins)
    assert access.may_connect(peer) == (own or uid in users | admins or bool({gid, 7} & groups))


def test_the_daemons_own_user_and_root_always_may() -> None:
    access = Access.of((), (), ())
    for uid in (0, SELF):
        assert access.may_connect(Peer(1, uid, frozenset()))
        assert access.may_administrate(Peer(1, uid, frozenset()))
    assert not access.others


def test_a_group_lets_connect_and_not_manage() -> None:
    access = Access.of((), (4321,), ())
    member = Peer(1, 54321, frozenset({1, 4321}))
    assert (access.may_connect(member), access.may_administrate(member)) == (True, False)
    assert access.others


def test_names_are_resolved() -> None:
    name = pwd.getpwuid(SELF).pw_name
    assert Access.of((name,), (), ("root",)).users >= {SELF, 0}


@pytest.mark.parametrize(
    "lists", [(("no-such-user",), (), ()), ((), ("no-such-group",), ()), ((), (), ("nobody!",))]
)
def test_an_account_that_does_not_exist_is_named(lists: tuple[tuple[str, ...], ...]) -> None:
    (name,) = (name for names in lists for name in names)
    with pytest.raises(UnknownAccount, match=f"'{name}' on this machine"):
        Access.of(*lists)
