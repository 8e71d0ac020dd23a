"""What is wrong with a frame, and where. Slow and exact: only frames that the fast path refuses come here."""

from __future__ import annotations

import re

from msgpack import ExtType, Timestamp, unpackb

from treadle_client.frames import MAX_DEPTH, VERSION, Frame, FrameFault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    _Steps = tuple[str | int, ...]
    # (value, level, its key or index, the entry of its container): a path is built only where it is needed.
    _Entry = tuple[Any, int, Any, "_Entry | None"]

# Elements of one byte each; a run of them in an array is passed over in one step.
_RUN = re.compile(rb"[\x00-\x7f\xc0\xc2\xc3\xe0-\xff]*")

# Scalars of a fixed size: first byte -> what it is; and its bytes in all, 0 for everything else.
_SCALAR: dict[int, str] = {
    **dict.fromkeys([*range(0x80), *range(0xCC, 0xD4), *range(0xE0, 0x100)], "an integer"),
    **dict.fromkeys([0xCA, 0xCB], "a float"),
    **dict.fromkeys([0xC2, 0xC3], "a boolean"),
    0xC0: "nil",
}
_WIDTH = [1 if lead in _SCALAR else 0 for lead in range(256)]
_WIDTH[0xCA:0xD4] = [5, 9, 2, 3, 5, 9, 2, 3, 5, 9]
# What is led by a length: first byte -> (bytes of the length, bytes of an extension's type, what it is).
_SIZED: dict[int, tuple[int, int, str]] = {
    **{0xC4 + i: (2**i, 0, "a byte string") for i in range(3)},
    **{0xC7 + i: (2**i, 1, "an extension value") for i in range(3)},
    **{0xD9 + i: (2**i, 0, "a string") for i in range(3)},
}
_TIMESTAMP = 0xFF  # extension type -1
_FOREIGN_KINDS = frozenset({"a byte string", "an extension value", "a timestamp"})

_KEYS: tuple[tuple[str, type, str], ...] = (
    ("v", int, "an integer"),
    ("id", int, "an integer from 0 to 2^64-1"),
    ("kind", str, "a string"),
    ("body", dict, "a map"),
)
_NAMES = frozenset(key for key, _, _ in _KEYS)
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)
BUDGET = 200_000
"""Values and map keys that are looked at for the one that is wrong: a fraction of a second's work."""

_QUOTED = 60  # characters of a key that a message quotes
_STEPS = 32  # steps of a path that a message spells out

_ARGUMENTS: dict[str, _Steps] = {"call": ("body", "arguments"), "cap_call": ("body", "args", "arguments")}
_TOKEN: _Steps = ("body", "token")
_ENVELOPE = 2  # containers open, the payload as a whole included, while a value of the envelope is read
_ARGUMENTS_LEVEL = 4  # as many at the most while an `arguments` is read
_FOREIGN = object()  # stands in the envelope for what has no place in a frame


class _Damage(Exception):
    """The payload is not one msgpack value within the limits."""


class _TooLong(Exception):
    """Nothing is known yet, and :data:`BUDGET` is used up."""


class _Open:
    """A container that is being read.

    ``left`` items are to come (a map counts keys and values), ``step`` is the key or index of the current one,
    ``start`` the offset of the container itself.
    """

    __slots__ = ("is_map", "left", "start", "step")

    def __init__(self, is_map: bool, count: int, start: int) -> None:
        self.is_map = is_map
        self.left = 2 * count if is_map else count
        self.start = start
        self.step: str | int = "" if is_map else -1


class _Scan:
    """One pass over a payload by its own offset: it cannot recurse, and builds no values but the envelope's."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        # The first entry holds the payload as a whole and has no step of its own in a path.
        self.stack = [_Open(is_map=False, count=1, start=0)]
        self.envelope: dict[str, Any] | None = None
        self.findings: dict[_Steps, tuple[str, str]] = {}  # region -> the first (path, found) in it
        self.spans: list[tuple[_Steps, int, int]] = []  # (region, start, end) of every value of `arguments`

    def run(self) -> None:
        """Reads the whole payload. Raises :class:`_Damage`, and :class:`_TooLong` past :data:`BUDGET` values;
        what was read before it stays."""
        try:
            end = self._run()
        except IndexError:
            end = len(self.payload) + 1
        if end > len(self.payload):
            raise _Damage("the payload ends in the middle of a value")
        if end < len(self.payload):
            raise _Damage(f"{len(self.payload) - end} bytes follow the payload's map")

    def _run(self) -> int:
        payload, stack = self.payload, self.stack
        position = 0
        budget = BUDGET
        while stack:
            top = stack[-1]
            if top.left == 0:
                stack.pop()
                if len(stack) <= _ARGUMENTS_LEVEL:
                    self._ended(top.start, position)
                continue
            top.left -= 1
            budget -= 1
            if budget < 0:
                raise _TooLong
            if not top.is_map:
                top.step += 1  # type: ignore[operator]
            elif top.left % 2:
                position = self._key(top, position)
                continue
            width = _WIDTH[payload[position]]
            if not width or len(stack) <= _ENVELOPE:
                position = self._value(position)
            elif width == 1 and not top.is_map:
                run = _RUN.match(payload, position, position + 1 + top.left)
                assert run is not None
                passed = run.end() - position - 1
                top.left -= passed
                budget -= passed
                top.step += passed  # type: ignore[operator]
                position = run.end()
            else:
                position += width
        return position

    def _key(self, top: _Open, start: int) -> int:
        # A key that is a container is opened by this and read like a value.
        level = len(self.stack)
        kind, content, end = self._item(start)
        if kind == "a string":
            try:
                top.step = self.payload[content:end].decode()
                return end
            except UnicodeDecodeError:
                kind = "not valid UTF-8"
        top.step = "?"
        self._found(self._steps()[: level - 2], f"a map key that is {kind}")
        return end

    def _value(self, start: int) -> int:
        level = len(self.stack)
        kind, content, end = self._item(start)
        if kind in _FOREIGN_KINDS:
            self._found(self._steps(), kind)
        elif kind == "a string":
            try:
                self.payload[content:end].decode()
            except UnicodeDecodeError:
                kind = "text that is not valid UTF-8"
                self._found(self._steps(), kind)
        if level <= _ENVELOPE:
            self._keep(kind, start, end, level)
        if level <= _ARGUMENTS_LEVEL and len(self.stack) == level:
            self._ended(start, end)
        return end

    def _keep(self, kind: str, start: int, end: int, level: int) -> None:
        if level == 1:
            if kind != "a map":
                raise _Damage(f"the payload is {kind}, not a map")
            self.envelope = {}
        elif self.envelope is not None and end <= len(self.payload):
            value: Any = _FOREIGN
            if kind in ("a map", "an array"):
                value = {} if kind == "a map" else []
            elif kind not in _FOREIGN_KINDS and kind != "text that is not valid UTF-8":
                value = unpackb(self.payload[start:end])
            self.envelope[str(self.stack[1].step)] = value

    def _ended(self, start: int, end: int) -> None:
        steps = self._steps()
        if steps in _ARGUMENTS.values():
            self.spans.append((steps, start, end))

    def _steps(self) -> _Steps:
        return tuple(container.step for container in self.stack[1:])

    def _found(self, steps: _Steps, found: str) -> None:
        if steps == _TOKEN and found == "a byte string":
            self.findings.setdefault(_TOKEN, (path_of(steps), found))
            return
        region = next((r for r in _ARGUMENTS.values() if steps[: len(r)] == r), ())
        if region not in self.findings:
            self.findings[region] = (path_of(steps[len(region) :]), found)

    def _item(self, start: int) -> tuple[str, int, int]:
        """What stands at ``start``, where its content starts and where it ends.

        Of a container only the head is read; it is open then. The end may lie past the payload's.
        """
        lead = self.payload[start]
        if _WIDTH[lead]:
            return _SCALAR[lead], start + 1, start + _WIDTH[lead]
        if 0xA0 <= lead <= 0xBF:
            return "a string", start + 1, start + 1 + (lead & 0x1F)
        if lead in _SIZED:
            width, type_bytes, kind = _SIZED[lead]
            content = start + 1 + width + type_bytes
            if type_bytes and self.payload[content - 1] == _TIMESTAMP:
                kind = "a timestamp"
            return kind, content, content + int.from_bytes(self.payload[start + 1 : start + 1 + width], "big")
        if 0xD4 <= lead <= 0xD8:
            kind = "a timestamp" if self.payload[start + 1] == _TIMESTAMP else "an extension value"
            return kind, start + 2, start + 2 + 2 ** (lead - 0xD4)
        if lead == 0xC1:
            raise _Damage("the byte 0xc1 is no msgpack")
        return self._open(start, lead)

    def _open(self, start: int, lead: int) -> tuple[str, int, int]:
        is_map = lead <= 0x8F or lead >= 0xDE
        width = 0 if lead <= 0x9F else 2 if lead in (0xDC, 0xDE) else 4
        head = start + 1 + width
        count = int.from_bytes(self.payload[start + 1 : head], "big") if width else lead & 0x0F
        if len(self.stack) > MAX_DEPTH:
            raise _Damage(f"nesting past {MAX_DEPTH} levels")
        self.stack.append(_Open(is_map, count, start))
        return "a map" if is_map else "an array", head, head


def examine(payload: bytes) -> Frame | FrameFault:
    """The frame with its ``invalid`` set, or the fault, of a payload that is not plainly good.

    Linear in the payload; past :data:`BUDGET` values it does not say where it is wrong. An unsupported version is
    told first, since a later version may change the rest.
    """
    scan = _Scan(payload)
    damage = ""
    try:
        scan.run()
    except _Damage as error:
        damage = str(error)
    except _TooLong:
        from treadle_client._outline import outline

        return outline(payload, "something that has no place in a frame; the frame is too large to say where")
    envelope = scan.envelope or {}
    id_ = envelope.get("id")
    id_ = id_ if type(id_) is int and id_ >= 0 else 0
    version = envelope.get("v", VERSION)
    if type(version) is not int or version != VERSION:
        said = f"version {version}" if type(version) is int else "a version that is no integer"
        return FrameFault("unsupported_version", f"the frame has {said}; this end speaks version {VERSION}", id_)
    problem = damage or _foreign_problem(scan, envelope.get("kind")) or _envelope_problem(envelope)
    if problem:
        return FrameFault("bad_frame", problem, id_)
    return _without_arguments(scan, id_, envelope["kind"])


def _envelope_problem(envelope: dict[str, Any]) -> str:
    for key, type_, expected in _KEYS:
        if key not in envelope:
            return f"the frame has no key {key}"
        if type(envelope[key]) is not type_ or (type_ is int and envelope[key] < 0):
            return f"the frame's {key} must be {expected}"
    extra = next((key for key in envelope if key not in _NAMES), None)
    return "" if extra is None else f"the frame has an unknown key {_quoted(extra)}"


def _foreign_problem(scan: _Scan, kind: object) -> str:
    """What cannot be carried and stands where that is not answered in band."""
    for region, (path, found) in scan.findings.items():
        in_band = kind in _ARGUMENTS and _ARGUMENTS[str(kind)] == region
        if not in_band and not (kind == "cap_call" and region == _TOKEN):
            place = "".join(f".{step}" for step in region if region != _TOKEN)
            return f"{found} at ${place}{path[1:]} of the frame"
    return ""


def _without_arguments(scan: _Scan, id_: int, kind: str) -> Frame:
    region = _ARGUMENTS.get(kind, ())
    invalid = scan.findings.get(region)
    payload = bytearray(scan.payload)
    for where, start, end in reversed(scan.spans):
        if invalid and where == region:
            payload[start:end] = b"\x80"
    return Frame(id_, kind, unpackb(payload)["body"], invalid)


def path_of(steps: Iterable[str | int]) -> str:
    """A path for people: ``$.a[3]["odd key"]``. Bounded: long keys and long paths are cut."""
    words = []
    for step in steps:
        if isinstance(step, int):
            words.append(f"[{step}]")
        elif _PLAIN_KEY.fullmatch(step):
            words.append(f".{step}")
        else:
            words.append(f"[{_quoted(step)}]")
    if len(words) > _STEPS:
        words[_STEPS // 2 : -_STEPS // 2] = ["..."]
    return "$" + "".join(words)


def _quoted(key: str) -> str:
    """A key that a peer chose, in ASCII, between double quotes."""
    escaped = key[:_QUOTED].encode("ascii", "backslashreplace").decode()
    if not escaped.isprintable():
        escaped = escaped.encode("unicode_escape").decode()
    return '"' + escaped.replace('"', '\\"') + '"'


def find_unencodable(envelope: dict[str, Any]) -> tuple[str, str] | None:
    """``(path, found)`` of the first value that no frame can hold, ``$`` being the envelope's body, or None."""
    if type(envelope["id"]) is not int or not 0 <= envelope["id"] < 2**64:
        return "id", "an id outside 0 to 2^64-1"
    if problem := _unpackable(envelope["kind"]):
        return "kind", problem
    entries: list[_Entry] = [(envelope["body"], 2, "", None)]
    while entries:
        entry = entries.pop()
        container, level, _, _ = entry
        if level > MAX_DEPTH:
            return path_of(_steps_of(entry)), f"nesting past {MAX_DEPTH} levels"
        is_map = isinstance(container, dict)
        for step, value in container.items() if is_map else enumerate(container):
            if is_map and not isinstance(step, tuple) and (problem := _unpackable(step)):
                return path_of(_steps_of(entry)), f"a map key that is {problem}"
            child: _Entry = (value, level + 1, step, entry)
            if isinstance(value, (dict, list, tuple)):
                entries.append(child)
            elif problem := _unpackable(value):
                return path_of(_steps_of(child)), problem
    return None


def _steps_of(entry: _Entry) -> list[str | int]:
    steps = []
    _, _, step, parent = entry
    while parent is not None:
        steps.append(step if isinstance(step, (str, int)) else repr(step))
        _, _, step, parent = parent
    return steps[::-1]


def _unpackable(value: object) -> str:
    """What keeps msgpack from packing a scalar, or the empty string."""
    if isinstance(value, int):
        return "" if -(2**63) <= value < 2**64 else "an integer outside 64 bits"
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return "text that is not valid Unicode"
        return ""
    if value is None or isinstance(value, (float, bytes, bytearray, memoryview, ExtType, Timestamp)):
        return ""
    return f"a value of type {type(value).__name__}"
