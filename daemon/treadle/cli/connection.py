"""A verb's connection to the daemon; what fails becomes one line on standard error and an exit code."""

from __future__ import annotations

import sys
import time

from treadle.cli import output
from treadle.cli.codes import exit_code
from treadle_client import BrokerError, Client

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, NoReturn

    from treadle.cli.options import Options


class Connected:
    """``with Connected(options) as broker``: a client. A :class:`BrokerError` inside ends the program by its code.

    ``--verbose`` tells on standard error where the daemon was met and how long it took. An interrupt does not call
    back what the daemon ``goes_on`` with, which is told then.
    """

    def __init__(self, options: Options, *, goes_on: str = "") -> None:
        self._options = options
        self._goes_on = goes_on
        self._client = Client(options.socket, peer="treadle-cli")
        self._began = 0.0

    def __enter__(self) -> Client:
        self._began = time.perf_counter()
        return self._client

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._client.close()
        if self._options.verbose:
            took = (time.perf_counter() - self._began) * 1000
            output.note(f"treadle: {took:.1f} ms with the daemon at {self._client.path}")
        if isinstance(error, BrokerError):
            fail(error, self._options)
        if isinstance(error, KeyboardInterrupt) and self._goes_on:
            output.note(f"interrupted; the daemon goes on with the {self._goes_on}, see treadle status")


def fail(error: BrokerError, options: Options) -> NoReturn:
    """Tell ``error``, to people and with ``--json`` to programs, and exit with its code."""
    body = error_body(error)
    if options.as_json:
        output.print_json({"error": body})
    output.problem(sentence(error))
    if options.verbose:
        output.note(f"  code: {body['code']}, outcome: {body.get('outcome', 'none')}")
    sys.exit(exit_code(error))


def sentence(error: BrokerError) -> str:
    """``error`` for people; a server that there is not, with the name that was probably meant."""
    text = str(error)
    head, _, names = text.partition("; configured: ")
    if error.code != "unknown_server" or not names:
        return text
    import difflib

    near = difflib.get_close_matches(head.partition("'")[2].partition("'")[0], names.split(", "), 1)
    return f"{text}; did you mean {near[0]!r}?" if near else text


def error_body(error: BrokerError) -> dict[str, Any]:
    """The shape ``error`` of the socket page."""
    body: dict[str, Any] = {"code": error.code, "msg": error.message}
    if error.outcome is not None:
        body["outcome"] = error.outcome
    if error.data is not None:
        body["data"] = error.data
    return body
