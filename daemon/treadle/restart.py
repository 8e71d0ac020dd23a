"""When a server that ended is started again: pure policy, time as an argument (client page, section 6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from msgspec import Struct

from treadle.config import ServerConfig

JITTER: Final = 0.25
"""A delay is spread over plus and minus this share of itself."""


class Again(Struct, frozen=True):
    """Start a replacement after ``delay`` seconds."""

    delay: float


class Rest(Struct, frozen=True):
    """Leave the server retired: its policy asks for no replacement."""


class Park(Struct, frozen=True):
    """The start limit is reached: no replacement until an explicit start, for ``reason``."""

    reason: str


Verdict = Again | Rest | Park


def spread() -> float:
    """A random number from 0 to 1."""
    # Imported at the first restart: it is not cheap, and a daemon may never need it.
    import random

    return random.random()  # noqa: S311 (nothing is secret about it)


class RestartPolicy:
    """The restart policy of one server: exponential backoff, a start limit, reset by sustained uptime only."""

    def __init__(self, config: ServerConfig, jitter: Callable[[], float]) -> None:
        """``jitter`` returns numbers from 0 to 1, evenly spread."""
        self.policy: Literal["never", "on-failure", "always"] = config.restart
        self._base = config.restart_backoff_ms / 1000
        self._most = config.restart_backoff_max_ms / 1000
        self._reset_after = config.restart_reset_s
        self._limit = config.restart_limit
        self._jitter = jitter
        self._in_a_row = 0
        self.restarts = 0
        """Restarts decided since the beginning, for ``status``."""

    def ended(self, *, clean: bool, uptime: float | None, reason: str) -> Verdict:
        """What follows the end of an incarnation.

        ``clean``: it exited by itself with status 0 after it had been ready. ``uptime``: seconds that it was
        ready, None when it never was. ``reason`` is why it ended.
        """
        if self.policy == "never" or (self.policy == "on-failure" and clean):
            return Rest()
        if uptime is not None and uptime >= self._reset_after:
            self._in_a_row = 0
        if self._in_a_row >= self._limit:
            return Park(
                f"parked after {self._in_a_row} restarts without {self._reset_after} s of uptime in between "
                f"(restart_limit); last: {reason}"
            )
        delay = min(self._most, self._base * 2**self._in_a_row)
        self._in_a_row += 1
        self.restarts += 1
        return Again(min(self._most, delay * (1 - JITTER + 2 * JITTER * self._jitter())))

    def forgive(self) -> None:
        """An operator asked for a start: the row of restarts begins anew."""
        self._in_a_row = 0
