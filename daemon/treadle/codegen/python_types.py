"""Shapes as Python type expressions and declarations, laid out as a formatter would (codegen page, section 5)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from .names import PYTHON_KEYWORDS, camel
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
    return Types(reserved=IMPORTED, recursive=is_class_like)


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
        if len(text) <= room:
            return text
        name = self._types.name(wanted, min(room, LINE // 2))
        self.assignments.append(self._alias(name, shape))
        return name

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
            text = self.fit(field.shape, room, record.name + camel(field.name))
            lines += [*_reason(field.shape, "    "), f"    {field.name}: {before}{text}{after}"]
        return lines

    def _functional(self, record: Record) -> list[str]:
        lines = [f"{record.name} = TypedDict(", f'    "{record.name}",', "    {"]
        for index, field in enumerate(record.fields):
            before, after = self._presence(field)
            start = f"        {python_literal(field.name)}: {before}"
            text = self.fit(field.shape, LINE - len(start) - len(after) - 1, f"{record.name}Key{index}")
            lines += _reason(field.shape, "        ")
            if before and len(start + text + after) + 1 > LINE:
                lines += [start, f"            {text}", f"        {after},"]
            else:
                lines.append(f"{start}{text}{after},")
        return [*lines, "    },", ")"]

    def _presence(self, field: Field) -> tuple[str, str]:
        if field.required:
            return "", ""
        self.used.add("NotRequired")
        return "NotRequired[", "]"

    def _alias(self, name: str, shape: Shape) -> list[str]:
        flat = f"{name} = {self.expression(shape)}"
        if len(flat) <= LINE:
            return [flat]
        room = LINE - 4
        match shape:
            case Literals(members):
                comma = "," if len(members) > 1 else ""
                return [f"{name} = Literal[", *(f"    {_literal(member)}{comma}" for member in members), "]"]
            case Array(inner):
                return [f"{name} = list[", f"    {self.fit(inner, room, f'{name}Item')}", "]"]
            case Mapping(inner):
                return [f"{name} = dict[", "    str,", f"    {self.fit(inner, room - 1, f'{name}Value')},", "]"]
            case Union(shapes):
                parts = [self.fit(part, room - 2, f"{name}Part") for part in shapes]
                return union_lines(f"{name} = ", parts)
        return [flat]


def union_lines(start: str, parts: Sequence[str]) -> list[str]:
    """An assignment of a union that is too long for its line."""
    flat = " | ".join(parts)
    if len(flat) <= LINE - 4 and len(start + flat) > LINE:
        return [f"{start}(", f"    {flat}", ")"]
    if len(start + flat) <= LINE:
        return [start + flat]
    return [f"{start}(", f"    {parts[0]}", *(f"    | {part}" for part in parts[1:]), ")"]


def _reason(shape: Shape, indent: str) -> list[str]:
    return [f"{indent}# Any: {reason}" for reason in dict.fromkeys(unknowns(shape))]


def _literal(member: str | int | bool | None) -> str:
    return python_literal(member) if isinstance(member, str) else repr(member)
