"""What a session does when taking an answer in breaks, and with answers made to cost (client page, section 4)."""

from __future__ import annotations

from typing import Any

import pytest
from session_kit import INITIALIZE, call, error, ready, result, started

from treadle.errors import Malformed, ResultMalformed, ServerError
from treadle.secrets import Redactor, Secret
from treadle.session import Answered, Died, Failed, Initialized, _session
from treadle.wire import quick
from treadle.wire.lines import LineBuffer


@pytest.mark.parametrize("breach", [MemoryError(), RecursionError("deep"), SystemError("odd")])
@pytest.mark.parametrize("content", ["text", "all"])
def test_whatever_breaks_while_a_result_is_taken_in_fails_its_call(
    breach: Exception, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: Any) -> None:
        raise breach

    session = ready()
    call(session, "t", content=content)
    call(session, "next")
    with monkeypatch.context() as patch:
        patch.setattr(quick, "_decode_answer", breaks)
        patch.setattr(_session, "decode_call_result", breaks)
        (failed,) = session.receive_data(result(2))
    assert failed == Failed("t", ResultMalformed(f"the answer could not be taken in: {type(breach).__name__}"))
    (answered,) = session.receive_data(result(3))
    assert isinstance(answered, Answered)


def test_whatever_breaks_while_an_error_is_taken_in_fails_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    session = ready()
    call(session, "t")

    def breaks(_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(session._printer, "_redact", breaks)
    (failed,) = session.receive_data(error(2))
    assert isinstance(failed, Failed)
    assert failed.fault == ResultMalformed("the answer could not be taken in: MemoryError")


def test_a_line_that_breaks_the_decoder_counts_as_a_bad_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(_: bytes) -> None:
        raise MemoryError

    session = ready()
    call(session, "t")
    monkeypatch.setattr(quick, "_decode_answer", breaks)
    monkeypatch.setattr(_session, "decode", breaks)
    failed, died = session.receive_data(result(2))
    assert isinstance(failed, Failed)
    assert isinstance(died, Died)
    assert isinstance(died.fault, Malformed)
    assert "could not be taken in: MemoryError" in died.fault.detail


def test_memory_that_runs_out_while_a_line_is_put_together_settles_every_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def breaks(_self: LineBuffer, _chunk: bytes) -> None:
        raise MemoryError

    session = ready()
    call(session, "a")
    call(session, "b")
    monkeypatch.setattr(LineBuffer, "push", breaks)
    *failed, died = session.receive_data(result(2))
    assert [event.token for event in failed if isinstance(event, Failed)] == ["a", "b"]
    assert isinstance(died, Died)
    assert session.receive_data(result(3)) == []


@pytest.mark.parametrize("secret", ["s3cret-s3cret-s3cret", "s3cret\u200bs3cret", "3141592653"])
def test_a_secret_in_what_the_server_calls_itself_is_redacted(secret: str) -> None:
    session = started(redact=Redactor([Secret(secret)]))
    info = {"name": f"name {secret}", "version": "x" * 240 + secret * 2}
    (event,) = session.receive_data(result(1, INITIALIZE | {"serverInfo": info, "instructions": f"use {secret}"}))
    assert isinstance(event, Initialized)
    assert event.result.server_name == "name [redacted]"
    assert event.result.instructions == "use [redacted]"
    assert event.result.server_version is not None
    assert secret[:5] not in event.result.server_version


@pytest.mark.parametrize(
    ("code", "shown"), [(3141592653, 0), (-3141592653, 0), (43141592653, 0), (-32602, -32602)]
)
def test_an_error_code_that_holds_a_secret_becomes_0(code: int, shown: int) -> None:
    session = ready(redact=Redactor([Secret("3141592653")]))
    call(session, "t")
    (failed,) = session.receive_data(error(2, code, "no 3141592653"))
    assert isinstance(failed, Failed)
    assert failed.fault == ServerError(shown, "no [redacted]")
