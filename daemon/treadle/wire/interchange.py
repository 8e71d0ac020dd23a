"""Values between msgpack and JSON, total both ways (floor 0, pure; client page, section 7).

What one side cannot say is refused with its path, never bent: no wrapped integer, no byte string as base64, no
NaN as null. The quick checks look at whole levels of a value at once; only a value that fails them is walked, to
find the place, and then what a container holds is looked at at once too: the path is made for what is found only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from typing import Any, Final

import msgpack
import msgspec
from msgspec import Struct

from treadle.errors import InvalidArgument, NotCarriable
from treadle.wire.nesting import MAX_DEPTH, too_deep
from treadle.wire.paths import json_path

Path = tuple[str | int, ...]
"""The map keys and array indexes that lead to a place inside a value."""

RESULT_LIMIT: Final = 16 * 1024 * 1024 - 64 * 1024
"""The most bytes that the encoding of a result may have."""

ARGUMENTS_DEPTH: Final = MAX_DEPTH - 2
"""Levels of an arguments map: it is level 3 of the frame that brings it and of the line that takes it on."""

VALUE_DEPTH: Final = MAX_DEPTH - 3
"""Levels of a structured result, or of an error's data: level 4 of the frame that takes it on."""

BLOCK_DEPTH: Final = MAX_DEPTH - 4
"""Levels of a content block that crosses whole: level 5 of the frame that takes it on."""

MIN_INT: Final = -(2**63)
MAX_INT: Final = 2**64 - 1

_CONTAINERS: Final = frozenset({dict, list})
_CARRIED: Final = _CONTAINERS | {str, int, float, bool, type(None)}
_TEXT: Final = frozenset({str})
_TOO_DEEP: Final = f"nesting past {MAX_DEPTH} levels"
_OUT_OF_RANGE: Final = "an integer outside [-2^63, 2^64-1]"

# The shortest integer out of range has 19 digits, so that a text without such a run holds none.
_DIGITS_TO_ZERO: Final = bytes.maketrans(b"123456789", b"0" * 9)
_LONG_RUN: Final = b"0" * len(str(-MIN_INT))
_RUN: Final = re.compile(rb"[0-9]+")

_FEW: Final = 8
"""Fewer values than this are looked at one by one sooner than all at once."""

_EXACT_FLOATS: Final = 8 * 1024
"""From this length on floats are read by Python: the decoder takes a hundred times as long for the worst ones."""

_SCALAR: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[-+.0-9a-zA-Z]+')

_encode = msgspec.json.Encoder().encode
_NULL: Final = b"null"


def arguments_to_json(arguments: dict[str, Any], *, plain: bool = False) -> bytes:
    """``arguments``, as msgpack decodes them, in compact JSON; key order is kept. With ``plain`` the caller
    vouches, as the frame codec does, that they are of JSON's own types and not too deep.

    Raises :class:`~treadle.errors.InvalidArgument` with the path of the first value that JSON cannot say: a byte
    string, an extension value or timestamp, a key that is no string, NaN or infinity, text that is not valid
    Unicode, any other type, or nesting that would pass 256 levels of the line.
    """
    if plain:
        text = _encode(arguments)
        # What has no place in JSON, NaN and infinity, would be written as null: without one there was none.
        if _NULL not in text:
            return text
    if _is_json_value(arguments, ARGUMENTS_DEPTH):
        try:
            return _encode(arguments)
        except UnicodeEncodeError:
            pass
    raise _argument_fault(arguments)


def json_to_value(raw: bytes, max_depth: int = VALUE_DEPTH, at: Path = ()) -> Any:
    """The plain Python value of the JSON text ``raw``, every number exact, floats bit for bit.

    Raises :class:`~treadle.errors.NotCarriable` with the path of the first thing that msgpack cannot say: an
    integer outside [-2^63, 2^64-1], a number past the range of a float, text that is not valid Unicode, or
    nesting past ``max_depth`` levels (by default what a structured result may have). ``at`` are the steps of the
    path that lead to ``raw``.
    """
    if too_deep(raw, max_depth):
        raise NotCarriable(_TOO_DEEP, json_path(at))
    try:
        value = _decode(raw) if len(raw) < _EXACT_FLOATS else _decode_long(raw)
    except msgspec.DecodeError:
        value = _decode_leniently(raw, at)
    else:
        if not _may_be_out_of_range(raw):
            return value
    check_value(value, at)
    return value


def check_value(value: Any, at: Path = ()) -> None:
    """Raise :class:`~treadle.errors.NotCarriable` naming the first place of ``value``, a decoded JSON value,
    that msgpack refuses; return when there is none. ``at`` are the steps of the path that lead to ``value``.
    """
    found = _find(value, _not_msgpack)
    if found is not None:
        path, what = found
        raise NotCarriable(what, json_path((*at, *path)))


def redact_json(raw: bytes, redact: Callable[[str], str]) -> bytes:
    """The JSON text ``raw`` with ``redact`` applied to each text in it, keys included, and to the decimal form of
    each number; a value that it changes becomes that text.
    """

    def replace(token: re.Match[bytes]) -> bytes:
        written = token[0]
        text = json.loads(written) if written.startswith(b'"') else written.decode()
        redacted = redact(text)
        return written if redacted == text else msgspec.json.encode(redacted)

    return _SCALAR.sub(replace, raw)


def _is_json_value(root: Any, max_depth: int) -> bool:
    """Whether ``root``, a container, holds nothing but what JSON can say, text that is no Unicode apart."""
    level = [root]
    for _ in range(max_depth):
        values: list[Any] = []
        for container in level:
            if type(container) is dict:
                if not _TEXT.issuperset(map(type, container)):
                    return False
                values += container.values()
            else:
                values += container
        types = set(map(type, values))
        if not types <= _CARRIED:
            return False
        if float in types and not all(map(math.isfinite, [value for value in values if type(value) is float])):
            return False
        if types.isdisjoint(_CONTAINERS):
            return True
        level = [value for value in values if type(value) in _CONTAINERS]
    return False


def _argument_fault(arguments: dict[str, Any]) -> InvalidArgument:
    """The first thing that the quick checks, or the encoder, refused."""

    def judge(node: Any, depth: int) -> str | None:
        return _TOO_DEEP if type(node) in _CONTAINERS and depth >= ARGUMENTS_DEPTH else _not_json(node)

    found = _find(arguments, judge)
    path, what = found if found is not None else ((), "what JSON cannot say")
    return InvalidArgument(json_path(path), what)


def _not_json(node: Any) -> str | None:
    """What keeps ``node`` itself, its children apart, from being said in JSON; for a map its keys count."""
    if type(node) not in _CARRIED:
        return _kind(node)
    match node:
        case dict():
            for key in node:
                if type(key) is not str:
                    return f"a map key that is {_kind(key)}"
            return _broken_key(node)
        case str():
            return _broken_text(node)
        case float() if not math.isfinite(node):
            return "NaN" if math.isnan(node) else "infinity"
        case _:
            return None


def _not_msgpack(node: Any, _depth: int) -> str | None:
    """What keeps ``node`` itself, a decoded JSON value, from being said in msgpack; for a map its keys count."""
    kind = type(node)
    if kind is int:
        return None if MIN_INT <= node <= MAX_INT else _OUT_OF_RANGE
    if kind is str:
        return None if node.isascii() else _broken_text(node)
    if kind is dict:
        return _broken_key(node)
    return node.what if kind is _Unsayable else None


def _broken_key(node: dict[str, Any]) -> str | None:
    return "a map key that is not valid Unicode" if any(map(_broken_text, node)) else None


def _broken_text(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return "text that is not valid Unicode"
    return None


def _kind(value: Any) -> str:
    """What a person calls a value that msgpack can hold and JSON cannot."""
    match value:
        case bytes():
            return "a byte string"
        case msgpack.ExtType():
            return "an extension value"
        case msgpack.Timestamp() | datetime():
            return "a timestamp"
        case None:
            return "nil"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a float"
        case _:
            return f"a value of type {type(value).__name__}"


class _Step(Struct):
    """A container on the way down: where in it the search is, and what of it is still to be looked at."""

    key: str | int
    rest: Iterator[tuple[str | int, Any]]


def _find(root: Any, judge: Callable[[Any, int], str | None]) -> tuple[Path, str] | None:
    """The first value inside ``root``, in document order, that ``judge`` objects to, and the objection.

    ``judge`` gets the value and its depth, that of ``root`` being 0. It may object to no scalar that passes
    :func:`_all_fit`. What is in use is one iterator for each level, however much a level holds.
    """
    if what := judge(root, 0):
        return (), what
    stack = [_Step("", _to_look_at(root))]
    while stack:
        step = stack[-1]
        for key, node in step.rest:
            if what := judge(node, len(stack)):
                return (*(each.key for each in stack[:-1]), key), what
            if type(node) in _CONTAINERS:
                step.key = key
                stack.append(_Step("", _to_look_at(node)))
                break
        else:
            stack.pop()
    return None


def _to_look_at(node: Any) -> Iterator[tuple[str | int, Any]]:
    """What ``node`` holds, with its keys or indexes: without the scalars where all of them fit."""
    items: Iterator[tuple[str | int, Any]]
    if type(node) is dict:
        values: Collection[Any] = node.values()
        items = iter(node.items())
    elif type(node) is list:
        values = node
        items = enumerate(node)
    else:
        return iter(())
    if len(values) < _FEW:
        return items
    types = set(map(type, values))
    if not _all_fit(values, types):
        return items
    return (item for item in items if type(item[1]) in _CONTAINERS) if types & _CONTAINERS else iter(())


def _all_fit(values: Collection[Any], types: set[type]) -> bool:
    """Whether all scalars of ``values``, whose types these are, surely fit both JSON and msgpack."""

    def only(kind: type) -> Iterator[Any]:
        return iter(values) if len(types) == 1 else (value for value in values if type(value) is kind)

    return (
        types <= _CARRIED
        and (int not in types or (min(only(int)) >= MIN_INT and max(only(int)) <= MAX_INT))
        and (float not in types or all(map(math.isfinite, only(float))))
        and (str not in types or all(map(str.isascii, only(str))))
    )


def _may_be_out_of_range(raw: bytes) -> bool:
    """Whether ``raw`` holds what could be an integer outside of the range; digits in a string count as well."""
    zeros = raw.translate(_DIGITS_TO_ZERO)
    start = zeros.find(_LONG_RUN)
    while start >= 0:
        run = _RUN.match(raw, start)
        end = len(raw) if run is None else run.end()
        before = raw[start - 1 : start]
        most = -MIN_INT if before == b"-" else MAX_INT
        if before != b"." and (end - start > len(str(MAX_INT)) or int(raw[start:end]) > most):
            return True
        start = zeros.find(_LONG_RUN, end)
    return False


class _Unsayable(Struct, frozen=True):
    """Stands for a number that neither Python nor msgpack can hold, so that its path can be found."""

    what: str


def _decode_leniently(raw: bytes, at: Path) -> Any:
    try:
        return json.loads(raw.decode(), parse_int=_integer, parse_float=_float, parse_constant=_Unsayable)
    except ValueError as error:
        raise NotCarriable(f"text that is not JSON ({error})", json_path(at)) from None


def _integer(digits: str) -> int | _Unsayable:
    return int(digits) if len(digits) <= len(str(MAX_INT)) else _Unsayable(_OUT_OF_RANGE)


def _finite_float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("out of range")
    return value


def _float(digits: str) -> float | _Unsayable:
    value = float(digits)
    return value if math.isfinite(value) else _Unsayable("a number past the range of a float")


_decode = msgspec.json.Decoder().decode
_decode_long = msgspec.json.Decoder(float_hook=_finite_float).decode
