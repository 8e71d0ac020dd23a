"""The codes and outcomes that a caller sees of every fault (client page, section 8)."""

from __future__ import annotations

import inspect

import pytest

from support import script as s
from support.household import Asked
from support.virtual import virtual
from support.watched import watched
from treadle import errors
from treadle.answers import failure
from treadle.errors import (
    CallFault,
    CallTimedOut,
    Cancelled,
    CursorRepeated,
    Denied,
    DuplicateTool,
    Fault,
    FieldFault,
    HandshakeFailed,
    InvalidArgument,
    NotCarriable,
    Overloaded,
    ResultMalformed,
    ServerError,
    ShuttingDown,
    StartTimedOut,
    TooLarge,
    ToolsNotDeclared,
    TooManyPages,
    TransportFailed,
    Unavailable,
    UnknownServer,
    VersionUnsupported,
    explain,
    failure_code,
)
from treadle.states import State
from treadle.wire.messages import CallResult

CODES: list[tuple[Fault, str, str | None]] = [
    (Unavailable("dead"), "mcp_unavailable", "not_sent"),
    (Unavailable("dead", "unknown"), "mcp_unavailable", "unknown"),
    (TransportFailed("no such program"), "mcp_unavailable", None),
    (HandshakeFailed(Unavailable("dead")), "mcp_unavailable", None),
    (VersionUnsupported("1999", ("2025-06-18",)), "mcp_unavailable", None),
    (ToolsNotDeclared(), "mcp_unavailable", None),
    (StartTimedOut("initialize", 5, "handshake_timeout_ms"), "mcp_unavailable", None),
    (CallTimedOut(5), "mcp_timeout", "unknown"),
    (CallTimedOut(5, "not_sent"), "mcp_timeout", "not_sent"),
    (ResultMalformed("no content"), "mcp_malformed", "answered"),
    (FieldFault("tools/list result", "tools", "an array", "null"), "mcp_malformed", None),
    (DuplicateTool("a", 0, 1), "mcp_malformed", None),
    (CursorRepeated("a", 2), "mcp_malformed", None),
    (TooManyPages(64), "mcp_malformed", None),
    (NotCarriable("an integer past 64 bits"), "mcp_malformed", None),
    (ServerError(-32602, "no"), "jsonrpc_-32602", "answered"),
    (ServerError(7, "no"), "jsonrpc_7", "answered"),
    (UnknownServer("x", ("a", "b")), "unknown_server", "not_sent"),
    (InvalidArgument("$.a", "a byte string"), "invalid_argument", "not_sent"),
    (Overloaded("queue", 1, "the queue"), "overloaded", "not_sent"),
    (Cancelled(), "cancelled", "unknown"),
    (ShuttingDown(), "shutting_down", "not_sent"),
    (Denied("no"), "denied", "not_sent"),
    (TooLarge("the request", 2, 1), "too_large", "not_sent"),
]


@pytest.mark.parametrize(("fault", "code", "outcome"), CODES)
def test_a_fault_reaches_the_caller_as_its_code_its_sentence_and_its_outcome(
    fault: Fault, code: str, outcome: str | None
) -> None:
    body = failure(fault)
    assert body["code"] == failure_code(fault) == code
    assert body["msg"] == explain(fault)
    assert body.get("outcome") == outcome


def test_every_fault_of_a_call_has_its_row_here_and_says_its_outcome() -> None:
    faults = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, CallFault)}
    assert faults - {CallFault} == {type(fault) for fault, _, _ in CODES if isinstance(fault, CallFault)}


def test_every_fault_has_a_sentence_of_its_own() -> None:
    for fault, _, _ in CODES:
        assert explain(fault) != type(fault).__name__
        assert str(fault) == explain(fault)


def test_an_overload_names_its_limit_and_an_unknown_server_the_names_there_are() -> None:
    assert (
        explain(Overloaded("queue", 7, "the queue of server a"))
        == "the queue of server a is at its limit: queue = 7"
    )
    assert "configured: a, b" in explain(UnknownServer("x", ("a", "b")))
    assert explain(UnknownServer("x", ())) == "no server named 'x'; no server is configured"


def test_the_message_and_data_of_a_server_ride_along() -> None:
    body = failure(ServerError(-5, "no", b'{"a":[1]}'))
    assert body["data"] == {"a": [1]}
    assert "no" in body["msg"]


@virtual
async def test_a_tool_that_said_no_is_an_answer_and_no_fault() -> None:
    async with watched(s.script(s.at(1, s.text("no", isError=True)))) as house:
        await house.until(State.READY)
        call = Asked()
        house.one.submit(call)
        await call.done
        assert isinstance(call.outcome, CallResult)
        assert call.outcome.is_error
