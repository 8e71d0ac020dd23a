"""``treadle import``."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Sequence
from typing import Any

import click

from treadle.cli import common, output
from treadle.cli.codes import OK, USAGE
from treadle.cli.foreign import NotUnderstood, entries
from treadle.cli.importing import Skipped, Table, convert, provide
from treadle.cli.options import Options
from treadle.config import Config, ServerConfig, parse
from treadle.errors import ConfigError


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
@click.option("--out", metavar="FILE", type=click.Path(), help="Append the tables to this configuration.")
@click.option("--dry-run", is_flag=True, help="With --out: show what would be appended, and leave the file alone.")
@common.options
def command(options: Options, files: tuple[str, ...], out: str | None, dry_run: bool) -> int:
    """Make [mcp.*] tables of the MCP servers of other programs.

    Reads the files of Claude Desktop, Claude Code (.mcp.json, ~/.claude.json), Cursor, VS Code (mcp.json) and
    Codex (config.toml). Secrets are not copied: a table names the variable that holds one. Without --out the
    tables are printed.

    \b
    treadle import ~/.claude.json
    treadle import .mcp.json .vscode/mcp.json --out ~/.config/treadle/treadle.toml
    """
    there = _existing(out)
    if isinstance(there, str):
        output.problem(there)
        return USAGE
    results: list[Table | Skipped] = []
    bad = False
    for file in files:
        try:
            results += _convert(file, there, [one.name for one in results if isinstance(one, Table)])
        except (OSError, NotUnderstood, UnicodeDecodeError) as error:
            output.problem(f"{file}: {_said(error)}")
            bad = True
    tables = [one for one in results if isinstance(one, Table)]
    text = "\n".join(table.text for table in tables)
    made = ""
    if out is not None and not dry_run and tables and not bad:
        folder = os.path.dirname(os.path.realpath(out))
        made = "" if os.path.isdir(folder) else folder
        try:
            append(out, text)
        except OSError as error:
            output.problem(f"{out}: {error.strerror}")
            return USAGE
    if options.as_json:
        output.print_json(_body(results, text))
    elif text and (out is None or dry_run):
        output.line(text.rstrip("\n"))
    if not options.quiet and not options.as_json:
        if made:
            output.note(f"made the directory {made}")
        _tell(results, out if not dry_run else None)
    return USAGE if bad else OK


def _convert(file: str, there: Config | None, taken: Sequence[str]) -> list[Table | Skipped]:
    with open(file, encoding="utf-8") as opened:
        found = entries(opened.read(), file)
    if not found:
        output.note(f"no MCP servers in {file}")
    names = {*taken, *(server.name for server in there.servers)} if there is not None else {*taken}
    results: list[Table | Skipped] = []
    for entry in found:
        result = convert(entry, names, os.environ)
        if isinstance(result, Table):
            same = _same(result, there)
            if same is not None:
                result = Skipped(entry.name, entry.spot, f"[mcp.{same}] runs the same command already")
            else:
                names.add(result.name)
        results.append(result)
    return results


def _same(table: Table, there: Config | None) -> str | None:
    """The name of a server of the file that runs the same command, if any: an import may be repeated."""
    fresh = parse(table.text, "import").servers[0]
    for server in there.servers if there is not None else ():
        if (
            isinstance(server, ServerConfig)
            and isinstance(fresh, ServerConfig)
            and server.command == fresh.command
        ):
            return server.name
    return None


def _existing(out: str | None) -> Config | str | None:
    """The configuration to append to, None when there is no such file yet; a text says why it cannot be used."""
    if out is None or not os.path.exists(out):
        return None
    try:
        with open(out, encoding="utf-8") as file:
            return parse(file.read(), out)
    except ConfigError as error:
        return f"{out} has errors; nothing was written\n{error.problems[0]}"
    except (OSError, UnicodeDecodeError) as error:
        return f"{out}: {_said(error)}"


def append(path: str, text: str) -> None:
    """Add ``text`` to the end of ``path``, whole or not at all; a new file is for its owner alone.

    Raises ``OSError``.
    """
    path = os.path.realpath(path)
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    old, mode = "", 0o600
    if os.path.exists(path):
        with open(path, encoding="utf-8", newline="") as file:
            old = file.read()
        mode = stat.S_IMODE(os.stat(path).st_mode)
    gap = "" if not old else "\n" if old.endswith("\n") else "\n\n"
    descriptor, fresh = tempfile.mkstemp(dir=folder, prefix=f".{os.path.basename(path)}.")
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(old + gap + text)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        os.unlink(fresh)
        raise


def _said(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)


def _tell(results: Sequence[Table | Skipped], out: str | None) -> None:
    for result in results:
        if isinstance(result, Skipped):
            output.note(f"skipped {result.name}: {result.reason}")
            continue
        output.note(f"{result.name}: {'appended to ' + out if out else 'converted'}")
        for note in result.notes:
            output.note(f"  {note}")
        if result.secrets:
            output.note(f"  secret: {provide(result.secrets)}")


def _body(results: Sequence[Table | Skipped], text: str) -> dict[str, Any]:
    tables = [one for one in results if isinstance(one, Table)]
    return {
        "servers": [
            {"name": one.name, "source": one.source, "notes": one.notes, "secrets": one.secrets} for one in tables
        ],
        "skipped": [
            {"name": one.name, "source": one.source, "reason": one.reason}
            for one in results
            if isinstance(one, Skipped)
        ],
        "toml": text,
    }
