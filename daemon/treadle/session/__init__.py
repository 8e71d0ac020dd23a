"""One conversation with one MCP server as a state machine (floor 1, pure; client page, sections 1 to 4).

Bytes in, events out; requests in, bytes out. The session does no I/O and has no clock: the shell around it feeds
what the server wrote, sends what :meth:`Session.take_output` gives, and says what time it is. Every request that
was taken settles exactly once: answered, failed, or forgotten by :meth:`Session.cancel`.
"""

from treadle.session._events import Answered, Died, Event, Failed, Initialized, Listed, Ponged, Warned
from treadle.session._outbox import MAX_UNSENT_REPLIES, MAX_UNSENT_REPLY_BYTES, NO_REQUEST
from treadle.session._session import TABLE, TRANSITIONS, Rule, Rules, Session, State

__all__ = [
    "MAX_UNSENT_REPLIES",
    "MAX_UNSENT_REPLY_BYTES",
    "NO_REQUEST",
    "TABLE",
    "TRANSITIONS",
    "Answered",
    "Died",
    "Event",
    "Failed",
    "Initialized",
    "Listed",
    "Ponged",
    "Rule",
    "Rules",
    "Session",
    "State",
    "Warned",
]
