"""The Gleam target: module ``cap/mcp/<segment>`` (codegen page, section 4)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from treadle.errors import SanitizerBreach

from .docs import allowed, describe, function_doc, header, kind, provenance
from .functions import Argument, Function, bounded, functions
from .generated import Generated
from .listing import ListedTool
from .names import GLEAM
from .plan import Kind, ListOf, ParameterType, Simple
from .text import clip, gleam_literal, quoted

_TYPES: Final[dict[Kind, str]] = {"string": "String", "integer": "Int", "number": "Float", "boolean": "Bool"}
_ENCODERS: Final[dict[Kind, str]] = {
    "string": "report.string",
    "integer": "report.int",
    "number": "report.float",
    "boolean": "report.bool",
}
_RETURNS: Final = "Result(mcp.ToolResult, mcp.McpError)"
_OPTIONS: Final = ("options", "List(#(String, report.Value))")
_WHOLE: Final = ("arguments", "report.Value")
_PASSING: Final = "Optional parameters travel in `options` by wire name; `[]` means none."
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def generate(server: str, listing: Sequence[ListedTool]) -> Generated:
    """The Gleam module over ``server``. Raises a :class:`GenerationRefused` fault."""
    made = functions(server, listing, GLEAM)
    segment = GLEAM.module(server)
    docs = [_comment("///", _doc(server, function)) for function in made]
    source = [*_comment("////", header(server, listing)), *_imports(made)]
    surface = [f"### cap/mcp/{segment}", "", *provenance(server)]
    for function, doc in zip(made, docs, strict=True):
        source += ["", *doc, *_definition(server, function)]
        surface += ["", *doc, _signature(function)]
    text = "\n".join(source) + "\n"
    check(text, server)
    return Generated(f"cap/mcp/{segment}", f"{segment}.gleam", text, bounded("\n".join(surface) + "\n", server))


def check(source: str, server: str) -> None:
    """The backstop: raises :class:`SanitizerBreach` on an ``@`` outside comment lines and string literals."""
    for number, line in enumerate(source.split("\n"), 1):
        if not line.lstrip(" ").startswith("//") and "@" in _STRING.sub('""', line):
            raise SanitizerBreach(f"an @ in code, line {number} of the Gleam module", clip(server, 120))


def _comment(prefix: str, lines: Sequence[str]) -> list[str]:
    return [f"{prefix} {line}" if line else prefix for line in lines]


def _imports(made: Sequence[Function]) -> list[str]:
    # An unused import fails a build that takes warnings for errors.
    if not made:
        return []
    imports = ["", "import cap/internal/mcp as internal", "import cap/mcp", "import cap/report"]
    return [*imports, "import gleam/list"] if any(function.required for function in made) else imports


def _doc(server: str, function: Function) -> list[str]:
    required = [
        describe(
            f"`{argument.label}`",
            (f"wire name {quoted(argument.parameter.name)}", kind(argument.parameter.type), allowed(argument)),
            argument.parameter.note,
        )
        for argument in function.required
    ]
    optional = [
        describe(f"{quoted(argument.parameter.name)} (optional)", (), argument.parameter.note)
        for argument in function.optional
    ]
    return function_doc(server, function, _PASSING, [*required, *optional])


def _parameters(function: Function) -> list[tuple[str, str]]:
    if function.whole is not None:
        return [_WHOLE]
    return [*((argument.label, _type(argument.parameter.type)) for argument in function.required), _OPTIONS]


def _type(type_: ParameterType) -> str:
    match type_:
        case Simple(kind):
            return _TYPES[kind]
        case ListOf(kind):
            return f"List({_TYPES[kind]})"
    return "report.Value"


def _signature(function: Function) -> str:
    parameters = ", ".join(f"{label}: {type_}" for label, type_ in _parameters(function))
    return f"pub fn {function.name}({parameters}) -> {_RETURNS}"


def _definition(server: str, function: Function) -> list[str]:
    target = f"{gleam_literal(server)}, {gleam_literal(function.tool.name)}"
    return [
        f"pub fn {function.name}(",
        *(f"  {label} {label}: {type_}," for label, type_ in _parameters(function)),
        f") -> {_RETURNS} {{",
        f"  internal.invoke({target}, {_arguments(function)})",
        "}",
    ]


def _arguments(function: Function) -> str:
    if function.whole is not None:
        return "arguments"
    if not function.required:
        return "report.object(options)"
    pairs = ", ".join(f"#({gleam_literal(item.parameter.name)}, {_value(item)})" for item in function.required)
    return f"report.object(list.append([{pairs}], options))"


def _value(argument: Argument) -> str:
    match argument.parameter.type:
        case Simple(kind):
            return f"{_ENCODERS[kind]}({argument.label})"
        case ListOf(kind):
            return f"report.list(list.map({argument.label}, {_ENCODERS[kind]}))"
    return argument.label
