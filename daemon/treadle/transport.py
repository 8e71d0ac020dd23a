"""The seam between the client of one server and the way that server comes to exist (floor 2).

A client is written against :class:`Transport` alone: open, send, receive chunks, receive *closed* once,
retire. Two transports exist: the child process (:mod:`treadle.process`) and the in-process channel peer
(:mod:`treadle.channel`), so that every behaviour of a client is provable without an operating-system process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

from treadle.errors import Fault

if TYPE_CHECKING:
    from treadle.tree import Usage

Rung = Literal["itself", "eof", "term", "kill"]
"""After which step of the stop ladder a server ended: by itself, on stdin EOF, on SIGTERM, on SIGKILL."""


class Evidence(Struct, frozen=True, kw_only=True):
    """What is known of a server's end (specification: socket page, shape ``evidence``).

    ``no_resource``: no process was ever created. ``exited``: the parent observed the wait status. ``unknown``:
    nobody can tell. ``drained`` speaks of the descendants: True when none is left, False when some are known to
    be left, None when it cannot be known; ``by`` says by what means, ``stragglers`` how many had to be killed.
    """

    kind: Literal["no_resource", "exited", "unknown"]
    status: int | None = None
    signal: str | None = None
    rung: Rung | None = None
    elapsed_ms: int = 0
    drained: bool | None = None
    by: Literal["cgroup", "sweep", "pidns"] | None = None
    stragglers: int = 0

    @property
    def confirmed(self) -> bool:
        """Whether this authorises a replacement: the server itself is proven gone and nothing is known left."""
        return self.kind != "unknown" and self.drained is not False

    def to_body(self) -> dict[str, Any]:
        """The shape ``evidence`` of the socket protocol; keys that do not apply are absent."""
        body: dict[str, Any] = {"kind": self.kind}
        for key in ("status", "signal", "rung", "by"):
            value = getattr(self, key)
            if value is not None:
                body[key] = value
        body["elapsed_ms"] = self.elapsed_ms
        body["drained"] = self.drained
        body["stragglers"] = self.stragglers
        return body


NO_RESOURCE = Evidence(kind="no_resource", drained=True)


class Ladder(Struct, frozen=True, kw_only=True):
    """The budgets of one stop, in seconds from its request: EOF at once, SIGTERM at ``term_after``, SIGKILL at
    ``kill_after`` (client page, section 5: two fifths after EOF, the rest after SIGTERM)."""

    term_after: float
    kill_after: float

    @classmethod
    def within(cls, stop_timeout_ms: int) -> Ladder:
        """The ladder of a server's ``stop_timeout_ms``."""
        seconds = stop_timeout_ms / 1000
        return cls(term_after=seconds * 0.4, kill_after=seconds)


KILL_NOW = Ladder(term_after=0.0, kill_after=0.0)


class Receiver(Protocol):
    """What a transport tells its client. All callbacks run on the event loop, never inside ``open``/``send``."""

    @property
    def in_flight(self) -> int:
        """How many requests have no answer yet: more lines than that are not all answers."""

    @property
    def others_wait(self) -> bool:
        """Whether others may wait for the end of a turn in which a large answer is read."""

    def data_received(self, data: bytes) -> None:
        """A non-empty chunk of the server's stdout."""

    def writable(self) -> None:
        """After ``send`` took less than it was given: more may be sent now."""

    def closed(self, reason: Fault) -> None:
        """The channel ended; exactly once, after the last chunk. Custody of the process is not over with it."""


class Transport(Protocol):
    """One server's byte channel and the custody of what stands behind it."""

    @property
    def pid(self) -> int | None:
        """The process id of the server while it is owned and not yet reaped, else None."""

    async def open(self, receiver: Receiver) -> None:
        """Bring the server into being. Raises :class:`treadle.errors.TransportFailed`; called at most once."""

    def send(self, data: bytes | memoryview) -> int:
        """Write as much of ``data`` as goes without blocking; returns how many bytes were taken (0 and up).

        Never raises: a failed write is reported by ``closed``. When less than all was taken, ``writable`` is
        called once when it is worth trying again.
        """

    async def retire(self, ladder: Ladder) -> Evidence:
        """Stop the server by the ladder and wait for evidence, however long the kernel takes.

        Idempotent and re-entrant: concurrent calls share one ladder, a later call can only hurry it. Cancelling
        a caller never cancels the custody. Returns at once when the server is already retired.
        """

    def stderr_tail(self, max_bytes: int = 65536) -> str:
        """The newest captured stderr text, sanitised and redacted."""

    @property
    def stderr_bytes(self) -> int:
        """How many bytes of stderr came so far."""

    def usage(self) -> Usage | None:
        """What the server and its descendants use now; None when no process runs. Not per call: it may be slow."""
