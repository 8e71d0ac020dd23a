"""Fuzzes the pure core for a given time: ``python -m support.fuzz SECONDS [SEED]``, run from ``tests``.

Every case is made from the seed and its number alone, so that what fails can be played again: the failure is
reported with both, and ``python -m support.fuzz 0 SEED CASE`` runs that one case. Exit status 0: all cases held.
"""

from __future__ import annotations

import json
import random
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgpack

from treadle.errors import BadMessage, Fault, FieldFault, InvalidArgument, Malformed, NotCarriable
from treadle.session import Answered, Died, Failed, Listed, Ponged, Session, State
from treadle.wire.interchange import arguments_to_json, json_to_value
from treadle.wire.jsonrpc import decode
from treadle.wire.lines import LineBuffer
from treadle.wire.messages import Content, decode_call_result, decode_initialize_result, decode_tools_page

HANDSHAKE = b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}}}}\n'
CONTENTS: tuple[Content, ...] = ("text", "all")
TEXTS = ["", "a", "text", "é", "😀", "\u2028", "\x00", '"', "\\", "\\ud800", "[[", "]}", "1" * 19, "x" * 300]
NUMBERS = [0, 1, -1, 2**53 + 1, 2**63, 2**64 - 1, -(2**63), 0.0, -0.0, 1.0, 1e16, 5e-324, 1.5]
FRAGMENTS = [
    b"", b'"', b"\\", b"[", b"]", b"{", b"}", b",", b":", b"null", b"true", b"1e400", b"9" * 5000, b"-", b".",
    b"\r", b"\\ud800", b"\\udc00", b"\\\\ud800", b"\xff", b"\xed\xa0\x80", b"\xc3", b"\xef\xbb\xbf", b"NaN",
    b"\x00", b"\t", b" ", b"1.0", b"18446744073709551616", b"[" * 300, b"]" * 300, b"[" * 300 + b"]" * 300,
    b'{"a":' * 260, b'"id":1,', b'"id":"1",', b'"id":null,', b'"result":', b'"error":null,', b'"method":"ping",',
    b'"content":[],', b'"nextCursor":"n",', b"\n",
]  # fmt: skip


def value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(10 if depth < 5 else 6)
    if kind < 2:
        return rng.choice([None, True, False])
    if kind < 4:
        return rng.choice(NUMBERS) if rng.random() < 0.7 else rng.randrange(-(2**66), 2**66)
    if kind < 6:
        return rng.choice(TEXTS)
    if kind < 8:
        return [value(rng, depth + 1) for _ in range(rng.randrange(5))]
    return {rng.choice(TEXTS): value(rng, depth + 1) for _ in range(rng.randrange(5))}


def block(rng: random.Random) -> Any:
    return rng.choice(
        [
            {"type": "text", "text": rng.choice(TEXTS)},
            {"type": "image", "data": "eA=="},
            {"type": rng.choice(TEXTS)},
            value(rng),
        ]
    )


def payload(rng: random.Random) -> Any:
    """Something that some request of ours may be answered with."""
    tool = {"name": rng.choice(TEXTS) or "t", "inputSchema": value(rng), "title": value(rng)}
    return rng.choice(
        [
            {"content": [block(rng) for _ in range(rng.randrange(4))], "structuredContent": value(rng)},
            {"content": [], "isError": rng.choice([True, False, None])},
            {"tools": [tool] * rng.randrange(3), "nextCursor": rng.choice([None, "", "a", "b", 5])},
            {"protocolVersion": "2025-06-18", "capabilities": value(rng), "serverInfo": value(rng)},
            value(rng),
        ]
    )


def message(rng: random.Random, ids: list[int]) -> dict[str, Any]:
    """A good message, more often than not an answer to one of ``ids``."""
    number: Any = rng.choice(ids) if ids and rng.random() < 0.8 else rng.choice([0, 99, "1", "x", -5, 2**70])
    kind = rng.randrange(8)
    if kind < 5:
        body: dict[str, Any] = {"id": number, "result": payload(rng)}
    elif kind == 5:
        body = {
            "id": number,
            "error": {"code": rng.randrange(-40000, 9), "message": rng.choice(TEXTS), "data": value(rng)},
        }
    elif kind == 6:
        body = {"id": number, "method": rng.choice(["ping", "roots/list", ""]), "params": value(rng)}
    else:
        body = {"method": rng.choice(TEXTS), "params": value(rng)}
    return {"jsonrpc": "2.0"} | body


def written(rng: random.Random, what: Any) -> bytes:
    separators = rng.choice([None, (",", ":")])
    return json.dumps(what, ensure_ascii=rng.random() < 0.5, separators=separators).encode(
        "utf-8", "surrogatepass"
    )


def damaged(rng: random.Random, text: bytes) -> bytes:
    for _ in range(rng.choice([0, 0, 1, 1, 2, 4])):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.randrange(9))
        middle = rng.choice(FRAGMENTS) if rng.random() < 0.8 else rng.randbytes(rng.randrange(4))
        text = text[:start] + middle + text[end:]
    return text


def chunks(rng: random.Random, stream: bytes) -> list[bytes]:
    cuts = sorted(rng.randrange(len(stream) + 1) for _ in range(rng.randrange(8)))
    return [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


# --- what must hold --------------------------------------------------------------------------------------------


def check_decode(rng: random.Random) -> None:
    """Any line is a message or one of two faults, and *malformed* means what another strict parser says."""
    line = damaged(rng, written(rng, message(rng, [1]))).replace(b"\n", b"")
    try:
        decode(line)
        malformed = False
    except BadMessage:
        malformed = False
    except Malformed:
        malformed = True
    assert malformed is not is_json(line), line


def is_json(line: bytes) -> bool:
    def refuse(token: str) -> None:
        raise ValueError(token)

    try:
        json.loads(line.decode(), parse_constant=refuse, parse_int=str, parse_float=str)
    except ValueError:
        return False
    except RecursionError:
        # Deeper than the other parser goes: brackets that pair off must do.
        return line.count(b"[") == line.count(b"]") and line.count(b"{") == line.count(b"}")
    return True


def check_lines(rng: random.Random) -> None:
    """However a stream is cut, the same lines and the same fault come of it."""
    stream = b"".join(damaged(rng, written(rng, value(rng))) + b"\n" for _ in range(rng.randrange(6)))
    whole, parts = LineBuffer(200), LineBuffer(200)
    expected = whole.push(stream)
    found = [line for chunk in chunks(rng, stream) for line in parts.push(chunk)]
    assert found == expected, stream
    assert type(parts.fault) is type(whole.fault), stream
    assert (parts.pending, parts.blank) == (whole.pending, whole.blank), stream
    assert all(line.decode() is not None for line in found)


def check_results(rng: random.Random) -> None:
    """What any decoder of results lets pass can be packed; what it refuses is a typed fault."""
    line = damaged(rng, written(rng, {"jsonrpc": "2.0", "id": 1, "result": payload(rng)})).replace(b"\n", b"")
    try:
        raw = getattr(decode(line), "result", None)
    except (Malformed, BadMessage):
        return
    if not isinstance(raw, bytes):
        return
    for content in CONTENTS:
        with suppress(FieldFault, NotCarriable):
            msgpack.packb(decode_call_result(raw, content).to_value())
    for other in (decode_initialize_result, decode_tools_page):
        with suppress(Fault):
            other(raw)


def check_interchange(rng: random.Random) -> None:
    """A map crosses to JSON and back unchanged, or is refused."""
    arguments = {rng.choice(TEXTS): value(rng) for _ in range(rng.randrange(4))}
    if rng.random() < 0.3:
        arguments["bad"] = [rng.choice([b"x", float("nan"), "\udfff", {1: 2}, msgpack.Timestamp(1), (1,)])]
    try:
        text = arguments_to_json(arguments)
    except InvalidArgument as fault:
        if not fault.path.startswith("$.bad"):
            raise
        return
    assert "bad" not in arguments
    assert json.loads(text) == arguments
    try:
        assert json_to_value(text) == arguments
    except NotCarriable:
        try:
            msgpack.packb(arguments)
        except OverflowError:
            return
        raise


def check_session(rng: random.Random) -> None:
    """Each request settles exactly once, whatever the server says and whenever time passes."""
    session = Session("fuzzed", client_version="0", bad_lines=rng.choice(["fatal", "drop"]))
    session.initialize(10.0, timeout_ms=10_000)
    session.receive_data(HANDSHAKE)
    settled: dict[int, int] = {}
    now, asked, ids = 0.0, 0, [1]
    for _ in range(rng.randrange(1, 40)):
        events: list[Any] = []
        step = rng.randrange(10)
        if step < 3 and session.state is State.READY:
            deadline = now + rng.choice([1.0, 5.0])
            make: Callable[[], object] = rng.choice(
                [
                    lambda deadline=deadline, token=asked: session.list_tools(deadline, token, timeout_ms=1),
                    lambda deadline=deadline, token=asked: session.ping(deadline, token, timeout_ms=1),
                    lambda deadline=deadline, token=asked: session.call("x", b"{}", deadline, token, timeout_ms=1),
                ]
            )
            make()
            settled[asked] = 0
            asked += 1
        elif step < 8:
            text = written(rng, message(rng, ids)) + b"\n"
            text = damaged(rng, text) if rng.random() < 0.2 else text
            for chunk in chunks(rng, text):
                events += session.receive_data(chunk)
        elif step == 8:
            now += rng.choice([0.1, 2.0])
            events = session.expire(now)
        ids = ids[-5:] + [number for number, _ in session.take_output() if number]
        settle(settled, events)
        assert session.in_flight == sum(not count for count in settled.values())
    settle(settled, session.expire(1e9) if rng.random() < 0.5 else session.die(Malformed("the end", "")))
    assert set(settled.values()) <= {1}, settled


def settle(settled: dict[int, int], events: list[Any]) -> None:
    for event in events:
        if isinstance(event, Answered | Listed | Ponged | Failed):
            settled[event.token] += 1
            assert settled[event.token] == 1
        elif isinstance(event, Died):
            assert all(settled.values())


CHECKS = [check_decode, check_lines, check_results, check_interchange, check_session]


def run_case(seed: int, number: int) -> None:
    """Play case ``number`` of ``seed``; raises what went wrong."""
    rng = random.Random(f"{seed}/{number}")
    CHECKS[number % len(CHECKS)](rng)


def main(arguments: list[str]) -> int:
    """Fuzz for ``arguments[0]`` seconds; see the module."""
    seconds = float(arguments[0]) if arguments else 10.0
    seed = int(arguments[1]) if len(arguments) > 1 else random.SystemRandom().randrange(2**32)
    if len(arguments) > 2:
        run_case(seed, int(arguments[2]))
        return 0
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        try:
            run_case(seed, number)
        except Exception:
            traceback.print_exc()
            print(f"fuzz: case {number} of seed {seed} failed; again: python -m support.fuzz 0 {seed} {number}")
            return 1
        number += 1
    print(f"fuzz: {number} cases of seed {seed} held")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
