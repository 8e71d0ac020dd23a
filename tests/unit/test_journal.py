"""Entries for the journal: their bytes, and how they get there."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.journal import Receiver, fill, parsed
from treadle.journal import Journal, encode, is_journal

names = st.from_regex(r"[A-Z][A-Z0-9_]{0,20}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=())) | st.sampled_from(
    ["", "\n", "\0", "\ud800", "=", "a\nB=c\n"]
)


# --- the bytes ---------------------------------------------------------------------------------------


def test_a_value_of_one_line_follows_its_name() -> None:
    assert encode([("MESSAGE", "demo: ready"), ("PRIORITY", "6")]) == b"MESSAGE=demo: ready\nPRIORITY=6\n"


def test_a_value_of_more_lines_follows_its_length() -> None:
    assert encode([("MESSAGE", "öne\ntwo")]) == b"MESSAGE\n\x08\0\0\0\0\0\0\0\xc3\xb6ne\ntwo\n"


@given(st.lists(st.tuples(names, texts), max_size=6))
def test_every_value_is_read_back_as_it_was(fields: list[tuple[str, str]]) -> None:
    expected = [(name, value.encode("utf-8", "backslashreplace")) for name, value in fields]
    assert parsed(encode(fields)) == expected


def test_no_value_can_add_a_field() -> None:
    assert parsed(encode([("MESSAGE", "a\nTREADLE_SERVER=other\n\n"), ("PRIORITY", "6")])) == [
        ("MESSAGE", b"a\nTREADLE_SERVER=other\n\n"),
        ("PRIORITY", b"6"),
    ]


# --- the way there -----------------------------------------------------------------------------------


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    receiver = Receiver(tmp_path / "journal")
    yield receiver
    receiver.close()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(str(tmp_path / "journal"), patience_s=0.01)
    yield journal
    journal.close()


def test_an_entry_is_one_datagram(receiver: Receiver, journal: Journal) -> None:
    journal.send(b"MESSAGE=one\n")
    journal.send(b"MESSAGE=two\n")
    assert [receiver.read(), receiver.read()] == [(b"MESSAGE=one\n", []), (b"MESSAGE=two\n", [])]


@pytest.mark.parametrize("size", [1 << 18, 5_000_000])
def test_an_entry_too_large_for_a_datagram_comes_as_a_sealed_file(
    receiver: Receiver, journal: Journal, size: int
) -> None:
    entry = encode([("MESSAGE", "x" * size + "\nend")])
    journal.send(entry)
    data, (descriptor,) = receiver.read()
    with open(descriptor, "rb") as file:
        seals = fcntl.fcntl(file, fcntl.F_GET_SEALS)
        file.seek(0)
        assert (data, file.read()) == (b"", entry)
    assert seals == fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def test_no_journal_is_an_error(journal: Journal) -> None:
    with pytest.raises(FileNotFoundError):
        journal.send(b"MESSAGE=lost\n")


def test_a_large_entry_for_no_journal_is_an_error_and_leaves_no_descriptor(journal: Journal) -> None:
    with pytest.raises(FileNotFoundError):
        journal.send(b"MESSAGE=lost\n")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        journal.send(b"MESSAGE=" + b"x" * 5_000_000 + b"\n")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_journal_that_has_ended_is_an_error_and_its_successor_is_found(
    receiver: Receiver, journal: Journal
) -> None:
    journal.send(b"MESSAGE=one\n")
    receiver.close()
    with pytest.raises(ConnectionRefusedError):
        journal.send(b"MESSAGE=lost\n")
    os.unlink(receiver.address)
    successor = Receiver(Path(receiver.address))
    journal.send(b"MESSAGE=two\n")
    assert successor.read() == (b"MESSAGE=two\n", [])
    successor.close()


def test_a_journal_that_does_not_read_is_an_error_after_the_time_that_it_is_given(
    receiver: Receiver, journal: Journal
) -> None:
    sent = fill(journal)
    assert [receiver.read()[0] for _ in range(sent)] == [b"MESSAGE=%d\n" % number for number in range(sent)]


def unlimited(journal: Journal) -> None:
    """Have ``journal`` wait for ever from now on, where it waits."""
    assert journal._socket is not None
    journal._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bytes(16))


def test_after_a_wait_in_vain_nothing_waits_any_more(receiver: Receiver, journal: Journal) -> None:
    fill(journal)
    unlimited(journal)
    for entry in (b"MESSAGE=small\n", b"MESSAGE=" + b"x" * 5_000_000 + b"\n"):
        with pytest.raises(BlockingIOError):
            journal.send(entry)


def test_once_it_reads_again_it_is_waited_for_again(receiver: Receiver, journal: Journal) -> None:
    sent = fill(journal)
    unlimited(journal)
    for _ in range(sent):
        receiver.read()
    for number in range(sent):
        journal.send(b"MESSAGE=%d\n" % number)
    waiter = threading.Thread(target=journal.send, args=(b"MESSAGE=waited\n",))
    waiter.start()
    waiter.join(0.1)
    assert waiter.is_alive()
    read = [receiver.read()[0] for _ in range(sent + 1)]
    waiter.join()
    assert read[-1] == b"MESSAGE=waited\n"


def test_what_takes_no_datagram_for_want_of_memory_is_tried_as_a_file(
    receiver: Receiver, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Short(socket.socket):
        def sendto(self, *_: object) -> int:
            raise OSError(errno.ENOBUFS, "No buffer space available")

    monkeypatch.setattr(socket, "socket", Short)
    journal.send(b"MESSAGE=one\n")
    data, (descriptor,) = receiver.read()
    with open(descriptor, "rb") as file:
        file.seek(0)
        assert (data, file.read()) == (b"", b"MESSAGE=one\n")


# --- whether it is the journal -----------------------------------------------------------------------


def test_the_journal_is_known_by_device_and_inode(tmp_path: Path) -> None:
    with open(tmp_path / "stream", "w") as stream:
        found = os.fstat(stream.fileno())
        assert is_journal({"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}, stream.fileno())
        assert not is_journal({"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino + 1}"}, stream.fileno())
        for odd in ({}, {"JOURNAL_STREAM": ""}, {"JOURNAL_STREAM": "a:b"}, {"JOURNAL_STREAM": "1"}):
            assert not is_journal(odd, stream.fileno())
