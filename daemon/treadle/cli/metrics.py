"""``treadle metrics``."""

from __future__ import annotations

import click

from treadle.cli import common, output
from treadle.cli.codes import OK
from treadle.cli.connection import Connected
from treadle.cli.options import Options
from treadle.metrics import families, render


@click.command()
@common.options
def command(options: Options) -> int:
    """Print the daemon's counters as OpenMetrics text, as Prometheus reads it.

    `treadle serve --metrics-port PORT` serves the same over HTTP.

    \b
    treadle metrics
    treadle metrics > /var/lib/node_exporter/treadle.prom
    """
    with Connected(options) as broker:
        status = broker.status(processes=True)
    if options.as_json:
        output.print_json(
            [
                {"name": f"{family.name}{suffix}", "labels": labels, "value": value}
                for family in families(status)
                for suffix, labels, value in family.samples
            ]
        )
    else:
        output.line(render(status).rstrip("\n"))
    return OK
