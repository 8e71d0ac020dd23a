"""The in-process peer keeps the contract of the transport seam."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from treadle.channel import ChannelTransport, Link, Peer
from treadle.errors import ChannelClosed, Fault, TransportFailed
from treadle.transport import KILL_NOW, NO_RESOURCE, Evidence, Ladder

PATIENCE = Ladder(term_after=60, kill_after=120)


class Client:
    """A receiver that keeps what it was told, in order."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.rooms = 0
        self.reasons: list[str] = []
        self.over = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        assert not self.reasons
        self.chunks.append(data)

    def writable(self) -> None:
        self.rooms += 1

    def closed(self, reason: Fault) -> None:
        assert isinstance(reason, ChannelClosed)
        self.reasons.append(str(reason))
        self.over.set()


class Scripted(Peer):
    """A peer whose reactions a test chooses; by default it keeps what it receives and outlives every request."""

    def __init__(self, *at_start: Callable[[Link], object]) -> None:
        self.at_start = at_start
        self.seen: list[str | bytes] = []
        self.rooms = 0

    def opened(self, link: Link) -> None:
        super().opened(link)
        for action in self.at_start:
            action(link)

    def data_received(self, data: bytes) -> None:
        self.seen.append(data)

    def writable(self) -> None:
        self.rooms += 1

    def eof_received(self) -> None:
        self.seen.append("eof")

    def terminated(self) -> None:
        self.seen.append("SIGTERM")

    def killed(self) -> None:
        self.seen.append("SIGKILL")


async def opened(peer: Peer, *, window: int = 65536) -> tuple[ChannelTransport, Client]:
    transport, client = ChannelTransport(peer, window=window), Client()
    await transport.open(client)
    await turns()
    return transport, client


async def turns(number: int = 5) -> None:
    """Let the loop turn a few times: that is all the time a channel needs."""
    for _ in range(number):
        await asyncio.sleep(0)


# --- bytes ---------------------------------------------------------------------------------------------------


async def test_what_each_side_sends_arrives_at_the_other_chunk_by_chunk() -> None:
    peer = Scripted(lambda link: link.send(b"one"), lambda link: link.send(b"two"))
    transport, client = await opened(peer)
    assert (transport.send(b"abc"), transport.send(memoryview(b"de"))) == (3, 2)
    await turns()
    assert client.chunks == [b"one", b"two"]
    assert peer.seen == [b"abc", b"de"]


async def test_nothing_is_called_back_inside_open_or_send() -> None:
    peer = Scripted(lambda link: link.exit(0))
    transport, client = ChannelTransport(peer), Client()
    await transport.open(client)
    assert client.reasons == []
    transport.send(b"x")
    assert peer.seen == []


async def test_a_send_takes_only_what_the_window_holds_and_says_once_when_there_is_room() -> None:
    peer = Scripted()
    transport, client = await opened(peer, window=10)
    peer.link.pause_reading()
    assert [transport.send(b"x" * 7), transport.send(b"y" * 7), transport.send(b"z")] == [7, 3, 0]
    await turns()
    assert (peer.seen, client.rooms) == ([], 0)
    peer.link.resume_reading()
    await turns()
    assert (peer.seen, client.rooms) == ([b"x" * 7, b"y" * 3], 1)
    assert transport.send(b"z" * 10) == 10
    await turns()
    assert client.rooms == 1


async def test_the_peer_is_held_back_in_the_same_way() -> None:
    peer = Scripted()
    _, client = await opened(peer, window=4)
    assert peer.link.send(b"abcdef") == 4
    await turns()
    assert (client.chunks, peer.rooms) == ([b"abcd"], 1)


async def test_a_transport_that_is_not_open_takes_nothing() -> None:
    assert ChannelTransport(Peer()).send(b"x") == 0


# --- the end of the channel ----------------------------------------------------------------------------------


async def test_the_end_is_told_once_after_the_last_chunk() -> None:
    peer = Scripted(lambda link: link.send(b"last"), lambda link: link.exit(3), lambda link: link.die("SIGKILL"))
    transport, client = await opened(peer)
    assert (client.chunks, client.reasons) == ([b"last"], ["the server exited with status 3"])
    assert transport.send(b"x") == 0
    assert peer.link.send(b"x") == 0
    await turns()
    assert len(client.reasons) == 1


async def test_a_reason_holds_the_signal_and_what_stderr_said_last() -> None:
    said = b"one\ntwo\nthree\n\x1b[31mfour\n\n"
    _, client = await opened(Scripted(lambda link: link.stderr(said), lambda link: link.die("SIGSEGV")))
    assert client.reasons == ["the server was killed by SIGSEGV; stderr: two | three |  [31mfour"]


async def test_a_closed_stdout_ends_the_channel_and_not_the_custody() -> None:
    peer = Scripted(lambda link: link.close_stdout())
    transport, client = await opened(peer)
    assert client.reasons == ["the server closed its stdout"]
    transport.send(b"still read")
    await turns()
    assert peer.seen == [b"still read"]
    peer.link.exit(0)
    assert (await transport.retire(PATIENCE)).status == 0
    assert len(client.reasons) == 1


async def test_a_write_to_a_closed_stdin_ends_the_channel() -> None:
    transport, client = await opened(Scripted(lambda link: link.close_stdin()))
    assert client.reasons == []
    assert transport.send(b"x") == 0
    await client.over.wait()
    assert client.reasons == ["a write to the server failed: it closed its stdin"]


# --- stderr --------------------------------------------------------------------------------------------------


async def test_stderr_is_counted_bounded_sanitised_and_redacted() -> None:
    peer = Peer()
    transport = ChannelTransport(peer, redact=lambda text: text.replace("hunter2", "[redacted]"))
    await transport.open(Client())
    await turns()
    peer.link.stderr(b"x" * 200_000 + b"\n\xff\x07 hunter2\nend")
    assert transport.stderr_bytes == 200_000 + 15
    assert transport.stderr_tail().endswith("\n\ufffd  [redacted]\nend")
    assert len(transport.stderr_tail()) <= 65536
    assert transport.stderr_tail(5) == "]\nend"


# --- opening and retirement ----------------------------------------------------------------------------------


async def test_what_was_never_opened_retires_without_a_resource_and_stays_shut() -> None:
    transport = ChannelTransport(Peer())
    assert await transport.retire(PATIENCE) is NO_RESOURCE
    with pytest.raises(TransportFailed):
        await transport.open(Client())


async def test_a_failed_opening_leaves_no_resource() -> None:
    async def refuse() -> None:
        raise TransportFailed("no such program")

    transport = ChannelTransport(Peer(), opening=refuse)
    with pytest.raises(TransportFailed, match="no such program"):
        await transport.open(Client())
    assert await transport.retire(PATIENCE) is NO_RESOURCE


async def test_a_retirement_during_the_opening_prevents_it() -> None:
    gate = asyncio.Event()
    peer = Scripted()

    async def opening() -> None:
        await gate.wait()

    transport = ChannelTransport(peer, opening=opening)
    task = asyncio.create_task(transport.open(Client()))
    await turns()
    assert await transport.retire(PATIENCE) is NO_RESOURCE
    gate.set()
    with pytest.raises(TransportFailed):
        await task
    assert not hasattr(peer, "link")


async def test_a_peer_that_ended_by_itself_needs_no_rung() -> None:
    transport, _ = await opened(Scripted(lambda link: link.exit(7)))
    expected = Evidence(kind="exited", status=7, rung="itself", drained=True)
    assert await transport.retire(PATIENCE) == expected
    assert await transport.retire(KILL_NOW) == expected


class Ends(Scripted):
    """Ends on one rung only."""

    def __init__(self, rung: str) -> None:
        super().__init__()
        self.rung = rung

    def eof_received(self) -> None:
        super().eof_received()
        if self.rung == "eof":
            self.link.exit(0)

    def terminated(self) -> None:
        super().terminated()
        if self.rung == "term":
            self.link.die("SIGTERM")

    def killed(self) -> None:
        super().killed()
        if self.rung == "kill":
            self.link.die("SIGKILL")


@pytest.mark.parametrize(
    ("rung", "steps", "status", "signal"),
    [
        ("eof", ["eof"], 0, None),
        ("term", ["eof", "SIGTERM"], None, "SIGTERM"),
        ("kill", ["eof", "SIGTERM", "SIGKILL"], None, "SIGKILL"),
    ],
)
async def test_the_ladder_goes_as_far_as_the_peer_needs(
    rung: str, steps: list[str], status: int | None, signal: str | None
) -> None:
    peer = Ends(rung)
    transport, client = await opened(peer)
    evidence = await transport.retire(Ladder(term_after=0.01, kill_after=0.02))
    assert (evidence.kind, evidence.rung, evidence.status, evidence.signal) == ("exited", rung, status, signal)
    assert evidence.confirmed
    assert peer.seen == steps
    await client.over.wait()


async def test_eof_comes_after_everything_that_was_sent() -> None:
    peer = Ends("eof")
    transport, _ = await opened(peer)
    transport.send(b"work")
    await transport.retire(PATIENCE)
    assert peer.seen == [b"work", "eof"]


async def test_a_later_request_can_only_hurry_the_ladder() -> None:
    peer = Ends("kill")
    transport, _ = await opened(peer)
    slow = asyncio.create_task(transport.retire(Ladder(term_after=60, kill_after=120)))
    await turns()
    quick = asyncio.create_task(transport.retire(KILL_NOW))
    slower = asyncio.create_task(transport.retire(PATIENCE))
    evidence = await slow
    assert evidence.rung == "kill"
    assert (await quick, await slower) == (evidence, evidence)
    assert peer.seen == ["eof", "SIGKILL"]


async def test_a_cancelled_caller_does_not_cancel_the_custody() -> None:
    peer = Ends("term")
    transport, _ = await opened(peer)
    caller = asyncio.create_task(transport.retire(Ladder(term_after=0.01, kill_after=60)))
    await turns()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert (await transport.retire(PATIENCE)).rung == "term"


async def test_without_an_end_there_is_no_evidence() -> None:
    peer = Scripted()
    transport, _ = await opened(peer)
    waiting = asyncio.create_task(transport.retire(KILL_NOW))
    done, _ = await asyncio.wait([waiting], timeout=0.02)
    assert not done
    assert peer.seen == ["eof", "SIGKILL"]
    peer.link.die("SIGKILL")
    assert (await waiting).elapsed_ms >= 10


async def test_a_peer_that_vanished_leaves_no_proof() -> None:
    transport, client = await opened(Scripted(lambda link: link.vanish("somebody else reaped the child")))
    evidence = await transport.retire(PATIENCE)
    assert (evidence.kind, evidence.drained, evidence.confirmed) == ("unknown", None, False)
    assert client.reasons == ["somebody else reaped the child"]


async def test_a_peer_has_no_process() -> None:
    transport, _ = await opened(Peer())
    assert transport.pid is None
    assert (await transport.retire(PATIENCE)).rung == "eof"
