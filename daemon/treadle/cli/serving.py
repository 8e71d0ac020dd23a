"""What ``serve`` does: read the configuration, set the log up, run the daemon."""

from __future__ import annotations

import gc
import os
import sys

from treadle.cli import output
from treadle.cli.codes import USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from treadle.cli.options import Options
    from treadle.config import Config
    from treadle.listener import Listener
    from treadle.logs import Log


def run(
    options: Options, *, config_path: str | None = None, strict: bool = False, metrics_port: int | None = None
) -> int:
    """Run the daemon until it is told to stop; returns the exit code."""
    # What is imported is never garbage: it is not searched for any, neither while it comes nor ever after.
    gc.disable()
    import logging

    import uvloop

    import treadle.daemon  # noqa: F401 (what _serve imports, while nothing is searched)
    from treadle.errors import ConfigError, ListenerRefused
    from treadle.logs import Log
    from treadle.socketfile import SocketRefused

    gc.freeze()
    gc.enable()
    level = "debug" if options.verbose else "warning" if options.quiet else None
    log = Log(sys.stderr, os.environ)
    try:
        return uvloop.run(_serve(log, level, config_path, strict, metrics_port, options.socket))
    except (ConfigError, SocketRefused, ListenerRefused) as error:
        problem = f"the configuration cannot be used\n{error}" if isinstance(error, ConfigError) else str(error)
        if log.to_journal:
            # As one entry with the priority of an error, whatever level is logged, if any is by now.
            facts = {"name": "treadle", "levelno": logging.ERROR, "levelname": "ERROR", "msg": problem}
            log.handle(logging.makeLogRecord(facts))
    finally:
        log.close()
    if not log.to_journal:
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

    from treadle.config import Refused
    from treadle.daemon import Daemon
    from treadle.reload import find, load

    def configure(config: Config) -> None:
        log.configure(level or config.broker.log_level, config.broker.log_format)

    config = load(find(config_path, os.environ), strict=strict)
    configure(config)
    for server in config.servers:
        for problem in server.problems if isinstance(server, Refused) else ():
            logging.getLogger("treadle").error("%s", problem, extra={"server": server.name})
    for warning in config.warnings:
        logging.getLogger("treadle").warning("%s", warning)
    exporter = None
    if metrics_port is not None:
        from treadle.metrics import Exporter

        exporter = Exporter(metrics_port)

    def begun(listener: Listener) -> None:
        if exporter is not None:
            exporter.start(lambda: listener.service.status_of_processes(None))
        if sys.stderr.isatty() and config.broker.log_format == "text" and level is None:
            from treadle.cli import booting

            booting.show(listener.service.broker, log)

    try:
        return await Daemon(config, socket=socket, strict=strict, on_begin=begun, on_reload=configure).run()
    finally:
        if exporter is not None:
            exporter.close()
