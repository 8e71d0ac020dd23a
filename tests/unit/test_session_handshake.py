"""The handshake (client page, sections 3 and 4; group E of the hostile servers)."""

from __future__ import annotations

from typing import Any

import pytest
from session_kit import INITIALIZE, NOTIFICATION, error, ready, request, result, sent, started

from treadle.errors import (
    BadMessage,
    ChannelClosed,
    EchoedRequest,
    FieldFault,
    HandshakeFailed,
    LineTooLong,
    Malformed,
    NotCarriable,
    ServerError,
    StartTimedOut,
    Stopped,
    ToolsNotDeclared,
    TransportFailed,
    VersionUnsupported,
    explain,
)
from treadle.session import Died, Initialized, Session, State, Warned


def test_initialize_asks_for_the_newest_version_and_declares_no_capability() -> None:
    session = Session("odd", client_version="1.2.3")
    session.initialize(10.0, timeout_ms=10_000)
    text = (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
        b'"capabilities":{},"clientInfo":{"name":"treadle","version":"1.2.3"}}}\n'
    )
    assert session.take_output() == [(1, text)]
    assert session.state is State.INITIALIZING


def test_the_answer_makes_it_ready_and_is_acknowledged() -> None:
    session = started()
    (event,) = session.receive_data(result(1, INITIALIZE))
    assert isinstance(event, Initialized)
    assert event.result.server_name == "odd"
    assert session.take_output() == [(0, b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')]
    assert session.state is State.READY
    assert session.in_flight == 0


@pytest.mark.parametrize("version", ["2025-06-18", "2025-03-26", "2024-11-05"])
def test_older_supported_versions_are_accepted(version: str) -> None:
    (event,) = started().receive_data(result(1, INITIALIZE | {"protocolVersion": version}))
    assert isinstance(event, Initialized)
    assert event.result.version == version


def test_an_extra_version_is_accepted_only_when_the_configuration_names_it() -> None:
    answer = result(1, INITIALIZE | {"protocolVersion": "2025-11-25"})
    (refused,) = started().receive_data(answer)
    supported = ("2025-06-18", "2025-03-26", "2024-11-05")
    assert refused == Died(VersionUnsupported("2025-11-25", supported))
    (accepted,) = started(accept_versions=["2025-11-25"]).receive_data(answer)
    assert isinstance(accepted, Initialized)
    (other,) = started(accept_versions=["2025-11-25"]).receive_data(
        result(1, INITIALIZE | {"protocolVersion": "2026-07-28"})
    )
    assert other == Died(VersionUnsupported("2026-07-28", ("2025-11-25", *supported)))


def test_no_other_version_can_be_named() -> None:
    with pytest.raises(ValueError, match="2025-11-25 only"):
        Session("odd", client_version="1", accept_versions=["2024-10-07"])


def test_a_server_without_tools_is_refused() -> None:
    (event,) = started().receive_data(result(1, {"protocolVersion": "2025-06-18"}))
    assert event == Died(ToolsNotDeclared())


def test_a_bad_answer_names_its_field() -> None:
    (event,) = started().receive_data(result(1, INITIALIZE | {"serverInfo": 5}))
    fault = FieldFault("initialize result", "serverInfo", "an object", "a number")
    assert event == Died(HandshakeFailed(fault))


def test_an_answer_that_cannot_be_carried_fails_the_handshake() -> None:
    (event,) = started().receive_data(b'{"jsonrpc":"2.0","id":1,"result":{"x":"\\ud800"}}\n')
    assert event == Died(HandshakeFailed(NotCarriable("an escaped lone surrogate")))


def test_an_rpc_error_fails_the_handshake_with_its_text() -> None:
    session = started()
    (event,) = session.receive_data(error(1, -32602, "unsupported", data={"x": 1}))
    assert event == Died(HandshakeFailed(ServerError(-32602, "unsupported", b'{"x": 1}')))
    assert "unsupported" in explain(event.fault)
    assert session.state is State.DEAD


def test_no_answer_by_the_deadline_is_a_start_timeout() -> None:
    session = started()
    assert session.next_deadline == 10.0
    assert session.expire(9.999) == []
    assert session.expire(10.0) == [Died(StartTimedOut("initialize", 10_000, "handshake_timeout_ms"))]
    assert session.receive_data(result(1, INITIALIZE)) == []
    assert session.next_deadline is None


def test_a_banner_fails_the_handshake_and_is_quoted() -> None:
    (event,) = started().receive_data(b"Welcome to \x1b[1mOdd\x1b[0m\n")
    assert isinstance(event, Died)
    assert isinstance(event.fault, HandshakeFailed)
    assert isinstance(event.fault.error, Malformed)
    assert event.fault.error.quoted == "Welcome to  [1mOdd [0m"
    assert explain(event.fault).endswith('; a server must log to stderr; bad_lines = "drop" drops such lines')


def test_a_banner_is_dropped_when_bad_lines_are() -> None:
    session = started(bad_lines="drop")
    warned, initialized = session.receive_data(b"Welcome\n" + result(1, INITIALIZE))
    assert isinstance(initialized, Initialized)
    assert isinstance(warned, Warned)
    assert warned.text.endswith("Welcome")


def test_a_program_that_sends_back_what_it_is_sent_is_named_as_such() -> None:
    session = Session("odd", client_version="1")
    session.initialize(10.0, timeout_ms=10_000)
    ((_, own),) = session.take_output()
    assert session.receive_data(own) == [Died(HandshakeFailed(EchoedRequest()))]
    assert session.take_output() == []
    assert "sends back what it is sent" in explain(HandshakeFailed(EchoedRequest()))


def test_a_request_named_initialize_is_like_any_other_once_the_server_is_ready() -> None:
    session = ready()
    assert session.receive_data(request(1, "initialize")) == []
    assert [message["error"]["code"] for message in sent(session)] == [-32601]


def test_notifications_before_the_answer_are_dropped() -> None:
    session = started()
    (event,) = session.receive_data(NOTIFICATION * 3 + result(1, INITIALIZE))
    assert isinstance(event, Initialized)
    assert session.dropped == 3


def test_requests_before_the_answer_are_answered_at_once() -> None:
    session = started()
    assert session.receive_data(request("r1") + request(7, "ping") + request(8, "sampling/createMessage")) == []
    refusal = {"code": -32601, "message": "method not found"}
    assert sent(session) == [
        {"jsonrpc": "2.0", "id": "r1", "error": refusal},
        {"jsonrpc": "2.0", "id": 7, "result": {}},
        {"jsonrpc": "2.0", "id": 8, "error": refusal},
    ]
    assert session.state is State.INITIALIZING


def test_an_answer_to_another_id_is_no_handshake() -> None:
    session = started()
    assert session.receive_data(result(2, INITIALIZE)) == []
    assert session.state is State.INITIALIZING


@pytest.mark.parametrize("cause", [ChannelClosed("exited with status 3"), LineTooLong(1, 2), BadMessage("x", "y")])
def test_an_end_during_the_handshake_is_a_failed_handshake(cause: Any) -> None:
    session = started()
    assert session.die(cause) == [Died(HandshakeFailed(cause))]
    assert session.fault == HandshakeFailed(cause)


@pytest.mark.parametrize("cause", [Stopped(), TransportFailed("no such file")])
def test_a_stop_or_a_failed_start_is_what_it_is(cause: Any) -> None:
    assert started().die(cause) == [Died(cause)]


def test_an_end_before_the_handshake_is_what_it_is() -> None:
    session = Session("odd", client_version="1")
    assert session.die(ChannelClosed("gone")) == [Died(ChannelClosed("gone"))]


def test_an_end_after_the_handshake_is_what_it_is() -> None:
    assert ready().die(ChannelClosed("gone")) == [Died(ChannelClosed("gone"))]
