"""``treadle list``."""

from __future__ import annotations

from typing import Any

import click

from treadle.cli import common


@click.command()
@click.argument("server", required=False)
@common.json_option
@common.socket_option
@click.pass_context
def command(ctx: click.Context, server: str | None, as_json: bool, socket: str | None) -> None:
    """Show the servers, or the tools of SERVER.

    \b
    treadle list
    treadle list demo
    """
    with common.broker(ctx, socket) as broker:
        if server is None:
            rows = broker.list()
            if as_json:
                common.print_json(rows)
            else:
                common.table(
                    [(row["name"], row["state"], f"{row['tools']} tools", row.get("reason", "")) for row in rows]
                )
            return
        tools = broker.list(server)
    if as_json:
        common.print_json({"server": server, "tools": tools})
    else:
        common.table([(signature(tool), _first_line(tool.get("description", ""))) for tool in tools])


def signature(tool: dict[str, Any]) -> str:
    """``name(required: type, optional?: type)`` of one tool, on one line, from text that is not trusted."""
    schema = tool["input_schema"] if isinstance(tool["input_schema"], dict) else {}
    properties = schema.get("properties")
    required = schema.get("required")
    parts = []
    for name, own in properties.items() if isinstance(properties, dict) else ():
        kind = own.get("type", "any") if isinstance(own, dict) else "any"
        mark = "" if isinstance(required, list) and name in required else "?"
        parts.append(f"{name}{mark}: {kind if isinstance(kind, str) else 'any'}")
    return _first_line(f"{tool['name']}({', '.join(parts)})", 100)


def _first_line(text: str, limit: int = 100) -> str:
    from treadle.text import quote

    return quote(text.strip().partition("\n")[0], limit)
