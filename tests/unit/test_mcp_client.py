"""The client of one server over the in-process channel, in virtual time (client page, section 4)."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import re
from typing import Any

import pytest

from support import script as s
from support.household import HELLO, Deaf, Heard, client, client_of, config, serving
from support.twin import TwinPeer, World
from support.virtual import now, turns, virtual
from treadle.channel import ChannelTransport, Link, Peer
from treadle.client import PHASES, UNSENT_LIMIT, Client, Phase
from treadle.config import ServerConfig
from treadle.errors import (
    BadMessage,
    CallFault,
    CallTimedOut,
    Cancelled,
    ChannelClosed,
    Fault,
    HandshakeFailed,
    InvalidArgument,
    LineTooLong,
    Malformed,
    NotUtf8,
    Overloaded,
    ResultMalformed,
    ServerError,
    StartFault,
    StartTimedOut,
    Stopped,
    ToolsNotDeclared,
    TooManyPages,
    TransportFailed,
    Unavailable,
    VersionUnsupported,
    explain,
)
from treadle.transport import KILL_NOW, NO_RESOURCE
from treadle.wire.messages import CallResult

NEVER = s.script(s.on("tools/call"))
"""A server that answers no call."""


def sent(one: Client, timeout_ms: int = 1000, arguments: bytes = HELLO, tool: str = "echo") -> Heard:
    waiter = Heard()
    one.call(waiter, tool, arguments, timeout_ms=timeout_ms)
    return waiter


def text_of(result: object) -> Any:
    assert isinstance(result, CallResult)
    return result.to_value()["content"][0]["text"]


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

DOES_NOT_READ = s.script(
    s.expect("notifications/initialized"), s.expect("tools/list"), s.default(), s.stop_reading()
)


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
    waiters = [sent(one, 1000, megabyte) for _ in range(UNSENT_LIMIT // len(megabyte) + 2)]
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
    quoted = one.reason.partition("): ")[2]
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


# --- errors of a start, and its budgets ----------------------------------------------------------------------


def test_the_budgets_are_5_10_30_and_60_seconds() -> None:
    server = ServerConfig(name="x", command=("x",))
    budgets = (server.open_timeout_ms, server.handshake_timeout_ms, server.list_timeout_ms, server.call_timeout_ms)
    assert budgets == (5_000, 10_000, 30_000, 60_000)


async def failed(one: Client) -> StartFault:
    with pytest.raises(StartFault) as caught:
        await one.start()
    assert one.phase in (Phase.CLOSING, Phase.RETIRED), "a failed start closes"
    assert one.reason is not None
    await one.retired()
    return caught.value


@virtual
async def test_opening_has_its_budget_and_nothing_is_left_of_it() -> None:
    async def opening() -> None:
        await asyncio.sleep(3600)

    one = client_of(Peer(), opening, open_timeout_ms=1500)
    assert await failed(one) == StartTimedOut("opening the transport", 1500, "open_timeout_ms")
    assert now() == pytest.approx(1.5, abs=0.002)
    assert one.evidence == NO_RESOURCE


@virtual
async def test_the_handshake_has_its_budget() -> None:
    one = client(s.script(s.on("initialize")), handshake_timeout_ms=1500)
    assert await failed(one) == StartTimedOut("initialize", 1500, "handshake_timeout_ms")
    assert one.evidence is not None
    assert one.evidence.kind == "exited"


@virtual
async def test_the_listing_has_one_budget_for_all_its_pages() -> None:
    page = s.result({"tools": [], "nextCursor": {"$text_of": s.ID}})
    one = client(s.script(s.on("tools/list", s.sleep(0.4), page)), list_timeout_ms=1500)
    assert await failed(one) == StartTimedOut("tools/list", 1500, "list_timeout_ms")
    assert now() == pytest.approx(1.5, abs=0.002)


@virtual
async def test_a_transport_that_cannot_be_opened_fails_the_start_and_leaves_nothing() -> None:
    async def opening() -> None:
        raise TransportFailed("no such program")

    one = client_of(Peer(), opening)
    assert await failed(one) == TransportFailed("no such program")
    assert one.evidence == NO_RESOURCE


@virtual
async def test_an_error_of_the_system_while_opening_is_a_failed_start() -> None:
    async def opening() -> None:
        raise OSError(24, "Too many open files")

    one = client_of(Peer(), opening)
    assert await failed(one) == TransportFailed("the transport could not be opened: Too many open files")
    assert one.evidence == NO_RESOURCE


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        (s.script(s.on("initialize", s.error(-1, "no licence"))), HandshakeFailed, "no licence"),
        (
            s.script(s.on("initialize", s.result({"protocolVersion": "1999", "capabilities": {}}))),
            VersionUnsupported,
            "1999",
        ),
        (
            s.script(s.on("initialize", s.result({"protocolVersion": "2025-06-18", "capabilities": {}}))),
            ToolsNotDeclared,
            "tools",
        ),
        (s.script(s.expect("initialize"), s.stderr("no disk\n"), s.exit(3)), HandshakeFailed, "status 3.*no disk"),
        (s.script(s.on("tools/list", s.error(-1, "no list"))), HandshakeFailed, "tools/list failed.*no list"),
        (s.script(s.on("tools/list", s.exit(3))), HandshakeFailed, "tools/list failed.*status 3"),
        (s.script(s.tools({"name": "x"})), HandshakeFailed, r"tools\[0\]\.inputSchema"),
    ],
)
@virtual
async def test_a_start_fails_with_a_typed_fault(script: s.Script, kind: type[StartFault], words: str) -> None:
    fault = await failed(client(script))
    assert type(fault) is kind
    assert re.search(words, explain(fault)), explain(fault)


@virtual
async def test_an_unsupported_version_carries_both_sides() -> None:
    fault = await failed(
        client(s.script(s.on("initialize", s.result({"protocolVersion": "1999", "capabilities": {"tools": {}}}))))
    )
    assert fault == VersionUnsupported("1999", ("2025-06-18", "2025-03-26", "2024-11-05"))


@virtual
async def test_a_start_that_is_cancelled_closes_and_retires() -> None:
    one = client(s.script(s.on("initialize")))
    task = asyncio.ensure_future(one.start())
    await turns()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await one.retired()).kind == "exited"


@pytest.mark.parametrize("phase", ["opening", "initialize", "tools/list"])
@virtual
async def test_a_stop_in_the_middle_of_a_start_ends_the_start_and_gives_evidence(phase: str) -> None:
    gate = asyncio.Event()

    async def opening() -> None:
        if phase == "opening":
            await gate.wait()

    one = client_of(TwinPeer(s.script(s.on(phase))), opening)
    task = asyncio.ensure_future(one.start())
    await turns()
    evidence = await one.shutdown(within=10)
    gate.set()
    with pytest.raises(StartFault):
        await task
    assert evidence.kind == ("no_resource" if phase == "opening" else "exited")
    assert isinstance(one.fault, Stopped)
    assert one.phase is Phase.RETIRED


@virtual
async def test_calls_during_the_handshake_are_refused() -> None:
    one = client(s.script(s.on("initialize")))
    task = asyncio.ensure_future(one.start())
    await turns()
    fault = sent(one).fault
    assert isinstance(fault, Unavailable)
    assert fault.outcome == "not_sent"
    one.close(Stopped(), KILL_NOW)
    with pytest.raises(StartFault):
        await task


@virtual
async def test_a_late_answer_to_initialize_is_harmless() -> None:
    script = s.script(s.on("initialize", s.sleep(0.2), s.default()), s.on_eof(s.sleep(1), s.exit(0)))
    one = client(script, handshake_timeout_ms=100)
    assert isinstance(await failed(one), StartTimedOut)
    assert one.phase is Phase.RETIRED


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
