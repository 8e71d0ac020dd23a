"""The configuration as typed values, each key with its kind, range, default and meaning (floor 0, pure).

The fields below are the one definition: the parser, the JSON schema and the reference page are made from them.
Specification: configuration page.
"""

from __future__ import annotations

import fnmatch
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, Final, Literal, get_type_hints

from treadle.config.kinds import (
    Account,
    Array,
    Boolean,
    Choice,
    Command,
    FilePath,
    Integer,
    Kind,
    Pairs,
    Text,
    Variable,
)
from treadle.config.wording import key_text
from treadle.errors import Problem

DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table: ``name`` as in the file (``limits.memory_mb``), ``attribute`` as in the classes.

    ``default`` is what holds without the key (None: nothing is set); ``shown`` words a default that depends on the
    machine; a ``required`` key has none.
    """

    name: str
    kind: Kind
    doc: str
    attribute: tuple[str, ...]
    default: Any = None
    shown: str = ""
    required: bool = False


def _about(kind: Kind, doc: str, *, name: str = "", shown: str = "") -> dict[str, Any]:
    return {"kind": kind, "doc": doc, "name": name, "shown": shown}


def _milliseconds(minimum: int = 1) -> Integer:
    return Integer(minimum, DAY_MS, "ms")


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of a server's process; None leaves one as the daemon has it."""

    memory_mb: int | None = field(
        default=None,
        metadata=_about(Integer(1, 16_777_216, "MiB"), "most memory of the server's processes, in MiB"),
    )
    pids: int | None = field(
        default=None, metadata=_about(Integer(1, 4_194_304), "most processes and threads of the server")
    )
    open_files: int | None = field(
        default=None, metadata=_about(Integer(1, 1_048_576), "most open descriptors of one process")
    )
    cpu_seconds: int | None = field(
        default=None,
        metadata=_about(
            Integer(1, 2_147_483_647, "s"), "most processor time that one process may use in its life"
        ),
    )


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One valid ``[mcp.<name>]`` table. Two are equal when every key means the same; a reload compares them so."""

    name: str
    command: tuple[str, ...] = field(
        metadata=_about(Command(), "argv of the server, executable first; run as it stands, never through a shell")
    )
    api_key_env: str | None = field(
        default=None,
        metadata=_about(
            Variable(),
            "NAME of a variable of the daemon's environment, handed to the server under the same name; a secret",
        ),
    )
    env: dict[str, str] = field(
        default_factory=dict,
        hash=False,
        metadata=_about(
            Pairs(Text(empty=True), "strings"), "variables with their values as they stand here; not secret"
        ),
    )
    env_from: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            Array(Variable(), "names of environment variables"),
            "more variables of the daemon's environment to hand over, each required to be set; secrets",
        ),
    )
    env_files: dict[str, str] = field(
        default_factory=dict,
        hash=False,
        metadata=_about(
            Pairs(FilePath(expands=True), "paths of files"),
            "variables whose values are read from files when the server is started; secrets; `${NAME}` in a path "
            "is taken from the daemon's environment, as in `${CREDENTIALS_DIRECTORY}/token`",
        ),
    )
    cwd: str | None = field(
        default=None,
        metadata=_about(
            FilePath(), "working directory of the server", shown="the daemon's state directory for that server"
        ),
    )
    enabled: bool = field(default=True, metadata=_about(Boolean(), "false: the server is skipped"))
    lazy: bool = field(default=False, metadata=_about(Boolean(), "true: the server is started at its first use"))
    restart: Literal["never", "on-failure", "always"] = field(
        default="never",
        metadata=_about(
            Choice(("never", "on-failure", "always")),
            "whether a server that ended is started again; a clean exit 0 is no failure",
        ),
    )
    restart_backoff_ms: int = field(
        default=500,
        metadata=_about(_milliseconds(), "pause before the first restart; it doubles with every further one"),
    )
    restart_backoff_max_ms: int = field(
        default=60_000, metadata=_about(_milliseconds(), "no pause is longer than this")
    )
    restart_reset_s: int = field(
        default=60,
        metadata=_about(Integer(1, 86_400, "s"), "uptime after which pause and count of restarts begin anew"),
    )
    restart_limit: int = field(
        default=5,
        metadata=_about(
            Integer(0, 1000), "restarts without such an uptime in between; after these the server is parked"
        ),
    )
    open_timeout_ms: int = field(default=5000, metadata=_about(_milliseconds(), "budget for spawning the process"))
    handshake_timeout_ms: int = field(
        default=10_000, metadata=_about(_milliseconds(), "budget for the MCP handshake")
    )
    list_timeout_ms: int = field(
        default=30_000, metadata=_about(_milliseconds(), "budget for the whole listing of tools")
    )
    call_timeout_ms: int = field(
        default=60_000, metadata=_about(_milliseconds(), "budget of a call that names none itself")
    )
    stop_timeout_ms: int = field(
        default=5000,
        metadata=_about(
            _milliseconds(), "from the request to stop until SIGKILL; SIGTERM comes after two fifths of it"
        ),
    )
    max_in_flight: int = field(default=64, metadata=_about(Integer(1, 4096), "calls at once to this server"))
    queue: int = field(default=0, metadata=_about(Integer(0, 65_536), "calls that may wait beyond that"))
    queue_timeout_ms: int = field(
        default=1000,
        metadata=_about(_milliseconds(), "how long a call may wait so; it is no part of the call's own time"),
    )
    content: Literal["text", "all"] = field(
        default="text",
        metadata=_about(
            Choice(("text", "all")),
            '`"text"`: other blocks of a result by kind only; `"all"`: image, audio, resource and link blocks '
            "with their payload",
        ),
    )
    bad_lines: Literal["fatal", "drop"] = field(
        default="fatal",
        metadata=_about(
            Choice(("fatal", "drop")),
            'a complete line on stdout that is no JSON-RPC message: `"fatal"` ends the channel, `"drop"` drops '
            "and counts it (bytes that are not UTF-8 and lines past 16 MiB always end the channel)",
        ),
    )
    accept_versions: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            Array(Choice(("2025-11-25",)), "MCP revisions"),
            "MCP revisions accepted besides 2025-06-18, 2025-03-26 and 2024-11-05",
        ),
    )
    tools_allow: tuple[str, ...] = field(
        default=("*",),
        metadata=_about(
            Array(Text("a string with a glob"), "globs"),
            "globs over the original tool names; only matching tools are offered",
            name="tools.allow",
        ),
    )
    tools_deny: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            Array(Text("a string with a glob"), "globs"),
            "globs over the original tool names; matching tools are not offered, even when allowed",
            name="tools.deny",
        ),
    )
    limits: Limits = field(default_factory=Limits)

    def tool_allowed(self, name: str) -> bool:
        """Whether the tool of this original name is offered: some ``tools.allow`` glob matches, no ``tools.deny``.

        Globs are those of ``fnmatch``, matched case-sensitively.
        """
        return any(fnmatch.fnmatchcase(name, glob) for glob in self.tools_allow) and not any(
            fnmatch.fnmatchcase(name, glob) for glob in self.tools_deny
        )


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The ``[broker]`` table."""

    socket: str | None = field(
        default=None,
        metadata=_about(
            FilePath(),
            "path of the socket",
            shown="`$XDG_RUNTIME_DIR/treadle/treadle.sock`, for root `/run/treadle/treadle.sock`",
        ),
    )
    allow_users: tuple[str | int, ...] = field(
        default=(),
        metadata=_about(
            Array(Account("user"), "user names or ids"), "users who may connect besides the daemon's own and root"
        ),
    )
    allow_groups: tuple[str | int, ...] = field(
        default=(),
        metadata=_about(Array(Account("group"), "group names or ids"), "groups whose members may connect"),
    )
    admin_users: tuple[str | int, ...] = field(
        default=(),
        metadata=_about(
            Array(Account("user"), "user names or ids"),
            "users who may also stop, start, restart, reload and shut down, besides the daemon's own and root",
        ),
    )
    max_connections: int = field(default=256, metadata=_about(Integer(1, 65_536), "connections at once"))
    max_in_flight_per_connection: int = field(
        default=1024, metadata=_about(Integer(1, 65_536), "calls in flight of one connection")
    )
    max_in_flight: int = field(default=4096, metadata=_about(Integer(1, 65_536), "calls in flight in all"))
    drain_timeout_ms: int = field(
        default=5000, metadata=_about(_milliseconds(0), "how long a shutdown waits for the calls in flight")
    )
    max_call_timeout_ms: int = field(
        default=3_600_000, metadata=_about(_milliseconds(), "the most that a call may ask for itself")
    )
    state_dir: str | None = field(
        default=None,
        metadata=_about(
            FilePath(),
            "directory for what outlives the daemon, and for the servers' working directories",
            shown="`$STATE_DIRECTORY`, then `$XDG_STATE_HOME/treadle`, then `~/.local/state/treadle`",
        ),
    )
    log_level: Literal["debug", "info", "warning", "error"] = field(
        default="info",
        metadata=_about(Choice(("debug", "info", "warning", "error")), "the least severe records that are logged"),
    )
    log_format: Literal["text", "json"] = field(
        default="text", metadata=_about(Choice(("text", "json")), "form of the log records")
    )
    audit_log: str | None = field(
        default=None,
        metadata=_about(
            FilePath(),
            "file of JSON lines: who called what, with which outcome, in how many milliseconds",
            shown="no audit log",
        ),
    )
    audit_arguments: bool = field(
        default=False, metadata=_about(Boolean(), "true: the audit log holds the arguments of calls, too")
    )
    ready: Literal["listening", "settled"] = field(
        default="settled",
        metadata=_about(
            Choice(("listening", "settled")),
            'when the service manager is told "ready": once the socket listens, or once every server that is '
            "started at boot serves or has failed",
        ),
    )


@dataclass(frozen=True, slots=True)
class Refused:
    """An ``[mcp.<name>]`` entry with errors. ``name`` is as written and may be no legal server name."""

    name: str
    problems: tuple[Problem, ...]

    @property
    def reason(self) -> str:
        """All that is wrong with it on one line, which does not name its table."""
        table = f"[mcp.{key_text(self.name)}]"
        keys = [(problem.where.removeprefix(table).strip(), problem.what) for problem in self.problems]
        return "; ".join(f"{key}: {what}" if key else what for key, what in keys)


@dataclass(frozen=True, slots=True)
class Config:
    """A usable configuration: ``file`` as it was named, and the servers in the order of the file.

    ``warnings`` are no errors, and probably not what was meant: no server at all, a table that looks like a
    misspelled ``[mcp.<name>]``. They are no part of what the configuration means, and so not compared.
    """

    file: str
    broker: BrokerConfig = field(default_factory=BrokerConfig)
    servers: tuple[ServerConfig | Refused, ...] = ()
    warnings: tuple[Problem, ...] = field(default=(), compare=False)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Everything that is wrong with refused servers, in the order of the file; empty when all are valid."""
        found = [problem for server in self.servers if isinstance(server, Refused) for problem in server.problems]
        return tuple(sorted(found, key=lambda problem: (problem.line, problem.column)))


def _keys(table: type) -> tuple[Key, ...]:
    """The keys of a table's class, those of nested classes dotted, in the order of the page."""
    result: list[Key] = []
    hints = get_type_hints(table)
    for entry in fields(table):
        nested = hints[entry.name]
        if is_dataclass(nested) and isinstance(nested, type):
            for key in _keys(nested):
                attribute = (entry.name, *key.attribute)
                result.append(
                    Key(f"{entry.name}.{key.name}", key.kind, key.doc, attribute, key.default, key.shown)
                )
        elif "kind" in entry.metadata:
            default = entry.default if entry.default_factory is MISSING else entry.default_factory()
            result.append(
                Key(
                    name=entry.metadata["name"] or entry.name,
                    kind=entry.metadata["kind"],
                    doc=entry.metadata["doc"],
                    attribute=(entry.name,),
                    default=None if default is MISSING else default,
                    shown=entry.metadata["shown"],
                    required=default is MISSING,
                )
            )
    return tuple(result)


SERVER_KEYS: Final = _keys(ServerConfig)
"""The keys of ``[mcp.<name>]``."""
BROKER_KEYS: Final = _keys(BrokerConfig)
"""The keys of ``[broker]``."""
