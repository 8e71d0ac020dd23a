"""The seam that generated Python modules call."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import treadle_client
from treadle.codegen import generate
from treadle_client import facade
from unit.codegen.loading import real

ANSWER: Any = SimpleNamespace(content=[], is_error=False, text="", structured={"x": 1})


class Recorder:
    def __init__(self) -> None:
        self.calls: list[tuple[str, str, dict[str, Any]]] = []

    def call(self, server: str, tool: str, arguments: dict[str, Any]) -> Any:
        self.calls.append((server, tool, arguments))
        return ANSWER


class AsyncRecorder(Recorder):
    async def call(self, server: str, tool: str, arguments: dict[str, Any]) -> Any:
        return super().call(server, tool, arguments)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    facade.configure(None)


def test_an_argument_left_out_is_not_sent_and_none_is_sent() -> None:
    recorder = Recorder()
    facade.configure(recorder)
    assert facade.invoke("s", "t", {"a": 1, "b": facade.UNSET, "c": None}) is ANSWER
    assert recorder.calls == [("s", "t", {"a": 1, "c": None})]


async def test_a_coroutine_goes_through_the_asynchronous_client() -> None:
    recorder, other = AsyncRecorder(), Recorder()
    facade.configure(recorder)
    facade.configure(other)
    assert await facade.invoke_async("s", "t", {"b": facade.UNSET}) is ANSWER
    assert (recorder.calls, other.calls) == ([("s", "t", {})], [])


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_generated_function_calls_under_the_wire_names(asynchronous: bool) -> None:
    recorder = AsyncRecorder() if asynchronous else Recorder()
    facade.configure(recorder)
    namespace: dict[str, Any] = {}
    exec(generate("filesystem", real("filesystem"), "python", asynchronous=asynchronous).source, namespace)
    answer = namespace["search_files"]("/srv", "*.py", exclude_patterns_787d0020=None)
    assert (asyncio.run(answer) if asynchronous else answer) is ANSWER
    namespace_call = ("filesystem", "search_files", {"path": "/srv", "pattern": "*.py", "excludePatterns": None})
    assert recorder.calls == [namespace_call]
    answer = namespace["search_files"]("/srv", "*")
    if asynchronous:
        asyncio.run(answer)
    assert recorder.calls[1][2] == {"path": "/srv", "pattern": "*"}


def test_without_a_configured_client_one_is_made_at_the_first_call_and_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Recorder] = []

    class Counted(Recorder):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(treadle_client, "Client", Counted)
    facade.invoke("s", "t", {})
    facade.invoke("s", "u", {})
    assert [recorder.calls for recorder in made] == [[("s", "t", {}), ("s", "u", {})]]


def test_each_event_loop_has_a_client_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[AsyncRecorder] = []

    class Counted(AsyncRecorder):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    async def twice() -> None:
        await facade.invoke_async("s", "t", {})
        await facade.invoke_async("s", "u", {})

    monkeypatch.setattr(treadle_client, "AsyncClient", Counted, raising=False)
    asyncio.run(twice())
    asyncio.run(twice())
    assert [len(recorder.calls) for recorder in made] == [2, 2]


def test_unset_names_itself_and_is_no_value_of_json() -> None:
    assert repr(facade.UNSET) == "UNSET"
    assert facade.UNSET is not None
