"""The phases of a client, as data (floor 3; client page, section 4)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class Phase(enum.Enum):
    """Where a client stands; see :data:`PHASES`."""

    PREPARED = "prepared"
    SERVING = "serving"
    CLOSING = "closing"
    RETIRED = "retired"


PHASES: Final[Mapping[Phase, frozenset[Phase]]] = {
    Phase.PREPARED: frozenset({Phase.SERVING, Phase.RETIRED}),
    Phase.SERVING: frozenset({Phase.CLOSING}),
    Phase.CLOSING: frozenset({Phase.RETIRED}),
    Phase.RETIRED: frozenset(),
}
"""Which phase may follow which. A client never goes back: a replacement is a new client."""
