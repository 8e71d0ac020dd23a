"""Reading the configuration file, at start and again (floor 6). All of it is checked before anything changes."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from treadle.config import BrokerConfig, Config, Refused, ServerConfig, default_config_paths, parse
from treadle.errors import ConfigError, Fault, Problem, reason_of
from treadle.peers import Access, UnknownAccount
from treadle.states import State

if TYPE_CHECKING:
    from treadle.broker import Broker

log = logging.getLogger(__name__)


def find(given: str | None, environ: Mapping[str, str]) -> str:
    """The configuration file to use: ``given``, or the first default path that exists.

    Raises :class:`ConfigError` that lists where it looked when there is none.
    """
    if given is not None:
        return given
    paths = default_config_paths(environ)
    for path in paths:
        if os.path.exists(path):
            return path
    if environ.get("TREADLE_CONFIG"):
        fix = "correct the variable, or unset it for the usual paths"
        raise ConfigError((Problem(paths[0], 0, 0, "$TREADLE_CONFIG", "there is no such file", fix),))
    what = f"no configuration file; looked for {', '.join(paths)}"
    raise ConfigError((Problem("", 0, 0, "", what, "write one, or name one with --config FILE"),))


def load(path: str, *, strict: bool = False) -> Config:
    """The configuration in the file ``path``.

    Raises :class:`ConfigError` when the file cannot be read or used; with ``strict`` for any problem in it, also
    for one that would only refuse a single server.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        fix = _FIXES.get(type(error), "name another with --config FILE")
        raise ConfigError((Problem(path, 0, 0, "", f"cannot be read: {error.strerror}", fix),)) from None
    config = parse(data, path)
    if strict and config.problems:
        raise ConfigError(config.problems)
    return config


_FIXES: Final[dict[type[OSError], str]] = {
    PermissionError: "make it readable",
    IsADirectoryError: "name the file in it",
}

FIXED: Final = ("socket", "state_dir", "audit_log", "audit_arguments")
"""Keys of ``[broker]`` that hold from the start of the daemon to its end."""

_NOT_RUNNING: Final = frozenset({State.DISABLED, State.REFUSED, State.RETIRED, State.PARKED})


def access_of(config: Config) -> Access:
    """Who may connect. Raises :class:`ConfigError` for an account that does not exist."""
    broker = config.broker
    try:
        return Access.of(broker.allow_users, broker.allow_groups, broker.admin_users)
    except UnknownAccount as error:
        fix = "name an account of this machine, or its number"
        raise ConfigError((Problem(config.file, 0, 0, "[broker]", str(error), fix),)) from None


class Reloader:
    """Takes a running broker over to what its configuration file says now: all of it, or nothing.

    ``check`` raises the fault for which a server would be refused before anything is spawned; ``apply`` is told
    the new configuration, and who may connect, once the servers have gone over.
    """

    def __init__(
        self,
        config: Config,
        broker: Broker,
        *,
        check: Callable[[ServerConfig], object],
        apply: Callable[[Config, Access], None],
    ) -> None:
        self._started = config
        self._broker = broker
        self._check = check
        self._apply = apply
        self._one_at_a_time = asyncio.Lock()

    async def reload(self) -> dict[str, Any]:
        """Read the file again and go over to it.

        Returns what became of each server (``added``, ``changed``, ``removed``, ``unchanged``; see
        :meth:`Broker.replace`), and in ``needs_restart`` the keys that changed and wait for the next start of the
        daemon. Raises :class:`ConfigError` with all that is wrong, and nothing has changed then.
        """
        async with self._one_at_a_time:
            config = load(self._started.file, strict=True)
            access = access_of(config)
            self._refuse_no_servers(config)
            self._check_servers(config)
            done: dict[str, Any] = dict(await self._broker.replace(config))
            self._apply(config, access)
            done["needs_restart"] = waiting = changes(self._started.broker, config.broker)
        told = ", ".join(f"{len(done[key])} {key}" for key in ("added", "changed", "removed", "unchanged"))
        log.info("reloaded %s: %s", config.file, told)
        for warning in config.warnings:
            log.warning("%s", warning)
        if waiting:
            log.warning("a restart of the daemon is needed for what changed in %s", ", ".join(waiting))
        return done

    def _refuse_no_servers(self, config: Config) -> None:
        """Many editors empty a file before they write it: that moment must not stop every server."""
        running = sum(supervisor.state not in _NOT_RUNNING for supervisor in self._broker.servers)
        if not config.servers and running:
            count = f"{running} {'server' if running == 1 else 'servers'}"
            what = f"there is no [mcp.<name>] table, while the daemon serves {count}"
            fix = "to stop them all, run treadle shutdown, or write enabled = false in their tables"
            own = Problem(config.file, 0, 0, "", what, fix)
            raise ConfigError((own, *(warning for warning in config.warnings if warning.line)))

    def _check_servers(self, config: Config) -> None:
        running = {supervisor.name: supervisor.config for supervisor in self._broker.servers}
        problems = []
        for entry in config.servers:
            if isinstance(entry, Refused) or not entry.enabled or running.get(entry.name) == entry:
                continue
            try:
                self._check(entry)
            except Fault as fault:
                problems.append(
                    Problem(config.file, 0, 0, f"[mcp.{entry.name}]", reason_of(fault, entry.name), "")
                )
        if problems:
            raise ConfigError(tuple(problems))


def changes(before: BrokerConfig, after: BrokerConfig) -> list[str]:
    """The keys of :data:`FIXED` that differ, as ``broker.socket``."""
    return [f"broker.{key}" for key in FIXED if getattr(before, key) != getattr(after, key)]
