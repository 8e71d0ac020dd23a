"""The client of one server over the in-process channel, in virtual time (client page, section 4)."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from support import script as s
from support.household import (
    DOES_NOT_READ,
    HELLO,
    NEVER,
    Heard,
    client,
    client_of,
    config,
    sent,
    serving,
    text_of,
)
from support.twin import TwinPeer, World
from support.virtual import now, turns, virtual
from treadle.channel import ChannelTransport, Peer
from treadle.client import Client
from treadle.errors import (
    CallFault,
    CallTimedOut,
    Fault,
    InvalidArgument,
    Overloaded,
    Stopped,
    TransportFailed,
    Unavailable,
)
from treadle.phases import PHASES, Phase
from treadle.transport import NO_RESOURCE
from treadle.unsent import LIMIT
from treadle.wire.messages import CallResult

# --- phases --------------------------------------------------------------------------------------------------


def test_phases_lead_from_prepared_over_serving_and_closing_to_retired_and_never_back() -> None:
    order = [Phase.PREPARED, Phase.SERVING, Phase.CLOSING, Phase.RETIRED]
    assert set(PHASES) == set(Phase)
    for phase, following in PHASES.items():
        assert all(order.index(phase) < order.index(after) for after in following)
    assert PHASES[Phase.SERVING] == {Phase.CLOSING}, "what was opened is retired on evidence alone"


@virtual
async def test_a_life_passes_through_every_phase() -> None:
    one = client()
    assert one.phase is Phase.PREPARED
    await one.start()
    assert one.phase.value == "serving"
    one.close(Stopped())
    assert one.phase.value == "closing"
    await one.retired()
    assert one.phase.value == "retired"


@pytest.mark.parametrize("phase", ["serving", "closing", "retired"])
@virtual
async def test_a_client_is_started_once(phase: str) -> None:
    one = await serving()
    if phase != "serving":
        one.close(Stopped("the test"))
    if phase == "retired":
        await one.retired()
    with pytest.raises(TransportFailed, match=r"stopped by the test|already serving"):
        await one.start()
    assert one.phase.value == phase


@virtual
async def test_a_start_opens_shakes_hands_and_lists() -> None:
    one = await serving(s.script(s.tools(s.tool("a"), s.tool("b"))))
    assert one.info is not None
    assert one.info.server_name == "scripted"
    assert [tool.name for tool in one.tools] == ["a", "b"]


# --- prepare before anything runs ----------------------------------------------------------------------------


@virtual
async def test_a_prepared_client_has_opened_nothing_and_its_evidence_says_so() -> None:
    opened: list[bool] = []

    async def opening() -> None:
        opened.append(True)

    one = client_of(Peer(), opening)
    await turns()
    assert await one.shutdown(within=1) == NO_RESOURCE
    assert not opened
    assert one.phase is Phase.RETIRED
    with pytest.raises(TransportFailed):
        await one.start()
    assert not opened


@virtual
async def test_a_prepared_client_refuses_calls() -> None:
    fault = sent(client()).fault
    assert isinstance(fault, Unavailable)
    assert (fault.reason, fault.outcome) == ("server odd is prepared", "not_sent")


# --- calls ---------------------------------------------------------------------------------------------------


@virtual
async def test_each_request_carries_its_own_deadline() -> None:
    one = await serving(NEVER)
    waiters = {ms: sent(one, ms) for ms in (700, 100, 400)}
    await asyncio.sleep(1)
    for ms, waiter in waiters.items():
        assert waiter.fault == CallTimedOut(ms, "unknown")
        assert waiter.at == pytest.approx(ms / 1000, abs=0.002)
    assert one.in_flight == 0
    assert one.phase is Phase.SERVING


@virtual
async def test_a_late_answer_is_dropped_and_the_next_call_is_answered_with_its_own() -> None:
    one = await serving()
    late = sent(one, 100, b'{"ms":300,"text":"late"}', "wait")
    await asyncio.sleep(0.2)
    assert isinstance(late.fault, CallTimedOut)
    assert text_of(await one.call_tool("echo", b'{"text":"mine"}')) == "mine"
    await asyncio.sleep(0.2)
    assert one.counters["dropped"] == 1
    assert len(late.outcomes) == 1


@virtual
async def test_answers_may_come_in_any_order() -> None:
    one = await serving()
    times = (300, 100, 200)
    calls = [one.call_tool("wait", json.dumps({"ms": ms, "text": str(ms)}).encode()) for ms in times]
    assert [text_of(result) for result in await asyncio.gather(*calls)] == ["300", "100", "200"]


@virtual
async def test_calls_of_one_loop_turn_leave_in_one_write() -> None:
    chunks: list[bytes] = []

    class Counting(TwinPeer):
        def data_received(self, data: bytes) -> None:
            chunks.append(data)
            super().data_received(data)

    one = Client(config(), ChannelTransport(Counting(())))
    await one.start()
    chunks.clear()
    waiters = [sent(one) for _ in range(10)]
    await turns()
    assert [chunk.count(b"\n") for chunk in chunks] == [10]
    assert all(text_of(waiter.outcome) == "hello" for waiter in waiters)


@virtual
async def test_no_caller_waits_past_its_deadline_though_the_task_that_started_the_client_is_gone() -> None:
    one = client(NEVER)
    starter = asyncio.ensure_future(one.start())
    await starter
    waiter = sent(one, 500)
    await asyncio.sleep(1)
    assert waiter.at == pytest.approx(0.5, abs=0.002)


@virtual
async def test_no_caller_waits_for_a_retirement_that_does_not_come() -> None:
    class Obstinate(TwinPeer):
        def killed(self) -> None:
            pass

    one = Client(
        config(stop_timeout_ms=100),
        ChannelTransport(Obstinate(s.script(s.on("tools/call"), s.on_eof(), s.ignore()))),
    )
    await one.start()
    waiter = sent(one, 60_000)
    await turns()
    one.close(Stopped("the test"))
    assert isinstance(waiter.fault, Unavailable)
    await asyncio.sleep(10)
    assert one.phase is Phase.CLOSING
    assert isinstance(sent(one).fault, Unavailable)


@virtual
async def test_arguments_that_name_no_valid_tool_cost_that_call_and_nothing_is_sent() -> None:
    one = await serving()
    fault = sent(one, tool="\ud800").fault
    assert isinstance(fault, InvalidArgument)
    assert fault.outcome == "not_sent"
    assert text_of(await one.call_tool("echo", HELLO)) == "hello"


@virtual
async def test_one_delivery_that_goes_wrong_takes_no_other_with_it(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Heard):
        def settle(self, outcome: CallResult | Fault) -> None:
            super().settle(outcome)
            raise ZeroDivisionError

    one = await serving(
        s.script([s.expect("tools/call", save=str(n)) for n in range(2)], s.default("0"), s.default("1"))
    )
    broken, other = Broken(), Heard()
    with caplog.at_level(logging.CRITICAL + 1):
        one.call(broken, "echo", HELLO, timeout_ms=1000)
        one.call(other, "echo", HELLO, timeout_ms=1000)
        await turns()
    assert len(broken.outcomes) == 1
    assert text_of(other.outcome) == "hello"


# --- a write that blocks -------------------------------------------------------------------------------------


@virtual
async def test_a_write_that_blocks_is_covered_by_the_deadline_and_says_what_may_have_been_sent() -> None:
    one = await serving(DOES_NOT_READ, window=1000)
    begun = sent(one, 200, b'{"text":"%s"}' % (b"x" * 5000))
    waiting = sent(one, 300)
    await asyncio.sleep(1)
    assert begun.fault == CallTimedOut(200, "unknown")
    assert waiting.fault == CallTimedOut(300, "not_sent")
    assert waiting.at == pytest.approx(0.3, abs=0.002)


@virtual
async def test_a_call_that_was_never_begun_to_be_written_is_withdrawn_and_never_sent() -> None:
    world = World()
    peer = TwinPeer(s.script(s.record("seen")), world)
    one = Client(config(), ChannelTransport(peer, window=1000))
    await one.start()
    peer.link.pause_reading()
    begun = sent(one, 60_000, b'{"text":"%s"}' % (b"x" * 5000))
    withdrawn = sent(one, 300, b'{"text":"withdrawn"}')
    await asyncio.sleep(0.5)
    peer.link.resume_reading()
    await turns(100)
    assert text_of(begun.outcome) == "x" * 5000
    assert withdrawn.fault == CallTimedOut(300, "not_sent")
    lines = world.files["seen"].decode().splitlines()
    assert not [line for line in lines if "withdrawn" in line]
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in lines), "the line that was begun is whole"


@virtual
async def test_a_server_that_does_not_read_is_sent_no_more_than_the_limit() -> None:
    one = await serving(DOES_NOT_READ, window=1000)
    megabyte = b'{"text":"%s"}' % (b"x" * (8 * 1024 * 1024))
    waiters = [sent(one, 1000, megabyte) for _ in range(LIMIT // len(megabyte) + 2)]
    await turns()
    refused = sent(one)
    assert isinstance(refused.fault, Overloaded)
    assert (refused.fault.key, refused.fault.outcome) == ("unsent_bytes", "not_sent")
    await asyncio.sleep(2)
    assert {waiter.fault.outcome for waiter in waiters if isinstance(waiter.fault, CallFault)} == {
        "unknown",
        "not_sent",
    }


@virtual
async def test_a_write_that_blocks_delays_no_other_server() -> None:
    stuck, fine = await serving(DOES_NOT_READ, window=1000), await serving()
    waiter = sent(stuck, 60_000, b'{"text":"%s"}' % (b"x" * 5000))
    assert text_of(await fine.call_tool("echo", HELLO)) == "hello"
    assert now() == 0
    assert not waiter.outcomes


@virtual
async def test_a_server_that_asks_and_does_not_read_does_not_make_memory_grow() -> None:
    ask = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    one = await serving(s.script(DOES_NOT_READ, s.flood(ask, 20_000 * len(ask))), window=1000)
    await turns(100)
    await asyncio.sleep(1)
    await turns(3000)
    assert one.counters["dropped"] > 10_000
    assert one.phase is Phase.SERVING
