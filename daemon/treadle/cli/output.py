"""What the verbs print: lines, tables, JSON. Colour only on a terminal, and not against ``NO_COLOR``."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Final, TextIO

_CODES: Final = {"green": "32", "yellow": "33", "red": "31", "bold": "1", "dim": "2"}

STATES: Final = {
    "ready": "green",
    "starting": "yellow",
    "closing": "yellow",
    "backoff": "yellow",
    "prepared": "dim",
    "disabled": "dim",
    "retired": "red",
    "refused": "red",
    "parked": "red",
    "unconfirmed": "red",
}
"""The colour of each state of a server."""


def coloured(stream: TextIO) -> bool:
    """Whether colour is wanted on ``stream`` (https://no-color.org: any value but the empty one forbids it)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    """``text`` in a style of this module's where colour is wanted; an unknown style leaves it as it is."""
    code = _CODES.get(style)
    if code is None or not coloured(stream or sys.stdout):
        return text
    return f"\033[{code}m{text}\033[0m"


def line(text: str = "") -> None:
    """One line on standard output."""
    sys.stdout.write(f"{text}\n")


def reader_gone() -> bool:
    """Whether nobody reads standard output any more: its pipe has no reader, its terminal was closed."""
    import select

    poll = select.poll()
    poll.register(sys.stdout, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def note(text: str) -> None:
    """One line on standard error."""
    try:
        sys.stdout.flush()
    finally:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def problem(text: str) -> None:
    """What went wrong, on standard error."""
    note(f"{paint('treadle:', 'red', sys.stderr)} {text}")


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    import json

    line(json.dumps(value, ensure_ascii=False, indent=2))


def printable(text: str, stream: TextIO) -> str:
    """Text of a server for ``stream``: a terminal gets no control characters but tab and line end.

    Escape sequences could otherwise rewrite what the user sees; a file or pipe gets the text as it is.
    """
    if not stream.isatty():
        return text
    return text.translate({code: " " for code in (*range(32), *range(127, 160)) if code not in (9, 10)})


def table(rows: Sequence[Sequence[str]], styles: Mapping[int, Callable[[str], str]] | None = None) -> None:
    """Left-aligned columns; the last one is not padded. ``styles`` gives a column's style by its cell."""
    if not rows:
        return
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    last = len(widths) - 1
    for row in rows:
        cells = []
        for column, cell in enumerate(row):
            # Painted alone, so that what cannot be seen does not count as width.
            shown = paint(cell, styles[column](cell)) if styles and column in styles else cell
            cells.append(shown if column == last else shown + " " * (widths[column] - len(cell)))
        line("  ".join(cells).rstrip())


def state_style(cell: str) -> str:
    """The style of a cell that holds a server's state."""
    return STATES.get(cell, "")


def count(number: int, thing: str) -> str:
    """``1 server``, ``2 servers``, ``2 processes``."""
    return f"{number} {thing}{'' if number == 1 else 'es' if thing.endswith('s') else 's'}"


def span(seconds: float) -> str:
    """A duration in its two largest units: ``3h 2m``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")]
    shown = [f"{count}{unit}" for count, unit in parts if count]
    return " ".join(shown[:2]) or "0s"
