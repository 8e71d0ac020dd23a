"""Random commands and deaths against one supervisor, in virtual time: its promises hold through all of them."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support import script as s
from support.household import Asked
from support.twin import TwinPeer
from support.virtual import VirtualLoop
from support.watched import Watched, watched
from treadle.errors import Fault, Unavailable
from treadle.phases import Phase
from treadle.states import State

TOOLS = s.script(s.per_tool("stuck"), s.per_tool("die", s.exit(1)), s.per_tool("noise", s.line("noise")))
KINDS = {
    "works": TOOLS,
    "slow to start": s.script(TOOLS, s.on("initialize", s.sleep(0.3), s.default())),
    "slow to end": s.script(TOOLS, s.on_eof(s.sleep(0.3), s.exit(0))),
    "ignores eof": s.script(TOOLS, s.on_eof()),
    "deaf": s.script(TOOLS, s.on_eof(), s.ignore()),
    "exits 0": s.script(TOOLS, s.expect("tools/list"), s.default(), s.sleep(0.2), s.exit(0)),
    "fails": s.script(s.exit(1)),
    "fails late": s.script(s.expect("initialize"), s.sleep(0.2), s.exit(2)),
    "never ready": s.script(s.on("initialize")),
    "not made": OSError(13, "Permission denied"),
}
COMMANDS = ("start", "stop", "restart")
TOOL_NAMES = ("echo", "stuck", "die", "noise", "\ud800")

step = st.one_of(
    st.tuples(st.just("command"), st.sampled_from(COMMANDS)),
    st.tuples(st.just("call"), st.sampled_from(TOOL_NAMES)),
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("end"), st.sampled_from(["exit", "signal", "stdout", "noise"])),
    st.tuples(st.just("turns"), st.integers(1, 5)),
    st.tuples(st.just("wait"), st.sampled_from([0.05, 0.25, 1.0])),
)
keys = st.fixed_dictionaries(
    {
        "restart": st.sampled_from(["never", "on-failure", "always"]),
        "lazy": st.booleans(),
        "restart_limit": st.integers(0, 3),
        "restart_backoff_ms": st.sampled_from([1, 200]),
        "max_in_flight": st.integers(1, 3),
        "queue": st.integers(0, 2),
        "queue_timeout_ms": st.just(150),
        "handshake_timeout_ms": st.just(500),
        "stop_timeout_ms": st.just(200),
    }
)


class Play:
    """One run of a script of commands."""

    def __init__(self, house: Watched) -> None:
        self.house = house
        self.calls: list[Asked] = []
        self.commands: list[asyncio.Task[Any]] = []

    async def take(self, kind: str, what: Any) -> None:
        one = self.house.one
        match kind:
            case "call":
                self.calls.append(Asked(tool=what, timeout_ms=400))
                one.submit(self.calls[-1])
            case "cancel" if what < len(self.calls):
                one.cancel(self.calls[what])
            case "command":
                self.commands.append(asyncio.ensure_future(self.command(what)))
            case "end":
                self.end(what)
            case "turns":
                for _ in range(what):
                    await asyncio.sleep(0)
            case "wait":
                await asyncio.sleep(what)
        self.check()

    async def command(self, what: str) -> None:
        if what != "start":
            row = await self.house.stop()
            assert row.confirmed
        if what != "stop":
            try:
                await self.house.one.start()
            except Unavailable:
                assert self.house.one.state is State.REFUSED

    def end(self, how: str) -> None:
        """The server that runs, if any, ends by itself."""
        for client in self.house.clients:
            peer = client._transport._peer
            if client.phase is not Phase.SERVING or not isinstance(peer, TwinPeer) or not hasattr(peer, "link"):
                continue
            match how:
                case "exit":
                    peer.link.exit(3)
                case "signal":
                    peer.link.die("SIGSEGV")
                case "stdout":
                    peer.link.close_stdout()
                case "noise":
                    peer.link.send(b"noise\n")

    def check(self) -> None:
        """One incarnation at a time: what ran before is proven gone."""
        running = [c for c in self.house.clients if c.phase in (Phase.SERVING, Phase.CLOSING)]
        assert len(running) <= 1
        assert self.house.one.in_flight <= self.house.one.config.max_in_flight  # type: ignore[union-attr]


async def play(kinds: list[str], server: dict[str, Any], steps: list[tuple[str, Any]]) -> None:
    async with watched(*(KINDS[kind] for kind in kinds), **server) as house:
        run = Play(house)
        for kind, what in steps:
            await run.take(kind, what)
        await asyncio.wait_for(asyncio.gather(*run.commands), 60)
        await asyncio.sleep(2)
        assert [len(call.outcomes) for call in run.calls] == [1] * len(run.calls)
        task = house.one._task
        assert task is None or not task.done(), "the supervisor's own task never fails"
        assert house.one.in_flight == 0
        assert house.one.state in (
            State.PREPARED,
            State.READY,
            State.STARTING,
            State.CLOSING,
            State.RETIRED,
            State.BACKOFF,
            State.PARKED,
            State.REFUSED,
        )
        counted = house.one.row()["calls"]
        assert sum(counted.values()) == len(run.calls)
        assert counted["ok"] == sum(not isinstance(call.outcome, Fault) for call in run.calls)


@settings(max_examples=150)
@given(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4), keys, st.lists(step, max_size=30))
def test_every_call_is_delivered_once_and_every_command_ends(
    kinds: list[str], server: dict[str, Any], steps: list[tuple[str, Any]]
) -> None:
    loop = VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(play(kinds, server, steps))
    assert not loop.complaints
