"""The daemon put together: configuration, custody, broker, socket, signals (floor 7)."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets as random_source
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from treadle import evidence
from treadle.broker import Broker
from treadle.census import Row
from treadle.client import Client
from treadle.config import Config, ServerConfig, default_socket_path, default_state_dir
from treadle.custody import Guard, Record, recover
from treadle.errors import ConfigError, Problem
from treadle.listener import Listener
from treadle.peers import Access, UnknownAccount
from treadle.process import ChildProcess, Launch
from treadle.reload import load
from treadle.secrets import Redactor, build_environment
from treadle.socketfile import OwnedSocket, claim, passed_socket
from treadle.tree import Custody

log = logging.getLogger(__name__)

UNCONFIRMED_EXIT = 8
"""The exit code when a server's end could not be confirmed."""


class Daemon:
    """One daemon, from its configuration to its last proof."""

    def __init__(self, config: Config, *, socket: str | None, strict: bool) -> None:
        """Listens on ``socket``, else the configuration's, else ``$TREADLE_SOCKET``, else the usual path.

        Raises :class:`ConfigError` for accounts that do not exist.
        """
        self._config = config
        self._strict = strict
        self._access = access_of(config)
        self._socket_path = (
            socket
            or config.broker.socket
            or os.environ.get("TREADLE_SOCKET")
            or default_socket_path(os.environ, os.getuid())
        )
        self._state_dir = Path(config.broker.state_dir or default_state_dir(os.environ, os.getuid()))
        self._stop = asyncio.Event()
        self._signals = 0

    async def run(self, on_ready: Callable[[Broker], None] = lambda _: None) -> int:
        """Serve until told to stop. Returns the exit code: 0, or 8 when an end could not be confirmed.

        Raises :class:`treadle.socketfile.SocketRefused` when the socket cannot be had.
        """
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
        return claim(self._socket_path, mode=0o666 if others else 0o600, directory_mode=0o711 if others else 0o700)

    async def _run(self, owned: OwnedSocket, on_ready: Callable[[Broker], None]) -> int:
        self._state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        record_path = self._state_dir / f"record-{_slug(owned.path)}.json"
        for finding in recover(record_path):
            log.warning("left by an earlier daemon: %s", finding)
        record = Record(record_path)
        self._custody = custody = Custody(record=record)
        guard = Guard.start(record_path)
        custody.own(guard.pid)
        broker = Broker(self._config, self._make_client)
        self._listener = listener = Listener(
            broker,
            self._access,
            socket_path=owned.path,
            containment=custody.containment,
            reload=lambda: self._reload(broker),
            on_shutdown=self._stop.set,
        )
        self._handle_signals(broker)
        # Everything is in the census before the first server is spawned and before a client can connect.
        broker.prepare()
        broker.begin()
        await listener.serve(owned.sock)
        log.info("listening on %s", owned.path)
        settling = asyncio.ensure_future(self._settle(broker, on_ready))
        await self._stop.wait()
        settling.cancel()
        rows = await broker.shutdown()
        await listener.close()
        stragglers = await custody.end_strangers()
        if stragglers:
            log.warning("%d orphans that belonged to no server were killed", stragglers)
        await guard.release()
        record.remove()
        return self._report(rows)

    async def _settle(self, broker: Broker, on_ready: Callable[[Broker], None]) -> None:
        await broker.settled()
        on_ready(broker)

    def _report(self, rows: list[Row]) -> int:
        for row in rows:
            if not row.confirmed:
                log.error("%s: %s", row.server, evidence.of_row(row.to_body()), extra={"server": row.server})
        return 0 if all(row.confirmed for row in rows) else UNCONFIRMED_EXIT

    # --- signals and reload -----------------------------------------------------------------------

    def _handle_signals(self, broker: Broker) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_stop, broker, number)
        loop.add_signal_handler(signal.SIGHUP, self._told_to_reload, broker)

    def _told_to_stop(self, broker: Broker, number: signal.Signals) -> None:
        self._signals += 1
        log.info("%s: shutting down", number.name)
        if self._signals > 1:
            broker.hurry(kill=self._signals > 2)
        self._stop.set()

    def _told_to_reload(self, broker: Broker) -> None:
        async def reload() -> None:
            try:
                await self._reload(broker)
            except ConfigError as error:
                log.error("reload refused, nothing was changed:\n%s", error)

        self._reloading = asyncio.ensure_future(reload())

    async def _reload(self, broker: Broker) -> dict[str, Any]:
        config = load(self._config.file, strict=True)
        access = access_of(config)
        done = await broker.replace(config)
        self._config = config
        self._access = self._listener.access = access
        log.info("reloaded %s: %s", config.file, ", ".join(f"{key} {len(value)}" for key, value in done.items()))
        return done

    # --- servers ----------------------------------------------------------------------------------

    def _make_client(self, config: ServerConfig) -> Client:
        """A parked client; its environment is read now. Raises what refuses the server."""
        environment = build_environment(config, os.environ, _read_file)
        marker = random_source.token_hex(16)
        redact = Redactor(environment.secrets)
        cwd = config.cwd
        if cwd is None:
            own = self._state_dir / "servers" / config.name
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
            cwd = str(own)
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
        return Client(config, transport, redact=redact)


def access_of(config: Config) -> Access:
    """Who may connect. Raises :class:`ConfigError` for an account that does not exist."""
    broker = config.broker
    try:
        return Access.of(broker.allow_users, broker.allow_groups, broker.admin_users)
    except UnknownAccount as error:
        fix = "name an account of this machine, or its number"
        raise ConfigError((Problem(config.file, 0, 0, "[broker]", str(error), fix),)) from None


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _slug(path: str) -> str:
    """A file name that differs for every socket path."""
    import hashlib

    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
