"""``treadle wait``."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from treadle.cli import common
from treadle_client import BrokerError, BrokerUnreachable, Client

_POLL_S = 0.05
_UNDECIDED = ("starting", "backoff", "closing")


@click.command()
@click.argument("servers", nargs=-1, metavar="[SERVER]...")
@click.option(
    "--timeout", type=click.FloatRange(min=0), default=30.0, show_default=True, metavar="SECONDS",
    help="How long to wait, for the daemon itself too.",
)  # fmt: skip
@common.socket_option
@click.pass_context
def command(ctx: click.Context, servers: tuple[str, ...], timeout: float, socket: str | None) -> None:
    """Wait until the daemon answers and its servers (or the named ones) are ready.

    Servers that are lazy or disabled are waited for only when they are named. The exit code is 4 when one
    cannot become ready, 5 when time ran out, 3 when no daemon came.

    \b
    treadle wait demo --timeout 10
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            with Client(socket or ctx.obj) as broker:
                rows = [broker.status(name)["servers"][0] for name in servers] or broker.status()["servers"]
            pending = [row for row in rows if row["state"] in _UNDECIDED]
            failed = [row for row in rows if not _fine(row, named=bool(servers)) and row not in pending]
            if not pending:
                break
            waiting = f"still {', '.join(_told(row) for row in pending)}"
            code = common.TIMED_OUT
        except BrokerUnreachable as error:
            waiting, code = str(error), common.NO_DAEMON
        except BrokerError as error:
            common.fail(error)
        if time.monotonic() >= deadline:
            click.echo(f"treadle: gave up after {timeout:g} s: {waiting}", err=True)
            sys.exit(code)
        time.sleep(_POLL_S)
    for row in failed:
        click.echo(f"treadle: {_told(row)}", err=True)
    sys.exit(common.UNAVAILABLE if failed else common.OK)


def _fine(row: dict[str, Any], *, named: bool) -> bool:
    return row["state"] == "ready" or (not named and row["state"] in ("disabled", "prepared"))


def _told(row: dict[str, Any]) -> str:
    return f"server {row['name']} is {row['state']}" + (f": {row['reason']}" if "reason" in row else "")
