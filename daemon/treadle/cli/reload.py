"""``treadle reload``."""

from __future__ import annotations

import click

from treadle import evidence
from treadle.cli import common, output
from treadle.cli.codes import OK, UNCONFIRMED
from treadle.cli.connection import Connected
from treadle.cli.options import Options


@click.command()
@common.options
def command(options: Options) -> int:
    """Have the daemon read its configuration again; servers that did not change keep running.

    With any error in the file nothing changes, and the exit code is 2.

    \b
    treadle reload
    """
    with Connected(options, goes_on="reload") as broker:
        done = broker.reload()
    stopped = [*done["changed"], *done["removed"]]
    if options.as_json:
        output.print_json(done)
    elif not options.quiet:
        rows = [("added", name, "") for name in done["added"]]
        rows += [(key, row["name"], evidence.of_row(row)) for key in ("changed", "removed") for row in done[key]]
        rows += [("unchanged", name, "") for name in done["unchanged"]]
        output.table(rows)
        if waiting := done.get("needs_restart"):
            output.note(f"treadle: restart the daemon for what changed in {', '.join(waiting)}")
    return UNCONFIRMED if any("error" in row for row in stopped) else OK
