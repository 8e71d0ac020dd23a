"""The MCP messages (client page, section 3; groups E, F and G of the hostile servers)."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import values, written

from treadle.errors import Fault, FieldFault, InvalidArgument, NotCarriable, ToolsNotDeclared, VersionUnsupported
from treadle.wire.messages import (
    ABSENT,
    EXTRA_VERSIONS,
    PROTOCOL_VERSIONS,
    CallResult,
    InitializeResult,
    Tool,
    ToolsPage,
    decode_call_result,
    decode_initialize_result,
    decode_tools_page,
    encode_call,
    initialize_params,
    tools_list_params,
)

# --- sent ------------------------------------------------------------------------------------------------------


def test_the_client_declares_no_capability_at_all() -> None:
    """Sampling, roots and elicitation are refused by not being declared: widening this is a security decision."""
    params = json.loads(initialize_params("2025-06-18", "1.2.3"))
    assert params == {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "treadle", "version": "1.2.3"},
    }


def test_the_first_page_is_asked_for_without_params() -> None:
    assert tools_list_params(None) is None
    assert tools_list_params("next") == b'{"cursor":"next"}'


def test_a_call_names_its_tool_and_carries_its_arguments() -> None:
    line = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a\\"\\n","arguments":{"x":1}}}\n'
    assert encode_call(7, 'a"\n', b'{"x":1}') == line


def test_a_tool_name_that_is_no_unicode_is_an_invalid_argument() -> None:
    with pytest.raises(InvalidArgument) as raised:
        encode_call(1, "\ud800", b"{}")
    assert raised.value.path == "tool"


# --- initialize ------------------------------------------------------------------------------------------------


def initialize(**fields: Any) -> bytes:
    return written({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}} | fields)


def test_the_versions_are_a_closed_list_newest_first() -> None:
    assert PROTOCOL_VERSIONS == ("2025-06-18", "2025-03-26", "2024-11-05")
    assert EXTRA_VERSIONS == ("2025-11-25",)


@pytest.mark.parametrize("version", PROTOCOL_VERSIONS)
def test_a_supported_version_is_accepted(version: str) -> None:
    assert decode_initialize_result(initialize(protocolVersion=version)).version == version


@pytest.mark.parametrize("version", ["2024-10-07", "2025-11-25", "2026-07-28", "", "2025-06-18 "])
def test_any_other_version_is_refused_with_both_sides(version: str) -> None:
    with pytest.raises(VersionUnsupported) as raised:
        decode_initialize_result(initialize(protocolVersion=version))
    assert raised.value == VersionUnsupported(version, PROTOCOL_VERSIONS)


@pytest.mark.parametrize(
    ("version", "found"),
    [(None, "null"), (20250618, "a number (20250618)"), ([], "an array"), (True, "a boolean")],
)
def test_a_version_that_is_no_string_is_refused_with_both_sides(version: Any, found: str) -> None:
    with pytest.raises(FieldFault) as raised:
        decode_initialize_result(initialize(protocolVersion=version))
    assert raised.value.field == "protocolVersion"
    assert raised.value.found == found
    assert all(supported in raised.value.expected for supported in PROTOCOL_VERSIONS)


def test_a_missing_version_is_refused() -> None:
    with pytest.raises(FieldFault, match=r"protocolVersion .* found nothing"):
        decode_initialize_result(b'{"capabilities":{"tools":{}}}')


def test_what_is_kept_of_the_result() -> None:
    raw = initialize(
        capabilities={"tools": {"listChanged": True, "x": 1}, "logging": {}, "experimental": None},
        serverInfo={"name": "odd", "version": "7", "title": "Odd"},
        instructions="Be kind.",
        _meta={},
    )
    assert decode_initialize_result(raw) == InitializeResult(
        version="2025-06-18", list_changed=True, server_name="odd", server_version="7", instructions="Be kind."
    )


@pytest.mark.parametrize("server", [{}, {"serverInfo": {}}])
def test_server_info_may_be_absent(server: dict[str, Any]) -> None:
    result = decode_initialize_result(initialize(**server))
    assert (result.server_name, result.server_version, result.instructions) == (None, None, None)
    assert result.list_changed is None


@pytest.mark.parametrize("capabilities", [{}, {"capabilities": {}}, {"capabilities": {"prompts": {}}}])
def test_a_server_without_the_tools_capability_is_refused(capabilities: dict[str, Any]) -> None:
    with pytest.raises(ToolsNotDeclared):
        decode_initialize_result(written({"protocolVersion": "2025-06-18"} | capabilities))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"capabilities": None}, "capabilities"),
        ({"capabilities": []}, "capabilities"),
        ({"capabilities": {"tools": None}}, "capabilities.tools"),
        ({"capabilities": {"tools": True}}, "capabilities.tools"),
        ({"capabilities": {"tools": {"listChanged": "yes"}}}, "capabilities.tools.listChanged"),
        ({"capabilities": {"tools": {"listChanged": None}}}, "capabilities.tools.listChanged"),
        ({"serverInfo": "odd"}, "serverInfo"),
        ({"serverInfo": None}, "serverInfo"),
        ({"serverInfo": {"name": 1}}, "serverInfo.name"),
        ({"serverInfo": {"version": None}}, "serverInfo.version"),
        ({"instructions": ["x"]}, "instructions"),
    ],
)
def test_a_present_field_of_the_wrong_type_is_named(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(FieldFault) as raised:
        decode_initialize_result(initialize(**fields))
    assert (raised.value.message, raised.value.field) == ("initialize result", field)


@pytest.mark.parametrize("raw", [b"null", b"[]", b'"x"', b"1"])
def test_a_result_that_is_no_object_is_a_fault(raw: bytes) -> None:
    for decode in (decode_initialize_result, decode_tools_page, decode_call_result):
        with pytest.raises(FieldFault, match="result must be an object"):
            decode(raw)


def test_the_server_s_name_is_made_fit_to_print_and_cut() -> None:
    result = decode_initialize_result(initialize(serverInfo={"name": "a\x1b[1m" + "x" * 1000}))
    assert result.server_name is not None
    assert result.server_name.startswith("a [1mxxx")
    assert len(result.server_name) == 256


# --- tools/list ------------------------------------------------------------------------------------------------


def page(*tools: Any, **fields: Any) -> bytes:
    return written({"tools": list(tools)} | fields)


def tool(name: str = "x", **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {}} | fields


def test_an_entry_keeps_its_texts_and_its_schemas_raw_and_compact() -> None:
    raw = (
        b'{"tools":[{"name":"x","title":"X","description":"does x", "inputSchema" : { "max" : [1.0, 1e400 ] },'
        b'"outputSchema":{"a" :1},"annotations":{ "readOnlyHint":true},"icons":[]}]}'
    )
    expected = Tool(
        name="x",
        title="X",
        description="does x",
        input_schema=b'{"max":[1.0,1e400]}',
        output_schema=b'{"a":1}',
        annotations=b'{"readOnlyHint":true}',
    )
    assert decode_tools_page(raw) == ToolsPage((expected,), None)


@pytest.mark.parametrize(
    "schema",
    [None, {}, {"$schema": "x"}, [], "text", {"anyOf": []}, {"type": "string"}, {"required": None}, {"$ref": "#"},
     {"properties": None}, {"$ref": "http://example.invalid/"}],
)  # fmt: skip
def test_an_input_schema_of_any_shape_crosses(schema: Any) -> None:
    (entry,) = decode_tools_page(page(tool(inputSchema=schema))).tools
    assert json.loads(entry.input_schema) == schema


@pytest.mark.parametrize(
    "name",
    ["a.b", "a/b", "a b", "a'\"b", "a\nb", "日本", "x" * 200, "__init__", "class"],
)
def test_a_name_of_any_shape_is_kept(name: str) -> None:
    assert decode_tools_page(page(tool(name))).tools[0].name == name


@pytest.mark.parametrize(
    "nothing", [{}, {"outputSchema": None, "annotations": None, "title": None, "description": None}]
)
def test_what_is_absent_or_null_is_none(nothing: dict[str, Any]) -> None:
    (entry,) = decode_tools_page(page(tool(**nothing))).tools
    assert (entry.title, entry.description, entry.output_schema, entry.annotations) == (None, None, None, None)


def test_a_title_or_description_of_another_type_is_taken_as_absent() -> None:
    (entry,) = decode_tools_page(page(tool(title=5, description=["x"]))).tools
    assert (entry.title, entry.description) == (None, None)


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        (None, "tools[2]"),
        ("x", "tools[2]"),
        ([], "tools[2]"),
        ({"inputSchema": {}}, "tools[2].name"),
        ({"name": "", "inputSchema": {}}, "tools[2].name"),
        ({"name": 5, "inputSchema": {}}, "tools[2].name"),
        ({"name": None, "inputSchema": {}}, "tools[2].name"),
        ({"name": "x"}, "tools[2].inputSchema"),
        ({}, "tools[2].name"),
    ],
)
def test_a_bad_entry_fails_the_whole_listing_and_is_named_by_its_index(entry: Any, field: str) -> None:
    with pytest.raises(FieldFault) as raised:
        decode_tools_page(page(tool("a"), tool("b"), entry, tool("c")))
    assert (raised.value.message, raised.value.field) == ("tools/list result", field)


def test_indexes_go_on_over_the_pages() -> None:
    with pytest.raises(FieldFault, match=r"tools\[41\]\.name"):
        decode_tools_page(page(tool(), {}), first_index=40)


@pytest.mark.parametrize(("cursor", "following"), [("n", "n"), ("", None), (None, None)])
def test_a_cursor_that_is_empty_or_null_ends_the_listing(cursor: Any, following: str | None) -> None:
    assert decode_tools_page(page(nextCursor=cursor)).next_cursor == following


@pytest.mark.parametrize("cursor", [5, {}, [], False])
def test_a_cursor_of_another_type_is_a_fault(cursor: Any) -> None:
    with pytest.raises(FieldFault, match="nextCursor"):
        decode_tools_page(page(nextCursor=cursor))


@pytest.mark.parametrize("raw", [b"{}", b'{"tools":null}', b'{"tools":{}}', b'{"tools":"x"}'])
def test_tools_must_be_an_array(raw: bytes) -> None:
    with pytest.raises(FieldFault, match="tools must be an array"):
        decode_tools_page(raw)


# --- tools/call ------------------------------------------------------------------------------------------------

TEXT = {"type": "text", "text": "hello", "annotations": {"priority": 1}}
OTHERS: list[dict[str, Any]] = [
    {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
    {"type": "resource", "resource": {"uri": "x://y", "text": "z"}},
    {"type": "resource_link", "uri": "x://y", "name": "y"},
    {"type": "unheard-of", "text": 5, "x": [1.0, None]},
    {"type": ""},
]


def result(**fields: Any) -> bytes:
    return written({"content": []} | fields)


def test_text_keeps_its_text_and_other_kinds_are_reduced_to_their_name() -> None:
    assert decode_call_result(result(content=[TEXT, *OTHERS])).content == [
        {"type": "text", "text": "hello"},
        *({"type": block["type"]} for block in OTHERS),
    ]


def test_other_kinds_cross_unchanged_on_request() -> None:
    found = decode_call_result(result(content=[TEXT, *OTHERS]), "all").content
    assert found == [{"type": "text", "text": "hello"}, *OTHERS]


def test_a_payload_that_does_not_cross_is_not_looked_at() -> None:
    raw = b'{"content":[{"type":"image","data":1e400,"type":"image"}]}'
    assert decode_call_result(raw).content == [{"type": "image"}]


def test_a_payload_that_crosses_must_be_carriable() -> None:
    with pytest.raises(NotCarriable) as raised:
        decode_call_result(b'{"content":[{"type":"x"},{"type":"image","data":[1e400]}]}', "all")
    assert raised.value.path == "$.content[1].data[0]"


def test_a_block_that_crosses_whole_may_nest_252_levels() -> None:
    def block(levels: int) -> bytes:
        return b'{"content":[{"type":"x","a":%b}]}' % (b"[" * (levels - 1) + b"]" * (levels - 1))

    assert decode_call_result(block(252), "all").content[0]["type"] == "x"
    assert decode_call_result(block(253), "text").content == [{"type": "x"}]
    with pytest.raises(NotCarriable, match=r"nesting past 256 levels at \$\.content\[0\]"):
        decode_call_result(block(253), "all")


@pytest.mark.parametrize("content", ["text", "all"])
@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b"{}", "content"),
        (b'{"structuredContent":{}}', "content"),
        (b'{"content":null}', "content"),
        (b'{"content":"x"}', "content"),
        (b'{"content":{}}', "content"),
        (b'{"content":[{"type":"text","text":"a"},7]}', "content[1]"),
        (b'{"content":[{}]}', "content[0].type"),
        (b'{"content":[{"type":null}]}', "content[0].type"),
        (b'{"content":[{"type":5}]}', "content[0].type"),
        (b'{"content":[{"type":"x"},{"type":"text"}]}', "content[1].text"),
        (b'{"content":[{"type":"text","text":null}]}', "content[0].text"),
        (b'{"content":[{"type":"text","text":["a"]}]}', "content[0].text"),
        (b'{"content":[],"isError":null}', "isError"),
        (b'{"content":[],"isError":"true"}', "isError"),
        (b'{"content":[],"isError":1}', "isError"),
    ],
)
def test_a_result_of_the_wrong_shape_is_a_fault_that_names_the_field(content: Any, raw: bytes, field: str) -> None:
    with pytest.raises(FieldFault) as raised:
        decode_call_result(raw, content)
    assert (raised.value.message, raised.value.field) == ("tools/call result", field)


@pytest.mark.parametrize("content", ["text", "all"])
def test_of_duplicate_keys_inside_a_result_the_last_counts(content: Any) -> None:
    raw = b'{"content":5,"content":[{"type":5,"text":1,"type":"text","text":"b"}],"isError":0,"isError":true}'
    assert decode_call_result(raw, content) == CallResult([{"type": "text", "text": "b"}], True)


@pytest.mark.parametrize(
    ("fields", "is_error"), [({}, False), ({"isError": False}, False), ({"isError": True}, True)]
)
def test_an_absent_is_error_reads_false(fields: dict[str, Any], is_error: bool) -> None:
    for content in ("text", "all"):
        assert decode_call_result(result(**fields), content).is_error is is_error


@pytest.mark.parametrize("structured", [None, {}, [1.0, 2], "x", 2**64 - 1])
def test_structured_content_crosses_and_null_is_not_absent(structured: Any) -> None:
    found = decode_call_result(result(structuredContent=structured))
    assert found.structured == structured
    assert found.to_value() == {"content": [], "is_error": False, "structured": structured}


def test_absent_structured_content_is_left_out_of_the_value() -> None:
    found = decode_call_result(result(isError=True))
    assert found.structured is ABSENT
    assert found.to_value() == {"content": [], "is_error": True}


@pytest.mark.parametrize("number", ["18446744073709551616", "-9223372036854775809", "1e400", "9" * 5000])
def test_structured_content_that_cannot_be_carried_names_its_path(number: str) -> None:
    raw = f'{{"content":[],"structuredContent":{{"a":[0,{number}]}}}}'.encode()
    with pytest.raises(NotCarriable) as raised:
        decode_call_result(raw)
    assert raised.value.path == "$.structuredContent.a[1]"


def test_structured_content_may_nest_253_levels() -> None:
    def nested(levels: int) -> bytes:
        return b'{"content":[],"structuredContent":%b}' % (b"[" * levels + b"]" * levels)

    assert decode_call_result(nested(253)).structured is not ABSENT
    with pytest.raises(NotCarriable, match="nesting past 256 levels"):
        decode_call_result(nested(254))


fragments = values | st.sampled_from([[], {}, [{}], [{"type": "text"}], [{"type": "text", "text": "x"}], 2**64])


@given(
    st.dictionaries(st.sampled_from(["content", "isError", "structuredContent", "x"]), fragments),
    st.sampled_from(["text", "all"]),
)
def test_any_result_is_decoded_or_refused(fields: dict[str, Any], content: Any) -> None:
    try:
        found = decode_call_result(written(fields), content)
    except (FieldFault, NotCarriable):
        return
    assert found.is_error is fields.get("isError", False)
    assert len(found.content) == len(fields["content"])


@given(values)
def test_any_json_is_decoded_or_refused_by_every_decoder(value: Any) -> None:
    for decode in (decode_initialize_result, decode_tools_page, decode_call_result):
        with suppress(Fault):
            decode(written(value))
