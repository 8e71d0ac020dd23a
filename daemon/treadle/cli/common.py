"""What the click commands share: the options of every verb, types, completions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from treadle.cli.options import Options

SECONDS: Final = click.FloatRange(min=0.001)
_PATIENCE_S: Final = 1.0


def options(function: Callable[..., int]) -> Callable[..., int]:
    """``--json``, ``--socket``, ``-q`` and ``-v``, handed over as the argument ``options``."""

    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @socket_option
    @click.option("-q", "--quiet", is_flag=True, help="Say only what was asked for, and errors.")
    @click.option("-v", "--verbose", is_flag=True, help="Say more: times, codes, the socket.")
    @click.pass_context
    def with_options(
        ctx: click.Context, /, as_json: bool, socket: str | None, quiet: bool, verbose: bool, **rest: Any
    ) -> int:
        given = Options(socket=socket or ctx.obj, as_json=as_json, quiet=quiet, verbose=verbose)
        return function(given, **rest)

    # Not functools.wraps, whose type would hide the one that pass_context asks for.
    functools.update_wrapper(with_options, function)
    return with_options


def socket_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--socket`` after the verb."""
    return click.option(
        "--socket", metavar="PATH", callback=not_empty,
        help="The daemon's socket (default: $TREADLE_SOCKET, then the usual path).",
    )(function)  # fmt: skip


def not_empty(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A path as it is; an empty one, as of a variable that is not set, names nothing."""
    if value == "":
        raise click.BadParameter("it is empty", ctx, param)
    return value


def config_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--config``."""
    return click.option(
        "--config", "config_path", metavar="FILE", type=click.Path(), callback=not_empty,
        help="The configuration (default: $TREADLE_CONFIG, then the usual paths).",
    )(function)  # fmt: skip


# --- completion -----------------------------------------------------------------------------------


def complete_server(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of the servers, with their states. Silent when no daemon answers."""
    return [
        CompletionItem(row["name"], help=row["state"])
        for row in _ask(ctx, None)
        if row["name"].startswith(incomplete)
    ]


def complete_tool(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The tools of the server that was named before."""
    return _tools(ctx, ctx.params.get("server"), incomplete)


def complete_server_and_tool(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """A server, then one of its tools, then the names of that tool's arguments."""
    words = ctx.params.get("words") or ()
    if not words:
        return complete_server(ctx, param, incomplete)
    if len(words) == 1:
        return _tools(ctx, words[0], incomplete)
    schema = next((tool["input_schema"] for tool in _ask(ctx, words[0]) if tool["name"] == words[1]), None)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    names = properties if isinstance(properties, dict) else {}
    return [CompletionItem(f"{name}=") for name in names if name.startswith(incomplete) and name.isidentifier()]


def _tools(ctx: click.Context, server: str | None, incomplete: str) -> list[CompletionItem]:
    # A name that a shell would have to quote is not offered.
    names = [tool["name"] for tool in _ask(ctx, server)] if server else []
    return [CompletionItem(name) for name in names if name.startswith(incomplete) and _is_word(name)]


def _is_word(name: str) -> bool:
    return all(character.isalnum() or character in "_.-" for character in name)


def _ask(ctx: click.Context, server: str | None) -> list[dict[str, Any]]:
    from treadle_client import BrokerError, Client

    socket = ctx.params.get("socket") or ctx.find_root().params.get("socket")
    try:
        with Client(socket, timeout=_PATIENCE_S) as broker:
            return broker.list(server)
    except (BrokerError, OSError):
        return []
