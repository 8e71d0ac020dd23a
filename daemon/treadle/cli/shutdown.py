"""``treadle shutdown``."""

from __future__ import annotations

import click

from treadle import evidence
from treadle.cli import common, output
from treadle.cli.codes import OK, UNCONFIRMED
from treadle.cli.connection import Connected
from treadle.cli.options import Options
from treadle.cli.progress import Elapsed


@click.command()
@click.option("--within", type=common.SECONDS, metavar="SECONDS", help="Have it done in this time.")
@common.options
def command(options: Options, within: float | None) -> int:
    """Stop the daemon and show the evidence of each server's end.

    Calls in flight may finish first (`drain_timeout_ms`). The exit code is 8 when an end could not be confirmed.

    \b
    treadle shutdown
    treadle shutdown --within 2 --json
    """
    with Connected(options, goes_on="shutdown") as broker, Elapsed("shutting down", shown=not options.quiet):
        done = broker.shutdown(within)
    if options.as_json:
        output.print_json(done)
    elif not options.quiet:
        output.table([(row["name"], evidence.of_row(row)) for row in done["servers"]])
    return OK if done["confirmed"] else UNCONFIRMED
