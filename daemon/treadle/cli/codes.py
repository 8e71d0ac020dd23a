"""The exit codes of every verb, for scripts to branch on."""

from __future__ import annotations

from treadle_client import (
    BrokerError,
    BrokerUnreachable,
    CallTimedOut,
    ResultMalformed,
    ServerErrored,
    ServerUnavailable,
    ToolFailed,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

OK: Final = 0
TOOL_SAID_NO: Final = 1
USAGE: Final = 2
NO_DAEMON: Final = 3
UNAVAILABLE: Final = 4
TIMED_OUT: Final = 5
REFUSED: Final = 6
MALFORMED: Final = 7
UNCONFIRMED: Final = 8
OUTPUT_LOST: Final = 74
"""``EX_IOERR`` of sysexits(3)."""
INTERRUPTED: Final = 130
"""As a shell tells the end by SIGINT."""

MEANINGS: Final = {
    OK: "done",
    TOOL_SAID_NO: "the tool said no, or its server answered an error",
    USAGE: "the command line or the configuration is wrong",
    NO_DAEMON: "no daemon answers on the socket",
    UNAVAILABLE: "the server cannot answer: it is dead, stopped, parked or refused",
    TIMED_OUT: "no answer in time",
    REFUSED: "the daemon refused: denied, overloaded, shutting down, cancelled, too large",
    MALFORMED: "the answer is not what was promised",
    UNCONFIRMED: "the end of a server could not be confirmed",
    OUTPUT_LOST: "standard output could not be written; what was asked for may have been done",
    INTERRUPTED: "interrupted; `top` and `status --watch` on a terminal end with 0",
}

_OF: Final[dict[type[BrokerError], int]] = {
    ToolFailed: TOOL_SAID_NO,
    ServerErrored: TOOL_SAID_NO,
    BrokerUnreachable: NO_DAEMON,
    ServerUnavailable: UNAVAILABLE,
    CallTimedOut: TIMED_OUT,
    ResultMalformed: MALFORMED,
}
_USAGE_CODES: Final = frozenset({"unknown_server", "invalid_argument"})


def exit_code(error: BrokerError) -> int:
    """The exit code of a failed request; what has no code of its own was refused."""
    if error.code in _USAGE_CODES:
        return USAGE
    return next((code for kind, code in _OF.items() if isinstance(error, kind)), REFUSED)
