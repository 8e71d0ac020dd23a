"""From outcomes to the frames of the socket protocol, and from frame bodies to typed requests (floor 5, pure)."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from treadle.errors import (
    CallFault,
    Fault,
    InvalidArgument,
    NotCarriable,
    ResultMalformed,
    ServerError,
    UnknownServer,
    explain,
    failure_code,
)
from treadle.wire.interchange import RESULT_LIMIT, check_value, json_to_value
from treadle.wire.messages import CallResult, Content
from treadle.wire.quick import CallFrame
from treadle_client import frames

_Choice = TypeVar("_Choice", bound=str)

LEAST_INTEGER: Final = -(2**63)
MOST_INTEGER: Final = 2**64 - 1
"""What a frame can hold."""


_encode = msgspec.msgpack.Encoder().encode

_BEFORE_ID: Final = b"\x84\xa1v\x01\xa2id"
_BEFORE_VALUE: Final = b"\xa4kind\xa6result\xa4body\x82\xa2ok\xc3\xa5value"
_AROUND: Final = len(_BEFORE_ID) + len(_BEFORE_VALUE)
"""What the frame codec writes around the id and the value of a result that is good."""

_ID_AT: Final = 4 + len(_BEFORE_ID) + 1
"""Where the eight bytes of an id lie in a frame whose id needs them all."""


def failure(fault: Fault) -> dict[str, Any]:
    """The shape ``error`` of the socket page."""
    body: dict[str, Any] = {"code": failure_code(fault), "msg": explain(fault)}
    if isinstance(fault, CallFault):
        body["outcome"] = fault.outcome
    if isinstance(fault, ServerError) and fault.data is not None:
        try:
            body["data"] = json_to_value(fault.data)
        except NotCarriable as reason:
            body["msg"] += f" (its data cannot be carried: {explain(reason)})"
    return body


def result_frame(frame_id: int, value: Any) -> bytes:
    """The ``result`` frame of a request that succeeded; a failure where ``value``, plain JSON, is too large."""
    return _framed("result", frame_id, value)


def call_result_frame(frame_id: int, result: CallResult) -> tuple[int, tuple[bytes, ...]]:
    """The ``result`` frame of a ``call`` that was answered: its size, and its parts, so that a large one need not
    be copied. It is what :func:`result_frame` makes of the result's value."""
    try:
        number, value = _encode(frame_id), _encode(result)
    except Exception:  # the general way knows why not
        number = value = b""
    size = len(number) + len(value) + _AROUND
    if not value or size + 4 > RESULT_LIMIT:
        frame = result_frame(frame_id, result.to_value())
        return len(frame), (frame,)
    return size + 4, (size.to_bytes(4, "big"), _BEFORE_ID, number, _BEFORE_VALUE, value)


def failure_frame(frame_id: int, fault: Fault) -> bytes:
    """The ``result`` frame of a request that failed."""
    return _fault_frame("result", frame_id, failure(fault))


class AnyAnswer:
    """A ``result`` frame for requests of any id. It is as long for every id, so that each sees the same limits."""

    __slots__ = ("_frame",)

    def __init__(self, outcome: Any) -> None:
        """``outcome`` is a value, or the fault that stands for it."""
        make = failure_frame if isinstance(outcome, Fault) else result_frame
        self._frame = make(MOST_INTEGER, outcome)

    def frame(self, frame_id: int) -> bytes:
        """The frame that answers ``frame_id``."""
        return self._frame[:_ID_AT] + frame_id.to_bytes(8, "big") + self._frame[_ID_AT + 8 :]


def cap_result_frame(frame_id: int, outcome: CallResult | Fault) -> bytes:
    """The ``cap_result`` frame: exactly ``ok`` and ``value``, or ``ok`` and ``error`` (``code``, ``msg``)."""
    if isinstance(outcome, CallResult):
        return _framed("cap_result", frame_id, outcome.to_value())
    code = "unsupported_cap" if isinstance(outcome, UnknownServer) else failure_code(outcome)
    return _fault_frame("cap_result", frame_id, {"code": code, "msg": explain(outcome)})


def _framed(kind: str, frame_id: int, value: Any) -> bytes:
    try:
        frame = frames.encode(frame_id, kind, {"ok": True, "value": value}, plain=True)
    except frames.FrameTooLarge as error:
        size = error.size
    except (ValueError, TypeError, OverflowError) as error:
        return _refused(kind, frame_id, _why_not(value, error))
    except MemoryError:
        return _refused(kind, frame_id, "the answer could not be encoded: memory ran out")
    else:
        if len(frame) <= RESULT_LIMIT:
            return frame
        size = len(frame)
    return _refused(kind, frame_id, f"the answer has {size} bytes, the limit is {RESULT_LIMIT}")


def _why_not(value: Any, error: Exception) -> str:
    try:
        check_value(value)
    except NotCarriable as fault:
        return f"the answer cannot be carried: {explain(fault)}"
    except MemoryError:
        return "the answer cannot be carried: memory ran out"
    return f"the answer cannot be carried: {error}"


def _refused(kind: str, frame_id: int, reason: str) -> bytes:
    error = failure(ResultMalformed(reason))
    if kind == "cap_result":
        del error["outcome"]
    return _fault_frame(kind, frame_id, error)


def _fault_frame(kind: str, frame_id: int, error: dict[str, Any]) -> bytes:
    try:
        frame = frames.encode(frame_id, kind, {"ok": False, "error": error})
        if len(frame) <= RESULT_LIMIT:
            return frame
        what = f"{len(frame)} bytes"
    except (ValueError, TypeError, OverflowError) as reason:
        what = str(reason)
    except MemoryError:
        what = "memory ran out"
    bare = {"code": error["code"], "msg": f"{error['msg'][:1000]} (its data cannot be carried: {what})"}
    if "outcome" in error:
        bare["outcome"] = error["outcome"]
    return frames.encode(frame_id, kind, {"ok": False, "error": bare})


def error_frame(frame_id: int, code: str, msg: str) -> bytes:
    """An ``error`` frame: the protocol itself was broken, or the peer is not welcome."""
    return frames.encode(frame_id, "error", {"code": code, "msg": msg})


def echo_frame(frame: frames.Frame) -> bytes:
    """The answer to a ``heartbeat``: itself, or an ``error`` frame where that would be too large to send."""
    try:
        return frames.encode(frame.id, frame.kind, frame.body)
    except ValueError as error:
        return error_frame(frame.id, "bad_frame", f"the {frame.kind} cannot be echoed: {error}")


# --- requests -------------------------------------------------------------------------------------


def hello_problem(frame: frames.Frame | CallFrame, proto: int) -> str | None:
    """What is wrong with the first frame of a connection; None for a good ``hello``."""
    if isinstance(frame, CallFrame) or frame.kind != "hello":
        return f"the first frame must be hello, found {frame.kind[:40]!r}"
    body = frame.body
    if type(body.get("proto")) is not int or body["proto"] != proto:
        return f"hello.proto must be {proto}"
    if type(body.get("peer")) is not str:
        return "hello.peer must be a string"
    features = body.get("features")
    if type(features) is not list or not all(type(feature) is str for feature in features):
        return "hello.features must be an array of strings"
    return None


def text(body: dict[str, Any], key: str, where: str = "body") -> str:
    """A required string of a request's body. Raises :class:`InvalidArgument`; ``where`` names the map in it."""
    value = body.get(key)
    if type(value) is not str:
        raise InvalidArgument(f"{where}.{key}", _expected("a string", key in body, value))
    return value


def optional_text(body: dict[str, Any], key: str) -> str | None:
    """An optional string: absent or nil is None."""
    return None if body.get(key) is None else text(body, key)


def mapping(body: dict[str, Any], key: str, where: str = "body") -> dict[str, Any]:
    """A required map."""
    value = body.get(key)
    if type(value) is not dict:
        raise InvalidArgument(f"{where}.{key}", _expected("a map", key in body, value))
    return value


def flag(body: dict[str, Any], key: str, default: bool) -> bool:
    """An optional boolean."""
    value = body.get(key, default)
    if type(value) is not bool:
        raise InvalidArgument(f"body.{key}", _expected("a boolean", True, value))
    return value


def whole(body: dict[str, Any], key: str, *, least: int = 1, most: int = MOST_INTEGER) -> int | None:
    """An optional integer within bounds: absent or nil is None."""
    value = body.get(key)
    if value is None:
        return None
    if type(value) is not int or not least <= value <= most:
        raise InvalidArgument(f"body.{key}", _expected(f"an integer from {least} to {most}", True, value))
    return value


def choice(body: dict[str, Any], key: str, choices: tuple[_Choice, ...]) -> _Choice:
    """A required string that is one of ``choices``."""
    value = text(body, key)
    for one in choices:
        if value == one:
            return one
    raise InvalidArgument(f"body.{key}", f"must be one of {', '.join(choices)}, found {value[:40]!r}")


def content_of(body: dict[str, Any]) -> Content | None:
    """The optional key ``content``: ``"text"`` or ``"all"``."""
    content = optional_text(body, "content")
    if content is None:
        return None
    if content == "text":
        return "text"
    if content == "all":
        return "all"
    raise InvalidArgument("body.content", f'must be "text" or "all", found {content[:40]!r}')


def _expected(what: str, present: bool, value: Any) -> str:
    if not present:
        return f"must be {what}, and is missing"
    kind = {dict: "map", list: "array", str: "string", type(None): "nil", bool: "boolean"}.get(type(value))
    shown = kind or (f"{value}" if isinstance(value, int | float) else type(value).__name__)
    return f"must be {what}, found {shown}"
