"""The asyncio client, against a small daemon, on both event loops."""

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from support.fake_daemon import FakeConnection, FakeDaemon, answer
from treadle_client import (
    AsyncClient,
    BrokerUnreachable,
    CallTimedOut,
    Denied,
    ResultMalformed,
    ToolFailed,
    _requests,
)
from treadle_client.frames import Frame, encode


def both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a coroutine function as a test, once under each event loop."""

    def run(loop_factory: Callable[[], asyncio.AbstractEventLoop], **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(test(**fixtures))

    given = inspect.signature(test)
    loop_factory = inspect.Parameter("loop_factory", inspect.Parameter.KEYWORD_ONLY)
    run.__signature__ = given.replace(parameters=[*given.parameters.values(), loop_factory])  # type: ignore[attr-defined]
    run.pytestmark = getattr(test, "pytestmark", [])  # type: ignore[attr-defined]
    loops: dict[str, Any] = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    both: Callable[..., None] = pytest.mark.parametrize("loop_factory", loops.values(), ids=list(loops))(run)
    return both


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "treadle.sock")


@pytest.fixture
def daemon(path: str) -> Iterator[FakeDaemon]:
    with FakeDaemon(path) as running:
        yield running


class Holding:
    """Keeps calls to itself until there are so many, then answers them in reverse order."""

    def __init__(self, until: int) -> None:
        self.until = until
        self.held: list[Frame] = []

    def __call__(self, connection: FakeConnection, frame: Frame) -> None:
        if frame.kind != "call":
            answer(connection, frame)
            return
        self.held.append(frame)
        if len(self.held) == self.until:
            for one in reversed(self.held):
                answer(connection, one)


def silent(connection: FakeConnection, frame: Frame) -> None:
    if frame.kind == "hello":
        answer(connection, frame)


async def came(daemon: FakeDaemon, kind: str, times: int = 1) -> list[Frame]:
    return await asyncio.to_thread(daemon.wait_for, kind, times)


@both_loops
async def test_hello_and_all_requests_of_one_loop_turn_leave_in_one_write(path: str) -> None:
    with FakeDaemon(path, Holding(50)) as daemon:
        async with AsyncClient(path) as broker:
            results = await asyncio.gather(*(broker.call("demo", "add", {"a": n, "b": 0}) for n in range(50)))
        assert [result.text for result in results] == [str(n) for n in range(50)]
        (connection,) = daemon.connections
        assert len(connection.reads) == 1
        assert [frame.kind for frame in connection.frames] == ["hello"] + ["call"] * 50
        assert len({frame.id for frame in connection.frames}) == 51


@both_loops
async def test_a_later_batch_is_one_write_too(daemon: FakeDaemon) -> None:
    async with AsyncClient(daemon.path) as broker:
        await broker.ping()
        before = len(daemon.connections[0].reads)
        await asyncio.gather(*(broker.call("demo", "echo", {"text": "x"}) for _ in range(20)))
        assert len(daemon.connections[0].reads) == before + 1
        assert len(daemon.connections) == 1


@both_loops
@pytest.mark.parametrize(
    ("ask", "kind", "body"),
    [
        (lambda b: b.list("demo", schemas=False), "list", {"server": "demo", "schemas": False}),
        (lambda b: b.status(), "status", {}),
        (lambda b: b.logs("demo"), "logs", {"server": "demo"}),
        (lambda b: b.generate("demo", "python"), "generate", {"server": "demo", "target": "python"}),
        (lambda b: b.restart("demo", within=1), "restart", {"server": "demo", "within_ms": 1000}),
        (lambda b: b.stop("demo"), "stop", {"server": "demo"}),
        (lambda b: b.start("demo"), "start", {"server": "demo"}),
        (lambda b: b.reload(), "reload", {}),
        (lambda b: b.shutdown(2), "shutdown", {"within_ms": 2000}),
        (lambda b: b.ping(), "heartbeat", {}),
    ],
)
async def test_a_method_sends_its_request(
    daemon: FakeDaemon, ask: Callable[[AsyncClient], Any], kind: str, body: dict[str, Any]
) -> None:
    async with AsyncClient(daemon.path) as broker:
        await ask(broker)
    (frame,) = daemon.seen(kind)
    assert frame.body == body


@both_loops
async def test_cancelling_the_waiting_task_cancels_the_call(path: str) -> None:
    with FakeDaemon(path, silent) as daemon:
        async with AsyncClient(path) as broker:
            task = asyncio.ensure_future(broker.call("demo", "sleep"))
            (call,) = await came(daemon, "call")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            (cancel,) = await came(daemon, "cancel")
        assert (cancel.id, cancel.body) == (call.id, {})


@both_loops
async def test_a_call_that_is_cancelled_before_it_left_is_never_sent(daemon: FakeDaemon) -> None:
    async with AsyncClient(daemon.path) as broker:
        await broker.ping()
        task = asyncio.ensure_future(broker.call("demo", "echo", {"text": "x"}))
        asyncio.get_running_loop().call_soon(task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        await broker.ping()
    assert daemon.seen("call") == []
    assert daemon.seen("cancel") == []


@both_loops
async def test_only_calls_are_cancelled(path: str) -> None:
    with FakeDaemon(path, lambda c, f: None if f.kind == "status" else answer(c, f)) as daemon:
        async with AsyncClient(path, timeout=5) as broker:
            task = asyncio.ensure_future(broker.status())
            await came(daemon, "status")
            task.cancel()
            await asyncio.wait([task])
            await broker.ping()
        assert daemon.seen("cancel") == []


@both_loops
async def test_a_time_out_cancels_the_call_and_leaves_the_connection_to_the_others(path: str) -> None:
    def say(connection: FakeConnection, frame: Frame) -> None:
        if frame.kind != "call" or frame.body["tool"] != "sleep":
            answer(connection, frame)

    with FakeDaemon(path, say) as daemon:
        async with AsyncClient(path, timeout=0.05) as broker:
            with pytest.raises(CallTimedOut) as caught:
                await broker.call("demo", "sleep")
            assert (caught.value.code, caught.value.outcome) == ("client_timeout", "unknown")
            await came(daemon, "cancel")
            assert (await broker.call("demo", "echo", {"text": "x"})).text == "x"
        assert len(daemon.connections) == 1


@both_loops
async def test_the_time_out_of_the_caller_is_not_taken_for_the_clients(path: str) -> None:
    with FakeDaemon(path, silent):
        async with AsyncClient(path, timeout=30) as broker:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await broker.call("demo", "sleep")


@both_loops
async def test_a_lost_connection_settles_all_in_flight_with_the_outcome_unknown(path: str) -> None:
    def die(connection: FakeConnection, frame: Frame) -> None:
        if frame.kind == "heartbeat":
            connection.close()

    with FakeDaemon(path, die) as daemon:
        async with AsyncClient(path) as broker:
            calls = [asyncio.ensure_future(broker.call("demo", "sleep")) for _ in range(10)]
            await came(daemon, "call", 10)
            pings = await asyncio.gather(broker.ping(), *calls, return_exceptions=True)
        assert len(daemon.connections) == 1
    for error in pings:
        assert isinstance(error, BrokerUnreachable)
        assert error.outcome == "unknown"


@both_loops
async def test_a_restarted_daemon_is_connected_to_again(path: str) -> None:
    async with AsyncClient(path) as broker:
        for _ in range(3):
            with FakeDaemon(path):
                assert (await broker.call("demo", "echo", {"text": "x"})).text == "x"
        with pytest.raises(BrokerUnreachable) as caught:
            await broker.ping()
        assert caught.value.outcome == "not_sent"


@both_loops
async def test_no_daemon_is_said_to_all_who_wait_for_the_connection(path: str) -> None:
    async with AsyncClient(path) as broker:
        errors = await asyncio.gather(*(broker.ping() for _ in range(3)), return_exceptions=True)
    assert [type(error) for error in errors] == [BrokerUnreachable] * 3
    assert "no such socket" in str(errors[0])


@both_loops
async def test_the_first_requests_share_one_connection_even_if_one_of_them_is_cancelled(
    daemon: FakeDaemon,
) -> None:
    async with AsyncClient(daemon.path) as broker:
        first, second = asyncio.ensure_future(broker.ping()), asyncio.ensure_future(broker.ping())
        await asyncio.sleep(0)
        first.cancel()
        assert await second >= 0
    assert len(daemon.connections) == 1


@both_loops
async def test_a_refused_peer_is_told_why(path: str) -> None:
    def refuse(connection: FakeConnection, frame: Frame) -> None:
        connection.send(encode(0, "error", {"code": "denied", "msg": "uid 12 may not use this broker"}))
        connection.close()

    with FakeDaemon(path, refuse):
        async with AsyncClient(path) as broker:
            errors = await asyncio.gather(broker.ping(), broker.status(), return_exceptions=True)
    for error in errors:
        assert isinstance(error, Denied)
        assert (error.code, error.outcome) == ("denied", "not_sent")


@both_loops
async def test_a_peer_that_speaks_something_else_is_an_error_that_says_so(path: str) -> None:
    with FakeDaemon(path, lambda connection, frame: connection.send(b"HTTP/1.1 400 Bad Request\r\n")):
        async with AsyncClient(path) as broker:
            with pytest.raises(ResultMalformed, match="no frame"):
                await broker.ping()


@both_loops
async def test_a_daemon_without_a_sign_of_life_is_given_up(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_requests, "SILENCE", 0.05)
    with FakeDaemon(path, silent) as daemon:
        async with AsyncClient(path) as broker:
            with pytest.raises(BrokerUnreachable, match="no sign of life"):
                await broker.call("demo", "sleep")
        assert len(daemon.seen("heartbeat")) == 1


@both_loops
async def test_a_slow_call_is_waited_for_as_long_as_the_daemon_lives(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_requests, "SILENCE", 0.03)

    def slow(connection: FakeConnection, frame: Frame) -> None:
        answer(connection, frame)
        if len(connection.daemon.seen("heartbeat")) == 2:
            (call,) = connection.daemon.seen("call")
            connection.result(call, {"content": [], "is_error": False})

    with FakeDaemon(path, slow):
        async with AsyncClient(path) as broker:
            assert (await broker.call("demo", "sleep")).content == []


@both_loops
async def test_requests_wait_while_the_daemon_does_not_read(path: str) -> None:
    read_on = threading.Event()

    def say(connection: FakeConnection, frame: Frame) -> None:
        if frame.kind == "call":
            read_on.wait(5)
        answer(connection, frame)

    with FakeDaemon(path, say) as daemon:
        async with AsyncClient(path) as broker:
            text = "x" * 1_500_000
            large = [asyncio.ensure_future(broker.call("demo", "echo", {"text": text})) for _ in range(4)]
            await came(daemon, "hello")
            small = asyncio.ensure_future(broker.ping())
            await asyncio.sleep(0)
            read_on.set()
            assert [len((await call).text) for call in large] == [1_500_000] * 4
            assert await small >= 0


@both_loops
async def test_a_large_answer_arrives_whole(daemon: FakeDaemon) -> None:
    async with AsyncClient(daemon.path) as broker:
        text = "x" * 8_000_000
        assert (await broker.call("demo", "echo", {"text": text})).text == text


@both_loops
async def test_errors_are_those_of_the_blocking_client(daemon: FakeDaemon) -> None:
    async with AsyncClient(daemon.path) as broker:
        with pytest.raises(ToolFailed):
            await broker.call("demo", "fail", check=True)
        with pytest.raises(Denied) as caught:
            await broker.call("demo", "echo", {"a": {1, 2}})
        assert (caught.value.code, caught.value.outcome) == ("invalid_argument", "not_sent")


@both_loops
async def test_closing_fails_what_is_in_flight_and_the_client_can_be_used_again(path: str) -> None:
    with FakeDaemon(path, lambda c, f: None if f.kind == "call" else answer(c, f)) as daemon:
        async with AsyncClient(path) as broker:
            call = asyncio.ensure_future(broker.call("demo", "sleep"))
            await came(daemon, "call")
            await broker.close()
            with pytest.raises(BrokerUnreachable):
                await call
            await broker.ping()
        assert len(daemon.connections) == 2


def test_a_client_serves_one_event_loop_after_another(daemon: FakeDaemon) -> None:
    broker = AsyncClient(daemon.path)

    async def use() -> None:
        assert await broker.ping() >= 0
        await broker.close()

    asyncio.run(use())
    asyncio.run(use())


def test_a_forked_child_makes_its_own_connection(daemon: FakeDaemon) -> None:
    async def use() -> None:
        async with AsyncClient(daemon.path) as broker:
            await broker.ping()
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    link = broker._link
                    status = 0 if link is not None and not link.is_usable() else 2
                finally:
                    os._exit(status)
            _, status = os.waitpid(child, 0)
            assert status == 0
            await broker.ping()

    asyncio.run(use())
    assert len(daemon.connections) == 1
