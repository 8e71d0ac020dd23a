"""The input of the generator: the tools that one server lists, and the digest of that listing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from treadle.errors import DuplicateTool, FieldFault
from treadle.text import quote

_MESSAGE = "tools/list result"


@dataclass(frozen=True, slots=True)
class ListedTool:
    """One tool as its server describes it. The schemas and annotations are parsed JSON; None: absent."""

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: Any = None
    output_schema: Any = None
    annotations: Any = None


def from_result(value: Any) -> tuple[ListedTool, ...]:
    """The tools of a ``tools/list`` result, or of the socket's answer to ``list`` (both spellings of the keys).

    Raises :class:`FieldFault` (naming the index, from 0) for a tool without a name or schema or with text that is
    no string, and :class:`DuplicateTool` for a repeated name.
    """
    entries = value.get("tools") if isinstance(value, dict) else None
    if not isinstance(entries, list):
        raise FieldFault(_MESSAGE, "tools", "an array", _kind(entries))
    seen: dict[str, int] = {}
    tools = []
    for index, entry in enumerate(entries):
        tool = _tool(entry, f"tools[{index}]")
        if tool.name in seen:
            raise DuplicateTool(quote(tool.name), seen[tool.name], index)
        seen[tool.name] = index
        tools.append(tool)
    return tuple(tools)


def _tool(entry: Any, where: str) -> ListedTool:
    if not isinstance(entry, dict):
        raise FieldFault(_MESSAGE, where, "an object", _kind(entry))
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise FieldFault(_MESSAGE, f"{where}.name", "a non-empty string", _kind(name))
    schema = entry.get("inputSchema", entry.get("input_schema"))
    if schema is None:
        raise FieldFault(_MESSAGE, f"{where}.inputSchema", "a schema", _kind(schema))
    return ListedTool(
        name,
        title=_text(entry, "title", where),
        description=_text(entry, "description", where),
        input_schema=schema,
        output_schema=entry.get("outputSchema", entry.get("output_schema")),
        annotations=entry.get("annotations"),
    )


def _text(entry: dict[str, Any], key: str, where: str) -> str | None:
    value = entry.get(key)
    if value is not None and not isinstance(value, str):
        raise FieldFault(_MESSAGE, f"{where}.{key}", "a string", _kind(value))
    return value


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}
    return "an empty string" if value == "" else names.get(type(value), "an object")


def digest(listing: Sequence[ListedTool]) -> str:
    """The SHA-256 (64 hex digits) of the listing, whatever the order in which the server lists its tools."""
    # Two entries can share a name only in a listing that no server may send; the text itself then breaks the tie.
    entries = sorted((tool.name, canonical(_fields(tool))) for tool in listing)
    return hashlib.sha256(f"[{','.join(text for _, text in entries)}]".encode()).hexdigest()


def _fields(tool: ListedTool) -> dict[str, Any]:
    fields = {
        "annotations": tool.annotations,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "name": tool.name,
        "outputSchema": tool.output_schema,
        "title": tool.title,
    }
    return {key: value for key, value in fields.items() if value is not None}


def canonical(value: Any) -> str:
    """``value`` as ASCII JSON: keys sorted by code point, no white space; any depth, any number."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    except (RecursionError, ValueError):  # nested past the interpreter's stack, or a number past its digit limit
        return _canonical(value)


def _canonical(value: Any) -> str:
    out: list[str] = []
    stack: list[tuple[bool, Any]] = [(False, value)]
    while stack:
        is_text, item = stack.pop()
        if is_text:
            out.append(item)
        elif isinstance(item, dict):
            stack.append((True, "}"))
            for index, key in enumerate(sorted(item, reverse=True)):
                last = index == len(item) - 1
                stack += [(False, item[key]), (True, f"{'' if last else ','}{json.dumps(key)}:")]
            stack.append((True, "{"))
        elif isinstance(item, list):
            stack.append((True, "]"))
            for index in range(len(item) - 1, -1, -1):
                stack.append((False, item[index]))
                if index:
                    stack.append((True, ","))
            stack.append((True, "["))
        else:
            out.append(_scalar(item))
    return "".join(out)


def _scalar(value: Any) -> str:
    try:
        return json.dumps(value)
    except ValueError:
        return hex(value)  # hexadecimal has no digit limit
