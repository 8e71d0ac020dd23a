"""The backstop of the Python target: an allow-list of syntax (codegen page, section 3)."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final

from treadle.errors import SanitizerBreach

from .text import clip

_IMPORTS: Final = {
    "__future__": {"annotations"},
    "typing": {"Any", "Literal", "NotRequired", "TypedDict"},
    "treadle_client.facade": {"UNSET", "Result", "Unset", "invoke", "invoke_async"},
}
_GENERIC: Final = {"list", "dict", "Literal", "NotRequired", "Result"}
_NAMES: Final = {"str", "int", "float", "bool", "Any", "Unset"}


class _Breach(Exception):
    def __init__(self, node: ast.AST | None, what: str) -> None:
        super().__init__(f"{what}, line {getattr(node, 'lineno', 1)} of the Python module")


def check(source: str, server: str, tools: Sequence[str]) -> None:
    """Raises :class:`SanitizerBreach` unless ``source`` is only what a generated module may be.

    That is: a docstring, imports from the fixed list, ``TypedDict``s and type aliases, and one annotated function
    for each of ``tools`` (original names, in order), whose body is a docstring and the return of the one call.
    """
    try:
        _module(ast.parse(source), server, tools)
    except _Breach as breach:
        raise SanitizerBreach(str(breach), clip(server, 120)) from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SanitizerBreach(
            f"the Python module does not parse ({type(error).__name__})", clip(server, 120)
        ) from None


def _module(module: ast.Module, server: str, tools: Sequence[str]) -> None:
    docstring, *rest = module.body
    _require(_is_docstring(docstring), docstring, "no docstring opens the module")
    types = {name for node in rest if (name := _declared(node)) is not None}
    expected = iter(tools)
    for node in rest:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            _function(node, types, server, next(expected, None))
        elif isinstance(node, ast.ImportFrom):
            _import(node)
        elif isinstance(node, ast.ClassDef):
            _class(node, types)
        elif isinstance(node, ast.Assign):
            _assignment(node, types)
        else:
            raise _Breach(node, f"a statement of the kind {type(node).__name__}")
    _require(next(expected, None) is None, None, "a function is missing")


def _require(condition: bool, node: ast.AST | None, what: str) -> None:
    if not condition:
        raise _Breach(node, what)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and _is_text(node.value)


def _is_text(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _declared(node: ast.stmt) -> str | None:
    if isinstance(node, ast.ClassDef):
        return node.name
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return None


def _import(node: ast.ImportFrom) -> None:
    allowed = _IMPORTS.get(node.module or "", set())
    fine = node.level == 0 and all(alias.asname is None and alias.name in allowed for alias in node.names)
    _require(fine, node, "an import outside the fixed list")


def _class(node: ast.ClassDef, types: set[str]) -> None:
    bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
    plain = bases == ["TypedDict"] and len(node.bases) == 1 and not node.keywords and not node.decorator_list
    _require(plain, node, "a class that is no TypedDict")
    for item in node.body:
        field = isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.value is None
        _require(field, item, "a class with more than fields")
        assert isinstance(item, ast.AnnAssign)
        _type(item.annotation, types)


def _assignment(node: ast.Assign, types: set[str]) -> None:
    name = _declared(node)
    _require(
        name is not None and name[:1].isupper() and name != "UNSET", node, "an assignment that declares no type"
    )
    value = node.value
    if not isinstance(value, ast.Call):
        _type(value, types)
        return
    _require(
        isinstance(value.func, ast.Name) and value.func.id == "TypedDict", node, "a call that is not the seam's"
    )
    _require(len(value.args) == 2 and not value.keywords and _is_text(value.args[0]), node, "an odd TypedDict")
    keys = value.args[1]
    _require(isinstance(keys, ast.Dict) and all(map(_is_text, keys.keys)), node, "an odd TypedDict")
    assert isinstance(keys, ast.Dict)
    for key in keys.values:
        _type(key, types)


def _type(node: ast.expr | None, types: set[str]) -> None:
    match node:
        case ast.Name(name):
            _require(name in _NAMES or name in types, node, "a type by an unknown name")
        case ast.Constant(None):
            pass
        case ast.BinOp(left, ast.BitOr(), right):
            _type(left, types)
            _type(right, types)
        case ast.Subscript(ast.Name("Literal"), members):
            _require(all(map(_is_literal, _elements(members))), node, "a literal that is no plain value")
        case ast.Subscript(ast.Name(name), arguments) if name in _GENERIC:
            for argument in _elements(arguments):
                _type(argument, types)
        case _:
            raise _Breach(node, "an annotation that is no plain type")


def _elements(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return isinstance(node.operand, ast.Constant) and type(node.operand.value) is int
    return isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, str | bool | int))


def _function(
    node: ast.FunctionDef | ast.AsyncFunctionDef, types: set[str], server: str, tool: str | None
) -> None:
    arguments = node.args
    names = [argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)]
    plain = not (
        node.decorator_list or arguments.posonlyargs or arguments.vararg or arguments.kwarg or arguments.defaults
    )
    _require(plain, node, "a signature with more than annotated parameters")
    for argument in (*arguments.args, *arguments.kwonlyargs):
        _type(argument.annotation, types)
    for default in arguments.kw_defaults:
        _require(isinstance(default, ast.Name) and default.id == "UNSET", node, "a default other than UNSET")
    _type(node.returns, types)
    _require(len(node.body) == 2 and _is_docstring(node.body[0]), node, "a body with more than the one call")
    last = node.body[1]
    _require(isinstance(last, ast.Return), node, "a body with more than the one call")
    assert isinstance(last, ast.Return)
    call, seam = last.value, "invoke"
    if isinstance(node, ast.AsyncFunctionDef):
        _require(isinstance(call, ast.Await), node, "a coroutine that does not await")
        assert isinstance(call, ast.Await)
        call, seam = call.value, "invoke_async"
    _call(call, seam, names, server, tool)


def _call(call: ast.expr | None, seam: str, names: list[str], server: str, tool: str | None) -> None:
    match call:
        case ast.Call(ast.Name(name), [ast.Constant(to), ast.Constant(called), carried], []):
            _require(name == seam, call, "a call that is not the seam's")
            _require((to, called) == (server, tool), call, "a call of another tool")
        case _:
            raise _Breach(call, "a call that is not the seam's")
    match carried:
        case ast.Name("arguments"):
            _require(names == ["arguments"], call, "arguments that are no parameter")
        case ast.Dict(keys, values):
            _require(all(map(_is_text, keys)), call, "a wire name that is no literal")
            sent = [value.id if isinstance(value, ast.Name) else None for value in values]
            _require(sent == names, call, "arguments other than the parameters")
        case _:
            raise _Breach(call, "arguments other than the parameters")
