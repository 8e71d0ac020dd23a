"""Shapes as Python type expressions and declarations, laid out as a formatter would (codegen page, section 5)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from .names import PYTHON_KEYWORDS, type_name
from .shapes import Array, Field, Literals, Mapping, Named, Record, Scalar, Shape, Types, Union, unknowns
from .text import python_literal

LINE: Final = 88
IMPORTED: Final = frozenset({"Any", "Literal", "NotRequired", "Result", "TypedDict", "UNSET", "Unset"})
SCALARS: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_SHORTEST_ALIAS: Final = 24
_KEY_LIMIT: Final = 40
_PLAIN_KEY = re.compile(r"(?!__)[a-z_][A-Za-z0-9_]*")
# A field called `str` would hide the type from the fields after it.
_HIDING: Final = frozenset({*SCALARS.values(), "list", "dict"})


def is_class_like(keys: Iterable[str]) -> bool:
    """Whether a ``TypedDict`` with these keys can be written as a class, and so refer to itself."""
    return all(
        len(key) <= _KEY_LIMIT and _PLAIN_KEY.fullmatch(key) and key not in PYTHON_KEYWORDS and key not in _HIDING
        for key in keys
    )


def types() -> Types:
    """The empty table of types for one Python module."""
    return Types(reserved=IMPORTED | PYTHON_KEYWORDS, recursive=is_class_like)


class TypeWriter:
    """Writes type expressions, and collects the declarations that they need.

    Classes come first in a module: their annotations are evaluated late. The other declarations are evaluated
    where they stand, so each follows those that it uses.
    """

    def __init__(self, types: Types) -> None:
        self._types = types
        self.classes: list[list[str]] = []
        self.assignments: list[list[str]] = []
        self.used: set[str] = set()

    def expression(self, shape: Shape) -> str:
        """``shape`` on one line."""
        match shape:
            case Scalar(kind):
                return SCALARS[kind]
            case Literals(members):
                self.used.add("Literal")
                return f"Literal[{', '.join(map(_literal, members))}]"
            case Array(inner):
                return f"list[{self.expression(inner)}]"
            case Mapping(inner):
                return f"dict[str, {self.expression(inner)}]"
            case Union(shapes):
                return " | ".join(map(self.expression, shapes))
            case Named(name):
                return name
        self.used.add("Any")
        return "Any"

    def fit(self, shape: Shape, room: int, wanted: str) -> str:
        """``shape`` in at most ``room`` characters (24 at least): itself, or the name of an alias for it."""
        text = self.expression(shape)
        room = max(room, _SHORTEST_ALIAS)
        return text if len(text) <= room else self._alias(shape, room, wanted)

    def declare(self, record: Record) -> None:
        """Declare ``record``; the records that it refers to are declared already, or are classes."""
        self.used.add("TypedDict")
        if is_class_like(field.name for field in record.fields):
            self.classes.append(self._class(record))
        else:
            self.assignments.append(self._functional(record))

    def _class(self, record: Record) -> list[str]:
        lines = [f"class {record.name}(TypedDict):"]
        for field in record.fields:
            before, after = self._presence(field)
            room = LINE - len(f"    {field.name}: {before}{after}")
            text = self.fit(field.shape, room, record.name + type_name(field.name))
            lines += [*_reason(field.shape, "    "), f"    {field.name}: {before}{text}{after}"]
        return lines

    def _functional(self, record: Record) -> list[str]:
        lines = [f"{record.name} = TypedDict(", f'    "{record.name}",', "    {"]
        for index, field in enumerate(record.fields):
            before, after = self._presence(field)
            start = f"        {python_literal(field.name)}: {before}"
            room, wanted = LINE - len(start) - len(after) - 1, f"{record.name}Key{index}"
            text = self.fit(field.shape, room, wanted)
            lines += _reason(field.shape, "        ")
            if len(text) <= room:
                lines.append(f"{start}{text}{after},")
            elif before:
                lines += [start, f"            {text}", f"        {after},"]
            else:
                # A name is what no formatter breaks.
                text = text if text.isidentifier() else self._alias(field.shape, _SHORTEST_ALIAS, wanted)
                lines.append(f"{start}{text},")
        return [*lines, "    },", ")"]

    def _presence(self, field: Field) -> tuple[str, str]:
        if field.required:
            return "", ""
        self.used.add("NotRequired")
        return "NotRequired[", "]"

    def _alias(self, shape: Shape, room: int, wanted: str) -> str:
        name = self._types.name(wanted, min(room, LINE // 2))
        self.assignments.append(self._assignment(name, shape))
        return name

    def _assignment(self, name: str, shape: Shape) -> list[str]:
        flat = f"{name} = {self.expression(shape)}"
        if len(flat) <= LINE:
            return [flat]
        room = LINE - 4
        match shape:
            case Literals(members):
                return _split(f"{name} = Literal[", list(map(_literal, members)))
            case Array(inner):
                text = self.fit(inner, room, f"{name}Item")
                return _split(f"{name} = list[", [text])
            case Mapping(inner):
                text = self.fit(inner, room - 1, f"{name}Value")
                return _split(f"{name} = dict[", ["str", text])
            case Union(shapes):
                parts = [self.fit(part, room - 2, f"{name}Part") for part in shapes]
                return _split_union(f"{name} = ", parts)
        return _split_union(f"{name} = ", [self.expression(shape)])


def _split(start: str, arguments: Sequence[str]) -> list[str]:
    """A subscript that may be too long for its line."""
    flat = f"{start}{', '.join(arguments)}]"
    if len(flat) <= LINE:
        return [flat]
    comma = "," if len(arguments) > 1 else ""
    return [start, *(f"    {argument}{comma}" for argument in arguments), "]"]


def _split_union(start: str, parts: Sequence[str]) -> list[str]:
    """An assignment of a union that may be too long for its line."""
    flat = " | ".join(parts)
    if len(start + flat) <= LINE:
        return [start + flat]
    if len(flat) <= LINE - 4:
        return [f"{start}(", f"    {flat}", ")"]
    return [f"{start}(", f"    {parts[0]}", *(f"    | {part}" for part in parts[1:]), ")"]


def _reason(shape: Shape, indent: str) -> list[str]:
    return [f"{indent}# Any: {reason}" for reason in dict.fromkeys(unknowns(shape))]


def _literal(member: str | int | bool | None) -> str:
    return python_literal(member) if isinstance(member, str) else repr(member)
