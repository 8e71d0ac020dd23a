"""Calls that come over the socket: from a frame's body to a typed call, and back (floor 6; socket page)."""

from __future__ import annotations

import time
from typing import Any, Final, Protocol

from treadle import answers
from treadle.audit import Audit
from treadle.broker import Broker
from treadle.call import Call
from treadle.errors import CallTimedOut, Fault, InvalidArgument, UnknownServer
from treadle.peers import Peer
from treadle.wire.messages import CallResult
from treadle.wire.quick import CallFrame
from treadle_client.frames import Frame

KINDS: Final = ("call", "cap_call")
NAMESPACE: Final = "mcp"
"""What comes before the dot of a capability that this daemon serves."""


class Caller(Protocol):
    """Who waits for the answers of calls."""

    @property
    def audit(self) -> Audit | None:
        """Where calls are taken down."""

    @property
    def peer(self) -> Peer | None:
        """Who it is."""

    def answer(self, call: SocketCall, outcome: CallResult | Fault) -> None:
        """The end of ``call``: tell the client, if it is still there."""


class SocketCall(Call, eq=False):
    """A ``call`` or ``cap_call`` (``kind``) of a connection, under the id of its frame."""

    caller: Caller
    frame_id: int
    kind: str
    server: str

    def deliver(self, outcome: CallResult | Fault) -> None:
        """Take the call down, and answer the client if it is still there."""
        caller = self.caller
        if (audit := caller.audit) is not None:
            seconds = self.seconds
            if not seconds and self.started:
                seconds = time.perf_counter() - self.started
            audit.note(caller.peer, self.server, self.tool, outcome, seconds, self.arguments)
        caller.answer(self, outcome)


def answer(kind: str, frame_id: int, outcome: CallResult | Fault) -> bytes:
    """The frame that answers a request of ``kind`` ``call`` or ``cap_call``."""
    if kind == "cap_call":
        return answers.cap_result_frame(frame_id, outcome)
    if isinstance(outcome, CallResult):
        return answers.result_frame(frame_id, outcome.to_value())
    return answers.failure_frame(frame_id, outcome)


def read(frame: Frame, caller: Caller, broker: Broker) -> tuple[dict[str, Any], SocketCall]:
    """The arguments and the call that a frame of :data:`KINDS` asks for.

    Raises the fault that answers it: :class:`InvalidArgument`, or :class:`UnknownServer` for a capability of
    another namespace, or :class:`CallTimedOut` for a budget that is used up.
    """
    return _read_capability(frame, caller, broker) if frame.kind == "cap_call" else _read(frame, caller)


def _read(frame: Frame, caller: Caller) -> tuple[dict[str, Any], SocketCall]:
    body = frame.body
    server = answers.text(body, "server")
    tool = answers.text(body, "tool")
    arguments = _arguments(frame, body, "body")
    timeout_ms = answers.whole(body, "timeout_ms") or 0
    content = answers.content_of(body)
    call = SocketCall(caller, frame.id, frame.kind, server, tool=tool, timeout_ms=timeout_ms, content=content)
    return arguments, call


def _read_capability(frame: Frame, caller: Caller, broker: Broker) -> tuple[dict[str, Any], SocketCall]:
    body = frame.body
    capability = answers.text(body, "cap")
    args = answers.mapping(body, "args")
    tool = answers.text(args, "tool", "body.args")
    arguments = _arguments(frame, args, "body.args")
    budget_ms = answers.whole(body, "deadline_ms", least=answers.LEAST_INTEGER)
    namespace, _, server = capability.partition(".")
    if namespace != NAMESPACE:
        offered = tuple(f"{NAMESPACE}.{supervisor.name}" for supervisor in broker.servers)
        raise UnknownServer(capability, offered)
    config = broker.find(server).config
    if budget_ms is not None and budget_ms <= 0:
        raise CallTimedOut(0, "not_sent")
    if budget_ms is not None and config is not None:
        budget_ms = min(budget_ms, config.call_timeout_ms)
    return arguments, SocketCall(caller, frame.id, frame.kind, server, tool=tool, timeout_ms=budget_ms or 0)


def note_refusal(frame: Frame | CallFrame, caller: Caller, refusal: Fault) -> None:
    """Take down a frame of :data:`KINDS` that was refused before it was a call, with the names that it has."""
    if caller.audit is None:
        return
    if isinstance(frame, CallFrame):
        server, tool = frame.body.server, frame.body.tool
    else:
        body = frame.body
        inner = body.get("args")
        names = (
            body.get("server", body.get("cap")),
            body.get("tool", inner.get("tool") if type(inner) is dict else ""),
        )
        server, tool = (name if type(name) is str else "" for name in names)
    caller.audit.note(caller.peer, server, tool, refusal, 0.0, b"")


def _arguments(frame: Frame, body: dict[str, Any], where: str) -> dict[str, Any]:
    if frame.invalid is not None:
        raise InvalidArgument(*frame.invalid)
    return answers.mapping(body, "arguments", where)
