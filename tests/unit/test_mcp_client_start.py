"""The start of a client: its errors and its budgets (client page, section 4)."""

from __future__ import annotations

import asyncio
import re

import pytest

from support import script as s
from support.household import (
    client,
    client_of,
    sent,
)
from support.twin import TwinPeer
from support.virtual import now, turns, virtual
from treadle.channel import Peer
from treadle.client import Client
from treadle.config import ServerConfig
from treadle.errors import (
    HandshakeFailed,
    StartFault,
    StartTimedOut,
    Stopped,
    ToolsNotDeclared,
    TransportFailed,
    Unavailable,
    VersionUnsupported,
    explain,
)
from treadle.phases import Phase
from treadle.transport import KILL_NOW, NO_RESOURCE

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
