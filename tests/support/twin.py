"""The in-process twin of the scripted server: the same scripts, without an operating-system process.

:class:`TwinPeer` plays a script over a :class:`treadle.channel.ChannelTransport` in the event loop;
:class:`Simulation` plays it against anything synchronous, in virtual time. Neither can fork or burn a processor:
a script that does raises :class:`support.payload.ScriptError`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from support import actions
from support.actions import Action
from support.engine import Engine
from support.payload import ScriptError
from treadle.channel import ChannelTransport, Link, Peer

FATAL_SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGSEGV", "SIGABRT", "SIGUSR1", "SIGUSR2")
EXIT_BROKEN_PIPE = 1


class World:
    """What outlives one twin: the files that scripts write, and how often each counted start happened."""

    def __init__(self) -> None:
        self.files: defaultdict[str, bytes] = defaultdict(bytes)
        self.starts: defaultdict[str, int] = defaultdict(int)

    def fact(self, name: str, argument: str) -> Any:
        """The facts of a server that has no process; see :data:`support.payload.Facts`."""
        match name:
            case "start":
                self.starts[argument] += 1
                return self.starts[argument]
            case "environ":
                return {}
            case "argv":
                return ["twin"]
            case "cwd":
                return "/"
            case "fds":
                return {"0": "stdin", "1": "stdout", "2": "stderr"}
            case "pid":
                return None
            case _:
                raise ScriptError(f"no such fact: {name}")


class TwinPeer(Peer):
    """Plays ``script`` as the peer of a channel transport; ``world`` may be shared by several incarnations."""

    def __init__(self, script: Sequence[Any], world: World | None = None) -> None:
        self.world = world or World()
        self._engine = Engine(script, self.world.fact)
        self._loop = asyncio.get_running_loop()
        self._actions: Iterator[Action] = iter(())
        self._unsent = memoryview(b"")
        self._held = bytearray()
        self._eof = False
        self._reading = True
        self._ended = False
        self._stopped = False
        self._stdout_open = True
        self._traps: dict[str, bool] = {}
        self._timer: asyncio.TimerHandle | None = None

    def opened(self, link: Link) -> None:
        """The server starts."""
        super().opened(link)
        self._pump()

    def data_received(self, data: bytes) -> None:
        """What the client sent; a server that is blocked in a write or stopped looks at it later."""
        self._held += data
        self._pump()

    def eof_received(self) -> None:
        """Stdin ended."""
        self._eof = True
        self._pump()

    def writable(self) -> None:
        """There is room on stdout."""
        self._pump()

    def terminated(self) -> None:
        """SIGTERM came, and SIGCONT with it."""
        self._stopped = False
        self._signal("SIGTERM")

    def killed(self) -> None:
        """SIGKILL came: nothing helps against it."""
        self._die("SIGKILL")

    def _signal(self, name: str) -> None:
        if name == "SIGSTOP":
            self._stopped = True
        elif name in self._traps:
            if self._traps[name]:
                self._engine.signalled(name)
                self._loop.call_soon(self._pump)
        elif name in FATAL_SIGNALS:
            self._die(name)

    def _die(self, name: str) -> None:
        self._end()
        self.link.die(name)

    def _end(self) -> None:
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()

    def _pump(self) -> None:
        """Perform actions until there is none, the client does not read, or the server is no more."""
        while not self._ended and not self._stopped:
            if self._unsent and not self._write():
                break
            action = next(self._actions, None)
            if action is not None:
                self._perform(action)
            elif not self._more():
                self._rearm()
                break
        if not self._ended:
            self._throttle()

    def _more(self) -> bool:
        """Give the engine what came since it last looked; False when there is nothing to do before ``_rearm``."""
        if self._held and self._reading:
            self._engine.feed(bytes(self._held))
            self._held.clear()
        elif self._eof and self._reading:
            self._reading = False
            self._engine.feed_eof()
        self._actions = self._engine.advance(self._loop.time())
        first = next(self._actions, None)
        if first is None:
            return False
        self._perform(first)
        return True

    def _rearm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wakeup = self._engine.next_wakeup
        self._timer = None if wakeup is None else self._loop.call_at(wakeup, self._pump)

    def _throttle(self) -> None:
        """Let the pipe fill up while the server would not read it."""
        if self._unsent or self._stopped or not self._reading:
            self.link.pause_reading()
        else:
            self.link.resume_reading()

    def _write(self) -> bool:
        self._unsent = self._unsent[self.link.send(self._unsent) :]
        return not self._unsent

    def _perform(self, action: Action) -> None:
        match action:
            case actions.Write(1, data) if self._stdout_open:
                self._unsent = memoryview(data)
            case actions.Write(1, _):
                self._end()
                self.link.exit(EXIT_BROKEN_PIPE)
            case actions.Write(2, data):
                self.link.stderr(data)
            case actions.Close(fd):
                self._close(fd)
            case actions.Exit(code):
                self._end()
                self.link.exit(code)
            case actions.Signal(name):
                self._signal(name)
            case actions.Trap(name, handled):
                self._traps[name] = handled
            case actions.Append(path, data):
                self.world.files[path] += data
            case actions.StopReading():
                self._reading = False
            case _:
                raise ScriptError(f"a twin cannot do this: {action!r:.80}")

    def _close(self, fd: int) -> None:
        if fd == 0:
            self._reading = False
            self.link.close_stdin()
        elif fd == 1:
            self._stdout_open = False
            self.link.close_stdout()


def transport(script: Sequence[Any], world: World | None = None, *, window: int = 65536) -> ChannelTransport:
    """A transport to a twin that plays ``script``; needs a running loop."""
    return ChannelTransport(TwinPeer(script, world), window=window)


class Simulation:
    """Plays ``script`` without a loop: bytes in, events out, time as an argument.

    ``end`` is None while the server lives, then how it ended: ``"status N"`` or a signal's name, or ``"stdout"``
    when it only closed its stdout. A server that stopped itself, reads no more or hangs merely says nothing.
    """

    def __init__(self, script: Sequence[Any], world: World | None = None) -> None:
        self.world = world or World()
        self.stderr = b""
        self.end: str | None = None
        self._engine = Engine(script, self.world.fact)
        self._reading = True
        self._stopped = False

    def feed(self, data: bytes) -> None:
        """Bytes for the server's stdin; lost when it reads no more."""
        if self._reading and data:
            self._engine.feed(data)

    def feed_eof(self) -> None:
        """Close the server's stdin."""
        if self._reading:
            self._engine.feed_eof()

    @property
    def next_wakeup(self) -> float | None:
        """When the server does something by itself again; None: never."""
        return None if self.end or self._stopped else self._engine.next_wakeup

    def output(self, now: float) -> Iterator[bytes]:
        """Every chunk that the server writes to stdout at ``now``, one per write, lazily."""
        if self.end or self._stopped:
            return
        for action in self._engine.advance(now):
            match action:
                case actions.Write(1, data):
                    yield data
                case actions.Write(2, data):
                    self.stderr = (self.stderr + data)[-65536:]
                case actions.Exit(code):
                    self.end = f"status {code}"
                case actions.Signal("SIGSTOP"):
                    self._stopped = True
                case actions.Signal(name):
                    self.end = name
                case actions.Close(1):
                    self.end = "stdout"
                case actions.StopReading() | actions.Close(0):
                    self._reading = False
                case actions.Append(path, data):
                    self.world.files[path] += data
                case actions.Trap() | actions.Close():
                    pass
                case _:
                    raise ScriptError(f"a simulation cannot do this: {action!r:.80}")
            if self.end or self._stopped:
                return
