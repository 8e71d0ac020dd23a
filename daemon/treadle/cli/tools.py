"""``treadle tools``."""

from __future__ import annotations

import click

from treadle.cli import common, listing
from treadle.cli.options import Options


@click.command()
@click.argument("server", shell_complete=common.complete_server)
@click.argument("tool", required=False, shell_complete=common.complete_tool)
@common.options
def command(options: Options, server: str, tool: str | None) -> int:
    """Show the tools of SERVER, or one TOOL in full: description, arguments, schemas.

    \b
    treadle tools demo
    treadle tools demo add
    """
    return listing.run(server, options) if tool is None else listing.run_one(server, tool, options)
