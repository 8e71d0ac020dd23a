"""The two messages that a broker mostly reads, each in one pass (floor 0, pure): the answer to a call, which is
JSON from a server, and the request for one, which is msgpack from a client.

What is a little unusual is left to the general way, which gives the same for everything that is read here. Only
that way knows what is wrong with a message, and says so; and it counts all values of a long line, of which only
those are built here that a text result has.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any, Final, Literal, Required, TypedDict

import msgspec
from msgspec import Meta, Raw

from treadle.errors import NotCarriable
from treadle.wire.interchange import json_to_value
from treadle.wire.messages import CallResult
from treadle.wire.nesting import MAX_VALUES, SURELY_SHALLOW, count_up_to, too_deep

# --- from a server: the answer to a call ----------------------------------------------------------------------

_NONE: Final = Raw(b"")
_METHOD: Final = b'"method"'
_PEEK: Final = 48
MANY_BLOCKS: Final = 10_000
"""A line with more objects than this is left to the general way, which counts what it would build."""


class _Block(TypedDict, total=False):
    type: Required[str]
    text: str


class _Result(msgspec.Struct, gc=False):
    content: list[_Block]
    isError: bool = False  # noqa: N815
    structuredContent: Raw = _NONE  # noqa: N815


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
    result: _Result
    method: Raw = _NONE
    error: Raw = _NONE


_decode_note = msgspec.json.Decoder(_Note).decode
_decode_answer = msgspec.json.Decoder(_Answer).decode


def read(line: bytes) -> tuple[int, CallResult] | Usual | None:
    """The id and the result, with text blocks alone kept whole, of the usual answer to a call; that it is the
    usual notification; None for any other line. ``line`` is valid UTF-8, as
    :class:`~treadle.wire.lines.LineBuffer` gives it."""
    size = len(line)
    if size > SURELY_SHALLOW and too_deep(line):
        return None
    long = size > MAX_VALUES
    if _METHOD in line[:_PEEK]:
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
    blocks: list[dict[str, Any]] = result.content  # type: ignore[assignment]  # plain dicts, as TypedDicts are
    for block in blocks:
        if block["type"] != "text":
            block.pop("text", None)
        elif "text" not in block:
            return None
    if not result.structuredContent:
        return answer.id, CallResult(blocks, result.isError)
    if long:
        return None
    try:
        structured = json_to_value(bytes(result.structuredContent), at=("structuredContent",))
    except NotCarriable:
        return None
    return answer.id, CallResult(blocks, result.isError, structured)


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


_decode_call = msgspec.msgpack.Decoder(CallFrame).decode


def call_frame(payload: bytes | bytearray | memoryview) -> CallFrame | None:
    """The frame that ``payload``, one msgpack map, holds if it is the usual request for a call, else None."""
    try:
        return _decode_call(payload)
    except msgspec.DecodeError:
        return None
