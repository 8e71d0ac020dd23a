"""Whether a generated module still fits the listing of its server."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from treadle.errors import GenerationRefused, explain

from . import gleam, python, typescript
from .docs import DIGEST_PREFIX
from .listing import ListedTool, digest
from .text import quoted


@dataclass(frozen=True, slots=True)
class Same:
    """The module is, to the letter, what is generated from this very listing."""


@dataclass(frozen=True, slots=True)
class Altered:
    """The module names this very listing, but is not what is generated from it."""


@dataclass(frozen=True, slots=True)
class Change:
    """One tool (original name) with its signature in the module and in the listing; None: absent there.

    Two equal signatures: the doc text, or a type that the signature names, has changed.
    """

    tool: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class Changed:
    """The listing is another one; the changes are sorted by tool.

    All three are empty where nothing that the module shows has changed (annotations, say, or the end of a long
    text).
    """

    added: tuple[Change, ...] = ()
    removed: tuple[Change, ...] = ()
    changed: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class CannotTell:
    """The comparison is not possible; ``reason`` is a sentence."""

    reason: str


Drift = Same | Altered | Changed | CannotTell


@dataclass(frozen=True, slots=True)
class _Entry:
    signature: str
    text: str


@dataclass(frozen=True, slots=True)
class _Module:
    """What was read from a module: its functions by original tool name, and the server that they call."""

    server: str
    entries: dict[str, _Entry]
    asynchronous: bool = False


class _Unreadable(Exception):
    pass


_STRING: Final = r'"(?:[^"\\\n]|\\.)*"'
_DIGEST = re.compile(rf"^(?:/+ )?{DIGEST_PREFIX}([0-9a-f]{{64}})$", re.MULTILINE)
_GLEAM = re.compile(
    rf"((?:^///.*\n)*)^pub fn (?P<name>\w+)\(\n(?P<parameters>(?:^  .*\n)*)^\) -> (?P<result>.*) \{{\n"
    rf"  internal\.invoke\((?P<server>{_STRING}), (?P<tool>{_STRING}), .*\)\n\}}$",
    re.MULTILINE,
)
_TYPESCRIPT = re.compile(
    rf"^/\*\*\n(?:^ \*(?!/).*\n)*^ \*/\n^export function (?P<name>\w+)\(\n(?P<parameters>(?:^  .*\n)*)"
    rf"^\): (?P<result>.*) \{{\n  return invoke<.*?>\((?P<server>{_STRING}), (?P<tool>{_STRING}), .*\);\n\}}$",
    re.MULTILINE,
)
_INTERFACE = re.compile(r"^export interface (\w+) \{\n(?:^  .*\n)*^\}$", re.MULTILINE)
_ESCAPE = re.compile(r"\\u\{([0-9a-f]{1,6})\}|\\(.)")
_TYPE_NAME = re.compile(r"\b[A-Z]\w*\b")


def compare(module_text: str, server: str, listing: Sequence[ListedTool]) -> Drift:
    """How ``module_text`` (any target) differs from what is generated from the ``listing`` of ``server`` now.

    Its lines end with a line feed. Total.
    """
    found = _DIGEST.findall(module_text.partition("\nimport ")[0])
    kind = _target(module_text)
    if kind is None or not found:
        return CannotTell(
            "this is no module that was generated here: its header does not carry a listing's SHA-256"
        )
    read, generate = kind
    if found[0] == digest(listing):
        try:
            made = (generate(_Module(server, {}, asynchronous), listing) for asynchronous in (False, True))
            return Same() if module_text in made else Altered()
        except GenerationRefused as refusal:
            return CannotTell(f"the listing is the same, but gives no module any more: {explain(refusal)}")
    try:
        old = read(module_text)
        new = read(generate(old, listing))
    except _Unreadable as error:
        return CannotTell(f"the listing has changed, and the module was edited by hand: {error}")
    except GenerationRefused as refusal:
        return CannotTell(f"the listing has changed, and gives no module any more: {explain(refusal)}")
    return _changes(old.entries, new.entries)


def report(drift: Drift) -> str:
    """``drift`` for people, one line for each change; server text in it is clean."""
    match drift:
        case Same():
            return "unchanged"
        case Altered():
            return (
                "the listing is the same, but the text is not what is generated from it: edited by hand, for "
                "another server, or made by another version; generate it again"
            )
        case CannotTell(reason):
            return reason
    lines = [f"added {quoted(change.tool)}: {change.new}" for change in drift.added]
    lines += [f"removed {quoted(change.tool)}: {change.old}" for change in drift.removed]
    for change in drift.changed:
        if change.old == change.new:
            lines.append(f"changed {quoted(change.tool)}: its doc text or the types that it names")
        else:
            lines += [f"changed {quoted(change.tool)}:", f"  old {change.old}", f"  new {change.new}"]
    return "\n".join(lines) or "the listing has changed, but nothing that the module shows"


def _changes(old: dict[str, _Entry], new: dict[str, _Entry]) -> Changed:
    return Changed(
        added=tuple(Change(tool, None, new[tool].signature) for tool in sorted(new.keys() - old.keys())),
        removed=tuple(Change(tool, old[tool].signature, None) for tool in sorted(old.keys() - new.keys())),
        changed=tuple(
            Change(tool, old[tool].signature, new[tool].signature)
            for tool in sorted(old.keys() & new.keys())
            if old[tool] != new[tool]
        ),
    )


_Reader = Callable[[str], _Module]
_Writer = Callable[[_Module, Sequence[ListedTool]], str]


def _target(module_text: str) -> tuple[_Reader, _Writer] | None:
    if module_text.startswith("//// "):
        return _read_gleam, lambda old, listing: gleam.generate(old.server, listing).source
    if module_text.startswith('"""'):
        return (
            _read_python,
            lambda old, listing: python.generate(old.server, listing, asynchronous=old.asynchronous).source,
        )
    if module_text.startswith("// "):
        return _read_typescript, lambda old, listing: typescript.generate(old.server, listing).source
    return None


def _read_gleam(source: str) -> _Module:
    matches = list(_GLEAM.finditer(source))
    _complete(len(matches), re.findall(r"^pub fn ", source, re.MULTILINE))
    # A parameter is written "label label: Type,": the signature says it once.
    return _module(
        matches,
        {},
        lambda m, p: f"pub fn {m['name']}({', '.join(x.partition(' ')[2] or x for x in p)}) -> {m['result']}",
    )


def _read_typescript(source: str) -> _Module:
    matches = list(_TYPESCRIPT.finditer(source))
    _complete(len(matches), re.findall(r"^export function ", source, re.MULTILINE))
    types = {match[1]: match[0] for match in _INTERFACE.finditer(source)}
    return _module(matches, types, lambda m, p: f"export function {m['name']}({', '.join(p)}): {m['result']}")


def _complete(read: int, present: list[str]) -> None:
    if read != len(present):
        raise _Unreadable(f"{len(present) - read} of its functions cannot be read")


def _module(
    matches: Sequence[re.Match[str]],
    types: dict[str, str],
    signature: Callable[[re.Match[str], list[str]], str],
) -> _Module:
    entries = {}
    for match in matches:
        parameters = [line.strip().removesuffix(",") for line in match["parameters"].splitlines()]
        entries[_unescape(match["tool"])] = _Entry(signature(match, parameters), _closure(match[0], types))
    return _Module(_unescape(matches[0]["server"]) if matches else "", entries)


def _unescape(literal: str) -> str:
    def plain(hit: re.Match[str]) -> str:
        return str(hit[2]) if hit[2] else chr(min(int(hit[1], 16), 0x10FFFF))

    return _ESCAPE.sub(plain, literal[1:-1])


def _closure(text: str, types: dict[str, str]) -> str:
    """``text`` with the declarations of all types that it names, directly or through each other."""
    found: dict[str, str] = {}
    stack = [text]
    while stack:
        for name in _TYPE_NAME.findall(stack.pop()):
            if name in types and name not in found:
                found[name] = types[name]
                stack.append(types[name])
    return "\n".join([text, *(found[name] for name in sorted(found))])


def _read_python(source: str) -> _Module:
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _Unreadable(f"it does not parse ({type(error).__name__})") from None
    lines = source.split("\n")

    def text(node: ast.stmt) -> str:
        return "\n".join(lines[node.lineno - 1 : node.end_lineno])

    types = {}
    for node in body:
        match node:
            case ast.ClassDef(name) | ast.Assign([ast.Name(name)]):
                types[name] = text(node)
    made = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    server, entries = "", {}
    for function in made:
        server, tool = _called(function)
        entries[tool] = _Entry(_python_signature(function), _closure(text(function), types))
    return _Module(server, entries, any(isinstance(function, ast.AsyncFunctionDef) for function in made))


def _called(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, str]:
    match function.body[-1]:
        case ast.Return(
            ast.Call(args=[ast.Constant(str(server)), ast.Constant(str(tool)), _])
            | ast.Await(ast.Call(args=[ast.Constant(str(server)), ast.Constant(str(tool)), _]))
        ):
            return server, tool
    raise _Unreadable(f"the function {function.name} makes no call of the seam")


def _python_signature(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    start = "async def" if isinstance(function, ast.AsyncFunctionDef) else "def"
    parameters = ast.unparse(function.args).replace("=UNSET", " = UNSET")
    returns = "" if function.returns is None else f" -> {ast.unparse(function.returns)}"
    return f"{start} {function.name}({parameters}){returns}"
