"""The state machine of one conversation; see the package for the contract."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, NamedTuple, TypeVar

from treadle.errors import (
    BAD_LINE_ADVICE,
    BadMessage,
    CallFault,
    CallTimedOut,
    EchoedRequest,
    Fault,
    HandshakeFailed,
    Malformed,
    NotCarriable,
    NotUtf8,
    ResultMalformed,
    StartFault,
    StartTimedOut,
    Stopped,
    Unavailable,
    explain,
)
from treadle.session._events import Answered, Died, Event, Failed, Initialized, Listed, Ponged, Warned
from treadle.session._in_flight import InFlight, Pending
from treadle.session._outbox import Outbox
from treadle.session._printer import Printer
from treadle.wire import quick
from treadle.wire.jsonrpc import (
    ErrorResponse,
    Message,
    Notification,
    Request,
    Response,
    decode,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)
from treadle.wire.lines import LineBuffer
from treadle.wire.listing import Listing
from treadle.wire.messages import (
    EXTRA_VERSIONS,
    PROTOCOL_VERSIONS,
    Content,
    decode_call_result,
    decode_initialize_result,
    encode_call,
    initialize_params,
    tools_list_params,
)

METHOD_NOT_FOUND: Final = -32601
NOTIFICATION: Final = quick.Usual.NOTIFICATION

_WARNED_BAD_LINES: Final = 3


class State(enum.Enum):
    """Where the conversation stands."""

    PREPARED = "prepared"
    INITIALIZING = "initializing"
    READY = "ready"
    DEAD = "dead"


class Rule(enum.Enum):
    """What an input does in a state."""

    ACT = "act"
    REFUSE = "refuse"  # raise Unavailable with the reason
    IGNORE = "ignore"  # no event, no effect
    MISUSE = "misuse"  # a mistake of the caller: RuntimeError


class Rules(NamedTuple):
    """One row of the table: the rule for each input."""

    initialize: Rule
    request: Rule
    data: Rule
    expire: Rule
    die: Rule


_ACT, _IGNORE = Rule.ACT, Rule.IGNORE  # a member is looked up on its class at the cost of a call

TABLE: Final[dict[State, Rules]] = {
    #                          initialize   request      data         expire       die
    State.PREPARED:      Rules(Rule.ACT,    Rule.REFUSE, Rule.ACT,    Rule.ACT,    Rule.ACT),
    State.INITIALIZING:  Rules(Rule.MISUSE, Rule.REFUSE, Rule.ACT,    Rule.ACT,    Rule.ACT),
    State.READY:         Rules(Rule.MISUSE, Rule.ACT,    Rule.ACT,    Rule.ACT,    Rule.ACT),
    State.DEAD:          Rules(Rule.REFUSE, Rule.REFUSE, Rule.IGNORE, Rule.IGNORE, Rule.IGNORE),
}  # fmt: skip

TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    State.PREPARED: frozenset({State.INITIALIZING, State.DEAD}),
    State.INITIALIZING: frozenset({State.READY, State.DEAD}),
    State.READY: frozenset({State.DEAD}),
    State.DEAD: frozenset(),
}


_F = TypeVar("_F", bound=Fault)


def _not_taken_in(error: Exception) -> ResultMalformed:
    """Whatever breaks while an answer is taken in, memory that ran out most of all, costs its one request."""
    return ResultMalformed(f"the answer could not be taken in: {type(error).__name__}")


def _without_frames(fault: _F) -> _F:
    """``fault`` as a value to keep: its traceback would keep the line, and all that was made of it, alive."""
    fault.__traceback__ = fault.__context__ = None
    return fault


class Session:
    """The client's side of one conversation.

    ``server`` is the configured name, for the wording of reasons. ``accept_versions`` are protocol versions
    accepted besides the built-in ones, out of :data:`~treadle.wire.messages.EXTRA_VERSIONS` (ValueError).
    ``bad_lines`` says what a complete line that is no JSON-RPC message does: ``"fatal"`` ends the conversation,
    ``"drop"`` counts it. ``redact`` is applied to all text of the server that enters a fault or a warning.

    Times are seconds of one monotonic clock, the caller's.
    """

    def __init__(
        self,
        server: str,
        *,
        client_version: str,
        accept_versions: Iterable[str] = (),
        bad_lines: Literal["fatal", "drop"] = "fatal",
        redact: Callable[[str], str] | None = None,
    ) -> None:
        extra = set(accept_versions)
        if not extra <= set(EXTRA_VERSIONS):
            raise ValueError(f"accept_versions may name {', '.join(EXTRA_VERSIONS)} only")
        self.server = server
        self.state = State.PREPARED
        self.fault: Fault | None = None
        self.bad_lines = 0
        self._rules = TABLE[State.PREPARED]
        self._client_version = client_version
        self._versions = tuple(sorted(extra.union(PROTOCOL_VERSIONS), reverse=True))
        self._drop_bad_lines = bad_lines == "drop"
        self._printer = Printer(redact)
        self._lines = LineBuffer()
        self._dropped = 0
        self._warned_string_id = False
        self._last_id = 0
        self._in_flight = InFlight()
        self.outbox = Outbox()
        """What waits to be sent; see :meth:`take_output`."""

    @property
    def in_flight(self) -> int:
        """How many requests have not settled; a listing counts as one."""
        return len(self._in_flight)

    @property
    def dropped(self) -> int:
        """How much was ignored: notifications, blank lines, answers to unknown ids, requests past the limit of
        replies."""
        return self._dropped + self._lines.blank

    @property
    def next_deadline(self) -> float | None:
        """When :meth:`expire` has something to do at the earliest; None when nothing is in flight."""
        return self._in_flight.next_deadline()

    # --- requests ------------------------------------------------------------------------------------------

    def initialize(self, deadline: float, *, timeout_ms: int) -> None:
        """Begin the handshake; once. Ends in :class:`Initialized` or :class:`Died`, the latter with
        :class:`~treadle.errors.StartTimedOut` at ``deadline``; ``timeout_ms`` is the budget that it names.

        Raises :class:`~treadle.errors.Unavailable` when the session is dead, RuntimeError when called again.
        """
        self._check(self._rules.initialize)
        params = initialize_params(PROTOCOL_VERSIONS[0], self._client_version)
        self._request("initialize", params, Pending("initialize", deadline, timeout_ms))
        self._enter(State.INITIALIZING)

    def list_tools(self, deadline: float, token: Any, *, timeout_ms: int) -> None:
        """List all tools, following every page, within the one ``deadline``. Ends in :class:`Listed` or
        :class:`Failed`. Raises :class:`~treadle.errors.Unavailable` when the session is not ready.
        """
        self._check(self._rules.request)
        pending = Pending("list", deadline, timeout_ms, token, listing=Listing())
        self._request("tools/list", tools_list_params(None), pending)

    def call(
        self,
        name: str,
        arguments_json: bytes,
        deadline: float,
        token: Any,
        *,
        timeout_ms: int,
        content: Content = "text",
    ) -> int:
        """Call a tool; returns the id of the request. Ends in :class:`Answered` or :class:`Failed`, unless it is
        cancelled. ``arguments_json`` is compact JSON of an object.

        Raises :class:`~treadle.errors.Unavailable` when the session is not ready and
        :class:`~treadle.errors.InvalidArgument` for a name that is not valid Unicode; nothing is sent then.
        """
        if self._rules.request is not _ACT:
            self._check(self._rules.request)
        request_id = self._last_id + 1
        line = encode_call(request_id, name, arguments_json)
        self._last_id = request_id
        self._in_flight.add(request_id, Pending("call", deadline, timeout_ms, token, content))
        self.outbox.lines.append((request_id, line))
        return request_id

    def ping(self, deadline: float, token: Any, *, timeout_ms: int) -> int:
        """Ask for a sign of life; returns the id of the request. Ends in :class:`Ponged` or :class:`Failed`,
        unless it is cancelled. Raises :class:`~treadle.errors.Unavailable` when the session is not ready.
        """
        self._check(self._rules.request)
        return self._request("ping", None, Pending("ping", deadline, timeout_ms, token))

    def cancel(self, request_id: int) -> bool:
        """Forget a request: no event comes of it, and a late answer is dropped. A line that was not taken yet is
        never sent. Returns False when no such request is in flight.
        """
        if self._in_flight.pop(request_id, None) is None:
            return False
        self.outbox.withdraw(request_id)
        return True

    # --- the shell's side ------------------------------------------------------------------------------------

    def take_output(self) -> list[tuple[int, bytes]]:
        """The lines to send since the last call, in order, each with the id of its request (0: no request).

        Take only what can be written: what waits here counts against the limit of replies to the server's own
        requests, which is what bounds a server that asks and does not read.
        """
        return self.outbox.take()

    def receive_data(self, chunk: bytes) -> list[Event]:
        """What follows from ``chunk``, the next bytes of the server's stdout, in order. Raises nothing."""
        events: list[Event] = []
        if self._rules.data is _IGNORE:
            return events
        try:
            lines = self._lines.push(chunk)
        except Exception as error:  # what was pending is lost, and with it where the next line begins
            return self._end(Malformed(f"could not be taken in: {type(error).__name__}", ""))
        for line in lines:
            try:
                # What a session mostly does, in few steps.
                found = quick.read(line)
                if type(found) is tuple:
                    request_id, result = found
                    pending = self._in_flight.get(request_id)
                    if pending is not None and pending.kind == "call" and pending.content == "text":
                        del self._in_flight[request_id]
                        events.append(Answered(pending.token, result))
                        continue
                elif found is NOTIFICATION:
                    self._dropped += 1
                    continue
                message = decode(line)
            except (Malformed, BadMessage) as fault:
                self._take_bad_line(_without_frames(fault), line, events)
            except Exception as error:
                reason = f"could not be taken in: {type(error).__name__}"
                self._take_bad_line(Malformed(reason, ""), line, events)
            else:
                self._take_message(message, events)
            if self.state is State.DEAD:
                return events
        broken = self._lines.fault
        if broken is not None:
            if isinstance(broken, NotUtf8):
                broken.quoted = self._printer.line(self._lines.offending)
            events += self._end(broken)
        return events

    def expire(self, now: float) -> list[Event]:
        """Settle every request whose deadline is not after ``now``. Raises nothing."""
        events: list[Event] = []
        if self._rules.expire is Rule.IGNORE:
            return events
        while (expired := self._in_flight.pop_expired(now)) is not None:
            request_id, pending = expired
            if pending.kind == "initialize":
                return self._end(StartTimedOut("initialize", pending.timeout_ms, "handshake_timeout_ms"))
            outcome = pending.outcome(unsent=self.outbox.withdraw(request_id))
            events.append(Failed(pending.token, CallTimedOut(pending.timeout_ms, outcome)))
        return events

    def die(self, fault: Fault) -> list[Event]:
        """End the conversation: every request in flight fails with :class:`~treadle.errors.Unavailable`, then
        :class:`Died` comes. The first reason is latched; later ones change nothing and return no event.

        During the handshake a reason that is neither a start fault nor an explicit stop is wrapped in
        :class:`~treadle.errors.HandshakeFailed`. Raises nothing.
        """
        return [] if self._rules.die is Rule.IGNORE else self._end(fault)

    # --- inside ----------------------------------------------------------------------------------------------

    def _check(self, rule: Rule) -> None:
        if rule is Rule.REFUSE:
            raise Unavailable(self._reason())
        if rule is Rule.MISUSE:
            raise RuntimeError("initialize was sent before")

    def _reason(self) -> str:
        if self.fault is not None:
            return explain(self.fault)
        if self.state is State.INITIALIZING:
            return f"server {self.server} is starting: its handshake is not finished"
        return f"server {self.server} is not started"

    def _enter(self, state: State) -> None:
        self.state = state
        self._rules = TABLE[state]

    def _request(self, method: str, params: bytes | None, pending: Pending) -> int:
        self._last_id = request_id = self._last_id + 1
        self._in_flight.add(request_id, pending)
        self.outbox.add(encode_request(request_id, method, params), request_id)
        return request_id

    def _take_bad_line(self, fault: Malformed | BadMessage, line: bytes, events: list[Event]) -> None:
        self.bad_lines += 1
        if not self._drop_bad_lines:
            fault.quoted = self._printer.line(line)
            events += self._end(fault)
        elif self.bad_lines <= _WARNED_BAD_LINES:
            fault.quoted = self._printer.line(line)
            more = "; further ones are only counted" if self.bad_lines == _WARNED_BAD_LINES else ""
            events.append(Warned(f"dropped: {explain(fault).removesuffix(BAD_LINE_ADVICE)}{more}"))

    def _take_message(self, message: Message, events: list[Event]) -> None:
        if isinstance(message, Notification):
            self._dropped += 1
        elif isinstance(message, Request):
            if message.method == "initialize" and self.state is State.INITIALIZING:
                events += self._end(EchoedRequest())
            else:
                self._reply(message)
        elif isinstance(message.id, int) and (pending := self._in_flight.pop(message.id, None)) is not None:
            self._settle(pending, message, events)
        else:
            self._dropped += 1
            if isinstance(message.id, str) and not self._warned_string_id:
                self._warned_string_id = True
                shown = self._printer.text(message.id)
                events.append(
                    Warned(f'dropped an answer to "{shown}": ids are integers here; others are only counted')
                )

    def _reply(self, request: Request) -> None:
        if request.method == "ping":
            line = encode_result(request.id_raw, b"{}")
        else:
            line = encode_error(request.id_raw, METHOD_NOT_FOUND, "method not found")
        if not self.outbox.add_reply(line):
            self._dropped += 1

    def _settle(self, pending: Pending, answer: Response | ErrorResponse, events: list[Event]) -> None:
        try:
            if isinstance(answer, ErrorResponse):
                raise self._printer.error(answer)
            if isinstance(answer.result, NotCarriable):
                raise answer.result
            event = self._succeed(pending, answer.result)
        except Fault as fault:
            self._fail(pending, _without_frames(fault), events)
        except Exception as error:
            self._fail(pending, _not_taken_in(error), events)
        else:
            if event is not None:
                events.append(event)

    def _succeed(self, pending: Pending, result: bytes) -> Event | None:
        """The event that ``result`` is for ``pending``; None when a listing goes on. Raises what is wrong."""
        if pending.kind == "call":
            return Answered(pending.token, decode_call_result(result, pending.content))
        if pending.kind == "ping":
            return Ponged(pending.token)
        if pending.listing is not None:
            cursor = pending.listing.add(result)
            if cursor is None:
                return Listed(pending.token, pending.listing.tools)
            self._request("tools/list", tools_list_params(cursor), pending)
            return None
        initialized = Initialized(self._printer.initialized(decode_initialize_result(result, self._versions)))
        self._enter(State.READY)
        self.outbox.add(encode_notification("notifications/initialized"))
        return initialized

    def _fail(self, pending: Pending, fault: Fault, events: list[Event]) -> None:
        fault = self._printer.fault(fault)
        if pending.kind == "initialize":
            events += self._end(fault)
        elif isinstance(fault, CallFault) or (pending.kind == "list" and not isinstance(fault, NotCarriable)):
            events.append(Failed(pending.token, fault))
        else:
            events.append(Failed(pending.token, ResultMalformed(self._printer.redacted(explain(fault)))))

    def _end(self, fault: Fault) -> list[Event]:
        if self.state is State.INITIALIZING and not isinstance(fault, StartFault | Stopped):
            fault = HandshakeFailed(fault)
        self.fault = fault
        self._enter(State.DEAD)
        reason = explain(fault)
        unsent = {request_id for request_id, _ in self.outbox.take()}
        events: list[Event] = [
            Failed(pending.token, Unavailable(reason, pending.outcome(request_id in unsent)))
            for request_id, pending in self._in_flight.pop_all()
            if pending.kind != "initialize"
        ]
        self._lines.discard()
        return [*events, Died(fault)]
