"""What is left of a module once comments and string literals are gone: the shapes that it may have, told anew.

The generator's own backstops are not used here, so that a hole in one does not hide in the other.
"""

from __future__ import annotations

import ast
import re

_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')


def _strip(source: str, comment: str) -> str:
    without = re.sub(comment, "", source, flags=re.MULTILINE)
    return " ".join(_STRING.sub("S", without).split())


_NAME = r"[a-z][a-z0-9_]*"
_GLEAM_SIMPLE = r"(?:String|Int|Float|Bool)"
_GLEAM_TYPE = rf"(?:{_GLEAM_SIMPLE}|List\({_GLEAM_SIMPLE}\)|report\.Value|List\(#\(String, report\.Value\)\))"
_GLEAM_ENCODER = r"report\.(?:string|int|float|bool)"
_GLEAM_LIST = rf"report\.list\(list\.map\({_NAME}, {_GLEAM_ENCODER}\)\)"
_GLEAM_VALUE = rf"(?:{_GLEAM_ENCODER}\({_NAME}\)|{_GLEAM_LIST}|{_NAME})"
_GLEAM_PAIR = rf"#\(S, {_GLEAM_VALUE}\)"
_GLEAM_FUNCTION = (
    rf"pub fn {_NAME}\( (?:{_NAME} {_NAME}: {_GLEAM_TYPE}, )*\) -> Result\(mcp\.ToolResult, mcp\.McpError\) \{{ "
    rf"internal\.invoke\(S, S, (?:arguments|report\.object\(options\)"
    rf"|report\.object\(list\.append\(\[{_GLEAM_PAIR}(?:, {_GLEAM_PAIR})*\], options\)\))\) \}}"
)
_GLEAM = (
    r"(?:import cap/internal/mcp as internal import cap/mcp import cap/report(?: import gleam/list)? "
    rf"{_GLEAM_FUNCTION}(?: {_GLEAM_FUNCTION})*)?"
)


def check_gleam(source: str) -> None:
    """Asserts that the Gleam module holds imports and one-call functions alone."""
    assert re.fullmatch(_GLEAM, _strip(source, r"^ *//.*$"))


_TS_TYPE = r"[A-Za-z0-9_<>|, -]+"
_TS_FIELD = rf"(?:[A-Za-z0-9_]+|S)\??: {_TS_TYPE};"
_TS_PAIR = rf"\[S, (?:options\.)?{_NAME}\]"
_TS_FUNCTION = (
    rf"export function {_NAME}\( (?:{_NAME}: {_TS_TYPE}(?: = \{{\}})?, )*\): Promise<ToolResult<{_TS_TYPE}>> \{{ "
    rf"return invoke<{_TS_TYPE}>\(S, S, (?:input|\[(?:{_TS_PAIR}(?:, {_TS_PAIR})*)?\])\); \}}"
)
_TS = (
    r"(?:export \{\};|import \{ invoke, type ToolResult \} from S;"
    rf"(?: export interface [A-Za-z0-9]+ \{{(?: {_TS_FIELD})+ \}})*(?: {_TS_FUNCTION})+)"
)


def check_typescript(source: str) -> None:
    """Asserts that the TypeScript module holds one import, interfaces and one-call functions alone."""
    # A comment ends at the first end mark, wherever it stands.
    assert re.fullmatch(_TS, _strip(source, r"^//.*$|/\*\*(?:[^*]|\*(?!/))*\*/"))


def check_python(source: str) -> None:
    """Asserts that the Python module holds imports, types and one-call functions alone."""
    kinds = (ast.Expr, ast.ImportFrom, ast.ClassDef, ast.Assign, ast.FunctionDef, ast.AsyncFunctionDef)
    module = ast.parse(source)
    assert all(isinstance(node, kinds) for node in module.body)
    assert [isinstance(node, ast.Expr) for node in module.body].count(True) == 1
    imported = {alias.name for node in module.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    names = {"annotations", "Any", "Literal", "NotRequired", "TypedDict", "UNSET", "Result", "Unset"}
    assert imported <= names | {"invoke", "invoke_async"}
    calls = [node.func for node in ast.walk(module) if isinstance(node, ast.Call)]
    assert all(isinstance(call, ast.Name) and call.id in {"TypedDict", "invoke", "invoke_async"} for call in calls)
    forbidden = (
        ast.Attribute,
        ast.Lambda,
        ast.Import,
        ast.JoinedStr,
        ast.Starred,
        ast.NamedExpr,
        ast.comprehension,
    )
    assert not any(isinstance(node, forbidden) for node in ast.walk(module))
