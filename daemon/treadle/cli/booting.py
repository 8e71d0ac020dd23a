"""How the servers come up, shown by ``treadle serve`` on a terminal: a spinner each, then a row each."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from treadle.broker import Broker
from treadle.cli import output, screen
from treadle.cli.output import STATES
from treadle.errors import Stopped
from treadle.logs import Log
from treadle.states import State
from treadle.supervisor import Supervisor

_EVERY_S: Final = 0.1
_shown: set[asyncio.Task[None]] = set()


def show(broker: Broker, log: Log) -> None:
    """Draw on standard error until no server is starting any more; the log's lines appear above the drawing."""
    task = asyncio.get_running_loop().create_task(_show(broker, log))
    _shown.add(task)
    task.add_done_callback(_shown.discard)


async def _show(broker: Broker, log: Log) -> None:
    console = screen.console(stderr=True)
    began = time.monotonic()
    took: dict[str, float] = {}
    spinners = {server.name: Spinner("dots") for server in broker.servers}
    write = log.show
    told_below = _Quiet(broker)
    log.addFilter(told_below)

    def drawn() -> Table:
        table = Table.grid(padding=(0, 2))
        for server in broker.servers:
            if server.state is not State.STARTING:
                took.setdefault(server.name, time.monotonic() - began)
            table.add_row(*_cells(server, spinners.get(server.name), took.get(server.name)))
        return table

    with Live(drawn(), console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        log.show = lambda text: console.print(text.rstrip("\n"), soft_wrap=True)
        try:
            while broker.starting:
                await asyncio.sleep(_EVERY_S)
                live.update(drawn(), refresh=True)
        finally:
            live.update(drawn(), refresh=True)
            log.show = write
            log.removeFilter(told_below)


def _cells(server: Supervisor, spinner: Spinner | None, took: float | None) -> tuple[Text | Spinner, ...]:
    state = server.state.value
    if server.state is State.STARTING and spinner is not None:
        return spinner, Text(server.name, "bold"), Text(state, STATES[state]), Text("")
    good = server.state is State.READY
    # Told to stop, or never to be started: that is how it was to be.
    calm = state in ("prepared", "disabled") or (
        server.client is not None and isinstance(server.client.fault, Stopped)
    )
    style = "dim" if calm else STATES[state]
    mark = Text("✓", "green") if good else Text("·" if calm else "✗", style)
    detail = f"{output.count(len(server.tools), 'tool')}, {took:.1f} s" if good else server.reason or ""
    return mark, Text(server.name, "bold"), Text(state, style), Text(detail)


class _Quiet(logging.Filter):
    """What a row tells need not be logged above it, too; the evidence of an end stands in no row."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self._broker = broker

    def filter(self, record: logging.LogRecord) -> bool:
        told = record.levelno < logging.WARNING and hasattr(record, "server")
        return not told or self._broker.draining
