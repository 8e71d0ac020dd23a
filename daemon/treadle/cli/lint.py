"""``treadle lint``."""

from __future__ import annotations

import click

from treadle.cli import common
from treadle.cli.options import Options


@click.command()
@click.argument("server", shell_complete=common.complete_server)
@click.option("--from-json", metavar="FILE", type=click.Path(), help="A tools/list result; no daemon is asked.")
@common.options
def command(options: Options, server: str, from_json: str | None) -> int:
    """Show what the listing of SERVER makes hard: names that had to change, untyped parameters, odd text.

    The exit code is 1 when there is an error or a warning.

    \b
    treadle lint demo
    treadle lint demo --from-json listing.json
    """
    from treadle.cli import generating

    return generating.lint(server, from_json, options)
