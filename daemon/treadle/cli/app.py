"""The group of all verbs. A verb's module is imported when the verb is used, so that one costs only itself."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Final

import click

from treadle.cli.codes import MEANINGS
from treadle.cli.common import not_empty

VERBS: Final[dict[str, tuple[str, str]]] = {
    "serve": ("serve", "Run the daemon in the foreground."),
    "list": ("list_", "Show the servers, or one server's tools."),
    "tools": ("tools", "Show one server's tools, or one tool in full."),
    "call": ("call", "Call one tool."),
    "wait": ("wait", "Wait until servers are ready."),
    "status": ("status", "Show how each server is and why."),
    "top": ("top", "Watch the servers at work."),
    "logs": ("logs", "Show what a server wrote to its standard error."),
    "metrics": ("metrics", "Print the counters for Prometheus (OpenMetrics text)."),
    "restart": ("manage", "Stop servers and start them anew."),
    "stop": ("manage", "Stop servers; show the evidence of each one's end."),
    "start": ("manage", "Start servers that are down."),
    "reload": ("reload", "Read the configuration again."),
    "shutdown": ("shutdown", "Stop the daemon; show the evidence of each server's end."),
    "check": ("check", "Check a configuration, without a daemon."),
    "doctor": ("doctor", "Look for what is wrong with this machine and configuration."),
    "import": ("import_", "Make configuration of other programs' MCP servers."),
    "generate": ("generate", "Make a typed module over a server's tools."),
    "lint": ("lint", "Show what a server's listing makes hard."),
    "install-service": ("install_service", "Write the systemd units of this installation."),
    "completion": ("completion", "Print the completion script of a shell."),
    "version": ("version", "Show the versions in use."),
}
"""Verb to module (below this package) and one-line help, in the order of the help text.

The click command is the module's ``command``, or the attribute named like the verb where a module holds several.
"""


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"treadle.cli.{VERBS[cmd_name][0]}")
        command: click.Command = getattr(module, "command", None) or getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], VERBS, 1) if args else []
            if not near or "Did you mean" in error.message:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # From the table: the help of the group must not import every verb.
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, text) for verb, (_, text) in VERBS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in MEANINGS.items()])


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--socket",
    "socket",
    metavar="PATH",
    callback=not_empty,
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


def run(line: Sequence[str]) -> int:
    """Run a command line; returns the exit code. What click has to say about it is on standard error."""
    if line[:1] == ["help"]:
        line = [*line[1:2], "--help"]
    try:
        code = treadle.main(args=list(line), prog_name="treadle", standalone_mode=False)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    return code if isinstance(code, int) else 0
