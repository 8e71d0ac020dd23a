"""Codegen page, section 5: the Python target."""

import ast
from typing import Any

import pytest

from treadle.codegen import generate, python, python_check
from treadle.errors import SanitizerBreach
from unit.codegen.corpus import CODE
from unit.codegen.loading import listed, one

ISSUE = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "description": "One line"},
        "perPage": {"type": "integer"},
        "state": {"type": "string", "enum": ["open", "closed"]},
        "id": {"type": ["string", "null"]},
    },
    "required": ["title"],
}


def source(schema: Any = None, *, asynchronous: bool = False, **more: Any) -> str:
    return generate(
        "git", one(ISSUE if schema is None else schema, **more), "python", asynchronous=asynchronous
    ).source


def test_required_parameters_come_first_and_optional_ones_are_keyword_only() -> None:
    assert """
def t(
    title: str,
    *,
    per_page_77879bba: int | Unset = UNSET,
    state: Literal["open", "closed"] | Unset = UNSET,
    id: str | None | Unset = UNSET,
) -> Result[Any]:
""" in source()


def test_the_body_is_one_call_of_the_seam_under_the_wire_names() -> None:
    assert source().endswith(
        """
    return invoke(
        "git",
        "t",
        {
            "title": title,
            "perPage": per_page_77879bba,
            "state": state,
            "id": id,
        },
    )
"""
    )


def test_an_asynchronous_module_awaits_the_asynchronous_seam() -> None:
    text = source(asynchronous=True)
    assert "async def t(" in text
    assert "return await invoke_async(" in text
    assert "import UNSET, Result, Unset, invoke_async" in text


def test_a_whole_value_function_takes_the_entire_map() -> None:
    text = source({"type": "string"})
    assert "def t(\n    arguments: dict[str, Any],\n) -> Result[Any]:" in text
    assert '        "t",\n        arguments,\n    )' in text


def test_nothing_is_imported_that_is_not_used() -> None:
    assert "import" not in generate("git", (), "python").source
    assert "from treadle_client.facade import Result, invoke\n" in source({"type": "object"})


def test_the_docstring_says_description_origin_and_every_parameter() -> None:
    function = ast.parse(source(description='Say "hi" \\ now')).body[-1]
    assert isinstance(function, ast.FunctionDef)
    assert (ast.get_docstring(function) or "").split("\n") == [
        'Say "hi" \\ now',
        "",
        'Tool "t" on MCP server "git". An optional parameter that is left out is',
        "not sent; None is sent as null.",
        "",
        "- `title`: One line",
        '- `per_page_77879bba` (wire name "perPage", optional)',
        "- `state` (optional)",
        "- `id` (optional)",
    ]


def test_a_value_that_cannot_be_typed_is_any_with_the_reason() -> None:
    text = source({"type": "object", "properties": {"x": {"not": {}}}, "required": ["x"]})
    assert "    x: Any,\n" in text
    assert "- `x` (any value: described by not)" in text


def test_an_output_schema_types_the_structured_result() -> None:
    output = {"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]}
    text = source({"type": "object"}, output=output)
    assert "class TResult(TypedDict):\n    sum: float\n" in text
    assert "def t() -> Result[TResult]:" in text


@pytest.mark.parametrize("text", CODE)
def test_hostile_text_changes_nothing_but_the_docstring(text: str) -> None:
    plain = ast.parse(source(description="x"))
    hostile = ast.parse(source(description=text))
    for module in (plain, hostile):
        function = module.body[-1]
        assert isinstance(function, ast.FunctionDef)
        module.body[0] = function.body[0] = ast.Pass()  # the header differs by the digest
    assert ast.dump(plain) == ast.dump(hostile)


def test_a_parameter_may_be_called_like_the_type_of_another() -> None:
    schema = {"type": "object", "properties": {"str": {"type": "string"}, "int": {"type": "string"}}}
    namespace: dict[str, Any] = {}
    exec(source(schema), namespace)
    assert set(namespace["t"].__kwdefaults__) == {"str", "int"}


HEAD = '"""Doc."""\nfrom treadle_client.facade import Result, invoke\n'
GOOD = 'def t(a: str) -> Result[None]:\n    """Doc."""\n    return invoke("s", "t", {"a": a})\n'


def test_the_allow_list_takes_the_shapes_of_a_generated_module() -> None:
    python_check.check(HEAD + GOOD, "s", ["t"])


@pytest.mark.parametrize(
    "breach",
    [
        "import os\n",
        "from os import system\n",
        "from typing import cast\n",
        "from treadle_client.facade import configure\n",
        "from treadle_client.facade import invoke as x\n",
        "from . import invoke\n",
        "print()\n",
        "X = 1\n",
        "X = print()\n",
        "x = str\n",
        "X = Y = str\n",
        "X: str = print()\n",
        "X = TypedDict('X', {'a': print()})\n",
        "X = TypedDict('X', {**a})\n",
        "if True:\n    pass\n",
        "class X:\n    pass\n",
        "class X(TypedDict):\n    a: str = print()\n",
        "class X(TypedDict):\n    def f(self): ...\n",
        "class X(TypedDict, metaclass=M):\n    a: str\n",
        "@x\nclass X(TypedDict):\n    a: str\n",
        "class X(TypedDict):\n    a: print()\n",
        "X = Literal[print()]\n",
        "X = list[os.x]\n",
        "lambda: 0\n",
        "async def u() -> None:\n    pass\n",
    ],
)
def test_any_other_statement_refuses_the_module(breach: str) -> None:
    with pytest.raises(SanitizerBreach):
        python_check.check(HEAD + breach + GOOD, "s", ["t"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def t", "@x\ndef t"),
        ("a: str", "a"),
        ("a: str", "a: str = print()"),
        ("a: str", "*, a: str = print()"),
        ("a: str", "a: str, /"),
        ("a: str", "*a: str"),
        ("a: str", "**a: str"),
        ("a: str", "a: str, b: str"),
        ("a: str", "a: f()"),
        (" -> Result[None]", ""),
        ("    return", "    print()\n    return"),
        ('    """Doc."""\n', ""),
        ("return invoke", "return eval"),
        ("return invoke", "return x.invoke"),
        ("invoke(", "invoke(*x, "),
        ('"s", "t"', '"other", "t"'),
        ('"s", "t"', '"s", "other"'),
        ('{"a": a}', '{"a": b}'),
        ('{"a": a}', '{"a": a()}'),
        ('{"a": a}', "{**a}"),
        ('{"a": a}', '{"a": a}, x=1'),
        ('{"a": a}', "arguments"),
        ("def t", "async def t"),
        ('{"a": a})', '{"a": a})\n    x = 1'),
        ("return", "yield"),
        (")\n", ")\n)\n"),
    ],
)
def test_any_other_function_refuses_the_module(old: str, new: str) -> None:
    assert old in GOOD
    with pytest.raises(SanitizerBreach, match="server s: no module is generated"):
        python_check.check(HEAD + GOOD.replace(old, new, 1), "s", ["t"])


def test_a_missing_or_an_additional_function_refuses_the_module() -> None:
    for tools in ([], ["t", "u"]):
        with pytest.raises(SanitizerBreach):
            python_check.check(HEAD + GOOD, "s", tools)


def test_the_backstop_holds_where_an_escape_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python, "docstring_line", lambda line: line)
    with pytest.raises(SanitizerBreach):
        generate("s", listed([{"name": "t", "inputSchema": {"type": "object"}, "description": CODE[0]}]), "python")
