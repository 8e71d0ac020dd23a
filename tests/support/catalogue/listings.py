"""Group F: listings and pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from support import script as s
from support.catalogue.model import MALFORMED, CallErr, Entry, Fatal, Listing, Ok, answer, called
from support.script import Json, tool

EMPTY = {"type": "object"}


def _listed(identifier: str, title: str, *entries: Json) -> Entry:
    return Entry(identifier, title, s.script(s.tools(*entries)), (Listing(Ok(tools=entries)),))


def _named(identifier: str, title: str, reason: str, *pages: Sequence[Json]) -> Entry:
    return Entry(identifier, title, s.script(s.pages(*pages)), (Listing(CallErr(MALFORMED, reason)),))


def _entries_at_fault() -> Iterator[Entry]:
    nameless = {
        "missing": {"inputSchema": EMPTY},
        "empty": {"name": "", "inputSchema": EMPTY},
        "number": {"name": 7, "inputSchema": EMPTY},
        "null": {"name": None, "inputSchema": EMPTY},
    }
    for name, entry in nameless.items():
        yield _named(f"F1/{name}", "a tool without a good name", r"tools\[1\]", [tool("a"), entry, tool("b")])
    pages: list[list[Json]] = [[tool("a"), tool("b")], [tool("c"), tool("d")], [tool("e"), nameless["missing"]]]
    yield _named("F1/page-3", "a nameless tool on the third page", r"tools\[5\]", *pages)
    yield _named("F1/no-object", "an entry that is no object", r"tools\[0\]", ["a"])
    yield _named("F2/missing", "no inputSchema", r"tools\[1\]\.inputSchema", [tool("a"), {"name": "b"}])
    yield _named("F5/one-page", "a name twice on one page", r"tools\[2\]", [tool("a"), tool("b"), tool("a")])
    yield _named("F5/two-pages", "a name twice on two pages", r"tools\[2\]", [tool("a"), tool("b")], [tool("b")])


def _schemas() -> Iterator[Entry]:
    inputs: dict[str, Json] = {
        "null": None,
        "empty": {},
        "only-schema": {"$schema": "https://json-schema.org/draft/2020-12/schema"},
        "array": [1, 2],
        "string": "object",
        "any-of": {"anyOf": [{"type": "object"}, {"type": "array"}]},
        "type-string": {"type": "string"},
    }
    for name, schema in inputs.items():
        yield _listed(f"F2/{name}", "an odd inputSchema, carried raw", {"name": "t", "inputSchema": schema})
    objects: dict[str, Json] = {
        "required-null": {**EMPTY, "required": None},
        "properties-null": {**EMPTY, "properties": None},
        "required-unknown": {**EMPTY, "properties": {}, "required": ["ghost"]},
        "unknown-keys": {**EMPTY, "x-vendor": {"a": [1]}, "$comment": "é"},
    }
    for name, schema in objects.items():
        yield _listed(f"F3/{name}", "an odd schema of an object", {"name": "t", "inputSchema": schema})
    decorated = {
        **tool("t"),
        "title": "The T",
        "annotations": {"readOnlyHint": True, "x": None},
        "icons": [{"src": "data:,"}],
        "_meta": {"a": 1},
    }
    yield _listed("F3/decorated", "title, annotations, icons and more", decorated)
    references: dict[str, Json] = {
        "cycle": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        "root": {**EMPTY, "properties": {"self": {"$ref": "#"}}},
        "pointer": {**EMPTY, "properties": {"a": {"type": "string"}, "b": {"$ref": "#/properties/a"}}},
        "dangling": {**EMPTY, "properties": {"a": {"$ref": "#/$defs/nowhere"}}},
        "remote": {"$ref": "http://127.0.0.1:9/schema.json"},
    }
    for name, schema in references.items():
        entry = {"name": "t", "inputSchema": schema, "outputSchema": schema}
        yield _listed(f"F4/{name}", "references are carried raw and never followed", entry)


def _names() -> Iterator[Entry]:
    names = {
        "dot": "a.b",
        "slash": "a/b",
        "space": "a b",
        "quote": "a\"b'c",
        "newline": "a\nb",
        "cjk": "検索",
        "long": "n" * 200,
    }
    for name, raw in names.items():
        script = s.script(s.tools(tool(raw), tool("echo")))
        acts = (Listing(Ok(tools=(tool(raw), tool("echo")))), called(Ok(), raw, x=1))
        yield Entry(f"F6/{name}", "an odd name, callable as it is", script, acts)
    twins = (tool("Read"), tool("read"))
    script = s.script(s.tools(*twins), s.per_tool("Read", s.text("upper")), s.per_tool("read", s.text("lower")))
    yield Entry(
        "F6/case",
        "two names that differ in case only",
        script,
        (Listing(Ok(tools=twins)), called(answer("lower"), "read"), called(answer("upper"), "Read")),
    )


def _pages() -> Iterator[Entry]:
    one = tool("echo")
    ends = {"null": None, "empty": ""}
    for name, cursor in ends.items():
        script = s.script(s.on("tools/list", s.result({"tools": [one], "nextCursor": cursor})))
        yield Entry(f"F9/cursor-{name}", "a cursor that ends the listing", script, (Listing(Ok(tools=(one,))),))
    results: dict[str, tuple[Json, str]] = {
        "cursor-number": ({"tools": [one], "nextCursor": 2}, "nextCursor"),
        "cursor-object": ({"tools": [one], "nextCursor": {}}, "nextCursor"),
        "tools-null": ({"tools": None}, "tools"),
        "tools-missing": ({}, "tools"),
        "tools-object": ({"tools": {}}, "tools"),
        "result-array": ([one], "tools/list"),
        "result-null": (None, "tools/list"),
    }
    for name, (result, reason) in results.items():
        script = s.script(s.on("tools/list", s.result(result)))
        yield Entry(f"F9/{name}", "a page of the wrong shape", script, (Listing(CallErr(MALFORMED, reason)),))
    loop = s.script(s.on("tools/list", s.result({"tools": [], "nextCursor": "again"})))
    yield Entry("F9/loop", "a cursor that was followed", loop, (Listing(CallErr(MALFORMED, "again")),))
    endless = s.script(s.on("tools/list", s.result({"tools": [], "nextCursor": {"$text_of": s.ID}})))
    yield Entry("F9/endless", "a new cursor on every page", endless, (Listing(CallErr(MALFORMED, "64 pages")),))
    many = tuple(tool(f"t{number}") for number in range(64))
    yield Entry("F9/64", "64 pages", s.script(s.pages(*[[each] for each in many])), (Listing(Ok(tools=many)),))
    first = s.result({"tools": [one], "nextCursor": "more"})
    yield Entry(
        "F10/error",
        "the second page is an RPC error",
        s.script(s.at(1, first, method="tools/list"), s.at(2, s.error(-32603, "disk"), method="tools/list")),
        (Listing(CallErr("jsonrpc_-32603", "disk")),),
    )
    yield Entry(
        "F10/death",
        "the server dies between two pages",
        s.script(s.at(1, first, method="tools/list"), s.at(2, s.exit(4), method="tools/list")),
        (Listing(Fatal("status 4")),),
    )


ENTRIES = (*_entries_at_fault(), *_schemas(), *_names(), *_pages())
