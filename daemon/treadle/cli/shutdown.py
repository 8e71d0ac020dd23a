"""``treadle shutdown``."""

from __future__ import annotations

import sys

import click

from treadle import evidence
from treadle.cli import common


@click.command()
@click.option("--within", type=click.FloatRange(min=0.1), metavar="SECONDS", help="Have it done in this time.")
@common.json_option
@common.socket_option
@click.pass_context
def command(ctx: click.Context, within: float | None, as_json: bool, socket: str | None) -> None:
    """Stop the daemon and show the evidence of each server's end.

    The exit code is 8 when an end could not be confirmed.

    \b
    treadle shutdown
    """
    with common.broker(ctx, socket) as broker:
        done = broker.shutdown(within)
    if as_json:
        common.print_json(done)
    else:
        common.table([(row["name"], evidence.of_row(row)) for row in done["servers"]])
    sys.exit(common.OK if done["confirmed"] else common.UNCONFIRMED)
