"""The states of one supervised server and what leads from one to the next, as data (floor 4)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class State(enum.StrEnum):
    """What ``status`` shows (socket page, ``state``)."""

    DISABLED = "disabled"
    REFUSED = "refused"
    PREPARED = "prepared"
    STARTING = "starting"
    READY = "ready"
    CLOSING = "closing"
    RETIRED = "retired"
    BACKOFF = "backoff"
    PARKED = "parked"
    UNCONFIRMED = "unconfirmed"


class Input(enum.StrEnum):
    """What can happen to a server."""

    START = "start"
    STARTED = "started"
    FAILED = "failed"
    DIED = "died"
    STOP = "stop"
    PROVEN = "proven"
    UNPROVEN = "unproven"
    RETRY = "retry"
    PARK = "park"


TRANSITIONS: Final[Mapping[tuple[State, Input], State]] = {
    (State.PREPARED, Input.START): State.STARTING,
    (State.PREPARED, Input.STOP): State.RETIRED,
    (State.STARTING, Input.STARTED): State.READY,
    (State.STARTING, Input.FAILED): State.CLOSING,
    (State.STARTING, Input.STOP): State.CLOSING,
    (State.READY, Input.DIED): State.CLOSING,
    (State.READY, Input.STOP): State.CLOSING,
    (State.CLOSING, Input.STOP): State.CLOSING,
    (State.CLOSING, Input.PROVEN): State.RETIRED,
    (State.CLOSING, Input.UNPROVEN): State.UNCONFIRMED,
    (State.UNCONFIRMED, Input.STOP): State.UNCONFIRMED,
    (State.UNCONFIRMED, Input.PROVEN): State.RETIRED,
    (State.RETIRED, Input.START): State.STARTING,
    (State.RETIRED, Input.STOP): State.RETIRED,
    (State.RETIRED, Input.RETRY): State.BACKOFF,
    (State.RETIRED, Input.PARK): State.PARKED,
    (State.BACKOFF, Input.START): State.STARTING,
    (State.BACKOFF, Input.STOP): State.RETIRED,
    (State.PARKED, Input.START): State.STARTING,
    (State.PARKED, Input.STOP): State.RETIRED,
}
"""A pair that is not in the table cannot happen. STARTING is entered from PREPARED and from states that are only
reached through PROVEN: a replacement starts on evidence alone. DISABLED and REFUSED have no way out but a
reload."""


def follow(state: State, happening: Input) -> State:
    """The state after ``happening``. Raises ``AssertionError`` for a pair outside the table."""
    try:
        return TRANSITIONS[state, happening]
    except KeyError:
        raise AssertionError(f"a server in state {state} cannot meet {happening}") from None
