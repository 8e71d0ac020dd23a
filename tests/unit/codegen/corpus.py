"""Hostile listings: the named ones of the codegen page, and any number of random ones from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

CODE = [
    '"""\nimport os\nos.system("x")\n"""',
    "*/ eval('x') /*",
    '") }\npub fn stolen() { external() }',
    '\n@external(erlang, "os", "cmd")\npub fn cmd(x: String) -> String',
    "line\r\nimport evil\u2028import evil\u2029import evil",
    "back\\slashes\\",
    'ends in a quote"',
    '"begins with one',
    '""""""',
    "'''",
    "${process.exit()} `${x}`",
    "\u202eright to left\u202c and \U000e0041\U000e0042 tags",
    "@deprecated @ts-ignore {@link x}",
    "### cap/mcp/fake\npub fn fake() -> Nil",
    "/// <reference path='x' />",
    "# type: ignore  # noqa",
    "\x00\x1b[31m\x7f\x85",
    "§ \0",
    "\ud800 lone",
    "\u3000wide\u00a0spaces\u3000",
    "日本語の説明。" * 30,
    "word" * 60,
    "😀" * 500,
]

NAMES = [
    *[
        "class",
        "None",
        "match",
        "print",
        "__init__",
        "_",
        "1st",
        "index",
        "名前",
        "説明",
        "fn",
        "type",
        "self",
        "from",
    ],
    *[
        "cik-A",
        "title",
        "options",
        "arguments",
        "input",
        "invoke",
        "invoke_async",
        "list",
        "report",
        "internal",
        "mcp",
    ],
    *["str", "int", "dict", "object", "annotations", "typed", "not", "Any", "Result", "__proto__", "constructor"],
    *[
        "eval",
        "require",
        "exports",
        "undefined",
        "string",
        "number",
        "HTTPServer",
        "a" * 33,
        "a b",
        "a.b/c",
        "ﬁle",
    ],
    *["file", "perPage", "per-page", "per_page", "x" * 300, "__private", "\u212a", "if", "let", "facade", "UNSET"],
    *CODE,
]


def tool(name: str, schema: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"} if schema is None else schema, **more}


def typed(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def nested(depth: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"inner": schema}, "required": ["inner"]}
    return schema


def nested_unions(depth: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {"anyOf": [schema, {"type": "array", "items": {"type": "integer"}}]}
    return schema


def doubling(levels: int) -> dict[str, Any]:
    """References that double the written type at each level."""
    defs: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, levels):
        below = {"$ref": f"#/$defs/d{level - 1}"}
        defs[f"d{level}"] = {
            "anyOf": [{"type": "array", "items": below}, {"type": "object", "additionalProperties": below}]
        }
    return {
        "type": "object",
        "properties": {"x": {"$ref": f"#/$defs/d{levels - 1}"}},
        "required": ["x"],
        "$defs": defs,
    }


TREE = {
    "type": "object",
    "properties": {
        "root": {"$ref": "#/$defs/Node"},
        "odd": {"$ref": "#/$defs/Odd"},
        "loop": {"$ref": "#/$defs/Loop"},
    },
    "required": ["root", "odd", "loop"],
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "value": {"type": ["string", "null"]},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                "parent": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
            },
            "required": ["value"],
        },
        "Odd": {
            "type": "object",
            "properties": {"not-a-name": {"$ref": "#/$defs/Odd"}, "plain": {"type": "string"}},
        },
        "Loop": {"$ref": "#/$defs/Loop"},
    },
}

REFERENCES = typed(
    "self_",
    "dangling",
    "remote",
    "pointer",
    "index",
    self_={"$ref": "#"},
    dangling={"$ref": "#/$defs/none"},
    remote={"$ref": "https://example.invalid/schema.json"},
    pointer={"$ref": "#/properties/a~1b%20c"},
    index={"$ref": "#/anyOf/0"},
    **{"a/b c": {"type": "integer"}},
)


def named() -> dict[str, list[dict[str, Any]]]:
    """Every listing by a name for it; each is the ``tools`` of a ``tools/list`` result."""
    many = {f"parameter {index}": {"type": "string", "description": "x" * 200} for index in range(700)}
    return {
        "empty": [],
        "keywords": [tool(name, typed(name, **{name: {"type": "string"}})) for name in NAMES],
        "one tool of every hostile name": [
            tool("t", typed(*NAMES, **{name: {"type": "string"} for name in NAMES}))
        ],
        "an empty name": [tool("", typed("", **{"": {"type": "integer"}}))],
        "NFKC twins": [tool("ﬁle"), tool("file"), tool("ｆile")],
        "700 required parameters": [tool("t", typed(*many, **many))],
        "700 optional parameters": [tool("t", typed(**many))],
        "256 tools": [tool(f"t{index}") for index in range(256)],
        "257 tools": [tool(f"t{index}") for index in range(257)],
        "an enum of 10,000": [
            tool("t", typed("e", e={"type": "string", "enum": [f"member {index}" for index in range(10_000)]}))
        ],
        "1,000 deep": [tool("t", typed("deep", deep=nested(1_000)), outputSchema=nested(1_000))],
        "1,000 deep unions": [tool("t", typed("deep", deep=nested_unions(1_000)))],
        "doubling references": [tool("t", doubling(40), outputSchema=doubling(40))],
        "recursive": [tool("t", TREE, outputSchema=TREE)],
        "references": [tool("t", REFERENCES)],
        "a description of 1 MiB": [tool("t", description="x y" * 350_000), tool("u", description="x" * 2**20)],
        "code in descriptions": [
            tool(
                f"t{index}",
                typed(
                    "p", p={"type": "string", "description": text, "enum": [text, "b"]}, q={"description": text}
                ),
                description=text,
                outputSchema=typed(text, **{text: {"type": "string", "enum": [text]}}),
            )
            for index, text in enumerate(CODE)
        ],
        "a collision": [tool("Foo"), tool("foo_1cbec737")],
        "colliding labels": [tool("t", typed("Foo", foo_1cbec737={"type": "string"}, Foo={"type": "string"}))],
        "unusable schemas": [
            tool(f"t{index}", schema)
            for index, schema in enumerate(
                [
                    *[
                        [],
                        "x",
                        7,
                        True,
                        {},
                        {"$schema": "x"},
                        {"anyOf": []},
                        {"type": "string"},
                        {"type": ["object"]},
                    ],
                    *[{"type": "object", "properties": None}, {"type": "object", "required": None}],
                    *[{"type": "object", "required": [1]}, {"type": "object", "properties": []}],
                ]
            )
        ],
        "long keys": [
            tool(
                "t" * 200,
                typed("a", a=typed(**{key: {"type": ["string", "integer"]} for key in [*NAMES, "k" * 90]})),
            )
        ],
    }


def random_listing(seed: int) -> list[dict[str, Any]]:
    """A listing made of hostile parts; the same for the same ``seed``."""
    source = random.Random(seed)
    tools: dict[str, dict[str, Any]] = {}
    for _ in range(source.randint(1, 6)):
        made = tool(_name(source), _root(source))
        if source.random() < 0.7:
            made["description"] = _text(source)
        if source.random() < 0.5:
            made["outputSchema"] = _root(source)
        tools[made["name"]] = made
    return list(tools.values())


def _text(source: random.Random) -> str:
    return " ".join(source.choice(CODE) for _ in range(source.randint(1, 4)))


def _name(source: random.Random) -> str:
    pick = source.random()
    if pick < 0.6:
        return source.choice(NAMES)
    if pick < 0.8:
        return "".join(source.choice("aAzZ09_- .é\"'\\") for _ in range(source.randint(0, 12)))
    return "_".join(
        source.choice(["list", "get", "repository", "notification"]) for _ in range(source.randint(1, 9))
    )


def _root(source: random.Random) -> Any:
    if source.random() < 0.15:
        return _schema(source, 2)
    schema = _object(source, 3)
    if source.random() < 0.3:
        schema["$defs"] = {key: _schema(source, 3) for key in ("A", "B")}
    return schema


def _object(source: random.Random, depth: int) -> dict[str, Any]:
    keys = list(dict.fromkeys(_name(source) for _ in range(source.randint(0, 5))))
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {key: _schema(source, depth - 1) for key in keys},
        "required": [key for key in keys if source.random() < 0.5],
    }
    if source.random() < 0.1:
        schema["required"].append(_name(source))
    if source.random() < 0.2:
        schema["additionalProperties"] = source.choice([True, False, {"type": "string"}])
    return schema


def _schema(source: random.Random, depth: int) -> Any:
    if depth <= 0 or source.random() < 0.3:
        return {
            "type": source.choice(["string", "integer", "number", "boolean", "null"]),
            "description": _text(source),
        }
    members: list[Any] = ["a", "b", 1, -1, True, None, 1.5, [], "x" * 90, *CODE]
    choices: list[Callable[[], Any]] = [
        lambda: {"type": "array", "items": _schema(source, depth - 1)},
        lambda: {"type": "array", "prefixItems": [_schema(source, depth - 1)]},
        lambda: _object(source, depth),
        lambda: {"anyOf": [_schema(source, depth - 1) for _ in range(source.randint(0, 5))]},
        lambda: {"oneOf": [_schema(source, depth - 1) for _ in range(source.randint(0, 3))], "nullable": True},
        lambda: {"allOf": [_schema(source, depth - 1)]},
        lambda: {"type": source.sample(["string", "integer", "array", "object", "null"], 2)},
        lambda: {"enum": source.sample(members, source.randint(0, 6))},
        lambda: {"type": "string", "enum": source.sample([*CODE, "a", "b"], source.randint(0, 8))},
        lambda: {"const": source.choice(members)},
        lambda: {"$ref": source.choice(["#", "#/$defs/A", "#/$defs/B", "#/properties", "#/nowhere", "x.json"])},
        lambda: source.choice([True, False, {}, [], None, "string", {"type": "file"}, {"type": {"a": 1}}]),
        lambda: {"type": "object", "additionalProperties": _schema(source, depth - 1)},
    ]
    return source.choice(choices)()
