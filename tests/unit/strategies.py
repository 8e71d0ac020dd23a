"""Hypothesis strategies for the wire: values, messages, damage done to them, and ways to cut a stream."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

MIN_INT, MAX_INT = -(2**63), 2**64 - 1

keys = st.text(max_size=8)
integers = st.integers(MIN_INT, MAX_INT) | st.sampled_from([MIN_INT, MAX_INT, 2**63, 2**53 + 1, 0])
floats = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([-0.0, 1.0, 1e16, 5e-324])
scalars = st.none() | st.booleans() | integers | floats | st.text(max_size=20)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)
"""Every kind of value that JSON and msgpack can both say."""

arguments = st.dictionaries(keys, values, max_size=5)

ids = st.integers() | st.text(max_size=8)


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    """A well-formed JSON-RPC message of any kind, with unknown keys now and then."""
    message: dict[str, Any] = {"jsonrpc": "2.0"}
    kind = draw(st.sampled_from(["result", "error", "request", "notification"]))
    if kind != "notification":
        message["id"] = draw(ids)
    if kind in ("request", "notification"):
        message["method"] = draw(st.text(max_size=12))
        if draw(st.booleans()):
            message["params"] = draw(values)
    elif kind == "result":
        message["result"] = draw(values)
    else:
        message["error"] = {"code": draw(st.integers()), "message": draw(st.text(max_size=12))}
        if draw(st.booleans()):
            message["error"]["data"] = draw(values)
    if draw(st.booleans()):
        message["x" + draw(keys)] = draw(values)
    return message


def written(message: Any, **options: Any) -> bytes:
    """``message`` as one line of JSON, as another implementation writes it."""
    return json.dumps(message, **options).encode()


lines = st.builds(written, messages(), ensure_ascii=st.booleans())

_FRAGMENTS = [
    b"", b'"', b"\\", b"[", b"]", b"{", b"}", b",", b":", b"null", b"1e400", b"9" * 5000, b"\\ud800", b"\\udc00",
    b"\\\\ud800", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"NaN", b"\x00", b"\t", b" ", b"1.0", b"true",
    b"[" * 300, b"]" * 300, b"[" * 300 + b"]" * 300, b'"id":1,', b'"result":', b'"error":null,', b'"method":"x",',
]  # fmt: skip


@st.composite
def damaged_lines(draw: st.DrawFn) -> bytes:
    """A good line with up to three edits: a span replaced by a fragment that has broken parsers before."""
    line = draw(lines)
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(line)))
        end = draw(st.integers(start, min(len(line), start + 8)))
        fragment = draw(st.sampled_from(_FRAGMENTS) | st.binary(max_size=4))
        line = line[:start] + fragment + line[end:]
    return line.replace(b"\n", b" ")


@st.composite
def chunkings(draw: st.DrawFn, stream: bytes) -> list[bytes]:
    """``stream`` cut anywhere into chunks."""
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    return [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
