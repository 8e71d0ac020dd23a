"""What a script says, turned into bytes: placeholders, raw pieces and patterns (standard library alone).

A *value* is JSON with placeholders; *data* is what goes on a descriptor byte for byte. Both are JSON-able, so
that a script can travel as one command-line argument.

Placeholders in a value: ``{"$id": true}`` the id of the message that is being answered, ``{"$id_of": name}`` the
id of a saved one, ``{"$params": true}``, ``{"$arguments": true}``, ``{"$repeat": text, "times": n}``,
``{"$fill": true}`` (see ``size`` below), ``{"$fact": name}`` (environ, argv, cwd, fds, pid) and
``{"$text_of": value}`` (its compact JSON as a string).

Data: a string (UTF-8), a list (joined), ``{"$b64": text}``, ``{"$json": value}`` with an optional ``size`` (the
string at ``$fill`` grows until the whole has that many bytes), ``{"$repeat": data, "times": n}``,
``{"$encode": data, "as": codec}`` and the placeholders of a value, written as JSON.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
Facts = Callable[[str, str], Any]
"""Asks the host for a fact by name and argument: environ, argv, cwd, fds, pid, start."""


class Scope:
    """What placeholders can speak of: the message in hand, those saved by name, and the host's facts."""

    def __init__(self, facts: Facts, saved: dict[str, Message], message: Message | None = None) -> None:
        self.facts = facts
        self.saved = saved
        self.message = message

    def get(self, name: str | None = None) -> Message:
        """The saved message ``name``, or the one in hand. Raises :class:`ScriptError` when there is none."""
        message = self.message if name is None else self.saved.get(name)
        if message is None:
            raise ScriptError(f"no message {name!r} was saved" if name else "no message is being answered here")
        return message


class ScriptError(Exception):
    """The script itself is wrong: a verb, a placeholder or a piece of data that does not exist."""


def resolve(value: Any, scope: Scope, fill: str = "") -> Any:
    """``value`` with every placeholder replaced. Raises :class:`ScriptError`."""
    if isinstance(value, list):
        return [resolve(item, scope, fill) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"$id": True}:
            return scope.get()["id"]
        case {"$id_of": str(name)}:
            return scope.get(name)["id"]
        case {"$params": True}:
            return scope.get().get("params")
        case {"$arguments": True}:
            return scope.get().get("params", {}).get("arguments")
        case {"$repeat": str(text), "times": int(times)}:
            return text * times
        case {"$fill": True}:
            return fill
        case {"$fact": str(name)}:
            return scope.facts(name, "")
        case {"$text_of": inner}:
            return compact(resolve(inner, scope, fill))
        case _:
            return {key: resolve(item, scope, fill) for key, item in value.items()}


def compact(value: Any) -> str:
    """``value`` as one line of JSON without spaces, text as itself and not as escapes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def render(data: Any, scope: Scope) -> bytes:
    """``data`` as bytes. Raises :class:`ScriptError` for what is no data."""
    match data:
        case str():
            return data.encode()
        case list():
            return b"".join(render(part, scope) for part in data)
        case {"$b64": str(text)}:
            return base64.b64decode(text)
        case {"$json": value, "size": int(size)}:
            return _filled(value, size, scope)
        case {"$json": value}:
            return compact(resolve(value, scope)).encode()
        case {"$repeat": inner, "times": int(times)}:
            return render(inner, scope) * times
        case {"$encode": inner, "as": str(codec)}:
            return render(inner, scope).decode().encode(codec)
        case {**keys} if keys and all(str(key).startswith("$") for key in keys):
            return compact(resolve(data, scope)).encode()
        case _:
            raise ScriptError(f"no such data: {data!r:.80}")


def _filled(value: Any, size: int, scope: Scope) -> bytes:
    missing = size - len(compact(resolve(value, scope)).encode())
    filled = compact(resolve(value, scope, "x" * max(missing, 0))).encode()
    if len(filled) != size:
        raise ScriptError(f"cannot fill to {size} bytes: one $fill is needed, and room for {size - missing} bytes")
    return filled


def mismatch(pattern: Any, value: Any, path: str = "$") -> str | None:
    """Where ``value`` differs from ``pattern``, worded, or None when it matches.

    A dict pattern matches a dict that has at least its keys, ``{"$type": "object"}`` any value of that JSON
    type, ``{"$exactly": x}`` only x itself; anything else must be equal (and of the same type).
    """
    match pattern:
        case {"$type": str(name)}:
            return None if type_name(value) == name else f"{path} is {type_name(value)}, not {name}"
        case {"$exactly": exact}:
            return None if compact(exact) == compact(value) else f"{path} is {compact(value)[:80]}"
        case {**keys}:
            if not isinstance(value, dict):
                return f"{path} is {type_name(value)}, not object"
            for key, inner in keys.items():
                if key not in value:
                    return f"{path}.{key} is missing"
                if found := mismatch(inner, value[key], f"{path}.{key}"):
                    return found
            return None
        case _:
            same = type(pattern) is type(value) and pattern == value
            return None if same else f"{path} is {compact(value)[:80]}, not {compact(pattern)[:80]}"


def type_name(value: Any) -> str:
    """The JSON type of ``value``; integers and floats are told apart."""
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "float"}
    return names.get(type(value), "null")
