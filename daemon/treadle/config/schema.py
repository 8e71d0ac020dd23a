"""The JSON schema of the configuration file, made from the definitions in :mod:`treadle.config.model`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from treadle.config.model import BROKER_KEYS, SERVER_KEYS, Key
from treadle.config.names import KEYWORDS, NAME_LIMIT, NAME_PATTERN, RESERVED


def schema() -> dict[str, Any]:
    """The schema (draft 2020-12) of a whole file. Other programs' top-level tables are allowed."""
    server = _table(SERVER_KEYS, "", "One MCP server.")
    name = {"pattern": NAME_PATTERN, "maxLength": NAME_LIMIT, "not": {"enum": sorted(KEYWORDS | RESERVED)}}
    servers = {"type": "object", "description": "The MCP servers.", "propertyNames": name}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Treadle configuration",
        "type": "object",
        "properties": {
            "broker": _table(BROKER_KEYS, "", "The daemon itself."),
            "mcp": servers | {"additionalProperties": server},
        },
    }


def render() -> str:
    """The text of the schema file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _table(keys: Sequence[Key], prefix: str, description: str) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for key in keys:
        first, *rest = key.name.removeprefix(prefix).split(".")
        if rest:
            inner = f"{prefix}{first}."
            members = [member for member in keys if member.name.startswith(inner)]
            properties.setdefault(first, _table(members, inner, ""))
        else:
            properties[first] = _value(key)
    table: dict[str, Any] = {"type": "object", "description": description} if description else {"type": "object"}
    table |= {"properties": properties, "additionalProperties": False}
    required = [key.name for key in keys if key.required]
    return table | {"required": required} if required else table


def _value(key: Key) -> dict[str, Any]:
    value = {"description": key.doc.replace("`", "")} | key.kind.schema()
    if key.default is None:
        return value
    return value | {"default": list(key.default) if isinstance(key.default, tuple) else key.default}
