"""From a `tools/list` listing to typed source text (floor 1, pure; codegen page).

A listing is controlled by its server, so names and signatures are all the freedom that it gets: every function of
a generated module makes one fixed call. ``generate`` makes the module, ``lint`` says what a listing makes hard,
and ``drift.compare`` tells whether a module still fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, assert_never

from . import gleam, python, typescript
from .generated import Generated
from .lint import Finding, lint
from .listing import ListedTool, digest, from_result

__all__ = ["TARGETS", "Finding", "Generated", "ListedTool", "Target", "digest", "from_result", "generate", "lint"]

Target = Literal["gleam", "python", "typescript"]
TARGETS: Final[tuple[Target, ...]] = ("gleam", "python", "typescript")


def generate(
    server: str, listing: Sequence[ListedTool], target: Target, *, asynchronous: bool = False
) -> Generated:
    """The module of ``target`` over ``server``, whose tools are ``listing``.

    ``asynchronous`` makes coroutines of the Python target's functions; Gleam has one form only, and TypeScript's
    functions always return promises. Raises :class:`TooManyTools`, :class:`NameCollision`,
    :class:`SurfaceTooLarge` or :class:`SanitizerBreach` (all of them :class:`GenerationRefused`).
    """
    match target:
        case "gleam":
            return gleam.generate(server, listing)
        case "python":
            return python.generate(server, listing, asynchronous=asynchronous)
        case "typescript":
            return typescript.generate(server, listing)
    assert_never(target)
