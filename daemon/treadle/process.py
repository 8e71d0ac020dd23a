"""A server as a child process: its byte channel, its exit witness and its retirement (floor 2).

The rules are those of the MCP client page, section 5: a request to stop is no evidence that anything stopped.
The only evidence is the wait status, taken by this parent through the child's pidfd, and there is exactly one
reaper. While the leader is unreaped its pid and its process group are reserved by the kernel, so everything
that signals by number happens before the reap.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from treadle.errors import ChannelClosed, TransportFailed
from treadle.pipes import FIRST_READ, InputPipe, OutputPipe, largest_read, lines_a_turn
from treadle.procfs import kill as kill_exactly
from treadle.spawn import Launch, Spawned, check, command_line, spawn
from treadle.stderr import StderrTail
from treadle.transport import NO_RESOURCE, Evidence, Ladder, Receiver, Rung
from treadle.tree import Custody, Usage

__all__ = ["ChildProcess", "Launch"]

EXIT_GRACE_S: Final = 0.1
"""How long the end of the channel waits for the exit status that explains it."""
DESCENDANT_GRACE_S: Final = 1.0
"""How long descendants may take to end after SIGTERM once the server itself is gone (never past the ladder)."""
TRACER_S: Final = 0.05
"""How long a process that traces the ended server may take to fetch its status, before it is killed for that."""
FIRST_POLL_S: Final = 0.001
SLOWEST_POLL_S: Final = 0.05


class ChildProcess:
    """The :class:`treadle.transport.Transport` of one incarnation of a server.

    ``custody`` is the daemon's, shared by all; ``redact`` removes the server's secrets from a text;
    ``on_stderr`` gets complete, redacted, rate-limited lines for the log. Belongs to the loop that ran
    :meth:`open`; spawn from the main thread, or the parent-death signal is left out.
    """

    def __init__(
        self,
        launch: Launch,
        *,
        custody: Custody,
        redact: Callable[[str], str],
        on_stderr: Callable[[str], None] | None = None,
    ) -> None:
        self._launch = launch
        self._custody = custody
        self._on_stderr = on_stderr
        self._tail = StderrTail(redact)
        self._popen: subprocess.Popen[bytes] | None = None
        self._exit: os.waitid_result | None = None
        self._gone = False  # the pidfd told the end, whether or not a status could be read
        self._reaped = False
        self._closed = False
        self._last_words = False
        self._closing: asyncio.TimerHandle | None = None
        self._term_at = self._kill_at = float("inf")
        self._asked_at: float | None = None
        self._ending: asyncio.Task[Evidence] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it is owned and not yet reaped, else None."""
        return None if self._popen is None or self._reaped else self._popen.pid

    @property
    def stderr_bytes(self) -> int:
        """How many bytes of stderr came so far."""
        return self._tail.bytes

    def stderr_tail(self, max_bytes: int = 65536) -> str:
        """The newest captured stderr text, sanitised and redacted."""
        return self._tail.tail(max_bytes)

    def usage(self) -> Usage | None:
        """What the server and its descendants use now; None when it does not run. Reads /proc: not per call."""
        return None if self.pid is None else self._custody.usage(self._incarnation)

    async def open(self, receiver: Receiver) -> None:
        """Spawn the server. Raises TransportFailed, and then nothing was left behind. At most once."""
        if self._popen is not None or self._asked_at is not None:
            raise TransportFailed("this transport was already used")
        program = check(self._launch)
        self._incarnation = self._custody.admit(self._launch.server, self._launch.marker, self._launch.limits)
        try:
            command = command_line(
                program, self._launch, self._incarnation.cgroup_procs, self._custody.rlimits(self._launch.limits)
            )
            spawned = spawn(command, self._launch)
        except BaseException:
            self._custody.release(self._incarnation, drained=True)
            raise
        self._popen = spawned.popen
        self._custody.spawned(self._incarnation, spawned.popen.pid)
        self._attach(receiver, spawned)

    def _attach(self, receiver: Receiver, spawned: Spawned) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self._receiver = receiver
        self._changed = asyncio.Event()
        self._pidfd = spawned.pidfd
        self._stderr = OutputPipe(
            loop, spawned.stderr, self._stderr_data, self._stderr_end, largest=lambda: FIRST_READ
        )
        self._stdout = OutputPipe(
            loop,
            spawned.stdout,
            receiver.data_received,
            self._stdout_end,
            largest=lambda: largest_read(receiver.others_wait),
            lines=lambda: lines_a_turn(receiver.in_flight),
        )
        self._stdin = InputPipe(loop, spawned.stdin, self._stdin_writable, self._stdin_broken)
        loop.add_reader(spawned.pidfd, self._exited)

    def send(self, data: bytes | memoryview) -> int:
        """Write what goes without blocking; see :class:`treadle.transport.Transport`."""
        return 0 if self._popen is None or self._closed else self._stdin.write(data)

    async def retire(self, ladder: Ladder) -> Evidence:
        """Stop the server by the ladder and wait for the evidence, however long the kernel takes.

        Any number of calls share one ladder; a later one only makes it steeper. Cancelling a caller changes
        nothing. The ladder: end of file on stdin; SIGTERM to the process group (a wrapper such as ``sh -c``
        or npm would not pass it on) with SIGCONT for a stopped one; SIGKILL. Afterwards the descendants.
        """
        if self._popen is None:
            self._asked_at = 0.0
            return NO_RESOURCE
        now = self._loop.time()
        if self._asked_at is None:
            self._asked_at = now
        self._term_at = min(self._term_at, now + ladder.term_after)
        self._kill_at = min(self._kill_at, now + ladder.kill_after)
        self._changed.set()
        return await asyncio.shield(self._begin_ending())

    # --- the channel ---------------------------------------------------------------------------------------

    def _stdout_end(self, error: OSError | None) -> None:
        self._end_channel(
            "the server closed its stdout and still runs"
            if error is None
            else f"reading from the server failed: {error.strerror}"
        )

    def _stdin_writable(self) -> None:
        if not self._closed:
            self._receiver.writable()

    def _stdin_broken(self, error: OSError) -> None:
        self._end_channel(
            "the server closed its stdin and still runs"
            if isinstance(error, BrokenPipeError)
            else f"writing to the server failed: {error.strerror}"
        )

    def _stderr_data(self, data: bytes) -> None:
        self._log(self._tail.feed(data, self._loop.time()))

    def _stderr_end(self, _error: OSError | None) -> None:
        self._log(self._tail.finish(self._loop.time()))

    def _log(self, lines: list[str]) -> None:
        if self._on_stderr is not None:
            for line in lines:
                self._on_stderr(line)

    def _end_channel(self, reason: str) -> None:
        """Close it with ``reason``, unless the exit status comes shortly and says more."""
        if not self._closed and self._closing is None:
            self._closing = self._loop.call_later(EXIT_GRACE_S, self._close, reason)

    def _close(self, reason: str) -> None:
        if self._closed or self._last_words:
            return
        if self._closing is not None:
            self._closing.cancel()
        self._last_words = True
        # The lines that came before the end are delivered before it is told.
        self._stdout.drain(lambda: self._tell_closed(reason))

    def _tell_closed(self, reason: str) -> None:
        self._stderr.drain()
        self._closed = True
        # The pipe is still emptied, so that a server that flushes before it ends can.
        self._stdout.on_data = _ignore
        if self._gone:
            self._stdout.close()
        last = self._tail.last_lines()
        self._receiver.closed(ChannelClosed(f"{reason}; stderr ended: {last}" if last else reason))

    # --- the exit witness ----------------------------------------------------------------------------------

    def _exited(self) -> None:
        """The pidfd became readable: look at the status without reaping, then let the channel and the tree end."""
        self._loop.remove_reader(self._pidfd)
        self._take_exit(patient=True)

    def _take_exit(self, *, patient: bool) -> None:
        try:
            self._exit = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:  # someone else took the status: the numbers are no longer reserved
            self._custody.leader_reaped(self._incarnation)
        else:
            if self._exit is None:  # it has ended, but its tracer is told first and did not listen yet
                if not patient:
                    self._custody.end_tracer(self._incarnation)
                self._loop.call_later(TRACER_S, lambda: self._take_exit(patient=False))
                return
        self._gone = True
        self._changed.set()
        self._begin_ending()
        self._stdin.close()
        self._stderr.drain()
        self._log(self._tail.finish(self._loop.time()))
        self._close(_describe(self._exit))
        if self._closed:
            self._stdout.close()

    # --- the retirement ------------------------------------------------------------------------------------

    def _begin_ending(self) -> asyncio.Task[Evidence]:
        if self._ending is None:
            self._ending = self._loop.create_task(self._end(), name=f"retire {self._launch.server}")
        return self._ending

    async def _end(self) -> Evidence:
        began = self._loop.time() if self._asked_at is None else self._asked_at
        rung = await self._climb()
        if rung in ("eof", "term"):
            await self._let_descendants_end(group_told=rung == "term")
        drain = await self._custody.drain(self._incarnation)
        self._reap()
        self._stderr.drain()
        self._stderr.close()
        self._custody.release(self._incarnation, drained=drain.drained)
        code = _return_code(self._exit)
        return Evidence(
            kind="unknown" if self._exit is None else "exited",
            status=code if self._exit is not None and code >= 0 else None,
            signal=_signal_name(-code) if code < 0 else None,
            rung=rung,
            elapsed_ms=round((self._loop.time() - began) * 1000),
            drained=drain.drained,
            by=drain.by,
            stragglers=drain.stragglers,
        )

    async def _climb(self) -> Rung:
        """Wait for the exit, going up the ladder; returns the step after which it came."""
        if self._gone:
            return "itself"
        self._custody.snapshot(self._incarnation)
        self._stdin.close()
        if await self._exit_before(lambda: min(self._term_at, self._kill_at)):
            return "eof"
        if self._loop.time() < self._kill_at:
            self._custody.snapshot(self._incarnation)
            self._signal_group(signal.SIGTERM)
            self._signal_group(signal.SIGCONT)
            if await self._exit_before(lambda: self._kill_at):
                return "term"
        self._custody.snapshot(self._incarnation)
        # The leader alone: the drain then finds, counts and kills the rest of the tree.
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        await self._exit_before(lambda: float("inf"))
        return "kill"

    async def _exit_before(self, deadline: Callable[[], float]) -> bool:
        """Whether the server ended before ``deadline()``, which a hurrying call may bring forward meanwhile."""
        while not self._gone:
            left = deadline() - self._loop.time()
            if left <= 0:
                return False
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if left == float("inf") else left):
                    await self._changed.wait()
        return True

    async def _let_descendants_end(self, *, group_told: bool) -> None:
        """A real server behind a wrapper that ended first gets SIGTERM once and a moment to end by itself."""
        end = self._loop.time() + DESCENDANT_GRACE_S
        pause = FIRST_POLL_S
        told: set[tuple[int, int]] = set()
        while members := self._custody.members(self._incarnation):
            left = min(end, self._kill_at) - self._loop.time()
            if left <= 0:
                return
            for process in members:
                if process.key not in told and not (group_told and process.pgrp == self._incarnation.pid):
                    kill_exactly(process, signal.SIGTERM)
                told.add(process.key)
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 2, SLOWEST_POLL_S)

    def _signal_group(self, number: signal.Signals) -> None:
        # Sound while the leader is unreaped: its group id cannot belong to anybody else.
        assert self._popen is not None
        if self._incarnation.reserved:
            with suppress(OSError):
                os.killpg(self._popen.pid, number)

    def _reap(self) -> None:
        assert self._popen is not None
        with suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
        os.close(self._pidfd)
        self._custody.leader_reaped(self._incarnation)
        self._reaped = True
        # Popen must never look for this pid itself: its number may be somebody else's from now on.
        self._popen.returncode = _return_code(self._exit)


def _ignore(_: bytes) -> None:
    """Nobody hears this any more."""


def _return_code(exit_: os.waitid_result | None) -> int:
    """As subprocess has it: the status, or the negative number of the signal; an unknown one is no success."""
    if exit_ is None:
        return 255
    return exit_.si_status if exit_.si_code == os.CLD_EXITED else -exit_.si_status


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRT{number}"  # a real-time signal has no name of its own


def _describe(exit_: os.waitid_result | None) -> str:
    if exit_ is None:
        return "the server ended; its exit status was taken by somebody else"
    code = _return_code(exit_)
    return (
        f"the server exited with status {code}" if code >= 0 else f"the server was killed by {_signal_name(-code)}"
    )
