"""What the requests besides calls do: one handler a kind (floor 6; socket page, "Requests")."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from msgspec import Struct, structs

import treadle
from treadle import answers
from treadle.broker import Broker, listing_of, shutdown_body
from treadle.client import Client
from treadle.errors import Fault, failure_code
from treadle.wire.interchange import RESULT_LIMIT

if TYPE_CHECKING:
    from treadle.codegen import Target

DEFAULT_LOG_BYTES: Final = 65536
LARGE_LISTING: Final = 64 * 1024
"""Bytes of schemas from which on they are decoded on a thread."""
TARGETS: Final[tuple[Target, ...]] = ("gleam", "python", "typescript")
"""What ``generate`` makes; spelled out, so that the generator is imported when it is used first."""

Reload = Callable[[], Awaitable[dict[str, Any]]]


class Service:
    """What a request can act upon, and what ``status`` tells of the daemon.

    ``on_drain`` is called when a client asks for the shutdown, ``on_shutdown`` when its rows are known;
    ``connections`` counts the clients of now.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        socket_path: str,
        containment: str,
        connections: Callable[[], int],
        reload: Reload,
        on_drain: Callable[[], None],
        on_shutdown: Callable[[], None],
    ) -> None:
        self.broker = broker
        self.reload = reload
        self._socket_path = socket_path
        self._containment = containment
        self._connections = connections
        self._on_drain = on_drain
        self._on_shutdown = on_shutdown
        self._refusals: dict[str, int] = {}
        self._listings: WeakKeyDictionary[Client, dict[bool, answers.AnyAnswer]] = WeakKeyDictionary()
        self._started = time.time()
        self._started_loop = asyncio.get_running_loop().time()

    def status(self, server: str | None, *, processes: bool = False) -> dict[str, Any]:
        """The shape ``status`` of the socket page; ``processes`` adds the counters, but not ``tree``.

        Raises :class:`~treadle.errors.UnknownServer`.
        """
        broker = self.broker
        chosen = [broker.find(server)] if server is not None else list(broker.servers)
        return {
            "daemon": {
                "version": treadle.__version__,
                "pid": os.getpid(),
                "state": "draining" if broker.draining else "starting" if broker.starting else "ready",
                "started_at": self._started,
                "uptime_s": asyncio.get_running_loop().time() - self._started_loop,
                "socket": self._socket_path,
                "config": broker.config.file,
                "connections": self._connections(),
                "in_flight": broker.in_flight,
                "containment": self._containment,
                **({"refusals": dict(self._refusals)} if processes else {}),
            },
            "servers": [supervisor.row(processes=processes) for supervisor in chosen],
        }

    async def status_of_processes(self, server: str | None) -> dict[str, Any]:
        """:meth:`status` with what costs a look at ``/proc``, which is taken on a thread: four thousand processes
        take a second.

        Raises :class:`~treadle.errors.UnknownServer`.
        """
        value = self.status(server, processes=True)
        clients = [self.broker.find(row["name"]).client for row in value["servers"]]
        usages = await self.broker.beside(lambda: [None if one is None else one.usage() for one in clients])
        for row, usage in zip(value["servers"], usages, strict=True):
            if usage is not None:
                row["tree"] = structs.asdict(usage)
        return value

    def listing(self, server: str, *, schemas: bool) -> answers.AnyAnswer | Coroutine[Any, Any, answers.AnyAnswer]:
        """The answer to ``list``, made once for each incarnation; a large one on a thread.

        Raises :class:`~treadle.errors.UnknownServer` and :class:`~treadle.errors.Unavailable`.
        """
        tools = self.broker.offered(server)
        client = self.broker.find(server).client
        assert client is not None
        made = self._listings.setdefault(client, {})
        if schemas in made:
            return made[schemas]

        def make() -> answers.AnyAnswer:
            if schemas not in made:
                try:
                    outcome: Any = listing_of(server, tools, schemas=schemas)
                except Fault as fault:
                    outcome = fault
                made[schemas] = answers.AnyAnswer(outcome)
            return made[schemas]

        size = sum(len(tool.input_schema) + len(tool.output_schema or b"") for tool in tools) if schemas else 0
        return self.broker.beside(make) if size > LARGE_LISTING else make()

    def count_refusal(self, refusal: Fault) -> None:
        """A call was refused before it reached a server."""
        code = failure_code(refusal)
        self._refusals[code] = self._refusals.get(code, 0) + 1

    async def shutdown(self, within_ms: int | None) -> dict[str, Any]:
        """Shut the broker down; the daemon exits once the caller has its answer."""
        self._on_drain()
        rows = await self.broker.shutdown(within_ms)
        self._on_shutdown()
        return shutdown_body(rows)


class Handler(Struct, frozen=True):
    """How one kind of request is answered: ``handle`` takes the service and the frame's body, and returns the
    answer's value, or a coroutine for what takes its time. It raises the fault that is the answer instead."""

    handle: Callable[[Service, dict[str, Any]], Any]
    administrative: bool = False


def _list(service: Service, body: dict[str, Any]) -> Any:
    server = answers.optional_text(body, "server")
    schemas = answers.flag(body, "schemas", True)
    if server is None:
        return service.broker.summary()
    return service.listing(server, schemas=schemas)


def _status(service: Service, body: dict[str, Any]) -> Any:
    processes = answers.flag(body, "processes", False)
    server = answers.optional_text(body, "server")
    return service.status_of_processes(server) if processes else service.status(server)


def _logs(service: Service, body: dict[str, Any]) -> Any:
    most = answers.whole(body, "max_bytes") or DEFAULT_LOG_BYTES
    return service.broker.logs(answers.text(body, "server"), min(most, RESULT_LIMIT))


async def _restart(service: Service, body: dict[str, Any]) -> Any:
    name = answers.text(body, "server")
    done = await service.broker.restart(name, answers.whole(body, "within_ms"), "restart")
    value = {**done.row.to_body(), "state": done.state.value}
    if done.reason is not None:
        value["reason"] = done.reason
    return value


async def _stop(service: Service, body: dict[str, Any]) -> Any:
    name = answers.text(body, "server")
    row = await service.broker.stop(name, answers.whole(body, "within_ms"), "an administrator")
    return {**row.to_body(), "state": service.broker.find(name).state.value}


async def _start(service: Service, body: dict[str, Any]) -> Any:
    supervisor = await service.broker.start(answers.text(body, "server"))
    value = {"name": supervisor.name, "state": supervisor.state.value}
    if supervisor.reason is not None:
        value["reason"] = supervisor.reason
    return value


async def _reload(service: Service, body: dict[str, Any]) -> Any:
    return await service.reload()


async def _shutdown(service: Service, body: dict[str, Any]) -> Any:
    return await service.shutdown(answers.whole(body, "within_ms"))


async def _generate(service: Service, body: dict[str, Any]) -> Any:
    server = answers.text(body, "server")
    return await service.broker.generate(server, answers.choice(body, "target", TARGETS))


HANDLERS: Final[dict[str, Handler]] = {
    "list": Handler(_list),
    "status": Handler(_status),
    "logs": Handler(_logs),
    "generate": Handler(_generate),
    "restart": Handler(_restart, administrative=True),
    "stop": Handler(_stop, administrative=True),
    "start": Handler(_start, administrative=True),
    "reload": Handler(_reload, administrative=True),
    "shutdown": Handler(_shutdown, administrative=True),
}
"""By kind. Calls are not among them: they have a way of their own (:mod:`treadle.calls`)."""
