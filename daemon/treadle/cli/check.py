"""``treadle check``."""

from __future__ import annotations

import os

import click

from treadle.cli import common, output
from treadle.cli.codes import OK, USAGE
from treadle.cli.options import Options
from treadle.config import Config
from treadle.errors import ConfigError, Problem
from treadle.reload import access_of, find, load


@click.command()
@click.argument("file", required=False, type=click.Path(), callback=common.not_empty)
@common.config_option
@common.options
def command(options: Options, file: str | None, config_path: str | None) -> int:
    """Check the whole configuration, without a daemon; show everything that is wrong, each with its fix.

    The exit code is 2 when anything is wrong; warnings alone are 0.

    \b
    treadle check
    treadle check treadle.toml
    """
    if file is not None and config_path is not None:
        raise click.UsageError("give FILE or --config FILE, not both")
    config: Config | None = None
    path = file or config_path or ""
    try:
        path = find(file or config_path, os.environ)
        config = load(path)
        problems = config.problems + accounts(config)
    except ConfigError as error:
        problems = error.problems
    warnings = () if config is None else config.warnings
    if options.as_json:
        servers = [] if config is None else [server.name for server in config.servers]
        body = {"file": path, "ok": not problems, "servers": servers, "problems": [_body(one) for one in problems]}
        body["warnings"] = [_body(one) for one in warnings]
        output.print_json(body)
    else:
        for warning in warnings:
            output.line(f"warning: {warning}")
        _show(path, config, problems, options)
    return USAGE if problems else OK


def accounts(config: Config) -> tuple[Problem, ...]:
    """What is wrong with the users and groups of ``[broker]``: only this machine can tell."""
    try:
        access_of(config)
    except ConfigError as error:
        return error.problems
    return ()


def _show(path: str, config: Config | None, problems: tuple[Problem, ...], options: Options) -> None:
    for problem in problems:
        output.line(str(problem))
    if problems:
        count = output.count(len(problems), "problem")
        output.line(f"{path}: {count}" if path else count)
    elif config is not None and not options.quiet:
        wrong = "see the warnings" if config.warnings else "nothing is wrong"
        output.line(f"{path}: {output.count(len(config.servers), 'server')}, {wrong}")


def _body(problem: Problem) -> dict[str, object]:
    return {
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "where": problem.where,
        "what": problem.what,
        "fix": problem.fix,
    }
