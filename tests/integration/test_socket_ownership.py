"""Whose socket it is (socket page, "Who may connect"): lock, path, mode, a passed socket, other users."""

from __future__ import annotations

import os
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemon import DEMO, Daemon, toml
from support.wire import raw
from treadle_client import BrokerUnreachable

from .conftest import Serve

DEMO_SERVER = {"command": list(DEMO)}
CONFIG = toml({})

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def launch(daemon: Daemon, *, umask: int = -1, **keys: int) -> subprocess.Popen[str]:
    """A ``treadle serve`` whose stderr is kept apart."""
    return subprocess.Popen(
        [sys.executable, "-m", "treadle", "serve", "--config", str(daemon.config)],
        env=daemon.environ,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd=daemon.folder,
        umask=umask,
        text=True,
        **keys,
    )


def last_of(processes: list[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
    """Those that still run when all but one have ended, or after a while."""
    poll = select.poll()
    running = {os.pidfd_open(process.pid): process for process in processes}
    for descriptor in running:
        poll.register(descriptor, select.POLLIN)
    try:
        while len(running) > 1 and (ended := poll.poll(20_000)):
            for descriptor, _ in ended:
                poll.unregister(descriptor)
                os.close(descriptor)
                del running[descriptor]
        return list(running.values())
    finally:
        for descriptor in running:
            os.close(descriptor)


# --- one daemon a socket ---------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 20])
def test_of_daemons_that_start_at_once_exactly_one_serves_and_the_others_say_who(
    tmp_path: Path, count: int
) -> None:
    daemon = Daemon(tmp_path, CONFIG)
    rivals = [launch(daemon) for _ in range(count)]
    try:
        (winner,) = last_of(rivals)
        daemon.process = winner  # type: ignore[assignment]
        daemon.wait_up()
        with daemon.client() as client:
            assert client.status()["daemon"]["pid"] == winner.pid
        for rival in rivals:
            if rival is not winner:
                assert rival.wait() == 2
                assert rival.stderr is not None
                assert f"the daemon with pid {winner.pid} holds it" in rival.stderr.read()
        winner.send_signal(signal.SIGTERM)
        _, said = winner.communicate(timeout=10)
        assert winner.returncode == 0, said
    finally:
        for rival in rivals:
            if rival.poll() is None:
                rival.kill()
                rival.wait()
            assert rival.stderr is not None
            rival.stderr.close()


def test_a_stopped_daemon_still_holds_its_socket(serve: Serve) -> None:
    daemon = serve({})
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        second = daemon.cli("serve", "--config", str(daemon.config))
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    assert second.returncode == 2
    assert f"the daemon with pid {daemon.pid} holds it" in second.stderr
    with daemon.client() as client:
        client.ping()


def test_after_kill_9_the_next_daemon_takes_the_stale_socket(serve: Serve) -> None:
    daemon = serve({})
    assert daemon.process is not None
    daemon.process.kill()
    daemon.process.wait()
    assert stat.S_ISSOCK(os.lstat(daemon.socket).st_mode)
    with pytest.raises(BrokerUnreachable):
        daemon.client().ping()
    daemon.start()
    with daemon.client() as client:
        client.ping()


def test_another_program_that_listens_there_is_not_thrown_out_even_with_a_full_backlog(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, CONFIG)
    os.mkdir(os.path.dirname(daemon.socket), 0o700)
    with socket.socket(socket.AF_UNIX) as other, socket.socket(socket.AF_UNIX) as waiting:
        other.bind(daemon.socket)
        other.listen(0)
        waiting.connect(daemon.socket)
        done = daemon.cli("serve", "--config", str(daemon.config))
        assert os.path.exists(daemon.socket)
    assert done.returncode == 2
    assert "another program listens there" in done.stderr


# --- the mode --------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o077])
@pytest.mark.parametrize(("broker", "modes"), [({}, (0o600, 0o700)), ({"allow_users": [12345]}, (0o666, 0o711))])
def test_the_modes_are_exact_whatever_the_umask(
    tmp_path: Path, umask: int, broker: dict[str, list[int]], modes: tuple[int, int]
) -> None:
    daemon = Daemon(tmp_path, toml({}, broker))
    daemon.environ["TREADLE_SOCKET"] = daemon.socket = str(tmp_path / "deep" / "run" / "t.sock")
    daemon.process = launch(daemon, umask=umask)  # type: ignore[assignment]
    try:
        daemon.wait_up()
        found = [Path(daemon.socket), *Path(daemon.socket).parents[:2]]
        assert [stat.S_IMODE(path.stat().st_mode) for path in found] == [modes[0], modes[1], modes[1]]
        assert stat.S_IMODE(Path(f"{daemon.socket}.lock").stat().st_mode) == 0o600
    finally:
        daemon.stop()
        assert daemon.process is not None
        daemon.process.stderr.close()  # type: ignore[union-attr]


# --- a socket that the service manager passes ------------------------------------------------------

PASS_ON = """
import os, sys
os.environ["LISTEN_PID"] = str(os.getpid())
os.environ["LISTEN_FDS"] = "1"
fd = int(sys.argv[1])
os.dup2(fd, 3, inheritable=True)
os.execv(sys.executable, [sys.executable, "-m", "treadle", "serve", "--config", sys.argv[2]])
"""


def test_a_passed_socket_is_used_and_never_removed(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, toml({"demo": DEMO_SERVER}))
    path = str(tmp_path / "passed.sock")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(8)
        for _ in range(2):
            with daemon.log_path.open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-c", PASS_ON, str(listening.fileno()), str(daemon.config)],
                    env=daemon.environ, cwd=daemon.folder, stderr=log, pass_fds=[listening.fileno()],
                )  # fmt: skip
            with raw(path) as client:
                status = client.ask("status", {}).body["value"]["daemon"]
                assert (status["pid"], status["socket"]) == (process.pid, path)
                body = {"server": "demo", "tool": "echo", "arguments": {"text": "through it"}}
                assert client.ask("call", body).body["ok"], daemon.log()
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == 0, daemon.log()
            assert os.path.exists(path)
    assert not os.path.exists(f"{path}.lock")
    assert daemon.leftovers() == []


# --- other users -----------------------------------------------------------------------------------

AS_ANOTHER = """
import os, sys
sys.path[:0] = sys.argv[4:]
os.setgroups([int(gid) for gid in sys.argv[2].split(",") if gid])
os.setgid(54321)
os.setuid(54321)
from treadle_client import Client, Denied
try:
    with Client(sys.argv[1]) as broker:
        print(broker.call("demo", "echo", {"text": "hi"}).text)
        if sys.argv[3]:
            broker.restart("demo")
            print("restarted")
except Denied as error:
    print(error.code, error)
"""


def as_another(daemon: Daemon, *, groups: str = "", manage: bool = False) -> str:
    """What a client of uid 54321 gets, in the supplementary ``groups``."""
    # The packages may lie where only root can go: they are imported before the uid is dropped.
    done = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER.replace("os.setgroups", "import treadle_client.client\nos.setgroups", 1),
         daemon.socket, groups, "yes" if manage else "", *sys.path],
        env=daemon.environ, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that every account can pass through; pytest's own are private."""
    with tempfile.TemporaryDirectory(prefix="treadle-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def serving(folder: Path, **broker: list[int]) -> Daemon:
    daemon = Daemon(folder, toml({"demo": DEMO_SERVER}, broker))
    daemon.start()
    daemon.wait_ready()
    return daemon


@needs_root
def test_another_user_is_let_in_by_its_uid_or_a_supplementary_group_and_by_nothing_else(reachable: Path) -> None:
    daemon = serving(reachable, allow_groups=[45678])
    try:
        assert "denied uid 54321 may not use this broker" in as_another(daemon)
        assert as_another(daemon, groups="1,45678,7") == "hi\n"
        assert "denied restart needs an administrator" in as_another(daemon, groups="45678", manage=True)
        daemon.config.write_text(toml({"demo": DEMO_SERVER}, {"allow_users": [54321]}))
        assert daemon.cli("reload").returncode == 0
        assert as_another(daemon) == "hi\n"
        daemon.config.write_text(toml({"demo": DEMO_SERVER}, {"admin_users": [54321]}))
        assert daemon.cli("reload").returncode == 0
        assert as_another(daemon, manage=True) == "hi\nrestarted\n"
        daemon.config.write_text(toml({"demo": DEMO_SERVER}))
        assert daemon.cli("reload").returncode == 0
        assert stat.S_IMODE(os.stat(daemon.socket).st_mode) == 0o600
        assert "hi" not in as_another(daemon)
    finally:
        daemon.stop()
    assert "uid 54321, pid " in daemon.log()
    assert "denied restart to uid 54321" in daemon.log()


@needs_root
def test_a_socket_or_a_directory_of_another_owner_is_refused(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, CONFIG)
    folder = Path(daemon.socket).parent
    folder.mkdir(0o700)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(daemon.socket)
    os.chown(daemon.socket, 54321, 54321)
    done = daemon.cli("serve", "--config", str(daemon.config))
    assert (done.returncode, "the socket there belongs to uid 54321" in done.stderr) == (2, True)
    os.chown(folder, 54321, 54321)
    done = daemon.cli("serve", "--config", str(daemon.config))
    assert (done.returncode, "belongs to uid 54321, who could replace it" in done.stderr) == (2, True)
