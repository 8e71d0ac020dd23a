"""One supervisor a server, in virtual time: its life by command and by policy (client page, sections 4 to 6)."""

from __future__ import annotations

import asyncio

import pytest

from support import script as s
from support.household import Asked, Deaf
from support.virtual import now, turns, virtual
from support.watched import DIES_SOON, FAILS, NEVER_READY, WORKS, Deathless, Watched, watched
from treadle.config import Refused
from treadle.errors import EnvironmentRefused, Fault, Problem, Unavailable
from treadle.states import State
from treadle.supervisor import PROOF_MARGIN_S, Supervisor
from treadle.transport import NO_RESOURCE


def refused_with(one: Supervisor) -> str:
    call = Asked()
    one.submit(call)
    assert isinstance(call.fault, Unavailable)
    assert call.fault.outcome == "not_sent"
    return call.fault.reason


# --- start ---------------------------------------------------------------------------------------------------


@virtual
async def test_an_eager_server_is_parked_then_started_then_ready() -> None:
    async with watched(begin=False) as house:
        assert (house.one.state, house.opened) == (State.PREPARED, [])
        assert house.census.of("odd") == tuple(house.clients)
        house.one.begin()
        assert house.one.state is State.STARTING, "a call that comes first waits"
        await house.until(State.READY)
        assert len(house.clients) == 1, "what was parked is what serves"
        assert (house.one.generation, house.one.reason) == (1, None)


@pytest.mark.parametrize("policy", ["never", "on-failure", "always"])
@virtual
async def test_a_disabled_server_is_never_made(policy: str) -> None:
    async with watched(enabled=False, restart=policy) as house:
        assert (house.one.state, house.clients) == (State.DISABLED, [])
        assert "enabled = false" in refused_with(house.one)
        with pytest.raises(Unavailable, match="enabled = false"):
            await house.one.start()
        assert (await house.stop()).evidence == NO_RESOURCE


@virtual
async def test_a_server_with_errors_in_its_table_is_refused_with_them() -> None:
    problem = Problem("t.toml", 3, 1, "[mcp.bad] comand", "is no key", "write command")
    house = Watched(Refused("bad", (problem,)))
    house.one.prepare()
    house.one.begin()
    assert (house.one.state, house.clients) == (State.REFUSED, [])
    assert refused_with(house.one) == "server bad is refused: comand: is no key"
    with pytest.raises(Unavailable):
        await house.one.start()
    await house.one.end()


@virtual
async def test_an_environment_that_cannot_be_had_refuses_the_server_before_anything_runs() -> None:
    async with watched(EnvironmentRefused("odd", "KEY", "is not set", "api_key_env")) as house:
        assert (house.one.state, house.opened) == (State.REFUSED, [])
        assert refused_with(house.one).startswith("server odd is refused: KEY (api_key_env) is not set; ")


@virtual
async def test_a_place_on_disk_that_cannot_be_had_refuses_the_server_and_crashes_nothing() -> None:
    async with watched(PermissionError(13, "Permission denied", "/var/lib/x")) as house:
        assert house.one.state is State.REFUSED
        assert refused_with(house.one) == (
            "server odd is refused: it cannot be prepared: Permission denied: /var/lib/x"
        )


@virtual
async def test_a_failed_start_latches_its_reason() -> None:
    async with watched(FAILS) as house:
        await house.until(State.RETIRED)
        assert refused_with(house.one) == "server odd is retired: the server exited with status 1"
        assert house.one.evidence is not None
        assert house.one.evidence.status == 1
        assert house.one.row()["last_failure"]["reason"] == house.one.reason


@virtual
async def test_a_lazy_server_is_started_by_its_first_call_and_makes_its_client_anew() -> None:
    async with watched(lazy=True) as house:
        await asyncio.sleep(60)
        assert (house.one.state, house.opened) == (State.PREPARED, [])
        call = Asked()
        house.one.submit(call)
        assert house.one.state is State.STARTING
        await call.done
        assert not isinstance(call.outcome, Fault)
        assert (len(house.opened), house.one.generation, len(house.clients)) == (1, 1, 2)


@virtual
async def test_a_lazy_server_that_was_never_started_is_stopped_without_a_resource() -> None:
    async with watched(lazy=True) as house:
        row = await house.stop()
        assert (row.evidence, house.one.state, house.opened) == (NO_RESOURCE, State.RETIRED, [])
        await house.one.start()
        assert house.one.state is State.READY


@virtual
async def test_a_variable_that_vanished_before_a_lazy_start_fails_that_start() -> None:
    async with watched(WORKS, EnvironmentRefused("odd", "KEY", "is not set", "env_from"), lazy=True) as house:
        call = Asked()
        house.one.submit(call)
        await call.done
        assert isinstance(call.fault, Unavailable)
        assert "KEY" in call.fault.reason
        assert house.one.state is State.RETIRED


# --- stop ----------------------------------------------------------------------------------------------------


@virtual
async def test_a_stop_gives_the_evidence_and_ends_the_calls_in_flight() -> None:
    async with watched(s.script(s.on("tools/call"))) as house:
        await house.until(State.READY)
        call = Asked(timeout_ms=60_000)
        house.one.submit(call)
        await turns()
        row = await house.stop()
        assert (row.evidence.kind, row.evidence.rung) == ("exited", "eof")
        assert call.fault == Unavailable("stopped by the test", "unknown")
        assert (house.one.state, house.one.reason) == (State.RETIRED, "stopped by the test")


@pytest.mark.parametrize("policy", ["never", "on-failure", "always"])
@virtual
async def test_what_was_stopped_stays_down_whatever_its_policy(policy: str) -> None:
    async with watched(restart=policy) as house:
        await house.until(State.READY)
        await house.stop()
        await asyncio.sleep(3600)
        assert (house.one.state, house.one.generation) == (State.RETIRED, 1)
        assert refused_with(house.one) == "server odd is retired: stopped by the test"


@virtual
async def test_a_stop_before_the_first_step_of_a_start_starts_nothing() -> None:
    async with watched(begin=False) as house:
        house.one.begin()
        row = await house.stop()
        assert (row.evidence, house.one.state, house.opened) == (NO_RESOURCE, State.RETIRED, [])
        await house.one.start()
        assert house.one.state is State.READY


@virtual
async def test_a_stop_ends_a_start_and_whoever_waits_for_it() -> None:
    async with watched(NEVER_READY, restart="always") as house:
        await turns()
        call = Asked(timeout_ms=60_000)
        house.one.submit(call)
        row = await house.stop()
        assert row.confirmed
        assert isinstance(call.fault, Unavailable)
        assert call.fault.outcome == "not_sent"
        await asyncio.sleep(3600)
        assert (house.one.state, house.one.generation) == (State.RETIRED, 1)


@virtual
async def test_a_stop_ends_a_backoff() -> None:
    async with watched(FAILS, restart="always") as house:
        await house.until(State.BACKOFF)
        row = await house.stop()
        assert (row.evidence.status, house.one.state) == (1, State.RETIRED)
        await asyncio.sleep(3600)
        assert house.one.generation == 1


@virtual
async def test_a_stop_of_a_parked_server_leaves_it_down() -> None:
    async with watched(FAILS, restart="always", restart_limit=0) as house:
        await house.until(State.PARKED)
        assert (await house.stop()).confirmed
        assert house.one.state is State.RETIRED


@virtual
async def test_a_second_stop_shares_the_retirement_and_a_later_one_repeats_the_evidence() -> None:
    async with watched(s.script(s.on_eof(s.sleep(0.5), s.exit(0)))) as house:
        await house.until(State.READY)
        first, second = await asyncio.gather(house.stop(), house.stop())
        third = await house.stop()
        assert first.evidence == second.evidence == third.evidence
        assert now() == pytest.approx(0.5, abs=0.01)


@virtual
async def test_a_stop_without_evidence_in_time_says_so_and_is_proven_later() -> None:
    peer = Deathless()
    async with watched(peer, stop_timeout_ms=100) as house:
        await house.until(State.READY)
        row = await house.stop(within=1)
        assert (row.confirmed, row.to_body()["error"]) == (False, "retirement_timed_out")
        assert house.one.state is State.CLOSING
        peer.link.die("SIGKILL")
        await house.until(State.RETIRED)
        assert (await house.stop()).confirmed


# --- commands that meet ------------------------------------------------------------------------------------


@virtual
async def test_a_start_that_meets_a_stop_before_anything_happened_wins_by_coming_last() -> None:
    async with watched() as house:
        await house.until(State.READY)
        await house.stop()
        starting = asyncio.ensure_future(house.one.start())
        stopping = asyncio.ensure_future(house.stop())
        await asyncio.wait_for(asyncio.gather(starting, stopping), 10)
        assert (house.one.state, len(house.opened)) == (State.RETIRED, 1)


@virtual
async def test_a_start_during_a_stop_brings_a_new_incarnation_after_the_evidence() -> None:
    async with watched(s.script(s.on_eof(s.sleep(1), s.exit(0)))) as house:
        await house.until(State.READY)
        stopping = asyncio.ensure_future(house.stop())
        await asyncio.sleep(0.5)
        await house.one.start()
        row = await asyncio.wait_for(stopping, 10)
        assert (row.evidence.status, house.one.state, house.one.generation) == (0, State.READY, 2)
        assert house.states[-2:] == [("starting", 1), ("ready", 1)]


@virtual
async def test_a_start_while_a_crashed_server_closes_is_not_lost() -> None:
    crash = s.script(s.at(1, s.close(1)), s.on_eof(s.sleep(1), s.exit(1)))
    async with watched(crash, WORKS) as house:
        await house.until(State.READY)
        house.one.submit(Asked())
        await house.until(State.CLOSING)
        await house.one.start()
        assert (house.one.state, house.one.generation) == (State.READY, 2)


@virtual
async def test_a_start_of_a_server_that_starts_joins_it_and_does_not_outlive_its_failure() -> None:
    async with watched(s.script(s.expect("initialize"), s.sleep(1), s.exit(1))) as house:
        await turns()
        await asyncio.gather(house.one.start(), house.one.start())
        assert (house.one.state, house.one.generation) == (State.RETIRED, 1)
        await asyncio.sleep(60)
        assert house.one.generation == 1


@virtual
async def test_a_start_of_a_server_that_is_ready_changes_nothing() -> None:
    async with watched(DIES_SOON) as house:
        await house.until(State.READY)
        await house.one.start()
        await house.until(State.RETIRED)
        await asyncio.sleep(60)
        assert house.one.generation == 1, "its policy is still never"


@virtual
async def test_a_supervisor_that_is_finished_starts_nothing_any_more() -> None:
    async with watched(DIES_SOON, restart="always") as house:
        await house.until(State.READY)
        house.one.finish()
        with pytest.raises(Unavailable):
            await house.one.start()
        await asyncio.sleep(3600)
        assert (house.one.state, house.one.generation) == (State.RETIRED, 1)


@virtual
async def test_a_supervisor_that_is_finished_in_its_backoff_starts_nothing_any_more() -> None:
    async with watched(FAILS, restart="always") as house:
        await house.until(State.BACKOFF)
        house.one.finish()
        await asyncio.sleep(3600)
        assert (house.one.state, house.one.generation) == (State.BACKOFF, 1)
        await house.stop()
        assert house.one.state is State.RETIRED


# --- restart -------------------------------------------------------------------------------------------------


@virtual
async def test_by_default_a_dead_server_latches_dead_and_answers_in_band() -> None:
    async with watched(DIES_SOON) as house:
        await house.until(State.RETIRED)
        await asyncio.sleep(3600)
        assert house.one.generation == 1
        assert refused_with(house.one) == "server odd is retired: the server exited with status 1"


@pytest.mark.parametrize(
    ("script", "policy", "again"),
    [
        (DIES_SOON, "on-failure", True),
        (s.script(s.expect("tools/list"), s.default(), s.sleep(0.1), s.kill_self("SIGSEGV")), "on-failure", True),
        (s.script(s.expect("tools/list"), s.default(), s.sleep(0.1), s.line("noise")), "on-failure", True),
        (
            s.script(s.expect("tools/list"), s.default(), s.sleep(0.1), s.line("noise"), s.exit(0)),
            "on-failure",
            True,
        ),
        (s.script(s.expect("tools/list"), s.default(), s.sleep(0.1), s.close(1)), "on-failure", True),
        (FAILS, "on-failure", True),
        (s.script(s.exit(0)), "on-failure", True),
        (s.script(s.expect("tools/list"), s.default(), s.sleep(0.1), s.exit(0)), "on-failure", False),
        (s.script(s.expect("tools/list"), s.default(), s.sleep(0.1), s.exit(0)), "always", True),
        (s.script(s.expect("tools/list"), s.default(), s.sleep(0.1), s.exit(0)), "never", False),
        (FAILS, "never", False),
    ],
)
@virtual
async def test_what_a_policy_restarts(script: s.Script, policy: str, again: bool) -> None:
    async with watched(script, WORKS, restart=policy) as house:
        await house.until(State.CLOSING)
        await asyncio.sleep(100)
        assert (house.one.state, house.one.generation) == ((State.READY, 2) if again else (State.RETIRED, 1))


@virtual
async def test_delays_grow_and_one_incarnation_runs_at_a_time() -> None:
    async with watched(FAILS, restart="on-failure", restart_limit=4) as house:
        await house.until(State.PARKED)
        starts = [at for state, at in house.states if state == "starting"]
        assert starts == [0, 1, 3, 7, 15]
        assert house.one.generation == 5
        assert house.one.row()["restarts"] == 4


@virtual
async def test_calls_during_a_backoff_are_unavailable_at_once_with_the_reason() -> None:
    async with watched(FAILS, restart="on-failure") as house:
        await house.until(State.BACKOFF)
        assert refused_with(house.one) == "server odd is backoff: the server exited with status 1"
        assert house.one.state is State.BACKOFF


@virtual
async def test_past_its_start_limit_a_server_is_parked_and_a_start_clears_it() -> None:
    async with watched(FAILS, FAILS, WORKS, restart="on-failure", restart_limit=1) as house:
        await house.until(State.PARKED)
        assert "restart_limit" in refused_with(house.one)
        await asyncio.sleep(3600)
        assert house.one.generation == 2
        await house.one.start()
        assert (house.one.state, house.one.generation, house.one.reason) == (State.READY, 3, None)


@virtual
async def test_an_explicit_start_begins_the_row_of_restarts_anew() -> None:
    async with watched(FAILS, restart="on-failure", restart_limit=2) as house:
        await house.until(State.PARKED)
        before = house.one.generation
        await house.one.start()
        await house.until(State.PARKED)
        assert (before, house.one.generation) == (3, 6)


@virtual
async def test_an_explicit_start_ends_a_backoff_at_once() -> None:
    async with watched(FAILS, WORKS, restart="on-failure", restart_backoff_ms=8000) as house:
        await house.until(State.BACKOFF)
        await house.one.start()
        assert (house.one.state, now()) == (State.READY, 0)


@virtual
async def test_uptime_resets_the_delays_and_a_spawn_does_not() -> None:
    lives = s.script(s.expect("tools/list"), s.default(), s.sleep(10), s.exit(1))
    async with watched(FAILS, FAILS, lives, WORKS, restart="always", restart_reset_s=10, restart_limit=2) as house:
        await house.one.until(lambda: house.one.generation == 4 and house.one.state is State.READY)
        starts = [at for state, at in house.states if state == "starting"]
        assert starts == pytest.approx([0, 1, 3, 14], abs=0.01)


@virtual
async def test_a_replacement_starts_on_the_evidence_of_its_predecessor_alone() -> None:
    peer = Deathless()
    async with watched(peer, WORKS, restart="always", stop_timeout_ms=1000, restart_backoff_ms=1) as house:
        await house.until(State.READY)
        peer.link.close_stdout()
        await house.until(State.UNCONFIRMED)
        assert now() == pytest.approx(1 + PROOF_MARGIN_S, abs=0.01)
        assert "not proven gone" in (house.one.reason or "")
        assert "start failed" not in (house.one.reason or "")
        with pytest.raises(Unavailable, match="not proven gone"):
            await house.one.start()
        await asyncio.sleep(3600)
        assert house.one.generation == 1
        assert refused_with(house.one).startswith("server odd is unconfirmed: its end cannot be confirmed: ")
        peer.link.die("SIGKILL")
        await house.until(State.READY)
        assert house.one.generation == 2


@virtual
async def test_a_failed_start_that_is_not_proven_gone_is_a_cleanup_unconfirmed() -> None:
    peer = Deaf()
    async with watched(peer, restart="always", handshake_timeout_ms=100, stop_timeout_ms=100) as house:
        await house.until(State.UNCONFIRMED)
        assert (house.one.reason or "").startswith("start failed (initialize did not finish within 100 ms")
        assert "not proven gone" in (house.one.reason or "")


@virtual
async def test_an_end_that_nobody_observed_blocks_every_replacement() -> None:
    peer = Deathless()
    async with watched(peer, WORKS, restart="always") as house:
        await house.until(State.READY)
        peer.link.vanish("reaped by somebody else")
        await house.until(State.UNCONFIRMED)
        await asyncio.sleep(3600)
        assert (house.one.state, house.one.generation) == (State.UNCONFIRMED, 1)
        row = await house.stop()
        assert (row.confirmed, row.to_body()["error"]) == (False, "retirement_unconfirmed")
        house.clients[0].evidence = NO_RESOURCE  # let the teardown pass: nothing is left of a peer


@virtual
async def test_a_client_that_dies_in_the_moment_it_became_ready_is_no_crash() -> None:
    script = s.script(s.expect("tools/list"), s.raw([s.as_json(s.envelope({"tools": []})), "\nnoise\n"]))
    async with watched(script) as house:
        call = Asked()
        house.one.submit(call)
        await house.until(State.RETIRED)
        assert isinstance(call.fault, Unavailable)
        assert "noise" in call.fault.reason


@virtual
async def test_a_crashing_server_disturbs_no_other() -> None:
    async with watched(DIES_SOON, restart="always", restart_limit=1000) as bad, watched() as good:
        await good.until(State.READY)
        for _ in range(20):
            call = Asked()
            good.one.submit(call)
            await call.done
            assert not isinstance(call.outcome, Fault)
            await asyncio.sleep(1)
        assert bad.one.generation > 2
        assert good.one.generation == 1


@virtual
async def test_200_crashes_leave_nothing_behind() -> None:
    async with watched(
        DIES_SOON, restart="always", restart_limit=1000, restart_backoff_ms=1, restart_backoff_max_ms=1
    ) as house:
        await house.one.until(lambda: house.one.generation > 10)
        tasks = len(asyncio.all_tasks())
        await house.one.until(lambda: house.one.generation > 200)
        assert len(asyncio.all_tasks()) == tasks
        assert len(house.census.of("odd")) <= 2


# --- what is shown ---------------------------------------------------------------------------------------------


@virtual
async def test_the_row_of_a_server_shows_its_state_reason_and_evidence() -> None:
    async with watched(DIES_SOON) as house:
        await house.until(State.READY)
        row = house.one.row()
        assert (row["state"], row["generation"], row["tools"], row["protocol_version"]) == (
            "ready",
            1,
            10,
            "2025-06-18",
        )
        assert row["server"] == {"name": "scripted", "version": "1.0"}
        assert "reason" not in row
        await house.until(State.RETIRED)
        row = house.one.row()
        assert (row["state"], row["evidence"]["status"], row["in_flight"]) == ("retired", 1, 0)
        assert row["reason"] == row["last_failure"]["reason"] == "the server exited with status 1"
        assert "started_at" not in row


@virtual
async def test_waiting_for_a_state_leaves_no_watcher_behind_when_it_is_cancelled() -> None:
    async with watched() as house:
        await house.until(State.READY)
        before = len(house.one._watchers)
        waiting = asyncio.ensure_future(house.until(State.PARKED))
        await turns()
        waiting.cancel()
        await turns()
        assert len(house.one._watchers) == before
