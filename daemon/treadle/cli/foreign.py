"""Other programs' files of MCP servers, read into plain entries (pure).

Known: the ``mcpServers`` object of Claude Desktop, Claude Code (``.mcp.json`` and ``~/.claude.json``, whose
projects hold further ones), Cursor and others; VS Code's ``servers`` with their ``inputs`` (``mcp.json``, or below
``mcp`` in ``settings.json``); Codex' ``[mcp_servers.*]`` tables (``config.toml``).
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


class NotUnderstood(ValueError):
    """The file is none of the known formats; the text says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One server as a file has it. ``spot`` is where it stands in the file."""

    name: str
    spot: str
    table: dict[str, Any]
    inputs: dict[str, str] = field(default_factory=dict)


def entries(text: str, file: str) -> list[Entry]:
    """The servers in ``text``, in its order. Raises :class:`NotUnderstood`."""
    document = _toml(text) if file.endswith(".toml") else _json(text)
    found = list(_entries(document))
    if not found and not any(
        key in document for key in ("mcpServers", "servers", "mcp_servers", "mcp", "projects")
    ):
        raise NotUnderstood(
            "it has none of mcpServers (Claude, Cursor), servers (VS Code) and [mcp_servers.*] (Codex)"
        )
    return found


def _entries(document: dict[str, Any]) -> Iterator[Entry]:
    for key in ("mcpServers", "mcp_servers", "servers"):
        inputs = {
            str(one.get("id")): str(one.get("description", ""))
            for one in _list(document.get("inputs"))
            if isinstance(one, dict)
        }
        for name, table in _dict(document.get(key)).items():
            yield Entry(name, f"{key}.{name}", _dict(table), inputs)
    yield from _entries_below(_dict(document.get("mcp")), "mcp")
    for path, project in _dict(document.get("projects")).items():
        yield from _entries_below(_dict(project), f"projects.{path}")


def _entries_below(document: dict[str, Any], where: str) -> Iterator[Entry]:
    for entry in _entries(document) if document else ():
        yield Entry(entry.name, f"{where}.{entry.spot}", entry.table, entry.inputs)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotUnderstood(f"it is not TOML: {error}") from None


_TOKEN = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/|,(?=\s*(?:(?://[^\n]*|/\*.*?\*/)\s*)*[}\]])', re.DOTALL
)


def _json(text: str) -> dict[str, Any]:
    # The editors allow comments and trailing commas in their files.
    plain = _TOKEN.sub(lambda found: found[0] if found[0].startswith('"') else "", text.removeprefix("\ufeff"))
    try:
        document = json.loads(plain)
    except (ValueError, RecursionError) as error:
        raise NotUnderstood(f"it is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise NotUnderstood("it holds no JSON object")
    return document
