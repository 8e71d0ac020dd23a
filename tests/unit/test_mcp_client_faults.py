"""How a channel dies, what a call ends in, and what a caller may withdraw (client page, section 4)."""

from __future__ import annotations

import asyncio
import itertools
import re

import pytest

from support import script as s
from support.household import (
    DOES_NOT_READ,
    HELLO,
    NEVER,
    Deaf,
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
from treadle.channel import ChannelTransport, Link
from treadle.client import Client
from treadle.errors import (
    BAD_LINE_ADVICE,
    BadMessage,
    CallFault,
    CallTimedOut,
    Cancelled,
    ChannelClosed,
    Fault,
    HandshakeFailed,
    LineTooLong,
    Malformed,
    NotUtf8,
    ResultMalformed,
    ServerError,
    StartTimedOut,
    Stopped,
    TooManyPages,
    Unavailable,
    explain,
)
from treadle.phases import Phase
from treadle.wire.messages import CallResult

# --- channel-fatal -------------------------------------------------------------------------------------------


def deaths() -> dict[str, tuple[s.Steps, type[Fault], str]]:
    said = s.stderr("first\nthe disk is full\n")
    return {
        "closed transport": ([said, s.close(1)], ChannelClosed, "closed its stdout.*the disk is full"),
        "exit status": ([said, s.exit(3)], ChannelClosed, "status 3.*the disk is full"),
        "signal name": ([said, s.kill_self("SIGSEGV")], ChannelClosed, "SIGSEGV.*the disk is full"),
        "not UTF-8": ([said, s.line(b"\xff")], NotUtf8, "not UTF-8.*the disk is full"),
        "framing": ([said, s.flood("x", None)], LineTooLong, "line too long.*the disk is full"),
        "malformed": ([said, s.line("what\x07now")], Malformed, r"not JSON.*what.*the disk is full"),
        "not JSON-RPC": ([said, s.line('{"status":200}')], BadMessage, "no JSON-RPC.*status.*the disk is full"),
    }


@pytest.mark.parametrize("death", deaths())
@virtual
async def test_a_dead_channel_settles_every_call_at_once_with_one_specific_reason(death: str) -> None:
    steps, kind, words = deaths()[death]
    one = await serving(s.script(s.on("tools/call"), s.at(3, steps)))
    waiters = [sent(one, 60_000) for _ in range(3)]
    await one.died
    assert now() == 0
    reasons = {explain(waiter.fault) for waiter in waiters}
    assert reasons == {one.reason}
    assert all(isinstance(waiter.fault, Unavailable) and waiter.fault.outcome == "unknown" for waiter in waiters)
    assert type(one.fault) is kind
    assert re.search(words, one.reason or ""), one.reason
    later = sent(one)
    assert isinstance(later.fault, Unavailable)
    assert (later.fault.reason, later.fault.outcome) == (one.reason, "not_sent")
    assert one.in_flight == 0


@virtual
async def test_a_failed_write_ends_the_channel() -> None:
    one = await serving(s.script(s.expect("tools/list"), s.default(), s.close(0)))
    await turns()
    waiter = sent(one, 60_000)
    await one.died
    assert "a write to the server failed" in explain(waiter.fault)


@virtual
async def test_an_explicit_stop_ends_the_channel() -> None:
    one = await serving(NEVER)
    waiter = sent(one, 60_000)
    await turns()
    one.close(Stopped("the test"))
    assert waiter.fault == Unavailable("stopped by the test", "unknown")
    assert isinstance(one.fault, Stopped)


@virtual
async def test_the_first_reason_is_latched() -> None:
    one = await serving(s.script(s.at(1, s.line("noise"), s.exit(3))))
    sent(one)
    await one.died
    first = one.reason
    assert first is not None
    one.close(Stopped("too late"))
    one.closed(ChannelClosed("too late"))
    await one.retired()
    one.close(Stopped("far too late"))
    assert one.reason == first
    assert "noise" in first


@virtual
async def test_a_quoted_line_is_sanitised_and_cut_at_200_characters() -> None:
    one = await serving(s.script(s.at(1, s.line("\x1b[31mred\u202e" + "é" * 5000))))
    sent(one)
    await one.died
    assert one.reason is not None
    quoted = one.reason.partition("): ")[2].partition(BAD_LINE_ADVICE)[0]
    assert 150 < len(quoted) <= 210
    assert "\x1b" not in quoted
    assert "\u202e" not in quoted
    assert "red" in quoted


@virtual
async def test_bad_lines_drop_keeps_the_channel_and_counts() -> None:
    one = await serving(s.script(s.at(1, s.line("noise"), s.line("[]"), s.default())), bad_lines="drop")
    assert text_of(await one.call_tool("echo", HELLO)) == "hello"
    assert one.counters["bad_lines"] == 2


@virtual
async def test_a_call_that_was_not_written_when_the_channel_died_was_not_sent() -> None:
    one = await serving(NEVER)
    waiter = sent(one)
    one.close(Stopped("the test"))
    assert isinstance(waiter.fault, Unavailable)
    assert waiter.fault.outcome == "not_sent"


@virtual
async def test_what_a_dead_server_still_says_is_not_looked_at() -> None:
    one = await serving(NEVER, stop_timeout_ms=100)
    waiter = sent(one)
    await turns()
    one.close(Stopped("the test"))
    one.data_received(b'{"jsonrpc":"2.0","id":3,"result":{"content":[]}}\n')
    await one.retired()
    assert len(waiter.outcomes) == 1


@virtual
async def test_a_waiter_that_calls_again_when_it_hears_of_the_death_is_refused() -> None:
    one = await serving(NEVER)
    again: list[Heard] = []

    class Eager(Heard):
        def settle(self, outcome: CallResult | Fault) -> None:
            super().settle(outcome)
            again.append(sent(one))

    waiter = Eager()
    one.call(waiter, "echo", HELLO, timeout_ms=1000)
    await turns()
    one.close(Stopped("the test"))
    assert waiter.fault == Unavailable("stopped by the test", "unknown")
    assert again[0].fault == Unavailable("stopped by the test", "not_sent")


@virtual
async def test_secrets_are_redacted_from_the_reason() -> None:
    script = s.script(s.stderr("key sk-12345678 refused\n"), s.line("my key is sk-12345678"))
    one = Client(
        config(), ChannelTransport(TwinPeer(script)), redact=lambda text: text.replace("sk-12345678", "[redacted]")
    )
    with pytest.raises(HandshakeFailed) as caught:
        await one.start()
    assert "sk-12345678" not in f"{one.reason} {explain(caught.value)}"
    assert "[redacted]" in (one.reason or "")


# --- errors of a call ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (s.error(-32602, "no", data=[1]), ServerError(-32602, "no", b"[1]")),
        (s.result({"content": 1}), ResultMalformed("tools/call result: content must be an array, found a number")),
    ],
)
@virtual
async def test_an_answer_that_is_no_result_is_a_fault_of_that_call(steps: s.Step, expected: CallFault) -> None:
    one = await serving(s.script(s.at(1, steps)))
    waiter = sent(one)
    await turns()
    assert type(waiter.fault) is type(expected)
    assert isinstance(waiter.fault, CallFault)
    assert waiter.fault.outcome == "answered"
    if isinstance(expected, ServerError):
        assert waiter.fault == expected
    assert text_of(await one.call_tool("echo", HELLO)) == "hello"


@virtual
async def test_a_later_listing_is_fresh_and_its_faults_cost_that_listing_alone() -> None:
    endless = s.result({"tools": [], "nextCursor": {"$text_of": s.ID}})
    nth = [s.at(2, s.tools(s.tool("new")), s.default(), method="tools/list")]
    one = await serving(
        s.script(s.tools(s.tool("old")), nth, [s.at(n, endless, method="tools/list") for n in range(3, 67)])
    )
    assert [tool.name for tool in one.tools] == ["old"]
    assert [tool.name for tool in await one.list_tools()] == ["new"]
    with pytest.raises(TooManyPages, match="64 pages"):
        await one.list_tools()
    assert one.phase is Phase.SERVING


@virtual
async def test_a_listing_of_a_dead_client_is_refused_with_its_reason() -> None:
    one = await serving()
    one.close(Stopped("the test"))
    with pytest.raises(Unavailable, match="stopped by the test"):
        await one.list_tools()


@virtual
async def test_a_listing_in_flight_hears_of_the_death() -> None:
    one = await serving(s.script(s.at(2, s.exit(4), method="tools/list")))
    with pytest.raises(Unavailable, match="status 4"):
        await one.list_tools()


# --- cancellation --------------------------------------------------------------------------------------------


@virtual
async def test_a_cancelled_call_is_settled_now_and_its_late_answer_is_dropped() -> None:
    one = await serving()
    waiter = sent(one, 1000, b'{"ms":100,"text":"late"}', "wait")
    await turns()
    assert one.cancel(waiter)
    assert waiter.fault == Cancelled("unknown")
    assert one.in_flight == 0
    await asyncio.sleep(0.2)
    assert len(waiter.outcomes) == 1
    assert one.counters["dropped"] == 1


@virtual
async def test_a_call_cancelled_before_it_was_written_is_never_sent() -> None:
    world = World()
    one = Client(config(), ChannelTransport(TwinPeer(s.script(s.record("seen")), world)))
    await one.start()
    waiter = sent(one)
    assert one.cancel(waiter)
    assert waiter.fault == Cancelled("not_sent")
    await turns()
    assert b"tools/call" not in world.files["seen"]


@virtual
async def test_a_call_cancelled_in_the_middle_of_its_line_may_have_been_sent() -> None:
    one = await serving(DOES_NOT_READ, window=1000)
    begun, waiting = sent(one, 1000, b'{"text":"%s"}' % (b"x" * 5000)), sent(one)
    await turns()
    assert one.cancel(waiting)
    assert one.cancel(begun)
    assert waiting.fault == Cancelled("not_sent")
    assert begun.fault == Cancelled("unknown")


@virtual
async def test_cancelling_what_is_settled_does_nothing() -> None:
    one = await serving()
    waiter = sent(one)
    await turns()
    assert not one.cancel(waiter)
    assert not one.cancel(sent(client()))
    assert len(waiter.outcomes) == 1


@virtual
async def test_cancelling_the_task_that_awaits_a_call_withdraws_it() -> None:
    one = await serving(NEVER)
    task = asyncio.ensure_future(one.call_tool("echo"))
    await turns()
    assert one.in_flight == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert one.in_flight == 0


@virtual
async def test_a_call_that_names_no_time_has_the_servers_own_budget() -> None:
    one = await serving(NEVER, call_timeout_ms=2500)
    with pytest.raises(CallTimedOut, match="2500 ms"):
        await one.call_tool("echo")
    assert now() == pytest.approx(2.5, abs=0.002)


# --- what a server cannot do ---------------------------------------------------------------------------------


@virtual
async def test_any_bytes_at_any_cut_settle_every_call_and_raise_nothing() -> None:
    good = b'{"jsonrpc":"2.0","id":3,"result":{"content":[]}}\n'
    for noise, cut in itertools.product(
        (b"\n", b"{}\n", b"\x00\n", b"\xff", b'{"jsonrpc":"2.0"', b"\r\n"), (1, 7, 1000)
    ):
        one = await serving(NEVER)
        waiter = sent(one, 100)
        await turns()
        stream = noise + good
        for start in range(0, len(stream), cut):
            one.data_received(stream[start : start + cut])
        await asyncio.sleep(1)
        assert len(waiter.outcomes) == 1
        await one.shutdown(within=10)
        assert one.in_flight == 0


@virtual
async def test_a_link_that_ends_twice_is_told_once() -> None:
    class Twice(TwinPeer):
        def opened(self, link: Link) -> None:
            super().opened(link)
            link.exit(1)
            link.exit(2)

    one = Client(config(), ChannelTransport(Twice(())))
    with pytest.raises(HandshakeFailed, match="status 1"):
        await one.start()
    assert (await one.retired()).status == 1


@virtual
async def test_a_deaf_peer_never_keeps_a_start_past_its_budget() -> None:
    one = client_of(Deaf(), handshake_timeout_ms=100, stop_timeout_ms=100)
    with pytest.raises(StartTimedOut):
        await one.start()
    assert now() == pytest.approx(0.1, abs=0.002)
