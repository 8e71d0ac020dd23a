"""From an ``inputSchema`` to the parameters of a function: total, no error case (codegen page, section 1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeGuard, cast

Kind = Literal["string", "integer", "number", "boolean"]
KINDS: Final[tuple[Kind, ...]] = ("string", "integer", "number", "boolean")


@dataclass(frozen=True, slots=True)
class Simple:
    """One value of a simple kind."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of values of one simple kind."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class Structured:
    """Any other value; ``reason`` completes "structured, because it is ..." in a doc comment."""

    reason: str


ParameterType = Simple | ListOf | Structured


@dataclass(frozen=True, slots=True)
class Parameter:
    """One property of the schema.

    ``name`` is the wire name as it came; ``enum`` the string members of its ``enum``; ``note`` its description
    (neither is sanitised); ``schema`` the property's own schema, or None when it was never declared.
    """

    name: str
    type: ParameterType
    enum: tuple[str, ...] = ()
    note: str | None = None
    schema: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Typed:
    """``params`` are required, in the order of ``required``; ``optionals`` are all others, in their own order."""

    params: tuple[Parameter, ...]
    optionals: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class WholeValue:
    """The top level is unusable: one argument carries the entire map. ``reason`` is a clause for a doc comment."""

    reason: str


Plan = Typed | WholeValue


def plan(schema: Any) -> Plan:
    """How the arguments that ``schema`` describes become parameters. Any JSON value settles; none is dropped."""
    if not isinstance(schema, dict):
        return WholeValue("its input schema is not an object")
    if "type" not in schema:
        return WholeValue("its input schema gives no type")
    if schema["type"] != "object":
        return WholeValue("its input schema is not of the type object")
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        return WholeValue("the properties of its input schema are not an object")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        return WholeValue("the required list of its input schema is not an array of strings")
    wanted = dict.fromkeys(required)
    return Typed(
        params=tuple(
            _parameter(name, properties[name])
            if name in properties
            else Parameter(name, Structured("required, but declared nowhere"))
            for name in wanted
        ),
        optionals=tuple(_parameter(name, value) for name, value in properties.items() if name not in wanted),
    )


def _parameter(name: str, schema: Any) -> Parameter:
    if not isinstance(schema, dict):
        return Parameter(name, _type(schema), schema=schema)
    enum = schema.get("enum")
    note = schema.get("description")
    return Parameter(
        name,
        _type(schema),
        enum=tuple(member for member in enum if isinstance(member, str)) if isinstance(enum, list) else (),
        note=note if isinstance(note, str) else None,
        schema=schema,
    )


def _type(schema: Any) -> ParameterType:
    if isinstance(schema, bool):
        return Structured("described by a boolean schema")
    if not isinstance(schema, dict):
        return Structured("described by something that is no schema")
    kind = schema.get("type")
    if is_kind(kind):
        return Simple(kind)
    if kind == "array":
        return _list_type(schema.get("items"))
    if kind == "object":
        return Structured("a nested object")
    if isinstance(kind, list):
        return Structured("of several types")
    if "type" in schema:
        return Structured("of no type that JSON Schema knows" if kind != "null" else "always null")
    for keyword in ("$ref", "anyOf", "oneOf", "allOf"):
        if keyword in schema:
            return Structured(f"described by {keyword}")
    return Structured("of no declared type")


def _list_type(items: Any) -> ParameterType:
    kind = items.get("type") if isinstance(items, dict) else None
    if is_kind(kind):
        return ListOf(kind)
    return Structured("an array of objects" if kind == "object" else "an array whose items have no simple type")


def is_kind(value: Any) -> TypeGuard[Kind]:
    """Whether ``value``, the ``type`` of a schema, names one simple kind."""
    return isinstance(value, str) and cast(Any, value) in KINDS
