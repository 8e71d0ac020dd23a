"""Brings a session to where a test begins, and writes the server's lines for it."""

from __future__ import annotations

import json
from typing import Any

from treadle.session import Initialized, Session

INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "odd", "version": "1"},
}
HELLO = {"content": [{"type": "text", "text": "hello"}]}


def line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


def result(request_id: Any, value: Any = HELLO) -> bytes:
    return line({"jsonrpc": "2.0", "id": request_id, "result": value})


def error(request_id: Any, code: int = -32000, message: str = "no", **data: Any) -> bytes:
    return line({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message} | data})


def request(request_id: Any, method: str = "roots/list") -> bytes:
    return line({"jsonrpc": "2.0", "id": request_id, "method": method})


NOTIFICATION = line({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


def sent(session: Session) -> list[dict[str, Any]]:
    """What the session wants to send now, decoded."""
    return [json.loads(text) for _, text in session.take_output()]


def started(**options: Any) -> Session:
    """A session that has sent its initialize (id 1), due at 10 s."""
    session = Session("odd", client_version="1.2.3", **options)
    session.initialize(10.0, timeout_ms=10_000)
    session.take_output()
    return session


def ready(**options: Any) -> Session:
    """A session after its handshake; the next id is 2."""
    session = started(**options)
    (event,) = session.receive_data(result(1, INITIALIZE))
    assert isinstance(event, Initialized)
    session.take_output()
    return session


def call(session: Session, token: Any, deadline: float = 60.0, **options: Any) -> int:
    return session.call("echo", b'{"a":1}', deadline, token, timeout_ms=60_000, **options)
