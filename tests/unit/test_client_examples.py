"""The examples of the client's docstrings and of its README are run against a small daemon."""

import __future__

import ast
import asyncio
import contextlib
import doctest
import importlib
import inspect
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import treadle_client
from support.fake_daemon import FakeDaemon

MODULES = ["frames", "errors", "results", "paths", "client", "aio"]
ROOT = Path(__file__).parents[2]
# Examples may await, and are read as under `from __future__ import annotations`.
FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | __future__.annotations.compiler_flag


def docstrings() -> Iterator[Any]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in MODULES:
        module = importlib.import_module(f"treadle_client.{name}")
        for test in finder.find(module):
            if test.examples:
                yield pytest.param(test, id=test.name.removeprefix("treadle_client."))


@pytest.fixture
def socket_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    path = str(tmp_path / "treadle.sock")
    monkeypatch.setenv("TREADLE_SOCKET", path)
    with FakeDaemon(path):
        yield path


def run(source: str, globs: dict[str, Any], runner: asyncio.Runner, mode: str = "single") -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = eval(compile(source, "<example>", mode, FLAGS), globs)
        if inspect.iscoroutine(result):
            runner.run(result)
    return printed.getvalue()


@pytest.mark.parametrize("test", list(docstrings()))
def test_the_example_of_a_docstring_says_what_happens(test: doctest.DocTest, socket_path: str) -> None:
    is_async = test.name.startswith("treadle_client.aio.")
    with asyncio.Runner() as runner:
        broker: Any = treadle_client.AsyncClient() if is_async else treadle_client.Client()
        globs = {**test.globs, **vars(treadle_client), "asyncio": asyncio, "broker": broker}
        for example in test.examples:
            got = run(example.source, globs, runner)
            assert doctest.OutputChecker().check_output(example.want, got, 0), f"{example.source}printed {got!r}"
        closing = broker.close()
        if is_async:
            runner.run(closing)


@pytest.mark.parametrize("name", ["BrokerError", "Client", "AsyncClient", "ToolResult", "default_socket_path"])
def test_a_public_name_has_an_example(name: str) -> None:
    assert ">>>" in (inspect.getdoc(getattr(treadle_client, name)) or "")


@pytest.mark.parametrize("cls", [treadle_client.Client, treadle_client.AsyncClient])
def test_every_public_method_has_an_example(cls: type) -> None:
    methods = [
        value for name, value in vars(cls).items() if inspect.isfunction(value) and not name.startswith("_")
    ]
    assert methods
    assert [method.__name__ for method in methods if ">>>" not in (method.__doc__ or "")] == []


def test_the_blocks_of_the_readme_run(socket_path: str) -> None:
    text = (ROOT / "client_stub" / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    with asyncio.Runner() as runner:
        for block in blocks:
            run(block, {"__name__": "example"}, runner, mode="exec")
