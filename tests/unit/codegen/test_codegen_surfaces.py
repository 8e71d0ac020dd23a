"""Codegen page, sections 4 and 5: a surface states exactly the signatures of its module."""

import ast
import re
from collections.abc import Callable

import pytest

from treadle.codegen import TARGETS, Target, generate
from unit.codegen.corpus import named, random_listing
from unit.codegen.loading import REAL, listed, real

LISTINGS = {
    **{name: real(name) for name in REAL},
    **{name: listed(named()[name]) for name in ("keywords", "code in descriptions", "recursive", "long keys")},
    **{f"random {seed}": listed(random_listing(seed)) for seed in range(20)},
}


def _one_line(text: str) -> str:
    return re.sub(r",? *([)}])", r"\1", re.sub(r"([({]) *", r"\1", " ".join(text.split())))


def gleam_signatures(text: str) -> list[str]:
    found = re.findall(r"^pub fn (?:.*\(\n(?:  .*\n)*\).*|.*\).*)$", text, re.MULTILINE)
    return [re.sub(r"\b(\w+) \1: ", r"\1: ", _one_line(one.removesuffix("{"))).strip() for one in found]


def typescript_signatures(text: str) -> list[str]:
    found = re.findall(r"^export function (?:.*\(\n(?:  .*\n)*\).*|.*\).*)$", text, re.MULTILINE)
    # In a declaration a parameter with a default is an optional one.
    return [
        _one_line(re.sub(r"(\w+): (\w+) = \{\}", r"\1?: \2", one).removesuffix("{").removesuffix(";")).strip()
        for one in found
    ]


def python_signatures(text: str) -> list[str]:
    found = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [
        f"{type(node).__name__} {node.name}({ast.unparse(node.args)}) -> {ast.unparse(node.returns or node)}"
        for node in found
    ]


SIGNATURES: dict[str, Callable[[str], list[str]]] = {
    "gleam": gleam_signatures,
    "python": python_signatures,
    "typescript": typescript_signatures,
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", LISTINGS)
def test_the_signatures_of_the_surface_are_those_of_the_source(name: str, target: Target) -> None:
    tools = LISTINGS[name]
    made = generate("s", tools, target)
    signatures = SIGNATURES[target](made.source)
    assert len(signatures) == len(tools)
    assert SIGNATURES[target](made.surface) == signatures


def test_the_surface_of_an_asynchronous_module_is_asynchronous() -> None:
    made = generate("s", LISTINGS["git"], "python", asynchronous=True)
    assert python_signatures(made.surface) == python_signatures(made.source)
    assert all(signature.startswith("Async") for signature in python_signatures(made.surface))


@pytest.mark.parametrize("name", LISTINGS)
def test_a_python_surface_declares_the_types_of_its_module(name: str) -> None:
    made = generate("s", LISTINGS[name], "python")

    def types(text: str) -> list[str]:
        return [ast.unparse(node) for node in ast.parse(text).body if isinstance(node, ast.ClassDef | ast.Assign)]

    assert types(made.surface) == types(made.source)


@pytest.mark.parametrize("name", LISTINGS)
def test_a_typescript_surface_declares_the_interfaces_of_its_module(name: str) -> None:
    made = generate("s", LISTINGS[name], "typescript")
    pattern = re.compile(r"^export interface \w+ \{\n(?:  .*\n)*\}$", re.MULTILINE)
    assert pattern.findall(made.surface) == pattern.findall(made.source)


@pytest.mark.parametrize(("target", "prefix"), [("gleam", "///"), ("python", "#"), ("typescript", " *")])
def test_every_doc_line_of_a_surface_carries_its_prefix(target: Target, prefix: str) -> None:
    tools = listed([{"name": "t", "inputSchema": {"type": "object"}, "description": "marker " * 60}])
    surface = generate("s", tools, target).surface
    lines = [line for line in surface.split("\n") if "marker" in line]
    assert len(lines) > 3
    assert all(line.startswith(f"{prefix} ") for line in lines)
