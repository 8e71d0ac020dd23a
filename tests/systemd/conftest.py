"""An installation of Treadle in the private systemd, as an administrator would make one.

Everything is changed as on a real machine (units in /etc, an account, a configuration in /etc/treadle): these
tests run in the sandbox alone (``make test-systemd``) and skip anywhere else.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from support.daemon import toml
from systemd.sandbox import CHECKOUT, MARK
from treadle_client import Client

HOME = Path("/opt/treadle")
TREADLE = HOME / "bin/treadle"
PYTHON = HOME / "bin/python"
SOCKET = "/run/treadle/treadle.sock"
CONFIG = Path("/etc/treadle/treadle.toml")
DROP_IN = Path("/etc/systemd/system/treadle.service.d/test.conf")
DEMO = [str(PYTHON), "-m", "treadle.demo_server"]
SCRIPTED = str(CHECKOUT / "tests/support/scripted_server.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not MARK.exists():
        for item in items:
            item.add_marker(pytest.mark.skip(reason="only in the private systemd: make test-systemd"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and MARK.exists():
        report.sections.append(("journal of the service", journal("-n", "60")))
    return report


def run(*words: str, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command as an administrator would."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, **options)
    assert not check or done.returncode == 0, (
        f"{words}: {done.returncode}\n{done.stdout}{done.stderr}\n{journal()}"
    )
    return done


def systemctl(*words: str, check: bool = True) -> str:
    return run("systemctl", *words, check=check).stdout.strip()


def prop(name: str, unit: str = "treadle.service") -> str:
    """One property of a unit."""
    return systemctl("show", "--value", "-p", name, unit)


def journal(*words: str) -> str:
    done = subprocess.run(
        ["journalctl", "--no-pager", "-o", "cat", "-u", "treadle.service", *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout


def until(condition: Callable[[], Any], within: float = 20.0, what: str = "it") -> Any:
    """Wait for what nobody announces; fails after ``within`` seconds."""
    deadline = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {within:g} s\n{journal()}"
        time.sleep(0.01)
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def environ_of(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace")
    return dict(item.split("=", 1) for item in text.split("\0") if "=" in item)


class Service:
    """The service under test."""

    def configure(
        self, servers: Mapping[str, Mapping[str, Any]], broker: Mapping[str, Any] | None = None, drop_in: str = ""
    ) -> None:
        CONFIG.write_text(toml(servers, broker))
        DROP_IN.parent.mkdir(parents=True, exist_ok=True)
        DROP_IN.write_text(f"[Service]\n{drop_in}\n")
        systemctl("daemon-reload")

    def start(self) -> None:
        systemctl("start", "treadle.socket", "treadle.service")

    def client(self) -> Client:
        return Client(SOCKET, timeout=60)

    @property
    def pid(self) -> int:
        return int(prop("MainPID"))

    def rows(self) -> dict[str, dict[str, Any]]:
        with self.client() as client:
            return {row["name"]: row for row in client.status()["servers"]}


@pytest.fixture(scope="session")
def installed() -> None:
    """Treadle below /opt, where a service may read it, by its own verb; nothing is downloaded."""
    base = Path(sys.base_prefix)
    if base.is_relative_to("/root") or base.is_relative_to("/home"):
        place = Path("/opt/python")
        place.mkdir(parents=True)
        run("mount", "--bind", str(base), str(place))
        base = place
        # A shared libpython was linked to the place where it no longer can be read.
        Path("/etc/ld.so.conf.d/000-treadle.conf").write_text(f"{place}/lib\n")
        run("ldconfig")
    python = base / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    run(str(python), "-m", "venv", "--without-pip", str(HOME))
    sources = [path for path in sys.path if path.endswith("site-packages")]
    sources += [str(CHECKOUT / "daemon"), str(CHECKOUT / "client_stub")]
    packages = next((HOME / "lib").glob("python*/site-packages"))
    (packages / "checkout.pth").write_text("\n".join(sources) + "\n")
    TREADLE.write_text(f"#!{PYTHON}\nfrom treadle.cli import main\nmain()\n")
    TREADLE.chmod(0o755)


@pytest.fixture(scope="session")
def enabled(installed: None) -> None:
    CONFIG.parent.mkdir(parents=True, exist_ok=True)
    CONFIG.write_text(toml({"demo": {"command": DEMO}}))
    run(str(TREADLE), "install-service", "--enable", cwd="/")


@pytest.fixture
def service(enabled: None) -> Iterator[Service]:
    """The service, stopped, with its socket listening; stopped again at the end, with nothing left behind."""
    assert os.path.exists(MARK)
    systemctl("reset-failed", "treadle.service", "treadle.socket", check=False)
    systemctl("restart", "treadle.socket")
    yield Service()
    systemctl("stop", "treadle.socket", "treadle.service", check=False)
    assert run("pgrep", "-u", "treadle", check=False).stdout == ""
    DROP_IN.unlink(missing_ok=True)
