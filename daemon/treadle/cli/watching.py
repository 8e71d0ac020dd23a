"""``treadle status --watch``: a live table on a terminal, one line a change anywhere else."""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Final

from treadle.cli import output, statusview
from treadle.cli.codes import OK
from treadle.cli.connection import Connected, fail
from treadle.cli.options import Options
from treadle_client import BrokerError, Client

_INTERVAL_S: Final = 0.5


def run(server: str | None, options: Options) -> int:
    """Watch one server or all, until it is interrupted. Returns the exit code."""
    if options.as_json or not sys.stdout.isatty():
        return _changes(server, options)
    from rich.console import Group
    from rich.text import Text

    from treadle.cli import screen

    def draw(broker: Client) -> Group:
        status = broker.status(server)
        head = Text(statusview.headline(status["daemon"]), no_wrap=True, overflow="ellipsis")
        rows = [statusview.row(one) for one in status["servers"]]
        hint = Text("\nq ends it", style="dim")
        return Group(head, Text(), screen.table(statusview.HEADER, rows, left=2), hint)

    try:
        return screen.watch(options.socket, draw, _INTERVAL_S)
    except BrokerError as error:
        fail(error, options)


def _changes(server: str | None, options: Options) -> int:
    """One line for each server at first, then one for each change of a state or its reason."""
    known: dict[str, tuple[str, str]] = {}
    with Connected(options) as broker:
        while not output.reader_gone():
            for row in broker.status(server)["servers"]:
                seen = (row["state"], row.get("reason", ""))
                if known.get(row["name"]) != seen:
                    known[row["name"]] = seen
                    _show(row, options)
            sys.stdout.flush()
            time.sleep(_INTERVAL_S)
    return OK


def _show(row: dict[str, Any], options: Options) -> None:
    if options.as_json:
        output.line(json.dumps(row, ensure_ascii=False))
        return
    reason = f": {row['reason']}" if "reason" in row else ""
    output.line(f"{time.strftime('%H:%M:%S')} {row['name']} is {row['state']}{reason}")
