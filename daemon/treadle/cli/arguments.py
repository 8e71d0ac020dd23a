"""From ``key=value`` words to a tool's arguments, by the tool's own schema (pure but for ``key=@FILE``)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Final

_LITERALS: Final = {"true": True, "false": False, "null": None}
_BEGINNINGS: Final = (*'{["-0123456789 \t\n\r\ufeff', *_LITERALS, "NaN", "Infinity")
"""What a text begins with of which more must be known before it can be called JSON or not."""


class BadWord(ValueError):
    """An argument word cannot be used; the text says which and what to write."""


def arguments_of(words: Iterable[str], schema: Any, read: Callable[[str], str]) -> dict[str, Any]:
    """The arguments that ``words`` spell.

    ``key=value`` is coerced to the type that ``schema`` (the tool's ``inputSchema``) gives ``key``; ``key:=JSON``
    is taken as JSON; ``key=@FILE`` is the text of a file (``read`` returns it, and may raise ``OSError``). Raises
    :class:`BadWord`.
    """
    arguments: dict[str, Any] = {}
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for word in words:
        key, separator, value = word.partition("=")
        raw = key.endswith(":")
        key = key.removesuffix(":")
        if not separator or not key:
            raise BadWord(f"{word!r} is not key=value, key:=JSON or key=@FILE")
        if key in arguments:
            raise BadWord(f"{key!r} is given twice")
        if raw:
            arguments[key] = _json(key, value)
            continue
        if value.startswith("@"):
            value = _file(key, value[1:], read)
        own = properties.get(key) if isinstance(properties, dict) else None
        arguments[key] = coerce(key, value, own)
    return arguments


def coerce(key: str, value: str, schema: Any) -> Any:
    """``value`` as the type that ``schema`` asks for; where it says nothing, JSON if it is JSON, else text.

    Raises :class:`BadWord` when no type that the schema allows fits.
    """
    types = _types(schema)
    if not types:
        try:
            return parsed_json(value)
        except ValueError:
            return value
    for kind in ("null", "boolean", "integer", "number", "array", "object"):
        if kind in types:
            fits, converted = _as(kind, value)
            if fits:
                return converted
    if "string" in types:
        return value
    raise BadWord(f"{key}={value}: the tool asks for {' or '.join(sorted(types))}")


def parsed_json(text: str) -> Any:
    """``text`` as strict JSON (no NaN, no Infinity). Raises ``ValueError``."""
    # The JSON module costs more to import than a whole call takes; the usual argument is a plain number or word.
    if text.isascii() and text.isdecimal() and len(text) < 16 and (text[0] != "0" or text == "0"):
        return int(text)
    if text in _LITERALS:
        return _LITERALS[text]
    if not text.startswith(_BEGINNINGS):
        raise ValueError("Expecting value: line 1 column 1 (char 0)")
    import json

    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _types(schema: Any) -> set[str]:
    if not isinstance(schema, dict):
        return set()
    kind = schema.get("type")
    if isinstance(kind, str):
        return {kind}
    if isinstance(kind, list):
        return {one for one in kind if isinstance(one, str)}
    found: set[str] = set()
    for key in ("anyOf", "oneOf"):
        branches = schema.get(key)
        for branch in branches if isinstance(branches, list) else ():
            own = branch.get("type") if isinstance(branch, dict) else None
            if not isinstance(own, str):
                return set()
            found.add(own)
    return found


def _as(kind: str, value: str) -> tuple[bool, Any]:
    if kind == "boolean":
        return value in ("true", "false"), value == "true"
    if kind == "null":
        return value == "null", None
    try:
        parsed = parsed_json(value)
    except ValueError:
        return False, None
    wanted = {"integer": (int,), "number": (int, float), "array": (list,), "object": (dict,)}[kind]
    return isinstance(parsed, wanted) and not isinstance(parsed, bool), parsed


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _json(key: str, value: str) -> Any:
    try:
        return parsed_json(value)
    except ValueError as error:
        raise BadWord(f"{key}:={value}: is not JSON: {error}") from None


def _file(key: str, path: str, read: Callable[[str], str]) -> str:
    try:
        return read(path)
    except OSError as error:
        raise BadWord(f"{key}=@{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadWord(f"{key}=@{path}: the file is not UTF-8 text") from None


def whole(text: str) -> dict[str, Any]:
    """The arguments as one JSON object. Raises :class:`BadWord`."""
    try:
        value = parsed_json(text)
    except ValueError as error:
        raise BadWord(f"--json-args: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadWord("--json-args: must be a JSON object")
    return value
