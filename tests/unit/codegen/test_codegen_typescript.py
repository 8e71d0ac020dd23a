"""Codegen page, section 5: the TypeScript target."""

from typing import Any

import pytest

from treadle.codegen import generate, typescript, typescript_check
from treadle.errors import SanitizerBreach
from unit.codegen.corpus import CODE
from unit.codegen.loading import listed, one
from unit.codegen.test_codegen_python import ISSUE


def source(schema: Any = None, **more: Any) -> str:
    return generate("git", one(ISSUE if schema is None else schema, **more), "typescript").source


def test_required_parameters_are_typed_and_optional_ones_travel_in_an_object() -> None:
    text = source()
    assert (
        """
export interface TOptions {
  per_page_77879bba?: number;
  state?: "open" | "closed";
  id?: string | null;
}
"""
        in text
    )
    assert (
        "\nexport function t(\n  title: string,\n  options: TOptions = {},\n): Promise<ToolResult<unknown>> {\n"
        in text
    )


def test_the_body_is_one_call_of_the_seam_under_the_wire_names() -> None:
    assert (
        '  return invoke<unknown>("git", "t", [["title", title], ["perPage", options.per_page_77879bba], '
        '["state", options.state], ["id", options.id]]);\n' in source()
    )


def test_a_whole_value_function_takes_the_entire_map() -> None:
    text = source([])
    assert "export function t(\n  input: Record<string, unknown>,\n)" in text
    assert 'invoke<unknown>("git", "t", input);' in text


def test_a_module_without_tools_is_still_a_module() -> None:
    assert generate("git", (), "typescript").source.endswith("\nexport {};\n")


def test_the_only_import_is_the_seam() -> None:
    lines = [line for line in source().split("\n") if "import" in line]
    assert lines == ['import { invoke, type ToolResult } from "./seam.js";']


def test_a_server_called_seam_does_not_replace_the_seam() -> None:
    assert generate("seam", (), "typescript").file_name != "seam.ts"


def test_nested_objects_and_results_become_interfaces() -> None:
    record = {"type": "object", "properties": {"from-to": {"type": "integer"}, "x": {}}, "required": ["x"]}
    text = source({"type": "object", "properties": {"r": record}, "required": ["r"]}, output=record)
    fields = '  "from-to"?: number;\n  /** unknown: of no declared type */\n  x: unknown;\n}\n'
    assert "export interface TR {\n" + fields in text
    assert "export interface TResult {\n" + fields in text
    assert "  r: TR,\n): Promise<ToolResult<TResult>> {\n" in text


def test_a_description_cannot_end_its_comment_or_pose_as_a_tag() -> None:
    text = source(description="*/ eval(1) /* @ts-nocheck {@link x} a@b")
    assert " * *\\/ eval(1) /* \\@ts-nocheck {\\@link x} a@b\n" in text


GOOD = generate("git", one(ISSUE, output=ISSUE), "typescript").source


def test_the_allow_list_takes_the_lines_of_a_generated_module() -> None:
    typescript_check.check(GOOD, "git", ["t"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('from "./seam.js"', 'from "fs"'),
        ("import {", "import evil, {"),
        ("\n\nexport interface", "\neval(1);\n\nexport interface"),
        ("\n\n/**", "\n\neval(1);\n\n/**"),
        ("  title: string,", "  title: string = eval(1),"),
        ("  title: string,", "  title: typeof import('fs'),"),
        ("{\n  return", "{\n  eval(1);\n  return"),
        ("return invoke", "return eval"),
        ('"git", "t"', '"other", "t"'),
        ('"git", "t"', '"git", "other"'),
        ('["title", title]', '["title", title()]'),
        ('["title", title]', "[`title`, title]"),
        (" */", " */ eval(1) /* */"),
        (" * Tool", " */ eval(1) /* Tool"),
        ("]);\n}", "]);\n}\neval(1);"),
        ("]);\n}\n", "]);\n}\n\nexport function u() {\n}\n"),
        ('"open"', '"op\\x65n"'),
        ('"open"', '"op"en"'),
        ('"open"', "§"),
        ("// Generated", "eval(1) // Generated"),
    ],
)
def test_any_other_line_refuses_the_module(old: str, new: str) -> None:
    assert old in GOOD
    with pytest.raises(SanitizerBreach, match="server git: no module is generated"):
        typescript_check.check(GOOD.replace(old, new, 1), "git", ["t"])


def test_a_missing_or_an_additional_function_refuses_the_module() -> None:
    for tools in ([], ["t", "u"]):
        with pytest.raises(SanitizerBreach):
            typescript_check.check(GOOD, "git", tools)


def test_the_backstop_holds_where_an_escape_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typescript, "block_comment_line", lambda line: line)
    with pytest.raises(SanitizerBreach):
        generate(
            "s", listed([{"name": "t", "inputSchema": {"type": "object"}, "description": CODE[1]}]), "typescript"
        )
