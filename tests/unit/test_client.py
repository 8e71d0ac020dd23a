"""The blocking client, against a small daemon: requests, answers, errors, lost connections."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.fake_daemon import FakeConnection, FakeDaemon, answer
from treadle.cli import calling
from treadle.cli.codes import TIMED_OUT
from treadle.cli.options import Options
from treadle_client import (
    BrokerError,
    BrokerUnreachable,
    CallTimedOut,
    Client,
    Denied,
    ResultMalformed,
    ServerErrored,
    ServerUnavailable,
    ToolFailed,
    ToolResult,
    _requests,
)
from treadle_client.frames import Frame, encode

Serve = Callable[..., FakeDaemon]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "treadle.sock")


@pytest.fixture
def daemon(path: str) -> Iterator[FakeDaemon]:
    with FakeDaemon(path) as running:
        yield running


@pytest.fixture
def broker(daemon: FakeDaemon) -> Iterator[Client]:
    with Client(daemon.path) as client:
        yield client


# --- requests ----------------------------------------------------------------------------------------


def test_the_first_frame_is_a_hello_and_the_request_comes_in_the_same_write(
    daemon: FakeDaemon, broker: Client
) -> None:
    broker.call("demo", "add", {"a": 1, "b": 2})
    (connection,) = daemon.connections
    assert [frame.kind for frame in connection.frames] == ["hello", "call"]
    assert len(connection.reads) == 1
    assert connection.frames[0].body == {"proto": 1, "peer": "treadle-client", "features": []}


def test_sequential_requests_share_one_connection_and_take_one_write_each(
    daemon: FakeDaemon, broker: Client
) -> None:
    for _ in range(5):
        broker.call("demo", "add", {"a": 1, "b": 2})
    (connection,) = daemon.connections
    assert len(connection.reads) == 5
    assert len({frame.id for frame in connection.frames}) == 6


@pytest.mark.parametrize(
    ("ask", "kind", "body"),
    [
        (lambda b: b.call("demo", "fail"), "call", {"server": "demo", "tool": "fail", "arguments": {}}),
        (
            lambda b: b.call("demo", "fail", {"a": [None]}, timeout=1.5, content="all"),
            "call",
            {"server": "demo", "tool": "fail", "arguments": {"a": [None]}, "timeout_ms": 1500, "content": "all"},
        ),
        (lambda b: b.list(), "list", {}),
        (lambda b: b.list("demo", schemas=False), "list", {"server": "demo", "schemas": False}),
        (lambda b: b.status(), "status", {}),
        (lambda b: b.status("demo", processes=True), "status", {"server": "demo", "processes": True}),
        (lambda b: b.logs("demo", 100), "logs", {"server": "demo", "max_bytes": 100}),
        (lambda b: b.generate("demo", "gleam"), "generate", {"server": "demo", "target": "gleam"}),
        (lambda b: b.restart("demo"), "restart", {"server": "demo"}),
        (lambda b: b.stop("demo", within=2), "stop", {"server": "demo", "within_ms": 2000}),
        (lambda b: b.start("demo"), "start", {"server": "demo"}),
        (lambda b: b.reload(), "reload", {}),
        (lambda b: b.shutdown(), "shutdown", {}),
        (lambda b: b.shutdown(0.5), "shutdown", {"within_ms": 500}),
        (lambda b: b.ping(), "heartbeat", {}),
    ],
)
def test_a_method_sends_its_request(
    daemon: FakeDaemon, broker: Client, ask: Callable[[Client], Any], kind: str, body: dict[str, Any]
) -> None:
    ask(broker)
    (frame,) = daemon.seen(kind)
    assert frame.body == body


@pytest.mark.parametrize(("seconds", "ms"), [(0.0001, 1), (0.07, 70), (0.0701, 71), (60, 60_000)])
def test_a_time_out_is_rounded_up_to_milliseconds(
    daemon: FakeDaemon, broker: Client, seconds: float, ms: int
) -> None:
    broker.call("demo", "fail", timeout=seconds)
    assert daemon.seen("call")[0].body["timeout_ms"] == ms


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_a_time_out_that_is_none_is_refused(broker: Client, timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout must be a number of seconds above 0"):
        broker.call("demo", "fail", timeout=timeout)


def test_a_name_that_is_no_text_is_refused_before_it_can_cost_the_connection(broker: Client) -> None:
    with pytest.raises(TypeError, match="server must be a str, found bytes"):
        broker.call(b"demo", "add")  # type: ignore[arg-type]


def test_what_is_of_the_wrong_type_is_told_in_a_sentence(broker: Client) -> None:
    with pytest.raises(TypeError, match="timeout must be a number of seconds, found str"):
        broker.call("demo", "echo", timeout="5")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="timeout must be a number of seconds, found str"):
        Client(timeout="5")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="arguments must be a mapping of names to values, found list"):
        broker.call("demo", "echo", [1])  # type: ignore[arg-type]


# --- answers -----------------------------------------------------------------------------------------


def test_a_result_has_its_text_its_structure_and_its_verdict(broker: Client) -> None:
    result = broker.call("demo", "add", {"a": 1, "b": 2})
    assert result == ToolResult([{"type": "text", "text": "3"}], structured={"sum": 3})
    assert (result.text, result.structured, result.is_error) == ("3", {"sum": 3}, False)


def test_a_structured_null_is_not_an_absent_one(path: str) -> None:
    def say(connection: FakeConnection, frame: Frame) -> None:
        if frame.kind == "call":
            present = {"structured": None} if frame.body["tool"] == "null" else {}
            connection.result(frame, {"content": [], "is_error": False, **present})
        else:
            answer(connection, frame)

    with FakeDaemon(path, say), Client(path) as broker:
        null, absent = broker.call("s", "null"), broker.call("s", "absent")
    assert (null.structured, null.has_structured) == (None, True)
    assert (absent.structured, absent.has_structured) == (None, False)
    assert null != absent


def test_a_tool_that_says_no_is_a_result_unless_it_is_checked(broker: Client) -> None:
    assert broker.call("demo", "fail").is_error
    with pytest.raises(ToolFailed) as caught:
        broker.call("demo", "fail", check=True)
    assert caught.value.result.text == str(caught.value) == "the tool said no"
    assert (caught.value.code, caught.value.outcome) == ("tool_failed", "answered")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("mcp_unavailable", ServerUnavailable),
        ("mcp_timeout", CallTimedOut),
        ("mcp_malformed", ResultMalformed),
        ("jsonrpc_-32602", ServerErrored),
        ("jsonrpc_7", ServerErrored),
        ("jsonrpc_x", BrokerError),
        ("unknown_server", Denied),
        ("invalid_argument", Denied),
        ("overloaded", Denied),
        ("cancelled", Denied),
        ("shutting_down", Denied),
        ("denied", Denied),
        ("too_large", Denied),
        ("a_code_of_a_later_daemon", BrokerError),
    ],
)
def test_a_failure_code_has_its_exception(path: str, code: str, error: type[BrokerError]) -> None:
    def say(connection: FakeConnection, frame: Frame) -> None:
        if frame.kind == "call":
            connection.failure(frame, code, "why", outcome="unknown", data=[1])
        else:
            answer(connection, frame)

    with FakeDaemon(path, say) as daemon, Client(path) as broker:
        for _ in range(2):
            with pytest.raises(BrokerError) as caught:
                broker.call("s", "t")
            assert type(caught.value) is error
            facts = (caught.value.code, caught.value.message, str(caught.value), caught.value.outcome)
            assert facts == (code, "why", "why", "unknown")
            assert caught.value.data == [1]
        assert len(daemon.connections) == 1


def test_the_number_of_a_json_rpc_error_can_be_read(broker: Client) -> None:
    with pytest.raises(ServerErrored) as caught:
        broker.call("demo", "nothing")
    assert (caught.value.number, caught.value.data) == (-32602, {"tool": "nothing"})


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"ok": 1, "value": {}},
        {"ok": True},
        {"ok": False},
        {"ok": False, "error": {"msg": "no code"}},
        {"ok": True, "value": None},
        {"ok": True, "value": {"content": [], "is_error": 0}},
        {"ok": True, "value": {"content": {}, "is_error": False}},
        {"ok": True, "value": {"content": [{"type": "text"}], "is_error": False}},
        {"ok": True, "value": {"content": ["x"], "is_error": False}},
    ],
)
def test_an_answer_of_another_shape_is_an_error_of_its_own(path: str, body: dict[str, Any]) -> None:
    def say(connection: FakeConnection, frame: Frame) -> None:
        if frame.kind == "call":
            connection.send(encode(frame.id, "result", body))
        else:
            answer(connection, frame)

    with FakeDaemon(path, say), Client(path) as broker, pytest.raises(ResultMalformed) as caught:
        broker.call("s", "t")
    assert caught.value.code == "bad_answer"


def test_a_large_answer_arrives_whole(broker: Client) -> None:
    text = "x" * 8_000_000
    assert broker.call("demo", "echo", {"text": text}).text == text


# --- what cannot be sent -----------------------------------------------------------------------------


def test_arguments_that_no_frame_can_hold_are_refused_and_nothing_is_sent(
    daemon: FakeDaemon, broker: Client
) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"a": [1, {1, 2}]}, "$.a[1]: a value of type set"),
        ({"a": 2**64}, "$.a: an integer outside 64 bits"),
        ({"a": "\ud800"}, "$.a: text that is not valid Unicode"),
    ]
    for arguments, message in refused:
        with pytest.raises(Denied) as caught:
            broker.call("demo", "add", arguments)
        facts = (caught.value.code, caught.value.outcome, str(caught.value))
        assert facts == ("invalid_argument", "not_sent", message)
    assert daemon.seen("call") == []


def test_arguments_that_the_daemon_refuses_in_band_leave_the_connection_alone(
    daemon: FakeDaemon, broker: Client
) -> None:
    with pytest.raises(Denied, match=r"\$\.a: a byte string"):
        broker.call("demo", "add", {"a": b"x"})
    assert broker.call("demo", "echo", {"text": "still here"}).text == "still here"
    assert len(daemon.connections) == 1


def test_a_request_past_the_frame_limit_is_refused_with_both_sizes(daemon: FakeDaemon, broker: Client) -> None:
    with pytest.raises(Denied, match="limit is 16777216") as caught:
        broker.call("demo", "echo", {"text": "x" * 17_000_000})
    assert (caught.value.code, caught.value.outcome) == ("too_large", "not_sent")
    assert daemon.connections == []


# --- lost and refused connections --------------------------------------------------------------------


def test_no_socket_says_how_to_start_a_daemon(path: str) -> None:
    with Client(path) as broker, pytest.raises(BrokerUnreachable) as caught:
        broker.ping()
    assert caught.value.path == path
    assert "there is no such socket" in str(caught.value)
    assert "treadle serve" in str(caught.value)
    assert caught.value.outcome == "not_sent"


def test_a_socket_that_nobody_listens_on_is_told_from_none(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)
    with Client(path) as broker, pytest.raises(BrokerUnreachable, match="the daemon that made it has gone"):
        broker.ping()


def test_a_restarted_daemon_is_connected_to_again(path: str) -> None:
    with Client(path) as broker:
        for _ in range(3):
            with FakeDaemon(path) as daemon:
                assert broker.call("demo", "echo", {"text": "hello"}).text == "hello"
                assert [frame.kind for frame in daemon.connections[0].frames] == ["hello", "call"]
        with pytest.raises(BrokerUnreachable) as caught:
            broker.ping()
        assert caught.value.outcome == "not_sent"


def test_a_call_that_may_have_been_sent_is_never_repeated(path: str) -> None:
    def die(connection: FakeConnection, frame: Frame) -> None:
        if frame.kind == "call":
            connection.close()
        else:
            answer(connection, frame)

    with FakeDaemon(path, die) as daemon, Client(path) as broker:
        broker.ping()
        with pytest.raises(BrokerUnreachable) as caught:
            broker.call("demo", "add", {"a": 1, "b": 2})
        assert caught.value.outcome == "unknown"
        assert len(daemon.seen("call")) == 1
        assert broker.ping() >= 0
        assert len(daemon.connections) == 2


def test_a_large_request_that_is_cut_off_halfway_was_not_sent(path: str) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()

    def read_a_little() -> None:
        accepted, _ = listening.accept()
        accepted.recv(1000)
        accepted.close()

    thread = threading.Thread(target=read_a_little)
    thread.start()
    with listening, Client(path) as broker, pytest.raises(BrokerUnreachable) as caught:
        broker.call("demo", "echo", {"text": "x" * 8_000_000})
    thread.join()
    assert caught.value.outcome == "not_sent"


def test_a_refused_peer_is_told_why(path: str) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()

    def refuse() -> None:
        accepted, _ = listening.accept()
        accepted.sendall(encode(0, "error", {"code": "denied", "msg": "uid 12 may not use this broker"}))
        accepted.close()

    thread = threading.Thread(target=refuse)
    thread.start()
    with listening, Client(path) as broker, pytest.raises(Denied) as caught:
        broker.ping()
    thread.join()
    assert (caught.value.code, caught.value.outcome) == ("denied", "not_sent")
    assert "uid 12" in str(caught.value)


def test_an_error_frame_for_the_request_is_its_answer(path: str) -> None:
    def say(connection: FakeConnection, frame: Frame) -> None:
        if frame.kind == "reload":
            connection.send(encode(frame.id, "error", {"code": "unknown_kind", "msg": "unknown kind 'reload'"}))
        else:
            answer(connection, frame)

    with FakeDaemon(path, say), Client(path) as broker:
        with pytest.raises(Denied, match="unknown kind") as caught:
            broker.reload()
        assert caught.value.code == "unknown_kind"
        assert broker.ping() >= 0


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad Request\r\n", b"\x00\x00\x00\x01\xc1"])
def test_a_peer_that_speaks_something_else_is_an_error_that_says_so(path: str, garbage: bytes) -> None:
    with FakeDaemon(path, lambda connection, frame: connection.send(garbage)), Client(path) as broker:
        with pytest.raises(ResultMalformed, match="no frame") as caught:
            broker.ping()
        assert caught.value.code == "bad_answer"


def test_answers_to_other_ids_and_notices_are_passed_over(path: str) -> None:
    def say(connection: FakeConnection, frame: Frame) -> None:
        if frame.kind == "call":
            late = encode(frame.id + 100, "result", {"ok": True, "value": 1})
            right = {"ok": True, "value": {"content": [], "is_error": False}}
            connection.send(late, encode(frame.id, "result", right))
        else:
            answer(connection, frame)

    with FakeDaemon(path, say), Client(path) as broker:
        assert broker.call("demo", "any").content == []


# --- time --------------------------------------------------------------------------------------------


def silent(connection: FakeConnection, frame: Frame) -> None:
    if frame.kind == "hello":
        answer(connection, frame)


def test_a_client_gives_up_after_its_time_out_with_the_outcome_unknown(path: str) -> None:
    with FakeDaemon(path, silent) as daemon, Client(path, timeout=0.05) as broker:
        with pytest.raises(CallTimedOut) as caught:
            broker.call("demo", "add")
        assert (caught.value.code, caught.value.outcome) == ("client_timeout", "unknown")
        with pytest.raises(CallTimedOut):
            broker.ping()
        assert len(daemon.connections) == 2  # the late answer of the first must not meet the second


def test_a_call_waits_longer_than_its_own_time_out_for_the_daemon_to_say_so(path: str) -> None:
    def late(connection: FakeConnection, frame: Frame) -> None:
        if frame.kind == "call":
            time.sleep(2 * frame.body["timeout_ms"] / 1000)
            connection.failure(frame, "mcp_timeout", "no answer in time")
        else:
            answer(connection, frame)

    with FakeDaemon(path, late), Client(path) as broker, pytest.raises(CallTimedOut, match="no answer in time"):
        broker.call("demo", "add", timeout=0.02)


def test_past_its_time_out_and_the_grace_a_call_is_given_up(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_requests, "GRACE", 0.02)
    with FakeDaemon(path, silent), Client(path) as broker:
        with pytest.raises(CallTimedOut) as caught:
            broker.call("demo", "add", timeout=0.02)
        assert caught.value.code == "client_timeout"


def test_a_call_with_a_time_out_waits_no_longer_for_a_connection(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_requests, "GRACE", 0.02)
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as first:
        listening.bind(path)
        listening.listen(0)
        first.connect(path)  # the backlog is full, and nobody accepts
        started = time.monotonic()
        with pytest.raises(BrokerUnreachable, match="backlog is full"):
            Client(path).call("demo", "add", timeout=0.02)
        assert time.monotonic() - started < _requests.SILENCE / 3


@pytest.mark.parametrize("words", [["demo", "add", "a=1"], ["demo.add"]])
def test_what_a_call_of_the_command_line_asks_first_has_the_calls_own_time(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.setattr(calling, "GRACE", 0.02)
    with FakeDaemon(path, silent) as daemon:
        with pytest.raises(SystemExit) as ended:
            calling.run(words, Options(socket=path, quiet=True), timeout=0.02)
        assert ended.value.code == TIMED_OUT
        assert not daemon.seen("call")
        assert not daemon.seen("heartbeat")
    assert "gave up waiting" in capsys.readouterr().err


def test_a_daemon_without_a_sign_of_life_is_given_up(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_requests, "SILENCE", 0.05)
    with FakeDaemon(path, silent) as daemon, Client(path) as broker:
        with pytest.raises(BrokerUnreachable, match="no sign of life") as caught:
            broker.call("demo", "sleep")
        assert caught.value.outcome == "unknown"
        assert len(daemon.seen("heartbeat")) == 1


def test_a_slow_call_is_waited_for_as_long_as_the_daemon_lives(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_requests, "SILENCE", 0.03)

    def slow(connection: FakeConnection, frame: Frame) -> None:
        answer(connection, frame)
        if len(connection.daemon.seen("heartbeat")) == 3:
            (call,) = connection.daemon.seen("call")
            connection.result(call, {"content": [], "is_error": False})

    with FakeDaemon(path, slow), Client(path) as broker:
        assert broker.call("demo", "sleep").content == []


def test_a_large_request_to_a_daemon_that_does_not_read_ends_by_the_time_out(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        with Client(path, timeout=0.05) as broker, pytest.raises(CallTimedOut) as caught:
            broker.call("demo", "echo", {"text": "x" * 8_000_000})
        assert caught.value.outcome == "not_sent"


# --- threads and forks -------------------------------------------------------------------------------


def test_threads_that_call_at_once_have_a_connection_each_and_share_the_idle_ones(path: str) -> None:
    together = threading.Barrier(4)

    def say(connection: FakeConnection, frame: Frame) -> None:
        if frame.kind == "call":
            together.wait(5)
        answer(connection, frame)

    wrong: list[object] = []

    with FakeDaemon(path, say) as daemon, Client(path) as broker:

        def work(number: int) -> None:
            for step in range(10):
                text = f"{number}.{step}"
                if broker.call("demo", "echo", {"text": text}).text != text:
                    wrong.append(text)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert len(daemon.connections) == 4


def test_a_forked_child_makes_its_own_connection(daemon: FakeDaemon, broker: Client) -> None:
    broker.ping()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if broker.call("demo", "echo", {"text": "child"}).text == "child" else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert broker.call("demo", "echo", {"text": "parent"}).text == "parent"
    assert len(daemon.connections) == 2


def test_closing_while_another_thread_is_inside_a_call_leaves_no_connection(path: str) -> None:
    go_on = threading.Event()

    def say(connection: FakeConnection, frame: Frame) -> None:
        if frame.kind == "call":
            go_on.wait(5)
        answer(connection, frame)

    with FakeDaemon(path, say) as daemon:
        broker = Client(path)
        thread = threading.Thread(target=broker.call, args=("demo", "fail"))
        thread.start()
        daemon.wait_for("call")
        broker.close()
        go_on.set()
        thread.join()
        daemon.wait_until_left()


def test_a_closed_client_connects_again_when_it_is_used(daemon: FakeDaemon, broker: Client) -> None:
    broker.ping()
    broker.close()
    broker.ping()
    assert len(daemon.connections) == 2


# --- the socket's path -------------------------------------------------------------------------------


def test_a_socket_path_longer_than_the_kernel_takes_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("d" * 100)
    folder.mkdir()
    monkeypatch.chdir(folder)
    with FakeDaemon("t.sock"), Client(folder / "t.sock") as broker:
        assert broker.ping() >= 0


def test_the_socket_of_the_environment_is_the_default(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_SOCKET", daemon.path)
    with Client() as broker:
        assert broker.ping() >= 0


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("file", "a file is there, not a socket"), ("folder", "a directory is there, not a socket")],
)
def test_what_is_no_socket_is_told_as_what_it_is(tmp_path: Path, kind: str, reason: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(BrokerUnreachable) as caught:
        Client(tmp_path / kind).ping()
    assert caught.value.reason == reason


@pytest.mark.parametrize("rest", ["x" * 120, f"{'x' * 100}/{'y' * 20}"])
def test_a_path_that_no_socket_can_have_is_told_with_the_limit(tmp_path: Path, rest: str) -> None:
    path = f"{tmp_path}/{rest}"
    with pytest.raises(
        BrokerUnreachable, match=f"no such socket.* its path has {len(path)} bytes, the limit is 107"
    ):
        Client(path).ping()
