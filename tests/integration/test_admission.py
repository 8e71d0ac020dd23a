"""Admission (socket page, "Load"): every limit is named, nothing waits without bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support import script as s
from support.household import config
from support.wire import Wire, hall

LOOPS = ("asyncio", "uvloop")

NEVER = s.script(s.on("tools/call"))
NEVER_READY = s.script(s.on("initialize"))
ONE_BY_ONE = s.script(s.per_tool("wait", s.sleep(0.08), s.text("done")))


async def error(wire: Wire) -> dict[str, Any]:
    answer = await wire.frame()
    assert answer is not None
    found: dict[str, Any] = answer.body["error"]
    return found


async def test_past_a_connections_limit_a_call_is_overloaded_and_another_connection_is_not(tmp_path: Path) -> None:
    keys = {"max_in_flight_per_connection": 2}
    async with hall(tmp_path, config(), config("still"), plays={"still": NEVER}, **keys) as place:
        wire, other = await place.connect(), await place.connect()
        for _ in range(3):
            wire.call(server="still")
        refused = await error(wire)
        assert (await other.ask("call", {"server": "odd", "tool": "echo", "arguments": {}})).body["ok"]
        assert (await wire.ask("status", {})).body["ok"]
    assert (refused["code"], refused["outcome"]) == ("overloaded", "not_sent")
    assert "max_in_flight_per_connection = 2" in refused["msg"]


async def test_past_the_limit_in_all_a_call_is_overloaded_whichever_connection_it_comes_from(
    tmp_path: Path,
) -> None:
    async with hall(tmp_path, config(), plays={"odd": NEVER}, max_in_flight=3) as place:
        wires = [await place.connect() for _ in range(4)]
        for wire in wires:
            wire.call()
        refused = await error(wires[3])
        await wires[0].close()
        await place.until(lambda: place.listener.in_flight == 2)
        wires[3].call(timeout_ms=30)
        assert (await error(wires[3]))["code"] == "mcp_timeout"
    assert refused["code"] == "overloaded"
    assert "max_in_flight = 3" in refused["msg"]


async def test_past_a_servers_limit_a_call_is_overloaded_and_another_server_is_not(tmp_path: Path) -> None:
    async with hall(tmp_path, config(max_in_flight=2), config("other"), plays={"odd": NEVER}) as place:
        wire = await place.connect()
        for _ in range(3):
            wire.call()
        refused = await error(wire)
        wire.call(server="other")
        answer = await wire.frame()
    assert (refused["code"], refused["outcome"]) == ("overloaded", "not_sent")
    assert "server odd" in refused["msg"]
    assert "max_in_flight = 2" in refused["msg"]
    assert answer is not None
    assert answer.body["ok"]


async def test_past_max_connections_a_client_reads_one_error_and_the_end(tmp_path: Path) -> None:
    async with hall(tmp_path, config(), max_connections=2) as place:
        first, _second = await place.connect(), await place.connect()
        third = await place.connect(hello=False)
        (refused,) = await third.all()
        await first.close()
        await place.until(lambda: len(place.listener.connections) == 1)
        assert (await (await place.connect()).ask("list", {})).body["ok"]
    assert (refused.kind, refused.id, refused.body["code"]) == ("error", 0, "denied")
    assert "max_connections = 2" in refused.body["msg"]


async def test_a_queue_takes_as_many_as_it_says_and_their_time_in_it_does_not_count(tmp_path: Path) -> None:
    server = config(max_in_flight=1, queue=1, queue_timeout_ms=5000)
    async with hall(tmp_path, server, plays={"odd": ONE_BY_ONE}) as place:
        wire = await place.connect()
        first, second, third = (wire.call("wait", timeout_ms=150) for _ in range(3))
        refused = await wire.frame()
        assert refused is not None
        assert (refused.id, refused.body["error"]["code"]) == (third, "overloaded")
        assert "queue = 1" in refused.body["error"]["msg"]
        answers = [await wire.frame() for _ in range(2)]
    # The second waited 80 ms and then took 80 ms: more than 150 ms in all, but less of its own.
    assert [(answer.id, answer.body["ok"]) for answer in answers if answer] == [(first, True), (second, True)]


async def test_a_call_that_waits_too_long_in_the_queue_is_overloaded_and_names_its_time_out(
    tmp_path: Path,
) -> None:
    server = config(max_in_flight=1, queue=5, queue_timeout_ms=50)
    async with hall(tmp_path, server, plays={"odd": NEVER}) as place:
        wire = await place.connect()
        wire.call()
        wire.call(timeout_ms=10_000)
        refused = await error(wire)
    assert (refused["code"], refused["outcome"]) == ("overloaded", "not_sent")
    assert "queue_timeout_ms = 50" in refused["msg"]


async def test_calls_that_wait_for_a_start_are_bounded_too_and_keep_their_deadline(tmp_path: Path) -> None:
    server = config(max_in_flight=2)
    async with hall(tmp_path, server, plays={"odd": NEVER_READY}, settled=False) as place:
        wire = await place.connect()
        for _ in range(3):
            wire.call(timeout_ms=60)
        codes = [(await error(wire)) for _ in range(3)]
    assert [one["code"] for one in codes] == ["overloaded", "mcp_timeout", "mcp_timeout"]
    assert {one["outcome"] for one in codes} == {"not_sent"}
