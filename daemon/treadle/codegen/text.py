"""Hostile text made harmless: cuts, the word wrap of comments, string literals (codegen page, section 3)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from treadle.text import cap, sanitise

DESCRIPTION_LIMIT: Final = 400
NOTE_LIMIT: Final = 120
WRAP_WIDTH: Final = 72
ENUM_SHOWN: Final = 16

_NEEDS_ESCAPE = re.compile(r'[^\x20-\x7e]|["\\]')
_QUOTE_RUN = re.compile('"{3,}')
_TAG = re.compile(r"(?<!\w)@")
_REPLACEMENT = 0xFFFD


def clip(text: str, limit: int) -> str:
    """``text`` sanitised and cut to ``limit`` code points; the cost depends on ``limit`` alone."""
    return cap(sanitise(text[: limit + 1]), limit)


def quoted(text: str, limit: int = NOTE_LIMIT) -> str:
    """``text`` as prose quotes it: clipped, between double quotes."""
    return f'"{clip(text, limit)}"'


def wrap(text: str, width: int = WRAP_WIDTH) -> list[str]:
    """The words of ``text`` in lines of at most ``width`` code points; a longer word has a line of its own.

    Words are separated by white space of any kind, so that no line begins or ends with any. Text without a
    word gives no line. ``text`` is sanitised first: a line break never comes from it.
    """
    lines: list[str] = []
    line = ""
    for word in sanitise(text).split():
        if not line:
            line = word
        elif len(line) + 1 + len(word) <= width:
            line = f"{line} {word}"
        else:
            lines.append(line)
            line = word
    return [*lines, line] if line else lines


def bullet(text: str, width: int = WRAP_WIDTH) -> list[str]:
    """``text`` wrapped as one list item: ``- `` before its first line, two spaces before the others."""
    lines = wrap(text, width - 2)
    return [("- " if index == 0 else "  ") + line for index, line in enumerate(lines)]


def enumeration(members: tuple[str, ...]) -> str:
    """The allowed values of a parameter as prose; only the first ``ENUM_SHOWN`` are named."""
    shown = ", ".join(quoted(member) for member in members[:ENUM_SHOWN])
    more = len(members) - ENUM_SHOWN
    return f"one of {shown} and {more} more" if more > 0 else f"one of {shown}"


def gleam_literal(text: str) -> str:
    """``text`` as a Gleam string. A lone surrogate, which no Gleam string can hold, becomes U+FFFD."""

    def escape(code: int) -> str:
        return f"\\u{{{_REPLACEMENT if 0xD800 <= code <= 0xDFFF else code:x}}}"

    return _literal(text, escape, {'"': '\\"'})


def python_literal(text: str) -> str:
    """``text`` as a Python string. A double quote is escaped by number, so that no formatter flips the quotes."""

    def escape(code: int) -> str:
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

    return _literal(text, escape, {'"': "\\x22"})


def typescript_literal(text: str) -> str:
    """``text`` as a TypeScript string."""

    def escape(code: int) -> str:
        return f"\\u{{{code:x}}}"

    return _literal(text, escape, {'"': '\\"'})


def docstring_line(line: str) -> str:
    """``line`` (sanitised) as it stands inside a Python docstring: it can neither end nor escape it."""
    return _QUOTE_RUN.sub(lambda run: '\\"' * len(run[0]), line.replace("\\", "\\\\"))


def block_comment_line(line: str) -> str:
    """``line`` (sanitised) as it stands inside a JSDoc comment: it can neither end it nor pose as a tag."""
    return _TAG.sub(r"\\@", line.replace("*/", "*\\/"))


def _literal(text: str, escape: Callable[[int], str], named: dict[str, str]) -> str:
    names = {"\\": "\\\\", **named}
    body = _NEEDS_ESCAPE.sub(lambda hit: names.get(hit[0]) or escape(ord(hit[0])), text)
    return f'"{body}"'
