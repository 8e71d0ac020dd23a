"""The set of servers, in virtual time: boot, calls, drain, shutdown, reload (client page, sections 4 to 6, 8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from support import script as s
from support.household import Asked, Household, config
from support.virtual import now, turns, virtual
from support.watched import DIES_SOON, FAILS, NEVER_READY, Deathless
from treadle.broker import Broker, shutdown_body
from treadle.config import Refused, ServerConfig
from treadle.errors import (
    CallTimedOut,
    Denied,
    EnvironmentRefused,
    Fault,
    InvalidArgument,
    Problem,
    ShuttingDown,
    Unavailable,
    UnknownServer,
)
from treadle.phases import Phase
from treadle.states import State
from treadle.transport import NO_RESOURCE

NEVER = s.script(s.on("tools/call"))
SLOW_END = s.script(s.on_eof(s.sleep(1), s.exit(0)))


@asynccontextmanager
async def opened(
    *servers: ServerConfig | Refused, plays: dict[str, Any] | None = None, **keys: Any
) -> AsyncIterator[tuple[Broker, Household]]:
    """A broker of ``servers`` that has settled; shut down afterwards, and then nothing runs."""
    house = Household()
    for name, incarnations in (plays or {}).items():
        house.plays(name, *(incarnations if isinstance(incarnations, tuple) else (incarnations,)))
    broker = house.broker(*servers, **keys)
    await broker.settled()
    try:
        yield broker, house
    finally:
        broker.hurry(kill=True)
        await broker.shutdown()
        await turns()
        for made in house.made.values():
            for client in made:
                assert client.phase in (Phase.PREPARED, Phase.RETIRED, Phase.CLOSING)


def called(broker: Broker, server: str, timeout_ms: int = 0, tool: str = "echo", **arguments: Any) -> Asked:
    call = Asked(tool=tool, timeout_ms=timeout_ms)
    broker.call(server, arguments or {"text": "hello"}, call)
    return call


def states(broker: Broker) -> dict[str, str]:
    return {one.name: one.state.value for one in broker.servers}


# --- boot ------------------------------------------------------------------------------------------------------


@virtual
async def test_every_client_is_in_the_census_before_the_first_server_is_opened() -> None:
    house = Household()
    names = ("a", "b", "c")
    broker = Broker(house.config(*(config(name) for name in names)), house.make)
    broker.prepare()
    await turns()
    assert [len(broker.census.of(name)) for name in names] == [1, 1, 1]
    assert broker.census.uncertain == list(names)
    assert house.opened == []
    broker.begin()
    await broker.settled()
    assert sorted(house.opened) == list(names)
    await broker.shutdown()


@virtual
async def test_every_server_that_can_serve_serves_and_the_others_are_rows_with_reasons() -> None:
    bad = Refused("bad", (Problem("t.toml", 3, 1, "[mcp.bad] comand", "is no key", "write command"),))
    plays = {"fails": FAILS, "unset": EnvironmentRefused("unset", "KEY", "is not set", "api_key_env")}
    servers = (config("good"), config("fails"), bad, config("unset"), config("off", enabled=False))
    async with opened(*servers, plays=plays) as (broker, _):
        assert states(broker) == {
            "good": "ready",
            "fails": "retired",
            "bad": "refused",
            "unset": "refused",
            "off": "disabled",
        }
        assert all("reason" in row for row in broker.summary() if row["name"] != "good")
        call = called(broker, "good")
        await call.done
        assert not isinstance(call.outcome, Fault)


@virtual
async def test_servers_start_all_at_once() -> None:
    slow = s.script(s.on("initialize", s.sleep(2), s.default()))
    async with opened(config("a"), config("b"), plays={"a": slow, "b": slow}) as (broker, _):
        assert states(broker) == {"a": "ready", "b": "ready"}
        assert now() == pytest.approx(2, abs=0.01)


# --- calls -----------------------------------------------------------------------------------------------------


@virtual
async def test_a_call_to_an_unknown_server_is_refused_with_the_names_there_are() -> None:
    async with opened(config("a"), config("b")) as (broker, _):
        assert called(broker, "c").fault == UnknownServer("c", ("a", "b"))


@virtual
async def test_a_tool_that_is_not_offered_is_denied_and_not_listed() -> None:
    server = config("a", tools_allow=("e*", "fail"), tools_deny=("exit",))
    async with opened(server) as (broker, _):
        listed = [tool["name"] for tool in broker.listing("a", schemas=False)["tools"]]
        assert listed == ["echo", "fail", "environ"]
        assert isinstance(called(broker, "a", tool="exit").fault, Denied)
        assert isinstance(called(broker, "a", tool="pid").fault, Denied)


@virtual
async def test_arguments_that_json_cannot_carry_reach_no_server() -> None:
    async with opened(config("a", max_in_flight=1)) as (broker, _):
        fault = called(broker, "a", a=[1, float("nan")]).fault
        assert isinstance(fault, InvalidArgument)
        assert (fault.path, fault.outcome) == ("$.a[1]", "not_sent")
        assert broker.in_flight == 0


@virtual
async def test_a_call_that_names_no_time_has_its_servers_budget_and_none_has_more_than_the_brokers() -> None:
    async with opened(config("a", call_timeout_ms=700), plays={"a": NEVER}, max_call_timeout_ms=2000) as (
        broker,
        _,
    ):
        own, more, less = called(broker, "a"), called(broker, "a", 1_000_000), called(broker, "a", 300)
        await asyncio.gather(*(call.done for call in (own, more, less)))
        assert [call.fault for call in (own, more, less)] == [
            CallTimedOut(700),
            CallTimedOut(2000),
            CallTimedOut(300),
        ]


@virtual
async def test_a_server_that_blocks_delays_no_other() -> None:
    async with opened(config("a"), config("b"), plays={"a": NEVER}) as (broker, _):
        stuck, fine = called(broker, "a", 60_000), called(broker, "b")
        await fine.done
        assert now() == 0
        assert not stuck.outcomes


@virtual
async def test_a_listing_of_a_server_that_is_not_ready_says_why() -> None:
    async with opened(config("a"), plays={"a": FAILS}) as (broker, _):
        with pytest.raises(Unavailable, match="server a is retired: the server exited with status 1"):
            broker.listing("a", schemas=True)


# --- shutdown --------------------------------------------------------------------------------------------------


@virtual
async def test_a_shutdown_gives_one_row_a_server_in_the_order_of_the_configuration() -> None:
    servers = (config("a"), config("lazy", lazy=True), config("off", enabled=False), config("fails"))
    async with opened(*servers, plays={"fails": FAILS}) as (broker, _):
        rows = await broker.shutdown()
        assert [row.server for row in rows] == ["a", "lazy", "off", "fails"]
        assert [row.evidence.kind for row in rows if row.evidence] == [
            "exited",
            "no_resource",
            "no_resource",
            "exited",
        ]
        assert shutdown_body(rows)["confirmed"] is True
        assert (await broker.shutdown()) == rows, "asked again it says the same"


@virtual
async def test_a_shutdown_lets_the_calls_in_flight_end_and_takes_no_new_ones() -> None:
    async with opened(config("a")) as (broker, _):
        flying = called(broker, "a", tool="wait", ms=1000, text="done")
        stopping = asyncio.ensure_future(broker.shutdown())
        await turns()
        assert called(broker, "a").fault == ShuttingDown()
        with pytest.raises(ShuttingDown):
            await broker.start("a")
        with pytest.raises(ShuttingDown):
            await broker.restart("a", None, "the test")
        await stopping
        assert not isinstance(flying.outcome, Fault)
        assert now() == pytest.approx(1, abs=0.01)


@virtual
async def test_a_drain_ends_with_its_budget() -> None:
    async with opened(config("a"), plays={"a": NEVER}, drain_timeout_ms=2000) as (broker, _):
        flying = called(broker, "a", 60_000)
        await broker.shutdown()
        assert flying.at == pytest.approx(2, abs=0.01)
        assert flying.fault == ShuttingDown("unknown")


@virtual
async def test_a_shutdown_within_a_time_gives_half_of_it_to_the_drain() -> None:
    peer = Deathless()
    async with opened(config("a"), plays={"a": peer}) as (broker, _):
        peer.link.pause_reading()
        called(broker, "a", 60_000)
        (row,) = await broker.shutdown(2000)
        assert now() == pytest.approx(2, abs=0.05)
        assert row.to_body()["error"] == "retirement_timed_out"
        peer.link.die("SIGKILL")


@virtual
async def test_a_second_signal_skips_the_drain_and_a_third_kills_at_once() -> None:
    stubborn = s.script(NEVER, s.on_eof(), s.ignore())
    async with opened(config("a", stop_timeout_ms=60_000), plays={"a": stubborn}, drain_timeout_ms=60_000) as (
        broker,
        _,
    ):
        flying = called(broker, "a", 600_000)
        stopping = asyncio.ensure_future(broker.shutdown())
        await asyncio.sleep(1)
        assert not flying.outcomes
        broker.hurry(kill=False)
        await turns()
        assert isinstance(flying.fault, ShuttingDown)
        await asyncio.sleep(1)
        assert not stopping.done()
        broker.hurry(kill=True)
        (row,) = await stopping
        assert row.evidence is not None
        assert (row.evidence.rung, row.evidence.signal) == ("kill", "SIGKILL")
        assert now() == pytest.approx(2, abs=0.01)


@virtual
async def test_a_shutdown_retires_all_servers_at_once() -> None:
    names = ("a", "b", "c")
    async with opened(*(config(name) for name in names), plays=dict.fromkeys(names, SLOW_END)) as (broker, _):
        rows = await broker.shutdown()
        assert now() == pytest.approx(1, abs=0.01)
        assert all(row.confirmed for row in rows)


@virtual
async def test_a_shutdown_finds_servers_in_every_state() -> None:
    plays = {
        "starting": NEVER_READY,
        "backoff": FAILS,
        "parked": FAILS,
        "retired": FAILS,
        "calls": NEVER,
        "closing": s.script(s.at(1, s.close(1)), s.on_eof(s.sleep(1), s.exit(0))),
    }
    house = Household()
    for name, script in plays.items():
        house.plays(name, script)
    keys: dict[str, dict[str, Any]] = {
        "backoff": {"restart": "always", "restart_backoff_ms": 60_000, "restart_backoff_max_ms": 60_000},
        "parked": {"restart": "always", "restart_limit": 0},
    }
    broker = house.broker(*(config(name, **keys.get(name, {})) for name in plays), drain_timeout_ms=100)
    await turns(100)
    called(broker, "closing", 60_000)
    called(broker, "calls", 60_000)
    await turns(100)
    assert states(broker) == {name: "ready" if name == "calls" else name for name in plays}
    rows = await asyncio.wait_for(broker.shutdown(), 20)
    assert all(row.confirmed for row in rows)
    opened_before = len(house.opened)
    await asyncio.sleep(3600)
    assert len(house.opened) == opened_before, "nothing is started after the end"
    assert broker.census.uncertain == []


@virtual
async def test_a_server_that_dies_during_the_drain_is_not_replaced() -> None:
    servers = (config("a"), config("b", restart="always", restart_backoff_ms=1))
    async with opened(*servers, plays={"a": NEVER, "b": DIES_SOON}) as (broker, house):
        called(broker, "a", 60_000)
        await broker.shutdown()
        assert house.opened.count("b") == 1


@virtual
async def test_a_restart_that_a_shutdown_overtakes_starts_nothing() -> None:
    async with opened(config("a"), plays={"a": SLOW_END}) as (broker, house):
        restarting = asyncio.ensure_future(broker.restart("a", None, "the test"))
        await asyncio.sleep(0.5)
        rows = await broker.shutdown()
        with pytest.raises(ShuttingDown):
            await restarting
        await asyncio.sleep(60)
        assert rows[0].confirmed
        assert house.opened == ["a"]


@virtual
async def test_a_shutdown_reports_what_it_cannot_prove() -> None:
    peer = Deathless()
    async with opened(config("a", stop_timeout_ms=100), config("b"), plays={"a": peer}) as (broker, _):
        rows = await broker.shutdown()
        body = shutdown_body(rows)
        assert body["confirmed"] is False
        assert [row.get("error") for row in body["servers"]] == ["retirement_timed_out", None]
        peer.link.die("SIGKILL")


# --- single servers --------------------------------------------------------------------------------------------


@virtual
async def test_a_restart_replaces_a_server_on_evidence_and_clears_what_was_parked() -> None:
    keys = {"restart": "always", "restart_limit": 0}
    async with opened(config("a", **keys), plays={"a": (FAILS, s.script())}) as (broker, _):
        assert states(broker) == {"a": "parked"}
        done = await broker.restart("a", None, "the test")
        assert (done.row.evidence.status if done.row.evidence else None, done.state, done.reason) == (
            1,
            State.READY,
            None,
        )


@virtual
async def test_restarts_that_meet_each_other_end_with_one_server() -> None:
    async with opened(config("a"), plays={"a": SLOW_END}) as (broker, _):
        first = asyncio.ensure_future(broker.restart("a", None, "one"))
        await asyncio.sleep(0.5)
        second = asyncio.ensure_future(broker.restart("a", None, "two"))
        done = await asyncio.wait_for(asyncio.gather(first, second), 60)
        assert [one.row.confirmed for one in done] == [True, True]
        assert states(broker) == {"a": "ready"}


@virtual
async def test_a_server_that_is_not_proven_gone_is_not_restarted() -> None:
    peer = Deathless()
    async with opened(config("a", stop_timeout_ms=100), plays={"a": (peer, s.script())}) as (broker, house):
        done = await broker.restart("a", 500, "the test")
        assert (done.row.confirmed, done.state) == (False, State.CLOSING)
        await asyncio.sleep(60)
        assert house.opened == ["a"]
        assert states(broker) == {"a": "unconfirmed"}
        with pytest.raises(Unavailable, match="not proven gone"):
            await broker.start("a")
        peer.link.die("SIGKILL")
        await turns()
        assert (await broker.start("a")).state is State.READY


# --- reload ----------------------------------------------------------------------------------------------------


@virtual
async def test_a_reload_keeps_replaces_removes_and_adds() -> None:
    before = (config("kept"), config("changed"), config("removed"))
    after = (config("added"), config("changed", call_timeout_ms=5), config("kept"))
    async with opened(*before) as (broker, house):
        kept = broker.find("kept")
        body = await broker.replace(house.config(*after))
        await broker.settled()
        assert (body["added"], body["unchanged"]) == (["added"], ["kept"])
        assert [row["name"] for row in body["changed"] + body["removed"]] == ["changed", "removed"]  # type: ignore[index]
        assert states(broker) == {"added": "ready", "changed": "ready", "kept": "ready"}
        assert broker.find("kept") is kept
        assert kept.generation == 1
        assert broker.find("changed").config == after[1]
        assert house.opened.count("kept") == 1
        with pytest.raises(UnknownServer):
            broker.find("removed")


@virtual
async def test_a_reload_ends_the_calls_of_a_removed_server_once_and_not_those_of_others() -> None:
    plays = {"gone": NEVER, "kept": NEVER}
    async with opened(config("gone"), config("kept"), plays=plays) as (broker, house):
        gone, kept = called(broker, "gone", 60_000), called(broker, "kept", 60_000)
        await turns()
        await broker.replace(house.config(config("kept")))
        assert gone.fault == Unavailable("stopped by reload", "unknown")
        assert not kept.outcomes
        broker.find("kept").cancel(kept)
        assert broker.in_flight == 0


@virtual
async def test_a_changed_server_that_is_not_proven_gone_keeps_its_old_self_and_says_so() -> None:
    peer = Deathless()
    old, new = config("a", stop_timeout_ms=100), config("a", stop_timeout_ms=200)
    async with opened(old, plays={"a": (peer, s.script())}) as (broker, house):
        body = await broker.replace(house.config(new))
        assert body["changed"][0]["error"] == "retirement_timed_out"  # type: ignore[index]
        assert broker.find("a").config == old
        assert house.opened == ["a"]
        peer.link.die("SIGKILL")
        await turns()
        assert (await broker.start("a")).state is State.READY, "it may be started again once it is proven gone"
        body = await broker.replace(house.config(new))
        await broker.settled()
        assert "error" not in body["changed"][0]
        assert broker.find("a").config == new


@virtual
async def test_a_removed_server_that_is_not_proven_gone_stays_a_row() -> None:
    peer = Deathless()
    async with opened(config("a", stop_timeout_ms=100), plays={"a": peer}) as (broker, house):
        body = await broker.replace(house.config())
        assert body["removed"][0]["error"] == "retirement_timed_out"  # type: ignore[index]
        assert list(states(broker)) == ["a"]
        peer.link.die("SIGKILL")


@virtual
async def test_a_shutdown_that_overtakes_a_reload_starts_nothing() -> None:
    async with opened(config("a"), plays={"a": SLOW_END}) as (broker, house):
        reloading = asyncio.ensure_future(
            broker.replace(house.config(config("a", lazy=False, queue=1), config("b")))
        )
        await asyncio.sleep(0.5)
        rows = await broker.shutdown()
        with pytest.raises(ShuttingDown):
            await reloading
        await asyncio.sleep(60)
        assert house.opened == ["a"]
        assert [row.confirmed for row in rows] == [True]


@virtual
async def test_a_start_that_meets_a_reload_leaves_no_second_incarnation() -> None:
    async with opened(config("a"), plays={"a": SLOW_END}) as (broker, house):
        reloading = asyncio.ensure_future(broker.replace(house.config(config("a", queue=1))))
        await asyncio.sleep(0.5)
        with pytest.raises(Unavailable):
            await broker.start("a")
        await reloading
        await broker.settled()
        assert states(broker) == {"a": "ready"}
        running = [client for client in house.made["a"] if client.phase in (Phase.SERVING, Phase.CLOSING)]
        assert len(running) == 1


@virtual
async def test_reloads_happen_one_after_the_other() -> None:
    async with opened(config("a"), plays={"a": SLOW_END}) as (broker, house):
        first = asyncio.ensure_future(broker.replace(house.config(config("a", queue=1))))
        second = asyncio.ensure_future(broker.replace(house.config(config("a", queue=2))))
        await asyncio.gather(first, second)
        await broker.settled()
        assert broker.find("a").config == config("a", queue=2)
        assert states(broker) == {"a": "ready"}


@virtual
async def test_a_server_that_was_never_started_has_nothing_to_prove_at_a_reload() -> None:
    async with opened(config("a", lazy=True)) as (broker, house):
        body = await broker.replace(house.config(config("a", lazy=True, queue=1)))
        assert body["changed"] == [{"name": "a", "evidence": NO_RESOURCE.to_body()}]
        assert states(broker) == {"a": "prepared"}
