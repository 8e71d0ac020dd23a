"""One supervisor a server: starts it, watches it, restarts it by policy, admits its calls (floor 4).

One task owns one server. A replacement is started on retirement evidence alone, and no call is ever handed to a
second incarnation: a call is sent at most once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from treadle.call import Call
from treadle.census import Census, Row
from treadle.client import Client
from treadle.config import Refused, ServerConfig
from treadle.errors import (
    CallFault,
    CallTimedOut,
    Cancelled,
    ChannelClosed,
    CleanupUnconfirmed,
    Fault,
    Overloaded,
    RetirementUnconfirmed,
    ShuttingDown,
    StartFault,
    Stopped,
    TransportFailed,
    Unavailable,
    explain,
    reason_of,
)
from treadle.evidence import sentence
from treadle.metering import Meter
from treadle.phases import Phase
from treadle.restart import Again, Park, RestartPolicy, spread
from treadle.states import Input, State, follow
from treadle.transport import NO_RESOURCE, Evidence, Ladder
from treadle.wire.messages import CallResult, Tool

log = logging.getLogger(__name__)

_READY: Final = State.READY  # a member is looked up on its class at the cost of a call

_AnyFault = TypeVar("_AnyFault", bound=Fault)

PROOF_MARGIN_S: Final = 6.0
"""After SIGKILL was sent: how long evidence may take before a server counts as unconfirmed."""


class Supervisor:
    """The life of one configured server."""

    def __init__(
        self,
        config: ServerConfig | Refused,
        make_client: Callable[[ServerConfig], Client],
        census: Census,
        *,
        jitter: Callable[[], float] = spread,
    ) -> None:
        self.name = config.name
        self.config: ServerConfig | None = config if isinstance(config, ServerConfig) else None
        self.state = State.PREPARED
        self.reason: str | None = None
        self.client: Client | None = None
        self._offered: tuple[Tool, ...] = ()
        self.generation = 0
        self.meter = Meter()
        self.started_at: float | None = None
        self.last_failure: tuple[float, str] | None = None
        self.evidence: Evidence | None = None
        self.offers_all = (
            self.config is not None and self.config.tools_allow == ("*",) and not self.config.tools_deny
        )
        """Whether every tool of the server is offered, so that nobody need match names."""
        self._make_client = make_client
        self._census = census
        self._loop = asyncio.get_running_loop()
        self._ready_since: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._wanted = False
        self._asked = False  # while the last incarnation was closing: then its policy has no say
        self.final = False
        """Start nothing any more, neither by policy nor on demand; see :meth:`finish`."""
        self._shutting_down = False
        self._wake = asyncio.Event()
        self._watchers: set[asyncio.Future[None]] = set()
        self._in_flight = 0
        self._pumping = False
        self._queue: deque[Call] = deque()
        self._waiting: dict[Call, None] = {}
        if self.config is None:
            assert isinstance(config, Refused)
            self.state = State.REFUSED
            self.reason = config.reason
            self.policy = None
        else:
            self.policy = RestartPolicy(self.config, jitter)
            if not self.config.enabled:
                self.state = State.DISABLED
                self.reason = "enabled = false"

    # --- life -------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Park a client and publish it in the census. Nothing runs yet. A refusal becomes the server's state."""
        if self.state is not State.PREPARED:
            return
        assert self.config is not None
        try:
            self.client = self._make(self.config)
        except Fault as fault:
            self.state = State.REFUSED
            self.reason = reason_of(fault, self.name)
            log.error("%s: refused: %s", self.name, self.reason, extra={"server": self.name})
            return
        self._census.publish(self.client)

    def begin(self) -> None:
        """Begin to supervise: an eager server starts now, a lazy one at its first use."""
        if self.state in (State.REFUSED, State.DISABLED):
            return
        assert self.config is not None
        self._wanted = not self.config.lazy
        if self._wanted:
            # Entered before the task runs, so that a call that comes first waits instead of being refused.
            self._follow(Input.START)
        self._task = self._loop.create_task(self._run(), name=f"supervise {self.name}")

    async def start(self) -> None:
        """Want the server up, whatever its policy says; returns when it is ready or its start failed.

        Raises :class:`Unavailable` when it is disabled, refused or not proven gone, and after :meth:`finish`.
        """
        if self.final:
            raise Unavailable(f"server {self.name} is not started any more")
        if self.state is State.REFUSED and self.config is not None:
            self._prepare_again()
        if self.state in (State.REFUSED, State.DISABLED, State.UNCONFIRMED):
            raise Unavailable(self.unavailable())
        assert self.policy is not None
        self.policy.forgive()
        self._want_up()
        await self.until(lambda: self.state not in (State.STARTING, State.CLOSING))

    def _prepare_again(self) -> None:
        """What refused the server may have been put right since: a file with a credential is there now."""
        self.state, self.reason = State.PREPARED, None
        self.prepare()
        if self.state is State.PREPARED:
            self._task = self._loop.create_task(self._run(), name=f"supervise {self.name}")

    async def stop(self, ladder: Ladder | None, within: float, by: str) -> Row:
        """Want the server down; returns its evidence, or the fault that stands for it, within ``within`` s.

        A start that is asked for meanwhile wins: then the row tells the end of the incarnation before it.
        """
        self._wanted = self._asked = False
        self._wake.set()
        if self.state in (State.REFUSED, State.DISABLED):
            return Row(self.name, NO_RESOURCE)
        row = (await self._census.retire([self.name], ladder, within, by))[0]
        if row.confirmed:
            running = (State.STARTING, State.READY, State.CLOSING)
            await self.until(lambda: self._wanted or self.state not in running)
            if self._wanted:
                return row
            if self.state in (State.PREPARED, State.BACKOFF, State.PARKED):
                self._follow(Input.STOP)
            self.reason = f"stopped by {by}"
            self.evidence = row.evidence
        return row

    def finish(self, *, shutdown: bool = False) -> None:
        """Start nothing any more: neither by policy nor on demand. What runs goes on until :meth:`stop`.

        With ``shutdown`` the callers that this leaves without an answer hear that the daemon is shutting down.
        """
        self.final = True
        self._shutting_down = shutdown
        self._wake.set()

    async def end(self) -> None:
        """Stop supervising. The server must have been stopped before."""
        self.finish()
        self._wanted = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition``, which is looked at after every change of state."""
        while not condition():
            watcher: asyncio.Future[None] = self._loop.create_future()
            self._watchers.add(watcher)
            try:
                await watcher
            finally:
                self._watchers.discard(watcher)

    def _want_up(self) -> None:
        self._wanted = True
        if self.state in (State.PREPARED, State.RETIRED, State.BACKOFF, State.PARKED):
            self._follow(Input.START)
        elif self.state is State.CLOSING:
            self._asked = True
        self._wake.set()
        self._notify()

    def _follow(self, happening: Input) -> None:
        self.state = follow(self.state, happening)
        self._notify()

    def _notify(self) -> None:
        for watcher in self._watchers:
            if not watcher.done():
                watcher.set_result(None)

    async def _run(self) -> None:
        while True:
            while self.final or not self._wanted:
                if self.state is State.STARTING:
                    self._not_started()
                self._wake.clear()
                await self._wake.wait()
            if self.state is not State.STARTING:
                self._follow(Input.START)
            self._asked = False
            clean, uptime = await self._incarnation()
            if self._wanted and not self._asked and not self.final:
                await self._between(clean, uptime)

    def _not_started(self) -> None:
        """The start was taken back before anything of it was done."""
        self._follow(Input.STOP)
        self._end_waiting()
        self._follow(Input.PROVEN)

    async def _incarnation(self) -> tuple[bool, float | None]:
        """From STARTING to RETIRED. Returns whether the end was a clean exit, and the seconds of readiness."""
        self.generation += 1
        client = self._next_client()
        if client is None:
            self._follow(Input.FAILED)
            self._end_waiting()
            self._follow(Input.PROVEN)
            return False, None
        self.client = client
        uptime = None
        try:
            await client.start()
        except StartFault as fault:
            failure: Fault = fault
            self._follow(Input.FAILED)
        else:
            self._became_ready(client)
            failure = await client.died
            uptime = self._loop.time() - (self._ready_since or 0.0)
            self._follow(Input.DIED)
        self._ready_since = self.started_at = None
        if isinstance(client.fault, Stopped):
            self.reason = client.reason
        else:
            self._note_failure(client.reason or reason_of(failure, self.name))
        self._end_waiting()
        evidence = await self._proof(client, failure)
        # A fault of the channel is a failure, even of a server that exits 0 right after it.
        ended = isinstance(client.fault, ChannelClosed) and evidence.rung == "itself"
        clean = uptime is not None and ended and evidence.status == 0
        return clean, uptime

    def _next_client(self) -> Client | None:
        """The parked client of the first start, else a new one. A parked lazy client is made anew, so that its
        environment is that of now."""
        assert self.config is not None
        parked = self.client
        if parked is not None and parked.phase is Phase.PREPARED and not self.config.lazy:
            return parked
        try:
            client = self._make(self.config)
        except Fault as fault:
            self._note_failure(reason_of(fault, self.name))
            return None
        self._census.publish(client)
        return client

    def _make(self, config: ServerConfig) -> Client:
        try:
            return self._make_client(config)
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            raise TransportFailed(f"it cannot be prepared: {error.strerror}{where}") from None

    def _became_ready(self, client: Client) -> None:
        self._follow(Input.STARTED)
        self._ready_since = self._loop.time()
        self.started_at = time.time()
        self.reason = None
        self.evidence = None
        assert self.config is not None
        # Once: a listing may have ten thousand tools, and every status counts them.
        self._offered = tuple(tool for tool in client.tools if self.config.tool_allowed(tool.name))
        self.meter.know(tool.name for tool in self.tools)
        log.info(
            "%s: ready: %d tools, pid %s, generation %d",
            self.name,
            len(client.tools),
            client.pid,
            self.generation,
            extra={"server": self.name},
        )
        waiting, self._waiting = self._waiting, {}
        for call in waiting:
            self._stop_timer(call)
            self._admit(call)

    async def _proof(self, client: Client, failure: Fault) -> Evidence:
        """Wait for the evidence of ``client``; UNCONFIRMED, and on waiting, where it does not come."""
        assert self.config is not None
        budget = self.config.stop_timeout_ms / 1000 + PROOF_MARGIN_S
        try:
            evidence = await asyncio.wait_for(client.retired(), budget)
        except TimeoutError:
            self._unproven(client, failure)
            evidence = await client.retired()
        while not evidence.confirmed:
            if self.state is not State.UNCONFIRMED:
                self._unproven(client, failure)
            # No evidence will come by itself: nothing may ever be started in its place.
            await self._loop.create_future()
        self.evidence = evidence
        self.meter.stragglers += evidence.stragglers
        if self.state is State.UNCONFIRMED:
            self.reason = client.reason
        self._follow(Input.PROVEN)
        log.info("%s: retired: %s", self.name, sentence(evidence.to_body()), extra={"server": self.name})
        return evidence

    def _unproven(self, client: Client, failure: Fault) -> None:
        self._follow(Input.UNPROVEN)
        served = client.info is not None
        why = f"{explain(failure)}, and its process is not proven gone"
        fault = RetirementUnconfirmed(self.name, why) if served else CleanupUnconfirmed(self.name, failure)
        self.reason = reason_of(fault, self.name)
        log.error("%s: %s", self.name, self.reason, extra={"server": self.name})

    async def _between(self, clean: bool, uptime: float | None) -> None:
        """After an end that nobody asked for: rest, wait out the backoff, or park."""
        assert self.policy is not None
        verdict = self.policy.ended(clean=clean, uptime=uptime, reason=self.reason or "")
        if isinstance(verdict, Again):
            self._follow(Input.RETRY)
            self.meter.restarts += 1
            log.warning(
                "%s: restart in %.1f s: %s", self.name, verdict.delay, self.reason, extra={"server": self.name}
            )
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), verdict.delay)
            return
        self._wanted = False
        if isinstance(verdict, Park):
            self._follow(Input.PARK)
            self.reason = verdict.reason
            log.error("%s: %s", self.name, self.reason, extra={"server": self.name})

    def _note_failure(self, reason: str) -> None:
        self.reason = reason
        self.last_failure = (time.time(), reason)
        log.warning("%s: %s", self.name, reason, extra={"server": self.name})

    # --- calls ------------------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        """Admit one call. It is delivered exactly once: by its time-out, plus its time in the queue. What went by
        since its receipt, while its frame was decoded, is part of its time-out."""
        call.supervisor = self
        if not call.started:
            call.started = time.perf_counter()
        now = self._loop.time()
        call.deadline = deadline = (call.received or now) + call.timeout_ms / 1000
        if deadline <= now:
            self._refuse(call, CallTimedOut(call.timeout_ms, "not_sent"))
        elif self.state is _READY:
            assert self.config is not None
            assert self.client is not None
            if self._in_flight < self.config.max_in_flight:
                self._in_flight += 1
                self.client.call(
                    call, call.tool, call.arguments, call.timeout_ms, call.content or "text", deadline
                )
            else:
                self._admit(call)
        elif self.state is State.STARTING or (self.state is State.PREPARED and self.config is not None):
            self._wait_for_start(call)
        else:
            self._refuse(call, Unavailable(self.unavailable()))

    def _admit(self, call: Call) -> None:
        assert self.config is not None
        if self._in_flight < self.config.max_in_flight:
            self._send(call)
        elif len(self._queue) < self.config.queue:
            self._queue.append(call)
            call.left = call.deadline - self._loop.time()
            call.timer = self._loop.call_later(self.config.queue_timeout_ms / 1000, self._queue_expired, call)
        elif self.config.queue:
            self._refuse(call, Overloaded("queue", self.config.queue, f"the queue of server {self.name}"))
        else:
            self._refuse(call, Overloaded("max_in_flight", self.config.max_in_flight, f"server {self.name}"))

    def _send(self, call: Call) -> None:
        assert self.client is not None
        self._in_flight += 1
        left_ms = max(1, round((call.deadline - self._loop.time()) * 1000))
        self.client.call(call, call.tool, call.arguments, left_ms, call.content or "text")

    def _queue_expired(self, call: Call) -> None:
        assert self.config is not None
        self._queue.remove(call)
        call.timer = None
        where = f"the queue of server {self.name}"
        self._refuse(call, Overloaded("queue_timeout_ms", self.config.queue_timeout_ms, where))

    def _wait_for_start(self, call: Call) -> None:
        assert self.config is not None
        limit = self.config.max_in_flight + self.config.queue
        if len(self._waiting) >= limit:
            self._refuse(call, Overloaded("max_in_flight", self.config.max_in_flight, f"server {self.name}"))
            return
        self._waiting[call] = None
        call.timer = self._loop.call_at(call.deadline, self._wait_expired, call)
        if not self._wanted:
            self._want_up()

    def _wait_expired(self, call: Call) -> None:
        del self._waiting[call]
        call.timer = None
        self._refuse(call, CallTimedOut(call.timeout_ms, "not_sent"))

    def _end_waiting(self) -> None:
        """The server did not become ready, or ended: whoever waits for it hears why."""
        waiting, self._waiting = self._waiting, {}
        queue, self._queue = self._queue, deque()
        for call in (*waiting, *queue):
            self._stop_timer(call)
            self._refuse(call, Unavailable(self.unavailable()))

    def _stop_timer(self, call: Call) -> None:
        if call.timer is not None:
            call.timer.cancel()
            call.timer = None

    def _refuse(self, call: Call, fault: CallFault) -> None:
        fault = self._worded(fault)
        self.meter.failed_with(fault, call.tool)
        self._deliver(call, fault)

    def settled(self, call: Call, outcome: CallResult | Fault) -> None:
        """The client's word on a call that was handed to it."""
        self._in_flight -= 1
        call.request_id = 0  # of one incarnation only: in the next one it is the number of another call
        if type(outcome) is CallResult:
            call.seconds = seconds = time.perf_counter() - call.started
            self.meter.answered(outcome, seconds, call.tool)
        else:
            assert isinstance(outcome, Fault)
            outcome = self._worded(outcome)
            if isinstance(outcome, CallTimedOut):
                outcome.after_ms = call.timeout_ms
            self.meter.failed_with(outcome, call.tool)
        if self._queue:
            self._pump()
        if not self._in_flight and self._watchers:
            self._notify()
        call.deliver(outcome)

    def _pump(self) -> None:
        """Send what waits in the queue, while one more may be in flight. A loop: a client may settle at once."""
        assert self.config is not None
        if self._pumping:
            return
        self._pumping = True
        while self._queue and self._in_flight < self.config.max_in_flight and self._answering:
            queued = self._queue.popleft()
            self._stop_timer(queued)
            # The time in the queue does not eat the call's own time.
            queued.deadline = self._loop.time() + queued.left
            self._send(queued)
        self._pumping = False

    @property
    def _answering(self) -> bool:
        """Whether the server answers calls; false, too, when the task has not yet noticed that its client died."""
        return self.state is State.READY and self.client is not None and self.client.fault is None

    def _worded(self, fault: _AnyFault) -> _AnyFault | ShuttingDown:
        """A server that is unavailable because the daemon ends is no failure of the server."""
        return ShuttingDown(fault.outcome) if self._shutting_down and isinstance(fault, Unavailable) else fault

    def _deliver(self, call: Call, outcome: CallResult | Fault) -> None:
        # One delivery that goes wrong must not take others, or the supervisor, with it.
        try:
            call.deliver(outcome)
        except Exception:
            log.exception("%s: delivering an outcome failed", self.name, extra={"server": self.name})

    def cancel(self, call: Call) -> None:
        """Withdraw a call; it is delivered as cancelled now. A call that is settled already is ignored."""
        if call in self._waiting:
            del self._waiting[call]
        elif call in self._queue:
            self._queue.remove(call)
        else:
            if self.client is not None:
                self.client.cancel(call)
            return
        self._stop_timer(call)
        self._refuse(call, Cancelled("not_sent"))

    # --- what is shown ----------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Calls at the server now."""
        return self._in_flight

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of the listing taken at start that the configuration offers."""
        return self._offered if self.state is State.READY else ()

    def unavailable(self) -> str:
        """Why a call cannot be answered now, for people."""
        if self.state is State.READY:
            return f"server {self.name} is ready"
        head = f"server {self.name} is {self.state.value}"
        return f"{head}: {self.reason}" if self.reason else head

    def row(self, *, processes: bool = False) -> dict[str, Any]:
        """The shape ``server`` of the socket page; with ``processes`` it has ``metrics``, the counters of
        :mod:`treadle.metrics`. ``tree`` is not in it: that takes a look at ``/proc``."""
        client = self.client
        counters = client.counters if client is not None else {"bad_lines": 0, "dropped": 0, "stderr_bytes": 0}
        row: dict[str, Any] = {"name": self.name, "state": self.state.value}
        if self.reason is not None:
            row["reason"] = self.reason
        if client is not None and client.pid is not None:
            row["pid"] = client.pid
        row["generation"] = self.generation
        row["restart"] = self.config.restart if self.config is not None else "never"
        row["restarts"] = self.policy.restarts if self.policy is not None else 0
        row["tools"] = len(self.tools)
        if self.state is State.READY and client is not None and client.info is not None:
            row["protocol_version"] = client.info.version
            names = {"name": client.info.server_name, "version": client.info.server_version}
            row["server"] = {key: value for key, value in names.items() if value is not None}
            row["started_at"] = self.started_at
            row["uptime_s"] = self._loop.time() - (self._ready_since or 0.0)
        row["in_flight"] = self._in_flight
        row["calls"] = self.meter.calls()
        row["latency_ms"] = self.meter.latency_ms()
        row |= counters
        if self.last_failure is not None:
            row["last_failure"] = {"at": self.last_failure[0], "reason": self.last_failure[1]}
        if self.evidence is not None:
            row["evidence"] = self.evidence.to_body()
        if processes:
            row["metrics"] = {"queue": len(self._queue) + len(self._waiting), **self.meter.metrics()}
        return row
