"""What the live views share: a terminal that is drawn again and again until the user has seen enough."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from treadle.cli.output import STATES
from treadle_client import BrokerError, BrokerUnreachable, Client


def console(*, stderr: bool = False) -> Console:
    """A console on this terminal. It honours ``NO_COLOR`` and the size that the terminal has, or ``$COLUMNS``."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> Table:
    """Columns without lines between them, the first ``left`` of them left-aligned. The second is a server's state.

    Where the terminal is too narrow, the texts are cut and the numbers stay whole.
    """
    made = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    for number, heading in enumerate(header):
        text = number in (0, len(header) - 1) if left > 2 else number == 0
        made.add_column(
            heading,
            justify="left" if number < left else "right",
            no_wrap=True,
            overflow="ellipsis",
            min_width=4 if text else len(heading) if number != 1 else 8,
        )
    for row in rows:
        cells = [Text(cell) for cell in row]
        cells[0].stylize("bold")
        cells[1].stylize(STATES.get(row[1], ""))
        made.add_row(*cells)
    return made


def watch(socket: str | None, draw: Callable[[Client], RenderableType], interval: float) -> int:
    """Draw every ``interval`` seconds until ``q`` or an interrupt. Returns the exit code, 0.

    A daemon that has gone is told and waited for. Raises :class:`BrokerError` for any other failure.
    """
    with _keys() as pressed, Client(socket, peer="treadle-cli") as broker:
        shown: RenderableType = Text("")
        with Live(console=console(), screen=True, auto_refresh=False) as live:
            while True:
                try:
                    shown = draw(broker)
                    live.update(shown, refresh=True)
                except BrokerUnreachable as error:
                    live.update(Group(Text(f"{error}; trying again", style="red"), shown), refresh=True)
                if pressed(interval):
                    return 0


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """A function that waits some seconds for ``q``; keys are read one by one and not shown meanwhile."""
    descriptor = sys.stdin.fileno()
    if not os.isatty(descriptor):
        yield _wait
        return
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)

        def pressed(seconds: float) -> bool:
            until = time.monotonic() + seconds
            while (left := until - time.monotonic()) > 0:
                if select.select([descriptor], [], [], left)[0]:
                    key = os.read(descriptor, 1)
                    if key in (b"q", b"Q", b""):
                        return True
            return False

        yield pressed
    except KeyboardInterrupt:
        pass
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


__all__ = ["BrokerError", "console", "table", "watch"]
