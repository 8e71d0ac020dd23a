"""From the bytes of a TOML file to its tables, with every fault worded for people (floor 0, pure)."""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final

from msgspec import Struct

from treadle.config.locate import Locations, Path, Position, locate
from treadle.config.wording import key_text
from treadle.errors import Problem
from treadle.text import cap, sanitise

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")

_FIXES: Final = (
    ("Invalid value", "write a string in quotes, true or false in lower case, a number without a unit"),
    ("Expected newline or end of document", "end the line after the value, or put a # before a comment"),
    (
        "Expected '=' after a key",
        'write key = "value", and quote a key that holds other than letters, digits, _ and -',
    ),
    ("Expected ']' at the end of a table", "close the table's name with ]"),
    ("Expected ']]' at the end of an array", "close the name with ]]; a server's table takes single brackets"),
    ("Cannot overwrite a value", "keep one of the two"),
    ("Cannot declare", "keep one of the two, or give one another name"),
    ("Cannot mutate immutable", "write all of its keys in one place"),
    ("Duplicate inline table key", "keep one of the two"),
    ("Illegal character '\\n'", 'close the string on its own line, or write it between three quotes (""")'),
    ("Illegal character", "write the character as an escape such as \\u0007, or remove it"),
    ("Found invalid character", "remove the character, or write it as an escape in a string"),
    ("Unescaped '\\' in a string", "write \\\\ for a backslash, or put the string in single quotes"),
    ("Unterminated string", "close the string with the quote that opened it"),
    ("Expected \"'", "close the string with the quote that opened it"),
    ("Unclosed array", "close the array with ]"),
    ("Unclosed inline table", "close the inline table with } on the same line"),
    ("Invalid initial character for a key part", "begin the line with a key, or a # for a comment"),
    ("Invalid statement", "begin the line with a key, a [table], or a # for a comment"),
)


class Source(Struct, frozen=True):
    """A text with its name, its lines, and the places of its keys."""

    file: str
    lines: tuple[str, ...]
    locations: Locations

    @classmethod
    def of(cls, text: str, file: str) -> Source:
        plain = text.replace("\r\n", "\n")
        return cls(file, tuple(plain.split("\n")), locate(plain))

    def problem(self, path: Path, what: str, fix: str, *, private: bool = False) -> Problem:
        """A problem of the key or table at ``path``; ``private`` shows its line without the value."""
        place = self.locations.nearest(path)
        return self.problem_at(place, where(path), what, fix, private=private)

    def problem_at(
        self, place: Position | None, place_name: str, what: str, fix: str, *, private: bool = False
    ) -> Problem:
        """A problem at ``place``; None stands for the file as a whole."""
        line, column = place or (0, 0)
        shown = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        if private and (equals := shown.find("=", column - 1)) >= 0:
            shown = f"{shown[: equals + 1]} …"
        return Problem(self.file, line, column, place_name, what, fix, cap(sanitise(shown), 200))


def where(path: Path) -> str:
    """A path as a person writes it: the table in brackets, then the key inside it.

    >>> where(("mcp", "demo", "limits", "pids"))
    '[mcp.demo] limits.pids'
    """
    split = 2 if path[:1] == ("mcp",) else 1
    # The names of an array of tables and of its elements belong to the table.
    while len(path) > split and isinstance(path[split], int):
        split += 1
    table, key = _dotted(path[:split]), _dotted(path[split:])
    return f"[{table}] {key}".rstrip() if table else ""


def _dotted(path: Path) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{key_text(part)}" if text else key_text(part)
    return text


def decode(data: bytes | str) -> tuple[str, list[tuple[Position, str, str]]]:
    """The text of a file without a byte-order mark, and the faults (place, what, fix) of its encoding."""
    text = data.decode("utf-8", "surrogateescape") if isinstance(data, bytes) else data
    faults = []
    if text.startswith("\ufeff"):
        what = "the file begins with a byte-order mark (U+FEFF, bytes EF BB BF), which TOML does not allow"
        faults.append((Position(1, 1), what, "save the file as UTF-8 without a BOM"))
        text = text[1:]
    if (match := re.search("[\ud800-\udfff]", text)) is not None:
        line = text.count("\n", 0, match.start()) + 1
        column = match.start() - text.rfind("\n", 0, match.start())
        code = ord(match.group())
        what = f"byte 0x{code - 0xDC00:02X} is not UTF-8" if 0xDC80 <= code <= 0xDCFF else "a lone surrogate"
        faults.append((Position(line, column), what, "save the file as UTF-8"))
    return text, faults


def tables(text: str, source: Source) -> dict[str, Any] | Problem:
    """The document's top-level table, or what is wrong with its syntax. Never raises."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return _syntax_problem(str(error), source)
    except RecursionError:
        return source.problem_at(None, "", "values are nested too deeply to be read", "nest them less deeply")
    except ValueError:
        # The one other fault that the reader lets through is an integer too long for Python to convert.
        digits = next(
            (Position(n, m.start() + 1) for n, line in enumerate(source.lines, 1) if (m := _LONG.search(line))),
            None,
        )
        return source.problem_at(digits, "", "a number is too long to be read", "write a shorter number")


_LONG = re.compile(r"[0-9_]{4000,}")


def _syntax_problem(message: str, source: Source) -> Problem:
    match = _PLACE.search(message)
    said = message[: match.start()] if match else message
    if match and match[1]:
        place = Position(int(match[1]), int(match[2]))
    else:
        place = Position(len(source.lines), len(source.lines[-1]) + 1)
    key = source.locations.at(place)
    fix = next((fix for beginning, fix in _FIXES if said.startswith(beginning)), "write this line as TOML asks")
    what = f"not TOML: {cap(sanitise(said), 120)}"
    first = source.locations.nearest(key)
    if said.startswith(("Cannot", "Duplicate")) and first is not None and first.line < place.line:
        what = f"not TOML: {_dotted(key)} is defined a second time, first on line {first.line}"
    return source.problem_at(place, where(key), what, fix)
