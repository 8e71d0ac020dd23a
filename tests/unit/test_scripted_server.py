"""The scripted server itself: every verb does what it says, as a process and as the in-process twin."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from support import engine, script, twin
from support.catalogue import ENTRIES, Entry
from support.catalogue.model import Stop
from support.script import Steps, at, default, error, expect, line, on, on_eof, per_tool, raw, result, text
from treadle.channel import ChannelTransport
from treadle.errors import Fault
from treadle.transport import KILL_NOW, Ladder

PATIENCE = Ladder(term_after=30, kill_after=30)


def message(number: int | None, method: str, params: Any = None, **more: Any) -> bytes:
    body = {"jsonrpc": "2.0", **({} if number is None else {"id": number}), "method": method, **more}
    if params is not None:
        body["params"] = params
    return json.dumps(body).encode() + b"\n"


def call(number: int, name: str, **arguments: Any) -> bytes:
    return message(number, "tools/call", {"name": name, "arguments": arguments})


class Player(Protocol):
    """A server that plays a script, whatever it is made of."""

    reader: asyncio.StreamReader

    async def send(self, data: bytes) -> None: ...
    async def close_stdin(self) -> None: ...
    def terminate(self) -> None: ...
    async def end(self) -> str: ...
    async def stderr(self) -> str: ...


class ProcessPlayer:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        self.process = process
        self.reader = process.stdout

    async def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    async def close_stdin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def terminate(self) -> None:
        self.process.terminate()

    async def end(self) -> str:
        status = await self.process.wait()
        return f"status {status}" if status >= 0 else signal.Signals(-status).name

    async def stderr(self) -> str:
        assert self.process.stderr is not None
        return (await self.process.stderr.read()).decode()


class TwinPlayer:
    def __init__(self, steps: Steps) -> None:
        self.peer = twin.TwinPeer(steps)
        self.transport = ChannelTransport(self.peer)
        self.reader = asyncio.StreamReader(limit=1 << 24)
        self.room = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.reader.feed_data(data)

    def writable(self) -> None:
        self.room.set()

    def closed(self, reason: Fault) -> None:
        self.reader.feed_eof()

    async def send(self, data: bytes) -> None:
        assert self.transport.send(data) == len(data)

    async def close_stdin(self) -> None:
        self.retiring = asyncio.ensure_future(self.transport.retire(PATIENCE))

    def terminate(self) -> None:
        self.peer.terminated()

    async def end(self) -> str:
        evidence = await self.transport.retire(PATIENCE)
        return evidence.signal or f"status {evidence.status}"

    async def stderr(self) -> str:
        await self.end()
        return self.transport.stderr_tail()


Play = Callable[[Steps], Awaitable[Player]]


@asynccontextmanager
async def processes() -> AsyncIterator[Play]:
    started: list[asyncio.subprocess.Process] = []

    async def play(steps: Steps) -> Player:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *script.command(steps), stdin=pipe, stdout=pipe, stderr=pipe, limit=1 << 24
        )
        started.append(process)
        return ProcessPlayer(process)

    try:
        yield play
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
            await process.communicate()


@asynccontextmanager
async def twins() -> AsyncIterator[Play]:
    started: list[TwinPlayer] = []

    async def play(steps: Steps) -> Player:
        player = TwinPlayer(steps)
        started.append(player)
        await player.transport.open(player)
        return player

    try:
        yield play
    finally:
        for player in started:
            await player.transport.retire(KILL_NOW)


@pytest.fixture(params=["process", "twin"])
async def play(request: pytest.FixtureRequest) -> AsyncIterator[Play]:
    async with processes() if request.param == "process" else twins() as player:
        yield player


@pytest.fixture
async def play_process() -> AsyncIterator[Play]:
    async with processes() as player:
        yield player


async def answer(player: Player) -> Any:
    return json.loads(await player.reader.readline())


async def text_of(player: Player) -> str:
    return str((await answer(player))["result"]["content"][0]["text"])


# --- the well-behaved server ---------------------------------------------------------------------------------


async def test_an_empty_script_is_a_well_behaved_server_that_exits_on_eof(play: Play) -> None:
    server = await play([])
    await server.send(message(1, "initialize", {}) + message(None, "notifications/initialized"))
    assert (await answer(server))["result"]["protocolVersion"] == "2025-06-18"
    await server.send(message(2, "tools/list"))
    assert [tool["name"] for tool in (await answer(server))["result"]["tools"]][:2] == ["echo", "reflect"]
    await server.send(message(3, "ping") + call(4, "echo", text="grüße") + call(5, "reflect", a=[1]))
    assert await answer(server) == {"jsonrpc": "2.0", "id": 3, "result": {}}
    assert await text_of(server) == "grüße"
    assert (await answer(server))["result"]["structuredContent"] == {"a": [1]}
    await server.send(call(6, "fail", text="no") + call(7, "nothing") + message(8, "odd/method"))
    assert (await answer(server))["result"]["isError"] is True
    assert [(await answer(server))["error"]["code"] for _ in range(2)] == [-32602, -32601]
    await server.close_stdin()
    assert await server.end() == "status 0"


async def test_a_waiting_tool_delays_no_other(play: Play) -> None:
    server = await play([])
    await server.send(call(1, "wait", ms=20, text="slow") + call(2, "echo", text="quick"))
    assert [await text_of(server), await text_of(server)] == ["quick", "slow"]


async def test_pages_are_listed_by_cursor(play: Play) -> None:
    server = await play([script.pages([script.tool("a")], [script.tool("b")])])
    await server.send(message(1, "tools/list"))
    assert (await answer(server))["result"]["nextCursor"] == "page-2"
    await server.send(message(2, "tools/list", {"cursor": "page-2"}) + message(3, "tools/list", {"cursor": "?"}))
    second = (await answer(server))["result"]
    assert ([tool["name"] for tool in second["tools"]], "nextCursor" in second) == (["b"], False)
    assert (await answer(server))["error"]["code"] == -32602
    await server.send(call(4, "b", x=1))
    assert await text_of(server) == '{"x":1}'


# --- talking -------------------------------------------------------------------------------------------------


async def test_expect_waits_for_its_method_while_others_are_served(play: Play) -> None:
    server = await play([expect("tools/call"), text("odd")])
    await server.send(message(1, "ping") + call(2, "echo", text="x") + call(3, "echo", text="even"))
    assert (await answer(server))["id"] == 1
    assert [await text_of(server), await text_of(server)] == ["odd", "even"]


async def test_saved_messages_are_answered_in_any_order_in_one_write(play: Play) -> None:
    both = [script.as_json(script.envelope(2, "b")), "\n", script.as_json(script.envelope(1, "a")), "\n"]
    server = await play([expect("tools/call", save="a"), expect("tools/call", save="b"), raw(both)])
    await server.send(call(7, "x") + call(9, "y"))
    assert [(await answer(server))["id"] for _ in range(2)] == [9, 7]


async def test_a_request_of_the_server_and_its_answer(play: Play) -> None:
    ask = [script.request("r", "roots/list"), expect(response="r", where={"error": {"code": -32601}})]
    server = await play([expect("initialize", save="i"), ask, script.notify("odd"), default("i")])
    await server.send(message(1, "initialize", {}))
    assert await answer(server) == {"jsonrpc": "2.0", "id": "r", "method": "roots/list"}
    await server.send(b'{"jsonrpc":"2.0","id":"r","error":{"code":-32601,"message":"no"}}\n')
    assert await answer(server) == {"jsonrpc": "2.0", "method": "odd"}
    assert (await answer(server))["id"] == 1


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [
        (
            b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{"roots":{}}}}\n',
            "capabilities",
        ),
        (b"not JSON\n", "not JSON"),
        (b'{"id":1,"method":"ping"}\n', "not a JSON-RPC 2.0 message"),
        (message(1, "ping", []), "params is not an object"),
        (message(1, "ping") * 2, "not used before"),
        (b'{"jsonrpc":"2.0","id":1}\n', "neither a request nor a response"),
    ],
)
async def test_a_client_that_breaks_the_protocol_ends_the_server(play: Play, sent: bytes, complaint: str) -> None:
    server = await play([expect("initialize", where={"params": {"capabilities": {"$exactly": {}}}})])
    await server.send(sent)
    assert await server.end() == f"status {engine.VIOLATION}"
    assert complaint in await server.stderr()


async def test_raw_bytes_leave_exactly_as_they_are(play: Play) -> None:
    odd = b"\xff\x00\r\n\xed\xa0\x80"
    server = await play([raw(odd), raw(["é", script.times(b"\x80", 3)]), script.exit()])
    assert await server.reader.read() == odd + "é".encode() + b"\x80" * 3


async def test_chunks_arrive_one_after_the_other(play: Play) -> None:
    server = await play([script.chunks("aébc", [2, 1], gap=0.001), script.exit()])
    assert await server.reader.read() == "aébc".encode()


async def test_text_in_another_encoding(play: Play) -> None:
    server = await play([raw(script.encoded("ab\n", "utf-16-le")), script.exit()])
    assert await server.reader.read() == b"a\x00b\x00\n\x00"


async def test_a_line_is_filled_to_the_byte(play: Play) -> None:
    filled = script.as_json(script.envelope(script.text_result(script.FILL)), size=65537)
    server = await play([per_tool("big", line(filled))])
    await server.send(call(1, "big"))
    assert len(await server.reader.readline()) == 65537 + 1


async def test_a_flood_is_as_long_as_it_says_on_either_stream(play: Play) -> None:
    server = await play([script.flood("ab", 200_001), script.flood("e", 70_000, fd=2), script.exit()])
    flood = await server.reader.read()
    assert (len(flood), set(flood)) == (200_001, set(b"ab"))
    assert len(await server.stderr()) >= 65536


async def test_stderr_says_what_it_is_told(play: Play) -> None:
    server = await play([script.stderr("oops\n"), script.exit(3)])
    assert await server.stderr() == "oops\n"
    assert await server.end() == "status 3"


# --- who answers what ----------------------------------------------------------------------------------------


async def test_handlers_by_number_by_tool_and_by_method_in_this_order(play: Play) -> None:
    steps = [at(2, text("second")), per_tool("echo", text("tool")), on("tools/call", error(-1, "any", data=[1]))]
    server = await play([steps, on("ping")])
    await server.send(call(1, "echo") + message(2, "ping") + call(3, "echo") + call(4, "other"))
    assert [await text_of(server), await text_of(server)] == ["tool", "second"]
    assert (await answer(server))["error"] == {"code": -1, "message": "any", "data": [1]}


async def test_placeholders_speak_of_the_message_in_hand(play: Play) -> None:
    server = await play([per_tool("p", result({"all": script.PARAMS, "args": script.ARGUMENTS}))])
    await server.send(call(5, "p", k="v"))
    assert (await answer(server))["result"] == {"all": {"name": "p", "arguments": {"k": "v"}}, "args": {"k": "v"}}


async def test_on_eof_replaces_the_exit(play: Play) -> None:
    server = await play([on_eof(raw("bye\n"), script.exit(4))])
    await server.close_stdin()
    assert await server.reader.read() == b"bye\n"
    assert await server.end() == "status 4"


async def test_repeat_plays_its_steps_again(play: Play) -> None:
    server = await play([script.repeat(3, raw("x")), script.exit()])
    assert await server.reader.read() == b"xxx"


async def test_a_wrong_script_says_so(play: Play) -> None:
    server = await play([{"do": "dance"}])
    assert await server.end() == f"status {engine.BAD_SCRIPT}"
    assert "no such verb: dance" in await server.stderr()


# --- time, descriptors, the end ------------------------------------------------------------------------------


async def test_kill_self_ends_by_that_signal(play: Play) -> None:
    server = await play([raw("x"), script.kill_self("SIGKILL")])
    assert await server.reader.read() == b"x"
    assert await server.end() == "SIGKILL"


async def test_a_trapped_signal_plays_its_steps(play: Play) -> None:
    server = await play([script.trap("SIGTERM", raw("caught\n"), script.exit(5)), raw("ready\n"), script.hang()])
    await server.reader.readline()
    server.terminate()
    assert await server.reader.read() == b"caught\n"
    assert await server.end() == "status 5"


async def test_an_ignored_signal_changes_nothing(play: Play) -> None:
    server = await play([script.ignore("SIGTERM"), raw("ready\n")])
    await server.reader.readline()
    server.terminate()
    await server.send(call(1, "echo", text="still here"))
    assert await text_of(server) == "still here"


async def test_an_untrapped_term_ends_the_server(play: Play) -> None:
    server = await play([raw("ready\n")])
    await server.reader.readline()
    server.terminate()
    assert await server.end() == "SIGTERM"


async def test_closing_stdout_ends_the_stream_and_not_the_server(play: Play) -> None:
    server = await play([raw("last"), script.close(1), expect("ping"), script.exit(6)])
    assert await server.reader.read() == b"last"
    await server.send(message(1, "ping"))
    assert await server.end() == "status 6"


# --- what only a process can do ------------------------------------------------------------------------------


async def test_the_record_holds_every_byte_received(play_process: Play, tmp_path: Path) -> None:
    recorded = tmp_path / "record"
    server = await play_process([script.record(recorded)])
    sent = call(1, "echo", text="é") + message(2, "ping") + b'{"cut'
    await server.send(sent)
    await server.close_stdin()
    assert await server.end() == "status 0"
    assert recorded.read_bytes() == sent


async def test_the_facts_of_a_process(play_process: Play) -> None:
    server = await play_process([per_tool("mine", script.answer_fact("pid"))])
    assert isinstance(server, ProcessPlayer)
    await server.send(
        b"".join(call(n, name) for n, name in enumerate(("environ", "argv", "cwd", "fds", "mine"), 1))
    )
    environ, argv, cwd, fds, pid = [json.loads(await text_of(server)) for _ in range(5)]
    assert environ["PATH"] == os.environ["PATH"]
    assert argv[0] == str(script.SERVER)
    assert cwd == str(Path.cwd())
    assert list(fds) == ["0", "1", "2"]
    assert pid == server.process.pid


async def test_a_server_that_stops_itself_is_ended_by_sigkill_alone(play_process: Play) -> None:
    server = await play_process([raw("ready\n"), script.stop_self()])
    assert isinstance(server, ProcessPlayer)
    await server.reader.readline()
    await asyncio.to_thread(os.waitid, os.P_PID, server.process.pid, os.WSTOPPED)
    server.terminate()
    await server.send(message(1, "ping"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(server.reader.readline(), 0.05)
    server.process.kill()
    assert await server.end() == "SIGKILL"


async def test_a_server_that_reads_no_more_lets_the_pipe_fill_up(play_process: Play) -> None:
    server = await play_process([script.stop_reading(), raw("ready\n")])
    assert isinstance(server, ProcessPlayer)
    await server.reader.readline()
    await server.send(b" " * 1_000_000)
    assert server.process.stdin is not None
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(server.process.stdin.drain(), 0.05)


async def test_a_forked_child_outlives_its_parent_in_its_own_session(play_process: Play, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    child = script.fork(script.write_pid(pid_file), raw("child\n"), script.hang(), setsid=True, keep_fds=[1])
    server = await play_process([child, expect("ping"), script.exit(2)])
    assert await server.reader.readline() == b"child\n"
    await server.send(message(1, "ping"))
    # The child holds the pipe open: no end of stdout shows its parent's end.
    assert isinstance(server, ProcessPlayer)
    pid = int(pid_file.read_text())
    try:
        assert os.getsid(pid) == pid
    finally:
        os.kill(pid, signal.SIGKILL)
    assert await server.end() == "status 2"


async def test_a_doubly_forked_child_is_an_orphan_at_once(play_process: Play, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    child = script.fork(script.write_pid(pid_file), raw("child\n"), script.hang(), double=True, keep_fds=[1])
    server = await play_process([child])
    assert isinstance(server, ProcessPlayer)
    assert await server.reader.readline() == b"child\n"
    pid = int(pid_file.read_text())
    try:
        assert f"PPid:\t{server.process.pid}\n" not in Path(f"/proc/{pid}/status").read_text()
    finally:
        os.kill(pid, signal.SIGKILL)


async def test_starts_are_counted_over_processes(play_process: Play, tmp_path: Path) -> None:
    steps: Steps = [
        script.by_start(tmp_path / "starts", {1: [script.exit(1)], 2: [script.spin(0)]}, script.exit(9))
    ]
    ends = []
    for _ in range(3):
        server = await play_process(steps)
        await server.close_stdin()
        ends.append(await server.end())
    assert ends == ["status 1", "status 0", "status 9"]


async def test_a_long_script_travels_in_a_file(tmp_path: Path) -> None:
    steps: Steps = [script.stderr("x" * script.INLINE_LIMIT)]
    with pytest.raises(ValueError, match="give a path"):
        script.command(steps)
    command = script.command(steps, tmp_path / "script.json")
    assert command[0] == sys.executable
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert len(said) == script.INLINE_LIMIT


# --- the engine in virtual time, and the simulation ----------------------------------------------------------


def test_chunks_are_separate_writes_with_the_gap_between_them() -> None:
    server = twin.Simulation([script.chunks("abcdef", [1, 2], gap=0.5)])
    assert list(server.output(0.0)) == [b"a"]
    assert server.next_wakeup == 0.5
    assert list(server.output(0.4)) == []
    assert list(server.output(0.5)) == [b"bc"]
    assert list(server.output(1.0)) == [b"de"]
    assert list(server.output(1.5)) == [b"f"]
    assert server.next_wakeup is None


def test_a_flood_goes_on_only_as_fast_as_it_is_read() -> None:
    server = twin.Simulation([script.flood("x", None)])
    assert next(server.output(0.0)) == b"x" * engine.PIECE


def test_a_busy_main_program_looks_at_no_message() -> None:
    server = twin.Simulation([script.sleep(1.0)])
    server.feed(message(1, "ping"))
    assert list(server.output(0.0)) == []
    assert list(server.output(1.0)) == [b'{"jsonrpc":"2.0","id":1,"result":{}}\n']


def test_a_simulation_knows_how_its_server_ended() -> None:
    ends: list[tuple[Steps, str | None]] = [
        ([script.exit(3)], "status 3"),
        ([script.kill_self("SIGSEGV")], "SIGSEGV"),
        ([script.close(1)], "stdout"),
        ([script.stop_self()], None),
    ]
    for steps, end in ends:
        server = twin.Simulation(steps)
        assert list(server.output(0.0)) == []
        assert server.end == end


async def test_a_twin_blocks_in_a_write_that_nobody_reads() -> None:
    world = twin.World()
    player = TwinPlayer([])
    player.peer = twin.TwinPeer([raw("x" * 100), script.write_file("after", "done")], world)
    player.transport = ChannelTransport(player.peer, window=10)
    await player.transport.open(player)
    assert await player.reader.readexactly(50) == b"x" * 50
    assert world.files["after"] == b""
    assert await player.reader.readexactly(50) == b"x" * 50
    await player.transport.retire(PATIENCE)
    assert world.files["after"] == b"done"


async def test_the_ladder_ends_a_stopped_twin_by_sigterm() -> None:
    player = TwinPlayer([])
    player.transport = twin.transport([raw("ready\n"), script.stop_self()])
    await player.transport.open(player)
    await player.reader.readline()
    evidence = await player.transport.retire(Ladder(term_after=0.01, kill_after=60))
    assert (evidence.rung, evidence.signal) == ("term", "SIGTERM")


async def test_a_twin_that_reads_no_more_lets_the_window_fill_up() -> None:
    player = TwinPlayer([])
    player.transport = twin.transport([script.stop_reading(), raw("ready\n")], window=100)
    await player.transport.open(player)
    await player.reader.readline()
    assert player.transport.send(b" " * 150) == 100
    assert (await player.transport.retire(KILL_NOW)).signal == "SIGKILL"


@pytest.mark.parametrize(
    "entry", [e for e in ENTRIES if isinstance(e.acts[0], Stop) and not e.needs_process], ids=lambda e: e.id
)
async def test_the_twin_ends_on_the_rung_that_the_catalogue_says(entry: Entry) -> None:
    stop = entry.acts[0]
    assert isinstance(stop, Stop)
    player = TwinPlayer([])
    player.transport = twin.transport(entry.script)
    await player.transport.open(player)
    evidence = await player.transport.retire(Ladder.within(entry.settings["stop_timeout_ms"]))
    assert (evidence.rung, evidence.status, evidence.signal) == (stop.rung, stop.status, stop.signal)
