"""``treadle serve``."""

from __future__ import annotations

import click

from treadle.cli import common, serving
from treadle.cli.options import Options


@click.command()
@common.config_option
@click.option("--strict", is_flag=True, help="Refuse to start when any server's table has an error.")
@click.option(
    "--metrics-port", type=click.IntRange(1, 65535), metavar="PORT",
    help="Serve the counters over HTTP on 127.0.0.1 (needs the extra treadle[metrics]).",
)  # fmt: skip
@common.socket_option
@click.option("-q", "--quiet", is_flag=True, help="Log warnings and errors alone.")
@click.option("-v", "--verbose", is_flag=True, help="Log everything.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    config_path: str | None,
    strict: bool,
    metrics_port: int | None,
    socket: str | None,
    quiet: bool,
    verbose: bool,
) -> int:
    """Run the daemon in the foreground, until SIGTERM, SIGINT or `treadle shutdown`.

    A second signal skips the drain of calls in flight, a third kills what is left. SIGHUP is `treadle reload`.

    \b
    treadle serve
    treadle serve --config treadle.toml --strict
    """
    options = Options(socket=socket or ctx.obj, quiet=quiet, verbose=verbose)
    return serving.run(options, config_path=config_path, strict=strict, metrics_port=metrics_port)
