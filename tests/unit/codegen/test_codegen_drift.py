"""Whether a module still fits its server's listing."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.codegen import TARGETS, ListedTool, Target, generate
from treadle.codegen.drift import Altered, CannotTell, Change, Changed, Same, compare, report
from unit.codegen.corpus import CODE, named
from unit.codegen.loading import REAL, listed, real

FORMS = pytest.mark.parametrize(
    ("target", "asynchronous"), [*((target, False) for target in TARGETS), ("python", True)]
)


def tool(name: str, description: str = "d", output: Any = None, **properties: Any) -> ListedTool:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return ListedTool(name, description=description, input_schema=schema, output_schema=output)


STRING, INTEGER = {"type": "string"}, {"type": "integer"}
OLD = (tool("kept"), tool("gone", a=STRING), tool("moved", a=STRING))
NEW = (tool("moved", a=INTEGER), tool("kept"), tool("new"))


@FORMS
@pytest.mark.parametrize("name", REAL)
def test_a_module_is_the_same_as_its_listing_in_any_order(name: str, target: Target, asynchronous: bool) -> None:
    tools = real(name)
    made = generate(name, tools, target, asynchronous=asynchronous)
    assert compare(made.source, name, tools[::-1]) == Same()


@FORMS
@pytest.mark.parametrize("listing", [OLD, ()])
def test_a_module_is_the_same_for_its_own_server_alone(
    listing: tuple[ListedTool, ...], target: Target, asynchronous: bool
) -> None:
    source = generate("s", listing, target, asynchronous=asynchronous).source
    assert compare(source, "s", listing) == Same()
    assert compare(source, "other", listing) == Altered()


@FORMS
@given(data=st.data())
def test_any_change_of_a_character_outside_the_digest_is_told(
    data: st.DataObject, target: Target, asynchronous: bool
) -> None:
    source = generate("s", OLD, target, asynchronous=asynchronous).source
    lines = source.splitlines(keepends=True)
    at = data.draw(st.sampled_from([n for n, line in enumerate(lines) if "SHA-256" not in line]))
    column = data.draw(st.integers(0, len(lines[at]) - 1))
    instead = data.draw(st.sampled_from(["", "x", " ", "\n", '"']))
    edited = lines[at][:column] + instead + lines[at][column + 1 :]
    drift = compare("".join([*lines[:at], edited, *lines[at + 1 :]]), "s", OLD)
    assert (drift == Same()) == (edited == lines[at])


@FORMS
def test_a_module_that_was_cut_off_is_told(target: Target, asynchronous: bool) -> None:
    source = generate("s", OLD, target, asynchronous=asynchronous).source
    drift = compare(source[:-20], "s", OLD)
    assert drift == Altered()
    assert "the text is not what is generated from it: edited by hand" in report(drift)


@FORMS
def test_added_removed_and_changed_tools_are_told_with_signatures(target: Target, asynchronous: bool) -> None:
    drift = compare(generate("s", OLD, target, asynchronous=asynchronous).source, "s", NEW)
    assert isinstance(drift, Changed)
    assert [(change.tool, change.old) for change in drift.added] == [("new", None)]
    assert [(change.tool, change.new) for change in drift.removed] == [("gone", None)]
    assert [change.tool for change in drift.changed] == ["moved"]


def test_signatures_are_those_of_the_target() -> None:
    def changed(target: Any, **more: Any) -> Change:
        drift = compare(generate("s", OLD, target, **more).source, "s", NEW)
        assert isinstance(drift, Changed)
        return drift.changed[0]

    end = "options: List(#(String, report.Value))) -> Result(mcp.ToolResult, mcp.McpError)"
    assert changed("gleam") == Change("moved", f"pub fn moved(a: String, {end}", f"pub fn moved(a: Int, {end}")
    python = [f"def moved(a: {kind}) -> Result[Any]" for kind in ("str", "int")]
    assert changed("python") == Change("moved", *python)
    assert changed("python", asynchronous=True) == Change("moved", *(f"async {text}" for text in python))
    typescript = [
        f"export function moved(a: {kind}): Promise<ToolResult<unknown>>" for kind in ("string", "number")
    ]
    assert changed("typescript") == Change("moved", *typescript)


@FORMS
def test_a_changed_description_is_a_change_with_equal_signatures(target: Target, asynchronous: bool) -> None:
    made = generate("s", (tool("t"),), target, asynchronous=asynchronous)
    drift = compare(made.source, "s", (tool("t", description="other"),))
    assert isinstance(drift, Changed)
    assert [change.old == change.new for change in drift.changed] == [True]
    assert report(drift) == 'changed "t": its doc text or the types that it names'


@pytest.mark.parametrize("target", ["python", "typescript"])
def test_a_changed_type_behind_an_equal_signature_is_a_change(target: Target) -> None:
    def listing(kind: Any) -> tuple[ListedTool, ...]:
        inner = {"type": "object", "properties": {"b": kind}}
        return (tool("t", output={"type": "object", "properties": {"a": inner}}),)

    drift = compare(generate("s", listing(STRING), target).source, "s", listing(INTEGER))
    assert isinstance(drift, Changed)
    assert [change.tool for change in drift.changed] == ["t"]


def test_a_change_that_no_module_shows_is_a_change_without_tools() -> None:
    before = (tool("t"),)
    after = (dataclasses.replace(before[0], annotations={"readOnlyHint": True}),)
    drift = compare(generate("s", before, "python").source, "s", after)
    assert drift == Changed()
    assert report(drift) == "the listing has changed, but nothing that the module shows"


@FORMS
def test_hostile_names_and_texts_are_compared_like_any_other(target: Target, asynchronous: bool) -> None:
    tools = listed(named()["keywords"])
    made = generate('s"\\\n', tools, target, asynchronous=asynchronous)
    drift = compare(made.source, 's"\\\n', tools[1:])
    assert isinstance(drift, Changed)
    removed = tools[0].name
    assert ([change.tool for change in drift.removed], drift.added, drift.changed) == ([removed], (), ())


@pytest.mark.parametrize("text", ["", "x", "# a file", '"""A docstring."""\n', "//// comment\n", "// x\n", *CODE])
def test_a_text_that_is_no_generated_module_cannot_be_told(text: str) -> None:
    assert isinstance(compare(text, "s", OLD), CannotTell)


@FORMS
def test_a_module_edited_by_hand_cannot_be_told(target: Target, asynchronous: bool) -> None:
    source = generate("s", OLD, target, asynchronous=asynchronous).source
    edited = source.replace("invoke_async(", "other(").replace("invoke", "other").replace('"gone"', "gone")
    drift = compare(edited, "s", NEW)
    assert isinstance(drift, CannotTell)
    assert "edited by hand" in drift.reason


@FORMS
def test_a_listing_that_gives_no_module_any_more_cannot_be_told(target: Target, asynchronous: bool) -> None:
    made = generate("s", OLD, target, asynchronous=asynchronous)
    drift = compare(made.source, "s", listed(named()["257 tools"]))
    assert isinstance(drift, CannotTell)
    assert "257 tools" in drift.reason


@given(st.data())
def test_a_damaged_module_never_raises(data: st.DataObject) -> None:
    source = generate("s", OLD, data.draw(st.sampled_from(TARGETS))).source
    at, length = data.draw(st.integers(0, len(source))), data.draw(st.integers(0, 40))
    damaged = source[:at] + data.draw(st.sampled_from(["", *CODE])) + source[at + length :]
    assert report(compare(damaged, "s", NEW))


def test_a_parameter_that_was_damaged_is_shown_as_it_is() -> None:
    source = generate("s", OLD, "gleam").source
    damaged = source.replace("  a a: String,\n", "  aa:String,\n")
    assert damaged != source
    drift = compare(damaged, "s", NEW)
    assert isinstance(drift, Changed)
    assert drift.removed[0].old is not None
    assert "pub fn gone(aa:String, options" in drift.removed[0].old


def test_a_report_has_a_line_for_each_change() -> None:
    text = report(compare(generate("s", OLD, "python").source, "s", NEW))
    assert text.split("\n") == [
        'added "new": def new() -> Result[Any]',
        'removed "gone": def gone(a: str) -> Result[Any]',
        'changed "moved":',
        "  old def moved(a: str) -> Result[Any]",
        "  new def moved(a: int) -> Result[Any]",
    ]
    assert report(Same()) == "unchanged"
