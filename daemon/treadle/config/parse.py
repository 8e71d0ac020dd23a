"""From the text of a configuration file to typed values (floor 0, pure). Specification: configuration page."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from treadle.config.kinds import Findings
from treadle.config.locate import Path
from treadle.config.model import BROKER_KEYS, SERVER_KEYS, BrokerConfig, Config, Key, Refused, ServerConfig
from treadle.config.names import name_fault, shown, suggest_name
from treadle.config.syntax import Source, decode, tables
from treadle.config.wording import found, key_text, nearest, quoted, spelled, words
from treadle.errors import ConfigError, Problem

_Table = TypeVar("_Table", ServerConfig, BrokerConfig)

_SERVER: Final = {key.name: key for key in SERVER_KEYS}
_BROKER: Final = {key.name: key for key in BROKER_KEYS}

_TABLES: Final = ("mcp", "broker")
_FOR_SERVERS: Final = re.compile("mcp|server", re.IGNORECASE)
"""What a table of servers is called in the files of other programs."""

_ELSEWHERE: Final = {
    "arguments": "put the arguments into command, after the executable",
    "environment": 'write env = { NAME = "value" }, or env_from for variables of the daemon',
    "url": "remove it: servers are started by their command and spoken to over stdio",
    "type": "remove it: every server is spoken to over stdio",
    "transport": "remove it: every server is spoken to over stdio",
    "disabled": "write enabled = false",
    "timeout": "write call_timeout_ms, in milliseconds",
    "allowed_tools": 'write tools.allow = ["glob"]',
    "disabled_tools": 'write tools.deny = ["glob"]',
}
"""What other programs' keys are called here."""


def parse(text: str | bytes, file: str) -> Config:
    """Read the text of a configuration file. Pure; ``file`` is its name, as it shall stand in messages.

    Bytes are taken as UTF-8. Relative paths (``cwd``, ``env_files``, ``socket``, ``state_dir``, ``audit_log``) are
    joined to the directory part of ``file``. A server whose table has an error becomes :class:`Refused` in its
    place; unknown top-level tables are ignored.

    :raises ConfigError: when the text is not TOML, or ``mcp`` or ``[broker]`` is bad; it holds all problems of the
        file, in its order. Nothing else is ever raised.
    """
    plain, faults = decode(text)
    source = Source.of(plain, file)
    problems = [source.problem_at(place, "", what, fix) for place, what, fix in faults]
    document = tables(plain, source)
    if isinstance(document, Problem):
        # Where the text is not UTF-8, it is often not TOML either: one message is enough.
        told = any(place == (document.line, document.column) for place, *_ in faults)
        raise ConfigError(tuple(problems) if told else (*problems, document))
    broker = _broker(document, source)
    servers = _servers(document.get("mcp", {}), source)
    problems += [*(broker if isinstance(broker, list) else []), *(servers if isinstance(servers, list) else [])]
    if isinstance(broker, BrokerConfig) and isinstance(servers, tuple) and not problems:
        return Config(file, broker, servers, _warnings(document, source))
    if isinstance(servers, tuple):
        problems += Config(file, servers=servers).problems
    raise ConfigError(_in_order(problems))


def _warnings(document: Mapping[str, Any], source: Source) -> tuple[Problem, ...]:
    """What may be no mistake: top-level tables may be another program's, and a file may have no servers yet."""
    has_servers = bool(document.get("mcp"))
    found = []
    if not has_servers:
        what = "no server is configured: there is no [mcp.<name>] table"
        found.append(source.problem_at(None, "", what, "write one table [mcp.<name>] for each server"))
    for name, table in document.items():
        if name in _TABLES or not isinstance(table, dict | list):
            continue
        like, near = nearest(name[:64].lower(), _TABLES)
        server = _server_in(name, table)
        if server is not None and (not has_servers or near or _FOR_SERVERS.search(name)):
            fix = f"write [mcp.{server}], if it is meant for Treadle"
        elif near and isinstance(table, dict):
            fix = f"write {like} instead of {key_text(name)}, if it is meant for Treadle"
        else:
            continue
        found.append(source.problem((name,), "another program's table, it is ignored", fix, private=True))
    return _in_order(found)


def _server_in(name: str, table: dict[str, Any] | list[Any]) -> str | None:
    """What a server's table in the table ``name`` is called; None where nothing in it has a ``command``."""
    if isinstance(table, list):
        return "<name>" if any(isinstance(entry, dict) and "command" in entry for entry in table) else None
    if "command" in table:
        return key_text(name)
    return next(
        (key_text(key) for key, entry in table.items() if isinstance(entry, dict) and "command" in entry), None
    )


def _in_order(problems: list[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=lambda problem: (problem.line, problem.column)))


def _problems(findings: Findings, source: Source) -> tuple[Problem, ...]:
    """The findings as problems: at most one a key, an array's elements counting as their array."""
    seen: dict[Path, Problem] = {}
    for issue in findings.issues:
        key = issue.path
        while key and isinstance(key[-1], int):
            key = key[:-1]
        if key not in seen:
            seen[key] = source.problem(issue.path, issue.what, issue.fix, private=issue.private)
    return _in_order(list(seen.values()))


def _findings(source: Source) -> Findings:
    return Findings(posixpath.dirname(source.file))


def _broker(document: dict[str, Any], source: Source) -> BrokerConfig | list[Problem]:
    table = document.get("broker", {})
    findings = _findings(source)
    if isinstance(table, dict):
        values = _section(table, ("broker",), _BROKER, findings)
        if not findings.issues:
            return _build(BrokerConfig, values)
    else:
        findings.add(("broker",), f"must be a table, found {found(table)}", "write [broker], in single brackets")
    return list(_problems(findings, source))


def _servers(table: object, source: Source) -> tuple[ServerConfig | Refused, ...] | list[Problem]:
    if not isinstance(table, dict):
        fix = "write one table [mcp.<name>] for each server"
        return [source.problem(("mcp",), f"must be a table of servers, found {found(table)}", fix)]
    return tuple(_server(name, entry, table, source) for name, entry in table.items())


def _server(name: str, entry: object, siblings: Mapping[str, Any], source: Source) -> ServerConfig | Refused:
    findings = _findings(source)
    path = ("mcp", name)
    values: dict[str, Any] = {}
    if isinstance(entry, dict):
        if (fault := name_fault(name)) is not None:
            instead = suggest_name(name, siblings)
            findings.add(path, f'the name "{shown(name)}" {fault}', f"write [mcp.{instead}]")
        values = _section(entry, path, _SERVER, findings)
        if "command" not in entry:
            findings.add((*path, "command"), "is missing", 'write command = ["executable", "argument"]')
        _check_variables(entry, path, findings)
    elif isinstance(entry, list):
        what = f"must be one table, found {found(entry)}"
        findings.add(path, what, f"write [mcp.{key_text(name)}], in single brackets and once")
    else:
        fix = f"write a table [mcp.{key_text(name)}] with a command"
        if any(key == name or key.startswith(f"{name}.") for key in _SERVER):
            fix = f"write {name} below the [mcp.<name>] of the server that it is meant for"
        said = "a string" if isinstance(entry, str) else found(entry)
        findings.add(path, f"must be a server's table, found {said}", fix, private=True)
    if findings.issues:
        return Refused(name, _problems(findings, source))
    return _build(ServerConfig, values, name=name)


def _section(table: dict[str, Any], path: Path, known: Mapping[str, Key], findings: Findings) -> dict[str, Any]:
    """The values of ``table`` by name of their key; dotted names in ``known`` are those of its sub-tables."""
    groups = {name.split(".")[0] for name in known if "." in name}
    values: dict[str, Any] = {}
    for name, value in table.items():
        here = (*path, name)
        if name in known and "." not in name:
            values[name] = known[name].kind.read(value, here, findings)
        elif name not in groups:
            _unknown(name, table, here, tuple(known), findings)
        elif isinstance(value, dict):
            inner = {key.removeprefix(f"{name}."): known[key] for key in known if key.startswith(f"{name}.")}
            values |= {f"{name}.{key}": item for key, item in _section(value, here, inner, findings).items()}
        else:
            example = next(key for key in known if key.startswith(f"{name}."))
            findings.add(here, f"must be a table, found {found(value)}", f"write {example} = ...")
    return values


def _unknown(name: str, table: dict[str, Any], path: Path, known: tuple[str, ...], findings: Findings) -> None:
    """An unknown key. Its value may be a secret in the wrong place, so it is never shown."""
    like, near = nearest(name[:64], known)
    if name == "args" and isinstance(table.get("command"), str | list):
        fix = _with_arguments(table["command"], table["args"])
    elif name in _ELSEWHERE and "command" in known:
        fix = _ELSEWHERE[name]
    elif near:
        fix = f"write {like}"
    else:
        fix = f"remove it; the nearest known key is {like}"
    findings.add(path, "unknown key", fix, private=True)


def _with_arguments(command: object, arguments: object) -> str:
    """The one ``command`` to write instead of a ``command`` and ``args`` (the form of other programs)."""
    argv = words(command) if isinstance(command, str) else command
    if (
        isinstance(argv, list)
        and isinstance(arguments, list)
        and all(isinstance(w, str) for w in argv + arguments)
    ):
        return f"write command = [{', '.join(quoted(word) for word in argv + arguments)}]"
    return f"write {spelled('executable argument ...')}"


def _check_variables(entry: dict[str, Any], path: Path, findings: Findings) -> None:
    """No variable may have two sources: which of them holds would be anybody's guess."""
    named: list[tuple[str, str, Path]] = []
    for key in ("api_key_env", "env", "env_from", "env_files"):
        match entry.get(key):
            case str(name) if key == "api_key_env":
                named.append((name, key, (*path, key)))
            case list(names) if key == "env_from":
                named += [
                    (name, key, (*path, key, index)) for index, name in enumerate(names) if isinstance(name, str)
                ]
            case dict(names) if key != "api_key_env":
                named += [(name, key, (*path, key, name)) for name in names]
    first: dict[str, str] = {}
    for name, key, place in named:
        if name in first:
            both = f"twice in {key}" if first[name] == key else f"in {first[name]} and in {key}"
            findings.add(place, f"the variable {shown(name)} is named {both}", "keep one of the two", private=True)
        first.setdefault(name, key)


def _build(table: type[_Table], values: Mapping[str, Any], **given: Any) -> _Table:
    """An instance of ``table`` from values by key name; a nested class takes those below its own attribute."""
    nested: dict[str, dict[str, Any]] = {}
    for key in SERVER_KEYS if table is ServerConfig else BROKER_KEYS:
        if key.name in values:
            outer, *inner = key.attribute
            if inner:
                nested.setdefault(outer, {})[inner[0]] = values[key.name]
            else:
                given[outer] = values[key.name]
    for outer, inner_values in nested.items():
        given[outer] = table.__annotations__[outer](**inner_values)
    return table(**given)
