"""The frames of the broker's socket, for both ends: bytes in, frames out, and back (socket page, "Frames").

A frame is a big-endian u32 length and a msgpack map ``{"v": 1, "id": u64, "kind": str, "body": map}`` with
exactly these keys. The codec is pure: it does no I/O and keeps no state beyond an incomplete frame, so that
the daemon and every client share it.

    >>> reader = FrameReader()
    >>> reader.feed(encode(7, "heartbeat", {}))
    [Frame(id=7, kind='heartbeat', body={})]
"""

from __future__ import annotations

from struct import Struct

from msgpack import Packer, unpackb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Literal

MAX_FRAME = 16 * 1024 * 1024
"""The largest payload in bytes, without its length prefix, in both directions."""

MAX_DEPTH = 256
"""The deepest nesting of a payload; the outermost map is level 1."""

VERSION = 1
"""The version of the envelope: the value of its key ``v``."""

SURE = 65536
"""Bytes of a payload up to which it cannot hold too many values, whatever they are."""

_PREFIX = Struct(">I")
_SCALARS = frozenset({str, int, float, bool, type(None)})
# Every byte but those that introduce a byte string or an extension, and every byte but those and the ones that
# introduce an array or a map: a payload without the former holds none, one with few of the latter nests no deeper
# than that, and one table look-up a byte is cheaper than a walk. (Text may hold them too; then the walk decides.)
_NOT_FOREIGN = bytes(b for b in range(256) if not (0xC4 <= b <= 0xC9 or 0xD4 <= b <= 0xD8))
_PLAIN = bytes(b for b in _NOT_FOREIGN if not (0x80 <= b <= 0x9F or 0xDC <= b <= 0xDF))
_SMALL = 4096  # bytes of a part of an incomplete frame up to which the next one is put to it
# A packer keeps the buffer of the largest thing that it ever packed; past this size it is replaced.
_KEEP = 1024 * 1024


class Frame:
    """One frame.

    ``id`` is the client's number for the request (0 to 2^64-1), ``kind`` names it, ``body`` is a dict of
    str, int, float, bool, None, list and dict alone (and the byte string ``token`` of a ``cap_call``).
    ``invalid`` is None, or ``(path, found)`` when the arguments of a ``call`` or ``cap_call`` hold what cannot
    be carried: the frame is well formed all the same, ``body`` holds ``{}`` in the place of those arguments,
    and the request is to be answered ``invalid_argument``. The path starts with ``$`` at the arguments map.
    """

    __slots__ = ("body", "id", "invalid", "kind")

    def __init__(self, id: int, kind: str, body: dict[str, Any], invalid: tuple[str, str] | None = None) -> None:  # noqa: A002 (the envelope's own key)
        self.id = id
        self.kind = kind
        self.body = body
        self.invalid = invalid

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Frame):
            return NotImplemented
        return (self.id, self.kind, self.body, self.invalid) == (other.id, other.kind, other.body, other.invalid)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        tail = f", invalid={self.invalid!r}" if self.invalid else ""
        return f"Frame(id={self.id}, kind={self.kind!r}, body={self.body!r}{tail})"


class FrameFault:
    """Why a peer's bytes are no frames: the ``error`` frame to send before the connection is closed.

    ``code`` is ``"bad_frame"`` or ``"unsupported_version"``, ``msg`` a sentence, ``id`` the id of the offending
    frame if it could be read, else 0.
    """

    __slots__ = ("code", "id", "msg")

    def __init__(self, code: Literal["bad_frame", "unsupported_version"], msg: str, id: int = 0) -> None:  # noqa: A002
        self.code = code
        self.msg = msg
        self.id = id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FrameFault):
            return NotImplemented
        return (self.code, self.msg, self.id) == (other.code, other.msg, other.id)

    def __hash__(self) -> int:
        return hash((self.code, self.msg, self.id))

    def __repr__(self) -> str:
        return f"FrameFault({self.code!r}, {self.msg!r}, {self.id})"


class FrameTooLarge(ValueError):
    """A payload of ``size`` bytes passes ``limit``."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the frame is {size} bytes, the limit is {limit}")
        self.size = size
        self.limit = limit


class TooManyValues(Exception):
    """A payload holds more values than its receiver builds; ``what`` names the bound."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class FrameUnencodable(ValueError):
    """``found`` at ``path`` (``$`` is the body) has no place in a frame."""

    def __init__(self, path: str, found: str) -> None:
        super().__init__(f"{path}: {found}")
        self.path = path
        self.found = found


def _shared_packer() -> Any:
    # Strict: the shared packer must never run foreign Python code (an items() of a dict subclass) halfway
    # through, where another thread could pack into the same buffer.
    return Packer(strict_types=True).pack


_pack = _shared_packer()


def encode(id: int, kind: str, body: Mapping[str, Any], *, plain: bool = False) -> bytes:  # noqa: A002
    """The bytes of one frame, its length prefix included.

    Tuples are written as arrays; subclasses of the built-in types as those. Byte strings, extension types and
    keys that are no strings are written as they are: whether they are allowed depends on where they stand, and
    the receiver says so. With ``plain`` the caller vouches for what :func:`is_plain` would look for, which is
    what a large body costs most. Thread-safe.

    Raises :class:`FrameTooLarge` past :data:`MAX_FRAME` bytes, and :class:`FrameUnencodable` for what msgpack
    cannot hold (an integer outside 64 bits, a negative id, a lone surrogate, another type) or nesting past
    :data:`MAX_DEPTH`.

        >>> encode(1, "heartbeat", {}).hex(" ", 4)
        '00 00001d84 a17601a2 696401a4 6b696e64 a9686561 72746265 6174a462 6f647980'
    """
    global _pack
    envelope = {"v": VERSION, "id": id, "kind": kind, "body": body}
    if id < 0:
        _inspect(envelope)
    try:
        payload: bytes = _pack(envelope)
    except (TypeError, ValueError, OverflowError):
        payload = _pack_loosely(envelope)
    size = len(payload)
    # 256 bytes cannot nest deeper than 256 levels.
    if size > MAX_DEPTH:
        if size > _KEEP:
            _pack = _shared_packer()
        if size > MAX_FRAME:
            raise FrameTooLarge(size, MAX_FRAME)
        if not plain and not is_plain(body):
            _inspect(envelope)
    return _PREFIX.pack(size) + payload


def _pack_loosely(envelope: dict[str, Any]) -> bytes:
    try:
        payload: bytes = Packer().pack(envelope)
    except Exception as error:  # a subclass of a built-in type may raise anything
        _inspect(envelope)
        raise FrameUnencodable("$", str(error) or type(error).__name__) from None
    return payload


def _inspect(envelope: dict[str, Any]) -> None:
    from treadle_client._examine import find_unencodable

    found = find_unencodable(envelope)
    if found:
        raise FrameUnencodable(*found)


def is_plain(body: Any) -> bool:
    """Whether ``body`` holds only what a frame may hold and keeps within :data:`MAX_DEPTH` levels.

    That is None, bool, int, float, str, list, tuple and dict with string keys, of exactly these types; the body
    itself is level 2. Goes level by level, so that nothing recurses.
    """
    level = [body]
    for _ in range(MAX_DEPTH - 1):
        deeper: list[Any] = []
        for container in level:
            values: Iterable[Any] = container
            if type(container) is dict:
                for key in container:
                    if type(key) is not str:
                        return False
                values = container.values()
            if len(container) > 32 and set(map(type, values)) <= _SCALARS:
                continue
            for value in values:
                kind = type(value)
                if kind is str or kind is int:
                    continue
                if kind is dict or kind is list or kind is tuple:
                    deeper.append(value)
                elif kind not in _SCALARS:
                    return False
        if not deeper:
            return True
        level = deeper
    return False


def _decode(
    payload: bytes | bytearray | memoryview, unpack: Callable[[bytes | bytearray | memoryview], Any]
) -> Frame | FrameFault:
    try:
        envelope = unpack(payload)
        version, id_, kind, body = envelope["v"], envelope["id"], envelope["kind"], envelope["body"]
    except (ValueError, KeyError, TypeError):
        return _examine(payload)
    except TooManyValues as error:
        from treadle_client._outline import outline

        return outline(bytes(payload), error.what)
    if (
        len(envelope) == 4
        and type(version) is int
        and version == VERSION
        and type(id_) is int
        and id_ >= 0
        and type(kind) is str
        and type(body) is dict
    ):
        if len(payload) <= SURE:
            rest = bytes(payload).translate(None, _PLAIN)
            if len(rest) <= MAX_DEPTH and not rest.translate(None, _NOT_FOREIGN):
                return Frame(id_, kind, body)
        token_is_bytes = kind == "cap_call" and type(body.get("token")) is bytes
        if is_plain({**body, "token": ""} if token_is_bytes else body):
            return Frame(id_, kind, body)
    return _examine(payload)


def _examine(payload: bytes | bytearray | memoryview) -> Frame | FrameFault:
    # Imported when the first bad frame comes: a client hardly ever needs it.
    from treadle_client._examine import examine

    return examine(bytes(payload))


class FrameReader:
    """Cuts a byte stream into frames, one reader a connection.

    ``limit`` is the largest payload in bytes. ``unpack`` decodes the msgpack of a payload past :data:`SURE` bytes,
    and may raise :class:`TooManyValues`: then a ``call`` or ``cap_call`` comes with its ``invalid`` set, and every
    other frame is a fault. ``quick`` is asked first about a payload up to :data:`SURE` bytes: what it returns
    takes the frame's place among the results, and None, or any exception, leaves the payload to this codec; it
    must not take what this codec would not. The cost is linear in the bytes fed, whatever their chunking. Frames
    that precede a bad one are delivered; then :attr:`fault` is set for good and nothing after the bad frame is
    looked at.

        >>> reader = FrameReader()
        >>> data = encode(1, "status", {})
        >>> reader.feed(data[:9])
        []
        >>> reader.feed(data[9:] + bytes([255] * 4))
        [Frame(id=1, kind='status', body={})]
        >>> reader.fault.code, reader.fault.id
        ('bad_frame', 0)
    """

    __slots__ = ("_need", "_parts", "_quick", "_unpack", "fault", "limit", "pending")

    def __init__(
        self,
        limit: int = MAX_FRAME,
        unpack: Callable[[bytes | bytearray | memoryview], Any] = unpackb,
        quick: Callable[[bytes | bytearray | memoryview], Any] | None = None,
    ) -> None:
        self.limit = limit
        self._unpack = unpack
        self._quick = quick
        self.fault: FrameFault | None = None
        self.pending = 0
        """How many bytes of an incomplete frame are held. 0 at the end of a stream means a clean end."""
        # An incomplete frame from its length prefix on; in parts, since one block that grows takes up to half as
        # much again from the allocator.
        self._parts: list[bytes] = []
        self._need = 4  # how many bytes of it decide what comes next

    @property
    def missing(self) -> int:
        """How many bytes must come at the least before :meth:`feed` can return a frame; a hint for the size of
        the next read. Until the length prefix is known it is what the prefix still lacks."""
        return self._need - self.pending

    def feed(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        """The frames that ``data`` completes, in order. Never raises; see :attr:`fault`."""
        if self.fault is not None:
            return []
        buffer: bytes | bytearray | memoryview = data
        if self._parts:
            self._hold(data)
            if self.pending < self._need:
                return []
            buffer = memoryview(b"".join(self._parts))
            self._parts = []
        frames: list[Frame] = []
        quick = self._quick
        position = 0
        size = len(buffer)
        need = 4
        while size - position >= 4:
            (length,) = _PREFIX.unpack_from(buffer, position)
            if length > self.limit:
                self._fail(
                    FrameFault("bad_frame", f"a length prefix of {length}, the limit is {self.limit} bytes")
                )
                return frames
            end = position + 4 + length
            if end > size:
                need = 4 + length
                break
            payload = buffer[position + 4 : end]
            position = end
            frame = None
            if quick is not None and length <= SURE:
                try:
                    frame = quick(payload)
                except Exception:  # what it is, this codec says
                    frame = None
            if frame is None:
                frame = _decode(payload, unpackb if length <= SURE else self._unpack)
                if isinstance(frame, FrameFault):
                    self._fail(frame)
                    return frames
            frames.append(frame)
        self._need = need
        self.pending = 0
        if position < size:
            # What is left is shorter than ``data``: the copy costs no more than the push.
            self._hold(buffer[position:])
        return frames

    def _hold(self, data: bytes | bytearray | memoryview) -> None:
        """Keep a part of an incomplete frame; small parts are put together, so that they cost what they hold."""
        parts = self._parts
        if parts and len(parts[-1]) < _SMALL:
            parts[-1] += data
        else:
            parts.append(bytes(data))
        self.pending += len(data)

    def _fail(self, fault: FrameFault) -> None:
        self.fault = fault
        self._parts = []
        self.pending = 0
        self._need = 4
