"""Paths that name a place inside a JSON value for people: ``$.a[3].b`` (floor 0, pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from treadle.text import cap, sanitise

_KEY_LIMIT: Final = 80
_PATH_LIMIT: Final = 400
_PLAIN: Final = re.compile(f"[A-Za-z_][A-Za-z0-9_]{{0,{_KEY_LIMIT - 1}}}")


def json_path(steps: Iterable[str | int]) -> str:
    """The path of the map keys and array indexes ``steps``, ``$`` being the root.

    A key that is no identifier is written ``["odd key"]``. Keys are untrusted: they are sanitised, and a long
    one (80 code points) or a long path (400) is cut.
    """
    return cap("$" + "".join(map(_step, steps)), _PATH_LIMIT)


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if _PLAIN.fullmatch(step):
        return f".{step}"
    clean = cap(sanitise(step), _KEY_LIMIT).replace("\\", r"\\").replace('"', r"\"")
    return f'["{clean}"]'
