"""TOML keys and values worded for messages, and what a mistaken one was meant to be (floor 0, pure)."""

from __future__ import annotations

import re
from typing import Final

from treadle.text import FORBIDDEN, cap

_SHELL_MARKS: Final = frozenset("|&;<>$`*?~")
_SHOWN: Final = 10**20  # a longer integer tells a reader nothing, and Python refuses to print the longest


def quoted(text: str, limit: int = 200) -> str:
    """``text`` as a TOML basic string on one line, cut after ``limit`` characters, safe to print."""
    plain = cap(text, limit).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{re.sub(f"[{FORBIDDEN}]", _escape, plain)}"'


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"


def key_text(name: str) -> str:
    """``name`` as it is written in a TOML key: bare where it can be, else quoted."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) else quoted(name, 64)


def found(value: object) -> str:
    """A TOML value named for a message, at most a short line long."""
    match value:
        case bool():
            return f"boolean {str(value).lower()}"
        case int():
            return f"integer {value}" if abs(value) < _SHOWN else f"an integer of {value.bit_length()} bits"
        case float():
            return f"float {value}"
        case str():
            return f"string {quoted(value, 60)}"
        case list():
            return "an array of tables" if value and isinstance(value[0], dict) else "an array"
        case dict():
            return "a table"
        case _:
            return "a date or time"


def scalar(value: object) -> str | None:
    """A boolean, number or string as text; None for a number too long to be shown and for anything else."""
    match value:
        case bool():
            return str(value).lower()
        case int() if abs(value) >= _SHOWN:
            return None
        case int() | float() | str():
            return str(value)
    return None


def words(command: str) -> list[str]:
    """``command`` split as a shell would; by blanks alone where a shell would find a quote unclosed."""
    import shlex

    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def spelled(command: str) -> str:
    """The shell string ``command`` as the list form to write instead, and through a shell if it needs one."""
    listed = ", ".join(quoted(word) for word in words(command))
    fix = f"command = [{listed}]"
    if _SHELL_MARKS.intersection(command):
        fix += f' or, if a shell must read it, command = ["sh", "-c", {quoted(command)}]'
    return fix


def unexpanded(word: str) -> str | None:
    """What in one word of a command a shell alone would have replaced: ``~``, ``$NAME``. None when nothing.

    >>> unexpanded("~/bin/server"), unexpanded("$HOME/bin/server"), unexpanded("a$")
    ('~', '$HOME', None)
    """
    if re.match(r"~[A-Za-z0-9_.-]*(?:/|$)", word):
        return "~"
    found = re.search(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\})", word)
    return None if found is None else found[0]


def nearest(name: str, known: tuple[str, ...]) -> tuple[str, bool]:
    """The member of ``known`` (not empty) most like ``name``, and whether it is near enough to be meant."""
    import difflib

    best = difflib.get_close_matches(name, known, 1, 0.0)[0]
    return best, difflib.SequenceMatcher(None, name, best).ratio() >= 0.6
