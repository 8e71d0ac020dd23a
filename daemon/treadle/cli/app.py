"""The group of all verbs. A verb's module is imported when the verb is used, so that one costs only itself."""

from __future__ import annotations

import importlib
from typing import Final

import click

VERBS: Final[dict[str, tuple[str, str]]] = {
    "serve": ("serve", "Run the daemon in the foreground."),
    "list": ("list_", "Show the servers, or one server's tools."),
    "call": ("call", "Call one tool."),
    "status": ("status", "Show how each server is and why."),
    "wait": ("wait", "Wait until servers are ready."),
    "shutdown": ("shutdown", "Stop the daemon; show the evidence of each server's end."),
}
"""Verb to module (below this package, command ``command``) and one-line help, in the order of the help text."""


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"treadle.cli.{VERBS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], VERBS, 1) if args else []
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # From the table: the help of the group must not import every verb.
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, text) for verb, (_, text) in VERBS.items()])


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--socket",
    "socket",
    metavar="PATH",
    help="The daemon's socket (default: $TREADLE_SOCKET, then the usual path).",
)
@click.version_option(package_name="treadle", message="treadle %(version)s")
@click.pass_context
def treadle(ctx: click.Context, socket: str | None) -> None:
    """Treadle, the broker daemon for MCP servers.

    \b
    treadle serve --config treadle.toml     run the daemon
    treadle list                            its servers
    treadle call demo add a=1 b=2           one call
    """
    ctx.obj = socket
