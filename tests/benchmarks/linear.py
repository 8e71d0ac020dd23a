"""Measures what the bytes of one large message cost, by its size: what is linear costs as much for each of them.

    python tests/benchmarks/linear.py [--json FILE] [--gate RATIO] [--rounds N] [--cpu N]

A row is a part of the way of a message. Its columns are milliseconds of processor time per MiB at 1 to 16 MiB, the
best of some rounds that take turns; the last column is what a MiB of 16 costs against a MiB alone. It is about 1
where the cost is linear (2 where little but copying is done, and 16 MiB do not fit the caches), 16 where it is
quadratic, and travels between machines, which the milliseconds do not.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from treadle.stderr import StderrTail
from treadle.wire.jsonrpc import Response, decode
from treadle.wire.lines import LineBuffer
from treadle.wire.nesting import nesting
from treadle_client.frames import FrameReader, encode

MIB = 1024 * 1024
SIZES = (1, 2, 4, 8, 16)
CHUNK = 64 * 1024
ROOM = 128  # bytes that are left of a frame for its envelope

Work = Callable[[], None]


def chunks(data: bytes) -> list[bytes]:
    """``data`` as it comes from a pipe."""
    return [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]


def push(filler: str, size: int) -> Work:
    """A line that comes in chunks."""
    parts = chunks((filler * (size // len(filler.encode()) - 1)).encode() + b"\n")

    def work() -> None:
        buffer = LineBuffer()
        assert sum(len(buffer.push(part)) for part in parts) == 1

    return work


def answer(size: int) -> Work:
    """A line that holds an answer."""
    head, tail = b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"', b'"}]}}'
    line = head + b"x" * (size - len(head) - len(tail)) + tail

    def work() -> None:
        assert isinstance(decode(line), Response)

    return work


def frame(size: int) -> Work:
    """A frame of one long string, in chunks."""
    parts = chunks(encode(1, "x", {"a": "y" * (size - ROOM)}))

    def work() -> None:
        reader = FrameReader()
        assert sum(len(reader.feed(part)) for part in parts) == 1

    return work


def stderr(size: int) -> Work:
    """Standard error without a line end."""
    parts = chunks(b"x" * size)

    def work() -> None:
        tail = StderrTail(str)
        assert sum(len(tail.feed(part, 0.0)) for part in parts) == 0

    return work


def brackets(unit: bytes, levels: int, size: int) -> Work:
    """The depth of a text of brackets."""
    text = b"[" + unit * (size // len(unit)) + b"1]"

    def work() -> None:
        assert nesting(text) == levels

    return work


ROWS: dict[str, Callable[[int], Work]] = {
    "LineBuffer.push, ASCII": partial(push, "x"),
    "LineBuffer.push, two-byte characters": partial(push, "é"),
    "jsonrpc.decode, one long string": answer,
    "FrameReader.feed, one long string": frame,
    "StderrTail.feed, no line end": stderr,
    "nesting, pairs of brackets": partial(brackets, b"[],", 2),
    "nesting, brackets in strings": partial(brackets, b'"[",', 1),
}


def measure(rounds: int) -> dict[str, dict[int, float]]:
    """Row, then size in MiB, to the best seconds per MiB."""
    found = {}
    for name, make in ROWS.items():
        works = {size: make(size * MIB) for size in SIZES}
        best = dict.fromkeys(SIZES, float("inf"))
        for _ in range(rounds):
            for size, work in works.items():
                # As many bytes for each size: a single short work would be lost in the clock's grain.
                times = SIZES[-1] // size
                start = time.process_time()
                for _ in range(times):
                    work()
                best[size] = min(best[size], (time.process_time() - start) / SIZES[-1])
        found[name] = best
    return found


def ratio(row: dict[int, float]) -> float:
    """What a MiB of the largest size costs against one of the smallest."""
    return row[SIZES[-1]] / row[SIZES[0]]


def table(found: dict[str, dict[int, float]]) -> str:
    """The rows as Markdown."""
    head = ["ms per MiB of a message of", *(f"{size} MiB" for size in SIZES), f"{SIZES[-1]} / {SIZES[0]}"]
    rows = [head, ["---", *["---:"] * (len(SIZES) + 1)]]
    for name, row in found.items():
        rows.append([name, *(f"{1000 * seconds:.3f}" for seconds in row.values()), f"{ratio(row):.2f}"])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def main() -> int:
    """Measure, print the table, write what was asked for. Returns 1 when ``--gate`` finds a steeper row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write every figure")
    parser.add_argument("--gate", type=float, metavar="RATIO", help="exit 1 when a row's ratio is above this")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)), help="-1: not pinned")
    options = parser.parse_args()
    if options.cpu >= 0:
        os.sched_setaffinity(0, {options.cpu})
    found = measure(options.rounds)
    print(table(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    steep = [name for name, row in found.items() if options.gate is not None and ratio(row) > options.gate]
    if steep:
        print(f"not linear: {', '.join(steep)}")
    return 1 if steep else 0


if __name__ == "__main__":
    sys.exit(main())
