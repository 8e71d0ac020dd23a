"""What ``generate`` and ``lint`` do: get a listing, make or compare modules, write files."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from treadle import codegen
from treadle.cli import codes, output
from treadle.cli.connection import Connected
from treadle.codegen import drift, seam
from treadle.codegen.text import quoted
from treadle.errors import Fault, explain

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from treadle.cli.options import Options
    from treadle.codegen import Generated, ListedTool

CANNOT_TELL = 2
DIFFERS = 1


class BadListing(ValueError):
    """A listing cannot be used; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to make, and where it goes (None: standard output)."""

    target: Any
    out: str | None
    surface: bool
    asynchronous: bool


def listing_of(server: str, from_json: str | None, options: Options) -> tuple[ListedTool, ...]:
    """The listing of ``server``: from the file ``from_json`` without a daemon, else the daemon's.

    Raises :class:`BadListing`; a daemon's failure ends the program by its code.
    """
    if from_json is None:
        with Connected(options) as broker:
            value: Any = {"tools": broker.list(server)}
    else:
        try:
            value = json.loads(Path(from_json).read_bytes())
        except OSError as error:
            raise BadListing(f"{from_json}: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise BadListing(f"{from_json}: is not JSON: {error}") from None
        if isinstance(value, dict) and isinstance(value.get("result"), dict):
            value = value["result"]  # a whole JSON-RPC answer was saved
    try:
        return codegen.from_result(value)
    except Fault as fault:
        raise BadListing(f"{from_json or server}: {explain(fault)}") from None


def generate_one(server: str, job: Job, from_json: str | None, options: Options) -> int:
    """Make the module of one server; print or write it."""
    try:
        made = _make(server, listing_of(server, from_json, options), job)
    except (BadListing, Fault) as problem:
        output.problem(str(problem))
        return codes.MALFORMED
    if job.out is None and options.as_json:
        output.print_json({"module_name": made.module_name, "source": made.source, "surface": made.surface})
        return codes.OK
    if job.out is None:
        text = made.surface if job.surface else made.source
        output.line(text.removesuffix("\n"))
        return codes.OK
    return _write([made], job, options)


def generate_all(job: Job, options: Options) -> int:
    """Make the module of every server that is ready. One that gives none is told, and costs the exit code."""
    with Connected(options) as broker:
        names = [row["name"] for row in broker.list() if row["state"] == "ready"]
    made, failed = [], False
    for name in names:
        try:
            made.append(_make(name, listing_of(name, None, options), job))
        except (BadListing, Fault) as problem:
            output.problem(str(problem))
            failed = True
    code = _write(made, job, options, into_directory=True)
    return code or (codes.MALFORMED if failed else codes.OK)


def _make(server: str, tools: Sequence[ListedTool], job: Job) -> Generated:
    return codegen.generate(server, tools, job.target, asynchronous=job.asynchronous)


def _write(made: Sequence[Generated], job: Job, options: Options, *, into_directory: bool = False) -> int:
    assert job.out is not None
    out = Path(job.out)
    directory = into_directory or out.is_dir() or job.out.endswith("/")
    files: dict[Path, str] = {}
    for module in made:
        path = out / module.file_name if directory else out
        if job.surface and directory:
            path = path.with_suffix(".md")
        files[path] = module.surface if job.surface else module.source
    if job.target == "typescript" and not job.surface:
        files[(out if directory else out.parent) / seam.FILE_NAME] = seam.SOURCE
    written = []
    code = codes.OK
    for path, text in files.items():
        try:
            changed = write_if_changed(path, text)
        except OSError as error:
            output.problem(f"{path}: {error.strerror}")
            code = codes.USAGE
            break
        written.append({"file": str(path), "changed": changed})
        if not options.quiet and not options.as_json:
            output.note(f"{'wrote' if changed else 'unchanged'} {path}")
    if options.as_json:
        output.print_json(written)
    return code


def write_if_changed(path: Path, text: str) -> bool:
    """Make ``path`` hold ``text``: atomically, and only when it does not. Returns whether it was written."""
    data = text.encode()
    with suppress(OSError):
        if path.read_bytes() == data:
            return False
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(fd, "wb") as file:
            file.write(data)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    return True


def check(server: str, file: str, from_json: str | None, options: Options) -> int:
    """Whether the listing still gives the module in ``file``: 0 it does, 1 it differs, 2 it cannot be told."""
    try:
        text = Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        output.problem(f"{file}: {getattr(error, 'strerror', None) or 'is not UTF-8 text'}")
        return CANNOT_TELL
    try:
        tools = listing_of(server, from_json, options)
    except BadListing as problem:
        output.problem(str(problem))
        return CANNOT_TELL
    except SystemExit:
        # The daemon or its server does not answer, which was told: nothing is known of the module.
        return CANNOT_TELL
    found = drift.compare(text, server, tools)
    if options.as_json:
        output.print_json(_drift_body(found))
    elif not (options.quiet and isinstance(found, drift.Same)):
        output.line(f"{file}: {drift.report(found)}")
    if isinstance(found, drift.Same):
        return codes.OK
    return CANNOT_TELL if isinstance(found, drift.CannotTell) else DIFFERS


def _drift_body(found: drift.Drift) -> dict[str, Any]:
    if isinstance(found, drift.Same):
        return {"same": True}
    if isinstance(found, drift.CannotTell):
        return {"same": None, "reason": found.reason}
    if isinstance(found, drift.Altered):
        return {"same": False, "reason": drift.report(found), "added": [], "removed": [], "changed": []}
    changes = {"added": found.added, "removed": found.removed, "changed": found.changed}
    return {"same": False} | {
        key: [{"tool": one.tool, "old": one.old, "new": one.new} for one in ones] for key, ones in changes.items()
    }


def lint(server: str, from_json: str | None, options: Options) -> int:
    """Print the findings about a listing; 1 when there is an error or a warning among them."""
    try:
        findings = codegen.lint(server, listing_of(server, from_json, options))
    except BadListing as problem:
        output.problem(str(problem))
        return codes.MALFORMED
    if options.as_json:
        keys = ("code", "severity", "tool", "message")
        output.print_json([{key: getattr(finding, key) for key in keys} for finding in findings])
    else:
        shown = [one for one in findings if not (options.quiet and one.severity == "note")]
        for one in shown:
            where = "" if one.tool is None else f" {quoted(one.tool)}:"
            output.line(f"{one.severity} [{one.code}]{where} {one.message}")
        if not findings:
            output.line("nothing to remark")
    return DIFFERS if any(one.severity != "note" for one in findings) else codes.OK
