"""``treadle logs``."""

from __future__ import annotations

import json
import sys
import time
from typing import Final

import click

from treadle.cli import common, output
from treadle.cli.codes import OK
from treadle.cli.connection import Connected
from treadle.cli.options import Options
from treadle_client import Client

_POLL_S: Final = 0.25
_MOST_BYTES: Final = 65536  # what the daemon keeps of each server


@click.command()
@click.argument("server", shell_complete=common.complete_server)
@click.option("-f", "--follow", is_flag=True, help="Stay, and show what comes.")
@click.option("-n", "--lines", type=click.IntRange(min=0), metavar="N", help="The last N lines (default: all).")
@common.options
def command(options: Options, server: str, follow: bool, lines: int | None) -> int:
    """Show what a server wrote to its standard error lately; secrets are redacted.

    The daemon keeps the last 64 KiB of the newest incarnation; its own log has it all.

    \b
    treadle logs demo -n 20
    treadle logs demo -f
    """
    with Connected(options) as broker:
        mark, seen = _tail(broker, server)
        first = seen if lines is None else seen[len(seen) - min(lines, len(seen)) :]
        if not follow:
            _show(server, first, options)
            return OK
        _show_each(server, first, options)
        _follow(broker, server, mark, seen, options)
    return OK


_Mark = tuple[int, int]  # which incarnation, and how many bytes it had written


def _follow(broker: Client, server: str, mark: _Mark, seen: list[str], options: Options) -> None:
    """Until it is interrupted, the daemon ends or nobody reads any more."""
    while not output.reader_gone():
        if _mark(broker, server) != mark:
            before = mark[0]
            mark, now = _tail(broker, server)
            # Another incarnation's text is all new, however much it looks like that of the one before.
            _show_each(server, added(seen, now) if mark[0] == before else now, options)
            seen = now
        time.sleep(_POLL_S)


def _mark(broker: Client, server: str) -> _Mark:
    row = broker.status(server)["servers"][0]
    return row["generation"], row["stderr_bytes"]


def _tail(broker: Client, server: str) -> tuple[_Mark, list[str]]:
    """The lines of one incarnation, and a mark from before them: what comes after it will be seen to be new."""
    while True:
        mark = _mark(broker, server)
        lines = broker.logs(server, _MOST_BYTES).splitlines()
        if _mark(broker, server)[0] == mark[0]:
            return mark, lines


def added(before: list[str], after: list[str]) -> list[str]:
    """The lines of ``after`` that follow those of ``before``, when both are the newest lines of one growing text.

    The longest end of ``before`` that ``after`` begins with is what both show; without one all is new.
    """
    for common_lines in range(min(len(before), len(after)), 0, -1):
        if before[len(before) - common_lines :] == after[:common_lines]:
            return after[common_lines:]
    return after


def _show(server: str, lines: list[str], options: Options) -> None:
    if options.as_json:
        output.print_json({"server": server, "lines": lines})
        return
    for text in lines:
        output.line(output.printable(text, sys.stdout))


def _show_each(server: str, lines: list[str], options: Options) -> None:
    """One line, or one JSON document, each; at once."""
    for text in lines:
        if options.as_json:
            output.line(json.dumps({"server": server, "line": text}, ensure_ascii=False))
        else:
            output.line(output.printable(text, sys.stdout))
    sys.stdout.flush()
