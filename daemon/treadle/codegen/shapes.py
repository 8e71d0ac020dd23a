"""JSON Schema read as types, for the targets that can state them (codegen page, section 5).

A shape never promises more than the schema does: whatever cannot be read exactly, or would take too long, becomes
:class:`Unknown` with the reason. No schema is ever fetched; the work for one module is bounded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from .names import type_name
from .plan import Parameter

DEPTH_LIMIT: Final = 12
NODE_LIMIT: Final = 20_000
RECORD_LIMIT: Final = 400
FIELD_LIMIT: Final = 200
UNION_LIMIT: Final = 16
LITERAL_LIMIT: Final = 64
LITERAL_TEXT_LIMIT: Final = 1_000
SIZE_LIMIT: Final = 100
_TYPE_NAME_LIMIT: Final = 48
_COUNT_ROOM: Final = 3
_SAFE_INTEGER: Final = 2**53
_COMBINERS: Final = (
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "patternProperties",
    "dependentSchemas",
    "$dynamicRef",
)


@dataclass(frozen=True, slots=True)
class Scalar:
    """``string``, ``integer``, ``number``, ``boolean`` or ``null``."""

    kind: str


@dataclass(frozen=True, slots=True)
class Literals:
    """Exactly these strings, integers (within 53 bits), booleans or nulls."""

    members: tuple[str | int | bool | None, ...]

    def __eq__(self, other: object) -> bool:
        # True equals 1 in Python; in JSON they are two values.
        return isinstance(other, Literals) and list(map(repr, self.members)) == list(map(repr, other.members))

    def __hash__(self) -> int:
        return hash(repr(self.members))


@dataclass(frozen=True, slots=True)
class Array:
    """A list of ``item``."""

    item: Shape


@dataclass(frozen=True, slots=True)
class Mapping:
    """An object of unknown keys, each of them a ``value``."""

    value: Shape


@dataclass(frozen=True, slots=True)
class Union:
    """One of two or more ``shapes``; none of them is Unknown or a union."""

    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """The record called ``name``."""

    name: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Any value; ``reason`` completes "any value: ..."."""

    reason: str


Shape = Scalar | Literals | Array | Mapping | Union | Named | Unknown


@dataclass(frozen=True, slots=True)
class Field:
    """One key of a record, under its wire name."""

    name: str
    shape: Shape
    required: bool


@dataclass(frozen=True, slots=True)
class Record:
    """An object with known keys."""

    name: str
    fields: tuple[Field, ...]


def unknowns(shape: Shape) -> Iterator[str]:
    """The reasons of every :class:`Unknown` inside ``shape``, not looking into named records."""
    match shape:
        case Unknown(reason):
            yield reason
        case Array(inner) | Mapping(inner):
            yield from unknowns(inner)
        case Union(shapes):
            for inner in shapes:
                yield from unknowns(inner)


def states_values(shape: Shape) -> bool:
    """Whether ``shape`` itself tells the allowed values."""
    return isinstance(shape, Literals) or (isinstance(shape, Union) and any(map(states_values, shape.shapes)))


def reachable(records: Sequence[Record], shapes: Iterable[Shape]) -> list[Record]:
    """Those of ``records`` that ``shapes`` refer to, directly or through each other, in their own order."""
    by_name = {record.name: record for record in records}
    found: set[str] = set()
    stack = list(shapes)
    while stack:
        match stack.pop():
            case Array(inner) | Mapping(inner):
                stack.append(inner)
            case Union(inners):
                stack += inners
            case Named(name) if name not in found:
                found.add(name)
                stack += [field.shape for field in by_name[name].fields]
    return [record for record in records if record.name in found]


@dataclass(slots=True)
class Types:
    """The types of one module: names given away, records in the order of their completion, work left.

    ``recursive`` tells whether a record with these keys may refer to itself in the target language.
    """

    reserved: frozenset[str]
    recursive: Callable[[tuple[str, ...]], bool] = lambda keys: True
    records: list[Record] = field(default_factory=list)
    nodes: int = NODE_LIMIT
    _taken: set[str] = field(default_factory=set)
    _record_count: int = 0

    def name(self, wanted: str, limit: int = _TYPE_NAME_LIMIT) -> str:
        """A type name not given before, as close to ``wanted`` as ``limit`` characters allow."""
        name = wanted
        if len(name) > limit - _COUNT_ROOM:
            digest = hashlib.sha256(wanted.encode()).hexdigest()[:8]
            name = wanted[: limit - _COUNT_ROOM - len(digest)] + digest
        base, count = name, 1
        while name in self._taken or name in self.reserved:
            count += 1
            name = f"{base}{count}"
        self._taken.add(name)
        return name

    def may_add_record(self) -> bool:
        self._record_count += 1
        return self._record_count <= RECORD_LIMIT


class Reader:
    """Reads the schemas inside one root schema.

    ``reading`` is true for a schema of results: an object that allows more keys than it declares can then still be
    read by the keys that it declares.
    """

    def __init__(self, types: Types, root: Any, name: str, *, reading: bool = False) -> None:
        self._types = types
        self._root = root
        self._name = name
        self._reading = reading
        self._by_target: dict[int, Shape] = {}
        self._open: dict[int, Shape] = {}

    def argument(self, parameter: Parameter, name: str) -> Shape:
        """The shape of one parameter."""
        declared = parameter.schema is not None
        return self.read(parameter.schema, name) if declared else Unknown("required, but declared nowhere")

    def read(self, schema: Any, name: str, depth: int = 0) -> Shape:
        """The shape of ``schema``; a record in it is named after ``name``."""
        self._types.nodes -= 1
        if depth > DEPTH_LIMIT:
            return Unknown(f"nested more than {DEPTH_LIMIT} deep")
        if self._types.nodes < 0:
            return Unknown("the schemas of this server are too large to be read")
        if isinstance(schema, bool):
            return Unknown("described by a boolean schema")
        if not isinstance(schema, dict):
            return Unknown("described by something that is no schema")
        shape = self._read_object(schema, name, depth)
        if schema.get("nullable") is True:
            shape = _union([shape, Scalar("null")])
        # A shape shared by many references takes no work to read, but would be written out each time.
        return shape if _size(shape) <= SIZE_LIMIT else Unknown("too large a type to be written out")

    def _read_object(self, schema: dict[str, Any], name: str, depth: int) -> Shape:
        kind = schema.get("type")
        if isinstance(kind, list):
            return self._choice([{**schema, "type": one} for one in kind[: UNION_LIMIT + 1]], name, depth)
        if "const" in schema:
            return _literals([schema["const"]], kind)
        if isinstance(schema.get("enum"), list):
            return _literals(schema["enum"], kind)
        if kind == "array":
            return self._array(schema, name, depth)
        if kind == "object":
            return self._record(schema, name, depth)
        if isinstance(kind, str) and kind in ("string", "integer", "number", "boolean", "null"):
            return Scalar(kind)
        if "type" in schema:
            return Unknown("of no type that JSON Schema knows")
        return self._untyped(schema, name, depth)

    def _untyped(self, schema: dict[str, Any], name: str, depth: int) -> Shape:
        combiners = [keyword for keyword in ("$ref", *_COMBINERS) if keyword in schema]
        if len(combiners) > 1 or "properties" in schema:
            return Unknown("described by several schemas at once" if combiners else "of no declared type")
        if not combiners:
            return Unknown("of no declared type")
        keyword, value = combiners[0], schema[combiners[0]]
        if keyword == "$ref":
            return self._reference(value, depth)
        if keyword in ("anyOf", "oneOf") and isinstance(value, list) and value:
            return self._choice(value, name, depth)
        if keyword == "allOf" and isinstance(value, list) and len(value) == 1:
            return self.read(value[0], name, depth + 1)
        return Unknown(f"described by {keyword}")

    def _choice(self, branches: list[Any], name: str, depth: int) -> Shape:
        if not branches:
            return Unknown("of no declared type")
        if len(branches) > UNION_LIMIT:
            return Unknown(f"one of more than {UNION_LIMIT} types")
        return _union([self.read(branch, name, depth + 1) for branch in branches])

    def _array(self, schema: dict[str, Any], name: str, depth: int) -> Shape:
        items = schema.get("items")
        if "prefixItems" in schema or isinstance(items, list):
            return Array(Unknown("an array whose items differ by position"))
        if items is None:
            return Array(Unknown("an array that does not declare its items"))
        return Array(self.read(items, f"{name}Item", depth + 1))

    def _record(self, schema: dict[str, Any], name: str, depth: int) -> Shape:
        combiner = next((keyword for keyword in (*_COMBINERS, "$ref") if keyword in schema), None)
        if combiner is not None:
            return Mapping(Unknown(f"an object described by {combiner}, too"))
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            return Mapping(Unknown("an object whose properties cannot be read"))
        if any(not isinstance(key, str) for key in required):
            return Mapping(Unknown("an object whose required list cannot be read"))
        keys = tuple(dict.fromkeys([*properties, *required]))
        extra = schema.get("additionalProperties", False)
        if not keys:
            if isinstance(extra, dict):
                return Mapping(self.read(extra, f"{name}Value", depth + 1))
            return Mapping(Unknown("an object that declares no keys"))
        if extra is not False and not self._reading:
            return Mapping(Unknown("an object that takes more keys than it declares"))
        return self._named(schema, keys, name, depth)

    def _named(self, schema: dict[str, Any], keys: tuple[str, ...], name: str, depth: int) -> Shape:
        if len(keys) > FIELD_LIMIT:
            return Mapping(Unknown(f"an object of more than {FIELD_LIMIT} keys"))
        if depth >= DEPTH_LIMIT:
            return Mapping(Unknown(f"nested more than {DEPTH_LIMIT} deep"))
        if not self._types.may_add_record():
            return Mapping(Unknown("this server describes too many objects"))
        given = self._types.name(name)
        self._open[id(schema)] = (
            Named(given)
            if self._types.recursive(keys)
            else Unknown("an object inside itself, with keys that are no identifiers")
        )
        properties, required = schema.get("properties", {}), frozenset(schema.get("required", []))
        fields = tuple(
            Field(
                key,
                self.read(properties[key], given + type_name(key), depth + 1)
                if key in properties
                else Unknown("required, but declared nowhere"),
                key in required,
            )
            for key in keys
        )
        self._open.pop(id(schema), None)
        self._types.records.append(Record(given, fields))
        return Named(given)

    def _reference(self, target: Any, depth: int) -> Shape:
        found, name = self._resolve(target)
        if isinstance(found, Unknown):
            return found
        key = id(found)
        if key in self._open:
            return self._open[key]
        if key not in self._by_target:
            self._open[key] = Unknown("a $ref that comes back to itself")
            shape = self.read(found, name, depth + 1)
            self._open.pop(key, None)
            self._by_target[key] = shape
        return self._by_target[key]

    def _resolve(self, target: Any) -> tuple[Any, str]:
        """What a ``$ref`` of this document points to, and a name for it."""
        if not isinstance(target, str) or not (target == "#" or target.startswith("#/")):
            return Unknown("a $ref that leads out of its schema"), ""
        found, name = self._root, ""
        for token in target.split("/")[1:]:
            token = unquote(token).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and token in found:
                found, name = found[token], token
            elif isinstance(found, list) and token.isdecimal() and token.isascii() and len(token) < 8:
                if int(token) >= len(found):
                    return Unknown("a $ref that leads nowhere"), ""
                found = found[int(token)]
            else:
                return Unknown("a $ref that leads nowhere"), ""
        return found, self._name + type_name(name)


def _size(shape: Shape) -> int:
    match shape:
        case Array(inner) | Mapping(inner):
            return 1 + _size(inner)
        case Union(shapes):
            return sum(map(_size, shapes))
        case Literals(members):
            return len(members)
    return 1


def _union(shapes: list[Shape]) -> Shape:
    flat: dict[Shape, None] = {}
    for shape in shapes:
        if isinstance(shape, Unknown):
            return shape
        flat.update(dict.fromkeys(shape.shapes if isinstance(shape, Union) else [shape]))
    if len(flat) > UNION_LIMIT:
        return Unknown(f"one of more than {UNION_LIMIT} types")
    return Union(tuple(flat)) if len(flat) > 1 else next(iter(flat))


def _literals(members: list[Any], kind: Any) -> Shape:
    """The members of an ``enum`` that the ``type`` beside it allows; the type itself where they are too many."""
    fallback: Shape = Unknown("one of too many values, or of values that have no literal type")
    if isinstance(kind, str) and kind in ("string", "integer", "number", "boolean", "null"):
        fallback = Scalar(kind)
    elif kind is not None:
        fallback = Unknown("one of a list of structured values")
    if not 0 < len(members) <= LITERAL_LIMIT:
        return fallback
    kept: dict[str, str | int | bool | None] = {}
    for member in members:
        if not _is_literal(member):
            return fallback
        if kind is None or kind == _kind_of(member) or (kind == "number" and _kind_of(member) == "integer"):
            kept[repr(member)] = member
    if not kept or sum(map(len, kept)) > LITERAL_TEXT_LIMIT:
        return fallback
    null = kept.pop("None", 0) is None
    values: list[Shape] = [Literals(tuple(kept.values()))] if kept else []
    return _union([*values, Scalar("null")] if null else values)


def _is_literal(member: Any) -> bool:
    if member is None or isinstance(member, str | bool):
        return True
    return isinstance(member, int) and abs(member) < _SAFE_INTEGER


def _kind_of(member: Any) -> str:
    if member is None:
        return "null"
    return {bool: "boolean", int: "integer"}.get(type(member), "string")
