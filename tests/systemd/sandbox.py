"""Run a command under a private systemd: own processes, mounts, cgroups, and a throw-away copy of the file system.

    python tests/systemd/sandbox.py COMMAND...        run COMMAND in there; its exit status is ours
    python tests/systemd/sandbox.py --check           say why it cannot be done here, with status 77

A systemd that is started on the machine itself would clean its /tmp and move its processes about. So nothing here
is started before its root is an overlay whose changes live in memory, and nothing of it is left afterwards: what
runs inside is in one pid namespace and one cgroup, which end together.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SYSTEMD = Path("/lib/systemd/systemd")
MARK = Path("/run/treadle-sandbox")
"""Exists inside only; the tests look for it before they touch anything."""
CHECKOUT = Path(__file__).resolve().parents[2]
HIDDEN = ("/home", "/root", "/run", "/tmp", "/var/tmp")
CANNOT = 77
BOOTS_WITHIN_S = 30.0
RUNS_WITHIN_S = 600.0

_TARGET = """\
[Unit]
Description=All that the tests need of a booted system
Requires=systemd-journald.socket dbus.socket
After=systemd-journald.socket dbus.socket
AllowIsolate=yes
"""


def obstacle() -> str | None:
    """Why a private systemd cannot run here, None when it can."""
    if os.geteuid() != 0:
        return "only root can make the namespaces"
    for program in ("unshare", "nsenter", "mount", "pivot_root", "systemctl", "dbus-daemon"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if not SYSTEMD.exists():
        return f"{SYSTEMD} is not installed"
    for hidden in HIDDEN:
        if CHECKOUT.is_relative_to(hidden):
            return f"the checkout lies below {hidden}, which a hardened service does not see"
    hierarchy = cgroup2()
    if hierarchy is None:
        return "there is no cgroup v2 hierarchy"
    if not os.access(hierarchy, os.W_OK):
        return f"{hierarchy} is not writable"
    probe = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--cgroup", "true"], capture_output=True, text=True, check=False
    )
    return None if probe.returncode == 0 else f"namespaces are not to be had: {probe.stderr.strip()}"


def cgroup2() -> Path | None:
    """Where the machine has its cgroup v2 hierarchy."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        if right.startswith("cgroup2 "):
            return Path(left.split()[4])
    return None


class Sandbox:
    """One booted private systemd. Use as a context manager."""

    def __init__(self) -> None:
        hierarchy = cgroup2()
        assert hierarchy is not None
        self._group = hierarchy / f"treadle-sandbox.{os.getpid()}"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the sandbox

    def __enter__(self) -> Sandbox:
        self._group.mkdir()
        enter = 'echo 0 >"$0/cgroup.procs" && exec "$@"'
        spaces = [
            "--mount",
            "--propagation",
            "private",
            "--pid",
            "--fork",
            "--kill-child",
            "--cgroup",
            "--ipc",
            "--uts",
        ]
        inside = [sys.executable, __file__, "--inside"]
        self._outer = subprocess.Popen(
            ["sh", "-c", enter, str(self._group), "unshare", *spaces, *inside],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, cwd="/",
        )  # fmt: skip
        try:
            self._await_boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # The end of the namespace's first process ends every other one in it.
        self._outer.kill()
        self._outer.wait()
        (self._group / "cgroup.kill").write_text("1")
        deadline = time.monotonic() + 10
        while self._group.exists() and time.monotonic() < deadline:
            for folder, _names, _files in os.walk(self._group, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError:
                    time.sleep(0.01)  # the kernel still takes the last processes down
        self._log.close()

    def command(self, *words: str) -> list[str]:
        """The argument vector that runs ``words`` inside, in the folder of the checkout."""
        flags = ["--mount", "--pid", "--ipc", "--uts", "--cgroup", "--root"]
        there = ["sh", "-c", 'cd "$0" && exec "$@"', str(CHECKOUT)]
        return ["nsenter", f"--target={self._first()}", *flags, *there, *words]

    def log(self) -> str:
        """What the private systemd said on its console."""
        self._log.seek(0)
        return self._log.read().decode("utf-8", "replace")

    def _first(self) -> int:
        children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text().split()
        return int(children[0])

    def _await_boot(self) -> None:
        deadline = time.monotonic() + BOOTS_WITHIN_S
        state = ""
        while time.monotonic() < deadline:
            if self._outer.poll() is not None:
                raise RuntimeError(f"the private systemd ended at once:\n{self.log()}")
            try:
                ready = b"systemd" in Path(f"/proc/{self._first()}/cmdline").read_bytes().split(b"\0")[0]
            except (OSError, IndexError):
                ready = False
            if ready:
                asked = subprocess.run(
                    self.command("systemctl", "is-system-running"), capture_output=True, text=True, check=False
                )
                state = asked.stdout.strip()
                if state in ("running", "degraded"):
                    return
            time.sleep(0.05)
        raise RuntimeError(f"the private systemd did not come up ({state or 'no answer'}):\n{self.log()}")


def become_systemd() -> None:
    """As first process of the new namespaces: put the private root together, step into it, become systemd."""
    work = Path("/mnt")
    _mount("tmpfs", "tmpfs", work)
    for name in ("changes", "scratch", "root"):
        (work / name).mkdir()
    root = work / "root"
    layers = f"lowerdir=/,upperdir={work / 'changes'},workdir={work / 'scratch'}"
    _mount("overlay", "overlay", root, layers)
    _mount("proc", "proc", root / "proc")
    _mount("sysfs", "sysfs", root / "sys")
    _mount("cgroup2", "cgroup2", root / "sys/fs/cgroup")
    subprocess.run(["mount", "--rbind", "/dev", str(root / "dev")], check=True)
    _mount("tmpfs", "tmpfs", root / "run", "mode=0755")
    for name in ("tmp", "var/tmp"):
        _mount("tmpfs", "tmpfs", root / name, "mode=1777")
    if CHECKOUT.stat().st_dev != Path("/").stat().st_dev:  # an overlay shows one file system
        place = root / str(CHECKOUT).lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", "-o", "ro", str(CHECKOUT), str(place)], check=True)
    _strip(root)
    os.chdir(root)
    subprocess.run(["pivot_root", ".", "mnt"], check=True)
    os.chroot(".")
    subprocess.run(["umount", "--lazy", "/mnt"], check=True)
    # systemd leaves this to whoever made the container; credentials reach a service by it.
    subprocess.run(["mount", "--make-rshared", "/"], check=True)
    options = [
        "--system",
        "--unit=treadle-tests.target",
        "--log-target=console",
        "--log-level=notice",
        "--show-status=no",
    ]
    os.execve(
        SYSTEMD,
        [str(SYSTEMD), *options],
        {"container": "treadle-sandbox", "PATH": os.defpath + ":/usr/sbin:/sbin"},
    )


def _mount(kind: str, source: str, place: Path, options: str = "rw") -> None:
    subprocess.run(["mount", "-t", kind, "-o", options, source, str(place)], check=True)


def _strip(root: Path) -> None:
    """Leave of the machine's units only those that a test asks for: what would be pulled in at boot goes."""
    for parent in ("etc/systemd/system", "lib/systemd/system"):
        for folder in (root / parent).glob("*.wants"):
            shutil.rmtree(folder)
    (root / "etc/fstab").write_text("")
    for name in ("run/lock", "run/dbus", "run/systemd/system"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "run/systemd/system/treadle-tests.target").write_text(_TARGET)
    (root / str(MARK).lstrip("/")).touch()


def main(words: list[str]) -> int:
    if words == ["--inside"]:
        become_systemd()
    reason = obstacle()
    if reason is not None:
        print(f"no private systemd here: {reason}", file=sys.stderr)
        return CANNOT
    if words == ["--check"]:
        return 0
    if not words:
        print(__doc__, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with Sandbox() as sandbox:
        return subprocess.run(sandbox.command(*words), timeout=RUNS_WITHIN_S, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
