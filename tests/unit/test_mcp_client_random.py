"""Random traffic over a narrow channel, in virtual time: what a client says of a call is true."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support.household import Heard, config
from support.twin import TwinPeer
from support.virtual import VirtualLoop
from treadle.channel import ChannelTransport
from treadle.client import Client
from treadle.errors import CallFault, CallTimedOut, Cancelled, Stopped, Unavailable
from treadle.phases import Phase
from treadle.wire.messages import CallResult

step = st.one_of(
    st.tuples(st.just("call"), st.tuples(st.sampled_from([1, 50, 400, 3000]), st.sampled_from([20, 100, 500]))),
    st.tuples(st.just("cancel"), st.integers(0, 12)),
    st.tuples(st.just("pause"), st.booleans()),
    st.tuples(st.just("ask"), st.integers(1, 30)),
    st.tuples(st.just("turns"), st.integers(1, 4)),
    st.tuples(st.just("wait"), st.sampled_from([0.01, 0.06, 0.3])),
    st.tuples(st.just("end"), st.sampled_from(["exit", "noise", "close"])),
)


class Keeping(TwinPeer):
    """Serves well, and keeps all that it received."""

    def __init__(self) -> None:
        super().__init__(())
        self.received = bytearray()
        self.paused = False

    def data_received(self, data: bytes) -> None:
        self.received += data
        super().data_received(data)

    def _throttle(self) -> None:
        super()._throttle()
        if self.paused:
            self.link.pause_reading()

    def pause(self, paused: bool) -> None:
        self.paused = paused
        if not paused:
            self.link.resume_reading()
        else:
            self.link.pause_reading()


async def play(window: int, steps: list[tuple[str, Any]]) -> None:
    peer = Keeping()
    client = Client(config(), ChannelTransport(peer, window=window))
    await client.start()
    waiters: list[tuple[Heard, str]] = []
    for kind, what in steps:
        match kind:
            case "call":
                size, timeout_ms = what
                mark = f"mark-{len(waiters)}-"
                waiters.append((Heard(), mark))
                text = json.dumps({"text": mark + "x" * size}).encode()
                client.call(waiters[-1][0], "echo", text, timeout_ms=timeout_ms)
            case "cancel" if what < len(waiters):
                client.cancel(waiters[what][0])
            case "pause":
                peer.pause(what)
            case "ask" if client.phase is Phase.SERVING:
                peer.link.send(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n' * what)
            case "turns":
                for _ in range(what):
                    await asyncio.sleep(0)
            case "wait":
                await asyncio.sleep(what)
            case "end" if what == "close":
                client.close(Stopped("the test"))
            case "end" if what == "exit":
                peer.link.exit(1)
            case "end":
                client.data_received(b"noise\n")
    await asyncio.sleep(0.5)
    peer.pause(False)
    await asyncio.sleep(0.5)
    await client.shutdown(within=30)
    received = bytes(peer.received)
    for waiter, mark in waiters:
        assert len(waiter.outcomes) == 1
        outcome = waiter.outcome
        if isinstance(outcome, CallResult):
            assert outcome.to_value()["content"][0]["text"].startswith(mark)
            continue
        assert isinstance(outcome, CallTimedOut | Cancelled | Unavailable)
        assert isinstance(outcome, CallFault)
        if outcome.outcome == "not_sent":
            assert mark.encode() not in received
    assert client.in_flight == 0
    lines = received.split(b"\n")[:-1]
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in lines), "what was begun is whole"
    ids = [message["id"] for message in map(json.loads, lines) if "method" in message and "id" in message]
    assert len(ids) == len(set(ids)), "nothing is sent twice"


@settings(max_examples=200)
@given(st.sampled_from([120, 500, 5000, 65536]), st.lists(step, max_size=40))
def test_what_a_client_says_of_a_call_is_true(window: int, steps: list[tuple[str, Any]]) -> None:
    loop = VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(play(window, steps))
    assert not loop.complaints
