"""A real daemon for a test: its own process, socket, state directory and HOME, ended by pid."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from treadle_client import BrokerUnreachable, Client

STARTS_WITHIN_S = 20.0
ENDS_WITHIN_S = 30.0
SCRIPTED = Path(__file__).with_name("scripted_server.py")
DEMO = (sys.executable, "-m", "treadle.demo_server")


def toml(servers: Mapping[str, Mapping[str, Any]], broker: Mapping[str, Any] | None = None) -> str:
    """A configuration text. Values are written as JSON, which TOML reads alike for what is used here."""

    def table(name: str, keys: Mapping[str, Any]) -> list[str]:
        inline = {key: value for key, value in keys.items() if not isinstance(value, Mapping)}
        lines = [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in inline.items())]
        for key, value in keys.items():
            if isinstance(value, Mapping):
                lines += table(f"{name}.{key}", value)
        return lines

    parts = table("broker", broker) if broker is not None else []
    for name, keys in servers.items():
        parts += table(f"mcp.{name}", keys)
    return "\n".join(parts) + "\n"


class Daemon:
    """A running ``treadle serve``. Use as a context manager; what it started ends with it."""

    def __init__(
        self, folder: Path, config: str, *, environ: Mapping[str, str] | None = None, options: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self.socket = str(folder / "run" / "t.sock")
        self.config = folder / "treadle.toml"
        self.config.write_text(config)
        self.log_path = folder / "daemon.log"
        self.state = folder / "state"
        home = folder / "home"
        home.mkdir(exist_ok=True)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environ = {
            "PATH": path,
            "HOME": str(home),
            "TMPDIR": str(folder),
            "XDG_STATE_HOME": str(self.state),
            "TREADLE_SOCKET": self.socket,
            "LANG": "C.UTF-8",
            **(environ or {}),
        }
        self._options = options
        self.program: Sequence[str] = (sys.executable, "-m", "treadle")
        """What runs the daemon; a test may put something before it."""
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Daemon:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the daemon and wait until it answers."""
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.program, "serve", "--config", str(self.config), *self._options],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        self.wait_up()

    def wait_up(self) -> None:
        """Wait until the daemon answers."""
        assert self.process is not None
        deadline = time.monotonic() + STARTS_WITHIN_S
        while True:
            try:
                with self.client() as client:
                    client.ping()
                return
            except BrokerUnreachable:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.process.kill()
                    raise AssertionError(f"the daemon did not come up:\n{self.log()}") from None
            time.sleep(0.005)  # nobody tells when a socket file appears

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def client(self, timeout: float | None = None) -> Client:
        """A new client of this daemon."""
        return Client(self.socket, timeout=timeout)

    def log(self) -> str:
        """All that it wrote to stdout and stderr."""
        return self.log_path.read_text("utf-8", "replace")

    def cli(self, *words: str, stdin: str | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run one verb as a user would type it."""
        return subprocess.run(
            [sys.executable, "-m", "treadle", *words],
            env={**self.environ, **environ},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=self.folder,
            check=False,
        )

    def wait_ready(self, *servers: str) -> None:
        """Wait until none of the servers (all without a name) is starting: each serves or has failed."""
        deadline = time.monotonic() + STARTS_WITHIN_S
        with self.client() as client:
            while True:
                rows = {row["name"]: row["state"] for row in client.list()}
                if not {"starting", "closing"} & {rows[name] for name in servers or rows}:
                    return
                assert time.monotonic() < deadline, rows
                time.sleep(0.005)

    def server(self, name: str) -> dict[str, Any]:
        """The status row of one server."""
        with self.client() as client:
            row: dict[str, Any] = client.status(name)["servers"][0]
            return row

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the daemon and return its exit status; fails when it does not end."""
        process = self.process
        assert process is not None
        if process.poll() is None:
            process.send_signal(number)
        try:
            return process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the daemon did not end:\n{self.log()}") from None

    def leftovers(self) -> list[int]:
        """Live processes (zombies aside) that belong to this test: its folder is their HOME."""
        mark = f"HOME={self.folder / 'home'}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                environ = (entry / "environ").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if mark in environ and state != "Z":
                found.append(int(entry.name))
        return found
