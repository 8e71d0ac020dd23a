"""The register of clients and the rows of their retirement, in virtual time (client page, sections 4 and 5)."""

from __future__ import annotations

import asyncio

import pytest

from support import script as s
from support.household import Deaf, client, client_of, config
from support.virtual import now, turns, virtual
from treadle.census import Census
from treadle.channel import ChannelTransport, Peer
from treadle.client import Client
from treadle.errors import RetirementTimedOut, RetirementUnconfirmed, StartFault
from treadle.transport import KILL_NOW, NO_RESOURCE, Evidence


def published(census: Census, *clients: Client) -> None:
    for one in clients:
        census.publish(one)


async def fails(one: Client) -> None:
    with pytest.raises(StartFault):
        await one.start()


@virtual
async def test_a_client_that_never_opened_is_retired_with_no_resource() -> None:
    census = Census()
    published(census, client(name="a"), client(name="b"))
    assert census.uncertain == ["a", "b"]
    rows = await census.retire(["a", "b"], None, 1)
    assert [(row.server, row.evidence, row.confirmed) for row in rows] == [
        ("a", NO_RESOURCE, True),
        ("b", NO_RESOURCE, True),
    ]
    assert census.uncertain == []


@virtual
async def test_a_server_without_a_client_has_nothing_to_retire() -> None:
    (row,) = await Census().retire(["nobody"], None, 1)
    assert row.to_body() == {
        "name": "nobody",
        "evidence": {"kind": "no_resource", "elapsed_ms": 0, "drained": True, "stragglers": 0},
    }


@virtual
async def test_a_failed_start_stays_in_the_census_until_its_retirement_is_proven() -> None:
    census = Census()
    peer = Deaf()
    failed = client_of(peer, handshake_timeout_ms=100)
    published(census, failed)
    await fails(failed)
    published(census, client())
    assert census.of("odd")[0] is failed
    assert len(census.of("odd")) == 2
    peer.link.die("SIGKILL")
    await failed.retired()
    published(census, client())
    assert failed not in census.of("odd")


@virtual
async def test_servers_are_retired_all_at_once() -> None:
    census = Census()
    slow = s.script(s.on_eof(s.sleep(1), s.exit(0)))
    clients = [client(slow, name=name, stop_timeout_ms=60_000) for name in ("a", "b", "c")]
    published(census, *clients)
    await asyncio.gather(*(one.start() for one in clients))
    rows = await census.retire(["c", "a", "b"], None, 60)
    assert [row.server for row in rows] == ["c", "a", "b"]
    assert all(row.confirmed for row in rows)
    assert now() == pytest.approx(1, abs=0.01)


@virtual
async def test_a_retirement_without_evidence_is_a_row_and_no_exception() -> None:
    census = Census()
    late, gone = Deaf(), Deaf()
    clients = [
        client_of(late, name="late", handshake_timeout_ms=1),
        client_of(gone, name="gone", handshake_timeout_ms=1),
    ]
    published(census, *clients)
    await asyncio.gather(*(fails(one) for one in clients))
    gone.link.vanish("reaped by somebody else")
    rows = await census.retire(["late", "gone"], None, 20)
    assert [row.to_body().get("error") for row in rows] == ["retirement_timed_out", "retirement_unconfirmed"]
    assert [type(row.fault) for row in rows] == [RetirementTimedOut, RetirementUnconfirmed]
    assert not any(row.confirmed for row in rows)
    assert census.uncertain == ["late", "gone"]
    late.link.die("SIGKILL")
    (row,) = await census.retire(["late"], None, 1)
    assert row.confirmed


@virtual
async def test_descendants_that_are_left_confirm_nothing() -> None:
    class Leaving(Client):
        async def shutdown(self, **_: object) -> Evidence:
            self.evidence = Evidence(kind="exited", status=0, rung="eof", drained=False, by="sweep", stragglers=1)
            return self.evidence

    census = Census()
    published(census, Leaving(config(), ChannelTransport(Peer())))
    (row,) = await census.retire(["odd"], None, 1)
    assert not row.confirmed
    assert row.to_body()["error"] == "retirement_unconfirmed"
    assert row.to_body()["evidence"]["drained"] is False
    assert census.uncertain == ["odd"]


@virtual
async def test_one_incarnation_that_is_not_proven_spoils_the_row_of_its_server() -> None:
    census = Census()
    peer = Deaf()
    old, new = client_of(peer, handshake_timeout_ms=1), client()
    published(census, old)
    await fails(old)
    published(census, new)
    await new.start()
    (row,) = await census.retire(["odd"], None, 20)
    assert not row.confirmed
    assert isinstance(row.fault, RetirementTimedOut)
    assert new.evidence is not None, "what can be retired is retired none the less"
    peer.link.die("SIGKILL")
    assert (await census.retire(["odd"], None, 0.001))[0].confirmed


@virtual
async def test_a_hurry_sends_sigkill_to_all_that_run_and_leaves_the_parked_alone() -> None:
    census = Census()
    closing, starting = Deaf(), Deaf()
    one = client_of(closing, name="closing", handshake_timeout_ms=1)
    two = client_of(starting, name="starting")
    parked = client_of(Peer(), name="parked")
    published(census, one, two, parked)
    await fails(one)
    task = asyncio.ensure_future(fails(two))
    await turns()
    began = now()
    census.hurry(KILL_NOW)
    await asyncio.sleep(0.01)
    for peer in (closing, starting):
        assert peer.asked[-1][0] == "kill"
        assert peer.asked[-1][1] == pytest.approx(began, abs=0.002)
        peer.link.die("SIGKILL")
    await task
    assert parked.evidence is None
