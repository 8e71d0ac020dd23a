"""Groups H (death and pipes) and I (shutdown and restart)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from support import script as s
from support.catalogue.framing import on_call
from support.catalogue.model import HELLO, TIMEOUT, Call, CallErr, Calls, Death, Entry, Fatal, Ok, Stop, called
from support.script import Script

MIB = 1024 * 1024
BRIEF = {"stop_timeout_ms": 500}
"""EOF at once, SIGTERM after 200 ms, SIGKILL after 500 ms."""


def _death() -> Iterator[Entry]:
    killed = Call(Fatal("SIGKILL"))
    yield Entry(
        "H1",
        "killed inside a call, 20 in flight",
        s.script(s.on("tools/call"), s.at(20, s.kill_self("SIGKILL"))),
        (Calls((killed,) * 20),),
    )
    yield Entry(
        "H2",
        "exits 0 while idle",
        s.script(s.expect("tools/call"), s.default(), s.sleep(0.02), s.exit(0)),
        (called(HELLO), Death(Fatal("status 0"))),
    )
    yield Entry(
        "H3/stdout",
        "closes its stdout and lives on",
        s.script(s.expect("tools/call"), s.close(1), s.hang()),
        (called(Fatal("stdout")),),
        {"stop_timeout_ms": 250},
    )
    yield Entry(
        "H11",
        "stops itself",
        on_call(s.stop_self()),
        (called(CallErr(TIMEOUT)), Stop("term", signal="SIGTERM")),
        {"call_timeout_ms": 80, "stop_timeout_ms": 250},
    )


def _pipes() -> Iterator[Entry]:
    large = "x" * (4 * MIB)
    yield Entry(
        "H6",
        "reads no more; a 4 MiB argument",
        s.script(s.expect("notifications/initialized"), s.expect("tools/list"), s.default(), s.stop_reading()),
        (called(CallErr(TIMEOUT), text=large), Stop("term", signal="SIGTERM")),
        {"call_timeout_ms": 80, "stop_timeout_ms": 500},
    )
    note = '{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"0123456789abcdef"}}\n'
    notes = 8 * MIB // len(note)
    yield Entry(
        "H7",
        "8 MiB on stdout while we write 2 MiB",
        s.script(s.at(1, s.flood(note, notes * len(note)), s.default())),
        (Calls((Call(HELLO), Call(Ok(), "echo", {"text": "y" * (2 * MIB)}))),),
        dropped=notes,
    )
    says = {
        "per-call": s.flood("noise on stderr\n", 256 * 1024, fd=2),
        "no-lf": s.flood("x", 50 * MIB, fd=2),
        "not-utf8": s.stderr(b"\xff\xfe caf\xe9 \xed\xa0\x80\n"),
        "request": s.stderr([s.as_json(s.PARAMS), "\n"]),
    }
    for name, step in says.items():
        script = s.script(s.on("tools/call", step, s.default()))
        yield Entry(f"H8/{name}", "a talkative stderr", script, (called(HELLO), called(HELLO)))


def _shutdown() -> Iterator[Entry]:
    for name, seconds in {"at-once": 0.0, "soon": 0.05, "just-in-time": 0.15}.items():
        script = s.script(s.on_eof(s.sleep(seconds), s.exit(0)))
        yield Entry(f"I1/{name}", "exits on EOF: no signal is sent", script, (Stop("eof", status=0),), BRIEF)
    yield Entry(
        "I2",
        "ignores EOF, ends on SIGTERM",
        s.script(s.on_eof()),
        (Stop("term", signal="SIGTERM"),),
        {"stop_timeout_ms": 250},
    )
    deaf = (Stop("kill", signal="SIGKILL"),)
    quick = {"stop_timeout_ms": 100}
    yield Entry("I3/sleeping", "ignores EOF and SIGTERM", s.script(s.ignore("SIGTERM"), s.on_eof()), deaf, quick)
    busy = s.script(s.ignore("SIGTERM"), s.on_eof(s.spin()))
    yield Entry("I3/busy", "ignores SIGTERM, busy", busy, deaf, quick, needs_process=True)
    # Ignored before the fork, and so by the child from its first moment.
    deaf_child = s.ignore("SIGTERM")
    worker = s.fork(s.hang())
    yield Entry(
        "I4",
        "leaves a worker behind that traps SIGTERM",
        s.script(deaf_child, worker),
        (Stop("eof", status=0, stragglers=1),),
        BRIEF,
        needs_process=True,
    )
    away = s.fork(s.hang(), setsid=True, double=True)
    yield Entry(
        "I4/session",
        "leaves an orphan behind in a session of its own",
        s.script(deaf_child, away),
        (Stop("eof", status=0, stragglers=1),),
        BRIEF,
        needs_process=True,
    )
    yield Entry(
        "I6",
        "exits by itself during the grace after SIGTERM",
        s.script(s.on_eof(), s.trap("SIGTERM", s.sleep(0.05), s.exit(0))),
        (Stop("term", status=0),),
        BRIEF,
    )


def fails_at_start(starts: Path | str, failures: int | None = None) -> Script:
    """I8, I9: exits 1 at its first ``failures`` starts (None: all), then works; ``starts`` is a counter file."""
    if failures is None:
        return s.script(s.exit(1))
    return s.script(s.by_start(starts, {number: [s.exit(1)] for number in range(1, failures + 1)}))


def dies_after(seconds: float, code: int = 1) -> Script:
    """I8, I9: works until ``seconds`` after its first listing, and exits with ``code``."""
    return s.script(s.at(1, s.default(), s.sleep(seconds), s.exit(code), method="tools/list"))


ENTRIES = (*_death(), *_pipes(), *_shutdown())
