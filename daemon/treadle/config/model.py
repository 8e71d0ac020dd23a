"""The configuration as typed values, each key with its kind, range, default and meaning (floor 0, pure).

The fields below are the one definition: the parser, the JSON schema and the reference page are made from them.
Specification: configuration page.
"""

# Annotations are values here, not text: they hold the definitions, and text would be compiled again at each start.
import fnmatch
from typing import Annotated, Any, Final, Literal, get_args

from msgspec import Struct, field

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


class Key(Struct, frozen=True):
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


class About(Struct, frozen=True):
    """What an annotation tells of its key, see :class:`Key`; ``name`` where it is not that of the field."""

    kind: Kind
    doc: str
    name: str = ""
    shown: str = ""


def _milliseconds(minimum: int = 1) -> Integer:
    return Integer(minimum, DAY_MS, "ms")


class Limits(Struct, frozen=True):
    """Resource limits of a server's process; None leaves one as the daemon has it."""

    memory_mb: Annotated[
        int | None, About(Integer(1, 16_777_216, "MiB"), "most memory of the server's processes, in MiB")
    ] = None
    pids: Annotated[int | None, About(Integer(1, 4_194_304), "most processes and threads of the server")] = None
    open_files: Annotated[int | None, About(Integer(1, 1_048_576), "most open descriptors of one process")] = None
    cpu_seconds: Annotated[
        int | None,
        About(Integer(1, 2_147_483_647, "s"), "most processor time that one process may use in its life"),
    ] = None


class ServerConfig(Struct, frozen=True):
    """One valid ``[mcp.<name>]`` table. Two are equal when every key means the same; a reload compares them so."""

    name: str
    command: Annotated[
        tuple[str, ...],
        About(Command(), "argv of the server, executable first; run as it stands, never through a shell"),
    ]
    api_key_env: Annotated[
        str | None,
        About(
            Variable(),
            "NAME of a variable of the daemon's environment, handed to the server under the same name; a secret",
        ),
    ] = None
    env: Annotated[
        dict[str, str],
        About(Pairs(Text(empty=True), "strings"), "variables with their values as they stand here; not secret"),
    ] = field(default_factory=dict)
    env_from: Annotated[
        tuple[str, ...],
        About(
            Array(Variable(), "names of environment variables"),
            "more variables of the daemon's environment to hand over, each required to be set; secrets",
        ),
    ] = ()
    env_files: Annotated[
        dict[str, str],
        About(
            Pairs(FilePath(expands=True), "paths of files"),
            "variables whose values are read from files when the server is started; secrets; `${NAME}` in a path "
            "is taken from the daemon's environment, as in `${CREDENTIALS_DIRECTORY}/token`",
        ),
    ] = field(default_factory=dict)
    cwd: Annotated[
        str | None,
        About(FilePath(), "working directory of the server", shown="the daemon's state directory for that server"),
    ] = None
    enabled: Annotated[bool, About(Boolean(), "false: the server is skipped")] = True
    lazy: Annotated[bool, About(Boolean(), "true: the server is started at its first use")] = False
    restart: Annotated[
        Literal["never", "on-failure", "always"],
        About(
            Choice(("never", "on-failure", "always")),
            "whether a server that ended is started again; a clean exit 0 is no failure",
        ),
    ] = "never"
    restart_backoff_ms: Annotated[
        int, About(_milliseconds(), "pause before the first restart; it doubles with every further one")
    ] = 500
    restart_backoff_max_ms: Annotated[int, About(_milliseconds(), "no pause is longer than this")] = 60_000
    restart_reset_s: Annotated[
        int, About(Integer(1, 86_400, "s"), "uptime after which pause and count of restarts begin anew")
    ] = 60
    restart_limit: Annotated[
        int,
        About(Integer(0, 1000), "restarts without such an uptime in between; after these the server is parked"),
    ] = 5
    open_timeout_ms: Annotated[int, About(_milliseconds(), "budget for spawning the process")] = 5000
    handshake_timeout_ms: Annotated[int, About(_milliseconds(), "budget for the MCP handshake")] = 10_000
    list_timeout_ms: Annotated[int, About(_milliseconds(), "budget for the whole listing of tools")] = 30_000
    call_timeout_ms: Annotated[int, About(_milliseconds(), "budget of a call that names none itself")] = 60_000
    stop_timeout_ms: Annotated[
        int, About(_milliseconds(), "from the request to stop until SIGKILL; SIGTERM comes after two fifths of it")
    ] = 5000
    max_in_flight: Annotated[int, About(Integer(1, 4096), "calls at once to this server")] = 64
    queue: Annotated[int, About(Integer(0, 65_536), "calls that may wait beyond that")] = 0
    queue_timeout_ms: Annotated[
        int, About(_milliseconds(), "how long a call may wait so; it is no part of the call's own time")
    ] = 1000
    content: Annotated[
        Literal["text", "all"],
        About(
            Choice(("text", "all")),
            '`"text"`: other blocks of a result by kind only; `"all"`: image, audio, resource and link blocks '
            "with their payload",
        ),
    ] = "text"
    bad_lines: Annotated[
        Literal["fatal", "drop"],
        About(
            Choice(("fatal", "drop")),
            'a complete line on stdout that is no JSON-RPC message: `"fatal"` ends the channel, `"drop"` drops '
            "and counts it (bytes that are not UTF-8 and lines past 16 MiB always end the channel)",
        ),
    ] = "fatal"
    accept_versions: Annotated[
        tuple[str, ...],
        About(
            Array(Choice(("2025-11-25",)), "MCP revisions"),
            "MCP revisions accepted besides 2025-06-18, 2025-03-26 and 2024-11-05",
        ),
    ] = ()
    tools_allow: Annotated[
        tuple[str, ...],
        About(
            Array(Text("a string with a glob"), "globs"),
            "globs over the original tool names; only matching tools are offered",
            name="tools.allow",
        ),
    ] = ("*",)
    tools_deny: Annotated[
        tuple[str, ...],
        About(
            Array(Text("a string with a glob"), "globs"),
            "globs over the original tool names; matching tools are not offered, even when allowed",
            name="tools.deny",
        ),
    ] = ()
    limits: Limits = field(default_factory=Limits)

    def tool_allowed(self, name: str) -> bool:
        """Whether the tool of this original name is offered: some ``tools.allow`` glob matches, no ``tools.deny``.

        Globs are those of ``fnmatch``, matched case-sensitively.
        """
        return any(fnmatch.fnmatchcase(name, glob) for glob in self.tools_allow) and not any(
            fnmatch.fnmatchcase(name, glob) for glob in self.tools_deny
        )


class BrokerConfig(Struct, frozen=True):
    """The ``[broker]`` table."""

    socket: Annotated[
        str | None,
        About(
            FilePath(),
            "path of the socket",
            shown="`$XDG_RUNTIME_DIR/treadle/treadle.sock`, for root `/run/treadle/treadle.sock`",
        ),
    ] = None
    allow_users: Annotated[
        tuple[str | int, ...],
        About(
            Array(Account("user"), "user names or ids"), "users who may connect besides the daemon's own and root"
        ),
    ] = ()
    allow_groups: Annotated[
        tuple[str | int, ...],
        About(Array(Account("group"), "group names or ids"), "groups whose members may connect"),
    ] = ()
    admin_users: Annotated[
        tuple[str | int, ...],
        About(
            Array(Account("user"), "user names or ids"),
            "users who may also stop, start, restart, reload and shut down, besides the daemon's own and root",
        ),
    ] = ()
    max_connections: Annotated[int, About(Integer(1, 65_536), "connections at once")] = 256
    max_in_flight_per_connection: Annotated[
        int, About(Integer(1, 65_536), "calls in flight of one connection")
    ] = 1024
    max_in_flight: Annotated[int, About(Integer(1, 65_536), "calls in flight in all")] = 4096
    drain_timeout_ms: Annotated[
        int, About(_milliseconds(0), "how long a shutdown waits for the calls in flight")
    ] = 5000
    max_call_timeout_ms: Annotated[int, About(_milliseconds(), "the most that a call may ask for itself")] = (
        3_600_000
    )
    state_dir: Annotated[
        str | None,
        About(
            FilePath(),
            "directory for what outlives the daemon, and for the servers' working directories",
            shown="`$STATE_DIRECTORY`, then `$XDG_STATE_HOME/treadle`, then `~/.local/state/treadle`",
        ),
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        About(Choice(("debug", "info", "warning", "error")), "the least severe records that are logged"),
    ] = "info"
    log_format: Annotated[Literal["text", "json"], About(Choice(("text", "json")), "form of the log records")] = (
        "text"
    )
    audit_log: Annotated[
        str | None,
        About(
            FilePath(),
            "file of JSON lines: who called what, with which outcome, in how many milliseconds",
            shown="no audit log",
        ),
    ] = None
    audit_arguments: Annotated[bool, About(Boolean(), "true: the audit log holds the arguments of calls, too")] = (
        False
    )
    ready: Annotated[
        Literal["listening", "settled"],
        About(
            Choice(("listening", "settled")),
            'when the service manager is told "ready": once the socket listens, or once every server that is '
            "started at boot serves or has failed",
        ),
    ] = "settled"


class Refused(Struct, frozen=True):
    """An ``[mcp.<name>]`` entry with errors. ``name`` is as written and may be no legal server name."""

    name: str
    problems: tuple[Problem, ...]

    @property
    def reason(self) -> str:
        """All that is wrong with it on one line, which does not name its table."""
        table = f"[mcp.{key_text(self.name)}]"
        keys = [(problem.where.removeprefix(table).strip(), problem.what) for problem in self.problems]
        return "; ".join(f"{key}: {what}" if key else what for key, what in keys)


class Config(Struct, frozen=True):
    """A usable configuration: ``file`` as it was named, and the servers in the order of the file.

    ``warnings`` are no errors, and probably not what was meant: no server at all, a table that looks like a
    misspelled ``[mcp.<name>]``. They are no part of what the configuration means, and so not compared.
    """

    file: str
    broker: BrokerConfig = field(default_factory=BrokerConfig)
    servers: tuple[ServerConfig | Refused, ...] = ()
    warnings: tuple[Problem, ...] = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Config):
            return NotImplemented
        return (self.file, self.broker, self.servers) == (other.file, other.broker, other.servers)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Everything that is wrong with refused servers, in the order of the file; empty when all are valid."""
        found = [problem for server in self.servers if isinstance(server, Refused) for problem in server.problems]
        return tuple(sorted(found, key=lambda problem: (problem.line, problem.column)))


def _keys(table: type[Struct]) -> tuple[Key, ...]:
    """The keys of a table's class, those of nested classes dotted, in the order of the page."""
    result: list[Key] = []
    names = table.__struct_fields__
    required = names[: len(names) - len(table.__struct_defaults__)]
    defaults = table(**dict.fromkeys(required))
    for name in names:
        annotation = table.__annotations__[name]
        if isinstance(annotation, type) and issubclass(annotation, Struct):
            for key in _keys(annotation):
                attribute = (name, *key.attribute)
                result.append(Key(f"{name}.{key.name}", key.kind, key.doc, attribute, key.default, key.shown))
        about = next((one for one in get_args(annotation) if isinstance(one, About)), None)
        if about is not None:
            written, default = about.name or name, getattr(defaults, name)
            result.append(Key(written, about.kind, about.doc, (name,), default, about.shown, name in required))
    return tuple(result)


SERVER_KEYS: Final = _keys(ServerConfig)
"""The keys of ``[mcp.<name>]``."""
BROKER_KEYS: Final = _keys(BrokerConfig)
"""The keys of ``[broker]``."""
