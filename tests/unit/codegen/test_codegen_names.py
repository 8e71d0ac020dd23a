"""Codegen page, section 2: names."""

import json
import keyword
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.codegen.functions import functions
from treadle.codegen.names import GLEAM, PYTHON, TYPESCRIPT, Naming, mangle, type_name
from treadle.errors import NameCollision
from unit.codegen.loading import VECTORS, listed

CASES = json.loads((VECTORS / "names.json").read_text())
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)
NAMINGS = pytest.mark.parametrize("naming", [GLEAM, PYTHON, TYPESCRIPT], ids=["gleam", "python", "typescript"])


@pytest.mark.parametrize("case", CASES["names"], ids=lambda case: case["original"][:20])
def test_a_tool_name_is_mangled_as_the_vector_says(case: dict[str, str]) -> None:
    assert GLEAM.function(case["original"]) == case["mangled"]


@pytest.mark.parametrize("case", CASES["labels"], ids=lambda case: case["original"])
def test_a_label_is_mangled_as_the_vector_says(case: dict[str, str]) -> None:
    assert GLEAM.label(case["original"]) == case["mangled"]


@NAMINGS
@given(ANY_TEXT)
def test_any_text_becomes_a_legal_name_that_is_not_reserved(naming: Naming, original: str) -> None:
    for rename, reserved in ((naming.function, naming.functions), (naming.label, naming.labels)):
        name = rename(original)
        assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name)
        assert len(name) <= 32 + 9
        assert name not in reserved


@given(ANY_TEXT, ANY_TEXT)
def test_distinct_originals_collide_only_when_one_spells_the_digest_of_the_other(one: str, other: str) -> None:
    if one != other and GLEAM.function(one) == GLEAM.function(other):
        assert GLEAM.function(one) in (one, other)


@given(st.from_regex(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", fullmatch=True).filter(lambda name: len(name) <= 32))
def test_a_legal_configuration_key_is_kept_as_it_is(name: str) -> None:
    if name not in GLEAM.modules | PYTHON.modules | TYPESCRIPT.modules:
        assert GLEAM.module(name) == PYTHON.module(name) == TYPESCRIPT.module(name) == name


def test_only_ascii_letters_are_lowered() -> None:
    assert mangle("\u212aelvin", frozenset()).startswith("elvin_")


def test_a_cut_name_never_doubles_the_underscore() -> None:
    name = mangle("a" * 31 + "_b", frozenset())
    assert name.startswith("a" * 31 + "_")
    assert "__" not in name


def test_no_python_keyword_of_this_interpreter_is_missing() -> None:
    assert set(keyword.kwlist) <= PYTHON.labels
    assert {*keyword.kwlist, *keyword.softkwlist} - {"lazy"} <= PYTHON.functions


@pytest.mark.parametrize("builtin", ["id", "type", "filter", "str", "self"])
def test_a_python_parameter_may_be_called_like_a_builtin(builtin: str) -> None:
    assert PYTHON.label(builtin) == builtin


@pytest.mark.parametrize("name", ["str", "dict", "object", "annotations", "invoke", "match", "class"])
def test_a_python_function_does_not_hide_what_the_module_uses(name: str) -> None:
    assert PYTHON.function(name).startswith(f"{name}_")


@pytest.mark.parametrize("name", ["arguments", "eval", "yield", "invoke", "options", "constructor"])
def test_a_typescript_label_is_none_of_the_reserved_words(name: str) -> None:
    assert TYPESCRIPT.label(name).startswith(f"{name}_")


@pytest.mark.parametrize(
    ("original", "expected"), [("git_log_2", "GitLog2"), ("dryRun", "DryRun"), ("1st-x", "T1stX"), ("名前", "")]
)
def test_a_name_becomes_a_type_name(original: str, expected: str) -> None:
    assert type_name(original) == expected


def test_two_tools_with_one_name_refuse_the_module_and_are_both_named() -> None:
    tools = listed([{"name": name, "inputSchema": {"type": "object"}} for name in ("foo_1cbec737", "Foo")])
    with pytest.raises(NameCollision, match=r"'Foo' and 'foo_1cbec737' would both be named foo_1cbec737"):
        functions("s", tools, GLEAM)


def test_functions_are_sorted_by_their_generated_name() -> None:
    tools = listed([{"name": name, "inputSchema": {"type": "object"}} for name in ("b", "Z", "a")])
    assert [function.name[0] for function in functions("s", tools, GLEAM)] == ["a", "b", "z"]


COLLIDING = {
    "type": "object",
    "properties": {"Foo": {"type": "string"}, "foo_1cbec737": {"type": "string"}, "x": {"type": "string"}},
}


def test_colliding_labels_turn_that_function_alone_into_its_whole_value_form() -> None:
    required = {**COLLIDING, "required": ["Foo", "foo_1cbec737"]}
    tools = listed([{"name": "bad", "inputSchema": required}, {"name": "good", "inputSchema": {"type": "object"}}])
    bad, good = functions("s", tools, GLEAM)
    assert bad.whole == 'its parameters "Foo" and "foo_1cbec737" get the same label'
    assert good.whole is None


def test_optional_parameters_are_labels_in_python_and_typescript_but_not_in_gleam() -> None:
    tools = listed([{"name": "t", "inputSchema": COLLIDING}])
    whole = [functions("s", tools, naming)[0].whole is not None for naming in (GLEAM, PYTHON, TYPESCRIPT)]
    assert whole == [False, True, True]
