"""What a session tells its shell (floor 1, pure). Each event is a small frozen value with its facts."""

from __future__ import annotations

from typing import Any

import msgspec

from treadle.errors import Fault
from treadle.wire.messages import CallResult, InitializeResult, Tool


class Initialized(msgspec.Struct, frozen=True):
    """The handshake is done: requests are taken from now on."""

    result: InitializeResult


class Listed(msgspec.Struct, frozen=True):
    """A listing is complete, over all its pages."""

    token: Any
    tools: tuple[Tool, ...]


class Answered(msgspec.Struct, frozen=True, gc=False):
    """A call has its result."""

    token: Any
    result: CallResult


class Ponged(msgspec.Struct, frozen=True):
    """A ping was answered."""

    token: Any


class Failed(msgspec.Struct, frozen=True):
    """A call, listing or ping ended without a result: a :class:`~treadle.errors.CallFault`, or for a listing
    also what was wrong with it (FieldFault, DuplicateTool, CursorRepeated, TooManyPages)."""

    token: Any
    fault: Fault


class Warned(msgspec.Struct, frozen=True):
    """Something that a person should know of and that harms nothing; sanitised, redacted."""

    text: str


class Died(msgspec.Struct, frozen=True):
    """The conversation is over, for this reason. The last event of a session; every request has settled."""

    fault: Fault


Event = Initialized | Listed | Answered | Ponged | Failed | Warned | Died
