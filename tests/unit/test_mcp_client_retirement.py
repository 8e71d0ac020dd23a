"""Custody and retirement evidence of a client, in virtual time (client page, sections 4 and 5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support import script as s
from support.household import Deaf, client_of, config, serving
from support.twin import TwinPeer
from support.virtual import now, turns, virtual
from treadle.channel import ChannelTransport, Peer
from treadle.client import Client, prepare_owned
from treadle.errors import (
    ChannelClosed,
    RetirementTimedOut,
    RetirementUnconfirmed,
    Stopped,
    TransportFailed,
    Unavailable,
)
from treadle.phases import Phase
from treadle.transport import KILL_NOW, NO_RESOURCE, Ladder


class DeafTwin(TwinPeer, Deaf):
    """Serves well, and ends by nothing but the test."""

    def __init__(self) -> None:
        TwinPeer.__init__(self, ())
        Deaf.__init__(self)

    eof_received = Deaf.eof_received
    terminated = Deaf.terminated
    killed = Deaf.killed


async def deaf(**keys: Any) -> tuple[Client, DeafTwin]:
    peer = DeafTwin()
    one = client_of(peer, **keys)
    await one.start()
    return one, peer


# --- evidence ------------------------------------------------------------------------------------------------


@virtual
async def test_the_evidence_of_a_client_that_never_opened_is_no_resource() -> None:
    one = client_of(Peer())
    assert await one.shutdown(within=0) == NO_RESOURCE


@virtual
async def test_the_evidence_of_a_server_is_its_observed_exit() -> None:
    one = await serving()
    evidence = await one.shutdown(within=10)
    assert (evidence.kind, evidence.status, evidence.rung) == ("exited", 0, "eof")
    assert one.phase is Phase.RETIRED
    assert await one.retired() == evidence


@virtual
async def test_without_evidence_in_time_a_retirement_timed_out_and_custody_goes_on() -> None:
    one, peer = await deaf(stop_timeout_ms=1000)
    with pytest.raises(RetirementTimedOut) as caught:
        await one.shutdown(within=3)
    assert caught.value == RetirementTimedOut("odd", 3000)
    assert now() == pytest.approx(3, abs=0.002)
    assert (one.phase, one.evidence) == (Phase.CLOSING, None)
    peer.link.die("SIGKILL")
    assert (await one.shutdown(within=1)).signal == "SIGKILL"


@virtual
async def test_an_end_that_nobody_observed_is_never_confirmed() -> None:
    one, peer = await deaf()
    stopping = asyncio.ensure_future(one.shutdown(within=100))
    await turns()
    peer.link.vanish("somebody else reaped it")
    with pytest.raises(RetirementUnconfirmed, match="odd"):
        await stopping
    with pytest.raises(RetirementUnconfirmed):
        await one.shutdown(within=100)
    assert one.evidence is not None
    assert not one.evidence.confirmed


@virtual
async def test_evidence_that_is_there_counts_even_without_time_to_wait() -> None:
    one = await serving()
    evidence = await one.shutdown(within=10)
    assert await one.shutdown(within=0) == evidence


@virtual
async def test_both_waits_of_a_shutdown_share_one_deadline() -> None:
    """The exit comes in time, the end of the client's own transport does not: the whole has one budget."""

    class Slow(ChannelTransport):
        async def retire(self, ladder: Ladder):  # type: ignore[no-untyped-def]
            evidence = await super().retire(ladder)
            await asyncio.sleep(2)
            return evidence

    one = Client(config(stop_timeout_ms=10_000), Slow(TwinPeer(s.script(s.on_eof(s.sleep(2), s.exit(0))))))
    await one.start()
    with pytest.raises(RetirementTimedOut):
        await one.shutdown(within=3)
    assert now() == pytest.approx(3, abs=0.002)
    assert (await one.shutdown(within=2)).status == 0


@virtual
async def test_a_request_to_stop_is_eof_then_term_after_two_fifths_then_kill() -> None:
    one, peer = await deaf(stop_timeout_ms=5000)
    one.close(Stopped())
    await asyncio.sleep(10)
    assert [(what, round(at, 2)) for what, at in peer.asked] == [("eof", 0), ("term", 2), ("kill", 5)]
    assert one.phase is Phase.CLOSING
    peer.link.die("SIGKILL")
    assert (await one.retired()).rung == "kill"


@virtual
async def test_a_failed_start_is_retired_by_the_same_ladder() -> None:
    peer = Deaf()
    one = client_of(peer, handshake_timeout_ms=1000, stop_timeout_ms=500)
    with pytest.raises(Exception, match="handshake_timeout_ms"):
        await one.start()
    await asyncio.sleep(1)
    assert [(what, round(at, 2)) for what, at in peer.asked] == [("eof", 1), ("term", 1.2), ("kill", 1.5)]
    peer.link.die("SIGKILL")
    assert (await one.retired()).signal == "SIGKILL"


@virtual
async def test_a_later_request_can_only_hurry_a_retirement() -> None:
    one, peer = await deaf(stop_timeout_ms=5000)
    one.close(Stopped())
    await asyncio.sleep(0.5)
    one.close(Stopped("somebody in a hurry"), KILL_NOW)
    await asyncio.sleep(0.1)
    assert [(what, round(at, 2)) for what, at in peer.asked] == [("eof", 0), ("kill", 0.5)]
    one.close(Stopped("somebody with time"), Ladder(term_after=100, kill_after=200))
    peer.link.die("SIGKILL")
    assert (await one.retired()).signal == "SIGKILL"


@virtual
async def test_a_shutdown_may_bring_a_ladder_of_its_own() -> None:
    one, peer = await deaf(stop_timeout_ms=60_000)
    with pytest.raises(RetirementTimedOut):
        await one.shutdown(within=1, ladder=Ladder.within(800))
    assert [(what, round(at, 2)) for what, at in peer.asked] == [("eof", 0), ("term", 0.32), ("kill", 0.8)]
    peer.link.die("SIGKILL")
    await one.retired()


@virtual
async def test_cancelling_who_waits_for_evidence_ends_no_custody() -> None:
    one, peer = await deaf(stop_timeout_ms=1000)
    waiting = asyncio.ensure_future(one.shutdown(within=100))
    await asyncio.sleep(0.1)
    waiting.cancel()
    await asyncio.sleep(5)
    assert [what for what, _ in peer.asked] == ["eof", "term", "kill"]
    peer.link.die("SIGKILL")
    assert (await one.retired()).signal == "SIGKILL"


@virtual
async def test_nobody_can_wait_for_the_end_of_what_was_not_told_to_stop() -> None:
    one = await serving()
    with pytest.raises(RetirementUnconfirmed, match="nobody asked"):
        await one.retired()
    await one.shutdown(within=10)


@virtual
async def test_a_server_that_ends_by_itself_is_retired_without_being_asked() -> None:
    one = await serving(s.script(s.expect("tools/list"), s.default(), s.sleep(1), s.exit(3)))
    assert isinstance(await one.died, ChannelClosed)
    evidence = await one.retired()
    assert (evidence.status, evidence.rung) == (3, "itself")


# --- custodians ----------------------------------------------------------------------------------------------


def custodian() -> asyncio.Task[object]:
    return asyncio.ensure_future(asyncio.sleep(3600, None))


async def end(task: asyncio.Task[object]) -> None:
    task.cancel()
    await asyncio.wait([task])
    await turns()


@virtual
async def test_when_the_builder_is_cancelled_the_custodian_holds_the_evidence() -> None:
    keeper = custodian()
    built: list[Client] = []

    async def build() -> None:
        built.append(prepare_owned(config(), ChannelTransport(Peer()), keeper))
        await asyncio.sleep(3600)

    builder = asyncio.ensure_future(build())
    await turns()
    builder.cancel()
    await asyncio.wait([builder])
    (one,) = built
    assert one.phase is Phase.PREPARED
    assert await one.shutdown(within=1) == NO_RESOURCE
    await end(keeper)


@virtual
async def test_when_the_builder_dies_the_custodian_holds_the_evidence() -> None:
    keeper = custodian()
    built: list[Client] = []

    async def build() -> None:
        built.append(prepare_owned(config(), ChannelTransport(Peer()), keeper))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await asyncio.ensure_future(build())
    assert built[0].phase is Phase.PREPARED
    assert await built[0].shutdown(within=1) == NO_RESOURCE
    await end(keeper)


@pytest.mark.parametrize("order", ["builder first", "custodian first"])
@virtual
async def test_when_both_are_gone_nothing_unclaimed_is_left(order: str) -> None:
    keeper = custodian()
    opened: list[bool] = []
    built: list[Client] = []

    async def opening() -> None:
        opened.append(True)

    async def build() -> None:
        built.append(prepare_owned(config(), ChannelTransport(Peer(), opening=opening), keeper))
        await asyncio.sleep(3600)

    builder: asyncio.Task[object] = asyncio.ensure_future(build())
    await turns()
    for task in (builder, keeper) if order == "builder first" else (keeper, builder):
        await end(task)
    (one,) = built
    assert one.phase is Phase.RETIRED
    assert one.evidence == NO_RESOURCE
    with pytest.raises(TransportFailed, match="custodian"):
        await one.start()
    assert not opened


@virtual
async def test_a_custodian_that_is_already_gone_leaves_nothing_to_start() -> None:
    keeper = custodian()
    await end(keeper)
    one = prepare_owned(config(), ChannelTransport(Peer()), keeper)
    await turns()
    assert one.evidence == NO_RESOURCE


@virtual
async def test_a_serving_client_whose_custodian_dies_closes_and_waits_for_the_real_exit() -> None:
    keeper = custodian()
    peer = DeafTwin()
    one = prepare_owned(config(stop_timeout_ms=1000), ChannelTransport(peer), keeper)
    await one.start()
    call = asyncio.ensure_future(one.call_tool("wait", b'{"ms":60000,"text":"x"}'))
    await turns()
    await end(keeper)
    with pytest.raises(Unavailable, match="custodian"):
        await call
    assert one.phase is Phase.CLOSING
    await asyncio.sleep(5)
    assert one.phase is Phase.CLOSING
    assert [what for what, _ in peer.asked] == ["eof", "term", "kill"]
    peer.link.die("SIGKILL")
    assert (await one.retired()).signal == "SIGKILL"


@virtual
async def test_a_custodian_that_ends_after_its_client_changes_nothing() -> None:
    keeper = custodian()
    one = prepare_owned(config(), ChannelTransport(TwinPeer(())), keeper)
    await one.start()
    evidence = await one.shutdown(within=10)
    await end(keeper)
    assert (one.evidence, one.reason) == (evidence, "stopped by shutdown")
