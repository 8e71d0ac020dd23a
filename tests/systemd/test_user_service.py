"""The pair of user units, in a systemd of one user."""

from __future__ import annotations

import json
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemon import toml
from systemd.conftest import DEMO, TREADLE, alive, run, systemctl, until

USER = "weaver"
MANAGER = "weaver-manager.service"


class Session:
    """What one user types."""

    def __init__(self) -> None:
        self.uid = pwd.getpwnam(USER).pw_uid
        self.runtime = f"/run/user/{self.uid}"

    def run(self, *words: str, check: bool = True) -> str:
        environ = (f"XDG_RUNTIME_DIR={self.runtime}", f"HOME=/home/{USER}")
        return run("runuser", "-u", USER, "--", "env", *environ, *words, check=check, cwd="/").stdout.strip()

    def prop(self, name: str) -> str:
        return self.run("systemctl", "--user", "show", "--value", "-p", name, "treadle.service")


@pytest.fixture
def session(installed: None) -> Iterator[Session]:
    """A user with a service manager of their own, as a login would start it."""
    run("useradd", "--create-home", USER)
    session = Session()
    run("install", "-d", "-m", "700", "-o", USER, session.runtime)
    run(
        "systemd-run", f"--unit={MANAGER}", f"--uid={USER}", "-p", "Delegate=yes", "-p", "Type=notify",
        "-E", f"XDG_RUNTIME_DIR={session.runtime}", "/lib/systemd/systemd", "--user",
    )  # fmt: skip
    yield session
    systemctl("stop", MANAGER)
    run("userdel", "--remove", USER, check=False)


def test_a_user_installs_and_runs_the_service_without_root(session: Session) -> None:
    folder = Path(f"/home/{USER}/.config/treadle")
    session.run("mkdir", "-p", str(folder))
    (folder / "treadle.toml").write_text(toml({"demo": {"command": DEMO}}))
    session.run(str(TREADLE), "install-service", "--user", "--enable")
    assert session.prop("ActiveState") == "inactive"
    assert session.run(str(TREADLE), "call", "demo", "add", "a=1", "b=2") == "3"
    assert session.prop("ActiveState") == "active"
    assert "containment: cgroup" in session.run(str(TREADLE), "status")
    assert Path(f"{session.runtime}/treadle/treadle.sock").stat().st_mode & 0o777 == 0o600
    assert Path(f"/home/{USER}/.local/state/treadle").is_dir()
    before = int(session.prop("MainPID"))
    session.run("systemctl", "--user", "reload", "treadle.service")
    session.run("systemctl", "--user", "kill", "--kill-whom=main", "--signal=KILL", "treadle.service")
    until(lambda: session.prop("NRestarts") == "1" and session.prop("ActiveState") == "active", what="the restart")
    assert not alive(before)
    assert session.run(str(TREADLE), "call", "demo", "add", "a=1", "b=2") == "3"
    told = run("journalctl", "--all", "-o", "json", f"_UID={session.uid}", "TREADLE_SERVER=demo").stdout
    assert before in {int(json.loads(line)["_PID"]) for line in told.splitlines()}
    session.run("systemctl", "--user", "disable", "--now", "treadle.socket", "treadle.service")
    session.run(str(TREADLE), "install-service", "--user", "--remove")
    assert not Path(f"/home/{USER}/.config/systemd/user/treadle.service").exists()
