"""``treadle install-service``."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import click

from treadle import units
from treadle.cli.codes import REFUSED

_ENABLE_SYSTEM: Final = (
    ("systemd-sysusers", "/etc/sysusers.d/treadle.conf"),
    ("systemd-tmpfiles", "--create", "/etc/tmpfiles.d/treadle.conf"),
    ("systemctl", "daemon-reload"),
    ("systemctl", "enable", "--now", "treadle.socket"),
)
_ENABLE_USER: Final = (
    ("systemctl", "--user", "daemon-reload"),
    ("systemctl", "--user", "enable", "--now", "treadle.socket"),
)


@click.command()
@click.option("--user", is_flag=True, help="For your own systemd instead of the system's.")
@click.option("--print", "only_print", is_flag=True, help="Show the files and where they would go; write nothing.")
@click.option("--enable", is_flag=True, help="Also run the commands that make the service start, now and at boot.")
@click.option("--remove", is_flag=True, help="Remove the files; stop and disable the service first.")
def command(user: bool, only_print: bool, enable: bool, remove: bool) -> None:
    """Write the systemd units that run this installation as a service.

    Run again, it changes what differs and nothing else. A file that Treadle did not write is never touched.
    Nothing is enabled or started unless --enable says so.

    \b
    treadle install-service --print
    treadle install-service --enable
    treadle install-service --user --enable
    """
    if remove and (only_print or enable):
        raise click.UsageError("--remove goes with --user only")
    files = _files(user)
    if only_print:
        for path, text in files.items():
            click.echo(f"# ----- {path} -----\n{text}")
        return
    if remove:
        _remove(files, user)
        return
    if not user:
        warn_of_hidden_places()
    _write(files)
    steps = _ENABLE_USER if user else _ENABLE_SYSTEM
    if enable:
        _run(steps)
    else:
        click.echo("nothing was enabled; to start it, now and at boot:")
        for step in steps:
            click.echo(f"  {' '.join(step)}")


def _files(user: bool) -> dict[Path, str]:
    treadle = executable()
    try:
        if user:
            base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
            return {base / unit.path: unit.text for unit in units.user_units(treadle)}
        return {Path(unit.path): unit.text for unit in units.system_units(treadle)}
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def executable() -> str:
    """The command of this installation: the one beside its interpreter, else the one that was called."""
    beside = Path(sys.executable).parent / "treadle"
    if os.access(beside, os.X_OK):
        return str(beside)
    called = Path(sys.argv[0])
    if called.name == "treadle" and os.access(called, os.X_OK):
        return str(called.absolute())
    raise click.UsageError(
        f"there is no command treadle beside {sys.executable}: install the package, then run that"
    )


@dataclass(frozen=True, slots=True)
class Change:
    """What is to happen to one file."""

    path: Path
    what: Literal["write", "update", "unchanged", "foreign"]


def plan(files: dict[Path, str]) -> list[Change]:
    """What writing ``files`` would change. ``foreign`` is a file of that name that Treadle did not write."""
    changes = []
    for path, text in files.items():
        try:
            present = path.read_text("utf-8", "replace")
        except FileNotFoundError:
            changes.append(Change(path, "write"))
            continue
        if present == text:
            changes.append(Change(path, "unchanged"))
        else:
            changes.append(Change(path, "update" if present.startswith(units.MARK) else "foreign"))
    return changes


def _write(files: dict[Path, str]) -> None:
    try:
        changes = plan(files)
        _refuse_foreign(changes)
        for change in changes:
            if change.what != "unchanged":
                _replace(change.path, files[change.path])
            click.echo(f"{'wrote' if change.what == 'write' else change.what:<9}  {change.path}")
    except OSError as error:
        _fail(error)


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # systemd may read the folder at any moment: it must never meet half a unit.
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text)
    temporary.chmod(0o644)
    temporary.replace(path)


def _remove(files: dict[Path, str], user: bool) -> None:
    manager = ["systemctl", "--user"] if user else ["systemctl"]
    try:
        running = subprocess.run(
            [*manager, "is-active", "--quiet", "treadle.socket", "treadle.service"],
            capture_output=True,
            check=False,
        )
        if running.returncode == 0:
            click.echo("treadle: the service is active; stop it and try again:", err=True)
            click.echo(f"  {' '.join(manager)} disable --now treadle.socket treadle.service", err=True)
            sys.exit(REFUSED)
    except FileNotFoundError:
        pass  # without systemd nothing can be active
    try:
        changes = plan(files)
        _refuse_foreign(changes)
        for change in changes:
            if change.what == "write":
                click.echo(f"absent     {change.path}")
            else:
                change.path.unlink()
                click.echo(f"removed    {change.path}")
    except OSError as error:
        _fail(error)
    click.echo(
        f"state, logs, configuration and the account are left alone; then: {' '.join(manager)} daemon-reload"
    )


def _refuse_foreign(changes: list[Change]) -> None:
    foreign = [change.path for change in changes if change.what == "foreign"]
    for path in foreign:
        click.echo(
            f"treadle: {path} was not written by treadle; move it away first. Nothing was changed.", err=True
        )
    if foreign:
        sys.exit(REFUSED)


def warn_of_hidden_places() -> None:
    """Say what would keep the system service from running this installation."""
    for path in dict.fromkeys((executable(), sys.prefix, os.path.realpath(sys.executable))):
        if path.startswith(("/home/", "/root/", "/run/user/", "/tmp/")):  # noqa: S108
            hint = "install Treadle below /opt or /usr, or use --user"
            click.echo(f"treadle: {path} is hidden from the service (ProtectHome=, PrivateTmp=): {hint}", err=True)


def _run(steps: tuple[tuple[str, ...], ...]) -> None:
    for step in steps:
        click.echo(f"$ {' '.join(step)}")
        try:
            done = subprocess.run(step, check=False)
        except OSError as error:
            _fail(error)
        if done.returncode != 0:
            click.echo(f"treadle: that failed with status {done.returncode}; the rest was not run", err=True)
            sys.exit(REFUSED)


def _fail(error: OSError) -> None:
    hint = "; run it as root, or with --user" if isinstance(error, PermissionError) else ""
    click.echo(f"treadle: {error.strerror}: {error.filename}{hint}", err=True)
    sys.exit(REFUSED)
