"""Names: any string becomes a legal identifier of the target language (codegen page, section 2)."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

LENGTH_LIMIT: Final = 32

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_OTHER = re.compile(r"[^a-z0-9]+")
_WORD = re.compile(r"[A-Za-z0-9]+")
_TYPE_NAME_READ: Final = 100


def mangle(original: str, reserved: frozenset[str]) -> str:
    """``original`` as a lower-case ASCII identifier that is not in ``reserved``. Total and deterministic.

    A name that had to change, or that is longer than 32, ends in ``_`` and 8 hex digits of its own SHA-256, so
    that distinct originals stay distinct (save for a name that spells out another one's digest).
    """
    # The rule is about ASCII letters: str.lower() would fold the Kelvin sign and its like into them.
    spaced = _WORD_START.sub("_", original)
    name = _OTHER.sub("_", _ascii_lower(spaced)).strip("_")
    if not name or name[0].isdigit():
        name = f"t_{name}"
    if name in reserved:
        name = f"{name}_"
    if name == original and len(name) <= LENGTH_LIMIT:
        return name
    digest = hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[:LENGTH_LIMIT].removesuffix('_')}_{digest}"


_UPPER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def _ascii_lower(text: str) -> str:
    return text.translate(_UPPER)


def type_name(original: str) -> str:
    """``original`` as (part of) a type name: ``git_log`` becomes ``GitLog``; not unique, may be empty."""
    name = "".join(part[0].upper() + part[1:] for part in _WORD.findall(original[:_TYPE_NAME_READ]))
    return f"T{name}" if name[:1].isdigit() else name


@dataclass(frozen=True, slots=True)
class Naming:
    """What one target language keeps for itself.

    ``functions``, ``labels`` and ``modules`` are the reserved words of each kind of name;
    ``optionals_are_labels`` tells whether optional parameters are named in a signature.
    """

    functions: frozenset[str]
    labels: frozenset[str]
    modules: frozenset[str]
    optionals_are_labels: bool

    def function(self, original: str) -> str:
        """The name of the function for the tool ``original``."""
        return mangle(original, self.functions)

    def label(self, original: str) -> str:
        """The label of the parameter ``original``."""
        return mangle(original, self.labels)

    def module(self, server: str) -> str:
        """The last segment of the module's name; a legal configuration key is kept as it is."""
        return mangle(server, self.modules)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


GLEAM_KEYWORDS: Final = _words(
    "as assert auto case const delegate derive echo else fn if implement import let macro opaque panic pub test "
    "todo type use"
)
# Frozen, so that a listing gives the same bytes under every interpreter; a test holds them against `keyword`.
PYTHON_KEYWORDS: Final = _words(
    "False None True and as assert async await break class continue def del elif else except finally for from "
    "global if import in is lambda nonlocal not or pass raise return try while with yield"
)
PYTHON_SOFT_KEYWORDS: Final = _words("_ case match type")
_PYTHON_SEAM = _words("invoke invoke_async")
_PYTHON_USED = _words("annotations bool dict float int list object str") | _PYTHON_SEAM
TYPESCRIPT_KEYWORDS: Final = _words(
    "arguments await break case catch class const continue debugger default delete do else enum eval export "
    "extends false finally for function if implements import in instanceof interface let new null package private "
    "protected public return static super switch this throw true try typeof var void while with yield"
)
# `undefined` cannot be declared; the others belong to the module systems that TypeScript compiles to.
_TYPESCRIPT_USED = _words("invoke undefined exports module require")

GLEAM: Final = Naming(
    functions=GLEAM_KEYWORDS,
    labels=GLEAM_KEYWORDS | {"options"},
    modules=GLEAM_KEYWORDS,
    optionals_are_labels=False,
)
PYTHON: Final = Naming(
    functions=PYTHON_KEYWORDS | PYTHON_SOFT_KEYWORDS | _PYTHON_USED,
    labels=PYTHON_KEYWORDS | _PYTHON_SEAM,
    modules=PYTHON_KEYWORDS,
    optionals_are_labels=True,
)
TYPESCRIPT: Final = Naming(
    functions=TYPESCRIPT_KEYWORDS | _TYPESCRIPT_USED,
    # Every object has a `constructor`: an option of that name would never be left out.
    labels=TYPESCRIPT_KEYWORDS | _TYPESCRIPT_USED | {"options", "constructor"},
    modules=frozenset({"seam"}),
    optionals_are_labels=True,
)
