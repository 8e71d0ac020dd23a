"""Codegen page, section 1: reading an input schema."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.codegen.plan import ListOf, Parameter, Simple, Structured, Typed, WholeValue, plan
from unit.codegen.loading import JSON


def typed(schema: dict[str, Any]) -> Typed:
    planned = plan({"type": "object", **schema})
    assert isinstance(planned, Typed)
    return planned


def type_of(schema: Any) -> Any:
    return typed({"properties": {"p": schema}, "required": ["p"]}).params[0].type


@given(JSON)
def test_any_json_value_settles(schema: Any) -> None:
    assert isinstance(plan(schema), Typed | WholeValue)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=5), st.lists(st.text(max_size=5), max_size=5))
def test_no_parameter_is_ever_dropped(properties: dict[str, Any], required: list[str]) -> None:
    planned = typed({"properties": properties, "required": required})
    assert [parameter.name for parameter in planned.params] == list(dict.fromkeys(required))
    assert [parameter.name for parameter in planned.optionals] == [
        key for key in properties if key not in required
    ]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (None, "its input schema is not an object"),
        ([], "its input schema is not an object"),
        (True, "its input schema is not an object"),
        ({}, "its input schema gives no type"),
        ({"anyOf": []}, "its input schema gives no type"),
        ({"type": "string"}, "its input schema is not of the type object"),
        ({"type": ["object"]}, "its input schema is not of the type object"),
        ({"type": "object", "properties": None}, "the properties of its input schema are not an object"),
        ({"type": "object", "properties": []}, "the properties of its input schema are not an object"),
        ({"type": "object", "required": None}, "the required list of its input schema is not an array of strings"),
        (
            {"type": "object", "required": ["a", 1]},
            "the required list of its input schema is not an array of strings",
        ),
    ],
)
def test_an_unusable_top_level_travels_whole(schema: Any, reason: str) -> None:
    assert plan(schema) == WholeValue(reason)


def test_an_object_without_properties_is_typed_and_empty() -> None:
    assert typed({}) == Typed((), ())


def test_required_order_decides_and_a_repeated_name_counts_once() -> None:
    planned = typed({"properties": {"a": {}, "b": {}}, "required": ["b", "a", "b"]})
    assert [parameter.name for parameter in planned.params] == ["b", "a"]


def test_a_required_name_that_is_never_declared_is_structured() -> None:
    assert typed({"required": ["ghost"]}).params == (
        Parameter("ghost", Structured("required, but declared nowhere")),
    )


@pytest.mark.parametrize("kind", ["string", "integer", "number", "boolean"])
def test_a_simple_type_and_a_list_of_one(kind: Any) -> None:
    assert type_of({"type": kind}) == Simple(kind)
    assert type_of({"type": "array", "items": {"type": kind}}) == ListOf(kind)


@pytest.mark.parametrize(
    "beside", [{"anyOf": [{}]}, {"nullable": True}, {"title": "x", "default": 1}, {"$ref": "#"}]
)
def test_only_the_type_decides(beside: dict[str, Any]) -> None:
    assert type_of({"type": "string", **beside}) == Simple("string")


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "object"}, "a nested object"),
        ({"type": "array"}, "an array whose items have no simple type"),
        ({"type": "array", "prefixItems": [{"type": "string"}]}, "an array whose items have no simple type"),
        ({"type": "array", "items": {"type": "object"}}, "an array of objects"),
        ({"type": "array", "items": {"anyOf": []}}, "an array whose items have no simple type"),
        ({"type": ["string", "null"]}, "of several types"),
        ({"type": "null"}, "always null"),
        ({"type": "file"}, "of no type that JSON Schema knows"),
        ({"type": {"a": 1}}, "of no type that JSON Schema knows"),
        ({"anyOf": []}, "described by anyOf"),
        ({"oneOf": []}, "described by oneOf"),
        ({"allOf": []}, "described by allOf"),
        ({"$ref": "#/x"}, "described by $ref"),
        ({}, "of no declared type"),
        (True, "described by a boolean schema"),
        (7, "described by something that is no schema"),
    ],
)
def test_anything_else_is_structured_with_the_reason(schema: Any, reason: str) -> None:
    assert type_of(schema) == Structured(reason)


def test_the_string_members_of_an_enum_are_kept_and_the_type_stays_string() -> None:
    planned = typed({"properties": {"p": {"type": "string", "enum": ["a", 1, "b", None]}}})
    assert planned.optionals == (Parameter("p", Simple("string"), enum=("a", "b")),)


def test_a_description_is_the_note_if_it_is_a_string() -> None:
    planned = typed({"properties": {"p": {"description": "say"}, "q": {"description": 1}}})
    assert [parameter.note for parameter in planned.optionals] == ["say", None]
