"""What ``treadle list`` and ``treadle tools`` show, apart from reading their command lines."""

from __future__ import annotations

from treadle.cli import output
from treadle.cli.codes import OK, USAGE
from treadle.cli.connection import Connected

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from treadle.cli.options import Options

_SIGNATURE_LIMIT: Final = 100


def run(server: str | None, options: Options, *, schema: bool = False) -> int:
    """Show the servers, or the tools of ``server``, with their whole schemas if asked. Returns the exit code."""
    with Connected(options) as broker:
        if server is None:
            rows = broker.list()
        else:
            tools = broker.list(server)
    if server is None:
        _show_servers(rows, options)
    elif options.as_json:
        output.print_json({"server": server, "tools": tools})
    elif not tools:
        output.note(f"server {server} offers no tools: it lists none, or tools.allow and tools.deny leave none")
    elif schema:
        for tool in tools:
            output.line(output.paint(signature(tool), "bold"))
            _show_schemas(tool)
    else:
        shown = [(signature(tool), first_line(tool.get("description", ""))) for tool in tools]
        output.table(shown, {0: lambda _: "bold"})
    return OK


def run_one(server: str, tool: str, options: Options) -> int:
    """Show one tool in full. Returns the exit code."""
    with Connected(options) as broker:
        tools = broker.list(server)
    found = next((one for one in tools if one["name"] == tool), None)
    if found is None:
        import difflib

        names = [one["name"] for one in tools]
        near = difflib.get_close_matches(tool, names, 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; `treadle list {server}` shows the tools there are"
        output.problem(f"server {server} has no tool {tool!r}{hint}")
        return USAGE
    if options.as_json:
        output.print_json(found)
    else:
        _show_tool(server, found)
    return OK


def _show_servers(rows: list[dict[str, Any]], options: Options) -> None:
    if options.as_json:
        output.print_json(rows)
        return
    if not rows:
        output.note("no servers are configured")
    shown = [
        (row["name"], row["state"], output.count(row["tools"], "tool"), row.get("reason", "")) for row in rows
    ]
    output.table(shown, {0: lambda _: "bold", 1: output.state_style})


def _show_tool(server: str, tool: dict[str, Any]) -> None:
    from treadle.text import sanitise

    output.line(output.paint(signature(tool), "bold"))
    if "title" in tool:
        output.line(first_line(tool["title"]))
    for text in str(tool.get("description", "")).splitlines():
        output.line(f"  {sanitise(text)}".rstrip())
    rows = [_argument(name, own, required) for name, own, required in _properties(tool)]
    if rows:
        output.line("\nARGUMENTS")
        output.table([("  " + name, kind, need, text) for name, kind, need, text in rows])
    output.line()
    _show_schemas(tool)
    words = [f"{name}=..." for name, _, required in _properties(tool) if required]
    output.line(f"\nExample: {first_line(' '.join(['treadle call', server, tool['name'], *words]))}")


def _show_schemas(tool: dict[str, Any]) -> None:
    import json

    for key in ("input_schema", "output_schema", "annotations"):
        if key in tool:
            # ASCII alone, so that nothing invisible of the server's reaches the terminal.
            output.line(f"  {key}: {json.dumps(tool[key], indent=2).replace(chr(10), chr(10) + '  ')}")


def _argument(name: str, own: Any, required: bool) -> tuple[str, str, str, str]:
    text = own.get("description", "") if isinstance(own, dict) else ""
    return first_line(name), kind_of(own), "required" if required else "optional", first_line(str(text))


def signature(tool: dict[str, Any]) -> str:
    """``name(required: type, optional?: type)`` of one tool, on one line, from text that is not trusted."""
    parts = [f"{name}{'' if required else '?'}: {kind_of(own)}" for name, own, required in _properties(tool)]
    return first_line(f"{tool['name']}({', '.join(parts)})", _SIGNATURE_LIMIT)


def _properties(tool: dict[str, Any]) -> list[tuple[str, Any, bool]]:
    schema = tool["input_schema"] if isinstance(tool["input_schema"], dict) else {}
    properties, required = schema.get("properties"), schema.get("required")
    return [
        (name, own, isinstance(required, list) and name in required)
        for name, own in (properties.items() if isinstance(properties, dict) else ())
    ]


def kind_of(schema: Any) -> str:
    """The type that a property's schema names, in a word or a few."""
    if not isinstance(schema, dict):
        return "any"
    values = schema.get("enum")
    if isinstance(values, list) and values and all(isinstance(value, str) for value in values):
        return first_line("|".join(values), 40)
    kind = schema.get("type")
    if isinstance(kind, list):
        return first_line("|".join(str(one) for one in kind), 40)
    return first_line(kind, 40) if isinstance(kind, str) else "any"


def first_line(text: str, limit: int = 100) -> str:
    """The first line of untrusted text, cut to ``limit`` characters."""
    from treadle.text import quote

    return quote(text.strip().partition("\n")[0], limit)
