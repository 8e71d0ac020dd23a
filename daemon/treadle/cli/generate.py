"""``treadle generate``."""

from __future__ import annotations

import click

from treadle.cli import common
from treadle.cli.options import Options

TARGETS = ("gleam", "python", "typescript")


@click.command()
@click.argument("server", required=False, shell_complete=common.complete_server)
@click.option("--target", type=click.Choice(TARGETS), help="The language of the module.")
@click.option("--out", metavar="FILE|DIR", type=click.Path(), help="Where to write it (default: standard output).")
@click.option("--all", "every", is_flag=True, help="Every server that is ready; --out names a directory.")
@click.option("--surface", is_flag=True, help="The text for a model to read, instead of the module.")
@click.option("--async", "asynchronous", is_flag=True, help="Coroutines (Python).")
@click.option("--from-json", metavar="FILE", type=click.Path(), help="A tools/list result; no daemon is asked.")
@click.option("--check", metavar="FILE", type=click.Path(), help="Does the listing still give this module?")
@common.options
def command(
    options: Options,
    server: str | None,
    target: str | None,
    out: str | None,
    every: bool,
    surface: bool,
    asynchronous: bool,
    from_json: str | None,
    check: str | None,
) -> int:
    """Make a typed module over the tools of SERVER.

    With --check FILE the exit code is 0 when the live listing still gives this module, 1 when it differs (what
    was added, removed and changed is printed), 2 when it cannot be told.

    \b
    treadle generate demo --target python --out tools/demo.py
    treadle generate --all --target typescript --out src/tools
    treadle generate demo --check tools/demo.py
    """
    from treadle.cli import generating

    if every == (server is not None):
        raise click.UsageError("name one SERVER, or give --all")
    if from_json and every:
        raise click.UsageError("--from-json is one listing: name its SERVER instead of --all")
    if check is not None:
        if every or server is None:
            raise click.UsageError("--check looks at the module of one SERVER")
        return generating.check(server, check, from_json, options)
    if target is None:
        raise click.UsageError(f"--target is needed: {', '.join(TARGETS)}")
    if asynchronous and target != "python":
        raise click.UsageError("--async is for --target python")
    if every and out is None:
        raise click.UsageError("--all writes several modules: name a directory with --out")
    job = generating.Job(target, out, surface=surface, asynchronous=asynchronous)
    if server is None:
        return generating.generate_all(job, options)
    return generating.generate_one(server, job, from_json, options)
