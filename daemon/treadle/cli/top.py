"""``treadle top``."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from treadle.cli import common, output, sampling, statusview
from treadle.cli.codes import OK
from treadle.cli.connection import Connected, fail
from treadle.cli.options import Options
from treadle_client import BrokerError, Client


@click.command()
@click.option(
    "--interval", type=click.FloatRange(min=0.1), default=1.0, show_default=True, metavar="SECONDS",
    help="How often to look.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Look twice, print the table once and end.")
@common.options
def command(options: Options, interval: float, once: bool) -> int:
    """Watch the servers at work: calls in flight, calls a second, latencies in ms, errors, restarts, memory, CPU.

    Memory and CPU are those of each server's whole process tree. q ends it.

    \b
    treadle top
    treadle top --once --json
    """
    if once or options.as_json or not sys.stdout.isatty():
        return _once(options, interval)
    from rich.console import Group
    from rich.text import Text

    from treadle.cli import screen

    before: dict[str, Any] | None = None
    at = 0.0

    def draw(broker: Client) -> Group:
        nonlocal before, at
        now, moment = broker.status(processes=True), time.monotonic()
        rows = [row.cells() for row in sampling.rows(before, now, moment - at)]
        before, at = now, moment
        head = Text(statusview.headline(now["daemon"]), no_wrap=True, overflow="ellipsis")
        return Group(head, Text(), screen.table(sampling.HEADER, rows, left=2), Text("\nq ends it", style="dim"))

    try:
        return screen.watch(options.socket, draw, interval)
    except BrokerError as error:
        fail(error, options)


def _once(options: Options, interval: float) -> int:
    with Connected(options) as broker:
        first, began = broker.status(processes=True), time.monotonic()
        time.sleep(interval)
        second = broker.status(processes=True)
    rows = sampling.rows(first, second, time.monotonic() - began)
    if options.as_json:
        output.print_json([{key: getattr(row, key) for key in row.__slots__} for row in rows])
    else:
        output.table([sampling.HEADER, *(row.cells() for row in rows)])
    return OK
