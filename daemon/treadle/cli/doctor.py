"""``treadle doctor``."""

from __future__ import annotations

import os
import platform
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

import treadle
from treadle.audit import require_audit
from treadle.cli import common, output
from treadle.cli.check import accounts
from treadle.cli.codes import OK, USAGE
from treadle.cli.diagnosis import Finding, bad, fine, for_a_shell, launcher, warn
from treadle.cli.importing import looks_secret
from treadle.cli.options import Options
from treadle.config import Config, Refused, ServerConfig, default_state_dir
from treadle.errors import ConfigError, Fault, Problem, TransportFailed, reason_of
from treadle.keeping import require_safe
from treadle.process import Launch
from treadle.reload import find, load
from treadle.secrets import build_environment
from treadle.socketfile import SocketRefused, require_claimable
from treadle.spawn import check
from treadle_client import BrokerError, BrokerUnreachable, Client

_VERSIONED: Final = frozenset({"node", "npx", "npm", "uv", "uvx", "docker", "podman", "deno", "bun", "bunx"})
_STYLES: Final = {"ok": "green", "warning": "yellow", "error": "red"}
_PATIENCE_S: Final = 5.0


@click.command()
@common.config_option
@common.options
def command(options: Options, config_path: str | None) -> int:
    """Look for what is wrong with this machine, the configuration and the daemon; show each with its fix.

    Variables are looked for in the environment of this shell, which may differ from the daemon's. The exit code
    is 2 when there is an error; warnings alone are 0. -q leaves out what is fine.

    \b
    treadle doctor
    treadle doctor --config treadle.toml -q
    """
    findings = list(_all(config_path, options))
    if options.as_json:
        output.print_json([{key: value for key, value in asdict(one).items() if value} for one in findings])
    else:
        for finding in findings:
            if not (options.quiet and finding.level == "ok"):
                _show(finding)
        count = {level: sum(one.level == level for one in findings) for level in _STYLES}
        if not options.quiet:
            told = (output.count(count[level], level) for level in ("warning", "error"))
            output.line(f"\n{count['ok']} fine, {', '.join(told)}")
    return USAGE if any(finding.level == "error" for finding in findings) else OK


def _show(finding: Finding) -> None:
    mark = output.paint(f"{finding.level:<7}", _STYLES[finding.level])
    output.line(f"{mark}  {finding.where}: {finding.what}")
    if finding.fix:
        output.line(f"         fix: {finding.fix}")


def _all(config_path: str | None, options: Options) -> Iterator[Finding]:
    python = f"{platform.python_implementation()} {platform.python_version()}"
    yield fine("versions", f"treadle {treadle.__version__}, {python}, {platform.system()} {platform.release()}")
    config, problems = _configuration(config_path)
    for problem in problems:
        place = f"{problem.file}:{problem.line}" if problem.line else problem.file
        yield bad(
            place or "configuration",
            f"{problem.where}: {problem.what}" if problem.where else problem.what,
            problem.fix,
        )
    if config is not None:
        yield fine(config.file, f"it is TOML, and has {output.count(len(config.servers), 'server')}")
        for warning in config.warnings:
            yield warn(
                f"{warning.file}:{warning.line}" if warning.line else warning.file, warning.what, warning.fix
            )
        yield from file_modes(config)
        for server in config.servers:
            if isinstance(server, Refused):
                yield bad(f"[mcp.{server.name}]", "it is refused", "see the problems above")
            else:
                yield from _server(server)
        yield from _directories(config)
    yield from _daemon(options, config)
    yield from systemd(os.getuid())


def _configuration(config_path: str | None) -> tuple[Config | None, tuple[Problem, ...]]:
    try:
        config = load(find(config_path, os.environ))
    except ConfigError as error:
        return None, error.problems
    return config, config.problems + accounts(config)


def file_modes(config: Config) -> Iterator[Finding]:
    """Who else may change the configuration, which is as good as running commands as the daemon's user."""
    folder = os.path.dirname(os.path.abspath(config.file))
    for path in (config.file, folder):
        mode = os.stat(path).st_mode
        sticky = stat.S_ISDIR(mode) and mode & stat.S_ISVTX
        if mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
            what = f"others may write it (mode {stat.S_IMODE(mode):04o}): they could run commands as you"
            yield Finding("error" if mode & stat.S_IWOTH else "warning", path, what, f"chmod go-w {path}")


def _server(server: ServerConfig) -> Iterator[Finding]:
    where = f"[mcp.{server.name}]"
    if not server.enabled:
        yield fine(where, "it is disabled")
        return
    yield from _program(where, server)
    yield from launcher(where, server.command)
    yield from for_a_shell(where, server.command)
    for name, value in server.env.items():
        if looks_secret(name, value):
            what = f"env.{name} looks like a secret, and env is not treated as one"
            yield warn(where, what, f'write env_from = ["{name}"] and set it in the daemon\'s environment')
    for name, path in server.env_files.items():
        yield from secret_file(f"{where} env_files.{name}", os.path.expandvars(path))


def _program(where: str, server: ServerConfig) -> Iterator[Finding]:
    """Whether the server could be started now: its environment is complete, and its program is there."""
    try:
        environment = build_environment(server, os.environ, _read).env
    except Fault as fault:
        what, _, fix = reason_of(fault, server.name).partition("; ")
        yield bad(where, what, fix)
        environment = {"PATH": os.environ.get("PATH", os.defpath), **server.env}
    launch = Launch(
        server=server.name, argv=server.command, env=environment, cwd=server.cwd, limits=server.limits, marker=""
    )
    try:
        program = check(launch)
    except TransportFailed as fault:
        yield bad(where, fault.reason, fault.fix or "correct command")
        return
    version = _version(program, environment)
    yield fine(where, f"it runs {program}" + (f" ({version})" if version else ""))


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _version(program: str, environment: dict[str, str]) -> str:
    """What a well-known runtime says of itself; nothing else is run."""
    if os.path.basename(program) not in _VERSIONED:
        return ""
    try:
        done = subprocess.run(
            [program, "--version"],
            env=environment,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
            text=True,
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    return done.stdout.strip().partition("\n")[0][:60]


def secret_file(where: str, path: str) -> Iterator[Finding]:
    """Whether others may read a file that holds a secret."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # told already: the environment could not be made
    if mode & (stat.S_IRGRP | stat.S_IROTH | stat.S_IWGRP | stat.S_IWOTH):
        yield warn(where, f"others may read {path} (mode {stat.S_IMODE(mode):04o})", f"chmod 600 {path}")


def _directories(config: Config) -> Iterator[Finding]:
    """What the daemon writes to, looked at with its own checks."""
    broker = config.broker
    state = broker.state_dir or default_state_dir(os.environ, os.getuid())
    yield from state_directory(state, config.file)
    if broker.audit_log is not None:
        where = "[broker] audit_log"
        try:
            require_audit(config)
        except ConfigError as error:
            yield from (bad(where, problem.what, problem.fix) for problem in error.problems)
        else:
            yield fine(where, f"{broker.audit_log} can be written")


def state_directory(path: str, file: str) -> Iterator[Finding]:
    """Whether the daemon could use and write ``path``, or make it; ``file`` is the configuration."""
    where = "[broker] state_dir"
    try:
        require_safe(Path(path), file)
    except ConfigError as error:
        yield from (bad(where, problem.what, problem.fix) for problem in error.problems)
        return
    there = path
    while not os.path.exists(there):
        there = os.path.dirname(there) or "."
    if os.access(there, os.W_OK | os.X_OK):
        yield fine(where, f"{path} can be written")
        return
    if os.statvfs(there).f_flag & os.ST_RDONLY:
        yield bad(where, f"{path} cannot be written: its file system is read-only", "name another directory")
    else:
        own = os.stat(there).st_uid == os.getuid()
        fix = f"chmod u+rwx {there}" if own else f"chown {os.getuid()} {there}, or name another directory"
        yield bad(where, f"{there} cannot be written", fix)


def _daemon(options: Options, config: Config | None) -> Iterator[Finding]:
    """The daemon as it runs, if it does."""
    socket = options.socket or os.environ.get("TREADLE_SOCKET") or (config.broker.socket if config else None)
    client = Client(socket, timeout=_PATIENCE_S)
    where = f"socket {client.path}"
    try:
        with client:
            status = client.status()
    except BrokerUnreachable as error:
        try:
            require_claimable(client.path)
        except SocketRefused as refused:
            yield bad(where, f"no daemon can listen there: {refused.reason}", "name another with [broker] socket")
        else:
            yield warn(where, error.reason, "start it: treadle serve, or systemctl start treadle")
        return
    except BrokerError as error:
        yield bad(where, str(error), "ask who runs it for allow_users or allow_groups")
        return
    daemon = status["daemon"]
    yield fine(where, f"the daemon with pid {daemon['pid']} answers: {daemon['state']}")
    folder = os.stat(os.path.dirname(client.path) or ".").st_mode
    if folder & stat.S_IWOTH and not folder & stat.S_ISVTX:
        yield bad(where, "anybody may replace the socket", f"chmod o-w {os.path.dirname(client.path)}")
    if daemon["version"] != treadle.__version__:
        what = f"the daemon is treadle {daemon['version']}, this is {treadle.__version__}"
        yield warn(where, what, "restart the daemon: treadle shutdown, then treadle serve")
    if daemon["containment"] != "cgroup":
        what = "servers are contained by looking for their descendants, as no cgroup was delegated to the daemon"
        yield warn(where, what, "run it as a systemd service with Delegate=yes: treadle install-service")
    if config is not None and os.path.isabs(daemon["config"]) and not _same(daemon["config"], config.file):
        what = f"the daemon runs {daemon['config']}, not {config.file}: its servers are others"
        yield warn(where, what, f"look at that one: treadle doctor --config {daemon['config']}")
    for row in status["servers"]:
        if row["state"] in ("refused", "retired", "parked", "unconfirmed"):
            what = f"it is {row['state']}" + (f": {row['reason']}" if "reason" in row else "")
            fix = f"treadle logs {row['name']}, treadle status {row['name']}"
            if row["state"] == "refused":  # nothing was spawned that could have written a word
                fix = f"put that right, then treadle reload or treadle start {row['name']}"
            yield warn(f"server {row['name']}", what, fix)


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def systemd(uid: int, root: str = "/") -> Iterator[Finding]:
    """Whether systemd is here, knows Treadle, and lets it outlive the session."""
    if not os.path.isdir(os.path.join(root, "run/systemd/system")):
        yield fine("systemd", "not here; the daemon runs as you start it")
        return
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    user = os.path.join(home, "systemd/user/treadle.service")
    system = [
        os.path.join(root, folder, "treadle.service")
        for folder in ("etc/systemd/system", "usr/lib/systemd/system")
    ]
    if any(os.path.exists(path) for path in system):
        yield fine("systemd", "the system service is installed")
    elif os.path.exists(user):
        yield fine("systemd", "the user service is installed")
        name = _login(uid)
        if not os.path.exists(os.path.join(root, "var/lib/systemd/linger", name)):
            what = "the user service ends with your last session"
            yield warn("systemd", what, f"loginctl enable-linger {name}")
    else:
        yield warn("systemd", "no service is installed", "treadle install-service --user --enable")


def _login(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
