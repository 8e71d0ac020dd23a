"""A socket that the service manager passed: which one is taken, and what is refused."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle import passed
from treadle.passed import passed_socket
from treadle.socketfile import SocketRefused


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Two descriptors that nobody uses; they stand for 3 and 4."""
    start = 700
    monkeypatch.setattr(passed, "FIRST", start)
    yield start
    for fd in (start, start + 1):
        with contextlib.suppress(OSError):
            os.close(fd)


def put(sock: socket.socket, fd: int) -> None:
    os.dup2(sock.fileno(), fd)
    sock.close()


def listening(path: Path, kind: int = socket.SOCK_STREAM) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, kind)
    sock.bind(str(path))
    if kind == socket.SOCK_STREAM:
        sock.listen()
    return sock


def environ(count: str = "1", pid: int | None = None, names: str | None = None) -> dict[str, str]:
    made = {"LISTEN_PID": str(pid or os.getpid()), "LISTEN_FDS": count, "KEPT": "yes"}
    return made if names is None else {**made, "LISTEN_FDNAMES": names}


@pytest.mark.parametrize(
    "variables",
    [{}, environ(pid=1), environ(count="0"), environ(count="x"), environ(count="²"), {"LISTEN_FDS": "1"}],
)
def test_what_is_not_meant_for_this_process_is_no_socket(variables: dict[str, str]) -> None:
    assert passed_socket(variables) is None
    assert set(variables) <= {"KEPT"}


def test_the_passed_socket_is_taken_and_its_file_stays(first: int, tmp_path: Path) -> None:
    put(listening(tmp_path / "a"), first)
    variables = environ()
    owned = passed_socket(variables)
    assert owned is not None
    assert (owned.path, owned.lock, variables) == (str(tmp_path / "a"), None, {"KEPT": "yes"})
    assert not os.get_inheritable(owned.sock.fileno())
    owned.admit(others=True)
    owned.release()
    assert (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("names", "expected"), [("x:treadle", "b"), ("x:treadle.socket", "b"), ("x:y", "a"), (None, "a")]
)
def test_of_several_the_one_of_our_name_is_taken(
    first: int, tmp_path: Path, names: str | None, expected: str
) -> None:
    put(listening(tmp_path / "a"), first)
    put(listening(tmp_path / "b"), first + 1)
    owned = passed_socket(environ("2", names=names))
    assert owned is not None
    assert owned.path == str(tmp_path / expected)
    owned.release()


def test_what_is_no_listening_unix_stream_socket_is_refused(first: int, tmp_path: Path) -> None:
    with pytest.raises(SocketRefused, match="is no socket"):
        passed_socket(environ())
    for sock in (socket.socket(socket.AF_UNIX), socket.socket(), listening(tmp_path / "d", socket.SOCK_DGRAM)):
        put(sock, first)
        with pytest.raises(SocketRefused, match="no listening Unix stream socket"):
            passed_socket(environ())
