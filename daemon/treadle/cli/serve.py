"""``treadle serve``."""

from __future__ import annotations

import logging
import os
import sys

import click

from treadle.cli import common


@click.command()
@click.option(
    "--config",
    "config_path",
    metavar="FILE",
    help="The configuration (default: $TREADLE_CONFIG, then the usual paths).",
)
@click.option("--strict", is_flag=True, help="Refuse to start when any server's table has an error.")
@common.socket_option
@click.pass_context
def command(ctx: click.Context, config_path: str | None, strict: bool, socket: str | None) -> None:
    """Run the daemon in the foreground, until SIGTERM, SIGINT or `treadle shutdown`.

    A second signal skips the drain of calls in flight, a third kills what is left.

    \b
    treadle serve --config treadle.toml
    """
    import uvloop

    from treadle.daemon import Daemon
    from treadle.errors import ConfigError
    from treadle.reload import find, load
    from treadle.socketfile import SocketRefused

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")

    async def run() -> int:
        config = load(find(config_path, os.environ), strict=strict)
        logging.getLogger().setLevel(config.broker.log_level.upper())
        for problem in config.problems:
            logging.getLogger("treadle").error("%s", problem)
        return await Daemon(config, socket=socket or ctx.obj, strict=strict).run()

    try:
        with_loop = uvloop.run(run())
    except ConfigError as error:
        click.echo(f"treadle: the configuration cannot be used\n{error}", err=True)
        sys.exit(common.USAGE)
    except SocketRefused as error:
        click.echo(f"treadle: {error}", err=True)
        sys.exit(common.USAGE)
    sys.exit(with_loop)
