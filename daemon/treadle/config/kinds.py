"""The kinds of value that a configuration key may have: how each is read, worded and described (floor 0, pure).

A kind never raises on a value: it adds an :class:`Issue` to the :class:`Findings` and returns None.
"""

from __future__ import annotations

import math
import posixpath
import re
from typing import Any, Final, Protocol

from msgspec import Struct, field

from treadle.config.locate import Path
from treadle.config.wording import found, key_text, nearest, quoted, scalar, spelled

VARIABLE: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
"""A legal name of an environment variable."""

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}


class Issue(Struct, frozen=True):
    """Something wrong at ``path``. ``private``: the line may hold a secret, so its value must not be shown."""

    path: Path
    what: str
    fix: str
    private: bool = False


class Findings(Struct):
    """What is wrong with one part of a file, and the ``directory`` from which its relative paths are meant."""

    directory: str
    issues: list[Issue] = field(default_factory=list)

    def add(self, path: Path, what: str, fix: str, *, private: bool = False) -> None:
        self.issues.append(Issue(path, what, fix, private))


class Kind(Protocol):
    """What a key's value must be."""

    @property
    def expected(self) -> str:
        """What is accepted, worded to follow "must be"."""

    def read(self, value: object, path: Path, findings: Findings) -> Any:
        """The typed value; None after an issue has been added to ``findings``."""

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the value."""


# --- the fixes --------------------------------------------------------------------------------------------


def _owner(path: Path) -> str:
    """The key that ``path`` belongs to, as it is written inside its table; for an array's element the array."""
    inside = path[2 if path[0] == "mcp" else 1 :]
    return ".".join(key_text(part) for part in inside if isinstance(part, str))


def _assignment(path: Path) -> str:
    """What stands before the value at ``path``: nothing for an array's element."""
    return "" if isinstance(path[-1], int) else f"{_owner(path)} = "


def _mismatch(kind: Kind, value: object, path: Path, findings: Findings, fix: str) -> None:
    findings.add(path, f"must be {kind.expected}, found {found(value)}", fix)


# --- scalars -------------------------------------------------------------------------------------------------


class Integer(Struct, frozen=True):
    """An integer from ``minimum`` to ``maximum``; ``unit`` is ``"ms"``, ``"s"``, ``"MiB"`` or empty."""

    minimum: int
    maximum: int
    unit: str = ""

    @property
    def expected(self) -> str:
        return f"an integer from {self.minimum} to {self.maximum}"

    def read(self, value: object, path: Path, findings: Findings) -> int | None:
        if isinstance(value, int) and not isinstance(value, bool) and self.minimum <= value <= self.maximum:
            return value
        meant = self._meant(value)
        if meant is None:
            fix = f"write {self.expected}"
        else:
            counted = {"ms": " (milliseconds)", "s": " (seconds)", "MiB": " (mebibytes)"}.get(self.unit, "")
            fix = f"write {_owner(path)} = {min(max(meant, self.minimum), self.maximum)}{counted}"
        _mismatch(self, value, path, findings, fix)
        return None

    def _meant(self, value: object) -> int | None:
        """The number that the writer of ``value`` had in mind, if that can be told."""
        match value:
            case bool():
                return None
            case int():
                return value
            case float() if math.isfinite(value):
                return int(value)
            case str() if match := re.fullmatch(r"\s*(\d{1,12})\s*([a-z]*)\s*", value):
                milliseconds = int(match[1]) * _UNITS_MS.get(match[2], 1)
                return milliseconds // 1000 if self.unit == "s" and match[2] in _UNITS_MS else milliseconds
        return None

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}


class Boolean(Struct, frozen=True):
    """``true`` or ``false``."""

    @property
    def expected(self) -> str:
        return "true or false"

    def read(self, value: object, path: Path, findings: Findings) -> bool | None:
        if isinstance(value, bool):
            return value
        meant = (scalar(value) or "").strip().lower()
        yes, no = meant in ("true", "yes", "on", "1"), meant in ("false", "no", "off", "0")
        choice = "true" if yes else "false" if no else "true or false"
        _mismatch(self, value, path, findings, f"write {_owner(path)} = {choice}, without quotes")
        return None

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


class Choice(Struct, frozen=True):
    """One of a closed list of strings."""

    options: tuple[str, ...]

    @property
    def expected(self) -> str:
        texts = [quoted(option) for option in self.options]
        return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"

    def read(self, value: object, path: Path, findings: Findings) -> str | None:
        if isinstance(value, str) and value in self.options:
            return value
        choice = quoted(nearest(found(value), self.options)[0])
        _mismatch(self, value, path, findings, f"write {_assignment(path)}{choice}")
        return None

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.options)}


class Text(Struct, frozen=True):
    """A string without NUL; not empty unless ``empty``. ``noun`` words what it is."""

    noun: str = "a string"
    empty: bool = False

    @property
    def expected(self) -> str:
        return self.noun

    def read(self, value: object, path: Path, findings: Findings) -> str | None:
        if not isinstance(value, str):
            # A number or boolean where text is wanted has usually only lost its quotes.
            literal = scalar(value)
            fix = "write a string in quotes" if literal is None else f"write {_assignment(path)}{quoted(literal)}"
            _mismatch(self, value, path, findings, fix)
        elif not value and not self.empty:
            findings.add(path, "must not be empty", f"write {self.noun} or remove it")
        elif "\0" in value:
            findings.add(path, "holds a NUL character, which the system cannot carry", "remove the \\u0000")
        else:
            return value
        return None

    def schema(self) -> dict[str, Any]:
        return {"type": "string"} if self.empty else {"type": "string", "minLength": 1}


class FilePath(Struct, frozen=True):
    """A path; a relative one is meant from the directory of the file. ``expands``: it may hold ``${NAME}``."""

    expands: bool = False

    @property
    def expected(self) -> str:
        return "a string with a path"

    def read(self, value: object, path: Path, findings: Findings) -> str | None:
        text = Text("a string with a path").read(value, path, findings)
        if text is None:
            return None
        if text.startswith("~"):
            findings.add(path, "begins with ~, which only a shell expands", "write the home directory out")
        elif not self.expands and "${" in text:
            findings.add(path, "holds ${, but variables are expanded in env_files alone", "write the path out")
        elif self.expands and "${" in re.sub(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}", "", text):
            findings.add(path, "holds a ${ that names no variable", "write ${NAME}, closed and with a legal name")
        else:
            return text if text.startswith("${") else posixpath.join(findings.directory, text)
        return None

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1}


class Variable(Struct, frozen=True):
    """The NAME of an environment variable. What stands here by mistake is often the secret itself: never shown."""

    @property
    def expected(self) -> str:
        return "the name of an environment variable"

    def read(self, value: object, path: Path, findings: Findings) -> str | None:
        if isinstance(value, str) and re.fullmatch(VARIABLE, value):
            return value
        kind = "a string that is no such name" if isinstance(value, str) else found(value)
        fix = 'write the NAME of the variable, not its value: letters, digits and _, for example "GITHUB_TOKEN"'
        findings.add(path, f"must be {self.expected}, found {kind}", fix, private=True)
        return None

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": VARIABLE}


class Account(Struct, frozen=True):
    """A user or a group: a name, or a numeric id. ``noun`` is ``"user"`` or ``"group"``."""

    noun: str

    @property
    def expected(self) -> str:
        return f"a {self.noun} name or a numeric id"

    def read(self, value: object, path: Path, findings: Findings) -> str | int | None:
        match value:
            case bool():
                pass
            case int() if 0 <= value < 2**32 - 1:
                return value
            case str() if re.fullmatch(r"[^\s:,\x00]+", value) and not value.isdecimal():
                return value
        digits = isinstance(value, str) and value.isascii() and value.isdecimal()
        fix = (
            f"write {str(value)[:20]} without quotes"
            if digits
            else 'write a name such as "www-data" or an id such as 33'
        )
        _mismatch(self, value, path, findings, fix)
        return None

    def schema(self) -> dict[str, Any]:
        name = {"type": "string", "pattern": r"^(?![0-9]+$)[^\s:,]+$"}
        return {"anyOf": [name, {"type": "integer", "minimum": 0, "maximum": 2**32 - 2}]}


# --- containers ----------------------------------------------------------------------------------------------


class Array(Struct, frozen=True):
    """An array of ``item``; ``noun`` names the items in the plural."""

    item: Kind
    noun: str

    @property
    def expected(self) -> str:
        return f"an array of {self.noun}"

    def read(self, value: object, path: Path, findings: Findings) -> tuple[Any, ...] | None:
        if not isinstance(value, list):
            probe = Findings(findings.directory)
            self.item.read(value, path, probe)
            private = any(issue.private for issue in probe.issues)
            literal = "..." if probe.issues else quoted(value) if isinstance(value, str) else scalar(value)
            said = "a string" if private and isinstance(value, str) else found(value)
            findings.add(
                path,
                f"must be {self.expected}, found {said}",
                f"write {_owner(path)} = [{literal}]",
                private=private,
            )
            return None
        before = len(findings.issues)
        items = tuple(self.item.read(item, (*path, index), findings) for index, item in enumerate(value))
        return items if len(findings.issues) == before else None

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.item.schema()}


class Pairs(Struct, frozen=True):
    """A table from names of environment variables to ``value``; ``noun`` names the values in the plural."""

    value: Kind
    noun: str

    @property
    def expected(self) -> str:
        return f"a table from names of variables to {self.noun}"

    def read(self, value: object, path: Path, findings: Findings) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            _mismatch(self, value, path, findings, f'write {_owner(path)} = {{ NAME = "value" }}')
            return None
        before = len(findings.issues)
        pairs = {}
        for name, item in value.items():
            pairs[name] = self.value.read(item, (*path, name), findings)
            if re.fullmatch(VARIABLE, name) is None:
                fix = "write a name of letters, digits and _ that does not begin with a digit"
                findings.add((*path, name), "is no legal name of an environment variable", fix)
        return pairs if len(findings.issues) == before else None

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "propertyNames": {"pattern": VARIABLE},
            "additionalProperties": self.value.schema(),
        }


class Command(Struct, frozen=True):
    """The argv of a server, executable first; never a shell string."""

    @property
    def expected(self) -> str:
        return "an array of strings: the executable, then its arguments"

    def read(self, value: object, path: Path, findings: Findings) -> tuple[str, ...] | None:
        if isinstance(value, str) and value.strip():
            findings.add(path, "must be an array of strings, not a shell string", f"write {spelled(value)}")
        elif not isinstance(value, list) or not value:
            said = "an empty array" if value == [] else found(value)
            fix = 'write command = ["executable", "argument"]'
            findings.add(path, f"must be {self.expected}, found {said}", fix)
        else:
            before = len(findings.issues)
            items = tuple(Text().read(item, (*path, index), findings) for index, item in enumerate(value))
            if len(findings.issues) == before:
                return tuple(item for item in items if item is not None)
        return None

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}}
