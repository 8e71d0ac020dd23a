"""The client of one server: the session, a transport, and the clock (floor 3).

A thin shell around :class:`treadle.session.Session`. It owns the phases of the client page, section 4,
the deadline timer, the lines that could not be written yet, and the retirement of what stands behind the
transport. No caller waits past its own deadline, whatever the server does: deadlines fire from the loop's
timer and depend neither on a write nor on another task.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from typing import Final

import treadle
from treadle.config import ServerConfig
from treadle.errors import (
    CallFault,
    CallTimedOut,
    Cancelled,
    ChannelClosed,
    ChannelFault,
    Fault,
    HandshakeFailed,
    Overloaded,
    RetirementTimedOut,
    RetirementUnconfirmed,
    StartFault,
    StartTimedOut,
    Stopped,
    TransportFailed,
    Unavailable,
    explain,
)
from treadle.flushing import FEW, Flusher
from treadle.phases import PHASES, Phase
from treadle.session import Answered, Died, Event, Failed, Initialized, Listed, Session, Warned
from treadle.transport import Evidence, Ladder, Transport
from treadle.tree import Usage
from treadle.unsent import LIMIT, Unsent
from treadle.waiter import FutureWaiter, Waiter
from treadle.wire.messages import CallResult, Content, InitializeResult, Tool

log = logging.getLogger(__name__)

_SERVING: Final = Phase.SERVING  # a member is looked up on its class at the cost of a call


class Client:
    """The client of one server, from parked to retired.

    A new client is *prepared*: no process, no pipe; its retirement evidence is "no resource". :meth:`start`
    makes it serve. When its channel dies, for whatever reason, it closes by itself: every request in flight is
    settled with the latched reason and the server is retired by the ladder of its ``stop_timeout_ms``.
    """

    def __init__(
        self,
        config: ServerConfig,
        transport: Transport,
        *,
        redact: Callable[[str], str] = str,
        custodian: asyncio.Task[object] | None = None,
        flusher: Flusher | None = None,
    ) -> None:
        """``flusher`` is shared by all that write at the end of one callback of the loop."""
        self.config = config
        self.server = config.name
        self.phase = Phase.PREPARED
        self.info: InitializeResult | None = None
        self.tools: tuple[Tool, ...] = ()
        self.evidence: Evidence | None = None
        self._transport = transport
        self._redact = redact
        self._loop = asyncio.get_running_loop()
        self._flusher = flusher or Flusher(self._loop)
        self._session = Session(
            config.name,
            client_version=treadle.__version__,
            accept_versions=config.accept_versions,
            bad_lines=config.bad_lines,
            redact=redact,
        )
        self._reason: str | None = None
        self._fault: Fault | None = None
        self._unsent = Unsent(transport.send)
        self._flush_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._starting: asyncio.Future[object] | None = None
        self._retiring: asyncio.Task[Evidence] | None = None
        self.died: asyncio.Future[Fault] = self._loop.create_future()
        self._custodian = custodian
        if custodian is not None:
            custodian.add_done_callback(self._custodian_ended)

    # --- what is known ----------------------------------------------------------------------------

    @property
    def reason(self) -> str | None:
        """The latched reason of the channel's death, for people; None while it lives."""
        return self._reason

    @property
    def fault(self) -> Fault | None:
        """The latched fault behind :attr:`reason`."""
        return self._fault

    @property
    def in_flight(self) -> int:
        """Requests sent or waiting to be sent, and not settled."""
        return self._session.in_flight

    @property
    def others_wait(self) -> bool:
        """Whether others may wait for the end of a turn in which a large answer is read."""
        return self._flusher.others_wait()

    @property
    def pid(self) -> int | None:
        """The server's process id while it is owned, else None."""
        return self._transport.pid

    @property
    def counters(self) -> dict[str, int]:
        """``bad_lines`` (dropped by ``bad_lines = "drop"``), ``dropped`` messages, ``stderr_bytes``."""
        return {
            "bad_lines": self._session.bad_lines,
            "dropped": self._session.dropped,
            "stderr_bytes": self._transport.stderr_bytes,
        }

    def stderr_tail(self, max_bytes: int = 65536) -> str:
        """The newest captured stderr text, sanitised and redacted."""
        return self._transport.stderr_tail(max_bytes)

    def usage(self) -> Usage | None:
        """What the server and its descendants use now; None when it does not run. Reads ``/proc``."""
        return self._transport.usage()

    # --- start ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the transport, shake hands, take the listing.

        Each phase has its own budget (``open_timeout_ms``, ``handshake_timeout_ms``, ``list_timeout_ms``).
        Raises a :class:`StartFault`; the client is then closing and :meth:`retired` ends with evidence.
        """
        if self.phase is not Phase.PREPARED:
            raise TransportFailed(self._reason or f"the client of {self.server} was already {self.phase.value}")
        self._enter(Phase.SERVING)
        try:
            await self._open()
            await self._shake_hands()
            self.tools = await self._take_listing()
        except StartFault as fault:
            self.close(fault)
            raise
        except asyncio.CancelledError:
            self.close(Stopped("the end of the task that started it"))
            raise

    async def _open(self) -> None:
        budget = self.config.open_timeout_ms
        try:
            await asyncio.wait_for(self._transport.open(self), budget / 1000)
        except TimeoutError:
            raise StartTimedOut("opening the transport", budget, "open_timeout_ms") from None
        except OSError as error:
            raise TransportFailed(f"the transport could not be opened: {error.strerror or error}") from None
        if self._fault is not None:
            raise HandshakeFailed(self._fault)

    async def _shake_hands(self) -> None:
        budget = self.config.handshake_timeout_ms
        self._starting = self._loop.create_future()
        self._session.initialize(self._loop.time() + budget / 1000, timeout_ms=budget)
        self._arm()
        self.flush()
        await self._starting

    async def _take_listing(self) -> tuple[Tool, ...]:
        try:
            return await self.list_tools()
        except StartFault:
            raise
        except CallTimedOut as fault:
            raise StartTimedOut("tools/list", fault.after_ms, "list_timeout_ms") from None
        except Fault as fault:
            raise HandshakeFailed(self._fault or fault, "tools/list") from None

    # --- requests ---------------------------------------------------------------------------------

    def call(
        self,
        waiter: Waiter,
        tool: str,
        arguments: bytes,
        timeout_ms: int,
        content: Content = "text",
        deadline: float | None = None,
    ) -> None:
        """Send one ``tools/call``; ``waiter`` is settled exactly once, by ``timeout_ms`` from now at the latest.

        ``arguments`` is one JSON object in UTF-8. ``deadline`` is the loop's time at which that ends, if the
        caller has worked it out already. A client that does not serve settles the waiter at once.
        """
        if self._fault is not None or self.phase is not _SERVING:
            waiter.request_id = 0
            self._settle(waiter, Unavailable(self._reason or f"server {self.server} is {self.phase.value}"))
            return
        if self._unsent.bytes > LIMIT:
            waiter.request_id = 0
            where = f"server {self.server} does not read its input;"
            self._settle(waiter, Overloaded("unsent_bytes", LIMIT, where))
            return
        if deadline is None:
            deadline = self._loop.time() + timeout_ms / 1000
        try:
            waiter.request_id = self._session.call(
                tool, arguments, deadline, waiter, timeout_ms=timeout_ms, content=content
            )
        except CallFault as fault:
            waiter.request_id = 0
            self._settle(waiter, fault)
            return
        if deadline < self._timer_at:
            self._arm_at(deadline)
        if not self._flush_due:
            self._flush_due = True
            self._flusher.add(self.flush)

    async def call_tool(
        self, tool: str, arguments: bytes = b"{}", *, timeout_ms: int | None = None, content: Content = "text"
    ) -> CallResult:
        """:meth:`call` for coroutines. Cancelling the awaiting task withdraws the call."""
        future: asyncio.Future[CallResult] = self._loop.create_future()
        waiter = FutureWaiter(future)
        budget = self.config.call_timeout_ms if timeout_ms is None else timeout_ms
        self.call(waiter, tool, arguments, timeout_ms=budget, content=content)
        try:
            return await future
        except asyncio.CancelledError:
            self.cancel(waiter)
            raise

    async def list_tools(self) -> tuple[Tool, ...]:
        """A fresh listing, all pages, within ``list_timeout_ms``. Raises the listing's fault."""
        if self._fault is not None:
            raise Unavailable(self._reason or "")
        future: asyncio.Future[tuple[Tool, ...]] = self._loop.create_future()
        budget = self.config.list_timeout_ms
        self._session.list_tools(self._loop.time() + budget / 1000, future, timeout_ms=budget)
        self._arm()
        self.flush()
        return await future

    def cancel(self, waiter: Waiter) -> bool:
        """Withdraw a call: it is settled as :class:`Cancelled` now, its late answer is dropped.

        Returns False, and does nothing, when the call is not in flight.
        """
        # Taken first, so that a line which has not left yet is found among the unsent ones.
        self._unsent.hold(self._session.take_output())
        if not waiter.request_id or not self._session.cancel(waiter.request_id):
            return False
        outcome = self._unsent.withdraw(waiter.request_id)
        self._settle(waiter, Cancelled(outcome))
        return True

    # --- the transport's side (Receiver) ----------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """A chunk of the server's stdout."""
        flusher = self._flusher
        flusher.is_open = self._session.in_flight < FEW
        try:
            events = self._session.receive_data(data)
            if events:
                self._handle(events)
            # Left with the session while the server does not read: there the answers to its requests are bounded.
            if self._session.outbox.lines and not self._unsent.blocked:
                self.flush()
        finally:
            if flusher.is_open:
                flusher.flush()

    def writable(self) -> None:
        """The transport takes bytes again."""
        if self._fault is None:
            self._unsent.unblock()
            self.flush()

    def closed(self, reason: Fault) -> None:
        """The transport ended."""
        self.close(reason)

    def flush(self) -> None:
        """Hand the lines that wait to the transport, as many as it takes, in as few writes as possible."""
        self._flush_due = False
        if self._fault is None:
            self._unsent.write(self._session.outbox.take())

    # --- events -----------------------------------------------------------------------------------

    def _handle(self, events: list[Event]) -> None:
        if not events:
            return
        last = events[-1]
        dead = last.fault if type(last) is Died else None
        if dead is not None:
            self._latch(dead)
        for event in events:
            if type(event) is Answered:
                try:
                    event.token.settle(event.result)
                except Exception:
                    self._log_undelivered()
            elif type(event) is Failed:
                self._failed(event)
            elif type(event) is Listed:
                self._resolve_listing(event.token, event.tools)
            elif type(event) is Initialized:
                self.info = event.result
                if self._starting is not None and not self._starting.done():
                    self._starting.set_result(None)
            elif type(event) is Warned:
                log.warning("%s: %s", self.server, event.text, extra={"server": self.server})
        if dead is not None:
            self._begin_closing()

    def _failed(self, event: Failed) -> None:
        fault = event.fault
        if isinstance(fault, Unavailable) and self._reason is not None:
            fault.reason = self._reason
        token = event.token
        if isinstance(token, asyncio.Future):
            if not token.done():
                token.set_exception(fault)
            return
        if self._unsent and isinstance(fault, CallFault) and fault.outcome == "unknown":
            fault.outcome = self._unsent.withdraw(token.request_id)
        self._settle(token, fault)

    def _settle(self, waiter: Waiter, outcome: CallResult | Fault) -> None:
        # One delivery that goes wrong must not take the other deliveries of the same read with it.
        try:
            waiter.settle(outcome)
        except Exception:
            self._log_undelivered()

    def _log_undelivered(self) -> None:
        log.exception("%s: delivering an outcome failed", self.server, extra={"server": self.server})

    @staticmethod
    def _resolve_listing(token: asyncio.Future[tuple[Tool, ...]], tools: tuple[Tool, ...]) -> None:
        if not token.done():
            token.set_result(tools)

    # --- deadlines --------------------------------------------------------------------------------

    def _arm(self) -> None:
        deadline = self._session.next_deadline
        if deadline is not None and deadline < self._timer_at:
            self._arm_at(deadline)

    def _arm_at(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._timer_at = math.inf
        # The loop's timers count whole milliseconds and may fire a fraction early.
        self._handle(self._session.expire(self._loop.time() + 0.001))
        self._arm()

    # --- the end ----------------------------------------------------------------------------------

    def close(self, fault: Fault, ladder: Ladder | None = None) -> None:
        """End the channel with ``fault`` as its reason (the first one wins) and begin the retirement.

        Idempotent; a later call with a shorter ``ladder`` hurries a retirement under way.
        """
        if self.phase is Phase.PREPARED:
            self._latch(fault)
            self._finish(Evidence(kind="no_resource", drained=True))
            return
        self._handle(self._session.die(fault))
        if self._fault is None:
            self._latch(fault)
        self._begin_closing(ladder)

    async def retired(self) -> Evidence:
        """Wait, however long it takes, for the evidence of a client that is closing or retired."""
        if self.evidence is not None:
            return self.evidence
        if self._retiring is None:
            raise RetirementUnconfirmed(self.server, f"it is {self.phase.value}, nobody asked it to stop")
        return await asyncio.shield(self._retiring)

    async def shutdown(self, *, within: float, ladder: Ladder | None = None, by: str = "shutdown") -> Evidence:
        """Stop the server and return the evidence of its end, within ``within`` seconds.

        Raises :class:`RetirementTimedOut` when no evidence came in time (custody goes on, ask again) and
        :class:`RetirementUnconfirmed` when the end can never be known.
        """
        self.close(Stopped(by), ladder)
        if self.evidence is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.retired(), within)
        # Looked at afterwards, too: evidence that is there counts, however late it was asked for.
        if self.evidence is None:
            raise RetirementTimedOut(self.server, round(within * 1000))
        if self.evidence.kind == "unknown":
            raise RetirementUnconfirmed(self.server, "its exit was not observed")
        return self.evidence

    def _custodian_ended(self, _: asyncio.Task[object]) -> None:
        if self.phase in (Phase.PREPARED, Phase.SERVING):
            self.close(Stopped("the end of its custodian"))

    def _latch(self, fault: Fault) -> None:
        if self._fault is not None:
            return
        self._fault = fault
        reason = explain(fault)
        # A transport's own reason already tells what stderr said; a fault of the conversation does not.
        if isinstance(fault, ChannelFault | HandshakeFailed | StartTimedOut):
            last = self.stderr_tail(400).strip()
            if last and not (isinstance(fault, HandshakeFailed) and isinstance(fault.error, ChannelClosed)):
                reason = f"{reason}; stderr: {' | '.join(last.splitlines()[-3:])}"
        self._reason = self._redact(reason)
        if self._starting is not None and not self._starting.done():
            start_fault = fault if isinstance(fault, StartFault) else HandshakeFailed(fault)
            self._starting.set_exception(start_fault)
        if not self.died.done():
            self.died.set_result(fault)

    def _begin_closing(self, ladder: Ladder | None = None) -> None:
        if self.phase is Phase.SERVING:
            self._enter(Phase.CLOSING)
            self._unsent.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer, self._timer_at = None, math.inf
            chosen = ladder or Ladder.within(self.config.stop_timeout_ms)
            self._retiring = self._loop.create_task(self._retire(chosen), name=f"retire {self.server}")
            _CUSTODY.add(self._retiring)
            self._retiring.add_done_callback(_CUSTODY.discard)
        elif self.phase is Phase.CLOSING and ladder is not None:
            hurry = self._loop.create_task(self._transport.retire(ladder), name=f"hurry {self.server}")
            _CUSTODY.add(hurry)
            hurry.add_done_callback(_CUSTODY.discard)

    async def _retire(self, ladder: Ladder) -> Evidence:
        try:
            evidence = await self._transport.retire(ladder)
        except Exception as error:
            log.exception("%s: retirement failed", self.server, extra={"server": self.server})
            evidence = Evidence(kind="unknown")
            self._reason = self._reason or str(error)
        self._finish(evidence)
        return evidence

    def _finish(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self._enter(Phase.RETIRED)
        if self._custodian is not None:
            self._custodian.remove_done_callback(self._custodian_ended)

    def _enter(self, phase: Phase) -> None:
        if phase not in PHASES[self.phase]:
            raise AssertionError(f"{self.server}: {self.phase.value} cannot become {phase.value}")
        self.phase = phase


_CUSTODY: Final[set[asyncio.Task[Evidence]]] = set()
"""Retirements under way. The loop keeps only weak references to tasks; custody must not be collected."""


def prepare_owned(
    config: ServerConfig,
    transport: Transport,
    custodian: asyncio.Task[object],
    *,
    redact: Callable[[str], str] = str,
) -> Client:
    """A parked client that belongs to ``custodian``, whoever builds it (client page, section 4).

    When the custodian ends, a parked client is retired with "no resource", and a serving one closes and still
    waits for its server's real exit.
    """
    return Client(config, transport, redact=redact, custodian=custodian)
