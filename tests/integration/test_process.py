"""The byte channel of a child process: starting, sending, receiving, ending (hostile behaviours of group H)."""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.receivers import ENVIRONMENT, Recorder, Workshop, alive, gone, workshop
from treadle.errors import ChannelClosed, TransportFailed
from treadle.pipes import LEAST_LINES, MOST_LINES, OutputPipe, largest_read, lines_a_turn
from treadle.process import ChildProcess, Launch
from treadle.transport import KILL_NOW, Ladder

LADDER = Ladder.within(1000)


LOOPS = ("uvloop", "asyncio")


@pytest.fixture
async def shop() -> AsyncIterator[Workshop]:
    async with workshop() as made:
        yield made


# --- starting ------------------------------------------------------------------------------------------------


async def test_bytes_go_in_and_come_out(shop: Workshop) -> None:
    child, receiver = await shop.run("cat")
    assert child.send(b"hello\n") == 6
    assert await receiver.line() == "hello"


async def test_the_child_leads_its_own_session_and_group(shop: Workshop) -> None:
    child, receiver = await shop.python("import os; print(os.getpid(), os.getsid(0), os.getpgrp(), flush=True)")
    assert await receiver.line() == f"{child.pid} {child.pid} {child.pid}"


async def test_the_child_holds_no_descriptor_but_its_three_pipes(shop: Workshop) -> None:
    await shop.run("cat")
    _, receiver = await shop.run("/bin/ls", "/proc/self/fd")
    await receiver.until_closed()
    assert bytes(receiver.data).split() == [b"0", b"1", b"2", b"3"]  # 3 is the folder that ls reads


async def test_the_environment_is_what_the_launch_says_and_the_mark(shop: Workshop) -> None:
    _, receiver = await shop.run("env", env={"PATH": "/usr/bin:/bin", "ONLY": "this"}, marker="the-mark")
    await receiver.until_closed()
    assert set(bytes(receiver.data).decode().split()) == {
        "PATH=/usr/bin:/bin",
        "ONLY=this",
        "TREADLE_SERVER_MARK=the-mark",
    }


async def test_the_parent_death_signal_is_set(shop: Workshop) -> None:
    script = """
import ctypes
number = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(number))
print(number.value, flush=True)
"""
    _, receiver = await shop.python(script)
    assert await receiver.line() == str(int(signal.SIGKILL))


async def test_a_relative_command_with_a_slash_is_relative_to_the_working_directory(
    shop: Workshop, tmp_path: Path
) -> None:
    script = tmp_path / "serve"
    script.write_text("#!/bin/sh\npwd\n")
    script.chmod(0o755)
    _, receiver = await shop.run("./serve", cwd=str(tmp_path))
    assert await receiver.line() == str(tmp_path)


async def test_opening_costs_no_descriptor_after_the_end(shop: Workshop) -> None:
    child, _ = await shop.run("true")
    await child.retire(KILL_NOW)
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(5):
        child, _ = await shop.run("cat")
        await child.retire(KILL_NOW)
    assert set(os.listdir("/proc/self/fd")) == before


async def test_a_failed_start_leaves_nothing_and_its_retirement_says_no_resource(shop: Workshop) -> None:
    before = set(os.listdir("/proc/self/fd"))
    launch = Launch(server="x", argv=("no-such-command",), env=ENVIRONMENT, marker="m")
    child = ChildProcess(launch, custody=shop.custody, redact=str)
    with pytest.raises(TransportFailed):
        await child.open(Recorder())
    assert (await child.retire(LADDER)).kind == "no_resource"
    assert set(os.listdir("/proc/self/fd")) == before


# --- receiving and sending -----------------------------------------------------------------------------------


async def test_a_flood_is_received_while_more_is_written_than_the_pipe_takes(shop: Workshop) -> None:
    script = """
import sys, threading
def flood():
    sys.stdout.buffer.write(b"x" * (8 << 20)); sys.stdout.flush()
thread = threading.Thread(target=flood); thread.start(); thread.join()
total = 0
while total < 2 << 20:
    total += len(sys.stdin.buffer.read1(65536))
print("all", flush=True)
"""
    child, receiver = await shop.python(script)
    left = memoryview(b"y" * (2 << 20))
    while left:
        taken = child.send(left)
        left = left[taken:]
        if left:
            seen = receiver.writables
            await receiver.until(lambda: receiver.writables > seen)  # noqa: B023
    await receiver.until(lambda: receiver.data.endswith(b"all\n"))
    assert len(receiver.data) == (8 << 20) + 4


@pytest.mark.parametrize(
    ("line", "sizes"),
    [(b"x" * (480 << 10), [32, 64, 128, 256]), (b"x\n" * (80 << 10), [32] * 5)],
    ids=["long", "short"],
)
async def test_a_long_line_is_read_in_growing_chunks_and_short_ones_in_small_ones(
    line: bytes, sizes: list[int]
) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1 << 20)
    assert os.write(writing, line) == len(line)
    os.close(writing)
    os.set_blocking(reading, False)
    chunks: list[bytes] = []
    ended = asyncio.get_running_loop().create_future()
    OutputPipe(asyncio.get_running_loop(), reading, chunks.append, ended.set_result)
    assert await asyncio.wait_for(ended, 10) is None
    assert [len(chunk) >> 10 for chunk in chunks] == sizes


async def test_while_others_wait_for_an_answer_a_long_line_is_read_in_small_chunks() -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1 << 20)
    assert os.write(writing, b"x" * (480 << 10)) == 480 << 10
    os.close(writing)
    os.set_blocking(reading, False)
    sizes: list[int] = []
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    # Somebody begins to wait once two chunks were read.
    largest = lambda: largest_read(len(sizes) >= 2)  # noqa: E731
    OutputPipe(loop, reading, lambda data: sizes.append(len(data) >> 10), ended.set_result, largest=largest)
    assert await asyncio.wait_for(ended, 10) is None
    assert sizes == [32, 64, *[32] * 12]


async def test_a_server_that_never_reads_takes_what_the_pipe_holds_and_blocks_nobody(shop: Workshop) -> None:
    child, receiver = await shop.run("sleep", "60")
    data = memoryview(b"z" * (4 << 20))
    taken = child.send(data)
    assert 0 < taken < len(data)
    assert child.send(data[taken:]) == 0
    other, heard = await shop.run("cat")
    other.send(b"ping\n")
    assert await heard.line() == "ping"
    assert receiver.writables == 0
    assert (await child.retire(KILL_NOW)).signal == "SIGKILL"


async def test_writable_comes_once_for_one_blocked_write(shop: Workshop) -> None:
    child, receiver = await shop.shell("read -r go; exec cat >/dev/null")
    data = memoryview(b"\n" + b"z" * (2 << 20))
    taken = child.send(data)
    await receiver.until(lambda: receiver.writables > 0)
    assert taken < len(data)
    assert receiver.writables == 1


async def test_a_server_that_closed_its_stdin_ends_the_channel(shop: Workshop) -> None:
    child, receiver = await shop.shell("exec <&-; echo closed; exec sleep 60")
    assert await receiver.line() == "closed"
    assert child.send(b"lost\n") == 0
    assert receiver.reasons == []  # never from inside send
    assert await receiver.until_closed() == "the server closed its stdin and still runs"
    assert child.send(b"more\n") == 0
    assert child.pid is not None


async def test_a_server_that_closed_its_stdout_ends_the_channel(shop: Workshop) -> None:
    child, receiver = await shop.shell("echo last; exec sleep 60 >&-")
    assert await receiver.until_closed() == "the server closed its stdout and still runs"
    assert receiver.data == b"last\n"
    assert child.pid is not None


# --- the end, and what it says -------------------------------------------------------------------------------


async def test_the_exit_status_and_the_last_stderr_lines_are_in_the_reason(shop: Workshop) -> None:
    _, receiver = await shop.shell("echo starting >&2; echo no token >&2; exit 3")
    reason = await receiver.until_closed()
    assert reason == "the server exited with status 3; stderr ended: starting | no token"
    assert isinstance(receiver.reasons[0], ChannelClosed)
    assert shop.stderr == ["starting", "no token"]


async def test_the_name_of_the_signal_is_in_the_reason(shop: Workshop) -> None:
    _, receiver = await shop.shell("kill -9 $$")
    assert await receiver.until_closed() == "the server was killed by SIGKILL"


async def test_an_unfinished_last_stderr_line_explains_too(shop: Workshop) -> None:
    _, receiver = await shop.shell("printf panic >&2; exit 1")
    assert (await receiver.until_closed()).endswith("stderr ended: panic")


async def test_secrets_are_redacted_in_the_reason_the_tail_and_the_log(shop: Workshop) -> None:
    child, receiver = await shop.shell(
        "echo 'bad key hunter22' >&2; exit 1", redact=lambda text: text.replace("hunter22", "[redacted]")
    )
    reason = await receiver.until_closed()
    for text in (reason, child.stderr_tail(), *shop.stderr):
        assert "hunter22" not in text
        assert "bad key [redacted]" in text


async def test_what_was_written_before_the_exit_is_delivered_before_closed(shop: Workshop) -> None:
    _, receiver = await shop.python("import os, sys; os.write(1, b'x' * 200000); os._exit(0)")
    await receiver.until_closed()
    assert len(receiver.data) == 200000


async def test_a_grandchild_that_holds_stdout_open_does_not_delay_the_end(shop: Workshop) -> None:
    child, receiver = await shop.shell("sleep 60 & echo $!; exit 5")
    async with asyncio.timeout(2):
        assert await receiver.until_closed() == "the server exited with status 5"
    evidence = await child.retire(LADDER)
    assert (evidence.status, evidence.rung, evidence.drained, evidence.stragglers) == (5, "itself", True, 1)
    assert not alive(int(receiver.data))


async def test_an_idle_exit_is_noticed_and_reaped_without_anybody_asking(shop: Workshop) -> None:
    child, receiver = await shop.run("cat")
    pid = child.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await receiver.until_closed()
    await gone(pid)
    evidence = await child.retire(LADDER)
    assert (evidence.kind, evidence.signal, evidence.rung) == ("exited", "SIGKILL", "itself")
    assert child.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_status_taken_by_somebody_else_is_unknown_never_success(shop: Workshop) -> None:
    child, receiver = await shop.run("cat")
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED)
    assert "taken by somebody else" in await receiver.until_closed()
    evidence = await child.retire(LADDER)
    assert evidence.kind == "unknown"
    assert not evidence.confirmed


# --- stderr --------------------------------------------------------------------------------------------------


async def test_a_stderr_flood_never_blocks_the_server(shop: Workshop) -> None:
    script = "import os\nfor _ in range(64): os.write(2, b'e' * 65536)\nos.write(1, b'served\\n'); os.read(0, 1)"
    child, receiver = await shop.python(script)
    assert await receiver.line() == "served"
    await child.retire(LADDER)
    assert child.stderr_bytes == 64 * 65536
    assert len(child.stderr_tail()) <= 65536


async def test_stderr_is_never_part_of_stdout(shop: Workshop) -> None:
    _, receiver = await shop.shell("echo err >&2; echo out")
    await receiver.until_closed()
    assert receiver.data == b"out\n"


# --- why a start fails ---------------------------------------------------------------------------------------


async def refusal(shop: Workshop, *argv: str, **launch: object) -> str:
    with pytest.raises(TransportFailed) as caught:
        await shop.run(*argv, **launch)  # type: ignore[arg-type]
    return str(caught.value)


async def test_an_unknown_command_is_refused_with_the_path_that_was_searched(shop: Workshop) -> None:
    reason = await refusal(shop, "no-such-server", env={"PATH": "/nowhere:/usr/bin"})
    assert reason.startswith("command no-such-server was not found on PATH: install it, ")
    assert reason.endswith("PATH is /nowhere:/usr/bin")


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("~/bin/x", "command ~/bin/x does not exist: ~ is only expanded by a shell; write the path in full"),
        ("$HOME/x", "command $HOME/x does not exist: $HOME is only expanded by a shell; write the path in full"),
        ("npx -y x", 'command npx -y x was not found on PATH: it is one word; write command = ["npx", "-y", "x"]'),
        ("npx @a/b", 'command npx @a/b does not exist: it is one word; write command = ["npx", "@a/b"]'),
    ],
)
async def test_a_command_that_was_written_for_a_shell_is_told_so(shop: Workshop, word: str, reason: str) -> None:
    assert await refusal(shop, word) == reason


async def test_the_servers_own_path_finds_the_command(shop: Workshop, tmp_path: Path) -> None:
    tool = tmp_path / "only-here"
    tool.write_text("#!/bin/sh\necho found\n")
    tool.chmod(0o755)
    _, receiver = await shop.run("only-here", env={"PATH": str(tmp_path)})
    assert await receiver.line() == "found"


@pytest.mark.parametrize(
    ("mode", "content", "words"),
    [
        (0o644, "#!/bin/sh\n", "is not executable"),
        (0o755, "#!/no/such/interpreter -x\n", "its interpreter /no/such/interpreter does not exist"),
        (0o755, "#!/bin/sh\r\necho\r\n", "Windows line end"),
        (0o755, "echo run by a shell\n", "is a text without a #! line: no shell is asked to run it"),
        (0o755, "", "is an empty file: no shell is asked to run it"),
        (0o755, "\ufeff#!/bin/sh\n", "its #! stands behind a byte-order mark"),
        (0o755, "#!/usr/bin/env no-such-runtime\n", "runs through env: command no-such-runtime was not found"),
    ],
)
async def test_a_script_that_cannot_run_is_refused_with_the_reason(
    shop: Workshop, tmp_path: Path, mode: int, content: str, words: str
) -> None:
    script = tmp_path / "serve"
    script.write_text(content)
    script.chmod(mode)
    assert words in await refusal(shop, str(script))


async def test_an_interpreter_that_is_no_program_is_refused(shop: Workshop, tmp_path: Path) -> None:
    interpreter, script = tmp_path / "interpreter", tmp_path / "serve"
    interpreter.write_text("echo run by a shell\n")
    script.write_text(f"#!{interpreter}\n")
    for file in (interpreter, script):
        file.chmod(0o755)
    assert f"command {interpreter} is a text without a #! line" in await refusal(shop, str(script))


async def test_directories_and_special_files_are_no_commands(shop: Workshop, tmp_path: Path) -> None:
    assert "is a directory" in await refusal(shop, str(tmp_path))
    os.mkfifo(tmp_path / "fifo")
    assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode)
    assert "is not a regular file" in await refusal(shop, str(tmp_path / "fifo"))


async def test_a_missing_working_directory_is_named(shop: Workshop, tmp_path: Path) -> None:
    assert await refusal(shop, "cat", cwd=str(tmp_path / "gone")) == (
        f"working directory {tmp_path}/gone does not exist: make it, or correct cwd"
    )
    assert "is not a directory" in await refusal(shop, "cat", cwd=sys.executable)


async def test_arguments_beyond_the_kernels_limit_are_refused(shop: Workshop) -> None:
    assert "too long for the kernel" in await refusal(shop, "cat", "x" * 200_000)


async def test_a_null_character_in_an_argument_is_refused(shop: Workshop) -> None:
    assert "null byte" in await refusal(shop, "cat", "a\0b")


async def test_a_transport_opens_once(shop: Workshop) -> None:
    child, _ = await shop.run("cat")
    with pytest.raises(TransportFailed):
        await child.open(Recorder())


@pytest.mark.parametrize(("in_flight", "lines"), [(0, 8), (8, 8), (17, 17), (64, 64), (1000, 64)])
def test_a_turn_takes_as_many_lines_as_may_be_answers(in_flight: int, lines: int) -> None:
    assert lines_a_turn(in_flight) == lines
    assert LEAST_LINES <= lines <= MOST_LINES


async def test_a_flood_of_lines_is_delivered_some_lines_a_turn_and_whole() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"x\n" * 1000 + b"the rest")
    os.close(writing)
    os.set_blocking(reading, False)
    loop = asyncio.get_running_loop()
    chunks: list[bytes] = []
    turns: list[int] = []

    def turn() -> None:
        turns.append(len(chunks))
        if not ended.done():
            loop.call_soon(turn)

    ended = loop.create_future()
    OutputPipe(loop, reading, chunks.append, ended.set_result, lines=lambda: LEAST_LINES)
    loop.call_soon(turn)
    assert await asyncio.wait_for(ended, 10) is None
    assert b"".join(chunks) == b"x\n" * 1000 + b"the rest"
    assert max(chunk.count(b"\n") for chunk in chunks) == LEAST_LINES
    # Between any two portions the loop had a turn for others.
    assert max(later - earlier for earlier, later in itertools.pairwise(turns)) == 1


async def test_a_drain_delivers_what_is_held_and_what_waits_before_it_calls_back() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"x\n" * 500)
    os.set_blocking(reading, False)
    loop = asyncio.get_running_loop()
    chunks: list[bytes] = []
    drained = loop.create_future()

    def first(chunk: bytes) -> None:
        if not chunks:
            os.write(writing, b"late\n")
            loop.call_soon(pipe.drain, lambda: drained.set_result(b"".join(chunks)))
        chunks.append(chunk)

    pipe = OutputPipe(loop, reading, first, lambda _: None, lines=lambda: LEAST_LINES)
    assert await asyncio.wait_for(drained, 10) == b"x\n" * 500 + b"late\n"
    pipe.close()
    os.close(writing)
