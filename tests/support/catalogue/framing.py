"""Groups A (framing), B (not the protocol) and C (encoding and JSON grammar)."""

from __future__ import annotations

from collections.abc import Iterator

from support import script as s
from support.catalogue.model import (
    HELLO,
    MALFORMED,
    SECRET,
    Call,
    CallErr,
    Calls,
    Entry,
    Fatal,
    Ok,
    Start,
    StartErr,
    answer,
    called,
)
from support.script import FILL, ID, Data, Script, Steps
from treadle.errors import HandshakeFailed

MAX_LINE = 16 * 1024 * 1024
ODD_TEXT = "aé€😀z"
NOT_JSON = "not JSON"
NOT_A_MESSAGE = "no JSON-RPC 2.0 message"
NOT_UTF8 = "not UTF-8"

HEAD: Data = ['{"jsonrpc":"2.0","id":', ID, ',"result":']
"""The beginning of an answer whose result a script writes by hand."""


def on_call(*steps: s.Step | Steps) -> Script:
    """The script of a server whose first call is handled by ``steps``."""
    return s.script(s.at(1, *steps))


def answered(text: str) -> Data:
    """The line of the good answer ``text``."""
    return [s.as_json(s.envelope(s.text_result(text))), "\n"]


def written(result: Data) -> s.Step:
    """An answer whose result is ``result``, byte for byte."""
    return s.line([HEAD, result, "}"])


def structured(value: Data) -> s.Step:
    """A good answer with ``value``, byte for byte, as its structured content."""
    return written(['{"content":[],"structuredContent":', value, "}"])


def _framing() -> Iterator[Entry]:
    yield Entry(
        "A1",
        "a reply byte by byte, cutting characters of 2, 3 and 4 bytes",
        on_call(s.chunks(answered(ODD_TEXT), [1])),
        (called(answer(ODD_TEXT)),),
    )
    names = [f"c{n}" for n in range(10)]
    replies = [[s.as_json(s.envelope(s.text_result(name), to=name)), "\n"] for name in reversed(names)]
    yield Entry(
        "A2",
        "ten replies in reverse order in a single write",
        s.script([s.expect("tools/call", save=name) for name in names], s.raw(replies)),
        (Calls(tuple(Call(answer(name)) for name in names)),),
    )
    for size in (65_535, 65_536, 65_537, 131_073):
        filled = s.as_json(s.envelope(s.text_result(FILL)), size=size)
        yield Entry(f"A3/{size}", f"a reply line of {size} bytes", on_call(s.line(filled)), (called(Ok()),))
    padded = {**s.envelope(s.text_result("hello")), "padding": FILL}
    yield Entry(
        "A4/limit", "a line of exactly 16 MiB", on_call(s.line(s.as_json(padded, MAX_LINE))), (called(HELLO),)
    )
    yield Entry(
        "A4/past-limit",
        "a line of 16 MiB and one byte",
        on_call(s.line(s.as_json(padded, MAX_LINE + 1))),
        (called(Fatal("line too long")),),
    )
    yield Entry(
        "A5",
        "endless bytes without an LF",
        on_call(s.flood("x", None)),
        (called(Fatal("line too long")),),
        {"stop_timeout_ms": 250},  # who is stuck in a write does not notice EOF
    )
    body = s.as_json(s.envelope(s.text_result("hello")))
    yield Entry("A7/crlf", "a line that ends in CRLF", on_call(s.raw([body, "\r\n"])), (called(HELLO),))
    yield Entry("A7/trailing", "blanks after the JSON", on_call(s.raw([body, " \t \n"])), (called(HELLO),))
    yield Entry(
        "A7/cr",
        "a lone CR between JSON tokens",
        on_call(s.raw([HEAD, '\r{"content":\r[]}\r}\n'])),
        (called(Ok({"content": [], "is_error": False})),),
    )
    blank = [s.times("\n", 40_000), s.times(" \t\r\n", 30_000), s.times("\r\n", 30_000)]
    yield Entry(
        "A9",
        "100,000 blank lines during a call",
        on_call(s.raw(blank), s.raw(answered("hello"))),
        (called(HELLO),),
        dropped=100_000,
    )
    yield Entry(
        "A10", "a valid reply cut off by EOF", on_call(s.raw(body), s.exit(0)), (called(Fatal("status 0")),)
    )


def _not_the_protocol() -> Iterator[Entry]:
    banners = {
        "plain": "Starting the server on stdio\n",
        "ansi": "\x1b[32mINFO\x1b[0m ready\n",
        "emoji": "🚀 listening\n",
        "long": s.times("banner ", 2_000),
    }
    for name, banner in banners.items():
        yield Entry(
            f"B1/{name}",
            "a banner line before the initialize reply",
            s.script(s.raw([banner, "\n"])),
            (Start(StartErr(HandshakeFailed, NOT_JSON)),),
        )
    yield Entry(
        "B1/secret",
        "a banner line that spills a secret",
        s.script(s.line(f"using key {SECRET}")),
        (Start(StartErr(HandshakeFailed, NOT_JSON)),),
        secret=SECRET,
    )
    yield Entry(
        "B2", "log text before the JSON", on_call(s.raw(["INFO ", answered("hello")])), (called(Fatal(NOT_JSON)),)
    )
    between = s.script(
        s.expect("tools/call", save="a"),
        s.expect("tools/call", save="b"),
        s.expect("tools/call"),
        s.raw(
            [
                [s.as_json(s.envelope(s.text_result("good"), to="a")), "\n"],
                "noise\n",
                [s.as_json(s.envelope(s.text_result("never seen"), to="b")), "\n"],
            ]
        ),
    )
    noise = Fatal("not JSON.*noise")
    yield Entry(
        "B3",
        "noise between two replies in one read",
        between,
        (Calls((Call(answer("good")), Call(noise), Call(noise))),),
    )
    yield Entry(
        "B3/drop",
        'noise between two replies, bad_lines = "drop"',
        on_call(s.line("noise"), s.line('{"status":200}'), s.default()),
        (called(HELLO),),
        {"bad_lines": "drop"},
        bad_lines=2,
    )
    values = {"object": '{"status":200}', "string": '"x"', "number": "7", "null": "null", "empty": "{}"}
    for name, value in values.items():
        yield Entry(
            f"B4/{name}",
            "JSON that is no message",
            on_call(s.line(value), s.default()),
            (called(Fatal(NOT_A_MESSAGE)),),
        )
    yield Entry(
        "B5",
        "Content-Length framing",
        on_call(s.raw(["Content-Length: 70\r\n\r\n", answered("hello")])),
        (called(Fatal("Content-Length framing")),),
    )
    yield Entry(
        "B6/pretty",
        "a reply pretty-printed over several lines",
        on_call(s.raw(['{\n  "jsonrpc": "2.0",\n  "id": ', ID, ',\n  "result": {"content": []}\n}\n'])),
        (called(Fatal(NOT_JSON)),),
    )
    yield Entry(
        "B6/newline",
        "a raw newline inside a string",
        on_call(written('{"content":[{"type":"text","text":"a\nb"}]}')),
        (called(Fatal(NOT_JSON)),),
    )
    batch = [s.as_json([s.envelope(s.text_result("hello"))]), "\n"]
    yield Entry("B8/batch", "a batch", on_call(s.raw(batch)), (called(Fatal(NOT_A_MESSAGE)),))
    yield Entry("B8/empty", "an empty batch", on_call(s.line("[]")), (called(Fatal(NOT_A_MESSAGE)),))
    older = s.result({"protocolVersion": "2025-03-26", "capabilities": {"tools": {}}})
    yield Entry(
        "B8/2025-03-26",
        "a batch under a revision that had batches",
        s.script(s.on("initialize", older), on_call(s.raw(batch))),
        (called(Fatal(NOT_A_MESSAGE)),),
    )


def _encoding() -> Iterator[Entry]:
    bom = b"\xef\xbb\xbf"
    yield Entry(
        "C1/first",
        "a BOM before the first message",
        s.script(s.expect("initialize"), s.raw(bom), s.default()),
        (Start(StartErr(HandshakeFailed, NOT_JSON)),),
    )
    yield Entry(
        "C1/later", "a BOM before a later message", on_call(s.raw(bom), s.default()), (called(Fatal(NOT_JSON)),)
    )
    for codec, mark in (("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")):
        for name, prefix, reason in (("bare", b"", NOT_JSON), ("bom", mark, NOT_UTF8)):
            hello = s.encoded([s.as_json(s.envelope({})), "\n"], codec)
            yield Entry(
                f"C2/{codec}-{name}",
                "the whole stream in UTF-16",
                s.script(s.expect("initialize"), s.raw([prefix, hello])),
                (Start(StartErr(HandshakeFailed, reason)),),
            )
    wrong = {
        "ff": b"\xff",
        "overlong": b"\xc0\x80",
        "surrogate": b"\xed\xa0\x80",
        "latin-1": "café".encode("latin-1"),
    }
    for name, octets in wrong.items():
        script = on_call(written(['{"content":[{"type":"text","text":"', s.data(octets), '"}]}']))
        yield Entry(f"C3/{name}", "bytes that are not UTF-8", script, (called(Fatal(NOT_UTF8)),))
    yield Entry(
        "C3/drop",
        'a line that is not UTF-8 stays fatal under bad_lines = "drop"',
        on_call(s.line(b"caf\xe9"), s.default()),
        (called(Fatal(NOT_UTF8)),),
        {"bad_lines": "drop"},
        bad_lines=0,
    )
    for token in ("NaN", "Infinity", "-Infinity"):
        yield Entry(
            f"C4/{token}", "a token that JSON lacks", on_call(structured(token)), (called(Fatal(NOT_JSON)),)
        )
    for name, number in {"max": 2**63 - 1, "min": -(2**63), "unsigned": 2**64 - 1}.items():
        exact = Ok({"content": [], "is_error": False, "structured": {"n": number}})
        yield Entry(
            f"C6/{name}",
            "an integer at the edge of the range",
            on_call(structured(f'{{"n":{number}}}')),
            (called(exact),),
        )
    beyond: dict[str, tuple[Data, str]] = {
        "past-max": (str(2**64), "integer"),
        "past-min": (str(-(2**63) - 1), "integer"),
        "5000-digits": (s.times("9", 5_000), ""),
        "1e400": ("1e400", ""),
        "lone-surrogate": ('"\\ud800"', "surrogate"),
        "nesting": ([s.times("[", 257), s.times("]", 257)], "nesting"),
    }
    for name, (value, reason) in beyond.items():
        yield Entry(
            f"C6/{name}",
            "a payload that cannot be represented",
            on_call(structured(['{"n":', value, "}"])),
            (called(CallErr(MALFORMED, reason)),),
        )
    yield Entry(
        "C6/notification",
        "a notification whose payload cannot be represented",
        on_call(s.line('{"jsonrpc":"2.0","method":"x","params":{"n":"\\ud800"}}'), s.default()),
        (called(HELLO),),
        dropped=1,
    )
    good = '{"content":[{"type":"text","text":"hello"}]}'
    twice: dict[str, Data] = {
        "id": ['{"jsonrpc":"2.0","id":99999,"id":', ID, ',"result":', good, "}"],
        "result": ['{"jsonrpc":"2.0","id":', ID, ',"result":{"content":7},"result":', good, "}"],
        "content": [HEAD, '{"content":[],"content":[{"type":"text","text":"no","text":"hello"}]}}'],
    }
    for name, reply in twice.items():
        yield Entry(f"C9/{name}", "a duplicate key: the last one counts", on_call(s.line(reply)), (called(HELLO),))


ENTRIES = (*_framing(), *_not_the_protocol(), *_encoding())
