"""``treadle wait``."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from treadle.cli import common, output
from treadle.cli.codes import NO_DAEMON, OK, TIMED_OUT, UNAVAILABLE
from treadle.cli.connection import fail
from treadle.cli.options import Options
from treadle_client import BrokerError, BrokerUnreachable, Client

_POLL_S: Final = 0.05
_UNDECIDED: Final = ("starting", "backoff", "closing")


@click.command()
@click.argument("servers", nargs=-1, metavar="[SERVER]...", shell_complete=common.complete_server)
@click.option(
    "--timeout", type=click.FloatRange(min=0), default=30.0, show_default=True, metavar="SECONDS",
    help="How long to wait, for the daemon itself too.",
)  # fmt: skip
@common.options
def command(options: Options, servers: tuple[str, ...], timeout: float) -> int:
    """Wait until the daemon answers and its servers (or the named ones) are ready.

    Servers that are lazy or disabled are waited for only when they are named. The exit code is 4 when one
    cannot become ready, 5 when time ran out, 3 when no daemon came.

    \b
    treadle wait demo --timeout 10
    """
    deadline = time.monotonic() + timeout
    while True:
        rows: list[dict[str, Any]] = []
        try:
            with Client(options.socket) as broker:
                rows = [broker.status(name)["servers"][0] for name in servers] or broker.status()["servers"]
            pending = [row for row in rows if row["state"] in _UNDECIDED]
            failed = [row for row in rows if not _fine(row, named=bool(servers)) and row not in pending]
            if not pending:
                break
            waiting = f"still {', '.join(_told(row) for row in pending)}"
            code = TIMED_OUT
        except BrokerUnreachable as error:
            waiting, code = str(error), NO_DAEMON
        except BrokerError as error:
            fail(error, options)
        if time.monotonic() >= deadline:
            _show(rows, options)
            output.problem(f"gave up after {timeout:g} s: {waiting}")
            return code
        time.sleep(_POLL_S)
    _show(rows, options)
    for row in failed:
        output.problem(_told(row))
    return UNAVAILABLE if failed else OK


def _show(rows: list[dict[str, Any]], options: Options) -> None:
    if options.as_json:
        output.print_json(rows)


def _fine(row: dict[str, Any], *, named: bool) -> bool:
    return row["state"] == "ready" or (not named and row["state"] in ("disabled", "prepared"))


def _told(row: dict[str, Any]) -> str:
    return f"server {row['name']} is {row['state']}" + (f": {row['reason']}" if "reason" in row else "")
