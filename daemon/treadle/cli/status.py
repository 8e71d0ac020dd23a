"""``treadle status``."""

from __future__ import annotations

import time
from typing import Any

import click

from treadle.cli import common, output, statusview
from treadle.cli.codes import OK
from treadle.cli.connection import Connected
from treadle.cli.options import Options


@click.command()
@click.argument("server", required=False, shell_complete=common.complete_server)
@click.option("--watch", is_flag=True, help="Stay, and show every change.")
@common.options
def command(options: Options, server: str | None, watch: bool) -> int:
    """Show how each server is, and why; with SERVER everything about that one.

    \b
    treadle status
    treadle status demo
    treadle status --watch
    """
    if watch:
        from treadle.cli import watching

        return watching.run(server, options)
    with Connected(options) as broker:
        status = broker.status(server, processes=server is not None or options.verbose)
    if options.as_json:
        output.print_json(status)
    elif server is not None:
        show_one(status["servers"][0])
    else:
        show_all(status, headline=not options.quiet)
    return OK


def show_all(status: dict[str, Any], *, headline: bool) -> None:
    """The daemon in a line, its servers in a table."""
    if headline:
        output.line(statusview.headline(status["daemon"]))
    rows = [statusview.HEADER, *(statusview.row(server) for server in status["servers"])]
    output.table(rows, {0: lambda _: "bold", 1: output.state_style})


def show_one(server: dict[str, Any]) -> None:
    """One server in full."""
    output.line(output.paint(server["name"], "bold"))
    pairs = [(f"  {heading}", text) for heading, text in statusview.facts(server, time.time())]
    output.table(pairs, {1: output.state_style})
