"""The reference of every key in Markdown, made from the definitions in :mod:`treadle.config.model`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from treadle.config.model import BROKER_KEYS, SERVER_KEYS, Key
from treadle.config.wording import quoted

BEGIN: Final = "<!-- the rest of this page is generated: python -m treadle.config docs/configuration.md -->"


def reference() -> str:
    """The generated part of the page: one table for the keys of a server, one for those of the broker."""
    parts = (BEGIN, "## Keys of `[mcp.<name>]`", _table(SERVER_KEYS), "## Keys of `[broker]`", _table(BROKER_KEYS))
    return "\n\n".join(parts) + "\n"


def insert(page: str) -> str:
    """``page`` with its generated part, everything from :data:`BEGIN` on, made anew."""
    return page.partition(BEGIN)[0] + reference()


def toml(value: object) -> str:
    """A default as it is written in the file."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return quoted(value)
        case tuple():
            return f"[{', '.join(toml(item) for item in value)}]"
        case dict():
            return "{}"
        case _:
            return str(value)


def _table(keys: Sequence[Key]) -> str:
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    rows += [f"| `{key.name}` | {_cell(key.kind.expected)} | {_default(key)} | {_cell(key.doc)} |" for key in keys]
    return "\n".join(rows)


def _default(key: Key) -> str:
    if key.required:
        return "required"
    return key.shown or ("none" if key.default is None else f"`{toml(key.default)}`")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
