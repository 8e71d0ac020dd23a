"""The set of servers: boot, list, call, status, logs, stop, start, restart, replace, shutdown (floor 5)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct

from treadle.call import Call
from treadle.census import Census, Row
from treadle.client import Client
from treadle.config import Config, Refused, ServerConfig
from treadle.errors import (
    Denied,
    InvalidArgument,
    NotCarriable,
    ResultMalformed,
    ShuttingDown,
    Unavailable,
    UnknownServer,
    explain,
)
from treadle.states import State
from treadle.supervisor import PROOF_MARGIN_S, Supervisor
from treadle.transport import KILL_NOW, Ladder
from treadle.wire.interchange import arguments_to_json, json_to_value
from treadle.wire.messages import Tool
from treadle.wire.nesting import MAX_DEPTH

if TYPE_CHECKING:
    from treadle.codegen import Target

log = logging.getLogger(__name__)

MakeClient = Callable[[ServerConfig], Client]

_Made = TypeVar("_Made")

_PASSING: Final = (State.STARTING, State.CLOSING)


class Restarted(Struct, frozen=True):
    """What a restart came to: the evidence of the old incarnation and the state of the new one."""

    row: Row
    state: State
    reason: str | None


class Broker:
    """All configured servers of one daemon."""

    def __init__(self, config: Config, make_client: MakeClient) -> None:
        self.config = config
        self.census = Census()
        self.draining = False
        self._make_client = make_client
        self._servers: dict[str, Supervisor] = {entry.name: self._supervise(entry) for entry in config.servers}
        self._shutdown: asyncio.Task[list[Row]] | None = None
        self._hurry = asyncio.Event()
        self._changing = asyncio.Lock()
        self._generating = ThreadPoolExecutor(1, "generate")

    def _supervise(self, entry: ServerConfig | Refused) -> Supervisor:
        return Supervisor(entry, self._make_client, self.census)

    # --- boot -------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Park one client per server and publish all of them, before anything is spawned."""
        for supervisor in self._servers.values():
            supervisor.prepare()

    def begin(self) -> None:
        """Start every eager server, all at once."""
        for supervisor in self._servers.values():
            supervisor.begin()

    async def settled(self) -> None:
        """Wait until no server is starting: each is ready, or failed with its reason."""
        for supervisor in list(self._servers.values()):
            await supervisor.until(lambda s=supervisor: s.state not in _PASSING)  # type: ignore[misc]

    @property
    def starting(self) -> bool:
        """Whether a server is still starting."""
        return any(supervisor.state is State.STARTING for supervisor in self._servers.values())

    @property
    def servers(self) -> Sequence[Supervisor]:
        """The supervisors, in the order of the configuration."""
        return tuple(self._servers.values())

    def find(self, name: str) -> Supervisor:
        """The supervisor of one server. Raises :class:`UnknownServer`, which lists the names there are."""
        supervisor = self._servers.get(name)
        if supervisor is None:
            raise UnknownServer(name, tuple(self._servers))
        return supervisor

    # --- reading ----------------------------------------------------------------------------------

    def summary(self) -> list[dict[str, Any]]:
        """One short row a server: ``name``, ``state``, ``tools`` (how many) and, where it applies, ``reason``."""
        rows = []
        for supervisor in self._servers.values():
            row: dict[str, Any] = {
                "name": supervisor.name,
                "state": supervisor.state.value,
                "tools": len(supervisor.tools),
            }
            if supervisor.reason is not None:
                row["reason"] = supervisor.reason
            rows.append(row)
        return rows

    def listing(self, name: str, *, schemas: bool) -> dict[str, Any]:
        """The tools of one server as the socket page's ``list`` gives them.

        Raises :class:`UnknownServer`, :class:`Unavailable` when it is not ready, and :class:`ResultMalformed`
        when a schema cannot be carried to msgpack.
        """
        return listing_of(name, self.offered(name), schemas=schemas)

    def offered(self, name: str) -> tuple[Tool, ...]:
        """The tools of one server. Raises :class:`UnknownServer`, and :class:`Unavailable` for one not ready."""
        supervisor = self.find(name)
        if supervisor.state is not State.READY:
            raise Unavailable(supervisor.unavailable())
        return supervisor.tools

    async def beside(self, work: Callable[[], _Made]) -> _Made:
        """What ``work`` gives, made on a thread, one after another: what is large must not hold up calls."""
        # Not the loop's own executor: its end takes one more thread.
        try:
            making = self._generating.submit(work)
        except RuntimeError:  # no thread can be had
            return work()
        return await asyncio.wrap_future(making)

    async def generate(self, name: str, target: Target) -> dict[str, Any]:
        """The typed module of one server as the socket page's ``generate`` gives it.

        Raises what :meth:`listing` raises, and :class:`GenerationRefused` for a listing that gives no module.
        """
        from treadle import codegen

        tools = self.offered(name)
        made = await self.beside(
            lambda: codegen.generate(name, codegen.from_result(listing_of(name, tools, schemas=True)), target)
        )
        return {"module_name": made.module_name, "source": made.source, "surface": made.surface}

    def logs(self, name: str, max_bytes: int) -> str:
        """The captured stderr tail of one server, redacted."""
        client = self.find(name).client
        return client.stderr_tail(max_bytes) if client is not None else ""

    @property
    def in_flight(self) -> int:
        """Calls at servers now."""
        return sum(supervisor.in_flight for supervisor in self._servers.values())

    # --- calls ------------------------------------------------------------------------------------

    def call(self, server: str, arguments: dict[str, Any], call: Call, *, plain: bool = False) -> None:
        """Send one call on its way; it is delivered exactly once.

        With ``plain`` the arguments are as the frame codec gives them (see :func:`arguments_to_json`).
        """
        supervisor = self._servers.get(server)
        if supervisor is None:
            call.deliver(UnknownServer(server, tuple(self._servers)))
            return
        if self.draining:
            call.deliver(ShuttingDown())
            return
        config = supervisor.config
        if config is not None:
            if not (supervisor.offers_all or config.tool_allowed(call.tool)):
                what = f"tool {call.tool!r} of server {server} is not offered (tools.allow, tools.deny)"
                call.deliver(Denied(what))
                return
            timeout_ms, limit = call.timeout_ms or config.call_timeout_ms, self.config.broker.max_call_timeout_ms
            call.timeout_ms = timeout_ms if timeout_ms < limit else limit  # noqa: FURB136 (a call takes longer)
            if call.content is None:
                call.content = config.content
        try:
            call.arguments = arguments_to_json(arguments, plain=plain)
        except InvalidArgument as fault:
            call.deliver(fault)
            return
        supervisor.submit(call)

    # --- life of single servers -------------------------------------------------------------------

    async def stop(self, name: str, within_ms: int | None, by: str) -> Row:
        """Stop one server. Returns its evidence or the fault that stands for it."""
        supervisor = self.find(name)
        ladder, within = _budget(supervisor, within_ms)
        return await supervisor.stop(ladder, within, by)

    async def start(self, name: str) -> Supervisor:
        """Start one server that is down; returns when it is ready or has failed.

        Raises :class:`UnknownServer`, :class:`ShuttingDown`, and :class:`Unavailable` when it is disabled, refused
        or unconfirmed.
        """
        if self.draining:
            raise ShuttingDown()
        supervisor = self.find(name)
        await supervisor.start()
        return supervisor

    async def restart(self, name: str, within_ms: int | None, by: str) -> Restarted:
        """Stop one server and, on evidence alone, start it again."""
        if self.draining:
            raise ShuttingDown()
        supervisor = self.find(name)
        if supervisor.state is State.DISABLED:
            raise Unavailable(supervisor.unavailable())
        ladder, within = _budget(supervisor, within_ms)
        row = await supervisor.stop(ladder, within, by)
        if self.draining:
            raise ShuttingDown()
        if row.confirmed:
            await supervisor.start()
        return Restarted(row, supervisor.state, supervisor.reason)

    # --- reload -----------------------------------------------------------------------------------

    async def replace(self, config: Config) -> dict[str, list[dict[str, Any]] | list[str]]:
        """Go over to ``config``: what is unchanged keeps running, what changed is replaced on evidence alone,
        and a server that was refused is looked at anew.

        Returns ``added``, ``changed``, ``removed`` (rows with ``name`` and the evidence or error of what was
        stopped) and ``unchanged`` (names). A changed server whose old incarnation is not proven gone keeps its
        old configuration and says so in its row.
        """
        async with self._changing:
            if self.draining:
                raise ShuttingDown()
            before = {name: s.config or s.name for name, s in self._servers.items()}
            after = {entry.name: entry for entry in config.servers}
            # What refused a server may have been put right outside the file: it is tried again.
            refused = [name for name, s in self._servers.items() if s.state is State.REFUSED]
            kept = [name for name, entry in after.items() if before.get(name) == entry and name not in refused]
            changed = [name for name in after if name in before and name not in kept]
            removed = [name for name in before if name not in after]
            added = [name for name in after if name not in before]
            for name in (*changed, *removed):
                self._servers[name].finish()
            rows = await asyncio.gather(*(self.stop(name, None, "reload") for name in (*changed, *removed)))
            proof = {row.server: row for row in rows}
            gone = [name for name, row in proof.items() if row.confirmed]
            for name in gone:
                await self._servers[name].end()
            # A shutdown may have begun meanwhile; from here on nothing is awaited.
            if self.draining:
                raise ShuttingDown()
            stay = [name for name in self._servers if name not in gone]
            for name in stay:
                self._servers[name].final = False
            servers: dict[str, Supervisor] = {}
            fresh: list[Supervisor] = []
            for name, entry in after.items():
                if name in stay:
                    servers[name] = self._servers[name]
                else:
                    servers[name] = self._supervise(entry)
                    if name in self._servers:
                        # Counters that fall would be taken for a restart of the daemon.
                        servers[name].meter = self._servers[name].meter
                    fresh.append(servers[name])
            servers |= {name: self._servers[name] for name in removed if name in stay}
            self._servers = servers
            self.config = config
            for supervisor in fresh:
                supervisor.prepare()
            for supervisor in fresh:
                supervisor.begin()
            return {
                "added": added,
                "changed": [proof[name].to_body() for name in changed],
                "removed": [proof[name].to_body() for name in removed],
                "unchanged": kept,
            }

    # --- shutdown ---------------------------------------------------------------------------------

    async def shutdown(self, within_ms: int | None = None) -> list[Row]:
        """Take no new calls, let those in flight end within ``drain_timeout_ms``, retire every server.

        One row per server: its evidence, or why there is none. Idempotent: later calls share the first one's rows.
        """
        if self._shutdown is None:
            self.draining = True
            for supervisor in self._servers.values():
                supervisor.finish()
            self._shutdown = asyncio.get_running_loop().create_task(self._shut_down(within_ms))
        return await asyncio.shield(self._shutdown)

    def hurry(self, *, kill: bool) -> None:
        """Skip the drain; with ``kill`` send SIGKILL to whatever is left, now."""
        self._hurry.set()
        if kill:
            self.census.hurry(KILL_NOW)

    async def _shut_down(self, within_ms: int | None) -> list[Row]:
        drain = self.config.broker.drain_timeout_ms / 1000
        if within_ms is not None:
            drain = min(drain, within_ms / 2000)
        await self._drain(drain)
        for supervisor in self._servers.values():
            supervisor.finish(shutdown=True)
        left_ms = None if within_ms is None else max(1, within_ms - round(drain * 1000))
        rows = await asyncio.gather(*(self.stop(name, left_ms, "shutdown") for name in self._servers))
        for supervisor in self._servers.values():
            await supervisor.end()
        return list(rows)

    async def _drain(self, budget: float) -> None:
        """Wait until no call is in flight, the budget is used up, or somebody is in a hurry."""

        async def idle() -> None:
            for supervisor in self._servers.values():
                await supervisor.until(lambda s=supervisor: s.in_flight == 0)  # type: ignore[misc]

        waiters = [asyncio.ensure_future(idle()), asyncio.ensure_future(self._hurried())]
        await asyncio.wait(waiters, timeout=budget, return_when=asyncio.FIRST_COMPLETED)
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)

    async def _hurried(self) -> None:
        await self._hurry.wait()


def _budget(supervisor: Supervisor, within_ms: int | None) -> tuple[Ladder | None, float]:
    """The ladder of one stop (None: the server's own), and the seconds until its evidence must be there."""
    own = supervisor.config.stop_timeout_ms if supervisor.config is not None else 0
    if within_ms is None:
        return None, own / 1000 + PROOF_MARGIN_S
    # SIGKILL must leave some of the budget for the proof.
    return Ladder.within(min(own, within_ms * 4 // 5)), within_ms / 1000


_SCHEMA_DEPTH: Final = MAX_DEPTH - 5
"""Levels of a schema: it is level 6 of the frame that takes it on."""


def listing_of(name: str, tools: tuple[Tool, ...], *, schemas: bool) -> dict[str, Any]:
    """The shape of ``list`` for ``tools``. Raises :class:`ResultMalformed` when a schema cannot be carried."""
    try:
        return {"server": name, "tools": [_tool_body(tool, schemas) for tool in tools]}
    except NotCarriable as fault:
        raise ResultMalformed(f"the listing of server {name}: {explain(fault)}") from None


def _tool_body(tool: Tool, schemas: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"name": tool.name}
    for key in ("title", "description"):
        value = getattr(tool, key)
        if value is not None:
            body[key] = value
    if schemas:
        body["input_schema"] = json_to_value(tool.input_schema, _SCHEMA_DEPTH)
        for key in ("output_schema", "annotations"):
            raw = getattr(tool, key)
            if raw is not None:
                body[key] = json_to_value(raw, _SCHEMA_DEPTH)
    return body


def shutdown_body(rows: Sequence[Row]) -> dict[str, Any]:
    """The shape ``shutdown`` of the socket page."""
    return {"confirmed": all(row.confirmed for row in rows), "servers": [row.to_body() for row in rows]}
