"""Hostile and odd servers, as data: what they play, what a test does with them, what must come of it.

The catalogue knows no client: a runner performs the acts of an entry (see :mod:`support.catalogue.model`) with
whatever it tests.
"""

from support.catalogue import calls, conversation, framing, life, listings
from support.catalogue.model import Entry

__all__ = ["BY_ID", "ENTRIES", "Entry"]

ENTRIES: tuple[Entry, ...] = (
    *framing.ENTRIES,
    *conversation.ENTRIES,
    *listings.ENTRIES,
    *calls.ENTRIES,
    *life.ENTRIES,
)

BY_ID: dict[str, Entry] = {entry.id: entry for entry in ENTRIES}
