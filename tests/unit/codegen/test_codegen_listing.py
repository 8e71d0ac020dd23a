"""The generator's input: which listings are taken, and their digest."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.codegen import ListedTool, digest, from_result
from treadle.codegen.listing import canonical
from treadle.errors import DuplicateTool, FieldFault
from unit.codegen.corpus import nested
from unit.codegen.loading import JSON

SCHEMA = {"type": "object"}


def test_a_tools_list_result_and_the_sockets_answer_give_the_same_listing() -> None:
    wire = {"tools": [{"name": "t", "description": "d", "inputSchema": SCHEMA, "outputSchema": SCHEMA}]}
    socket = {
        "server": "s",
        "tools": [{"name": "t", "description": "d", "input_schema": SCHEMA, "output_schema": SCHEMA}],
    }
    expected = (ListedTool("t", description="d", input_schema=SCHEMA, output_schema=SCHEMA),)
    assert from_result(wire) == from_result(socket) == expected


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (None, "tools"),
        ([], "tools"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"name": "a", "inputSchema": SCHEMA}, 7]}, "tools[1]"),
        ({"tools": [{"inputSchema": SCHEMA}]}, "tools[0].name"),
        ({"tools": [{"name": "", "inputSchema": SCHEMA}]}, "tools[0].name"),
        ({"tools": [{"name": 7, "inputSchema": SCHEMA}]}, "tools[0].name"),
        ({"tools": [{"name": "a"}]}, "tools[0].inputSchema"),
        ({"tools": [{"name": "a", "inputSchema": None}]}, "tools[0].inputSchema"),
        ({"tools": [{"name": "a", "inputSchema": SCHEMA, "description": 7}]}, "tools[0].description"),
    ],
)
def test_a_broken_listing_is_refused_naming_the_field(value: Any, field: str) -> None:
    with pytest.raises(FieldFault) as caught:
        from_result(value)
    assert caught.value.field == field


def test_a_repeated_name_is_refused_naming_both_places() -> None:
    tools = [{"name": name, "inputSchema": SCHEMA} for name in "aba"]
    with pytest.raises(DuplicateTool, match=r"tools\[2\] repeats the name 'a' of tools\[0\]"):
        from_result({"tools": tools})


@pytest.mark.parametrize("schema", [[], "x", {}, {"$schema": "x"}, {"anyOf": []}, True])
def test_any_schema_but_none_is_carried(schema: Any) -> None:
    assert from_result({"tools": [{"name": "t", "inputSchema": schema}]})[0].input_schema == schema


@given(JSON)
def test_canonical_json_is_json_with_sorted_keys_and_no_space(value: Any) -> None:
    assert canonical(value) == json.dumps(value, sort_keys=True, separators=(",", ":"))


def test_canonical_json_has_no_depth_limit() -> None:
    assert canonical(nested(5_000)).count("inner") == 10_000


def test_a_number_of_any_length_has_a_canonical_form() -> None:
    assert len(canonical(10**10_000)) > 8_000


@given(st.permutations("abcd"))
def test_the_order_in_which_a_server_lists_does_not_matter(names: list[str]) -> None:
    def tools(order: Any) -> tuple[ListedTool, ...]:
        return tuple(ListedTool(name, input_schema=SCHEMA) for name in order)

    assert digest(tools(names)) == digest(tools("abcd"))


@pytest.mark.parametrize("field", ["title", "description", "input_schema", "output_schema", "annotations"])
def test_every_field_of_a_tool_counts(field: str) -> None:
    plain = ListedTool("t", input_schema=SCHEMA)
    changed: Any = {field: "other"}
    assert digest([plain]) != digest([dataclasses.replace(plain, **changed)])


def test_the_digest_is_the_sha256_of_the_canonical_array() -> None:
    # printf '[{"inputSchema":{},"name":"t"}]' | sha256sum
    expected = "7a7f3d46a40b175337113ad10f922a8c1a966189747b7b72d446386208cb0553"
    assert digest([ListedTool("t", input_schema={})]) == expected
