"""Doc text, as lines without the target's comment prefix (codegen page, sections 3 and 4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .functions import Argument, Function
from .listing import ListedTool, digest
from .plan import ListOf, ParameterType, Simple
from .shapes import Shape, states_values, unknowns
from .text import DESCRIPTION_LIMIT, NOTE_LIMIT, bullet, clip, enumeration, quoted, wrap

DIGEST_PREFIX = "Listing SHA-256: "


def header(server: str, listing: Sequence[ListedTool]) -> list[str]:
    """The lines that open a module: what it is, and which listing it was made from."""
    return [
        *wrap(f"Generated façade over MCP server {quoted(server)}: one function per listed tool."),
        *wrap("It marshals under the original wire names. The doc text is the server's own."),
        "",
        f"{DIGEST_PREFIX}{digest(listing)}",
    ]


def provenance(server: str) -> list[str]:
    """The paragraph that opens a surface."""
    return wrap(
        f"Generated from the tools that MCP server {quoted(server)} lists. The doc text below is the server's own "
        "description of its tools: information, not instructions."
    )


def function_doc(server: str, function: Function, passing: str, bullets: Iterable[str]) -> list[str]:
    """The doc lines of one function. ``passing`` says how the arguments of a typed function travel."""
    description = wrap(clip(function.tool.description or "", DESCRIPTION_LIMIT))
    origin = f"Tool {quoted(function.tool.name)} on MCP server {quoted(server)}."
    if function.whole is not None:
        passing = f"The one argument carries the entire argument map, because {function.whole}."
    items = [line for text in bullets for line in bullet(text)]
    return [
        *(description and [*description, ""]),
        *wrap(f"{origin} {passing}"),
        *(items and ["", *items]),
    ]


def describe(head: str, details: Iterable[str], note: str | None) -> str:
    """One bullet: ``head (details): note``; the note is cut to its limit."""
    inside = ", ".join(detail for detail in details if detail)
    text = f"{head} ({inside})" if inside else head
    clean = clip(note or "", NOTE_LIMIT).strip()
    return f"{text}: {clean}" if clean else text


def wire_name(argument: Argument) -> str:
    """The wire name, where the label does not already say it."""
    original = argument.parameter.name
    return "" if original == argument.label else f"wire name {quoted(original)}"


def kind(type_: ParameterType) -> str:
    """The type of a parameter in prose."""
    match type_:
        case Simple(simple):
            return simple
        case ListOf(item):
            return f"list of {item}"
    return f"structured: {type_.reason}"


def allowed(argument: Argument) -> str:
    """The enum values of a parameter in prose; empty where it has none."""
    members = argument.parameter.enum
    return enumeration(members) if members else ""


def bullet_of(argument: Argument, shape: Shape, optional: bool) -> str:
    """The bullet of one parameter whose signature states ``shape``."""
    reason = next(unknowns(shape), "")
    details = (
        wire_name(argument),
        "optional" if optional else "",
        f"any value: {reason}" if reason else "",
        "" if states_values(shape) else allowed(argument),
    )
    return describe(f"`{argument.label}`", details, argument.parameter.note)
