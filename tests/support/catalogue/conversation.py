"""Groups D (envelope and ids) and E (handshake)."""

from __future__ import annotations

from collections.abc import Iterator

from support import script as s
from support.catalogue.framing import HEAD, NOT_A_MESSAGE, on_call
from support.catalogue.model import (
    HELLO,
    TIMEOUT,
    Call,
    CallErr,
    Calls,
    Entry,
    Fatal,
    Ok,
    Start,
    StartErr,
    called,
)
from support.script import ID, Data, Json
from treadle.errors import HandshakeFailed, StartFault, StartTimedOut, ToolsNotDeclared, VersionUnsupported

GOOD = '{"content":[{"type":"text","text":"hello"}]}'
ERROR = '{"code":-32000,"message":"no"}'
QUICK = {"call_timeout_ms": 100}


def _envelope() -> Iterator[Entry]:
    both: dict[str, Data] = {
        "both": [HEAD, GOOD, ',"error":', ERROR, "}"],
        "error-null": [HEAD, GOOD, ',"error":null}'],
        "neither": ['{"jsonrpc":"2.0","id":', ID, "}"],
    }
    for name, reply in both.items():
        yield _fatal(f"D-1/{name}", "not exactly one of result and error", reply)
    versions = {"missing": "", "1.0": '"jsonrpc":"1.0",', "number": '"jsonrpc":2.0,', "2": '"jsonrpc":"2",'}
    for name, version in versions.items():
        reply = ["{", version, '"id":', ID, ',"result":', GOOD, "}"]
        yield _fatal(f"D-2/{name}", "a jsonrpc that is not the string 2.0", reply)
    errors = {
        "code-string": '{"code":"x","message":"no"}',
        "code-fraction": '{"code":1.5,"message":"no"}',
        "code-true": '{"code":true,"message":"no"}',
        "code-null": '{"code":null,"message":"no"}',
        "code-1e100": '{"code":1e100,"message":"no"}',
        "code-missing": '{"message":"no"}',
        "message-missing": '{"code":1}',
        "message-number": '{"code":1,"message":2}',
        "string": '"no"',
        "null": "null",
    }
    for name, error in errors.items():
        reply = ['{"jsonrpc":"2.0","id":', ID, ',"error":', error, "}"]
        yield _fatal(f"D-3/{name}", "an error that is none", reply)
    data: Json = [1, {"a": None}, "é"]
    odd = {**s.error_envelope(-32007, "no such thing", data=data, extra=True), "trace": "abc", "params": 3}
    yield Entry(
        "D-4",
        "a good error with odd data and extra keys",
        on_call(s.reply(odd)),
        (called(CallErr("jsonrpc_-32007", "-32007: no such thing", data)),),
    )
    yield Entry(
        "D-4/no-data",
        "a good error without data",
        on_call(s.error(-32602, "bad")),
        (called(CallErr("jsonrpc_-32602", "bad", None)),),
    )


def _fatal(identifier: str, title: str, reply: Data) -> Entry:
    return Entry(identifier, title, on_call(s.line(reply)), (called(Fatal(NOT_A_MESSAGE)),))


def _ids() -> Iterator[Entry]:
    stray = s.reply({"jsonrpc": "2.0", "id": 424242, "result": {}})
    huge = s.line(['{"jsonrpc":"2.0","id":', s.times("7", 5_000), ',"result":{}}'])
    yield Entry("D-5/unknown", "an unknown id", on_call(stray, huge, s.default()), (called(HELLO),), dropped=2)
    yield Entry(
        "D-5/twice", "the same reply twice", on_call(s.default(), s.default()), (called(HELLO),), dropped=1
    )
    answered_again = s.script(
        s.expect("tools/call", save="old"), s.default(), s.at(2, s.default("old"), s.default())
    )
    yield Entry(
        "D-5/answered",
        "an id that was already answered",
        answered_again,
        (called(HELLO), called(HELLO)),
        dropped=1,
    )
    strings: dict[str, Data] = {"integer": ['"', ID, '"'], "fraction": ['"', ID, '.0"']}
    for name, identifier in strings.items():
        reply = s.line(['{"jsonrpc":"2.0","id":', identifier, ',"result":', GOOD, "}"])
        timed_out = Call(CallErr(TIMEOUT))
        yield Entry(
            f"D-6/string-{name}",
            "a string id: dropped, with one warning for all",
            s.script(s.at(1, reply), s.at(2, reply)),
            (Calls((timed_out, timed_out)),),
            QUICK,
            dropped=2,
            warnings=1,
        )
    refused: dict[str, Data] = {
        "null": "null",
        "float": [ID, ".0"],
        "boolean": "true",
        "array": ["[", ID, "]"],
        "object": "{}",
    }
    for name, identifier in refused.items():
        yield _fatal(
            f"D-7/{name}", "a response with such an id", ['{"jsonrpc":"2.0","id":', identifier, ',"result":{}}']
        )
    yield _fatal("D-7/missing", "a response without an id", ['{"jsonrpc":"2.0","result":', GOOD, "}"])
    yield _fatal("D-7/error-null", "an error with a null id", ['{"jsonrpc":"2.0","id":null,"error":', ERROR, "}"])
    yield _fatal("D-8/null", "a server's request with a null id", '{"jsonrpc":"2.0","id":null,"method":"ping"}')
    yield _fatal("D-8/float", "a server's request with a float id", '{"jsonrpc":"2.0","id":1.0,"method":"ping"}')
    yield _fatal("D-10", "both method and result", ['{"jsonrpc":"2.0","id":', ID, ',"method":"x","result":{}}'])
    yield _fatal("D-10/error", "both method and error", ['{"jsonrpc":"2.0","method":"x","error":', ERROR, "}"])


def _initialized(version: Json, **more: Json) -> s.Step:
    return s.result({"protocolVersion": version, "capabilities": {"tools": {}}, **more})


def _versions() -> Iterator[Entry]:
    for version in ("2025-06-18", "2025-03-26", "2024-11-05"):
        yield Entry(
            f"E1/{version}",
            "an accepted revision",
            s.script(s.on("initialize", _initialized(version))),
            (Start(Ok()),),
        )
    for version in ("2024-10-07", "2025-11-25", "2026-07-28"):
        yield _refused(f"E2/{version}", _initialized(version), VersionUnsupported, f"{version}.*2025-06-18")
    yield _refused("E2/empty", _initialized(""), StartFault, "")
    yield _refused("E2/null", _initialized(None), HandshakeFailed, "protocolVersion")
    yield _refused("E2/number", _initialized(20250618), HandshakeFailed, "protocolVersion")
    missing = s.result({"capabilities": {"tools": {}}})
    yield _refused("E2/missing", missing, HandshakeFailed, "protocolVersion")
    yield Entry(
        "E2/accepted",
        "2025-11-25 where accept_versions names it",
        s.script(s.on("initialize", _initialized("2025-11-25"))),
        (Start(Ok()),),
        {"accept_versions": ("2025-11-25",)},
    )
    yield _refused("E3", s.error(-32000, "the licence expired"), HandshakeFailed, "the licence expired")


def _refused(identifier: str, reply: s.Step, fault: type[StartFault], reason: str) -> Entry:
    script = s.script(s.on("initialize", reply))
    return Entry(identifier, "initialize is answered so", script, (Start(StartErr(fault, reason)),))


def _handshakes() -> Iterator[Entry]:
    impatient = {"handshake_timeout_ms": 60}
    timed_out = (Start(StartErr(StartTimedOut, "handshake_timeout_ms")),)
    yield Entry("E4/never", "initialize is never answered", s.script(s.on("initialize")), timed_out, impatient)
    late = s.script(s.on("initialize", s.sleep(0.1), s.default()))
    yield Entry("E4/late", "initialize is answered after the deadline", late, timed_out, impatient)
    last_words = s.stderr("cannot find the database\n")
    ends = {"0": s.exit(0), "3": s.exit(3), "signal": s.kill_self("SIGSEGV")}
    for name, end in ends.items():
        how = "SIGSEGV" if name == "signal" else f"status {name}"
        yield Entry(
            f"E5/{name}",
            "the end before the answer, with text on stderr",
            s.script(s.expect("initialize"), last_words, s.sleep(0.01), end),
            (Start(StartErr(HandshakeFailed, f"(?s){how}.*cannot find the database")),),
        )
    notes = [
        s.notify("notifications/message", {"level": "info", "data": "x"}),
        s.notify("notifications/tools/list_changed"),
        s.notify("notifications/of/its/own", [1]),
    ]
    yield Entry(
        "E6",
        "notifications before the answer",
        s.script(s.expect("initialize"), notes, s.default()),
        (Start(Ok()),),
        dropped=3,
    )
    no = {"error": {"code": -32601}}
    asked: dict[str, tuple[str, Json, int | str]] = {
        "roots": ("roots/list", no, "r-1"),
        "sampling": ("sampling/createMessage", no, 7),
        "ping": ("ping", {"result": {"$exactly": {}}}, 2**70),
    }
    for name, (method, where, identifier) in asked.items():
        waits = [s.request(identifier, method), s.expect(response=identifier, where=where)]
        yield Entry(
            f"E7/{name}",
            "a request before the answer, which waits for ours",
            s.script(s.expect("initialize", save="hello"), waits, s.default("hello")),
            (Start(Ok()),),
        )
    asks_for = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"$exactly": {}},
        "clientInfo": {"name": "treadle", "version": {"$type": "string"}},
    }
    yield Entry(
        "E8",
        "a strict server: initialize as it must be, then initialized, before anything else",
        s.script(
            s.expect("initialize", where={"id": 1, "params": asks_for}),
            s.default(),
            s.expect(None, where={"method": "notifications/initialized"}),
            s.expect(None, where={"method": "tools/list"}),
            s.default(),
            s.expect(
                "tools/call", where={"params": {"$exactly": {"name": "echo", "arguments": {"text": "hello"}}}}
            ),
            s.default(),
        ),
        (called(HELLO),),
    )


def _capabilities() -> Iterator[Entry]:
    version = "2025-06-18"
    fine: dict[str, dict[str, Json]] = {
        "no-server-info": {"capabilities": {"tools": {}}},
        "unknown-capabilities": {"capabilities": {"tools": {"x": 1}, "teleport": {}, "logging": {}}, "extra": 1},
        "instructions": {"capabilities": {"tools": {"listChanged": False}}, "instructions": "be kind"},
    }
    for name, answer in fine.items():
        result = s.result({"protocolVersion": version, **answer})
        yield Entry(
            f"E10/{name}",
            "an initialize result of this shape",
            s.script(s.on("initialize", result)),
            (Start(Ok()),),
        )
    none: dict[str, dict[str, Json]] = {"no-capabilities": {}, "no-tools": {"capabilities": {"prompts": {}}}}
    for name, answer in none.items():
        yield _refused(f"E10/{name}", s.result({"protocolVersion": version, **answer}), ToolsNotDeclared, "tools")
    wrong: dict[str, dict[str, Json]] = {
        "server-info": {"capabilities": {"tools": {}}, "serverInfo": "me"},
        "instructions-number": {"capabilities": {"tools": {}}, "instructions": 3},
        "list-changed": {"capabilities": {"tools": {"listChanged": "yes"}}},
    }
    fields = {"server-info": "serverInfo", "instructions-number": "instructions", "list-changed": "listChanged"}
    for name, answer in wrong.items():
        reply = s.result({"protocolVersion": version, **answer})
        yield _refused(f"E10/wrong-{name}", reply, HandshakeFailed, fields[name])
    yield _refused("E10/result-array", s.result([]), HandshakeFailed, "initialize")


ENTRIES = (*_envelope(), *_ids(), *_versions(), *_handshakes(), *_capabilities())
