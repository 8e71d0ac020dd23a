"""What both clients share and is pure: the requests' bodies, the reading of their answers, the wording."""

from __future__ import annotations

import os

from treadle_client.errors import BrokerUnreachable, Denied, ResultMalformed, ToolFailed, error_of
from treadle_client.frames import FrameTooLarge, FrameUnencodable, encode
from treadle_client.paths import LONGEST
from treadle_client.results import ToolResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Literal

    from treadle_client.errors import BrokerError, Outcome
    from treadle_client.frames import Frame, FrameFault

PROTOCOL = 1

GRACE = 5.0
"""Seconds that a client waits past a call's own time-out for the daemon to say that it timed out (the call may
have waited in a queue before, which does not eat its time)."""

SILENCE = 15.0
"""Seconds without a byte from the daemon while an answer is due, after which a client sends a heartbeat; after as
many again it takes the daemon for hung."""


class Request:
    """One request: its frame's ``kind`` and ``body``, what makes its result of the answer's value (``read``), and
    the seconds that it may take (``patience``; None: no limit of its own)."""

    __slots__ = ("body", "kind", "patience", "read")

    def __init__(
        self, kind: str, body: dict[str, Any], read: Callable[[Any], Any], patience: float | None = None
    ) -> None:
        self.kind = kind
        self.body = body
        self.read = read
        self.patience = patience


def hello(peer: str, id: int) -> bytes:  # noqa: A002
    """The frame that a connection starts with."""
    return encode(id, "hello", {"proto": PROTOCOL, "peer": peer, "features": []})


def encoded(id: int, request: Request) -> bytes:  # noqa: A002
    """The request's frame. Raises :class:`Denied` (``too_large``, ``invalid_argument``): nothing was sent then."""
    try:
        return encode(id, request.kind, request.body)
    except FrameTooLarge as error:
        message = f"the request is {error.size} bytes, the limit is {error.limit}"
        raise Denied("too_large", message, "not_sent") from None
    except FrameUnencodable as error:
        path = error.path.removeprefix("$.arguments") if request.kind == "call" else error.path
        path = path if path.startswith("$") else f"${path}"
        raise Denied("invalid_argument", f"{path}: {error.found}", "not_sent") from None


def value_of(frame: Frame, request: Request) -> Any:
    """The request's result from its answer. Raises the error that the answer says."""
    if frame.kind == "result":
        body = frame.body
        ok = body.get("ok")
        if ok is True and "value" in body:
            return request.read(body["value"])
        if ok is False and "error" in body:
            raise error_of(body["error"])
    elif frame.kind == "heartbeat" and request.kind == "heartbeat":
        return None
    elif frame.kind == "error":
        raise refusal(frame)
    raise _malformed(f"{request.kind} was answered by a frame of kind {frame.kind[:40]!r} and another shape")


def refusal(frame: Frame, outcome: Outcome = "not_sent") -> BrokerError:
    """The error that an ``error`` frame says. The request that it answers was not taken."""
    return error_of({"outcome": outcome, **frame.body})


def no_frames(fault: FrameFault, outcome: Outcome = "unknown") -> ResultMalformed:
    """The error for a daemon that sent what is no frame."""
    return ResultMalformed("bad_answer", f"the daemon sent bytes that are no frame: {fault.msg}", outcome)


def _malformed(message: str) -> ResultMalformed:
    return ResultMalformed("bad_answer", message, "unknown")


# --- the requests ------------------------------------------------------------------------------------------------


def call(
    server: str,
    tool: str,
    arguments: Mapping[str, Any] | None,
    timeout: float | None,
    content: Literal["text", "all"] | None,
    check: bool,
) -> Request:
    """A tool call. ``timeout`` in seconds."""
    body: dict[str, Any] = {"server": _name(server, "server"), "tool": _name(tool, "tool")}
    body["arguments"] = arguments if type(arguments) is dict else _arguments(arguments)
    patience = None
    if timeout is not None:
        body["timeout_ms"] = _milliseconds(timeout, "timeout")
        patience = timeout + GRACE
    if content is not None:
        body["content"] = content
    return Request("call", body, _checked_result if check else tool_result, patience)


def tool_result(value: Any) -> ToolResult:
    """The result from a ``call`` answer's value. Raises :class:`ResultMalformed`."""
    try:
        content, is_error = value["content"], value["is_error"]
        good = type(content) is list and type(is_error) is bool
        for block in content:
            good = good and type(block["type"]) is str and (block["type"] != "text" or type(block["text"]) is str)
    except (TypeError, KeyError):
        good = False
    if not good:
        raise _malformed("the daemon's answer to a call has another shape")
    return ToolResult(content, is_error, value.get("structured"), has_structured="structured" in value)


def _checked_result(value: Any) -> ToolResult:
    result = tool_result(value)
    if result.is_error:
        raise ToolFailed(result)
    return result


def listing(server: str | None, schemas: bool) -> Request:
    """The servers, or the tools of one."""
    body: dict[str, Any] = {} if schemas else {"schemas": False}
    if server is None:
        return Request("list", body, _rows)
    body["server"] = _name(server, "server")
    return Request("list", body, _tools)


def _rows(value: Any) -> Any:
    return _of_type(value, list, "list")


def _tools(value: Any) -> Any:
    return _of_type(_of_type(value, dict, "list").get("tools"), list, "list")


def status(server: str | None, processes: bool) -> Request:
    """The daemon's status."""
    body: dict[str, Any] = {} if server is None else {"server": _name(server, "server")}
    if processes:
        body["processes"] = True
    return Request("status", body, _map)


def logs(server: str, max_bytes: int | None) -> Request:
    """The stderr tail of a server."""
    body: dict[str, Any] = {"server": _name(server, "server")}
    if max_bytes is not None:
        body["max_bytes"] = max_bytes
    return Request("logs", body, _text)


def generate(server: str, target: str) -> Request:
    """A typed module for a server."""
    return Request("generate", {"server": _name(server, "server"), "target": _name(target, "target")}, _map)


def manage(kind: str, server: str | None = None, within: float | None = None) -> Request:
    """``restart``, ``stop``, ``start``, ``reload`` or ``shutdown``. ``within`` in seconds."""
    body: dict[str, Any] = {} if server is None else {"server": _name(server, "server")}
    if within is not None:
        body["within_ms"] = _milliseconds(within, "within")
    return Request(kind, body, _map)


def heartbeat() -> Request:
    """A sign of life."""
    return Request("heartbeat", {}, _map)


def _name(value: object, key: str) -> str:
    # Another type could be a bad frame, which costs the connection.
    if not isinstance(value, str):
        raise TypeError(f"{key} must be a str, found {type(value).__name__}")
    return value


def _arguments(arguments: Any) -> dict[str, Any]:
    if arguments is None:
        return {}
    if not hasattr(arguments, "keys"):
        raise TypeError(f"arguments must be a mapping of names to values, found {type(arguments).__name__}")
    return dict(arguments)


def _map(value: Any) -> Any:
    return _of_type(value, dict, "request")


def _text(value: Any) -> Any:
    return _of_type(value, str, "logs")


def _of_type(value: Any, expected: type, what: str) -> Any:
    if type(value) is not expected:
        raise _malformed(f"the daemon's answer to a {what} has another shape")
    return value


def _milliseconds(seconds: float, name: str) -> int:
    require_number(seconds, name)
    # The comparison refuses NaN, too.
    if not 0 < seconds <= 2**42:
        raise ValueError(f"{name} must be a number of seconds above 0, found {seconds!r}")
    # Rounded up, since a time-out must not end before its time; whole microseconds hide the binary fraction.
    return max(1, -(-round(seconds * 1_000_000) // 1000))


def require_number(seconds: Any, name: str) -> None:
    """Raise TypeError where ``seconds`` cannot be compared with a number."""
    try:
        seconds > 0  # noqa: B015
    except TypeError:
        raise TypeError(f"{name} must be a number of seconds, found {type(seconds).__name__}") from None


# --- the wording of lost connections -----------------------------------------------------------------------------


def cannot_connect(path: str, error: OSError) -> BrokerUnreachable:
    """The error for a connection that could not be made."""
    size = len(os.fsencode(path))
    # Python refuses a name that is too long by itself with an error that has no number.
    if isinstance(error, FileNotFoundError) or (size > LONGEST and error.errno is None):
        reason = "there is no such socket"
        if size > LONGEST:
            reason += f", nor can a daemon listen there: its path has {size} bytes, the limit is {LONGEST}"
    elif isinstance(error, ConnectionRefusedError):
        reason = _no_socket(path) or "nobody listens on the socket, the daemon that made it has gone"
    elif isinstance(error, BlockingIOError):
        reason = "it takes no connection (its backlog is full)"
    elif isinstance(error, PermissionError):
        reason = "permission denied: the socket belongs to another user"
    else:
        reason = error.strerror or str(error)
    return BrokerUnreachable(path, reason)


def _no_socket(path: str) -> str | None:
    """What is at ``path`` when it is no socket."""
    import stat

    try:
        mode = os.stat(path).st_mode
    except OSError:
        return None
    if stat.S_ISSOCK(mode):
        return None
    return "a directory is there, not a socket" if stat.S_ISDIR(mode) else "a file is there, not a socket"


def closed(path: str, outcome: Outcome) -> BrokerUnreachable:
    """The error for a connection that ended before the answer."""
    return BrokerUnreachable(path, "it closed the connection before it answered", outcome)


def hung(path: str, outcome: Outcome = "unknown") -> BrokerUnreachable:
    """The error for a daemon that shows no life."""
    return BrokerUnreachable(
        path, f"it shows no sign of life, not even to a heartbeat within {SILENCE:g} s", outcome
    )
