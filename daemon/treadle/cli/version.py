"""``treadle version``."""

from __future__ import annotations

import platform

import click

import treadle
from treadle.cli import common, output
from treadle.cli.codes import OK
from treadle.cli.options import Options
from treadle_client import BrokerError, Client


@click.command()
@common.options
def command(options: Options) -> int:
    """Show the versions in use, and that of the running daemon if there is one.

    \b
    treadle version
    treadle version --json
    """
    versions = {"treadle": treadle.__version__, "python": platform.python_version(), "kernel": platform.release()}
    try:
        with Client(options.socket, timeout=2.0) as broker:
            versions["daemon"] = broker.status()["daemon"]["version"]
    except BrokerError:
        pass  # no daemon is an answer, too
    if options.as_json:
        output.print_json(versions)
        return OK
    output.table([*versions.items(), *([] if "daemon" in versions else [("daemon", "none is running")])])
    return OK
