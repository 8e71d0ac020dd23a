"""The two messages that a broker mostly reads, each in one pass (floor 0, pure): the answer to a call, which is
JSON from a server, and the request for one, which is msgpack from a client.

What is a little unusual is left to the general way, which gives the same for everything that is read here. Only
that way knows what is wrong with a message, and says so; and it counts all values of a long line, of which only
those are built here that a text result has.
"""

from __future__ import annotations

import enum
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Raw

from treadle.errors import NotCarriable
from treadle.wire.messages import CallResult, TextResult, reduced
from treadle.wire.nesting import MAX_VALUES, SURELY_SHALLOW, count_up_to, too_deep

# --- from a server: the answer to a call ----------------------------------------------------------------------

_NONE: Final = Raw(b"")
_ANSWER: Final = b'{"jsonrpc":"2.0","id":'  # of a request, too, which then is left to the general way
_METHOD: Final = b'"method"'
_PEEK: Final = 48
MANY_BLOCKS: Final = 10_000
"""A line with more objects than this is left to the general way, which counts what it would build."""


class Usual(enum.Enum):
    """The usual lines that have nothing to say."""

    NOTIFICATION = "notification"


class _Note(msgspec.Struct, gc=False):
    jsonrpc: Literal["2.0"]
    method: str
    id: Raw = _NONE
    result: Raw = _NONE
    error: Raw = _NONE


class _Answer(msgspec.Struct, gc=False):
    jsonrpc: Literal["2.0"]
    id: int
    result: TextResult
    method: Raw = _NONE
    error: Raw = _NONE


_decode_note = msgspec.json.Decoder(_Note).decode
_decode_answer = msgspec.json.Decoder(_Answer).decode


def read(line: bytes) -> tuple[int, CallResult] | Usual | None:
    """The id and the result, with text blocks alone kept whole, of the usual answer to a call; that it is the
    usual notification; None for any other line. ``line`` is valid UTF-8, as
    :class:`~treadle.wire.lines.LineBuffer` gives it.
    """
    size = len(line)
    if size > SURELY_SHALLOW and too_deep(line):
        return None
    long = size > MAX_VALUES
    if not line.startswith(_ANSWER) and _METHOD in line[:_PEEK]:
        return None if long else _notification(line)
    if long and count_up_to(line, b"{", MANY_BLOCKS) > MANY_BLOCKS:
        return None
    try:
        answer = _decode_answer(line)
    except Exception:  # whatever it is, the general way knows what it costs
        return None
    if answer.method or answer.error:
        return None
    result = answer.result
    if result.structuredContent:
        if long:
            return None
    elif len(result.content) == 1 and (block := result.content[0])["type"] == "text" and len(block) == 2:
        return answer.id, CallResult(result.content, result.isError)  # type: ignore[arg-type]  # a plain dict
    try:
        found = reduced(result)
    except NotCarriable:
        return None
    return None if found is None else (answer.id, found)


def _notification(line: bytes) -> Usual | None:
    try:
        note = _decode_note(line)
    except Exception:
        return None
    return None if note.id or note.result or note.error else Usual.NOTIFICATION


# --- from a client: the request for a call --------------------------------------------------------------------

Scalar = str | int | float | bool | None


class CallBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """What a ``call`` asks for: ``arguments`` of the usual shape; ``timeout_ms`` and ``content`` None when the
    server's own are meant."""

    server: str
    tool: str
    arguments: dict[str, Scalar | list[Scalar] | dict[str, Scalar]]
    timeout_ms: Annotated[int, Meta(ge=1)] | None = None
    content: Literal["text", "all"] | None = None


class CallFrame(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The usual frame of kind ``call`` (socket page)."""

    v: Literal[1]
    id: Annotated[int, Meta(ge=0)]
    kind: Literal["call"]
    body: CallBody


call_frame = msgspec.msgpack.Decoder(CallFrame).decode
"""The frame that a payload, one msgpack map, holds if it is the usual request for a call. Raises
``msgspec.DecodeError`` for any other."""
