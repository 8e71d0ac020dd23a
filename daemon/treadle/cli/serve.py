"""``treadle serve``."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from treadle.cli import common, output
from treadle.cli.codes import USAGE

if TYPE_CHECKING:
    from treadle.config import Config
    from treadle.logs import Log


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
    import uvloop

    from treadle.errors import ConfigError
    from treadle.logs import Log
    from treadle.metrics import ListenerRefused
    from treadle.socketfile import SocketRefused

    level = "debug" if verbose else "warning" if quiet else None
    log = Log(sys.stderr, os.environ)
    try:
        return uvloop.run(_serve(log, level, config_path, strict, metrics_port, socket or ctx.obj))
    except ConfigError as error:
        problem = f"the configuration cannot be used\n{error}"
    except (SocketRefused, ListenerRefused) as error:
        problem = str(error)
    finally:
        log.close()
    output.problem(problem)
    return USAGE


async def _serve(
    log: Log,
    level: str | None,
    config_path: str | None,
    strict: bool,
    metrics_port: int | None,
    socket: str | None,
) -> int:
    import logging

    from treadle.daemon import Daemon
    from treadle.listener import Listener
    from treadle.metrics import Exporter
    from treadle.reload import find, load

    def configure(config: Config) -> None:
        log.configure(level or config.broker.log_level, config.broker.log_format)

    config = load(find(config_path, os.environ), strict=strict)
    configure(config)
    for problem in config.problems:
        logging.getLogger("treadle").error("%s", problem)
    exporter = None if metrics_port is None else Exporter(metrics_port)

    def begun(listener: Listener) -> None:
        if exporter is not None:
            exporter.start(lambda: listener.service.status(None, processes=True))
        if sys.stderr.isatty() and config.broker.log_format == "text" and level is None:
            from treadle.cli import booting

            booting.show(listener.service.broker, log)

    try:
        return await Daemon(config, socket=socket, strict=strict, on_begin=begun, on_reload=configure).run()
    finally:
        if exporter is not None:
            exporter.close()
