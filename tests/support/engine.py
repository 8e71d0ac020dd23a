"""The interpreter of server scripts: bytes and time in, actions out; no I/O of its own (standard library alone).

A script is a list of steps (``{"do": verb, ...}``, see :mod:`support.script` for the verbs). It is the *main
program* of a server and runs from its start. When it ends, the server serves: every request goes to the
handler that the script registered for it, else to the well-behaved default. So a script only says what is odd.

* ``expect`` waits for a matching message; messages that do not match are served meanwhile.
* Handlers run beside the main program and beside each other: a sleeping handler delays nobody else.
* While the main program sleeps, no message is looked at: the server is busy, like a real one.
* Who breaks the protocol towards the script (not JSON-RPC, ``params`` no object, an id used twice, an ``expect``
  whose pattern does not match) makes it say so on stderr and exit with :data:`VIOLATION`.

The process (:mod:`support.scripted_server`) and the in-process twin (:mod:`support.twin`) only perform actions.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import chain, count, repeat
from typing import Any, NamedTuple

from support import wellbehaved
from support.actions import Action, Append, Close, Exit, Fork, Signal, Spin, StopReading, Trap, Write
from support.payload import Facts, Message, Scope, ScriptError, mismatch, render, resolve

VIOLATION = 97
"""Exit status after the client broke the protocol; what it did is on stderr."""
BAD_SCRIPT = 98
"""Exit status after the script asked for what does not exist."""

PIECE = 65536
"""A flood writes pieces of this many bytes."""


class _Sleep(NamedTuple):
    seconds: float | None


class _Await(NamedTuple):
    method: str | None
    response: Any
    where: Any
    save: str | None

    def wants(self, message: Message) -> bool:
        if self.response is not None:
            return "method" not in message and message.get("id") == self.response
        return "method" in message and self.method in (None, message["method"])


Play = Iterator[Action | _Sleep | _Await]


class _Thread:
    """One running list of steps: runnable, asleep until ``wake`` (None: for good), or waiting for a message."""

    def __init__(self, play: Play, scope: Scope) -> None:
        self.play = play
        self.scope = scope
        self.asleep = False
        self.wake: float | None = None
        self.waits: _Await | None = None


class Engine:
    """Plays one script. The host feeds what happens and performs, in order, every action of :meth:`advance`.

    ``facts`` answers what only the host knows. A forked child does not serve (``serving=False``): it exits with
    0 when its script ends.
    """

    def __init__(self, script: Sequence[Any], facts: Facts, *, serving: bool = True) -> None:
        self._facts = facts
        self._serving = serving
        self._saved: dict[str, Message] = {}
        self._main = self._thread(script)
        self._main_ended = False
        self._runnable: deque[_Thread] = deque([self._main])
        self._blocked: list[_Thread] = []
        self._inbox: deque[Message] = deque()
        self._early: deque[Action] = deque()
        self._partial = bytearray()
        self._eof = False
        self._ids: set[Any] = set()
        self._seen: Counter[str] = Counter()
        self._record: str | None = None
        self._at: dict[tuple[str, int], list[Any]] = {}
        self._tools: dict[str, list[Any]] = {}
        self._methods: dict[str, list[Any]] = {}
        self._traps: dict[str, list[Any]] = {}
        self._on_eof: list[Any] = [{"do": "exit", "code": 0}]
        self._pages: list[list[Any]] = [wellbehaved.TOOLS]

    # --- what the host tells -------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Bytes that came on stdin, in any pieces."""
        self._partial += data
        if b"\n" not in data:
            return
        *lines, rest = bytes(self._partial).split(b"\n")
        self._partial = bytearray(rest)
        for line in lines:
            if self._record is not None:
                self._early.append(Append(self._record, line + b"\n"))
            try:
                self._inbox.append(self._checked(line))
            except ValueError as error:
                self._violation(f"{error}: {line[:200]!r}")

    def feed_eof(self) -> None:
        """Stdin ended. The script's ``on_eof`` runs once the messages before it were looked at."""
        if self._record is not None and self._partial:
            self._early.append(Append(self._record, bytes(self._partial)))
        self._eof = True

    def signalled(self, name: str) -> None:
        """A signal came for which a handler is trapped."""
        self._runnable.append(self._thread(self._traps[name]))

    # --- what the host does --------------------------------------------------------------------------------

    def advance(self, now: float) -> Iterator[Action]:
        """Every action that is due at ``now`` (seconds), lazily: nothing goes on before the last was performed.

        Exhaust it before the next call; after an :class:`Exit` it ends.
        """
        while True:
            while self._early:
                action = self._early.popleft()
                yield action
                if isinstance(action, Exit):
                    return
            self._wake(now)
            if self._runnable:
                for action in self._run(self._runnable.popleft(), now):
                    yield action
                    if isinstance(action, Exit):
                        return
            elif not self._listens():
                return
            elif self._inbox:
                self._dispatch(self._inbox.popleft())
            elif self._eof:
                self._eof = False
                self._runnable.append(self._thread(self._on_eof))
            else:
                return

    @property
    def next_wakeup(self) -> float | None:
        """When :meth:`advance` has something to do again if nothing is fed until then; None: never."""
        times = [thread.wake for thread in self._blocked if thread.asleep and thread.wake is not None]
        return min(times, default=None)

    @property
    def received(self) -> Counter[str]:
        """How many messages of each method have been looked at; ``""`` counts the responses."""
        return self._seen

    # --- threads -------------------------------------------------------------------------------------------

    def _thread(self, steps: Sequence[Any], message: Message | None = None) -> _Thread:
        scope = Scope(self._facts, self._saved, message)
        return _Thread(self._play(steps, scope), scope)

    def _listens(self) -> bool:
        return self._serving and (self._main_ended or self._main.waits is not None)

    def _wake(self, now: float) -> None:
        due = [
            thread for thread in self._blocked if thread.asleep and thread.wake is not None and thread.wake <= now
        ]
        for thread in sorted(due, key=lambda each: each.wake or 0.0):
            self._blocked.remove(thread)
            thread.asleep = False
            self._runnable.append(thread)

    def _run(self, thread: _Thread, now: float) -> Iterator[Action]:
        try:
            for step in thread.play:
                if isinstance(step, _Sleep):
                    thread.asleep = True
                    thread.wake = None if step.seconds is None else now + step.seconds
                    self._blocked.append(thread)
                    return
                if isinstance(step, _Await):
                    thread.waits = step
                    self._blocked.append(thread)
                    return
                yield step
        except (ScriptError, KeyError, TypeError) as error:
            yield Write(2, f"script: {error!r}\n".encode())
            yield Exit(BAD_SCRIPT)
            return
        self._main_ended = self._main_ended or thread is self._main
        if not self._serving and not self._runnable and not self._blocked:
            yield Exit(0)

    def _play(self, steps: Sequence[Any], scope: Scope) -> Play:
        for step in steps:
            if isinstance(step, list | tuple):
                yield from self._play(step, scope)
                continue
            verb = getattr(self, f"_do_{step['do']}", None)
            if verb is None:
                raise ScriptError(f"no such verb: {step['do']}")
            yield from verb(step, scope)

    # --- messages ------------------------------------------------------------------------------------------

    def _checked(self, line: bytes) -> Message:
        message = json.loads(line.decode())
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            raise ValueError("not a JSON-RPC 2.0 message")
        if "params" in message and not isinstance(message["params"], dict):
            raise ValueError("params is not an object")
        if "method" not in message:
            if "id" not in message or ("result" in message) is ("error" in message):
                raise ValueError("neither a request nor a response")
        elif "id" in message:
            if type(message["id"]) is not int or message["id"] in self._ids:
                raise ValueError("the id of a request must be an integer that was not used before")
            self._ids.add(message["id"])
        return message

    def _violation(self, text: str) -> None:
        self._early.extend((Write(2, f"violation: {text}\n".encode()), Exit(VIOLATION)))

    def _dispatch(self, message: Message) -> None:
        method = message.get("method", "")
        self._seen[method] += 1
        for thread in self._blocked:
            if thread.waits is not None and thread.waits.wants(message):
                self._resume(thread, thread.waits, message)
                return
        if steps := self._handler(method, message):
            self._runnable.append(self._thread(steps, message))

    def _resume(self, thread: _Thread, waits: _Await, message: Message) -> None:
        if found := mismatch(waits.where or {}, message):
            self._violation(f"expected {waits.method or waits.response!r}: {found}")
            return
        if waits.save is not None:
            self._saved[waits.save] = message
        thread.scope.message = message
        thread.waits = None
        self._blocked.remove(thread)
        self._runnable.append(thread)

    def _handler(self, method: str, message: Message) -> list[Any]:
        by_count = self._at.get((method, self._seen[method]))
        if by_count is not None:
            return by_count
        if method == "tools/call" and (name := message.get("params", {}).get("name")) in self._tools:
            return self._tools[name]
        if method in self._methods:
            return self._methods[method]
        return wellbehaved.answer(message, self._pages)

    # --- verbs: talking ------------------------------------------------------------------------------------

    def _do_expect(self, step: Any, scope: Scope) -> Play:
        yield _Await(step.get("method"), step.get("response"), step.get("where"), step.get("save"))

    def _do_reply(self, step: Any, scope: Scope) -> Play:
        yield Write(1, render([{"$json": step["message"]}, "\n"], scope))

    def _do_default(self, step: Any, scope: Scope) -> Play:
        message = scope.get(step.get("of"))
        yield from self._play(wellbehaved.answer(message, self._pages), Scope(self._facts, self._saved, message))

    def _do_raw(self, step: Any, scope: Scope) -> Play:
        yield Write(step.get("fd", 1), render(step["data"], scope))

    def _do_chunks(self, step: Any, scope: Scope) -> Play:
        data, sizes, gap = render(step["data"], scope), step["sizes"], step.get("gap", 0.0)
        start = 0
        for size in chain(sizes, repeat(sizes[-1])):
            yield Write(1, data[start : start + size])
            start += size
            if start >= len(data):
                return
            yield _Sleep(gap)

    def _do_flood(self, step: Any, scope: Scope) -> Play:
        unit, left = render(step["data"], scope), step["total"]
        piece = unit * max(1, PIECE // len(unit))
        while left is None or left > 0:
            data = piece if left is None else piece[:left]
            yield Write(step.get("fd", 1), data)
            left = None if left is None else left - len(data)

    # --- verbs: what the server is and does ----------------------------------------------------------------

    def _do_tools(self, step: Any, scope: Scope) -> Play:
        self._pages = step["pages"]
        yield from ()

    def _do_at(self, step: Any, scope: Scope) -> Play:
        self._at[step["method"], step["nth"]] = step["steps"]
        yield from ()

    def _do_per_tool(self, step: Any, scope: Scope) -> Play:
        self._tools[step["name"]] = step["steps"]
        yield from ()

    def _do_on(self, step: Any, scope: Scope) -> Play:
        self._methods[step["method"]] = step["steps"]
        yield from ()

    def _do_on_eof(self, step: Any, scope: Scope) -> Play:
        self._on_eof = step["steps"]
        yield from ()

    def _do_record(self, step: Any, scope: Scope) -> Play:
        self._record = step["path"]
        yield from ()

    def _do_write_file(self, step: Any, scope: Scope) -> Play:
        yield Append(step["path"], render(step["data"], scope))

    def _do_by_start(self, step: Any, scope: Scope) -> Play:
        nth = str(self._facts("start", step["path"]))
        yield from self._play(step["cases"].get(nth, step["otherwise"]), scope)

    def _do_repeat(self, step: Any, scope: Scope) -> Play:
        for _ in count() if step["times"] is None else range(step["times"]):
            yield from self._play(step["steps"], scope)

    # --- verbs: time, descriptors, the end -----------------------------------------------------------------

    def _do_sleep(self, step: Any, scope: Scope) -> Play:
        yield _Sleep(step["seconds"])

    def _do_spin(self, step: Any, scope: Scope) -> Play:
        yield Spin(step["seconds"])

    def _do_close(self, step: Any, scope: Scope) -> Play:
        yield Close(step["fd"])

    def _do_stop_reading(self, step: Any, scope: Scope) -> Play:
        yield StopReading()

    def _do_exit(self, step: Any, scope: Scope) -> Play:
        yield Exit(resolve(step["code"], scope))

    def _do_kill_self(self, step: Any, scope: Scope) -> Play:
        yield Signal(step["signal"])

    def _do_trap(self, step: Any, scope: Scope) -> Play:
        handled = step["steps"] is not None
        if handled:
            self._traps[step["signal"]] = step["steps"]
        yield Trap(step["signal"], handled)

    def _do_fork(self, step: Any, scope: Scope) -> Play:
        yield Fork(step["script"], step["setsid"], step["keep_fds"], step["double"])
