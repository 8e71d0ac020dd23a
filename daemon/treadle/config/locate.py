"""Where the tables, keys and array elements of a TOML text are (floor 0, pure).

The standard library's TOML reader keeps no positions, and a message about a configuration is of little use
without them. :func:`locate` reads only the structure of a text (it checks nothing) and is total: on a text that
is not TOML it finds what stands before the fault and most of what follows it.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from typing import Final, NamedTuple

from msgspec import Struct, field

Path = tuple[str | int, ...]
"""Keys (str) and array indexes (int) from the root of the document, e.g. ``("mcp", "demo", "command", 0)``."""

MAX_DEPTH: Final = 24
"""Paths longer than this are not recorded, which keeps memory linear in the size of any text."""

_BLANK = re.compile(r"[ \t]*+")
_FILL = re.compile(r"(?:[ \t\n]|#[^\n]*+)*+")
_REST_OF_LINE = re.compile(r"[^\n]*+\n?")
_KEY = re.compile(r'[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|\'[^\'\n]*+\'')
_SCALAR = re.compile(
    r'"""(?:[^"\\]|\\[\s\S]|"{1,2}(?!"))*+"{3,5}'
    r"|'''(?:[^']|'{1,2}(?!'))*+'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*+"'
    r"|'[^'\n]*+'"
    # A bare value; a blank may stand inside one, between a date and its time.
    r"|[^,\[\]{}#\n\"']++"
)


class Position(NamedTuple):
    """A place in a text: ``line`` and ``column`` count from 1, the column in code points."""

    line: int
    column: int


class Locations(Struct):
    """The places of a document's tables, keys and array elements.

    ``places`` maps a path to where it is defined (the first definition; failing that, the first mention as a part
    of a longer key). ``mentions`` holds every written key in the order of the text, repeated ones too.
    """

    places: dict[Path, Position] = field(default_factory=dict)
    mentions: list[tuple[Position, Path]] = field(default_factory=list)

    def nearest(self, path: Path) -> Position | None:
        """The place of ``path`` or of its nearest recorded parent; None when there is neither."""
        for length in range(min(len(path), MAX_DEPTH), 0, -1):
            if (place := self.places.get(path[:length])) is not None:
                return place
        return None

    def at(self, position: Position) -> Path:
        """The path of the last key written at or before ``position``; empty when none is."""
        index = bisect_right(self.mentions, position, key=lambda mention: mention[0])
        return self.mentions[index - 1][1] if index else ()


def locate(text: str) -> Locations:
    """Find every table, key and array element of ``text``, to a depth of :data:`MAX_DEPTH`. Never raises.

    Both CRLF and LF end a line. On valid TOML every path that ``tomllib`` produces is found.
    """
    return _Scanner(text.replace("\r\n", "\n")).scan()


class _Open(Struct):
    """An array or inline table whose closing bracket has not come yet."""

    closer: str
    path: Path
    count: int = 0


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._found = Locations()
        self._explicit: set[Path] = set()
        self._elements: dict[Path, int] = {}
        self._table: Path = ()

    def scan(self) -> Locations:
        while True:
            self._skip(_FILL)
            if self._at >= len(self._text):
                return self._found
            if self._peek() == "[":
                self._header()
            elif (path := self._key(self._table)) is not None:
                self._value(path)
            self._skip(_REST_OF_LINE)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self, pattern: re.Pattern[str]) -> bool:
        match = pattern.match(self._text, self._at)
        moved = match is not None and match.end() > self._at
        if match is not None:
            self._at = match.end()
        return moved

    def _record(self, path: Path, offset: int, *, explicit: bool) -> None:
        if len(path) > MAX_DEPTH:
            return
        line = bisect_right(self._starts, offset)
        place = Position(line, offset - self._starts[line - 1] + 1)
        if path not in self._found.places or (explicit and path not in self._explicit):
            self._found.places[path] = place
        if explicit:
            self._explicit.add(path)
            self._found.mentions.append((place, path))

    def _parts(self) -> list[tuple[str, int]]:
        """The parts of a dotted key, each with its offset; empty when there is no key here."""
        parts = []
        while (match := _KEY.match(self._text, self._at)) is not None:
            parts.append((_unquote(match.group()), self._at))
            self._at = match.end()
            self._skip(_BLANK)
            if self._peek() != ".":
                break
            self._at += 1
            self._skip(_BLANK)
        return parts

    def _header(self) -> None:
        is_array = self._text.startswith("[[", self._at)
        self._at += 2 if is_array else 1
        self._skip(_BLANK)
        parts = self._parts()
        path: Path = ()
        for number, (part, offset) in enumerate(parts, 1):
            last = number == len(parts)
            path = _join(path, part)
            self._record(path, offset, explicit=last)
            if last and is_array:
                self._elements[path] = self._elements.get(path, -1) + 1
            if path in self._elements:
                path = _join(path, self._elements[path])
                self._record(path, offset, explicit=last)
        self._table = path

    def _key(self, base: Path) -> Path | None:
        """Read ``key =`` and return the key's path, or None when this is not the start of a pair."""
        parts = self._parts()
        path = base
        for number, (part, offset) in enumerate(parts, 1):
            path = _join(path, part)
            self._record(path, offset, explicit=number == len(parts))
        if not parts or self._peek() != "=":
            return None
        self._at += 1
        self._skip(_BLANK)
        return path

    def _value(self, path: Path) -> None:
        """Read one value. Open containers are kept in a list: depth costs no recursion."""
        containers: list[_Open] = []
        while True:
            opener = self._peek()
            if opener in ("[", "{"):
                containers.append(_Open("]" if opener == "[" else "}", path))
                self._at += 1
            elif not self._skip(_SCALAR):
                return
            member = self._next_member(containers)
            if member is None:
                return
            path = member

    def _next_member(self, containers: list[_Open]) -> Path | None:
        """Go on to the next member of the innermost open container; None at the end of the whole value."""
        while containers:
            innermost = containers[-1]
            self._skip(_FILL)
            mark = self._peek()
            if mark == ",":
                self._at += 1
            elif mark == innermost.closer:
                self._at += 1
                containers.pop()
            elif innermost.closer == "}":
                return self._key(innermost.path)
            elif mark:
                path = _join(innermost.path, innermost.count)
                innermost.count += 1
                self._record(path, self._at, explicit=False)
                return path
            else:
                return None
        return None


def _join(path: Path, part: str | int) -> Path:
    # A path past the limit stays past it; it need not grow further.
    return (*path, part) if len(path) <= MAX_DEPTH else path


def _unquote(token: str) -> str:
    if token[0] not in "\"'":
        return token
    try:
        (key,) = tomllib.loads(f"{token} = 0")
    except ValueError:
        return token[1:-1]
    return key
