"""The path of the socket (socket page, "Who may connect"): what is refused and why; stale and live told apart."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

import pytest

from treadle.socketfile import PATH_LIMIT, SocketRefused, claim, closed_at


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def refusal(path: str | Path) -> str:
    with pytest.raises(SocketRefused) as caught:
        claim(str(path))
    assert str(path) in str(caught.value)
    return caught.value.reason


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir(0o700)
    return folder


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
@pytest.mark.parametrize(("others", "modes"), [(False, (0o600, 0o700)), (True, (0o666, 0o711))])
def test_the_modes_do_not_depend_on_the_umask(
    tmp_path: Path, umask: int, others: bool, modes: tuple[int, int]
) -> None:
    before = os.umask(umask)
    try:
        owned = claim(str(tmp_path / "a" / "b" / "t.sock"), others=others)
    finally:
        os.umask(before)
    assert (mode(owned.path), mode(tmp_path / "a" / "b"), mode(tmp_path / "a")) == (modes[0], modes[1], modes[1])
    owned.release()
    assert not os.path.exists(owned.path)


def test_it_listens_and_is_released(run: Path) -> None:
    owned = claim(str(run / "t.sock"))
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(owned.path)
    owned.release()
    claim(str(run / "t.sock")).release()


def test_a_path_of_107_bytes_is_the_longest(run: Path) -> None:
    longest = f"{run}/{'x' * (PATH_LIMIT - len(os.fsencode(str(run))) - 1)}"
    claim(longest).release()
    assert "has 108 bytes, a Unix socket takes 107" in refusal(longest + "x")


def test_bytes_are_counted_not_characters(run: Path) -> None:
    room = PATH_LIMIT - len(os.fsencode(str(run))) - 1
    assert "a Unix socket takes 107" in refusal(f"{run}/{'ü' * (room // 2 + 1)}")


def test_what_is_no_socket_stays_and_is_named(run: Path) -> None:
    path = run / "t.sock"
    for make, kind in ((path.touch, "a file"), (path.mkdir, "a directory"), (path.symlink_to, "a symbolic link")):
        make(*(["/dev/null"] if kind == "a symbolic link" else []))  # type: ignore[operator]
        assert refusal(path).startswith(f"{kind} is there, not a socket")
        assert os.path.lexists(path)
        path.rmdir() if kind == "a directory" else path.unlink()


def test_a_lock_that_is_a_symbolic_link_is_not_followed(run: Path) -> None:
    (run / "t.sock.lock").symlink_to(run / "elsewhere")
    assert "its lock" in refusal(run / "t.sock")
    assert not (run / "elsewhere").exists()


@pytest.mark.parametrize("writable", [0o777, 0o770, 0o1777])
def test_a_directory_where_others_may_write_is_refused(run: Path, writable: int) -> None:
    run.chmod(writable)
    assert "others may write to the directory" in refusal(run / "t.sock")


def test_so_is_one_above_it_unless_only_owners_may_rename_there(tmp_path: Path) -> None:
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o777)
    assert "others may write to the directory" in refusal(above / "run" / "t.sock")
    above.chmod(0o1777)
    claim(str(above / "run" / "t.sock")).release()


def test_where_a_link_leads_counts_too(tmp_path: Path) -> None:
    open_place = tmp_path / "open"
    (open_place / "run").mkdir(parents=True)
    open_place.chmod(0o777)
    (tmp_path / "link").symlink_to(open_place / "run")
    assert f"others may write to the directory {open_place}" in refusal(tmp_path / "link" / "t.sock")


def test_a_directory_that_is_a_file_is_refused(run: Path) -> None:
    (run / "file").touch()
    assert "is not a directory" in refusal(run / "file" / "t.sock").lower()


def test_a_stale_socket_is_replaced(run: Path) -> None:
    path = run / "t.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    owned = claim(str(path))
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    owned.release()


def test_a_live_socket_without_a_lock_is_left_alone(run: Path) -> None:
    path = run / "t.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen(0)
        # The first look fills the backlog, so that the second one finds no room.
        assert "another program listens there" in refusal(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as late:
            assert late.connect_ex(str(path)) == errno.EAGAIN
        assert "another program listens there" in refusal(path)
    assert path.exists()


def test_a_socket_of_another_kind_is_left_alone(run: Path) -> None:
    path = run / "t.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(path))
        assert "in use" in refusal(path)
    assert path.exists()


def test_who_holds_the_lock_is_said(run: Path) -> None:
    owned = claim(str(run / "t.sock"))
    assert f"the daemon with pid {os.getpid()} holds it" in refusal(run / "t.sock")
    owned.release()


def test_release_leaves_the_socket_of_a_successor(run: Path) -> None:
    owned = claim(str(run / "t.sock"))
    os.unlink(owned.path)
    with socket.socket(socket.AF_UNIX) as successor:
        successor.bind(owned.path)
        owned.release()
        assert os.path.exists(owned.path)


def test_admit_opens_and_closes_it_to_others(run: Path) -> None:
    owned = claim(str(run / "t.sock"))
    owned.admit(others=True)
    assert mode(owned.path) == 0o666
    owned.admit(others=False)
    assert mode(owned.path) == 0o600
    owned.release()


def test_the_first_directory_that_is_closed_to_others_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    for directory in (folder, folder.parent):
        directory.chmod(0o755)
    outer = closed_at(str(folder / "t.sock"))
    folder.parent.chmod(0o700)
    assert closed_at(str(folder / "t.sock")) == (outer or str(folder.parent))
