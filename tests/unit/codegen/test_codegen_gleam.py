"""Codegen page, section 4: the Gleam target."""

import re
from typing import Any

import pytest

from treadle.codegen import digest, generate, gleam
from treadle.errors import SanitizerBreach
from unit.codegen.corpus import CODE
from unit.codegen.loading import listed, one

ISSUE = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "description": "One line"},
        "perPage": {"type": "integer"},
        "ratio": {"type": "number"},
        "draft": {"type": "boolean"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "meta": {"type": "object"},
        "state": {"type": "string", "enum": ["open", "closed"], "description": "Filter"},
    },
    "required": ["title", "perPage", "ratio", "draft", "labels", "meta"],
}


def source(schema: Any = None, **more: Any) -> str:
    return generate("github", one(ISSUE if schema is None else schema, **more), "gleam").source


def test_the_module_is_named_after_the_server() -> None:
    made = generate("github", (), "gleam")
    assert (made.module_name, made.file_name) == ("cap/mcp/github", "github.gleam")


def test_the_header_says_what_the_module_is_and_carries_the_digest() -> None:
    tools = one(ISSUE)
    header = generate("github", tools, "gleam").source.split("\n\n")[0].split("\n")
    assert all(line.startswith("////") for line in header)
    text = " ".join(line.removeprefix("////").strip() for line in header)
    assert 'façade over MCP server "github": one function per listed tool' in text
    assert "original wire names" in text
    assert "doc text is the server's own" in text
    assert header[-1] == f"//// Listing SHA-256: {digest(tools)}"


def test_an_empty_listing_imports_nothing() -> None:
    assert "import" not in generate("github", (), "gleam").source


def test_the_list_module_is_imported_only_when_a_body_needs_it() -> None:
    imports = re.findall(r"^import .*$", source(), re.MULTILINE)
    assert imports == [
        "import cap/internal/mcp as internal",
        "import cap/mcp",
        "import cap/report",
        "import gleam/list",
    ]
    assert "gleam/list" not in source({"type": "object", "properties": {"a": {"type": "string"}}})


def test_a_typed_function_has_a_line_for_each_parameter_and_one_call() -> None:
    assert (
        """
pub fn t(
  title title: String,
  per_page_77879bba per_page_77879bba: Int,
  ratio ratio: Float,
  draft draft: Bool,
  labels labels: List(String),
  meta meta: report.Value,
  options options: List(#(String, report.Value)),
) -> Result(mcp.ToolResult, mcp.McpError) {
  internal.invoke("github", "t", report.object(list.append(["""
        '#("title", report.string(title)), #("perPage", report.int(per_page_77879bba)), '
        '#("ratio", report.float(ratio)), #("draft", report.bool(draft)), '
        '#("labels", report.list(list.map(labels, report.string))), #("meta", meta)], options)))\n}\n'
    ) in source()


def test_without_a_required_pair_the_options_travel_alone() -> None:
    text = source({"type": "object"})
    assert 'internal.invoke("github", "t", report.object(options))' in text
    assert "list.append" not in text


def test_a_whole_value_function_has_the_single_parameter_arguments() -> None:
    text = source({"type": "string"})
    assert "pub fn t(\n  arguments arguments: report.Value,\n) ->" in text
    assert 'internal.invoke("github", "t", arguments)' in text
    assert "because its input schema is not of the type" in text


def test_a_parameter_called_options_gives_way() -> None:
    text = source({"type": "object", "properties": {"options": {"type": "string"}}, "required": ["options"]})
    assert "  options_a793ab8f options_a793ab8f: String,\n  options options: List(" in text
    assert '#("options", report.string(options_a793ab8f))' in text


def test_the_doc_says_description_origin_and_every_parameter() -> None:
    text = source(description="Create an issue.")
    doc = [line for line in text.split("\n") if line.startswith("///") and not line.startswith("////")]
    assert doc == [
        "/// Create an issue.",
        "///",
        '/// Tool "t" on MCP server "github". Optional parameters travel in `options`',
        "/// by wire name; `[]` means none.",
        "///",
        '/// - `title` (wire name "title", string): One line',
        '/// - `per_page_77879bba` (wire name "perPage", integer)',
        '/// - `ratio` (wire name "ratio", number)',
        '/// - `draft` (wire name "draft", boolean)',
        '/// - `labels` (wire name "labels", list of string)',
        '/// - `meta` (wire name "meta", structured: a nested object)',
        '/// - "state" (optional): Filter',
    ]


def test_the_values_of_a_required_enum_are_told() -> None:
    schema = {"type": "object", "properties": {"s": {"type": "string", "enum": ["a", "b"]}}, "required": ["s"]}
    assert '/// - `s` (wire name "s", string, one of "a", "b")' in source(schema)


def test_a_description_is_cut_at_400_and_a_note_at_120() -> None:
    schema = {"type": "object", "properties": {"p": {"description": "n" * 121}}}
    text = source(schema, description="d" * 401)
    assert f"/// {'d' * 399}…\n" in text
    assert f"{'n' * 119}…\n" in text


def test_wire_names_are_escaped_literals_of_the_originals() -> None:
    name = 'a"b\\c\né'
    schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    made = generate(name, one(schema, name=name), "gleam").source
    literal = '"a\\"b\\\\c\\u{a}\\u{e9}"'
    assert made.count(literal) == 3


def test_the_surface_has_a_heading_a_provenance_and_one_line_signatures() -> None:
    surface = generate("github", one(ISSUE, description="### cap/mcp/fake\npub fn fake()"), "gleam").surface
    lines = surface.split("\n")
    assert lines[0] == "### cap/mcp/github"
    assert 'MCP server "github" lists' in lines[2]
    assert [line for line in lines if line.startswith("#")] == ["### cap/mcp/github"]
    signature = (
        "pub fn t(title: String, per_page_77879bba: Int, ratio: Float, draft: Bool, labels: List(String), "
        "meta: report.Value, options: List(#(String, report.Value))) -> Result(mcp.ToolResult, mcp.McpError)"
    )
    assert [line for line in lines if line.startswith("pub")] == [signature]
    assert "/// ### cap/mcp/fake pub fn fake()" in lines


@pytest.mark.parametrize("fine", ["// @external", "  /// @", 'x("@", "\\"@")', "////"])
def test_an_at_sign_in_a_comment_or_a_string_is_fine(fine: str) -> None:
    gleam.check(f"import a\n{fine}\n", "s")


@pytest.mark.parametrize("breach", ["@external(erlang)", 'x("a") @', "pub fn a() { @ }", '"a" @ "b"'])
def test_an_at_sign_in_code_refuses_the_module(breach: str) -> None:
    with pytest.raises(SanitizerBreach, match="an @ in code, line 2"):
        gleam.check(f"import a\n{breach}\n", "s")


def test_the_backstop_holds_where_an_escape_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gleam, "gleam_literal", lambda text: f'"{text}"')
    tools = listed([{"name": text, "inputSchema": {"type": "object"}} for text in CODE if "@external" in text])
    with pytest.raises(SanitizerBreach):
        generate("s", tools, "gleam")
