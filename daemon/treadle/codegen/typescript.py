"""The TypeScript target: typed functions over ``./seam.js`` (codegen page, section 5)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from .docs import bullet_of, function_doc, header, provenance
from .functions import Function, bounded, functions
from .generated import Generated
from .listing import ListedTool
from .names import TYPESCRIPT, type_name
from .shapes import (
    Array,
    Field,
    Literals,
    Mapping,
    Named,
    Reader,
    Record,
    Scalar,
    Shape,
    Types,
    Union,
    Unknown,
    reachable,
    unknowns,
)
from .text import block_comment_line, typescript_literal
from .typescript_check import check

_RESERVED: Final = frozenset({"Array", "Promise", "Record", "ToolResult"})
_SCALARS: Final = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}
_PASSING: Final = "Optional parameters travel in `options`; one that is left out is not sent."
_WHOLE: Final = "input: Record<string, unknown>"
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def generate(server: str, listing: Sequence[ListedTool]) -> Generated:
    """The TypeScript module over ``server``; it stands beside :data:`seam.SOURCE`.

    Raises a :class:`GenerationRefused` fault.
    """
    made = functions(server, listing, TYPESCRIPT)
    types = Types(reserved=_RESERVED)
    written = [_Writer(server, function, types) for function in made]
    shapes = [shape for writer in written for shape in writer.shapes]
    interfaces = [_interface(record) for record in reachable(types.records, shapes)]
    segment = TYPESCRIPT.module(server)
    source = [f"// {line}" if line else "//" for line in header(server, listing)]
    surface = [f"// ### {segment}", "//", *(f"// {line}" for line in provenance(server))]
    source += ["", 'import { invoke, type ToolResult } from "./seam.js";' if made else "export {};"]
    for declaration in interfaces + [writer.options for writer in written if writer.options]:
        source += ["", *declaration]
        surface += ["", *declaration]
    for writer in written:
        source += ["", *writer.definition()]
        surface += ["", *writer.doc, writer.signature()]
    # The ceiling first: it bounds what the check has to read.
    bounded_surface = bounded("\n".join(surface) + "\n", server)
    text = "\n".join(source) + "\n"
    check(text, server, [function.tool.name for function in made])
    return Generated(segment, f"{segment}.ts", text, bounded_surface)


class _Writer:
    """One function as text."""

    def __init__(self, server: str, function: Function, types: Types) -> None:
        self._server = server
        self._function = function
        name, tool = function.type_prefix, function.tool
        reader = Reader(types, tool.input_schema, name)
        shapes = {
            argument.label: reader.argument(argument.parameter, name + type_name(argument.parameter.name))
            for argument in function.required + function.optional
        }
        self._result: Shape = Unknown("no output schema is given")
        if tool.output_schema is not None:
            reader = Reader(types, tool.output_schema, f"{name}Result", reading=True)
            self._result = reader.read(tool.output_schema, f"{name}Result")
        self.shapes = (*shapes.values(), self._result)
        self._parameters = [f"{item.label}: {expression(shapes[item.label])}" for item in function.required]
        self.options: list[str] = []
        passing = ""
        if function.whole is not None:
            self._parameters = [_WHOLE]
        elif function.optional:
            passing = _PASSING
            options = types.name(f"{name}Options")
            self._parameters.append(f"options: {options} = {{}}")
            fields = tuple(Field(item.label, shapes[item.label], required=False) for item in function.optional)
            self.options = _interface(Record(options, fields))
        required = [bullet_of(item, shapes[item.label], False) for item in function.required]
        optional = [bullet_of(item, shapes[item.label], True) for item in function.optional]
        self.doc = _comment(function_doc(server, function, passing, [*required, *optional]))

    def signature(self) -> str:
        # A declaration has no default value: it says that the parameter may be left out.
        parameters = [_declared(text) for text in self._parameters]
        return f"export function {self._function.name}({', '.join(parameters)}): {self._returns()};"

    def definition(self) -> list[str]:
        target = f"{typescript_literal(self._server)}, {typescript_literal(self._function.tool.name)}"
        return [
            *self.doc,
            f"export function {self._function.name}(",
            *(f"  {text}," for text in self._parameters),
            f"): {self._returns()} {{",
            f"  return invoke<{expression(self._result)}>({target}, {self._arguments()});",
            "}",
        ]

    def _returns(self) -> str:
        return f"Promise<ToolResult<{expression(self._result)}>>"

    def _arguments(self) -> str:
        if self._function.whole is not None:
            return "input"
        pairs = [(item, item.label) for item in self._function.required]
        pairs += [(item, f"options.{item.label}") for item in self._function.optional]
        # Pairs, not an object: in an object literal the name __proto__ would not be a property.
        return f"[{', '.join(f'[{typescript_literal(item.parameter.name)}, {value}]' for item, value in pairs)}]"


def _declared(parameter: str) -> str:
    name, _, rest = parameter.partition(": ")
    return f"{name}?: {rest.removesuffix(' = {}')}" if rest.endswith(" = {}") else parameter


def expression(shape: Shape) -> str:
    """``shape`` as a TypeScript type on one line."""
    match shape:
        case Scalar(kind):
            return _SCALARS[kind]
        case Literals(members):
            return " | ".join(map(_literal, members))
        case Array(inner):
            return f"Array<{expression(inner)}>"
        case Mapping(inner):
            return f"Record<string, {expression(inner)}>"
        case Union(shapes):
            return " | ".join(map(expression, shapes))
        case Named(name):
            return name
    return "unknown"


def _literal(member: str | int | bool | None) -> str:
    if isinstance(member, str):
        return typescript_literal(member)
    return "null" if member is None else str(member).lower()


def _interface(record: Record) -> list[str]:
    lines = [f"export interface {record.name} {{"]
    for field in record.fields:
        lines += [f"  /** unknown: {reason} */" for reason in dict.fromkeys(unknowns(field.shape))]
        key = field.name if _PLAIN_KEY.fullmatch(field.name) else typescript_literal(field.name)
        lines.append(f"  {key}{'' if field.required else '?'}: {expression(field.shape)};")
    return [*lines, "}"]


def _comment(lines: Sequence[str]) -> list[str]:
    return ["/**", *(f" * {block_comment_line(line)}" if line else " *" for line in lines), " */"]
