"""``treadle list``."""

from __future__ import annotations

import click

from treadle.cli import common, listing
from treadle.cli.options import Options


@click.command()
@click.argument("server", required=False, shell_complete=common.complete_server)
@click.option("--schema", is_flag=True, help="With SERVER: the whole schemas of its tools.")
@common.options
def command(options: Options, server: str | None, schema: bool) -> int:
    """Show the servers, or the tools of SERVER with their signatures.

    \b
    treadle list
    treadle list demo
    treadle list demo --schema
    """
    if schema and server is None:
        raise click.UsageError("--schema needs a SERVER")
    return listing.run(server, options, schema=schema)
