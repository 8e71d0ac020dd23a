"""What a listing makes hard for the people and models that use it."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal

from treadle.errors import GenerationRefused, SanitizerBreach, SurfaceTooLarge, explain
from treadle.text import FORBIDDEN

from . import gleam, python, typescript
from .functions import TOOL_LIMIT
from .listing import ListedTool
from .names import GLEAM, PYTHON, TYPESCRIPT
from .plan import Parameter, Structured, Typed, WholeValue, plan
from .text import DESCRIPTION_LIMIT, NOTE_LIMIT, quoted

Severity = Literal["error", "warning", "note"]

_TARGETS: Final = (("Gleam", GLEAM), ("Python", PYTHON), ("TypeScript", TYPESCRIPT))
_NAMED: Final = 5
_TEXTS_READ: Final = 2_000
_CHARACTERS_READ: Final = 65_536
_PARAMETERS_READ: Final = 4_096
_SUSPICIOUS: Final = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b[^.]{0,30}\b(?:instruction|previous|prior|above|rule|prompt)"
    r"|\bsystem prompt\b"
    r"|\b(?:do not|don't|never) (?:tell|mention|inform|reveal|show|ask)\b[^.]{0,30}\b(?:user|human|anyone)\b"
    r"|\b(?:before|after|instead of) (?:using|calling|running) (?:this|any|other|another)\b[^.]{0,30}\btools?\b"
    r"|\byou (?:must|should|have to) (?:always |first |also )?(?:call|use|read|send|include|pass|execute|run)\b"
    r"|\b(?:as an ai|the assistant|the model|the llm) (?:must|should|has to|will)\b"
    r"|</?\s*(?:important|system|instructions?|secret|hidden)\s*>"
    r"|(?:~/|/home/[^/ ]+/|/root/)\.(?:ssh|aws|config|env|netrc)\b",
    re.IGNORECASE,
)
_HIDDEN = re.compile(f"[{FORBIDDEN}\ud800-\udfff]")
_LAYOUT: Final = "\t\n\r"


@dataclass(frozen=True, slots=True)
class Finding:
    """One remark. ``code`` is stable; ``tool`` is the original name, None for the listing as a whole.

    An ``error`` keeps a module from being made; a ``warning`` costs types or may mislead; a ``note`` is worth
    knowing. ``message`` is a clean sentence.
    """

    code: str
    severity: Severity
    tool: str | None
    message: str


def lint(server: str, listing: Sequence[ListedTool]) -> tuple[Finding, ...]:
    """Every finding about the listing of ``server``: the listing as a whole first, then tool by tool, by name.

    Codes: ``too-many-tools``, ``name-collision``, ``refused``, ``untyped-share``, ``mangled-name``,
    ``mangled-label``, ``label-collision``, ``whole-value``, ``untyped-required``, ``long-text``, ``hidden-text``,
    ``suspicious-text``, ``no-description``, ``no-output-schema``.
    """
    tools = sorted(listing, key=lambda tool: tool.name)
    return (*_listing(server, tools), *(finding for tool in tools for finding in _tool(tool)))


def _listing(server: str, tools: Sequence[ListedTool]) -> Iterator[Finding]:
    if len(tools) > TOOL_LIMIT:
        text = f"server {quoted(server)} lists {len(tools)} tools; a module has at most {TOOL_LIMIT}"
        yield Finding("too-many-tools", "error", None, text)
    for target, naming in _TARGETS:
        for name, originals in _collisions([tool.name for tool in tools], naming.function):
            text = f"{_list(originals)} would both be the {target} function {name}"
            yield Finding("name-collision", "error", None, text)
    for generate in (gleam.generate, python.generate, typescript.generate):
        try:
            generate(server, tools)
        except (SurfaceTooLarge, SanitizerBreach) as refusal:
            target = generate.__module__.rpartition(".")[2]
            yield Finding("refused", "error", None, f"{target}: {explain(refusal)}")
        except GenerationRefused:
            pass  # said above, for all names at once
    required = [parameter for tool in tools for parameter in _parameters(tool)[0]]
    untyped = sum(isinstance(parameter.type, Structured) for parameter in required)
    if untyped:
        text = (
            f"{untyped} of {len(required)} required parameters ({untyped / len(required):.0%}) have no simple type"
        )
        yield Finding("untyped-share", "note", None, text)


def _tool(tool: ListedTool) -> Iterator[Finding]:
    yield from _name(tool)
    yield from _plan(tool)
    yield from _texts(tool)
    if not (tool.description or "").strip():
        yield Finding("no-description", "warning", tool.name, "it has no description")
    if tool.output_schema is None:
        yield Finding("no-output-schema", "note", tool.name, "it has no output schema: its result is untyped")


def _name(tool: ListedTool) -> Iterator[Finding]:
    changed = [(target, naming.function(tool.name)) for target, naming in _TARGETS]
    names = Counter(name for _, name in changed if name != tool.name)
    if names.total() == len(_TARGETS) and len(names) == 1:
        yield Finding("mangled-name", "note", tool.name, f"its function is named {next(iter(names))}")
        return
    for target, name in changed:
        if name != tool.name:
            yield Finding("mangled-name", "note", tool.name, f"its {target} function is named {name}")


def _parameters(tool: ListedTool) -> tuple[tuple[Parameter, ...], tuple[Parameter, ...]]:
    planned = plan(tool.input_schema)
    return ((), ()) if isinstance(planned, WholeValue) else (planned.params, planned.optionals)


def _plan(tool: ListedTool) -> Iterator[Finding]:
    planned = plan(tool.input_schema)
    if isinstance(planned, WholeValue):
        text = f"one argument carries its entire argument map: {planned.reason}"
        yield Finding("whole-value", "warning", tool.name, text)
        return
    for parameter in planned.params[:_PARAMETERS_READ]:
        if isinstance(parameter.type, Structured):
            text = f"the required parameter {quoted(parameter.name)} has no simple type: {parameter.type.reason}"
            yield Finding("untyped-required", "note", tool.name, text)
    yield from _labels(tool, planned)


def _labels(tool: ListedTool, planned: Typed) -> Iterator[Finding]:
    targets: dict[tuple[str, Severity, str], list[str]] = {}
    for target, naming in _TARGETS:
        parameters = planned.params + planned.optionals if naming.optionals_are_labels else planned.params
        names = [parameter.name for parameter in parameters[:_PARAMETERS_READ]]
        found: list[tuple[str, Severity, str]] = []
        for label, originals in _collisions(names, naming.label):
            text = f"its parameters {_list(originals)} would both be labelled {label}, so it is untyped"
            found.append(("label-collision", "warning", text))
        mangled = [f"{quoted(name)} is {naming.label(name)}" for name in names if naming.label(name) != name]
        if mangled:
            more = f" and {len(mangled) - _NAMED} more" if len(mangled) > _NAMED else ""
            text = f"its parameters are renamed: {', '.join(mangled[:_NAMED])}{more}"
            found.append(("mangled-label", "note", text))
        for one in found:
            targets.setdefault(one, []).append(target)
    for (code, severity, text), where in targets.items():
        yield Finding(code, severity, tool.name, f"{text} ({', '.join(where)})")


def _collisions(originals: Sequence[str], rename: Any) -> Iterator[tuple[str, list[str]]]:
    by_name: dict[str, list[str]] = {}
    for original in originals:
        by_name.setdefault(rename(original), []).append(original)
    for name in sorted(by_name):
        if len(by_name[name]) > 1:
            yield name, by_name[name]


def _list(originals: Sequence[str]) -> str:
    shown = " and ".join(quoted(original) for original in originals[:_NAMED])
    return f"{shown} and {len(originals) - _NAMED} more" if len(originals) > _NAMED else shown


def _texts(tool: ListedTool) -> Iterator[Finding]:
    for where, whole, limit in _server_text(tool):
        text = whole[:_CHARACTERS_READ]
        if limit and len(whole) > limit:
            message = f"{where} is {len(whole)} characters long, {limit} are shown"
            yield Finding("long-text", "note", tool.name, message)
        hidden = _hidden(text)
        if hidden:
            yield Finding("hidden-text", "warning", tool.name, f"{where} holds invisible code points: {hidden}")
        match = _SUSPICIOUS.search(text)
        if match:
            message = f"{where} reads like an instruction to a model: {quoted(match[0], 80)}"
            yield Finding("suspicious-text", "warning", tool.name, message)


def _server_text(tool: ListedTool) -> Iterator[tuple[str, str, int]]:
    """What a model or a person may read of a tool: a name for it, the text, the limit that it is cut to (or 0)."""
    yield "its name", tool.name, NOTE_LIMIT
    yield "its title", tool.title or "", NOTE_LIMIT
    yield "its description", tool.description or "", DESCRIPTION_LIMIT
    for kind, schema in (("input", tool.input_schema), ("output", tool.output_schema)):
        yield from islice(_schema_text(f"its {kind} schema", schema), _TEXTS_READ)


def _schema_text(where: str, schema: Any) -> Iterator[tuple[str, str, int]]:
    # A queue of our own: a schema may be nested deeper than the interpreter's stack.
    queue: deque[tuple[str, Any]] = deque([(where, schema)])
    while queue:
        at, value = queue.popleft()
        if isinstance(value, list):
            queue += [(at, item) for item in value[:_TEXTS_READ]]
        elif isinstance(value, str):
            yield f"a value in {at}", value, 0
        elif isinstance(value, dict):
            for key, item in islice(value.items(), _TEXTS_READ):
                yield f"a key of {at}", key, 0
                if key == "description" and isinstance(item, str):
                    yield f"the description of {at}", item, NOTE_LIMIT
                else:
                    queue.append((f"{quoted(key)} in {where}", item))


def _hidden(text: str) -> str:
    points = {ord(hit[0]) for hit in _HIDDEN.finditer(text) if hit[0] not in _LAYOUT}
    points |= {ord(char) for char in set(text) if not char.isascii() and unicodedata.category(char) == "Cf"}
    shown = ", ".join(f"U+{point:04X}" for point in sorted(points)[:_NAMED])
    return f"{shown} and {len(points) - _NAMED} more" if len(points) > _NAMED else shown
