"""The elapsed time of a request that takes long, on a terminal only."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from threading import Event, Thread
    from types import TracebackType
    from typing import Final

AFTER_S: Final = 2.0
_EVERY_S: Final = 1.0


class Elapsed:
    """While inside: after :data:`AFTER_S` seconds, the seconds so far on standard error, where that is a terminal.

    A thread shows them: a signal would interrupt the client's receive, and with it the client's own time-out.
    """

    def __init__(self, what: str, *, shown: bool) -> None:
        self._what = what
        self._shown = shown and sys.stderr.isatty()
        self._thread: Thread | None = None
        self._done: Event | None = None

    def __enter__(self) -> None:
        if self._shown:
            from threading import Event, Thread

            self._done = Event()
            thread = Thread(target=self._show, args=(self._done,), daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return  # no thread can be had: the request matters, its clock does not
            self._thread = thread

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._thread is not None and self._done is not None:
            self._done.set()
            self._thread.join()

    def _show(self, done: Event) -> None:
        seconds, wait = 0.0, AFTER_S
        while not done.wait(wait):
            seconds, wait = seconds + wait, _EVERY_S
            sys.stderr.write(f"\r\033[K{self._what} … {seconds:.0f} s")
            sys.stderr.flush()
        if seconds:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
