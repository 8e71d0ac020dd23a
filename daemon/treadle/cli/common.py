"""What the verbs share: the socket, exit codes, output."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeVar

import click

from treadle_client import (
    BrokerError,
    BrokerUnreachable,
    CallTimedOut,
    Client,
    Denied,
    ResultMalformed,
    ServerErrored,
    ServerUnavailable,
    ToolFailed,
)

OK: Final = 0
TOOL_SAID_NO: Final = 1
USAGE: Final = 2
NO_DAEMON: Final = 3
UNAVAILABLE: Final = 4
TIMED_OUT: Final = 5
REFUSED: Final = 6
MALFORMED: Final = 7
UNCONFIRMED: Final = 8
"""The exit codes of every verb, for scripts to branch on."""

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

EXIT_OF: Final[dict[type[BrokerError], int]] = {
    ToolFailed: TOOL_SAID_NO,
    ServerErrored: TOOL_SAID_NO,
    BrokerUnreachable: NO_DAEMON,
    ServerUnavailable: UNAVAILABLE,
    CallTimedOut: TIMED_OUT,
    Denied: REFUSED,
    ResultMalformed: MALFORMED,
}
USAGE_CODES: Final = frozenset({"unknown_server", "invalid_argument"})


def socket_option(function: _Decorated) -> _Decorated:
    """``--socket`` after the verb, too."""
    return click.option("--socket", "socket", metavar="PATH", help="The daemon's socket.")(function)


def json_option(function: _Decorated) -> _Decorated:
    """``--json``: the shapes of the socket protocol, one JSON document."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


@contextmanager
def broker(ctx: click.Context, socket: str | None) -> Iterator[Client]:
    """A connected client; failures become one line on stderr and an exit code."""
    try:
        with Client(socket or ctx.obj) as client:
            yield client
    except BrokerError as error:
        fail(error)


def fail(error: BrokerError) -> NoReturn:
    """Print ``error`` for people and exit with its code."""
    click.echo(f"treadle: {error}", err=True)
    sys.exit(exit_code(error))


def exit_code(error: BrokerError) -> int:
    """The exit code of a failed request."""
    if error.code in USAGE_CODES:
        return USAGE
    return next((code for kind, code in EXIT_OF.items() if isinstance(error, kind)), REFUSED)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def table(rows: list[tuple[str, ...]]) -> None:
    """Left-aligned columns; the last one is not padded."""
    if not rows:
        return
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        padded = [cell.ljust(width) for cell, width in zip(row[:-1], widths[:-1], strict=True)]
        click.echo("  ".join([*padded, row[-1]]).rstrip())
