"""Plays an entry of the catalogue against a real client, over a channel to the twin or over a child process.

What must hold after every entry, whatever came of it, is asserted here: see :meth:`Stage.leave`.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import logging
import os
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from support import script as s
from support.catalogue.model import (
    HELLO,
    SECRET,
    Call,
    CallErr,
    Calls,
    Death,
    Entry,
    Fatal,
    Listing,
    Ok,
    Start,
    StartErr,
    Stop,
)
from support.catalogue.verdict import assert_outcome, assert_tools
from support.household import Heard
from support.receivers import ENVIRONMENT
from support.twin import World, transport
from treadle import procfs
from treadle.client import Client
from treadle.config import ServerConfig
from treadle.errors import HandshakeFailed, StartFault, Unavailable, explain
from treadle.phases import Phase
from treadle.process import ChildProcess, Launch
from treadle.record import MARK
from treadle.secrets import Redactor, Secret
from treadle.transport import Evidence, Transport
from treadle.tree import Custody
from treadle.wire.interchange import arguments_to_json
from treadle.wire.messages import CallResult, Content

Means = Literal["channel", "process"]

LATE_S = 30.0
"""A call is settled by its deadline and this; a stop is over by its ladder and this. Only a hang takes so long."""
LONGEST_REASON = 1_000
BUDGETS = {"call_timeout_ms": 20_000, "stop_timeout_ms": 2_000}

_number = itertools.count()


class Stage:
    """One entry under way: the odd server's client and a well-behaved second one beside it."""

    def __init__(self, entry: Entry, means: Means, folder: Path, custody: Custody | None) -> None:
        self.entry = entry
        self.settings: dict[str, Any] = {**BUDGETS, **entry.settings}
        self.content: Content = self.settings.pop("content", "text")
        self.marker = f"catalogue-{os.getpid()}-{next(_number)}"
        self.evidence: Evidence | None = None
        self.forks = custody is not None
        self.said: list[str] = []
        self.world = World()
        config = ServerConfig(name="odd", command=s.command(entry.script, folder / "script.json"), **self.settings)
        redact = Redactor([Secret(SECRET)])
        through: Transport
        if custody is None:
            through = transport(entry.script, self.world)
        else:
            launch = Launch(server="odd", argv=config.command, env=ENVIRONMENT, marker=self.marker)
            through = ChildProcess(launch, custody=custody, redact=redact, on_stderr=self.said.append)
        self.client = Client(config, through, redact=redact)
        self.second = Client(ServerConfig(name="second", command=("twin",)), transport(s.script()), redact=redact)

    async def play(self) -> None:
        """All acts of the entry, in order."""
        await self.second.start()
        acts = list(self.entry.acts)
        if not isinstance(acts[0], Start | Listing):
            acts.insert(0, Start(Ok()))
        fresh = True
        for act in acts:
            beside = asyncio.ensure_future(self.second.call_tool("echo", b'{"text":"beside"}', timeout_ms=5000))
            if isinstance(act, Start):
                await self._start(act.expected)
                fresh = True
            elif isinstance(act, Listing):
                await (self._first_listing(act.expected) if fresh else self._listing(act.expected))
                fresh = False
            elif isinstance(act, Calls):
                await self._calls(act.calls)
                fresh = False
            elif isinstance(act, Death):
                await asyncio.wait_for(self.client.died, 5)
                assert re.search(act.expected.reason, self.client.reason or ""), self.client.reason
            else:
                await self._stop(act)
            assert isinstance(await beside, CallResult)

    async def _start(self, expected: Ok | StartErr) -> None:
        if isinstance(expected, Ok):
            await self.client.start()
            return
        async with asyncio.timeout(self.client.config.handshake_timeout_ms / 1000 + LATE_S):
            fault = await self._failed_start()
        assert isinstance(fault, expected.fault)
        shown = f"{explain(fault)}\n{self.client.reason}"
        assert re.search(expected.reason, shown), shown

    async def _failed_start(self) -> StartFault:
        try:
            await self.client.start()
        except StartFault as fault:
            return fault
        raise AssertionError("the start succeeded")

    async def _first_listing(self, expected: Ok | CallErr | Fatal) -> None:
        """The listing that a start takes: what fails it, fails the start."""
        if self.client.phase is Phase.SERVING:
            assert isinstance(expected, Ok)
        elif isinstance(expected, Ok):
            await self.client.start()
        else:
            fault = await self._failed_start()
            assert isinstance(fault, HandshakeFailed)
            assert fault.phase == "tools/list"
            if isinstance(expected, CallErr):
                assert_outcome(expected, fault.error)
            else:
                assert re.search(expected.reason, explain(fault)), explain(fault)
            return
        if expected.tools is not None:
            assert_tools(expected.tools, self.client.tools)

    async def _listing(self, expected: Ok | CallErr | Fatal) -> None:
        assert isinstance(expected, Ok)
        assert_outcome(expected, await self.client.list_tools())

    async def _calls(self, calls: Sequence[Call]) -> None:
        loop = asyncio.get_running_loop()
        waiters: list[tuple[Call, Heard, float]] = []
        for call in calls:
            waiter = Heard()
            budget = call.timeout_ms or self.client.config.call_timeout_ms
            arguments = arguments_to_json(dict(call.arguments))
            waiters.append((call, waiter, loop.time() + budget / 1000 + LATE_S))
            self.client.call(waiter, call.tool, arguments, timeout_ms=budget, content=self.content)
        for call, waiter, deadline in waiters:
            async with asyncio.timeout_at(deadline):
                await waiter.settled.wait()
            outcome = waiter.outcome
            assert_outcome(call.expected, outcome.to_value() if isinstance(outcome, CallResult) else outcome)
            if isinstance(call.expected, Fatal):
                assert str(outcome) == self.client.reason, "every call in flight hears the one latched reason"

    async def _stop(self, act: Stop) -> None:
        evidence = await self._retired()
        found = (evidence.rung, evidence.status, evidence.signal, evidence.stragglers)
        assert found == (act.rung, act.status, act.signal, act.stragglers), found

    async def _retired(self) -> Evidence:
        """The evidence of the odd server's end, which comes within the bound of its ladder."""
        bound = self.client.config.stop_timeout_ms / 1000 + LATE_S
        self.evidence = await self.client.shutdown(within=bound)
        return self.evidence

    # --- what must hold afterwards ---------------------------------------------------------------------------

    async def leave(self) -> None:
        """The channel lives or is latched dead; nothing is in flight, the end is proven, counters are right."""
        entry, client = self.entry, self.client
        dead = any(isinstance(act, Listing) and isinstance(act.expected, CallErr) for act in entry.acts)
        if entry.lives and not dead:
            await self._calls([Call(HELLO)])
        else:
            late = Heard()
            client.call(late, "echo", b"{}", timeout_ms=1000)
            assert late.fault == Unavailable(client.reason or "", "not_sent")
            assert client.reason is not None
            assert 0 < len(client.reason) < LONGEST_REASON
            assert client.reason.isprintable()
        assert client.in_flight == 0
        evidence = await self._retired()
        assert evidence.kind == "exited"
        assert evidence.drained is True
        assert client.phase is Phase.RETIRED
        for counter in ("dropped", "bad_lines"):
            wanted = getattr(entry, counter)
            assert wanted is None or client.counters[counter] == wanted, counter
        assert isinstance(await self.second.call_tool("echo", b'{"text":"alive"}', timeout_ms=1000), CallResult)
        await self.second.shutdown(within=5)

    def shown(self) -> str:
        """All that a person could come to see of the odd server."""
        parts = [self.client.reason, str(self.client.fault), self.client.stderr_tail(), *self.said]
        return "\n".join(str(part) for part in [*parts, self.client.info, self.evidence])

    def remains(self) -> list[int]:
        """Processes, zombies included, that are left of the odd server."""
        marked = [
            int(name)
            for name in os.listdir("/proc")
            if name.isdigit() and self.forks and procfs.variable(int(name), MARK) == self.marker
        ]
        return marked + [child.pid for child in procfs.children(os.getpid())]


def descriptors() -> int:
    """How many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


@asynccontextmanager
async def staged(entry: Entry, means: Means, folder: Path, log: list[logging.LogRecord]) -> AsyncIterator[Stage]:
    """Play ``entry`` and leave; afterwards nothing of it is left and nothing looks like an unhandled exception."""
    loop = asyncio.get_running_loop()
    complaints: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    children = {child.pid for child in procfs.children(os.getpid())}
    tasks, open_before = asyncio.all_tasks(), descriptors()
    custody = Custody() if means == "process" else None
    stage = Stage(entry, means, folder, custody)
    try:
        await stage.play()
        yield stage
        await stage.leave()
    finally:
        await _clear(stage, custody)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == tasks
    assert descriptors() == open_before
    assert set(stage.remains()) <= children
    assert complaints == []
    printed = "\n".join(logging.Formatter().format(record) for record in log)
    assert "Traceback" not in printed
    assert SECRET not in printed + stage.shown()
    if entry.warnings is not None:
        assert sum(record.levelno == logging.WARNING for record in log) == entry.warnings


async def _clear(stage: Stage, custody: Custody | None) -> None:
    """Whatever a failing test left."""
    for client in (stage.client, stage.second):
        if client.phase is not Phase.RETIRED:
            await client.shutdown(within=10)
    if custody is not None:
        await custody.end_strangers()
        ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)  # orphans of other tests go where they went before


def recording(entry: Entry, path: Path | str) -> Entry:
    """``entry``, with every byte that its server receives appended to ``path``."""
    return replace(entry, script=[s.record(path), *entry.script])
