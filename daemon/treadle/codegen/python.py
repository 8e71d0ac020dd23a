"""The Python target: typed functions over ``treadle_client.facade`` (codegen page, section 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .docs import bullet_of, function_doc, header, provenance
from .functions import Function, bounded, functions
from .generated import Generated
from .listing import ListedTool
from .names import PYTHON, type_name
from .python_check import check
from .python_types import LINE, TypeWriter, types
from .shapes import Reader, Shape, Types, Unknown, reachable
from .text import docstring_line, python_literal

_PASSING: Final = "An optional parameter that is left out is not sent; None is sent as null."
_WHOLE: Final = "arguments: dict[str, Any]"


@dataclass(frozen=True, slots=True)
class _Typed:
    """A function with the shapes of its arguments (required, then optional) and of its structured result."""

    function: Function
    arguments: tuple[Shape, ...]
    result: Shape


@dataclass(frozen=True, slots=True)
class _Written:
    """A function as text: doc lines, parameters (``*`` opens the keyword-only ones), type of the result."""

    function: Function
    doc: list[str]
    parameters: list[str]
    result: str


def generate(server: str, listing: Sequence[ListedTool], *, asynchronous: bool = False) -> Generated:
    """The Python module over ``server``; its functions are coroutines where ``asynchronous``.

    Raises a :class:`GenerationRefused` fault.
    """
    made = functions(server, listing, PYTHON)
    table = types()
    typed = [_read(function, table) for function in made]
    writer = TypeWriter(table)
    for record in reachable(table.records, [shape for one in typed for shape in (*one.arguments, one.result)]):
        writer.declare(record)
    written = [_write(server, one, writer) for one in typed]
    segment = PYTHON.module(server)
    # The ceiling first: it bounds what the check has to read.
    surface = bounded(_surface(server, segment, writer, written, asynchronous), server)
    source = _source(server, listing, writer, written, asynchronous)
    check(source, server, [function.tool.name for function in made])
    return Generated(segment, f"{segment}.py", source, surface)


def _read(function: Function, table: Types) -> _Typed:
    name, tool = function.type_prefix, function.tool
    reader = Reader(table, tool.input_schema, name)
    arguments = tuple(
        reader.argument(argument.parameter, name + type_name(argument.parameter.name))
        for argument in function.required + function.optional
    )
    result: Shape = Unknown("no output schema is given")
    if tool.output_schema is not None:
        reader = Reader(table, tool.output_schema, f"{name}Result", reading=True)
        result = reader.read(tool.output_schema, f"{name}Result")
    return _Typed(function, arguments, result)


def _write(server: str, typed: _Typed, writer: TypeWriter) -> _Written:
    function = typed.function
    name = function.type_prefix
    required: list[str] = []
    optional: list[str] = []
    bullets: list[str] = []
    for index, (argument, shape) in enumerate(
        zip(function.required + function.optional, typed.arguments, strict=True)
    ):
        is_optional = index >= len(function.required)
        end = " | Unset = UNSET" if is_optional else ""
        room = LINE - len(f"    {argument.label}: {end},")
        text = f"{argument.label}: {writer.fit(shape, room, name + type_name(argument.parameter.name))}{end}"
        (optional if is_optional else required).append(text)
        bullets.append(bullet_of(argument, shape, is_optional))
    if function.whole is not None:
        writer.used.add("Any")
        required = [_WHOLE]
    if optional:
        writer.used |= {"UNSET", "Unset"}
    doc = function_doc(server, function, _PASSING if optional else "", bullets)
    result = writer.fit(typed.result, LINE - len(") -> Result[]:"), f"{name}Answer")
    return _Written(function, doc, [*required, *(["*", *optional] if optional else [])], result)


def _source(
    server: str,
    listing: Sequence[ListedTool],
    writer: TypeWriter,
    written: Sequence[_Written],
    asynchronous: bool,
) -> str:
    lines = _docstring(header(server, listing), "")
    if written:
        lines += ["", "from __future__ import annotations", "", *_imports(writer.used, asynchronous)]
    for declaration in writer.classes:
        lines += ["", "", *declaration]
    for index, declaration in enumerate(writer.assignments):
        lines += [*(["", ""] if writer.classes and not index else [""]), *declaration]
    for one in written:
        lines += ["", "", *_definition(server, one, asynchronous)]
    return "\n".join(lines) + "\n"


def _imports(used: set[str], asynchronous: bool) -> list[str]:
    # What is not used is not imported: a linter would say so.
    typing = [name for name in ("Any", "Literal", "NotRequired", "TypedDict") if name in used]
    seam = [*(["UNSET", "Result", "Unset"] if "UNSET" in used else ["Result"]), _invoke(asynchronous)]
    lines = [f"from typing import {', '.join(typing)}", ""] if typing else []
    return [*lines, f"from treadle_client.facade import {', '.join(seam)}"]


def _invoke(asynchronous: bool) -> str:
    return "invoke_async" if asynchronous else "invoke"


def _docstring(lines: Sequence[str], indent: str) -> list[str]:
    first, *rest = map(docstring_line, lines)
    # Four quotes in a row would be read as three and one.
    first = f"\\{first}" if first.startswith('"') else first
    return [f'{indent}"""{first}', *(f"{indent}{line}" if line else "" for line in rest), f'{indent}"""']


def _definition(server: str, written: _Written, asynchronous: bool) -> list[str]:
    function = written.function
    start = f"{'async ' if asynchronous else ''}def {function.name}("
    if written.parameters:
        head = [start, *(f"    {text}," if text != "*" else "    *," for text in written.parameters)]
        head.append(f") -> Result[{written.result}]:")
    elif len(f"{start}) -> Result[{written.result}]:") <= LINE:
        head = [f"{start}) -> Result[{written.result}]:"]
    else:
        head = [f"{start}) -> Result[", f"    {written.result}", "]:"]
    return [
        *head,
        *_docstring([*written.doc, *_last_line(written.doc)], "    "),
        f"    return {'await ' if asynchronous else ''}{_invoke(asynchronous)}(",
        f"        {python_literal(server)},",
        f"        {python_literal(function.tool.name)},",
        *_arguments(function),
        "    )",
    ]


def _last_line(doc: Sequence[str]) -> list[str]:
    # The formatter would pull the closing quotes up to a docstring of one line.
    return ["", "It takes no parameter."] if len(doc) == 1 else []


def _arguments(function: Function) -> list[str]:
    if function.whole is not None:
        return ["        arguments,"]
    arguments = function.required + function.optional
    if not arguments:
        return ["        {},"]
    pairs = [f"            {python_literal(item.parameter.name)}: {item.label}," for item in arguments]
    return ["        {", *pairs, "        },"]


def _surface(
    server: str, segment: str, writer: TypeWriter, written: Sequence[_Written], asynchronous: bool
) -> str:
    lines = [f"### {segment}", "", *_comment(provenance(server))]
    for declaration in writer.classes + writer.assignments:
        lines += ["", *declaration]
    start = "async def" if asynchronous else "def"
    for one in written:
        signature = f"{start} {one.function.name}({', '.join(one.parameters)}) -> Result[{one.result}]: ..."
        lines += ["", *_comment(one.doc), signature]
    return "\n".join(lines) + "\n"


def _comment(lines: Sequence[str]) -> list[str]:
    return [f"# {line}" if line else "#" for line in lines]
