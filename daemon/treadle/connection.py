"""One client of the socket: who it is, what it asks, what is answered (floor 6; socket page)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

import treadle
from treadle import answers, calls
from treadle.audit import Audit
from treadle.calls import SocketCall
from treadle.errors import Denied, Fault, InvalidArgument, Overloaded, Unavailable
from treadle.peers import Peer, peer_of
from treadle.requests import HANDLERS
from treadle.stream import FrameStream
from treadle.wire.messages import CallResult
from treadle.wire.quick import CallFrame
from treadle_client import frames

if TYPE_CHECKING:
    from treadle.listener import Listener

log = logging.getLogger(__name__)

PROTOCOL: Final = 1
FEATURES: Final = ("cancel", "content", "cap_call")
_KINDS: Final = ", ".join(sorted({"hello", "cancel", "heartbeat", *calls.KINDS, *HANDLERS}))


class Connection(FrameStream):
    """One client, and what it has in flight: calls, and requests that take their time."""

    __slots__ = ("_broker", "_greeted", "_live", "_service", "_since", "audit")

    def __init__(self, listener: Listener) -> None:
        super().__init__(listener)
        self._service = listener.service
        self._broker = listener.service.broker
        self._since = self.loop.time()
        self._greeted = False
        self.audit: Audit | None = listener.audit
        """Where calls are taken down."""
        self._live: dict[int, SocketCall | asyncio.Task[None]] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no answer is due."""
        return not self._live

    # --- who it is --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Check who connected before a byte of theirs is looked at."""
        super().connection_made(transport)
        try:
            self.peer = peer_of(transport.get_extra_info("socket"))
        except OSError as error:
            self._refuse(f"the peer's credentials cannot be read: {error.strerror}")
            return
        limit = self._broker.config.broker.max_connections
        if not self.listener.access.may_connect(self.peer):
            self.refuse_peer()
        elif len(self.listener.connections) >= limit:
            self._refuse(f"overloaded: max_connections = {limit} is reached")
        else:
            self.listener.connections.add(self)

    def refuse_peer(self) -> None:
        """Turn away a peer that may not use this broker, or may not any more."""
        assert self.peer is not None
        self._refuse(f"uid {self.peer.uid} may not use this broker (allow_users, allow_groups)")

    def _refuse(self, msg: str) -> None:
        self.listener.complain(f"refused a connection of {self.peer or 'an unknown peer'}: {msg}")
        self.send(answers.error_frame(0, "denied", msg))
        self.finish()

    def connection_lost(self, exc: Exception | None) -> None:
        """Its place is free."""
        super().connection_lost(exc)
        self.listener.connections.discard(self)
        if self.listener.latest is self:
            self.listener.latest = None

    def ended(self) -> None:
        """Its calls are forgotten: late answers are dropped, nothing is sent again."""
        live, self._live = self._live, {}
        for waiting in live.values():
            # A request that takes its time goes on, and counts, to its end.
            if isinstance(waiting, SocketCall):
                self.listener.in_flight -= 1
                if waiting.supervisor is not None:
                    waiting.supervisor.cancel(waiting)

    def look(self, now: float) -> None:
        """As of every stream; and a client must say hello within its time."""
        super().look(now)
        limit = self.listener.bounds.hello_s
        if not self._greeted and not self.is_ending and now - self._since > limit:
            self._bad_hello(0, f"no hello within {limit:g} s")

    # --- what it asks -----------------------------------------------------------------------------

    def take(self, frame: frames.Frame | CallFrame) -> None:
        """Serve one frame."""
        if type(frame) is not CallFrame or not self._greeted:
            self._take_other(frame)
            return
        # What a connection mostly does, in few steps.
        live, broker, listener = self._live, self._broker, self.listener
        limits = broker.config.broker
        if (
            frame.id in live
            or len(live) >= limits.max_in_flight_per_connection
            or listener.in_flight >= limits.max_in_flight
        ):
            refusal = self._not_admitted(frame.id)
            assert refusal is not None
            self._refuse_call(frame, refusal)
            return
        body = frame.body
        live[frame.id] = call = SocketCall(
            self,
            frame.id,
            "call",
            body.server,
            tool=body.tool,
            timeout_ms=body.timeout_ms or 0,
            content=body.content,
            received=self.received,
            started=self.started,
        )
        listener.in_flight += 1
        broker.call(body.server, body.arguments, call, plain=True)

    def _take_other(self, frame: frames.Frame | CallFrame) -> None:
        kind = frame.kind
        if isinstance(frame, CallFrame) or not self._greeted:
            self._greet(frame)
        elif kind in calls.KINDS:
            self._call(frame)
        elif kind == "cancel":
            live = self._live.get(frame.id)
            if isinstance(live, SocketCall) and live.supervisor is not None:
                live.supervisor.cancel(live)
        elif kind == "heartbeat":
            self.send(answers.echo_frame(frame))
        elif kind in HANDLERS:
            self._request(frame)
        elif kind == "hello":
            self._bad_hello(frame.id, "hello was already said on this connection")
        else:
            msg = f"unknown kind {kind[:40]!r}; known: {_KINDS}"
            self.send(answers.error_frame(frame.id, "unknown_kind", msg))

    def _bad_hello(self, frame_id: int, msg: str) -> None:
        self.send(answers.error_frame(frame_id, "bad_hello", msg))
        self.finish()

    def _greet(self, frame: frames.Frame | CallFrame) -> None:
        problem = answers.hello_problem(frame, PROTOCOL)
        if problem is not None:
            self._bad_hello(frame.id, problem)
            return
        self._greeted = True
        config = self._broker.config.broker
        limits = {
            "max_frame_bytes": frames.MAX_FRAME,
            "max_depth": frames.MAX_DEPTH,
            "max_in_flight": config.max_in_flight_per_connection,
            "max_call_timeout_ms": config.max_call_timeout_ms,
        }
        name = f"treadle/{treadle.__version__}"
        body = {"proto": PROTOCOL, "peer": name, "features": FEATURES, "limits": limits}
        self.send(frames.encode(frame.id, "hello", body))

    def _not_admitted(self, frame_id: int) -> Fault | None:
        """Why no further call, or request that takes its time, may be taken, if so."""
        config = self._broker.config.broker
        if frame_id in self._live:
            return InvalidArgument("id", f"{frame_id} is still in flight on this connection")
        if len(self._live) >= config.max_in_flight_per_connection:
            limit = config.max_in_flight_per_connection
            return Overloaded("max_in_flight_per_connection", limit, "this connection")
        if self.listener.in_flight >= config.max_in_flight:
            return Overloaded("max_in_flight", config.max_in_flight, "the daemon ([broker])")
        return None

    # --- calls ------------------------------------------------------------------------------------

    def _call(self, frame: frames.Frame) -> None:
        refusal = self._not_admitted(frame.id)
        if refusal is None:
            try:
                arguments, call = calls.read(frame, self, self._broker)
            except Fault as fault:
                refusal = fault
        if refusal is not None:
            self._refuse_call(frame, refusal)
            return
        call.received, call.started = self.received, self.started
        self._live[frame.id] = call
        self.listener.in_flight += 1
        self._broker.call(call.server, arguments, call, plain=True)

    def _refuse_call(self, frame: frames.Frame | CallFrame, refusal: Fault) -> None:
        self._service.count_refusal(refusal)
        calls.note_refusal(frame, self, refusal)
        self.send(calls.answer(frame.kind, frame.id, refusal))

    def answer(self, call: SocketCall, outcome: CallResult | Fault) -> None:
        """The end of ``call``: tell the client, if it is still there."""
        if self._live.pop(call.frame_id, None) is None:
            return
        listener = self.listener
        listener.in_flight -= 1
        if type(outcome) is CallResult and call.kind == "call":
            size, parts = answers.call_result_frame(call.frame_id, outcome)
            self.send_parts(size, parts)
        else:
            self.send(calls.answer(call.kind, call.frame_id, outcome))
        if self._eof or listener.handing_over:
            self.let_go_if_idle()

    # --- other requests ---------------------------------------------------------------------------

    def _request(self, frame: frames.Frame) -> None:
        handler = HANDLERS[frame.kind]
        try:
            if frame.id in self._live:
                raise InvalidArgument("id", f"{frame.id} is still in flight on this connection")
            if handler.administrative:
                self._authorise(frame)
            value = handler.handle(self._service, frame.body)
        except Exception as error:
            self.send(answers.failure_frame(frame.id, _fault_of(frame.kind, error)))
            return
        if asyncio.iscoroutine(value):
            self._live[frame.id] = self.listener.keep(self._answer(frame, value))
        else:
            self.send(_framed(frame.id, value))

    def _authorise(self, frame: frames.Frame) -> None:
        peer = self.peer
        assert isinstance(peer, Peer)
        if not self.listener.access.may_administrate(peer):
            self.listener.complain(f"denied {frame.kind} to {peer}")
            raise Denied(f"{frame.kind} needs an administrator (admin_users); you are uid {peer.uid}")
        refusal = self._not_admitted(frame.id)
        if refusal is not None:
            raise refusal
        log.info("%s by %s", frame.kind, peer)

    async def _answer(self, frame: frames.Frame, work: Coroutine[Any, Any, Any]) -> None:
        try:
            answer = _framed(frame.id, await work)
        except Exception as error:
            answer = answers.failure_frame(frame.id, _fault_of(frame.kind, error))
        if self._live.pop(frame.id, None) is not None:
            self.send(answer)
            self.let_go_if_idle()


def _framed(frame_id: int, value: Any) -> bytes:
    return value.frame(frame_id) if type(value) is answers.AnyAnswer else answers.result_frame(frame_id, value)


def _fault_of(kind: str, error: Exception) -> Fault:
    if isinstance(error, Fault):
        return error
    log.error("%s failed", kind, exc_info=error)
    what = f"{kind}: an internal error ({type(error).__name__}); the daemon's log has the details"
    return Unavailable(what, "unknown")
