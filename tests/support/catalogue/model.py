"""The vocabulary of the catalogue: what a test does with a server, and what must come of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from support.script import Json, Script
from treadle.errors import StartFault
from treadle.transport import Rung

SECRET: Final = "sk-loom-4815162342-shuttle"
"""A value that a server spills; configured as a secret where :attr:`Entry.secret` says so."""

MALFORMED: Final = "mcp_malformed"
TIMEOUT: Final = "mcp_timeout"

ANY: Final = object()
"""Any success will do."""


@dataclass(frozen=True)
class Ok:
    """A success. A call's ``value`` is its result as the socket page shapes it; a listing's ``tools`` are the
    entries as listed (names in order, ``inputSchema`` equal as JSON, ``outputSchema`` too when given)."""

    value: Any = ANY
    tools: tuple[Json, ...] | None = None


@dataclass(frozen=True)
class CallErr:
    """That call or listing alone fails; the channel lives. ``code`` is its failure code (client page, section 8),
    ``reason`` a regular expression searched in its explanation, ``data`` the error's data as JSON (ANY: not
    looked at).
    """

    code: str
    reason: str = ""
    data: Any = ANY


@dataclass(frozen=True)
class Fatal:
    """The channel dies: every call in flight is ``Unavailable`` at once, later ones fail fast with one reason,
    in which the regular expression ``reason`` is found."""

    reason: str


@dataclass(frozen=True)
class StartErr:
    """The start fails with this fault, in whose explanation the regular expression ``reason`` is found."""

    fault: type[StartFault]
    reason: str = ""


@dataclass(frozen=True)
class Start:
    """Open and shake hands."""

    expected: Ok | StartErr


@dataclass(frozen=True)
class Listing:
    """Take the listing (a client whose start takes one: that listing, for the first act of this kind)."""

    expected: Ok | CallErr | Fatal


@dataclass(frozen=True)
class Call:
    """One call; ``timeout_ms`` None is the server's ``call_timeout_ms``."""

    expected: Ok | CallErr | Fatal
    tool: str = "echo"
    arguments: Mapping[str, Any] = field(default_factory=lambda: {"text": "hello"})
    timeout_ms: int | None = None


@dataclass(frozen=True)
class Calls:
    """Calls that are all sent, in this order, before any answer is awaited."""

    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Death:
    """Nothing is asked: the server ends the channel by itself."""

    expected: Fatal


@dataclass(frozen=True)
class Stop:
    """The client retires the server; the evidence names the rung and either a status or a signal."""

    rung: Rung
    status: int | None = None
    signal: str | None = None
    stragglers: int = 0


Act = Start | Listing | Calls | Death | Stop


@dataclass(frozen=True)
class Entry:
    """One row, or one variant of a row: ``D-3/code-string``.

    ``acts`` happen in order; a start that succeeds goes before them unless the first is one, and a start, too,
    takes the listing. ``settings`` are keys of the server's table. After the acts a call of ``echo`` must
    succeed, unless the channel is dead (:attr:`lives`). ``dropped``, ``bad_lines``, ``warnings``: how many
    messages and bad lines were ignored in all, and how many warnings were given (None: not looked at).
    ``secret``: the value of a configured secret, which may not be seen anywhere. ``needs_process``: the twin
    cannot play it.
    """

    id: str
    title: str
    script: Script
    acts: tuple[Act, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    dropped: int | None = None
    bad_lines: int | None = None
    warnings: int | None = None
    secret: str | None = None
    needs_process: bool = False

    @property
    def group(self) -> str:
        """The letter of its group."""
        return self.id[0]

    @property
    def lives(self) -> bool:
        """Whether the channel outlives the acts."""
        return not any(isinstance(act, Stop) or _kills(act) for act in self.acts)


def _kills(act: Act) -> bool:
    if isinstance(act, Calls):
        return any(isinstance(call.expected, Fatal) for call in act.calls)
    return not isinstance(act, Stop) and isinstance(act.expected, Fatal | StartErr)


def called(
    expected: Ok | CallErr | Fatal, tool: str = "echo", timeout_ms: int | None = None, **arguments: Any
) -> Calls:
    """The act of one call; without arguments it is ``echo`` of ``hello``."""
    return Calls((Call(expected, tool, arguments or {"text": "hello"}, timeout_ms),))


def answer(*texts: str, is_error: bool = False, **more: Any) -> Ok:
    """The success whose value is these text blocks."""
    return Ok({"content": [{"type": "text", "text": text} for text in texts], "is_error": is_error, **more})


HELLO: Final = answer("hello")
