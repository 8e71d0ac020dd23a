"""Clients that misbehave (catalogue, group K; socket page, "Load"): each pays for itself, nobody else does."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from support import script as s
from support.household import config
from support.wire import HELLO, Hall, Wire, descriptors, hall
from treadle.broker import listing_of
from treadle.client import Client
from treadle.decoding import MOST_CONTAINERS, read
from treadle.listener import Bounds
from treadle.peers import Access
from treadle.tree import Usage
from treadle.wire.messages import Tool
from treadle_client import frames

LOOPS = ("asyncio", "uvloop")

NEVER = s.script(s.on("tools/call"))
BIG = s.script(s.tools(s.tool("big")), s.per_tool("big", s.text(s.times("x", 200_000))))
MIB = 1024 * 1024


def nested(depth: int) -> bytes:
    payload = bytes.fromhex("84a17601a2696409a46b696e64a463616c6ca4626f647981a161") + b"\x91" * depth + b"\xc0"
    return struct.pack(">I", len(payload)) + payload


def call_of(arguments: bytes, frame_id: int = 9) -> bytes:
    """A call whose arguments are ``arguments``, msgpack already."""
    head = frames.encode(frame_id, "call", {"server": "odd", "tool": "reflect", "arguments": None})[4:-1]
    return struct.pack(">I", len(head) + len(arguments)) + head + arguments


async def unharmed(wire: Wire) -> None:
    """Another client is served as ever."""
    value = await wire.value("call", {"server": "odd", "tool": "echo", "arguments": {"text": "fine"}})
    assert value["content"][0]["text"] == "fine"


async def heartbeats(wire: Wire, busy: asyncio.Future[Any]) -> int:
    """How many heartbeats of ``wire``, one after the other, are answered until ``busy`` is done."""
    count = 0
    while not busy.done():
        await wire.ask("heartbeat", {})
        count += 1
    return count


# --- bytes that are no frames ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rude", "code", "frame_id"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "bad_frame", 0),
        (struct.pack(">I", 2**31), "bad_frame", 0),
        (struct.pack(">I", 16 * MIB + 1) + b"x", "bad_frame", 0),
        (nested(1100), "bad_frame", 9),
        (frames.encode(4, "status", {}).replace(b"\xa1v\x01", b"\xa1v\x02"), "unsupported_version", 4),
        (struct.pack(">I", 0), "bad_frame", 0),
    ],
    ids=["text", "2 GiB", "one byte too long", "1100 levels", "version 2", "empty"],
)
async def test_what_is_no_frame_costs_its_sender_the_connection(
    tmp_path: Path, rude: bytes, code: str, frame_id: int
) -> None:
    async with hall(tmp_path, config()) as place:
        other, wire = await place.connect(), await place.connect()
        asked = wire.send("list", {})
        wire.writer.write(rude)
        served, error = await wire.all()
        await unharmed(other)
    assert served.id == asked
    assert (error.kind, error.body["code"], error.id) == ("error", code, frame_id)


async def test_a_client_that_sends_byte_by_byte_is_served(tmp_path: Path) -> None:
    async with hall(tmp_path, config(), bounds=Bounds(stall_s=0.2, hello_s=0.2, look_s=0.05)) as place:
        wire = await place.connect()
        for byte in frames.encode(5, "list", {}):
            wire.writer.write(bytes([byte]))
            await asyncio.sleep(0.01)
        answer = await wire.frame()
    assert answer is not None
    assert (answer.id, answer.body["ok"]) == (5, True)


async def test_half_a_frame_and_then_nothing_ends_that_connection(tmp_path: Path) -> None:
    async with hall(tmp_path, config(), bounds=Bounds(stall_s=0.1, look_s=0.05)) as place:
        other, wire = await place.connect(), await place.connect()
        wire.writer.write(frames.encode(5, "list", {})[:-3])
        (error,) = await wire.all()
        await unharmed(other)
    assert (error.id, error.body["code"]) == (0, "bad_frame")
    assert "3 bytes of a frame are missing" in error.body["msg"]


async def test_an_idle_client_between_two_frames_is_left_alone(tmp_path: Path) -> None:
    async with hall(tmp_path, config(), bounds=Bounds(stall_s=0.05, hello_s=0.05, look_s=0.02)) as place:
        wire = await place.connect()
        await asyncio.sleep(0.2)
        await unharmed(wire)


async def test_who_never_says_hello_does_not_keep_a_place(tmp_path: Path) -> None:
    async with hall(tmp_path, config(), bounds=Bounds(hello_s=0.1, look_s=0.05)) as place:
        wire = await place.connect(hello=False)
        (error,) = await wire.all()
    assert (error.id, error.body["code"]) == (0, "bad_hello")


# --- clients that do not read ----------------------------------------------------------------------


async def test_ten_thousand_calls_without_reading_are_all_answered_once_the_client_reads(tmp_path: Path) -> None:
    async with hall(tmp_path, config(max_in_flight=1024)) as place:
        other, wire = await place.connect(), await place.connect()
        body = {"server": "odd", "tool": "echo", "arguments": {"text": "hello"}}
        wire.writer.write(b"".join(frames.encode(n, "call", body) for n in range(10_000)))
        await unharmed(other)
        answers = [await wire.frame() for _ in range(10_000)]
        await unharmed(other)
    assert sorted(answer.id for answer in answers if answer is not None) == list(range(10_000))
    kinds = {answer.body["error"]["code"] for answer in answers if answer is not None and not answer.body["ok"]}
    assert kinds <= {"overloaded"}


async def test_a_client_that_does_not_read_is_not_read_from(tmp_path: Path) -> None:
    async with hall(tmp_path, config()) as place:
        other, wire = await place.connect(), await place.connect()
        listing = frames.encode(1, "list", {"server": "odd"})
        wire.writer.write(listing * 5_000)
        await place.until(lambda: all(c.held < 4 * MIB for c in place.listener.connections))
        await unharmed(other)
        stuck = max(place.listener.connections, key=lambda c: c.held)
        # Once the kernel's own buffers are full, nothing more is taken or made.
        seen: list[int] = []
        while len(seen) < 2 or seen[-1] != seen[-2]:
            seen.append(stuck.held)
            await unharmed(other)
        assert stuck.held == seen[-1] < 4 * MIB
        for _ in range(5_000):
            assert (await wire.frame()) is not None


async def test_past_the_hard_cap_of_unread_answers_a_client_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with hall(tmp_path, config(), plays={"odd": BIG}, bounds=Bounds(unread=3 * MIB)) as place:
        other, wire = await place.connect(), await place.connect()
        for _ in range(60):
            wire.call("big")
        await place.until(lambda: len(place.listener.connections) == 1)
        await unharmed(other)
        assert place.listener.in_flight == 0
    assert "bytes of answers unread" in caplog.text


async def test_together_clients_hold_no_more_than_the_bound_and_the_silent_ones_go_first(tmp_path: Path) -> None:
    async with hall(tmp_path, config(), bounds=Bounds(memory=8 * MIB, look_s=0.02)) as place:
        hoarders = [await place.connect() for _ in range(4)]
        for wire in hoarders:
            wire.writer.write(struct.pack(">I", 4 * MIB) + bytes(3 * MIB))
            await wire.writer.drain()
            await asyncio.sleep(0.05)
        await place.until(lambda: len(place.listener.connections) == 2)
        assert sum(connection.held for connection in place.listener.connections) <= 8 * MIB
        await unharmed(await place.connect())
        assert await hoarders[0].frame() is None


# --- one client's load and another's latency -------------------------------------------------------


async def test_a_thousand_frames_in_one_write_do_not_starve_another_client(tmp_path: Path) -> None:
    async with hall(tmp_path, config()) as place:
        other, wire = await place.connect(), await place.connect()
        count = 3000
        wire.writer.write(frames.encode(1, "status", {}) * count)
        other.send("heartbeat", {}, 77)
        while (answer := await other.frame()) is not None and answer.id != 77:
            pass
        # Most of the flood waits for its turns still.
        assert any(connection.is_busy for connection in place.listener.connections)
        for _ in range(count):
            assert (await wire.frame()) is not None


async def test_floods_of_many_clients_share_one_slice_of_the_loop(tmp_path: Path) -> None:
    async with hall(tmp_path, config()) as place:
        other = await place.connect()
        flooders = [await place.connect() for _ in range(20)]
        served = 0

        async def flood(wire: Wire) -> None:
            nonlocal served
            wire.writer.write(frames.encode(1, "status", {}) * 400)
            for _ in range(400):
                await wire.frame()
                served += 1

        busy = asyncio.gather(*(flood(wire) for wire in flooders))
        worst = 0
        while not busy.done():
            before = served
            await other.ask("heartbeat", {})
            worst = max(worst, served - before)
    # A few rounds of sixteen frames each, of 20 * 400: what was read already, and the slices of a turn or two.
    assert worst <= 20 * 16 * 6


@pytest.mark.parametrize(
    "arguments",
    [
        b"\x81\xa1a\xdd" + struct.pack(">I", 900_000) + b"\xcb@\x01\xc0\x00\x00\x00\x00\x00" * 900_000,
        b"\x81\xa1a\xdd" + struct.pack(">I", MIB // 4) + b"\x81\x90\xc0" * (MIB // 16),
    ],
    ids=["many values", "wrong in its last byte"],
)
async def test_a_hostile_large_frame_is_decoded_beside_the_loop(tmp_path: Path, arguments: bytes) -> None:
    async with hall(tmp_path, config()) as place:
        other, wire = await place.connect(), await place.connect()
        wire.writer.write(call_of(arguments))
        answering = asyncio.ensure_future(wire.frame())
        beats = await heartbeats(other, answering)
        assert answering.result() is not None
        await unharmed(other)
    # Decoded on the loop, it would let at most one of them pass.
    assert beats >= 3


async def test_a_call_of_too_many_values_is_refused_in_band(tmp_path: Path) -> None:
    count = MOST_CONTAINERS + 1
    async with hall(tmp_path, config()) as place:
        wire = await place.connect()
        wire.writer.write(call_of(b"\x81\xa1a\xdd" + struct.pack(">I", count) + b"\x90" * count))
        answer = await wire.frame()
        await unharmed(wire)
    assert answer is not None
    assert (answer.id, answer.body["error"]["code"]) == (9, "invalid_argument")
    assert "more than 100000 arrays and maps" in answer.body["error"]["msg"]


async def test_clients_that_send_a_flood_of_values_and_close_cost_another_next_to_nothing(tmp_path: Path) -> None:
    count = 15 * MIB
    bomb = call_of(b"\x81\xa1a\xdd" + struct.pack(">I", count) + b"\x90" * count)
    async with hall(tmp_path, config()) as place:
        other = await place.connect()
        for _ in range(6):
            rude = await place.connect()
            rude.writer.write(bomb)
            await rude.writer.drain()
            await rude.close()
        body = {"server": "odd", "tool": "echo", "arguments": {"text": "x" * 100_000}, "timeout_ms": 2000}
        assert len((await other.value("call", body))["content"][0]["text"]) == 100_000
        await place.until(lambda: len(place.listener.connections) == 1)


async def test_the_time_in_which_a_frame_is_decoded_is_part_of_the_calls_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(reader: frames.FrameReader, data: bytes) -> tuple[list[frames.Frame], int]:
        time.sleep(0.1)
        return read(reader, data)

    monkeypatch.setattr("treadle.decoding.read", slowly)
    async with hall(tmp_path, config()) as place:
        wire = await place.connect()
        body = {"server": "odd", "tool": "echo", "arguments": {"text": "x" * 100_000}, "timeout_ms": 50}
        answer = await wire.ask("call", body)
    assert (answer.body["error"]["code"], answer.body["error"]["outcome"]) == ("mcp_timeout", "not_sent")


@pytest.mark.parametrize("size", [10, 100_000, 9 * MIB], ids=["small", "large", "too large"])
async def test_a_listing_is_made_once_however_often_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    made: list[bool] = []

    def counted(name: str, tools: tuple[Tool, ...], *, schemas: bool) -> dict[str, Any]:
        made.append(schemas)
        return listing_of(name, tools, schemas=schemas)

    monkeypatch.setattr("treadle.requests.listing_of", counted)
    # Two of the largest pass what a frame may hold.
    entries = [{**s.tool(name), "inputSchema": {"type": "object", "title": s.times("x", size)}} for name in "ab"]
    async with hall(tmp_path, config(), plays={"odd": s.script(s.pages(entries[:1], entries[1:]))}) as place:
        wire = await place.connect()
        asked = [wire.send("list", {"server": "odd"}) for _ in range(5)]
        answers = [await wire.frame() for _ in asked]
        bare = await wire.value("list", {"server": "odd", "schemas": False})
    assert [answer.id for answer in answers if answer is not None] == asked
    assert {answer.body["ok"] for answer in answers if answer is not None} == {size < MIB}
    assert [tool["name"] for tool in bare["tools"]] == ["a", "b"]
    assert made == [True, False]


async def test_a_look_at_many_processes_is_taken_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, go_on = threading.Event(), threading.Event()

    def slowly(client: Client) -> Usage:
        seen.set()
        assert go_on.wait(10)
        return Usage(4000, 1, 0.5)

    monkeypatch.setattr(Client, "usage", slowly)
    async with hall(tmp_path, config()) as place:
        other, wire = await place.connect(), await place.connect()
        wire.send("status", {"processes": True})
        await place.until(seen.is_set)
        await unharmed(other)
        go_on.set()
        answer = await wire.frame()
    assert answer is not None
    assert answer.body["value"]["servers"][0]["tree"] == {"processes": 4000, "rss_bytes": 1, "cpu_s": 0.5}


async def test_frames_behind_a_large_one_keep_their_order(tmp_path: Path) -> None:
    async with hall(tmp_path, config()) as place:
        wire = await place.connect()
        large = frames.encode(1, "heartbeat", {"x": "y" * (2 * MIB)})
        wire.writer.write(large + frames.encode(2, "heartbeat", {}) + large + frames.encode(3, "heartbeat", {}))
        wire.writer.write_eof()
        assert [frame.id for frame in await wire.all()] == [1, 2, 1, 3]


# --- many clients ----------------------------------------------------------------------------------


async def test_two_hundred_clients_at_once(tmp_path: Path) -> None:
    async def one(place: Hall, number: int) -> str:
        wire = await place.connect()
        body = {"server": "odd", "tool": "echo", "arguments": {"text": f"client {number}"}}
        text: str = (await wire.value("call", body))["content"][0]["text"]
        return text

    async with hall(tmp_path, config(max_in_flight=256)) as place:
        texts = await asyncio.gather(*(one(place, number) for number in range(200)))
        assert len(place.listener.connections) == 200
    assert texts == [f"client {number}" for number in range(200)]


async def test_a_thousand_connects_leave_nothing_behind(tmp_path: Path) -> None:
    async with hall(tmp_path, config()) as place:
        before = descriptors()
        call = {"server": "odd", "tool": "echo", "arguments": {}}
        sent = (
            b"",
            frames.encode(1, "hello", HELLO),
            frames.encode(1, "hello", HELLO) + frames.encode(2, "call", call),
        )
        for number in range(1000):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(place.path)
                client.sendall(sent[number % 3])
            await asyncio.sleep(0)
        await place.until(lambda: not place.listener.connections)
        await place.until(lambda: descriptors() <= before)
        assert place.listener.in_flight == 0
        await unharmed(await place.connect())


async def test_disconnects_in_the_middle_of_calls_free_their_places(tmp_path: Path) -> None:
    async with hall(tmp_path, config(max_in_flight=4), plays={"odd": NEVER}) as place:
        for _ in range(5):
            wire = await place.connect()
            for _ in range(4):
                wire.call()
            await place.until(lambda: place.row["in_flight"] == 4)
            await wire.close()
            await place.until(lambda: place.row["in_flight"] == 0)


# --- who may connect -------------------------------------------------------------------------------

NOBODY = Access(users=frozenset(), groups=frozenset(), admins=frozenset())


async def test_a_peer_that_may_not_connect_reads_denied_and_is_logged_with_uid_and_pid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with hall(tmp_path, config(), access=NOBODY) as place:
        wire = await place.connect(hello=False)
        wire.send("hello", HELLO)
        (error,) = await wire.all()
    assert (error.id, error.kind, error.body["code"]) == (0, "error", "denied")
    assert any("uid " in record.message and "pid " in record.message for record in caplog.records)


async def test_a_flood_of_refusals_does_not_fill_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with hall(tmp_path, config(), access=NOBODY) as place:
        for _ in range(200):
            wire = await place.connect(hello=False)
            assert await wire.all()
    assert 20 <= len([record for record in caplog.records if "refused" in record.message]) < 40


async def test_management_needs_an_administrator(tmp_path: Path) -> None:
    me = Access.of((), (), ())
    access = Access(users=me.users, groups=frozenset(), admins=frozenset())
    async with hall(tmp_path, config(), access=access) as place:
        wire = await place.connect()
        for kind in ("stop", "start", "restart", "reload", "shutdown"):
            error = (await wire.ask(kind, {"server": "odd"})).body["error"]
            assert (error["code"], error["outcome"]) == ("denied", "not_sent")
        for kind in ("list", "status", "logs"):
            assert (await wire.ask(kind, {"server": "odd"})).body["ok"]
        assert (place.reloads, place.row["state"]) == (0, "ready")


async def test_who_may_not_connect_any_more_is_turned_away(tmp_path: Path) -> None:
    async with hall(tmp_path, config(), plays={"odd": NEVER}) as place:
        wire = await place.connect()
        wire.call()
        await place.until(lambda: place.row["in_flight"] == 1)
        place.listener.set_access(NOBODY)
        (error,) = await wire.all()
        await place.until(lambda: place.row["in_flight"] == 0)
    assert error.body["code"] == "denied"
