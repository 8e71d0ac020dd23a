"""What a request can end in instead of a result. Every error carries the code and the outcome of the socket page.

All of them are :class:`BrokerError`::

    try:
        result = broker.call("github", "create_issue", {"title": "Crash"})
    except BrokerError as error:
        if error.outcome == "not_sent":  # nothing reached the server: it is safe to try again
            ...
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from treadle_client.results import ToolResult

    Outcome = Literal["not_sent", "unknown", "answered"]


class BrokerError(Exception):
    """A request that did not end in a result.

    ``code`` is the machine-readable code (client page, section 8, or one of this library's own, named at each
    class), ``message`` the sentence for people, ``data`` what a server attached to its error, else None.
    ``outcome`` says what is known: ``"not_sent"`` (nothing reached the MCP server), ``"unknown"`` (sent and
    unanswered: it may have run), ``"answered"``, or None where the daemon did not say.

        >>> error = BrokerError("overloaded", "server demo is at its limit: max_in_flight = 64", "not_sent")
        >>> str(error), error.code, error.outcome
        ('server demo is at its limit: max_in_flight = 64', 'overloaded', 'not_sent')
    """

    def __init__(self, code: str, message: str, outcome: Outcome | None = None, data: Any = None) -> None:
        super().__init__(code, message, outcome, data)
        self.code = code
        self.message = message
        self.outcome = outcome
        self.data = data

    def __str__(self) -> str:
        return self.message


class BrokerUnreachable(BrokerError):
    """No daemon answers on the socket, or the connection was lost before the answer came.

    ``code`` is ``"unreachable"``, ``path`` the socket, ``reason`` what happened. ``outcome`` is ``"not_sent"``
    when the request never left in full, and ``"unknown"`` when it had.

        >>> str(BrokerUnreachable("/run/treadle/treadle.sock", "there is no such socket"))
        'no Treadle daemon at /run/treadle/treadle.sock: there is no such socket (start one with `treadle serve`, or name its socket in $TREADLE_SOCKET)'
    """  # noqa: E501

    def __init__(self, path: str, reason: str, outcome: Outcome = "not_sent") -> None:
        message = f"no Treadle daemon at {path}: {reason}"
        if outcome == "not_sent":
            message += " (start one with `treadle serve`, or name its socket in $TREADLE_SOCKET)"
        else:
            message = f"the Treadle daemon at {path} was lost: {reason}"
        super().__init__("unreachable", message, outcome)
        self.args = (path, reason, outcome)
        self.path = path
        self.reason = reason


class ServerUnavailable(BrokerError):
    """The MCP server is dead, not started, parked or starting (``mcp_unavailable``); the message says why.

    >>> try:
    ...     broker.call("broken", "any")
    ... except ServerUnavailable as error:
    ...     print(error)
    the server exited with status 3
    """


class CallTimedOut(BrokerError):
    """No answer in time; the outcome is unknown.

    ``code`` is ``"mcp_timeout"`` when the daemon said so, ``"client_timeout"`` when this library gave up waiting
    for the daemon.

        >>> try:
        ...     broker.call("demo", "sleep", {"seconds": 60}, timeout=0.05)
        ... except CallTimedOut as error:
        ...     print(error, error.outcome)
        no answer within 50 ms unknown
    """


class ServerErrored(BrokerError):
    """The MCP server answered a JSON-RPC error: ``number`` is its code, ``data`` its data or None.

    >>> try:
    ...     broker.call("demo", "no_such_tool")
    ... except ServerErrored as error:
    ...     print(error.code, error.number, error.data)
    jsonrpc_-32602 -32602 {'tool': 'no_such_tool'}
    """

    @property
    def number(self) -> int:
        """The code of the JSON-RPC error."""
        return int(self.code.removeprefix("jsonrpc_"))


class ResultMalformed(BrokerError):
    """There was an answer, but not of the promised shape.

    ``code`` is ``"mcp_malformed"`` for the MCP server's answer, ``"bad_answer"`` for the daemon's own.

        >>> try:
        ...     broker.call("demo", "malformed")
        ... except ResultMalformed as error:
        ...     print(error.code, error.outcome)
        mcp_malformed answered
    """


class Denied(BrokerError):
    """The daemon turned the request away; ``code`` says why.

    ``denied``, ``overloaded``, ``shutting_down``, ``cancelled``, ``too_large``, ``unknown_server``,
    ``invalid_argument``, or a code of an ``error`` frame (``unknown_kind``, ``unsupported_version``, ...).

        >>> try:
        ...     broker.call("demo", "echo", {"x": object()})
        ... except Denied as error:
        ...     print(error.code, "|", error)
        invalid_argument | $.x: a value of type object
    """


class ToolFailed(BrokerError):
    """The tool ran and said no (``is_error``), and the caller asked for ``check=True``. ``result`` is its answer.

    ``code`` is ``"tool_failed"``, the message the result's text.

        >>> try:
        ...     broker.call("demo", "fail", check=True)
        ... except ToolFailed as error:
        ...     print(error, error.result.is_error)
        the tool said no True
    """

    def __init__(self, result: ToolResult) -> None:
        super().__init__("tool_failed", result.text or "the tool failed and gave no text", "answered")
        self.args = (result,)
        self.result = result


_CLASSES: dict[str, type[BrokerError]] = {
    "mcp_unavailable": ServerUnavailable,
    "mcp_timeout": CallTimedOut,
    "mcp_malformed": ResultMalformed,
    **dict.fromkeys(
        [
            "denied",
            "overloaded",
            "shutting_down",
            "cancelled",
            "too_large",
            "unknown_server",
            "invalid_argument",
            "bad_frame",
            "unsupported_version",
            "unknown_kind",
            "bad_hello",
        ],
        Denied,
    ),
}


def error_of(error: Any) -> BrokerError:
    """The exception for the ``error`` map of an answer or the body of an ``error`` frame. Total: a code that is
    not known makes a plain :class:`BrokerError`, a map of another shape a :class:`ResultMalformed`."""
    code = error.get("code") if isinstance(error, dict) else None
    if not isinstance(code, str):
        return ResultMalformed("bad_answer", "the daemon answered an error without a code", "unknown")
    number = code.removeprefix("jsonrpc_")
    is_jsonrpc = number != code and number.removeprefix("-").isdecimal() and number.isascii()
    chosen = ServerErrored if is_jsonrpc else _CLASSES.get(code, BrokerError)
    msg, outcome = error.get("msg"), error.get("outcome")
    return chosen(
        code,
        msg if isinstance(msg, str) else code,
        outcome if outcome in ("not_sent", "unknown", "answered") else None,
        error.get("data"),
    )
