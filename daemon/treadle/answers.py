"""From outcomes to the frames of the socket protocol, and from frame bodies to typed requests (floor 5, pure)."""

from __future__ import annotations

from typing import Any, Final

from treadle.errors import (
    CallFault,
    Fault,
    InvalidArgument,
    NotCarriable,
    ResultMalformed,
    ServerError,
    explain,
    failure_code,
)
from treadle.wire.interchange import RESULT_LIMIT, check_value, json_to_value
from treadle.wire.messages import CallResult, Content
from treadle_client import frames

MOST_TIMEOUT_MS: Final = 2**53


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
    """The ``result`` frame of a request that succeeded; becomes a failure where ``value`` cannot be carried."""
    return _framed("result", frame_id, value)


def failure_frame(frame_id: int, fault: Fault) -> bytes:
    """The ``result`` frame of a request that failed."""
    return _fault_frame("result", frame_id, failure(fault))


def cap_result_frame(frame_id: int, outcome: CallResult | Fault, code: str | None = None) -> bytes:
    """The ``cap_result`` frame: exactly ``ok`` and ``value``, or ``ok`` and ``error`` (``code``, ``msg``)."""
    if isinstance(outcome, CallResult):
        return _framed("cap_result", frame_id, outcome.to_value())
    error = failure(outcome)
    return _fault_frame("cap_result", frame_id, {"code": code or error["code"], "msg": error["msg"]})


def _framed(kind: str, frame_id: int, value: Any) -> bytes:
    try:
        frame = frames.encode(frame_id, kind, {"ok": True, "value": value})
    except frames.FrameTooLarge as error:
        size = error.size
    except (ValueError, TypeError, OverflowError) as error:
        return _refused(kind, frame_id, _why_not(value, error))
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
    bare = {"code": error["code"], "msg": f"{error['msg'][:1000]} (its data cannot be carried: {what})"}
    if "outcome" in error:
        bare["outcome"] = error["outcome"]
    return frames.encode(frame_id, kind, {"ok": False, "error": bare})


def error_frame(frame_id: int, code: str, msg: str) -> bytes:
    """An ``error`` frame: the protocol itself was broken, or the peer is not welcome."""
    return frames.encode(frame_id, "error", {"code": code, "msg": msg})


# --- requests -------------------------------------------------------------------------------------


def text(body: dict[str, Any], key: str) -> str:
    """A required string of a request's body. Raises :class:`InvalidArgument`."""
    value = body.get(key)
    if type(value) is not str:
        raise InvalidArgument(f"body.{key}", _expected("a string", key in body, value))
    return value


def optional_text(body: dict[str, Any], key: str) -> str | None:
    """An optional string: absent or nil is None."""
    return None if body.get(key) is None else text(body, key)


def mapping(body: dict[str, Any], key: str) -> dict[str, Any]:
    """A required map."""
    value = body.get(key)
    if type(value) is not dict:
        raise InvalidArgument(f"body.{key}", _expected("a map", key in body, value))
    return value


def flag(body: dict[str, Any], key: str, default: bool) -> bool:
    """An optional boolean."""
    value = body.get(key, default)
    if type(value) is not bool:
        raise InvalidArgument(f"body.{key}", _expected("a boolean", True, value))
    return value


def whole(body: dict[str, Any], key: str, *, least: int = 1, most: int = MOST_TIMEOUT_MS) -> int | None:
    """An optional integer within bounds: absent or nil is None."""
    value = body.get(key)
    if value is None:
        return None
    if type(value) is not int or not least <= value <= most:
        raise InvalidArgument(f"body.{key}", _expected(f"an integer from {least} to {most}", True, value))
    return value


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


__all__ = [
    "cap_result_frame",
    "content_of",
    "error_frame",
    "failure",
    "failure_frame",
    "flag",
    "mapping",
    "optional_text",
    "result_frame",
    "text",
    "whole",
]
