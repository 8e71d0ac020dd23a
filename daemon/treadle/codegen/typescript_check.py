"""The backstop of the TypeScript target: an allow-list of lines (codegen page, section 3)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from treadle.errors import SanitizerBreach

from .text import clip, typescript_literal

# Printable ASCII alone: a literal can neither end early nor hide anything. Each stands as § in the patterns below.
_STRING = re.compile(r'"(?:[ !#-\[\]-~]|\\["\\]|\\u\{[0-9a-f]{1,6}\})*"')
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_TYPE: Final = r"[A-Za-z0-9_<>|,§ -]+"
_PAIR: Final = rf"\[§, (?:options\.)?{_NAME}\]"

_HEADER = re.compile(r"//(?: .*)?")
_IMPORT = re.compile(r"import \{ invoke, type ToolResult \} from §;")
_INTERFACE = re.compile(rf"export interface {_NAME} \{{")
_KEY = re.compile(rf"  (?:{_NAME}|§)\??: {_TYPE};|  /\*\* unknown: [A-Za-z0-9$, ]+ \*/")
_COMMENT = re.compile(r" \*(?: (?:(?!\*/).)*)?")
_FUNCTION = re.compile(rf"export function {_NAME}\(")
_PARAMETER = re.compile(rf"  {_NAME}: {_TYPE}(?: = \{{\}})?,")
_RETURNS = re.compile(rf"\): Promise<ToolResult<{_TYPE}>> \{{")
_CALL = re.compile(rf"  return invoke<{_TYPE}>\(§, §, (?:input|\[(?:{_PAIR}(?:, {_PAIR})*)?\])\);")
_END = re.compile(r"\}")


class _Breach(Exception):
    pass


class _Lines:
    """The lines of a module, taken one by one."""

    def __init__(self, source: str) -> None:
        self._lines = source.split("\n")
        self.number = 0

    @property
    def next(self) -> str:
        return self._lines[self.number] if self.number < len(self._lines) else "\0"

    def take(self, what: str, pattern: re.Pattern[str], *, prose: bool = False) -> str:
        """The next line, which matches ``pattern`` once its literals are taken out (not in ``prose``)."""
        line = self.next
        if not pattern.fullmatch(line if prose else _STRING.sub("§", line.replace("§", "\0"))):
            raise _Breach(f"no {what}")
        self.number += 1
        return line

    def take_while(self, pattern: re.Pattern[str], *, prose: bool = False) -> None:
        while pattern.fullmatch(self.next if prose else _STRING.sub("§", self.next.replace("§", "\0"))):
            self.number += 1


def check(source: str, server: str, tools: Sequence[str]) -> None:
    """Raises :class:`SanitizerBreach` unless every line of ``source`` is one that a generated module may have.

    That is: a header of ``//`` lines, the one import, interfaces, and one function for each of ``tools`` (original
    names, in order) that returns the one call.
    """
    lines = _Lines(source)
    try:
        _module(lines, server, tools)
    except _Breach as breach:
        detail = f"{breach} where one belongs, line {lines.number + 1} of the TypeScript module"
        raise SanitizerBreach(detail, clip(server, 120)) from None


def _module(lines: _Lines, server: str, tools: Sequence[str]) -> None:
    blank = re.compile("")
    lines.take_while(_HEADER, prose=True)
    lines.take("blank line", blank)
    if tools:
        _expect(lines.take("import", _IMPORT), 'import { invoke, type ToolResult } from "./seam.js";')
    else:
        lines.take("export", re.compile(r"export \{\};"))
    lines.take("blank line", blank)
    while lines.next.startswith("export interface"):
        lines.take("interface", _INTERFACE)
        lines.take_while(_KEY)
        lines.take("end of an interface", _END)
        lines.take("blank line", blank)
    for index, tool in enumerate(tools):
        if index:
            lines.take("blank line", blank)
        _function(lines, server, tool)
    if tools:
        lines.take("blank line", blank)
    if lines.next != "\0":
        raise _Breach("no end of the module")


def _function(lines: _Lines, server: str, tool: str) -> None:
    lines.take("comment", re.compile(r"/\*\*"))
    lines.take_while(_COMMENT, prose=True)
    lines.take("end of a comment", re.compile(r" \*/"), prose=True)
    lines.take("function", _FUNCTION)
    lines.take_while(_PARAMETER)
    lines.take("result type", _RETURNS)
    call = lines.take("call of the seam", _CALL)
    if f">({typescript_literal(server)}, {typescript_literal(tool)}, " not in call:
        raise _Breach("no call of the tool itself")
    lines.take("end of a function", _END)


def _expect(found: str, wanted: str) -> None:
    if found != wanted:
        raise _Breach(f"no {wanted}")
