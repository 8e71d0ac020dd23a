"""The socket's conversation, frame by frame (socket page): hello, every kind, ids, order, cancel, half-close."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

import treadle
from support import script as s
from support.household import config
from support.wire import HELLO, hall
from treadle_client import frames

LOOPS = ("asyncio", "uvloop")

NEVER = s.script(s.on("tools/call"))
NEVER_READY = s.script(s.on("initialize"))
LATE = s.script(s.per_tool("wait", s.sleep(0.05), s.text("late")))


def error_of(frame: frames.Frame | None) -> dict[str, Any]:
    assert frame is not None
    assert set(frame.body) == {"ok", "error"}
    assert frame.body["ok"] is False
    error: dict[str, Any] = frame.body["error"]
    return error


# --- hello -----------------------------------------------------------------------------------------


async def test_hello_is_answered_with_its_id_the_version_the_features_and_the_limits(tmp_path: Path) -> None:
    async with hall(tmp_path, config(), max_in_flight_per_connection=7) as place:
        wire = await place.connect(hello=False)
        answer = await wire.ask("hello", HELLO, frame_id=99)
    assert answer.kind == "hello"
    assert set(answer.body) == {"proto", "peer", "features", "limits"}
    assert (answer.body["proto"], answer.body["peer"]) == (1, f"treadle/{treadle.__version__}")
    assert {"cancel", "cap_call"} <= set(answer.body["features"])
    assert answer.body["limits"]["max_frame_bytes"] == 16 * 1024 * 1024
    assert answer.body["limits"]["max_in_flight"] == 7


async def test_hello_and_a_call_in_one_write_are_both_answered(tmp_path: Path) -> None:
    async with hall(tmp_path, config()) as place:
        wire = await place.connect(hello=False)
        wire.send("hello", HELLO)
        wire.call()
        first, second = await wire.frame(), await wire.frame()
    assert first is not None
    assert second is not None
    assert (first.kind, second.body["value"]["content"]) == ("hello", [{"type": "text", "text": "hello"}])


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("call", {}, "the first frame must be hello"),
        ("hello", {**HELLO, "proto": 2}, "proto"),
        ("hello", {**HELLO, "proto": True}, "proto"),
        ("hello", {"proto": 1, "features": []}, "peer"),
        ("hello", {**HELLO, "peer": 7}, "peer"),
        ("hello", {"proto": 1, "peer": "x"}, "features"),
        ("hello", {**HELLO, "features": [1]}, "features"),
    ],
)
async def test_a_bad_hello_gets_one_error_frame_and_the_end(
    tmp_path: Path, kind: str, body: dict[str, Any], message: str
) -> None:
    async with hall(tmp_path, config()) as place:
        wire = await place.connect(hello=False)
        wire.send(kind, body, 5)
        wire.send("status", {})
        (answer,) = await wire.all()
    assert (answer.id, answer.kind, answer.body["code"]) == (5, "error", "bad_hello")
    assert message in answer.body["msg"]


async def test_a_second_hello_is_refused(tmp_path: Path) -> None:
    async with hall(tmp_path, config()) as place:
        wire = await place.connect()
        wire.send("hello", HELLO, 9)
        (answer,) = await wire.all()
    assert (answer.id, answer.kind, answer.body["code"]) == (9, "error", "bad_hello")


# --- the kinds -------------------------------------------------------------------------------------


async def test_a_call_carries_content_is_error_and_structured_only_when_sent(tmp_path: Path) -> None:
    async with hall(tmp_path, config()) as place:
        wire = await place.connect()
        plain = await wire.value("call", {"server": "odd", "tool": "echo", "arguments": {"text": "hi"}})
        rich = await wire.value("call", {"server": "odd", "tool": "reflect", "arguments": {"a": [1, None]}})
        said_no = await wire.value("call", {"server": "odd", "tool": "fail", "arguments": {"text": "no"}})
    assert plain == {"content": [{"type": "text", "text": "hi"}], "is_error": False}
    assert rich["structured"] == {"a": [1, None]}
    assert said_no == {"content": [{"type": "text", "text": "no"}], "is_error": True}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"server": None}, "body.server"),
        ({"tool": 3}, "body.tool"),
        ({"arguments": None}, "body.arguments"),
        ({"arguments": []}, "body.arguments"),
        ({"timeout_ms": 0}, "body.timeout_ms"),
        ({"timeout_ms": 1.5}, "body.timeout_ms"),
        ({"content": "some"}, "body.content"),
        ({"arguments": {"a": math.inf}}, "$.a"),
        ({"arguments": {"a": [{"b": b"raw"}]}}, "$.a[0].b"),
    ],
)
async def test_a_call_of_another_shape_is_an_invalid_argument_with_its_path(
    tmp_path: Path, change: dict[str, Any], path: str
) -> None:
    async with hall(tmp_path, config()) as place:
        wire = await place.connect()
        wire.call(**change)
        error = error_of(await wire.frame())
        assert (await wire.ask("heartbeat", {})).kind == "heartbeat"
    assert (error["code"], error["outcome"]) == ("invalid_argument", "not_sent")
    assert error["msg"].startswith(f"{path}:")


async def test_list_names_the_servers_and_the_tools_of_one_with_or_without_schemas(tmp_path: Path) -> None:
    async with hall(tmp_path, config(), config("down", enabled=False)) as place:
        wire = await place.connect()
        rows = await wire.value("list", {})
        listing = await wire.value("list", {"server": "odd"})
        bare = await wire.value("list", {"server": "odd", "schemas": False})
        down = error_of(await wire.ask("list", {"server": "down"}))
        nobody = error_of(await wire.ask("list", {"server": "nobody"}))
    assert rows[0] == {"name": "odd", "state": "ready", "tools": 10}
    assert (rows[1]["name"], rows[1]["state"], rows[1]["tools"]) == ("down", "disabled", 0)
    assert set(listing) == {"server", "tools"}
    assert set(listing["tools"][0]) == {"name", "description", "input_schema"}
    assert set(bare["tools"][0]) == {"name", "description"}
    assert (down["code"], nobody["code"]) == ("mcp_unavailable", "unknown_server")
    assert "enabled = false" in down["msg"]


async def test_status_has_the_keys_that_programs_rely_on_and_none_is_nil(tmp_path: Path) -> None:
    async with hall(tmp_path, config(), config("lazy", lazy=True)) as place:
        wire = await place.connect()
        status = await wire.value("status", {})
        one = await wire.value("status", {"server": "lazy"})
    assert {
        "version", "pid", "state", "started_at", "uptime_s", "socket", "config", "connections", "in_flight",
        "containment",
    } <= set(status["daemon"])  # fmt: skip
    assert (status["daemon"]["state"], status["daemon"]["connections"]) == ("ready", 1)
    always = {
        "name", "state", "generation", "restart", "restarts", "tools", "in_flight", "calls", "latency_ms",
        "bad_lines", "dropped", "stderr_bytes",
    }  # fmt: skip
    ready, lazy = status["servers"]
    assert always | {"protocol_version", "server", "started_at", "uptime_s"} <= set(ready)
    assert always <= set(lazy)
    assert not {"pid", "reason", "protocol_version", "evidence", "last_failure"} & set(lazy)
    assert set(ready["calls"]) == {"ok", "tool_error", "failed", "timed_out", "cancelled", "refused"}
    assert [row["name"] for row in one["servers"]] == ["lazy"]
    assert None not in [*status["daemon"].values(), *ready.values(), *lazy.values()]


async def test_logs_are_the_newest_stderr_text(tmp_path: Path) -> None:
    noisy = s.script(s.per_tool("echo", s.stderr("first\nsecond\n"), s.text("done")))
    async with hall(tmp_path, config(), plays={"odd": noisy}) as place:
        wire = await place.connect()
        await wire.value("call", {"server": "odd", "tool": "echo", "arguments": {}})
        whole = await wire.value("logs", {"server": "odd"})
        tail = await wire.value("logs", {"server": "odd", "max_bytes": 7})
    assert "first\nsecond" in whole
    assert "first" not in tail
    assert "second" in tail


async def test_stop_start_and_restart_answer_with_evidence_and_state(tmp_path: Path) -> None:
    async with hall(tmp_path, config()) as place:
        wire = await place.connect()
        stopped = await wire.value("stop", {"server": "odd", "within_ms": 5000})
        started = await wire.value("start", {"server": "odd"})
        again = await wire.value("restart", {"server": "odd"})
        nobody = error_of(await wire.ask("restart", {"server": "nobody"}))
    assert (set(stopped), stopped["state"]) == ({"name", "evidence", "state"}, "retired")
    assert stopped["evidence"]["kind"] == "exited"
    assert {"kind", "status", "rung", "elapsed_ms", "drained", "stragglers"} <= set(stopped["evidence"])
    assert started == {"name": "odd", "state": "ready"}
    assert (set(again), again["state"]) == ({"name", "evidence", "state"}, "ready")
    assert nobody["code"] == "unknown_server"


async def test_reload_and_shutdown_answer_before_the_end(tmp_path: Path) -> None:
    async with hall(tmp_path, config()) as place:
        wire = await place.connect()
        assert await wire.value("reload", {}) == {"added": []}
        done = await wire.value("shutdown", {"within_ms": 3000})
        refused = await wire.ask("call", {"server": "odd", "tool": "echo", "arguments": {}})
    assert done["confirmed"] is True
    assert [row["name"] for row in done["servers"]] == ["odd"]
    assert (error_of(refused)["code"], error_of(refused)["outcome"]) == ("shutting_down", "not_sent")


async def test_a_heartbeat_is_echoed(tmp_path: Path) -> None:
    async with hall(tmp_path, config()) as place:
        wire = await place.connect()
        answer = await wire.ask("heartbeat", {"at": [1, "two"]}, frame_id=2**64 - 1)
    assert (answer.id, answer.kind, answer.body) == (2**64 - 1, "heartbeat", {"at": [1, "two"]})


async def test_a_heartbeat_that_grows_past_a_frame_is_answered_all_the_same(tmp_path: Path) -> None:
    # A float of 32 bits becomes one of 64.
    count = 900_000
    text = b"x" * 11_500_000
    payload = (
        bytes.fromhex("84a17601a2696403a46b696e64a9686561727462656174a4626f647982a174db")
        + len(text).to_bytes(4, "big")
        + text
        + bytes.fromhex("a161dd")
        + count.to_bytes(4, "big")
        + bytes.fromhex("ca3dcccccd") * count
    )
    async with hall(tmp_path, config()) as place:
        wire = await place.connect()
        wire.writer.write(len(payload).to_bytes(4, "big") + payload)
        answer = await wire.frame()
        assert await wire.value("list", {})
    assert answer is not None
    assert (answer.id, answer.kind) == (3, "error")


async def test_an_unknown_kind_is_answered_with_its_id_and_the_connection_stays(tmp_path: Path) -> None:
    async with hall(tmp_path, config()) as place:
        wire = await place.connect()
        answer = await wire.ask("frobnicate", {"any": "thing"}, frame_id=12)
        assert await wire.value("list", {})
    assert (answer.id, answer.kind, answer.body["code"]) == (12, "error", "unknown_kind")
    assert "frobnicate" in answer.body["msg"]


# --- cap_call --------------------------------------------------------------------------------------


def cap(server: str = "odd", tool: str = "echo", **keys: Any) -> dict[str, Any]:
    args = {"tool": tool, "arguments": {"text": "hi"}}
    return {"token": b"\x00\xff any", "cap": f"mcp.{server}", "args": args, "deadline_ms": 1000, **keys}


async def test_a_capability_call_is_answered_with_exactly_ok_and_value(tmp_path: Path) -> None:
    async with hall(tmp_path, config()) as place:
        wire = await place.connect()
        answer = await wire.ask("cap_call", cap())
    assert answer.kind == "cap_result"
    value = {"content": [{"type": "text", "text": "hi"}], "is_error": False}
    assert answer.body == {"ok": True, "value": value}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (cap("nobody"), "unsupported_cap"),
        (cap(cap="fs.read"), "unsupported_cap"),
        (cap(cap="mcp"), "unsupported_cap"),
        (cap(cap=7), "invalid_argument"),
        (cap(args={"arguments": {}}), "invalid_argument"),
        (cap(args={"tool": "echo"}), "invalid_argument"),
        (cap(args={"tool": "echo", "arguments": {"a": b"raw"}}), "invalid_argument"),
        (cap(tool="no such tool"), "jsonrpc_-32602"),
        (cap(deadline_ms=0), "mcp_timeout"),
        (cap(deadline_ms=-5), "mcp_timeout"),
        (cap(deadline_ms="soon"), "invalid_argument"),
    ],
)
async def test_a_failed_capability_call_has_exactly_code_and_msg(
    tmp_path: Path, body: dict[str, Any], code: str
) -> None:
    async with hall(tmp_path, config()) as place:
        wire = await place.connect()
        answer = await wire.ask("cap_call", body)
    assert answer.kind == "cap_result"
    error = error_of(answer)
    assert (error["code"], set(error)) == (code, {"code", "msg"})


@pytest.mark.parametrize(("deadline_ms", "own_ms"), [(60, 60_000), (2**64 - 1, 60)])
async def test_the_budget_of_a_capability_call_counts_from_receipt_and_the_call_time_out_caps_it(
    tmp_path: Path, deadline_ms: int, own_ms: int
) -> None:
    async with hall(tmp_path, config(call_timeout_ms=own_ms), plays={"odd": NEVER}) as place:
        wire = await place.connect()
        error = error_of(await wire.ask("cap_call", cap(deadline_ms=deadline_ms)))
    assert (error["code"], error["msg"]) == ("mcp_timeout", "no answer within 60 ms")


# --- ids and order ---------------------------------------------------------------------------------


async def test_answers_come_as_they_are_ready_each_once(tmp_path: Path) -> None:
    async with hall(tmp_path, config(), plays={"odd": LATE}) as place:
        wire = await place.connect()
        slow = wire.call("wait")
        quick = [wire.call() for _ in range(5)]
        ids = [frame.id for frame in [await wire.frame() for _ in range(6)] if frame is not None]
    assert sorted(ids) == sorted([slow, *quick])
    assert ids.index(quick[0]) < len(quick)


async def test_a_live_id_is_refused_and_free_again_after_its_answer(tmp_path: Path) -> None:
    async with hall(tmp_path, config(), plays={"odd": NEVER}) as place:
        wire = await place.connect()
        wire.call(frame_id=7)
        for kind in ("call", "status", "stop"):
            error = error_of(await wire.ask(kind, {"server": "odd", "tool": "echo", "arguments": {}}, 7))
            assert (error["code"], error["msg"]) == (
                "invalid_argument",
                "id: 7 is still in flight on this connection",
            )
        wire.send("cancel", {}, 7)
        assert error_of(await wire.frame())["code"] == "cancelled"
        assert (await wire.ask("list", {}, 7)).body["ok"]


async def test_equal_ids_of_several_clients_do_not_meet(tmp_path: Path) -> None:
    async with hall(tmp_path, config()) as place:
        wires = [await place.connect() for _ in range(5)]
        for number, wire in enumerate(wires):
            wire.call(frame_id=1, arguments={"text": f"mine {number}"})
        for number, wire in enumerate(wires):
            answer = await wire.frame()
            assert answer is not None
            assert answer.body["value"]["content"][0]["text"] == f"mine {number}"


# --- cancel ----------------------------------------------------------------------------------------


async def test_a_call_that_waits_for_the_start_is_cancelled_unsent(tmp_path: Path) -> None:
    async with hall(tmp_path, config(), plays={"odd": NEVER_READY}, settled=False) as place:
        wire = await place.connect()
        wire.call(frame_id=3)
        wire.send("cancel", {}, 3)
        error = error_of(await wire.frame())
    assert (error["code"], error["outcome"]) == ("cancelled", "not_sent")


async def test_a_queued_call_is_cancelled_unsent(tmp_path: Path) -> None:
    async with hall(tmp_path, config(max_in_flight=1, queue=2), plays={"odd": NEVER}) as place:
        wire = await place.connect()
        wire.call(frame_id=1)
        wire.call(frame_id=2)
        wire.send("cancel", {}, 2)
        answer = await wire.frame()
    assert answer is not None
    assert (answer.id, error_of(answer)["code"], error_of(answer)["outcome"]) == (2, "cancelled", "not_sent")


async def test_a_call_to_a_server_that_does_not_read_is_cancelled_unsent(tmp_path: Path) -> None:
    deaf = s.script(s.on("tools/list", s.default(), s.stop_reading()))
    async with hall(tmp_path, config(), plays={"odd": deaf}) as place:
        wire = await place.connect()
        wire.call(frame_id=1, arguments={"text": "x" * 500_000})
        wire.call(frame_id=2)
        await place.until(lambda: place.row["in_flight"] == 2)
        wire.send("cancel", {}, 2)
        answer = await wire.frame()
    assert answer is not None
    assert (answer.id, error_of(answer)["outcome"]) == (2, "not_sent")


async def test_a_sent_call_is_cancelled_now_its_outcome_is_unknown_and_its_late_answer_is_dropped(
    tmp_path: Path,
) -> None:
    async with hall(tmp_path, config(), plays={"odd": LATE}) as place:
        wire = await place.connect()
        wire.call("wait", frame_id=1)
        await place.until(lambda: place.row["in_flight"] == 1)
        await asyncio.sleep(0)
        wire.send("cancel", {}, 1)
        error = error_of(await wire.frame())
        await place.until(lambda: place.row["dropped"] == 1)
        assert (await wire.ask("heartbeat", {})).kind == "heartbeat"
    assert (error["code"], error["outcome"]) == ("cancelled", "unknown")
    assert place.row["calls"]["cancelled"] == 1


async def test_cancelling_what_is_not_in_flight_is_ignored(tmp_path: Path) -> None:
    async with hall(tmp_path, config()) as place:
        wire = await place.connect()
        answered = (await wire.ask("list", {})).id
        wire.call(frame_id=50)
        assert (await wire.frame()) is not None
        for never in (answered, 50, 1234):
            wire.send("cancel", {}, never)
        assert (await wire.ask("heartbeat", {})).kind == "heartbeat"


# --- ends ------------------------------------------------------------------------------------------


async def test_a_half_closed_client_gets_its_answers_and_then_the_end(tmp_path: Path) -> None:
    async with hall(tmp_path, config(), plays={"odd": LATE}) as place:
        wire = await place.connect()
        first, second = wire.call("wait"), wire.send("list", {})
        wire.writer.write_eof()
        assert {frame.id for frame in await wire.all()} == {first, second}
        await place.until(lambda: not place.listener.connections)


async def test_a_client_that_goes_away_mid_call_is_forgotten_and_the_server_keeps_its_call(tmp_path: Path) -> None:
    async with hall(tmp_path, config(), plays={"odd": LATE}) as place:
        wire = await place.connect()
        wire.call("wait")
        await place.until(lambda: place.row["in_flight"] == 1)
        await wire.close()
        await place.until(lambda: not place.listener.connections)
        assert (place.listener.in_flight, place.row["in_flight"]) == (0, 0)
        await place.until(lambda: place.row["dropped"] == 1)
        assert place.row["state"] == "ready"


async def test_a_request_whose_client_goes_away_is_done_all_the_same(tmp_path: Path) -> None:
    async with hall(tmp_path, config(), plays={"odd": s.script(s.on_eof(s.sleep(0.1), s.exit(0)))}) as place:
        wire = await place.connect()
        wire.send("restart", {"server": "odd"})
        await place.until(lambda: place.row["state"] == "closing")
        await wire.close()
        await place.until(lambda: not place.listener.connections)
        assert place.listener.in_flight == 1
        await place.until(lambda: place.row["generation"] == 2 and place.row["state"] == "ready")
        await place.until(lambda: place.listener.in_flight == 0)
