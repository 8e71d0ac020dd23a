"""Calls through a supervisor, in virtual time: admission, queue, deadlines, exactly one delivery."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from support import script as s
from support.household import Asked
from support.virtual import now, turns, virtual
from support.watched import FAILS, WORKS, Watched, watched
from treadle.call import Call
from treadle.client import Client
from treadle.errors import CallTimedOut, Cancelled, Fault, Overloaded, ServerError, Unavailable
from treadle.states import State
from treadle.wire.messages import CallResult

NEVER = s.script(s.on("tools/call"))


def submitted(house: Watched, **keys: Any) -> Asked:
    call = Asked(**keys)
    house.one.submit(call)
    return call


def waits(house: Watched, ms: int, text: str = "x", timeout_ms: int = 60_000) -> Asked:
    return submitted(
        house, tool="wait", arguments=b'{"ms":%d,"text":"%s"}' % (ms, text.encode()), timeout_ms=timeout_ms
    )


def text_of(call: Asked) -> Any:
    assert isinstance(call.outcome, CallResult)
    return call.outcome.to_value()["content"][0]["text"]


# --- waiting for a start ---------------------------------------------------------------------------------------


@virtual
async def test_a_call_waits_for_a_server_that_starts() -> None:
    async with watched(s.script(s.on("initialize", s.sleep(0.5), s.default()))) as house:
        call = submitted(house)
        await call.done
        assert text_of(call) == "hello"


@virtual
async def test_a_call_waits_for_a_start_no_longer_than_its_own_deadline() -> None:
    async with watched(s.script(s.on("initialize", s.sleep(5), s.default()))) as house:
        call = submitted(house, timeout_ms=300)
        await call.done
        assert call.fault == CallTimedOut(300, "not_sent")
        assert call.at == pytest.approx(0.3, abs=0.002)
        await house.until(State.READY)
        assert len(call.outcomes) == 1


@virtual
async def test_the_time_that_a_call_waited_for_a_start_is_its_own() -> None:
    async with watched(s.script(NEVER, s.on("initialize", s.sleep(0.8), s.default()))) as house:
        call = submitted(house, timeout_ms=1000)
        await call.done
        assert call.fault == CallTimedOut(1000, "unknown")
        assert call.at == pytest.approx(1.0, abs=0.002)


@virtual
async def test_a_call_that_waited_for_a_start_and_then_in_the_queue_pays_for_the_start_alone() -> None:
    script = s.script(NEVER, s.on("initialize", s.sleep(0.8), s.default()))
    async with watched(script, max_in_flight=1, queue=1, queue_timeout_ms=5000) as house:
        first, second = submitted(house, timeout_ms=1000), submitted(house, timeout_ms=1000)
        await second.done
        assert first.at == pytest.approx(1.0, abs=0.002)
        assert second.at == pytest.approx(1.2, abs=0.002)
        assert second.fault == CallTimedOut(1000, "unknown")


@virtual
async def test_the_time_of_a_call_counts_from_its_receipt() -> None:
    async with watched(NEVER) as house:
        await house.until(State.READY)
        here = asyncio.get_running_loop().time()
        call = Asked(timeout_ms=1000)
        call.received = here - 0.4
        house.one.submit(call)
        await call.done
        assert call.fault == CallTimedOut(1000, "unknown")
        assert asyncio.get_running_loop().time() - here == pytest.approx(0.6, abs=0.002)


@virtual
async def test_a_call_whose_time_was_up_before_it_was_read_is_not_sent() -> None:
    async with watched(NEVER) as house:
        await house.until(State.READY)
        call = Asked(timeout_ms=1000)
        call.received = asyncio.get_running_loop().time() - 1.0
        house.one.submit(call)
        assert call.fault == CallTimedOut(1000, "not_sent")
        assert house.one.in_flight == 0


@virtual
async def test_no_more_calls_wait_for_a_start_than_could_be_admitted() -> None:
    async with watched(s.script(s.on("initialize")), max_in_flight=2, queue=1) as house:
        calls = [submitted(house) for _ in range(4)]
        assert [len(call.outcomes) for call in calls] == [0, 0, 0, 1]
        assert isinstance(calls[3].fault, Overloaded)


@virtual
async def test_whoever_waits_for_a_start_that_fails_hears_why_at_once() -> None:
    async with watched(s.script(s.expect("initialize"), s.sleep(0.2), s.exit(3)), restart="always") as house:
        calls = [submitted(house, timeout_ms=60_000) for _ in range(3)]
        await asyncio.gather(*(call.done for call in calls))
        assert now() == pytest.approx(0.2, abs=0.01)
        for call in calls:
            assert isinstance(call.fault, Unavailable)
            assert "status 3" in call.fault.reason
            assert call.fault.outcome == "not_sent"


# --- limits and the queue --------------------------------------------------------------------------------------


@virtual
async def test_past_max_in_flight_a_call_is_refused_naming_the_limit() -> None:
    async with watched(NEVER, max_in_flight=2) as house:
        await house.until(State.READY)
        calls = [submitted(house) for _ in range(3)]
        assert calls[2].fault == Overloaded("max_in_flight", 2, "server odd")
        assert house.one.in_flight == 2


@virtual
async def test_calls_wait_in_the_queue_in_order_and_are_sent_as_others_end() -> None:
    async with watched(max_in_flight=1, queue=3) as house:
        await house.until(State.READY)
        calls = [waits(house, 100, str(n)) for n in range(4)]
        await asyncio.gather(*(call.done for call in calls))
        assert [text_of(call) for call in calls] == ["0", "1", "2", "3"]
        assert [round(call.at or 0, 2) for call in calls] == [0.1, 0.2, 0.3, 0.4]


@virtual
async def test_past_the_queue_a_call_is_refused_naming_the_limit() -> None:
    async with watched(NEVER, max_in_flight=1, queue=1) as house:
        await house.until(State.READY)
        calls = [submitted(house) for _ in range(3)]
        assert calls[2].fault == Overloaded("queue", 1, "the queue of server odd")


@virtual
async def test_a_call_waits_in_the_queue_for_queue_timeout_and_no_longer() -> None:
    async with watched(NEVER, max_in_flight=1, queue=1, queue_timeout_ms=300) as house:
        await house.until(State.READY)
        _, queued = submitted(house, timeout_ms=60_000), submitted(house, timeout_ms=60_000)
        await queued.done
        assert queued.at == pytest.approx(0.3, abs=0.002)
        assert isinstance(queued.fault, Overloaded)
        assert (queued.fault.key, queued.fault.outcome) == ("queue_timeout_ms", "not_sent")


@virtual
async def test_the_time_in_the_queue_is_no_part_of_the_calls_own_time() -> None:
    async with watched(NEVER, max_in_flight=1, queue=1, queue_timeout_ms=5000) as house:
        await house.until(State.READY)
        first, second = submitted(house, timeout_ms=800), submitted(house, timeout_ms=1000)
        await second.done
        assert first.at == pytest.approx(0.8, abs=0.002)
        assert second.at == pytest.approx(1.8, abs=0.002)
        assert second.fault == CallTimedOut(1000, "unknown")


@virtual
async def test_queued_calls_of_a_server_that_dies_are_refused_and_were_not_sent() -> None:
    async with watched(s.script(s.at(1, s.sleep(0.1), s.exit(3))), max_in_flight=1, queue=5) as house:
        await house.until(State.READY)
        calls = [submitted(house, timeout_ms=60_000) for _ in range(4)]
        await asyncio.gather(*(call.done for call in calls))
        assert [call.fault.outcome for call in calls if isinstance(call.fault, Unavailable)] == [
            "unknown",
            "not_sent",
            "not_sent",
            "not_sent",
        ]
        assert all("status 3" in str(call.fault) for call in calls)


@virtual
async def test_a_long_queue_of_a_server_that_dies_is_ended_without_recursion(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with watched(
        s.script(s.at(1, s.sleep(0.1), s.exit(3))), max_in_flight=1, queue=5000, queue_timeout_ms=60_000
    ) as house:
        await house.until(State.READY)
        calls = [submitted(house, timeout_ms=60_000) for _ in range(5001)]
        await house.until(State.RETIRED)
        assert {len(call.outcomes) for call in calls} == {1}
        assert house.one.in_flight == 0
    assert "Recursion" not in caplog.text


@virtual
async def test_a_long_queue_of_calls_that_cannot_be_sent_is_ended_without_recursion() -> None:
    async with watched(max_in_flight=1, queue=5000, queue_timeout_ms=60_000) as house:
        await house.until(State.READY)
        first = waits(house, 100)
        calls = [submitted(house, tool="\ud800") for _ in range(3000)]
        last = submitted(house)
        await asyncio.gather(first.done, last.done)
        assert {len(call.outcomes) for call in calls} == {1}
        assert text_of(last) == "hello"


@virtual
async def test_no_call_is_sent_to_a_second_incarnation() -> None:
    dies = s.script(s.record("seen"), s.at(3, s.kill_self("SIGKILL")), s.on("tools/call"))
    async with watched(dies, s.script(s.record("seen")), restart="always", restart_backoff_ms=10) as house:
        await house.until(State.READY)
        calls = [submitted(house, timeout_ms=60_000) for _ in range(3)]
        await house.one.until(lambda: house.one.generation == 2 and house.one.state is State.READY)
        later = submitted(house)
        await later.done
        assert all("SIGKILL" in str(call.fault) for call in calls)
        assert house.worlds["odd"].files["seen"].count(b"tools/call") == 3 + 1


@virtual
async def test_calls_between_the_death_and_its_notice_hear_the_reason_once() -> None:
    async with watched(NEVER, max_in_flight=1, queue=5) as house:
        await house.until(State.READY)
        calls = [submitted(house, timeout_ms=60_000) for _ in range(3)]
        await turns()
        client = house.clients[0]
        assert isinstance(client, Client)
        client.data_received(b"noise\n")
        assert house.one.state is State.READY, "the task has not run yet"
        late = submitted(house)
        await turns()
        for call in (*calls, late):
            assert isinstance(call.fault, Unavailable)
            assert "noise" in call.fault.reason


# --- cancellation ----------------------------------------------------------------------------------------------


@virtual
async def test_a_call_is_cancelled_wherever_it_is() -> None:
    async with watched(
        s.script(NEVER, s.on("initialize", s.sleep(1), s.default())), max_in_flight=1, queue=1
    ) as house:
        starting = submitted(house)
        house.one.cancel(starting)
        assert starting.fault == Cancelled("not_sent")
        await house.until(State.READY)
        flying, queued = submitted(house), submitted(house)
        await turns()
        house.one.cancel(queued)
        house.one.cancel(flying)
        assert (queued.fault, flying.fault) == (Cancelled("not_sent"), Cancelled("unknown"))
        assert house.one.in_flight == 0
        await asyncio.sleep(10)
        assert [len(call.outcomes) for call in (starting, flying, queued)] == [1, 1, 1]


@virtual
async def test_a_cancelled_call_makes_room_for_a_queued_one() -> None:
    async with watched(s.script(s.per_tool("stuck")), max_in_flight=1, queue=1) as house:
        await house.until(State.READY)
        flying, queued = submitted(house, tool="stuck"), submitted(house)
        await turns()
        house.one.cancel(flying)
        await queued.done
        assert text_of(queued) == "hello"


@virtual
async def test_cancelling_a_call_of_an_earlier_incarnation_touches_no_call_of_this_one() -> None:
    async with watched(s.script(s.at(1, s.exit(1))), NEVER, restart="always", restart_backoff_ms=10) as house:
        await house.until(State.READY)
        old = submitted(house)
        await old.done
        await house.one.until(lambda: house.one.generation == 2 and house.one.state is State.READY)
        new = submitted(house, timeout_ms=500)
        await turns()
        house.one.cancel(old)
        assert (len(old.outcomes), len(new.outcomes)) == (1, 0)
        await new.done
        assert new.fault == CallTimedOut(500, "unknown")


# --- delivery and counting -------------------------------------------------------------------------------------


@virtual
async def test_a_delivery_that_goes_wrong_costs_nobody_else_anything(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Asked):
        def deliver(self, outcome: CallResult | Fault) -> None:
            raise ZeroDivisionError

    async with watched(max_in_flight=1, queue=2) as house:
        await house.until(State.READY)
        broken: Call = Broken()
        with caplog.at_level(logging.CRITICAL + 1):
            house.one.submit(broken)
            other = submitted(house)
            await other.done
        assert text_of(other) == "hello"
        assert house.one.in_flight == 0


@virtual
async def test_every_end_of_a_call_is_counted_once_by_its_kind() -> None:
    script = s.script(s.per_tool("stuck"), s.per_tool("bad", s.error(-1, "no")), s.per_tool("die", s.exit(1)))
    async with watched(script, max_in_flight=2) as house:
        await house.until(State.READY)
        for tool in ("echo", "fail", "bad"):
            await submitted(house, tool=tool).done
        stuck = submitted(house, tool="stuck", timeout_ms=100)
        cancelled = submitted(house, tool="stuck")
        refused = submitted(house)
        await turns()
        house.one.cancel(cancelled)
        await stuck.done
        died = submitted(house, tool="die")
        await house.until(State.RETIRED)
        dead = submitted(house)
        assert isinstance(refused.fault, Overloaded)
        assert isinstance(died.fault, Unavailable)
        assert isinstance(dead.fault, Unavailable)
        counts = {"ok": 1, "tool_error": 1, "failed": 2, "timed_out": 1, "cancelled": 1, "refused": 2}
        assert house.one.row()["calls"] == counts
        assert set(house.one.row()["latency_ms"]) == {"p50", "p95", "p99"}


@virtual
async def test_an_error_of_the_server_reaches_the_caller_with_its_data() -> None:
    async with watched(s.script(s.at(1, s.error(-5, "no", data={"a": 1})))) as house:
        call = submitted(house)
        await call.done
        assert call.fault == ServerError(-5, "no", b'{"a":1}')


@pytest.mark.parametrize("state", [State.RETIRED, State.BACKOFF, State.PARKED])
@virtual
async def test_a_call_to_a_server_that_is_down_is_refused_at_once(state: State) -> None:
    policy: dict[str, Any] = {
        "restart": "never" if state is State.RETIRED else "always",
        "restart_limit": 0 if state is State.PARKED else 1,
    }
    async with watched(FAILS, WORKS, **policy) as house:
        await house.until(state)
        call = submitted(house)
        assert isinstance(call.fault, Unavailable)
        assert call.fault.reason.startswith(f"server odd is {state.value}: ")
        assert house.one.state is state
