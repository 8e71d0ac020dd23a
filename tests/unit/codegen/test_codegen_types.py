"""Codegen page, section 5: what of a schema becomes a type, and what becomes any value with the reason."""

from typing import Any

import pytest
from hypothesis import given

from treadle.codegen import generate
from treadle.codegen.python_types import LINE, TypeWriter, types
from treadle.codegen.shapes import DEPTH_LIMIT, Reader, Types, Unknown, reachable, unknowns
from unit.codegen.corpus import TREE, doubling, nested, nested_unions
from unit.codegen.loading import JSON, one


def expression(schema: Any, *, root: Any = None, reading: bool = False) -> str:
    """``schema`` as a Python type."""
    table = types()
    shape = Reader(table, schema if root is None else root, "T", reading=reading).read(schema, "T")
    return TypeWriter(table).expression(shape)


@given(JSON)
def test_any_json_value_has_a_type(schema: Any) -> None:
    assert expression(schema)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, "str"),
        ({"type": "integer"}, "int"),
        ({"type": "number"}, "float"),
        ({"type": "boolean"}, "bool"),
        ({"type": "null"}, "None"),
        ({"type": "string", "anyOf": [{"minLength": 1}]}, "str"),
        ({"type": "string", "nullable": True}, "str | None"),
        ({"type": ["string", "null"]}, "str | None"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "str | None"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "string"}]}, "str | int"),
        ({"allOf": [{"type": "string"}]}, "str"),
        ({"type": "array", "items": {"type": "string"}}, "list[str]"),
        ({"type": "array", "items": {"type": ["string", "integer"]}}, "list[str | int]"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "dict[str, int]"),
        ({"type": "object"}, "dict[str, Any]"),
        ({"type": "array"}, "list[Any]"),
        ({"type": "array", "prefixItems": [{"type": "string"}]}, "list[Any]"),
        ({"type": "object", "properties": {"a": {}}}, "T"),
    ],
)
def test_a_schema_becomes_a_type(schema: Any, expected: str) -> None:
    assert expression(schema) == expected


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"enum": ["a", "b", "a"]}, 'Literal["a", "b"]'),
        ({"type": "string", "enum": ["a", 1]}, 'Literal["a"]'),
        ({"enum": ["a", 1, True, None]}, 'Literal["a", 1, True] | None'),
        ({"type": "integer", "enum": [1, -1]}, "Literal[1, -1]"),
        ({"type": "number", "enum": [1.5]}, "float"),
        ({"enum": [1.5]}, "Any"),
        ({"enum": []}, "Any"),
        ({"enum": [[]]}, "Any"),
        ({"const": "x"}, 'Literal["x"]'),
        ({"type": "string", "enum": [str(index) for index in range(10_000)]}, "str"),
        ({"type": "integer", "enum": [10**400]}, "int"),
    ],
)
def test_an_enum_becomes_literals_where_the_language_has_them(schema: Any, expected: str) -> None:
    assert expression(schema) == expected


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({}, "of no declared type"),
        (True, "described by a boolean schema"),
        ({"type": "file"}, "of no type that JSON Schema knows"),
        ({"allOf": [{}, {}]}, "described by allOf"),
        ({"not": {}}, "described by not"),
        ({"anyOf": [{"type": "string"}, {}]}, "of no declared type"),
        ({"anyOf": [{"type": "string"}], "oneOf": []}, "described by several schemas at once"),
        ({"anyOf": [{"const": index} for index in range(40)]}, "one of more than 16 types"),
        ({"$ref": "https://example.invalid/x"}, "a $ref that leads out of its schema"),
        ({"$ref": "#/nowhere"}, "a $ref that leads nowhere"),
        ({"$ref": 7}, "a $ref that leads out of its schema"),
    ],
)
def test_what_cannot_be_read_is_any_value_with_the_reason(schema: Any, reason: str) -> None:
    assert Reader(Types(frozenset()), schema, "T").read(schema, "T") == Unknown(reason)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"additionalProperties": True}, "an object that takes more keys than it declares"),
        ({"additionalProperties": {}}, "an object that takes more keys than it declares"),
        ({"anyOf": []}, "an object described by anyOf, too"),
        ({"patternProperties": {}}, "an object described by patternProperties, too"),
        ({"required": None}, "an object whose properties cannot be read"),
        ({"required": [1]}, "an object whose required list cannot be read"),
    ],
)
def test_an_object_that_is_not_fully_described_is_a_map(more: Any, reason: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, **more}
    shape = Reader(Types(frozenset()), schema, "T").read(schema, "T")
    assert list(unknowns(shape)) == [reason]


def test_a_result_with_more_keys_than_declared_can_still_be_read_by_those_declared() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True}
    assert expression(schema, reading=True) == "T"


def test_references_within_the_schema_are_followed_by_json_pointer() -> None:
    root = {"$defs": {"a/b c": {"type": "integer"}}, "list": [{"type": "boolean"}]}
    assert expression({"$ref": "#/$defs/a~1b%20c"}, root=root) == "int"
    assert expression({"$ref": "#/list/0"}, root=root) == "bool"
    assert expression({"$ref": "#/list/1"}, root=root) == "Any"


def module(schema: Any) -> dict[str, Any]:
    """The namespace of the Python module of one tool with the required parameter ``x``."""
    root = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    namespace: dict[str, Any] = {}
    exec(generate("s", one(root), "python").source, namespace)
    return namespace


def test_a_recursive_record_refers_to_itself() -> None:
    text = generate("s", one(TREE), "python").source
    assert "class TNode(TypedDict):\n    value: str | None\n    children: NotRequired[list[TNode]]\n" in text
    assert "    parent: NotRequired[TNode | None]\n" in text


def test_recursion_that_cannot_be_written_is_any_value() -> None:
    text = generate("s", one(TREE), "python").source
    assert "# Any: an object inside itself, with keys that are no identifiers" in text
    assert "`loop` (any value: a $ref that comes back to itself)" in text


def test_keys_that_are_no_identifiers_are_kept_in_a_functional_typed_dict() -> None:
    keys = ["cik-A", "from", "class", "__private", "str", "é", "k" * 100, "fine"]
    made = module(
        {"type": "object", "properties": {key: {"type": "string"} for key in keys}, "required": ["from"]}
    )
    assert set(made["TX"].__annotations__) == set(keys)
    assert made["TX"].__required_keys__ == {"from"}


@pytest.mark.parametrize("name", ["typed/dict", "not/required"])
def test_a_type_is_never_named_like_an_import(name: str) -> None:
    tool, parameter = name.split("/")
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    root = {"type": "object", "properties": {parameter: schema}}
    exec(generate("s", one(root, name=tool), "python").source, {})


def test_a_deep_schema_is_typed_to_a_depth_and_then_any_value() -> None:
    text = generate("s", one({"type": "object", "properties": {"x": nested(1_000)}}), "python").source
    assert text.count("(TypedDict)") == DEPTH_LIMIT
    assert f"# Any: nested more than {DEPTH_LIMIT} deep" in text
    assert expression(nested_unions(1_000)) == "Any"


def test_a_type_that_references_would_blow_up_is_any_value() -> None:
    assert "Any" in expression(doubling(40)["properties"]["x"], root=doubling(40))
    assert len(expression(doubling(6)["properties"]["x"], root=doubling(6))) < 2_000


def test_records_that_no_signature_uses_are_not_declared() -> None:
    record = {"type": "object", "properties": {"a": {"type": "string"}}}
    text = generate("s", one({"type": "object", "properties": {"x": {"anyOf": [record, {}]}}}), "python").source
    assert "TypedDict" not in text
    assert reachable([], [Unknown("x")]) == []


def test_a_type_too_long_for_its_line_gets_a_name() -> None:
    members = [f"a rather long member {index}" for index in range(6)]
    text = generate("s", one({"type": "object", "properties": {"x": {"enum": members}}}), "python").source
    assert "TX = Literal[\n" in text
    assert "    x: TX | Unset = UNSET,\n" in text
    assert all(len(line) <= LINE for line in text.split("\n"))
