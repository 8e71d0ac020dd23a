"""``treadle restart``, ``treadle stop`` and ``treadle start``."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final

import click

from treadle import evidence
from treadle.cli import common, output
from treadle.cli.codes import OK, UNAVAILABLE, UNCONFIRMED, exit_code
from treadle.cli.connection import Connected, error_body, sentence
from treadle.cli.options import Options
from treadle.cli.progress import Elapsed
from treadle_client import BrokerError, BrokerUnreachable, Client

_Row = dict[str, Any]
_AT_ONCE: Final = 16  # each has a connection of its own

_SERVERS = click.argument("servers", nargs=-1, metavar="SERVER...", shell_complete=common.complete_server)
_ALL = click.option("--all", "every", is_flag=True, help="All servers that are not disabled or refused.")
_WITHIN = click.option(
    "--within", type=common.SECONDS, metavar="SECONDS", help="How long the end of each may take."
)


@click.command()
@_SERVERS
@_ALL
@_WITHIN
@common.options
def restart(options: Options, servers: tuple[str, ...], every: bool, within: float | None) -> int:
    """Stop servers and, on evidence of their end, start them anew.

    The exit code is 4 when one is not ready afterwards, 8 when an end could not be confirmed.

    \b
    treadle restart demo
    treadle restart --all
    """
    return _each("restart", options, servers, every, lambda broker, name: broker.restart(name, within), _up)


@click.command()
@_SERVERS
@_ALL
@_WITHIN
@common.options
def stop(options: Options, servers: tuple[str, ...], every: bool, within: float | None) -> int:
    """Stop servers and leave them so; show the evidence of each one's end.

    The exit code is 8 when an end could not be confirmed.

    \b
    treadle stop demo --within 2
    """
    return _each("stop", options, servers, every, lambda broker, name: broker.stop(name, within), _down)


@click.command()
@_SERVERS
@_ALL
@common.options
def start(options: Options, servers: tuple[str, ...], every: bool) -> int:
    """Start servers that are stopped, parked or not yet used.

    The exit code is 4 when one is not ready afterwards.

    \b
    treadle start demo
    """
    return _each("start", options, servers, every, lambda broker, name: broker.start(name), _up)


def _each(
    verb: str,
    options: Options,
    names: Sequence[str],
    every: bool,
    work: Callable[[Client, str], _Row],
    judge: Callable[[_Row], int],
) -> int:
    """Do it to all the servers at once: one that fails does not spare the others. Returns the worst code."""
    if bool(names) == every:
        raise click.UsageError(
            "give names of servers or --all, not both" if every else "name the servers, or give --all"
        )
    rows: list[_Row] = []
    worst = OK
    with Connected(options, goes_on=verb) as broker:
        if every:
            names = [row["name"] for row in broker.list() if row["state"] not in ("disabled", "refused")]
        for name, done in _begun(list(dict.fromkeys(names)), lambda name: work(broker, name)):
            try:
                with Elapsed(name, shown=not options.quiet):
                    row = {"name": name, **done.result()}
            except BrokerUnreachable:
                raise
            except BrokerError as error:
                output.problem(sentence(error))
                row, code = {"name": name, "failed": error_body(error)}, exit_code(error)
            else:
                code = judge(row)
                if not options.as_json and not options.quiet:
                    output.line(_told(row))
                    sys.stdout.flush()
            rows.append(row)
            worst = max(worst, code)
    if options.as_json:
        output.print_json(rows)
    return worst


def _begun(names: Sequence[str], work: Callable[[str], _Row]) -> list[tuple[str, Future[_Row]]]:
    """``work`` begun for every name, :data:`_AT_ONCE` at once; its outcome or failure, in the order of ``names``.

    On daemon threads: an interrupt ends the program without waiting for them.
    """
    begun: list[tuple[str, Future[_Row]]] = [(name, Future()) for name in names]
    todo = deque(begun)

    def run() -> None:
        while todo:
            try:
                name, future = todo.popleft()
            except IndexError:  # another thread took the last one
                return
            try:
                future.set_result(work(name))
            except BaseException as error:
                future.set_exception(error)

    for _ in range(min(len(names), _AT_ONCE)):
        threading.Thread(target=run, daemon=True).start()
    return begun


def _up(row: _Row) -> int:
    if "error" in row:
        return UNCONFIRMED
    return OK if row["state"] == "ready" else UNAVAILABLE


def _down(row: _Row) -> int:
    return UNCONFIRMED if "error" in row else OK


def _told(row: _Row) -> str:
    told = f"{row['name']}: "
    if "evidence" in row or "error" in row:
        told += f"{evidence.of_row(row)}; "
    told += f"now {output.paint(row['state'], output.state_style(row['state']))}"
    return f"{told}: {row['reason']}" if "reason" in row else told
