"""Which names a server may have: exactly those that every code generator leaves alone (configuration page)."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from treadle.text import cap, sanitise

NAME_LIMIT: Final = 32
NAME_PATTERN: Final = r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$"
RESERVED: Final = frozenset({"internal"})


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


GLEAM_KEYWORDS: Final = _words("""
    as assert auto case const delegate derive echo else fn if implement import let macro opaque panic pub test todo
    type use
""")
PYTHON_KEYWORDS: Final = _words("""
    False None True and as assert async await break class continue def del elif else except finally for from global
    if import in is lambda nonlocal not or pass raise return try while with yield _ case match type
""")
TYPESCRIPT_KEYWORDS: Final = _words("""
    arguments await break case catch class const continue debugger default delete do else enum eval export extends
    false finally for function if implements import in instanceof interface let new null package private protected
    public return static super switch this throw true try typeof var void while with yield
""")

_LANGUAGES: Final = (("Gleam", GLEAM_KEYWORDS), ("Python", PYTHON_KEYWORDS), ("TypeScript", TYPESCRIPT_KEYWORDS))

KEYWORDS: Final = GLEAM_KEYWORDS | PYTHON_KEYWORDS | TYPESCRIPT_KEYWORDS
"""No server may be named like one of these: a generated module bears the server's name."""


def name_fault(name: str) -> str | None:
    """Why ``name`` cannot be the name of a server, worded to follow the name; None when it can."""
    for language, keywords in _LANGUAGES:
        if name in keywords:
            return f"is a keyword of {language}, for which modules are generated"
    if name in RESERVED:
        return "is reserved"
    if re.fullmatch(r"[a-z0-9_]+", name) is None:
        return "may hold only lower-case letters, digits and underscores" if name else "is empty"
    if not name[0].isalpha():
        return "must begin with a lower-case letter"
    if "__" in name:
        return "holds a doubled underscore"
    if name.endswith("_"):
        return "ends in an underscore"
    if len(name) > NAME_LIMIT:
        return f"is {len(name)} characters long, at most {NAME_LIMIT} are allowed"
    return None


def suggest_name(name: str, taken: Collection[str] = ()) -> str:
    """The legal server name nearest to ``name`` that is not in ``taken``; always legal.

    >>> suggest_name("GitHub-Server")
    'github_server'
    """
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    if not plain:
        plain = "server"
    elif not plain[0].isalpha():
        plain = f"t_{plain}"
    elif plain in KEYWORDS or plain in RESERVED:
        plain = f"{plain}_server"
    candidate, number = _cut(plain, NAME_LIMIT), 2
    while candidate in taken:
        suffix = f"_{number}"
        candidate, number = _cut(plain, NAME_LIMIT - len(suffix)) + suffix, number + 1
    return candidate


def _cut(name: str, limit: int) -> str:
    return name[:limit].rstrip("_")


def shown(name: str) -> str:
    """``name`` fit for a message: on one line and of bounded length."""
    return cap(sanitise(name), 64)
