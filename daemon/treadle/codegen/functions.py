"""The functions of one module: names, labels, and the refusals that they bring (codegen page, section 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from treadle.errors import NameCollision, SurfaceTooLarge, TooManyTools

from .listing import ListedTool
from .names import Naming, type_name
from .plan import Parameter, Plan, Typed, WholeValue, plan
from .text import clip, quoted

TOOL_LIMIT: Final = 256
SURFACE_LIMIT: Final = 65_536
_NAME_LIMIT: Final = 120
_LEAST_SURFACE: Final = 16
"""Bytes that one parameter takes in the surface of any target, at the least."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One parameter under the ``label`` by which source code names it."""

    label: str
    parameter: Parameter


@dataclass(frozen=True, slots=True)
class Function:
    """One tool as a function.

    ``whole`` is None for a typed function; otherwise it says, as a clause, why one argument carries the entire
    map, and both argument tuples are empty.
    """

    name: str
    tool: ListedTool
    required: tuple[Argument, ...]
    optional: tuple[Argument, ...]
    whole: str | None = None

    @property
    def type_prefix(self) -> str:
        """What the names of this function's types begin with."""
        return type_name(self.tool.name) or type_name(self.name)


def functions(server: str, listing: Sequence[ListedTool], naming: Naming) -> tuple[Function, ...]:
    """One function for each tool, sorted by name.

    Raises :class:`TooManyTools` past 256 tools, :class:`NameCollision` where two tools get one name, and
    :class:`SurfaceTooLarge` where the parameters are so many that no surface could name them all.
    """
    if len(listing) > TOOL_LIMIT:
        raise TooManyTools(len(listing), clip(server, _NAME_LIMIT))
    by_name: dict[str, ListedTool] = {}
    for tool in sorted(listing, key=lambda tool: tool.name):
        name = naming.function(tool.name)
        if name in by_name:
            first, second = clip(by_name[name].name, _NAME_LIMIT), clip(tool.name, _NAME_LIMIT)
            raise NameCollision(name, first, second, clip(server, _NAME_LIMIT))
        by_name[name] = tool
    plans = {name: plan(by_name[name].input_schema) for name in sorted(by_name)}
    least = _LEAST_SURFACE * sum(
        len(one.params) + len(one.optionals) for one in plans.values() if isinstance(one, Typed)
    )
    if least > SURFACE_LIMIT:
        raise SurfaceTooLarge(least, clip(server, _NAME_LIMIT))
    return tuple(_function(name, by_name[name], planned, naming) for name, planned in plans.items())


def _function(name: str, tool: ListedTool, planned: Plan, naming: Naming) -> Function:
    if isinstance(planned, WholeValue):
        return Function(name, tool, (), (), planned.reason)
    required = tuple(Argument(naming.label(parameter.name), parameter) for parameter in planned.params)
    optional = tuple(Argument(naming.label(parameter.name), parameter) for parameter in planned.optionals)
    by_label: dict[str, str] = {}
    for argument in required + optional if naming.optionals_are_labels else required:
        original = argument.parameter.name
        if argument.label in by_label:
            first, second = quoted(by_label[argument.label]), quoted(original)
            return Function(name, tool, (), (), f"its parameters {first} and {second} get the same label")
        by_label[argument.label] = original
    return Function(name, tool, required, optional)


def bounded(surface: str, server: str) -> str:
    """``surface`` itself; raises :class:`SurfaceTooLarge` where it takes more than 64 KiB of UTF-8."""
    size = len(surface.encode())
    if size > SURFACE_LIMIT:
        raise SurfaceTooLarge(size, clip(server, _NAME_LIMIT))
    return surface
