"""The stop ladder and its evidence (hostile behaviours of group I; client page, section 5)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest

from support.receivers import Workshop, alive, workshop
from treadle.process import ChildProcess
from treadle.transport import KILL_NOW, Ladder

QUICK = Ladder(term_after=0.15, kill_after=0.3)
SLOW = Ladder(term_after=60, kill_after=120)


LOOPS = ("uvloop", "asyncio")


@pytest.fixture
async def shop() -> AsyncIterator[Workshop]:
    async with workshop() as made:
        yield made


async def started(shop: Workshop, script: str) -> tuple[ChildProcess, int]:
    """A Python server that prints one line, its own pid by default, once it is ready."""
    child, receiver = await shop.python(script)
    return child, int(await receiver.line())


READY = "import os, signal, sys, time\nsay = lambda pid=os.getpid(): print(pid, flush=True)\n"


@pytest.mark.parametrize("delay", [0, 0.1])
async def test_a_server_that_ends_at_end_of_file_gets_no_signal(shop: Workshop, delay: float) -> None:
    handler = "signal.signal(signal.SIGTERM, lambda *_: os._exit(9))\n"
    child, _ = await started(shop, f"{READY}{handler}say(); sys.stdin.read(); time.sleep({delay})")
    evidence = await child.retire(Ladder(term_after=5, kill_after=6))
    assert (evidence.kind, evidence.status, evidence.signal, evidence.rung) == ("exited", 0, None, "eof")
    assert (evidence.drained, evidence.by, evidence.stragglers) == (True, "sweep", 0)
    assert evidence.confirmed
    assert evidence.elapsed_ms >= delay * 1000


async def test_a_server_that_ignores_end_of_file_ends_on_sigterm(shop: Workshop) -> None:
    child, _ = await started(shop, f"{READY}say(); time.sleep(60)")
    evidence = await child.retire(QUICK)
    assert (evidence.signal, evidence.rung) == ("SIGTERM", "term")
    assert evidence.elapsed_ms >= 150


@pytest.mark.parametrize("forever", ["time.sleep(60)", "\nwhile True: pass"])
async def test_a_server_that_ignores_everything_is_killed_at_the_last_rung(shop: Workshop, forever: str) -> None:
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    child, pid = await started(shop, f"{READY}{ignore}say(); {forever}")
    evidence = await child.retire(QUICK)
    assert (evidence.signal, evidence.rung) == ("SIGKILL", "kill")
    assert evidence.elapsed_ms >= 300
    assert not alive(pid)


async def test_a_server_that_exits_by_itself_during_the_term_grace_is_no_error(shop: Workshop) -> None:
    slow = "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.1), os._exit(4)))\n"
    child, _ = await started(shop, f"{READY}{slow}say()\nwhile True: time.sleep(1)")
    evidence = await child.retire(Ladder(term_after=0.05, kill_after=5))
    assert (evidence.status, evidence.rung) == (4, "term")


async def test_a_stopped_server_is_continued_to_end_gracefully(shop: Workshop) -> None:
    handler = "signal.signal(signal.SIGTERM, lambda *_: os._exit(7))\n"
    child, pid = await started(shop, f"{READY}{handler}say(); time.sleep(60)")
    os.kill(pid, signal.SIGSTOP)
    evidence = await child.retire(Ladder(term_after=0.1, kill_after=5))
    assert (evidence.status, evidence.rung) == (7, "term")


async def test_a_stopped_server_that_ignores_sigterm_is_killed(shop: Workshop) -> None:
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    child, pid = await started(shop, f"{READY}{ignore}say(); time.sleep(60)")
    os.kill(pid, signal.SIGSTOP)
    assert (await child.retire(QUICK)).rung == "kill"


async def test_a_server_that_flushes_much_before_it_ends_is_not_blocked_by_us(shop: Workshop) -> None:
    child, receiver = await shop.python(
        "import sys; print(1, flush=True); sys.stdin.read(); print('x' * (4 << 20))"
    )
    await receiver.line()
    assert (await child.retire(Ladder(term_after=5, kill_after=6))).rung == "eof"
    assert len(receiver.data) == (4 << 20) + 1


# --- one ladder for all ----------------------------------------------------------------------------------------


async def test_a_later_call_hurries_the_first_and_both_get_the_same_evidence(shop: Workshop) -> None:
    child, _ = await started(shop, f"{READY}say(); time.sleep(60)")
    patient = asyncio.ensure_future(child.retire(SLOW))
    await asyncio.sleep(0)
    evidence = await child.retire(KILL_NOW)
    assert evidence.rung == "kill"
    assert await patient is evidence
    assert evidence.elapsed_ms < SLOW.term_after * 1000


async def test_a_later_call_never_slows_the_ladder_down(shop: Workshop) -> None:
    child, _ = await started(shop, f"{READY}say(); time.sleep(60)")
    first = asyncio.ensure_future(child.retire(QUICK))
    await asyncio.sleep(0)
    second = await child.retire(SLOW)
    assert second is await first
    assert second.rung == "term"
    assert second.elapsed_ms < SLOW.term_after * 1000


async def test_a_cancelled_caller_does_not_cancel_the_custody(shop: Workshop) -> None:
    child, pid = await started(shop, f"{READY}say(); time.sleep(60)")
    caller = asyncio.ensure_future(child.retire(QUICK))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    evidence = await child.retire(SLOW)
    assert evidence.rung == "term"
    assert not alive(pid)


async def test_the_evidence_is_kept(shop: Workshop) -> None:
    child, _ = await started(shop, f"{READY}say(); time.sleep(60)")
    first = await child.retire(QUICK)
    assert await child.retire(KILL_NOW) is first


async def test_retiring_what_was_never_opened_needs_no_resource(shop: Workshop) -> None:
    child, _ = await started(shop, f"{READY}say()")
    unopened = ChildProcess(child._launch, custody=shop.custody, redact=str)
    assert (await unopened.retire(QUICK)).kind == "no_resource"


async def test_no_signal_follows_the_reap(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    child, pid = await started(shop, f"{READY}say()")
    await child.retire(QUICK)
    sent: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, _: sent.append(pid))
    monkeypatch.setattr(os, "kill", lambda pid, _: sent.append(pid))
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda fd, _: sent.append(fd))
    await child.retire(KILL_NOW)
    assert sent == []
    assert pid not in sent


# --- a status that somebody withholds --------------------------------------------------------------------------

# A child seizes the server as a debugger does and never waits: its parent is told of the end only after that.
# What ends on the way must not stop the server, as a signal to the traced does until the tracer looks at it.
SEIZED = """
import ctypes, os, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGCHLD}})
libc = ctypes.CDLL(None)
libc.ptrace.argtypes = [ctypes.c_long] * 4
libc.prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
server, (r, w) = os.getpid(), os.pipe()
if os.fork() == 0:
    {hide}
    seized = libc.ptrace(0x4206, server, 0, 0)
    os.write(w, b"n" if seized else b"y")
    os.closerange(0, 3)
    os.execve("/bin/sleep", ["sleep", "60"], {environment})
print(os.read(r, 1).decode(), flush=True)
sys.stdin.read()
"""
HIDE = "os.setsid(); os.fork() and os._exit(0)"


@pytest.mark.parametrize(("hide", "environment"), [("pass", "os.environ"), (HIDE, "{}")])
async def test_a_tracer_that_never_waits_does_not_hide_the_exit(
    shop: Workshop, hide: str, environment: str
) -> None:
    child, receiver = await shop.python(SEIZED.format(hide=hide, environment=environment))
    if await receiver.line() != "y":
        pytest.skip("tracing is not allowed here")
    async with asyncio.timeout(10):
        evidence = await child.retire(Ladder(term_after=5, kill_after=6))
    assert (evidence.kind, evidence.status, evidence.rung, evidence.drained) == ("exited", 0, "eof", True)
