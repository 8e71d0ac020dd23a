"""The frame around values that are too many to build, or to look for the one that is wrong among them."""

from __future__ import annotations

from msgpack import Unpacker, UnpackException, unpackb

from treadle_client.frames import VERSION, Frame, FrameFault, is_plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SMALL = 4096
"""Bytes of a value up to which it is built."""

_ENTRIES = 64
"""Entries of a map up to which it is looked at."""

# The maps whose entries are read one by one: whatever is large lies in one of them.
_INNER: dict[str, dict[str, Any]] = {"call": {"body": {}}, "cap_call": {"body": {"args": {}}}}


def outline(payload: bytes, what: str) -> Frame | FrameFault:
    """A ``call`` or ``cap_call`` with what is small of its body, and ``invalid`` set to ``("$", what)``; of every
    other frame, and of what is none, the fault ``what``.

    Passes over the payload once, and builds next to nothing of it.
    """
    try:
        envelope = _read(payload)
    except (ValueError, UnpackException):
        return FrameFault("bad_frame", what)
    version, id_, kind, body = (envelope.get(key) for key in ("v", "id", "kind", "body"))
    if type(id_) is not int or id_ < 0:
        return FrameFault("bad_frame", what)
    if type(version) is not int or version != VERSION:
        said = f"the frame has version {version}" if type(version) is int else "the frame has no good version"
        return FrameFault("unsupported_version", f"{said}; this end speaks version {VERSION}", id_)
    if len(envelope) != 4 or kind not in _INNER or type(body) is not dict:
        return FrameFault("bad_frame", what, id_)
    token_is_bytes = kind == "cap_call" and type(body.get("token")) is bytes
    if not is_plain({**body, "token": ""} if token_is_bytes else body):
        return FrameFault("bad_frame", what, id_)
    return Frame(id_, kind, body, ("$", what))


def _read(payload: bytes) -> dict[str, Any]:
    """The envelope. Raises :class:`ValueError`, or an error of msgpack, where there is none."""
    unpacker = Unpacker(max_buffer_size=len(payload))
    unpacker.feed(payload)
    spans = _spans(unpacker, payload)
    if unpacker.tell() != len(payload):
        raise ValueError("bytes follow the map")
    values = {key: _value(payload, span) for key, span in spans.items()}
    if "body" in spans:
        values["body"] = _inner(payload, spans["body"], _INNER.get(str(values.get("kind")), {}).get("body"))
    return values


def _inner(payload: bytes, span: tuple[int, int], inner: dict[str, Any] | None) -> Any:
    """The value of ``span``; a map's entries one by one where ``inner`` says which of them are such maps."""
    if inner is None or not _is_map(payload[span[0]]):
        return _value(payload, span)
    unpacker = Unpacker(max_buffer_size=len(payload))
    part = payload[span[0] : span[1]]
    unpacker.feed(part)
    return {key: _inner(part, where, inner.get(key)) for key, where in _spans(unpacker, part).items()}


def _spans(unpacker: Any, payload: bytes) -> dict[str, tuple[int, int]]:
    """Where the values of the map lie that ``unpacker`` is at."""
    found = {}
    count = unpacker.read_map_header()
    if count > _ENTRIES:
        raise ValueError("too many entries")
    for _ in range(count):
        start = unpacker.tell()
        unpacker.skip()
        middle = unpacker.tell()
        unpacker.skip()
        key = _value(payload, (start, middle))
        if type(key) is not str:
            raise ValueError("a key that is no string")
        found[key] = (middle, unpacker.tell())
    return found


def _value(payload: bytes, span: tuple[int, int]) -> Any:
    """The value of ``span``, or an empty map in its place when it is large."""
    start, end = span
    return unpackb(payload[start:end]) if end - start <= _SMALL else {}


def _is_map(lead: int) -> bool:
    return 0x80 <= lead <= 0x8F or lead in (0xDE, 0xDF)
