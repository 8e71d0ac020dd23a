"""Group G: calls and results."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from support import script as s
from support.catalogue.framing import on_call
from support.catalogue.model import (
    HELLO,
    MALFORMED,
    TIMEOUT,
    Call,
    CallErr,
    Calls,
    Entry,
    Listing,
    Ok,
    answer,
    called,
)
from support.script import Json, tool

MIB = 1024 * 1024

BLOCKS: tuple[dict[str, Any], ...] = (
    {"type": "text", "text": "hello"},
    {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
    {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
    {"type": "resource", "resource": {"uri": "file:///a", "text": "é"}},
    {"type": "resource_link", "uri": "file:///b", "name": "b"},
    {"type": "hologram", "depth": 3},
)


def _value(content: list[Any], *, is_error: bool = False, **more: Any) -> Ok:
    return Ok({"content": content, "is_error": is_error, **more})


def _blocks() -> Iterator[Entry]:
    reduced = [BLOCKS[0], *({"type": block["type"]} for block in BLOCKS[1:])]
    script = on_call(s.result({"content": list(BLOCKS)}))
    yield Entry("G1/text", "every kind of block, by kind only", script, (called(_value(reduced)),))
    yield Entry(
        "G1/all",
        "every kind of block, with its payload",
        script,
        (called(_value(list(BLOCKS))),),
        {"content": "all"},
    )
    image = {"type": "image", "mimeType": "image/png"}
    big = on_call(s.result({"content": [{**image, "data": s.times("A", 8 * MIB)}]}))
    yield Entry("G1/8MiB", "8 MiB of base64, by kind only", big, (called(_value([{"type": "image"}])),))
    yield Entry(
        "G1/8MiB-all",
        "8 MiB of base64, unchanged",
        big,
        (called(_value([{**image, "data": "A" * (8 * MIB)}])),),
        {"content": "all"},
    )
    wrong: dict[str, Json] = {
        "no-type": {"text": "x"},
        "text-number": {"type": "text", "text": 3},
        "no-object": "x",
    }
    for name, block in wrong.items():
        content = [{"type": "text", "text": "fine"}, block]
        script = on_call(s.result({"content": content}))
        yield Entry(f"G1/{name}", "a block at fault", script, (called(CallErr(MALFORMED, r"content\[1\]")),))


def _shapes() -> Iterator[Entry]:
    text = [{"type": "text", "text": "hello"}]
    fine: dict[str, tuple[Json, Ok]] = {
        "empty": ({"content": []}, _value([])),
        "both": ({"content": text, "structuredContent": {"a": 1.0}}, _value(text, structured={"a": 1.0})),
        "structured-null": ({"content": [], "structuredContent": None}, _value([], structured=None)),
        "structured-array": ({"content": [], "structuredContent": [1]}, _value([], structured=[1])),
    }
    for name, (result, expected) in fine.items():
        yield Entry(f"G2/{name}", "a result of this shape", on_call(s.result(result)), (called(expected),))
    wrong: dict[str, Json] = {
        "structured-only": {"structuredContent": {"a": 1}},
        "neither": {},
        "content-null": {"content": None},
        "content-string": {"content": "hello"},
        "null": None,
        "array": [],
    }
    for name, result in wrong.items():
        script = on_call(s.result(result))
        yield Entry(f"G2/{name}", "a result without an array content", script, (called(CallErr(MALFORMED)),))
    for name, flag in {"true": True, "false": False}.items():
        script = on_call(s.text("hello", isError=flag))
        yield Entry(f"G3/{name}", "isError as it should be", script, (called(answer("hello", is_error=flag)),))
    odd: dict[str, Json] = {"string": "true", "null": None, "number": 1}
    for name, flag in odd.items():
        script = on_call(s.text("hello", isError=flag))
        yield Entry(f"G3/{name}", "isError of the wrong type", script, (called(CallErr(MALFORMED, "isError")),))
    yield Entry(
        "G3/rpc",
        "an RPC error for what a tool could say itself",
        on_call(s.error(-32602, "no such tool")),
        (called(CallErr("jsonrpc_-32602", "no such tool")),),
    )
    declared = {**tool("t"), "outputSchema": {"type": "object", "required": ["a"]}}
    outputs: dict[str, tuple[Json, Ok]] = {
        "none": ({"content": text}, _value(text)),
        "other": ({"content": text, "structuredContent": {"b": 2}}, _value(text, structured={"b": 2})),
    }
    for name, (result, expected) in outputs.items():
        script = s.script(s.tools(declared), s.per_tool("t", s.result(result)))
        acts = (Listing(Ok(tools=(declared,))), called(expected, "t", x=1))
        yield Entry(f"G4/{name}", "an outputSchema is declared, and not validated", script, acts)


def _order() -> Iterator[Entry]:
    dice = random.Random(5)
    waits = [Call(answer(str(n)), "wait", {"ms": dice.randrange(40), "text": str(n)}) for n in range(200)]
    yield Entry("G5", "200 parallel calls, answered in random order", s.script(), (Calls(tuple(waits)),))
    stuck = Call(CallErr(TIMEOUT), "stuck", {"x": 1}, timeout_ms=80)
    yield Entry(
        "G6",
        "one tool never answers",
        s.script(s.per_tool("stuck")),
        (Calls((Call(HELLO), stuck, Call(HELLO), stuck)), called(HELLO)),
    )
    yield Entry(
        "G7",
        "an answer after the deadline, then normal ones",
        s.script(),
        (
            called(CallErr(TIMEOUT), "wait", timeout_ms=30, ms=60, text="late"),
            called(answer("in time"), "wait", ms=60, text="in time"),
        ),
        dropped=1,
    )
    before, after = (tool("echo"), tool("old")), (tool("echo"), tool("new"))
    changed = s.at(1, s.tools(*after), s.notify("notifications/tools/list_changed"), s.default())
    yield Entry(
        "G9",
        "tools/list_changed, then another list",
        s.script(s.tools(*before), changed),
        (Listing(Ok(tools=before)), called(HELLO), Listing(Ok(tools=after))),
        dropped=1,
    )


ENTRIES = (*_blocks(), *_shapes(), *_order())
