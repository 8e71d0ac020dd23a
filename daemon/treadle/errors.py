"""Everything that can go wrong, as typed values that carry their facts (floor 0, pure).

A fault is an exception, so that it can be raised; it is also a value: two faults of one type with equal
facts are equal. The sentence that a person reads is made in one place, :func:`explain`, and the code that a
client of the socket sees in another, :func:`failure_code` (specification: MCP client page, section 8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, dataclass_transform

from msgspec import Struct

Outcome = Literal["not_sent", "unknown", "answered"]
"""What is known of a failed call: nothing reached the server; sent and unanswered; the server answered."""


_MISSING: Final = object()


@dataclass_transform(eq_default=False)
class Fault(Exception):
    """Base of every typed fault. ``str()`` of one is the sentence for people.

    The annotations of a subclass are its facts, as those of a dataclass are its fields: ``__init__`` takes them in
    their order or by name. Written out here because the daemon defines dozens of them, and the code that a
    dataclass generates for each is a noticeable part of its start.
    """

    __match_args__: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        own = (name for name in cls.__annotations__ if name not in cls.__match_args__)
        cls.__match_args__ = (*cls.__match_args__, *own)  # type: ignore[misc]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        names = self.__match_args__
        if len(args) > len(names):
            raise TypeError(f"{type(self).__name__} has {len(names)} facts, {len(args)} were given")
        facts = dict(zip(names, args, strict=False))
        for name in names[len(args) :]:
            facts[name] = kwargs.pop(name, getattr(type(self), name, _MISSING))
            if facts[name] is _MISSING:
                raise TypeError(f"{type(self).__name__} needs its fact {name!r}")
        if kwargs:
            raise TypeError(f"{type(self).__name__} has no fact {', '.join(kwargs)} or was given it twice")
        super().__init__(*facts.values())
        self.__dict__.update(facts)

    def __repr__(self) -> str:
        facts = (f"{name}={self.__dict__[name]!r}" for name in self.__match_args__)
        return f"{type(self).__name__}({', '.join(facts)})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(type(self))

    def __str__(self) -> str:
        return explain(self)


# --- the byte channel and the JSON-RPC envelope: these end the channel ---------------------------------------


class ChannelFault(Fault):
    """The peer broke the framing or the envelope; nothing after it on the channel can be trusted."""


class LineTooLong(ChannelFault):
    """A line, complete or pending, passed ``limit`` bytes; ``seen`` is how many had come."""

    limit: int
    seen: int


class NotUtf8(ChannelFault):
    """Bytes that can never become UTF-8. ``quoted`` is the sanitised beginning of the line."""

    offset: int
    quoted: str


class Malformed(ChannelFault):
    """The line is not one well-formed JSON document. ``detail`` says why, ``quoted`` is its beginning."""

    detail: str
    quoted: str


class BadMessage(ChannelFault):
    """The line is JSON but no JSON-RPC 2.0 message. ``expected`` names what a good one would have carried."""

    expected: str
    quoted: str


class EchoedRequest(ChannelFault):
    """The request ``initialize``, which a client alone sends, came back: the program is no MCP server."""


# --- the content of one message: these cost the call that the message answers --------------------------------


class NotCarriable(Fault):
    """A payload that is JSON but cannot be represented: ``what`` was found at ``path`` (``$`` is its root)."""

    what: str
    path: str = "$"


class FieldFault(Fault):
    """A field of an MCP message is missing or of the wrong type.

    ``message`` is the MCP name of the message (``"tools/list result"``), ``field`` a path such as
    ``tools[3].name``, ``expected`` and ``found`` are worded types.
    """

    message: str
    field: str
    expected: str
    found: str


class DuplicateTool(Fault):
    """One tool name is listed twice, at the global indexes ``first`` and ``second`` (from 0)."""

    name: str
    first: int
    second: int


class CursorRepeated(Fault):
    """``nextCursor`` names a cursor that this listing already followed; ``page`` counts from 1."""

    cursor: str
    page: int


class TooManyPages(Fault):
    """The listing went on after ``cap`` pages."""

    cap: int


# --- a call ---------------------------------------------------------------------------------------


class CallFault(Fault):
    """A call, a listing or another request that did not end in a result."""

    if TYPE_CHECKING:
        # A fact of each subclass, at the end of its own.
        @property
        def outcome(self) -> Outcome: ...
        @outcome.setter
        def outcome(self, value: Outcome) -> None: ...


class Unavailable(CallFault):
    """The server's channel is dead, was never opened, or is not ready; ``reason`` is the latched reason."""

    reason: str
    outcome: Outcome = "not_sent"


class CallTimedOut(CallFault):
    """No answer within the call's own deadline of ``after_ms`` milliseconds."""

    after_ms: int
    outcome: Outcome = "unknown"


class ServerError(CallFault):
    """The server answered a JSON-RPC error. ``data`` is the raw JSON of its ``data``, or None when absent."""

    code: int
    message: str
    data: bytes | None = None
    outcome: Outcome = "answered"


class ResultMalformed(CallFault):
    """The answer is not the promised shape or cannot be carried to msgpack."""

    reason: str
    outcome: Outcome = "answered"


class InvalidArgument(CallFault):
    """The request's own shape or arguments cannot be carried. ``found`` was met at ``path``."""

    path: str
    found: str
    outcome: Outcome = "not_sent"


class UnknownServer(CallFault):
    """No such ``[mcp.<name>]``; ``configured`` lists the names there are."""

    name: str
    configured: tuple[str, ...]
    outcome: Outcome = "not_sent"


class Overloaded(CallFault):
    """An admission limit is reached: ``key`` is its configuration key, ``limit`` its value."""

    key: str
    limit: int
    where: str
    outcome: Outcome = "not_sent"


class Cancelled(CallFault):
    """The caller withdrew the call."""

    outcome: Outcome = "unknown"


class ShuttingDown(CallFault):
    """The daemon takes no new calls, or stopped waiting for this one."""

    outcome: Outcome = "not_sent"


class Denied(CallFault):
    """``what`` is not allowed to this peer, or this tool is not offered through the broker."""

    what: str
    outcome: Outcome = "not_sent"


class TooLarge(CallFault):
    """A request or an answer of ``size`` bytes passes ``limit``; ``what`` names which."""

    what: str
    size: int
    limit: int
    outcome: Outcome = "not_sent"


# --- a start and a retirement ---------------------------------------------------------------------


class StartFault(Fault):
    """A server could not be brought to serve."""


class TransportFailed(StartFault):
    """The transport could not be opened; ``reason`` says what and where, ``fix`` what to do if we know."""

    reason: str
    fix: str = ""


class EnvironmentRefused(StartFault):
    """``variable``, named by the configuration key ``key``, has no usable value; ``reason`` follows its name.

    Raised before anything is spawned (configuration page). Holds no value.
    """

    server: str
    variable: str
    reason: str
    key: str


class HandshakeFailed(StartFault):
    """The server died, erred or stayed silent before it was ready; ``error`` is the cause, ``phase`` where."""

    error: Fault
    phase: str = "initialize"


class VersionUnsupported(StartFault):
    """The server chose a protocol version (``server``) outside ``supported`` (newest first)."""

    server: str
    supported: tuple[str, ...]


class ToolsNotDeclared(StartFault):
    """The server declares no ``tools`` capability, so there is nothing to broker."""


class StartTimedOut(StartFault):
    """``phase`` did not end within its budget of ``after_ms`` milliseconds (key ``key``)."""

    phase: str
    after_ms: int
    key: str


class CleanupUnconfirmed(StartFault):
    """A failed start whose process could not be proven gone; ``cause`` is why the start failed."""

    server: str
    cause: Fault


class RetirementFault(Fault):
    """A retirement without evidence. Never authorises a replacement."""


class RetirementTimedOut(RetirementFault):
    """No evidence within ``within_ms`` milliseconds; the owner still has custody."""

    server: str
    within_ms: int


class RetirementUnconfirmed(RetirementFault):
    """The owner vanished before evidence came; ``reason`` says how."""

    server: str
    reason: str


class ChannelClosed(Fault):
    """The transport ended. ``reason`` holds the exit status or signal and what stderr said last."""

    reason: str


class Stopped(Fault):
    """The client was told to stop."""

    by: str = "an explicit stop"


# --- code generation ------------------------------------------------------------------------------


class GenerationRefused(Fault):
    """No module is made from a listing (codegen page, sections 2 and 3). Server text in it is clean and short."""


class TooManyTools(GenerationRefused):
    """The listing holds ``count`` tools, more than a module may have."""

    count: int
    server: str = ""


class SurfaceTooLarge(GenerationRefused):
    """The surface takes ``size`` bytes of UTF-8 after every cut, or more where it was not worth writing out."""

    size: int
    server: str = ""


class SanitizerBreach(GenerationRefused):
    """Rendered text holds a shape that a generated module never has; ``detail`` says which, and where."""

    detail: str
    server: str = ""


class NameCollision(GenerationRefused):
    """The tools ``first`` and ``second`` (original names) would both become the function ``name``."""

    name: str
    first: str
    second: str
    server: str = ""


# --- configuration --------------------------------------------------------------------------------


class Problem(Struct, frozen=True):
    """One thing wrong in a configuration file.

    ``file`` is empty where none was found; ``line`` and ``column`` count from 1 (0: the file as a whole);
    ``source`` is the line itself; ``where`` is a table and key such as ``[mcp.github] comand``; ``fix`` says what
    to write.
    """

    file: str
    line: int
    column: int
    where: str
    what: str
    fix: str
    source: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        head = ": ".join(part for part in (place, self.where, self.what) if part)
        text = f"{head}\n    {self.source.strip()}" if self.source.strip() else head
        return f"{text}\n  fix: {self.fix}" if self.fix else text


class ListenerRefused(Fault):
    """The metrics cannot be served over HTTP; ``reason`` says why and what to do."""

    reason: str


class ConfigError(Fault):
    """The configuration cannot be used; ``problems`` holds all of them, in file order."""

    problems: tuple[Problem, ...] = ()


BAD_LINE_ADVICE: Final = '; a server must log to stderr; bad_lines = "drop" drops such lines'


def explain(fault: Fault) -> str:
    """The one sentence that a person reads for ``fault``: what happened, where, and what to do if we know.

    Text that came from a server must be sanitised and redacted before it enters a fault.
    """
    match fault:
        case LineTooLong(limit, seen):
            return f"line too long: {seen} bytes without an end, the limit is {limit}; that ends the server"
        case NotUtf8(offset, quoted):
            return f"bytes that are not UTF-8 at offset {offset} of the line, which ends the server: {quoted}"
        case Malformed(detail, quoted):
            return f"a line on stdout is not JSON ({detail}): {quoted}{BAD_LINE_ADVICE}"
        case BadMessage(expected, quoted):
            return f"a line on stdout is no JSON-RPC 2.0 message (expected {expected}): {quoted}{BAD_LINE_ADVICE}"
        case EchoedRequest():
            return "the server sends back what it is sent: it is no MCP server; see command"
        case NotCarriable(what, path):
            return f"{what} at {path} cannot be carried"
        case FieldFault(message, name, expected, found):
            return f"{message}: {name} must be {expected}, found {found}"
        case DuplicateTool(name, first, second):
            return f"tools/list result: tools[{second}] repeats the name {name!r} of tools[{first}]"
        case CursorRepeated(cursor, page):
            return f"tools/list: page {page} points back to the cursor {cursor!r}, which was already followed"
        case TooManyPages(cap):
            return f"tools/list went on after {cap} pages"
        case Unavailable(reason):
            return reason
        case CallTimedOut(after_ms):
            return f"no answer within {after_ms} ms"
        case ServerError(code, message):
            return f"the server answered error {code}: {message}"
        case ResultMalformed(reason):
            return reason
        case InvalidArgument(path, found):
            return f"{path}: {found}"
        case UnknownServer(name, configured):
            there = f"configured: {', '.join(configured)}" if configured else "no server is configured"
            return f"no server named {name!r}; {there}"
        case Overloaded(key, limit, where):
            return f"{where} is at its limit: {key} = {limit}"
        case Cancelled():
            return "the call was cancelled by its caller"
        case ShuttingDown(outcome):
            return (
                "the daemon is shutting down and takes no new calls"
                if outcome == "not_sent"
                else "the daemon shut down before the answer came"
            )
        case Denied(what):
            return what
        case TooLarge(what, size, limit):
            return f"{what} is {size} bytes, the limit is {limit}"
        case TransportFailed(reason, fix):
            return f"{reason}: {fix}" if fix else reason
        case EnvironmentRefused(server, variable, reason, key):
            return f"server {server}: {variable} ({key}) {reason}; {_remedy(variable, key)}"
        case HandshakeFailed(error, phase):
            return f"{phase} failed: {explain(error)}"
        case VersionUnsupported(server, supported):
            return f"the server speaks MCP {server!r}; supported: {', '.join(supported)}"
        case ToolsNotDeclared():
            return "the server declares no tools capability: there is nothing to list or call"
        case StartTimedOut(phase, after_ms, key):
            return f"{phase} did not finish within {after_ms} ms ({key})"
        case CleanupUnconfirmed(server, cause):
            return f"server {server}: start failed ({explain(cause)}) and its process is not proven gone"
        case RetirementTimedOut(server, within_ms):
            return f"server {server}: no evidence of its end within {within_ms} ms; it is still in custody"
        case RetirementUnconfirmed(server, reason):
            return f"server {server}: its end cannot be confirmed: {reason}"
        case ChannelClosed(reason):
            return reason
        case Stopped(by):
            return f"stopped by {by}"
        case TooManyTools(count, server):
            return f"server {server}: no module is generated from {count} tools, the limit is 256; see tools.allow"
        case SurfaceTooLarge(size, server):
            return (
                f"server {server}: no module is generated, its surface would take at least {size} bytes and the "
                "limit is 65536; see tools.allow"
            )
        case SanitizerBreach(detail, server):
            return f"server {server}: no module is generated, text of the server would pass as code: {detail}"
        case NameCollision(name, first, second, server):
            return (
                f"server {server}: no module is generated, the tools {first!r} and {second!r} would both be named "
                f"{name}; see tools.deny"
            )
        case ListenerRefused(reason):
            return reason
        case ConfigError(problems):
            return "\n".join(str(problem) for problem in problems)
        case _:
            return type(fault).__name__


def reason_of(fault: Fault, server: str) -> str:
    """:func:`explain` for a place that names the ``server`` by itself, such as its row in ``status``."""
    return explain(fault).removeprefix(f"server {server}: ")


def _remedy(variable: str, key: str) -> str:
    """How to give a server the value of ``variable`` that the configuration names with ``key``."""
    if key == "env_files":
        return (
            "write the value into a file that the daemon's user can read; under systemd, "
            f"LoadCredential={variable}:FILE in the unit and ${{CREDENTIALS_DIRECTORY}}/{variable} as the path"
        )
    return (
        f"export {variable} where the daemon is started; under systemd, EnvironmentFile= in its unit, or "
        "LoadCredential= and env_files"
    )


def failure_code(fault: Fault) -> str:
    """The code under which a failed request reaches a client of the socket (client page, section 8)."""
    match fault:
        case CallTimedOut():
            return "mcp_timeout"
        case ServerError(code):
            return f"jsonrpc_{code}"
        case InvalidArgument() | ConfigError():
            return "invalid_argument"
        case UnknownServer():
            return "unknown_server"
        case Overloaded():
            return "overloaded"
        case Cancelled():
            return "cancelled"
        case ShuttingDown():
            return "shutting_down"
        case Denied():
            return "denied"
        case TooLarge():
            return "too_large"
        case (
            ResultMalformed()
            | NotCarriable()
            | FieldFault()
            | DuplicateTool()
            | CursorRepeated()
            | TooManyPages()
            | GenerationRefused()
        ):
            return "mcp_malformed"
        case _:
            return "mcp_unavailable"
