"""``treadle call``."""

from __future__ import annotations

import click

from treadle.cli import calling, common
from treadle.cli.options import Options


@click.command()
@click.argument(
    "words", nargs=-1, metavar="SERVER TOOL [KEY=VALUE]...", shell_complete=common.complete_server_and_tool
)
@click.option("--json-args", metavar="JSON|-|@FILE", help="All arguments as one JSON object.")
@click.option("--timeout", type=common.SECONDS, metavar="SECONDS", help="How long to wait for the answer.")
@click.option(
    "--output", "form", type=click.Choice(calling.OUTPUTS), default="text", show_default=True,
    help="text: for people; json: the whole answer; raw: its bytes alone, images decoded.",
)  # fmt: skip
@common.options
def command(
    options: Options, words: tuple[str, ...], json_args: str | None, timeout: float | None, form: str
) -> int:
    """Call one tool and print its answer.

    A value is taken as the type that the tool's schema asks for; KEY:=JSON gives JSON, KEY=@FILE a file's text.
    SERVER.TOOL is accepted for SERVER TOOL. The exit code is 1 when the tool itself said no.

    \b
    treadle call demo add a=1 b=2
    treadle call demo.echo text=@notes.txt --json
    treadle call demo add --json-args '{"a": 1, "b": 2}' --timeout 5
    treadle call demo image --output raw > image.png
    """
    if not words:
        raise click.UsageError("Missing arguments 'SERVER TOOL'.")
    if len(words) < 2 and "." not in words[0]:
        raise click.UsageError(f"Missing argument 'TOOL': which tool of {words[0]}?")
    return calling.run(words, options, json_args=json_args, timeout=timeout, form=form)
