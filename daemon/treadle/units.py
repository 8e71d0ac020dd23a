"""The texts of the systemd units and snippets, for one installation of Treadle (floor 6, pure).

The files in ``systemd/`` of the source are these very texts for a ``treadle`` in ``/usr/bin``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

PACKAGED: Final = "/usr/bin/treadle"
"""The command of a packaged installation, as the files in ``systemd/`` name it."""
MARK: Final = "# Part of Treadle"
"""How every text begins; a file that begins otherwise is somebody else's."""

_SERVICE: Final = """\
{mark}, the broker daemon for MCP servers: the system service.
#
# Every setting below reaches the servers too, because they are the daemon's children. What a server of
# yours needs beyond it goes into a drop-in (`systemctl edit treadle`), not into this file.

[Unit]
Description=Treadle, the broker daemon for MCP servers
Requires=treadle.socket
After=treadle.socket network.target
# Ten starts in a minute, then it stays down and the socket with it: `systemctl reset-failed treadle.socket`.
StartLimitIntervalSec=60
StartLimitBurst=10

[Service]
Type=notify
NotifyAccess=main
ExecStart={treadle} serve --config {config}
# Synchronous, and it fails with the reason when the new configuration is refused.
ExecReload={treadle} --socket {socket} reload
User=treadle
Group=treadle
# What servers inherit besides HOME and PATH. The account's own shell is none that a server could use.
Environment=SHELL=/bin/sh XDG_RUNTIME_DIR=%t/treadle/private
# A watchdog's kill leaves the place where the daemon hung in the journal.
Environment=PYTHONFAULTHANDLER=1
WorkingDirectory=%S/treadle

# Start: the daemon asks for more when a server's own time-outs are longer.
TimeoutStartSec=90
# Stop: calls in flight (drain_timeout_ms 5 s), end of file, SIGTERM, SIGKILL and proof for the servers
# (stop_timeout_ms 5 s + 6 s), orphans (5 s); the daemon asks for more when its configuration needs it.
TimeoutStopSec=45
# SIGTERM is for the daemon, which ends its servers one by one; what then is left gets SIGKILL.
KillMode=mixed
Restart=on-failure
RestartSec=500ms
# 2: the configuration cannot be used. 8: it ended as told, a server's end could not be confirmed.
RestartPreventExitStatus=2 8
# The sign of life comes from the event loop.
WatchdogSec=30

# A cgroup for each server: its end is proven by the kernel, its limits are enforced by it.
Delegate=yes
# A server that runs out of memory is one server's trouble.
OOMPolicy=continue
TasksMax=4096
LimitNOFILE=65536

# /run/treadle is root's: only a directory inside it belongs to the daemon, so that no server replaces the socket.
RuntimeDirectory=treadle/private
RuntimeDirectoryMode=0700
StateDirectory=treadle
StateDirectoryMode=0700
LogsDirectory=treadle
LogsDirectoryMode=0750
UMask=0077

# Credentials: a file that only root can read; the daemon sees it in $CREDENTIALS_DIRECTORY, and a server gets
# its value by  env_files = {{ API_KEY = "${{CREDENTIALS_DIRECTORY}}/example_api_key" }}
#LoadCredential=example_api_key:/etc/treadle/credentials/example_api_key
#LoadCredentialEncrypted=example_api_key:/etc/treadle/credentials/example_api_key.cred

# --- Hardening: as far as servers in Python, in Node.js and below bubblewrap still run ---

NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
PrivateMounts=yes
ProtectProc=invisible
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RemoveIPC=yes
KeyringMode=private
SystemCallArchitectures=native
# Servers talk to the internet; bubblewrap sets up the loopback device of a private network by netlink.
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
# @pkey: Node.js. @mount: bubblewrap. landlock: sandboxes that need no namespace.
SystemCallFilter=@system-service @pkey @mount
SystemCallFilter=landlock_create_ruleset landlock_add_rule landlock_restrict_self
# Priorities, processor affinity, memory placement: what a program of this kind can do without.
SystemCallFilter=~@resources
# Told so, programs go on without the call; killed, they could not even say which it was.
SystemCallErrorNumber=EPERM

# --- What is left open, and why ---

# Node.js writes machine code and runs it.
MemoryDenyWriteExecute=no
# The daemon makes a cgroup for each server, below its own only.
ProtectControlGroups=no
# bubblewrap makes user, mount, pid, ipc, uts, network and cgroup namespaces; no other kind exists for it.
RestrictNamespaces=user mnt pid ipc uts net cgroup
# bubblewrap reads /proc/sys, Node.js counts processors, the daemon reads the boot's identity.
ProcSubset=all
# In a user namespace of its own the daemon would see every client as "nobody" and could let nobody in.
PrivateUsers=no
# Servers talk to the internet. A set of servers that need not: PrivateNetwork=yes in a drop-in.
PrivateNetwork=no

[Install]
Also=treadle.socket
WantedBy=multi-user.target
"""

_SOCKET: Final = """\
{mark}: the socket of the system service.
#
# It is systemd's: it is there before the daemon, stays while the daemon restarts, and clients wait in its queue.

[Unit]
Description=Socket of Treadle, the broker daemon for MCP servers

[Socket]
ListenStream={socket}
FileDescriptorName=treadle
# Who may open it: root and the group. Who of those may use it is said by allow_users and allow_groups in
# [broker]; the daemon asks the kernel who connected.
SocketUser=root
SocketGroup=treadle
SocketMode=0660
DirectoryMode=0755
# Clients that wait while the daemon restarts; one more waits or fails as its own program decides.
Backlog=1024
RemoveOnStop=yes

[Install]
WantedBy=sockets.target
"""

_USER_SERVICE: Final = """\
{mark}, the broker daemon for MCP servers: the service of one user.

[Unit]
Description=Treadle, the broker daemon for MCP servers
Requires=treadle.socket
After=treadle.socket
StartLimitIntervalSec=60
StartLimitBurst=10

[Service]
Type=notify
NotifyAccess=main
ExecStart={treadle} serve
ExecReload={treadle} --socket {socket} reload
Environment=PYTHONFAULTHANDLER=1
TimeoutStartSec=90
# As in the system service: the drain, the longest stop of a server with its proof, orphans.
TimeoutStopSec=45
KillMode=mixed
Restart=on-failure
RestartSec=500ms
RestartPreventExitStatus=2 8
WatchdogSec=30
Delegate=yes
# The mark by which the system's systemd says so is not there for a user's.
Environment=TREADLE_DELEGATED=yes
OOMPolicy=continue
UMask=0077

# No StateDirectory=: for a user this version of systemd would put it into ~/.config, among the configuration.
# The daemon keeps its state in ~/.local/state/treadle.

# The servers are the user's own programs and work on the user's own files, so only what no tool needs is taken.
NoNewPrivileges=yes
RestrictSUIDSGID=yes
RestrictRealtime=yes
LockPersonality=yes
SystemCallArchitectures=native

[Install]
Also=treadle.socket
WantedBy=default.target
"""

_USER_SOCKET: Final = """\
{mark}: the socket of one user's service.

[Unit]
Description=Socket of Treadle, the broker daemon for MCP servers

[Socket]
ListenStream={socket}
FileDescriptorName=treadle
SocketMode=0600
DirectoryMode=0700
Backlog=1024
RemoveOnStop=yes

[Install]
WantedBy=sockets.target
"""

_SYSUSERS: Final = """\
{mark}: the account that the system service runs as, see sysusers.d(5).
u treadle - "Treadle, the broker daemon for MCP servers" /var/lib/treadle
"""

_TMPFILES: Final = """\
{mark}: the directories of the system service, see tmpfiles.d(5).
d /run/treadle 0755 root root -
d /etc/treadle 0755 root root -
d /etc/treadle/credentials 0700 root root -
"""

_DROP_IN: Final = """\
{mark}: an example of /etc/systemd/system/treadle.service.d/servers.conf.
#
# What servers of your own need beyond treadle.service. Take the lines that apply, and only those: each opens
# the sandbox for every server of this daemon.

[Service]
# A secret: written by `systemd-creds encrypt`, readable by this service alone.
LoadCredentialEncrypted=github_token:/etc/treadle/credentials/github_token.cred

# A server that works on files of the machine.
ReadWritePaths=/srv/projects

# A server that reads files below /home (its own permissions still count).
ProtectHome=read-only

# npx, uvx and others that keep a cache: it lies in the state directory.
Environment=npm_config_cache=%S/treadle/npm UV_CACHE_DIR=%S/treadle/uv
"""


@dataclass(frozen=True, slots=True)
class Unit:
    """One file: its ``path`` below the root of the file system (or the user's configuration), and its text."""

    path: str
    text: str


def system_units(treadle: str = PACKAGED, config: str = "/etc/treadle/treadle.toml") -> tuple[Unit, ...]:
    """The files of the system service. ``treadle`` is the absolute path of the command. Raises ValueError for a
    path that no unit can name."""
    values = _values(treadle, config, "/run/treadle/treadle.sock")
    return (
        Unit("/etc/systemd/system/treadle.service", _SERVICE.format(**values)),
        Unit("/etc/systemd/system/treadle.socket", _SOCKET.format(**values)),
        Unit("/etc/sysusers.d/treadle.conf", _SYSUSERS.format(**values)),
        Unit("/etc/tmpfiles.d/treadle.conf", _TMPFILES.format(**values)),
    )


def user_units(treadle: str = PACKAGED) -> tuple[Unit, ...]:
    """The files of one user's service, below ``$XDG_CONFIG_HOME``. Raises ValueError as :func:`system_units`."""
    values = _values(treadle, "", "%t/treadle/treadle.sock")
    return (
        Unit("systemd/user/treadle.service", _USER_SERVICE.format(**values)),
        Unit("systemd/user/treadle.socket", _USER_SOCKET.format(**values)),
    )


def sources() -> dict[str, str]:
    """The files in ``systemd/`` of the source tree: relative path to text."""
    service, socket, sysusers, tmpfiles = (unit.text for unit in system_units())
    user_service, user_socket = (unit.text for unit in user_units())
    return {
        "treadle.service": service,
        "treadle.socket": socket,
        "user/treadle.service": user_service,
        "user/treadle.socket": user_socket,
        "sysusers.d/treadle.conf": sysusers,
        "tmpfiles.d/treadle.conf": tmpfiles,
        "treadle.service.d/servers.conf.example": _DROP_IN.format(mark=MARK),
    }


def _values(treadle: str, config: str, socket: str) -> dict[str, str]:
    return {"mark": MARK, "treadle": _word(treadle), "config": _word(config), "socket": socket}


def _word(path: str) -> str:
    """``path`` as one word of a command line in a unit."""
    if any(not char.isprintable() for char in path):
        raise ValueError(f"a unit cannot name the path {path!r}")
    path = path.replace("%", "%%").replace("$", "$$")
    if re.fullmatch(r"[\w@%+=:,./~-]*|", path):
        return path
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
