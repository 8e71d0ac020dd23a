"""The daemon put together: configuration, custody, broker, socket, signals (floor 7)."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

from treadle import budgets, evidence
from treadle.audit import open_audit
from treadle.broker import Broker
from treadle.census import Row
from treadle.client import Client
from treadle.config import Config, ServerConfig, default_socket_path, default_state_dir
from treadle.errors import Fault, explain
from treadle.flushing import Flusher
from treadle.keeping import Keeper, own_directory, secure_state_dir
from treadle.listener import Listener
from treadle.passed import passed_socket
from treadle.peers import Access
from treadle.process import ChildProcess, Launch
from treadle.reload import Reloader, access_of
from treadle.sdnotify import Service, status_of
from treadle.secrets import VALUE_LIMIT, Redactor, build_environment
from treadle.socketfile import OwnedSocket, claim, closed_at
from treadle.spawn import claim_descriptors
from treadle.transport import KILL_NOW

log = logging.getLogger(__name__)

UNCONFIRMED_EXIT: Final = 8
"""The exit code when a server's end could not be confirmed."""
LAST_WAIT_S: Final = 3.0
"""How long the evidence may take of a server that is killed because its time to stop was over."""
SWITCH_S: Final = 0.0005
"""After how many seconds another thread may have the interpreter."""


class Daemon:
    """One daemon, from its configuration to its last proof."""

    def __init__(
        self,
        config: Config,
        *,
        socket: str | None,
        strict: bool,
        on_begin: Callable[[Listener], None] = lambda _: None,
        on_reload: Callable[[Config], None] = lambda _: None,
    ) -> None:
        """Listens on ``socket``, else the configuration's, else ``$TREADLE_SOCKET``, else the usual path.

        ``on_begin`` is called once the servers are starting and the socket listens, ``on_reload`` with each new
        configuration.

        Raises :class:`ConfigError` for accounts that do not exist.
        """
        self._config = config
        self._strict = strict
        self._access = access_of(config)
        self._on_begin = on_begin
        self._on_reload = on_reload
        self._socket_path = (
            socket
            or config.broker.socket
            or os.environ.get("TREADLE_SOCKET")
            or default_socket_path(os.environ, os.getuid())
        )
        self._state_dir = config.broker.state_dir or default_state_dir(os.environ, os.getuid())
        self._service = Service.from_environ(os.environ)
        self._stop = asyncio.Event()
        self._signals = 0
        self._reloads: set[asyncio.Task[None]] = set()

    async def run(self, on_ready: Callable[[Broker], None] = lambda _: None) -> int:
        """Serve until told to stop. Returns the exit code: 0, or 8 when an end could not be confirmed.

        Raises :class:`treadle.socketfile.SocketRefused` when the socket cannot be had.
        """
        # The loop has threads beside it that write logs and decode large frames: it must get the interpreter back
        # soon, or each of their turns is a wait of milliseconds for every call.
        sys.setswitchinterval(SWITCH_S)
        claim_descriptors()
        owned = self._claim()
        try:
            return await self._run(owned, on_ready)
        finally:
            owned.release()

    def _claim(self) -> OwnedSocket:
        passed = passed_socket(os.environ)
        if passed is not None:
            return passed
        others = self._access.others
        owned = claim(self._socket_path, others=others)
        if others:
            _warn_if_closed(owned)
        return owned

    async def _run(self, owned: OwnedSocket, on_ready: Callable[[Broker], None]) -> int:
        secure_state_dir(self._state_dir, self._config.file)
        keeper = Keeper(self._state_dir, owned.path)
        self._custody = keeper.custody
        try:
            rows = await self._serve(owned, on_ready)
        finally:
            gone = await keeper.end()
            self._service.close()
        return self._report(rows) if gone else max(self._report(rows), UNCONFIRMED_EXIT)

    async def _serve(self, owned: OwnedSocket, on_ready: Callable[[Broker], None]) -> list[Row]:
        """From the first server's start to the last proof. Whatever goes wrong on the way: all are retired."""
        custody = self._custody
        audit = open_audit(self._config, asyncio.get_running_loop().call_later)
        self._flusher = Flusher(asyncio.get_running_loop())
        broker = Broker(self._config, self._make_client)
        self._listener = listener = Listener(
            broker,
            self._access,
            socket_path=owned.path,
            containment=custody.containment,
            reload=lambda: self._reload(reloader),
            on_drain=lambda: self._begin_drain(owned),
            on_shutdown=self._stop.set,
            audit=audit,
            flusher=self._flusher,
        )
        reloader = Reloader(
            self._config,
            broker,
            check=lambda server: build_environment(server, os.environ, _read_file),
            apply=lambda config, access: self._apply(owned, config, access),
        )
        self._service.begin(lambda: _status_line(broker), budgets.start_s(self._config))
        self._handle_signals(broker, reloader)
        try:
            # Everything is in the census before the first server is spawned and before a client can connect.
            broker.prepare()
            broker.begin()
            await listener.serve(owned.sock)
            log.info("listening on %s", owned.path)
            self._on_begin(listener)
            if self._config.broker.ready == "listening":
                self._service.ready()
            settling = asyncio.ensure_future(self._settle(broker, on_ready))
            await self._stop.wait()
            settling.cancel()
            self._begin_drain(owned)
            if listener.handing_over:
                await listener.serve_what_came()
        finally:
            self._begin_drain(owned)
            rows = await broker.shutdown()
            await listener.close()
            if audit is not None:
                audit.close()
        return await self._insist(broker, rows)

    async def _insist(self, broker: Broker, rows: list[Row]) -> list[Row]:
        """Kill what was not proven gone in the time that the caller gave, and wait once more for its evidence."""
        late = [row.server for row in rows if not row.confirmed]
        if not late:
            return rows
        log.error("no evidence in time of the end of %s: killing", ", ".join(late))
        again = await broker.census.retire(late, KILL_NOW, LAST_WAIT_S)
        for row in again:
            if row.confirmed:
                told = evidence.of_row(row.to_body())
                log.warning("%s: retired late: %s", row.server, told, extra={"server": row.server})
        proof = {row.server: row for row in again}
        return [proof.get(row.server, row) for row in rows]

    async def _settle(self, broker: Broker, on_ready: Callable[[Broker], None]) -> None:
        await broker.settled()
        self._service.ready()
        on_ready(broker)

    def _begin_drain(self, owned: OwnedSocket) -> None:
        self._service.stopping(budgets.stop_s(self._config))
        if owned.lock is None:
            self._listener.hand_over()

    def _report(self, rows: list[Row]) -> int:
        for row in rows:
            if not row.confirmed:
                log.error("%s: %s", row.server, evidence.of_row(row.to_body()), extra={"server": row.server})
        return 0 if all(row.confirmed for row in rows) else UNCONFIRMED_EXIT

    # --- signals and reload -----------------------------------------------------------------------

    def _handle_signals(self, broker: Broker, reloader: Reloader) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_stop, broker, number)
        loop.add_signal_handler(signal.SIGHUP, self._told_to_reload, reloader)

    def _told_to_stop(self, broker: Broker, number: signal.Signals) -> None:
        self._signals += 1
        log.info("%s: shutting down", number.name)
        if self._signals > 1:
            broker.hurry(kill=self._signals > 2)
        self._stop.set()

    def _told_to_reload(self, reloader: Reloader) -> None:
        async def reload() -> None:
            try:
                await self._reload(reloader)
            except Fault as fault:
                log.error("reload refused, nothing was changed:\n%s", explain(fault))

        task = asyncio.ensure_future(reload())
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _reload(self, reloader: Reloader) -> dict[str, Any]:
        self._service.reloading()
        try:
            return await reloader.reload()
        finally:
            self._service.reloaded()

    def _apply(self, owned: OwnedSocket, config: Config, access: Access) -> None:
        """What a reload changes besides the servers."""
        if access.others != self._access.others:
            try:
                owned.admit(others=access.others)
            except OSError as error:
                log.error("the mode of %s cannot be changed: %s", owned.path, error.strerror)
            if access.others and owned.lock is not None:
                _warn_if_closed(owned)
        self._config = config
        self._access = access
        self._listener.set_access(access)
        self._on_reload(config)

    # --- servers ----------------------------------------------------------------------------------

    def _make_client(self, config: ServerConfig) -> Client:
        """A parked client; its environment is read now. Raises what refuses the server."""
        environment = build_environment(config, os.environ, _read_file)
        marker = os.urandom(16).hex()
        redact = Redactor(environment.secrets)
        cwd = config.cwd
        if cwd is None:
            cwd = own_directory(self._state_dir, config.name)
        launch = Launch(
            server=config.name,
            argv=config.command,
            env=environment.env,
            cwd=cwd,
            limits=config.limits,
            marker=marker,
        )
        for sentence in self._custody.unenforced(config.limits):
            log.warning("%s: %s", config.name, sentence, extra={"server": config.name})
        logger = logging.getLogger(f"treadle.server.{config.name}")
        transport = ChildProcess(
            launch,
            custody=self._custody,
            redact=redact,
            on_stderr=lambda line: logger.info("%s: stderr: %s", config.name, line, extra={"server": config.name}),
        )
        return Client(config, transport, redact=redact, flusher=self._flusher)


def _warn_if_closed(owned: OwnedSocket) -> None:
    closed = closed_at(owned.path)
    if closed is not None:
        log.warning("accounts of allow_users and allow_groups cannot reach %s: chmod o+x %s", owned.path, closed)


def _status_line(broker: Broker) -> str:
    phase = "draining" if broker.draining else "starting" if broker.starting else "ready"
    return status_of(phase, (supervisor.state.value for supervisor in broker.servers))


def _read_file(path: str) -> bytes:
    """No more than a variable can hold, and no waiting: neither a device nor a pipe may hold up the daemon."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return file.read(VALUE_LIMIT + 2) or b""
