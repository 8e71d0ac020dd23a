"""``treadle call``."""

from __future__ import annotations

import sys
from typing import Any

import click

from treadle.cli import arguments, common
from treadle_client import Client, ToolResult


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("server")
@click.argument("tool")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--json-args", metavar="JSON|-|@FILE", help="All arguments as one JSON object.")
@click.option(
    "--timeout", type=click.FloatRange(min=0.001), metavar="SECONDS", help="How long to wait for the answer."
)
@common.json_option
@common.socket_option
@click.pass_context
def command(
    ctx: click.Context,
    server: str,
    tool: str,
    words: tuple[str, ...],
    json_args: str | None,
    timeout: float | None,
    as_json: bool,
    socket: str | None,
) -> None:
    """Call one tool and print its answer.

    A value is taken as the type that the tool's schema asks for; KEY:=JSON gives JSON, KEY=@FILE a file's text.
    The exit code is 1 when the tool itself said no.

    \b
    treadle call demo add a=1 b=2
    treadle call demo echo text=@notes.txt
    treadle call demo add --json-args '{"a": 1, "b": 2}'
    """
    if words and json_args is not None:
        raise click.UsageError("give KEY=VALUE words or --json-args, not both")
    try:
        given = None if json_args is None else arguments.whole(_text(json_args))
        with common.broker(ctx, socket) as broker:
            if given is None:
                given = _spelled(broker, server, tool, words)
            result = broker.call(server, tool, given, timeout=timeout)
    except arguments.BadWord as error:
        raise click.UsageError(str(error)) from None
    show(result, as_json)
    sys.exit(common.TOOL_SAID_NO if result.is_error else common.OK)


def _spelled(broker: Client, server: str, tool: str, words: tuple[str, ...]) -> dict[str, Any]:
    if not words:
        return {}
    schema = next((one["input_schema"] for one in broker.list(server) if one["name"] == tool), None)
    return arguments.arguments_of(words, schema, _read)


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _text(source: str) -> str:
    if source == "-":
        return sys.stdin.read()
    if source.startswith("@"):
        try:
            return _read(source[1:])
        except OSError as error:
            raise arguments.BadWord(f"--json-args {source}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise arguments.BadWord(f"--json-args {source}: the file is not UTF-8 text") from None
    return source


def show(result: ToolResult, as_json: bool) -> None:
    """Print a result: as JSON the value of the socket protocol, else its text; an error's text goes to stderr."""
    if as_json:
        common.print_json(result.to_value())
        return
    for block in result.content:
        line = block["text"] if block["type"] == "text" else f"[{block['type']}]"
        click.echo(line, err=result.is_error)
    if not result.content and result.has_structured:
        common.print_json(result.structured)
