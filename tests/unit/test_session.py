"""Calls, listings and the end of a conversation (client page, section 4; groups B, D, F and G)."""

from __future__ import annotations

import gc
import json
import random
import weakref
from typing import Any

import pytest
from session_kit import HELLO, NOTIFICATION, call, error, ready, request, result, sent

from treadle.errors import (
    BadMessage,
    CallTimedOut,
    ChannelClosed,
    CursorRepeated,
    DuplicateTool,
    FieldFault,
    HandshakeFailed,
    InvalidArgument,
    LineTooLong,
    Malformed,
    NotUtf8,
    ResultMalformed,
    ServerError,
    Stopped,
    TooManyPages,
    Unavailable,
    VersionUnsupported,
)
from treadle.session import (
    MAX_UNSENT_REPLIES,
    MAX_UNSENT_REPLY_BYTES,
    NO_REQUEST,
    Answered,
    Died,
    Event,
    Failed,
    Listed,
    Ponged,
    Session,
    State,
    Warned,
)
from treadle.wire.messages import CallResult

HELLO_RESULT = CallResult([{"type": "text", "text": "hello"}], False)


def only(events: list[Event]) -> Any:
    (event,) = events
    return event


# --- requests --------------------------------------------------------------------------------------------------


def test_a_call_is_one_line_with_its_id() -> None:
    session = ready()
    assert call(session, "t") == 2
    assert session.take_output() == [
        (2, b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"a":1}}}\n')
    ]
    assert session.take_output() == []
    assert session.in_flight == 1


def test_ids_are_small_integers_from_1_and_never_reused() -> None:
    session = ready()
    ids = []
    for _ in range(5):
        ids.append(call(session, "t"))
        session.receive_data(result(ids[-1]))
    assert ids == [2, 3, 4, 5, 6]


def test_a_ping_and_a_listing_have_no_params() -> None:
    session = ready()
    session.ping(5.0, "p", timeout_ms=5_000)
    session.list_tools(5.0, "l", timeout_ms=5_000)
    assert sent(session) == [
        {"jsonrpc": "2.0", "id": 2, "method": "ping"},
        {"jsonrpc": "2.0", "id": 3, "method": "tools/list"},
    ]


def test_a_tool_name_that_is_no_unicode_is_refused_and_nothing_is_sent() -> None:
    session = ready()
    with pytest.raises(InvalidArgument):
        session.call("\ud800", b"{}", 60.0, "t", timeout_ms=60_000)
    assert (session.in_flight, session.take_output()) == (0, [])


# --- answers ---------------------------------------------------------------------------------------------------


def test_a_result_settles_its_call() -> None:
    session = ready()
    call(session, "t")
    assert session.receive_data(result(2)) == [Answered("t", HELLO_RESULT)]
    assert session.in_flight == 0
    assert session.next_deadline is None


def test_answers_may_come_in_any_order_and_in_one_read() -> None:
    session = ready()
    ids = {call(session, token): token for token in range(50)}
    order = random.Random(5).sample(sorted(ids), len(ids))
    answers = b"".join(result(number, {"content": [{"type": "text", "text": str(number)}]}) for number in order)
    events = session.receive_data(answers)
    assert [(event.token, event.result.content[0]["text"]) for event in events if isinstance(event, Answered)] == [
        (ids[number], str(number)) for number in order
    ]


def test_an_answer_may_come_in_pieces() -> None:
    session = ready()
    call(session, "t")
    events = [event for octet in result(2) for event in session.receive_data(bytes([octet]))]
    assert events == [Answered("t", HELLO_RESULT)]


def test_a_tool_that_says_no_has_answered() -> None:
    session = ready()
    call(session, "t")
    assert only(session.receive_data(result(2, HELLO | {"isError": True}))).result.is_error is True


def test_content_other_than_text_crosses_on_request() -> None:
    session = ready()
    call(session, "t", content="all")
    block = {"type": "image", "data": "aGk="}
    assert only(session.receive_data(result(2, {"content": [block]}))).result.content == [block]


def test_an_rpc_error_fails_its_call_with_code_message_and_data() -> None:
    session = ready()
    call(session, "t")
    event = only(session.receive_data(error(2, -32602, "bad tool", data=[1, {"a": None}])))
    assert event == Failed("t", ServerError(-32602, "bad tool", b'[1, {"a": null}]', outcome="answered"))


def test_an_error_without_data_and_one_with_null_differ() -> None:
    session = ready()
    call(session, "a")
    call(session, "b")
    absent, null = session.receive_data(error(2) + error(3, data=None))
    assert absent == Failed("a", ServerError(-32000, "no", None))
    assert null == Failed("b", ServerError(-32000, "no", b"null"))


def test_an_error_message_is_made_fit_to_print_and_cut() -> None:
    session = ready()
    call(session, "t")
    fault = only(session.receive_data(error(2, 1, "a\n\x1b[1m" + "x" * 100_000))).fault
    assert fault.message.startswith("a  [1mxxx")
    assert len(fault.message) == 65_536


@pytest.mark.parametrize("data", ["1e400", "18446744073709551616", r'"\ud800"', "[" * 254 + "]" * 254])
def test_an_error_whose_data_cannot_be_carried_is_malformed(data: str) -> None:
    session = ready()
    call(session, "t")
    text = f'{{"jsonrpc":"2.0","id":2,"error":{{"code":1,"message":"m","data":{data}}}}}\n'
    event = only(session.receive_data(text.encode()))
    assert isinstance(event.fault, ResultMalformed)
    assert "cannot be carried" in event.fault.reason


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("{}", "tools/call result: content must be an array, found nothing"),
        ("null", "tools/call result: result must be an object, found null"),
        ('{"content":[{"type":"text"}]}', "content[0].text must be a string"),
        ('{"content":[],"structuredContent":[1e400]}', "$.structuredContent[0] cannot be carried"),
        ('{"content":[],"structuredContent":18446744073709551616}', "an integer outside [-2^63, 2^64-1]"),
        (r'"\ud800"', "an escaped lone surrogate"),
        ("[" * 300 + "]" * 300, "nesting past 256 levels"),
    ],
)
def test_a_result_that_is_not_what_was_promised_costs_only_its_call(raw: str, reason: str) -> None:
    session = ready()
    call(session, "bad")
    call(session, "good")
    first, second = session.receive_data(f'{{"jsonrpc":"2.0","id":2,"result":{raw}}}\n'.encode() + result(3))
    assert isinstance(first, Failed)
    assert isinstance(first.fault, ResultMalformed)
    assert first.fault.outcome == "answered"
    assert reason in first.fault.reason
    assert second == Answered("good", HELLO_RESULT)


@pytest.mark.parametrize("value", [{}, None, [1]])
def test_any_result_answers_a_ping(value: Any) -> None:
    session = ready()
    session.ping(5.0, "p", timeout_ms=5_000)
    assert session.receive_data(result(2, value)) == [Ponged("p")]


def test_an_rpc_error_fails_a_ping() -> None:
    session = ready()
    session.ping(5.0, "p", timeout_ms=5_000)
    assert only(session.receive_data(error(2, -32601))) == Failed("p", ServerError(-32601, "no"))


# --- what is dropped -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, -1, 1, 2, 99, 2**70, pytest.param(10**4299, id="long")])
def test_an_unknown_id_is_dropped(number: int) -> None:
    session = ready()
    assert session.receive_data(result(number)) == []
    assert session.dropped == 1


def test_an_id_past_what_python_converts_is_dropped() -> None:
    session = ready()
    assert session.receive_data(b'{"jsonrpc":"2.0","id":%b,"result":{}}\n' % (b"9" * 5000)) == []
    assert session.dropped == 1


def test_the_same_answer_twice_settles_once() -> None:
    session = ready()
    call(session, "t")
    assert session.receive_data(result(2) + result(2)) == [Answered("t", HELLO_RESULT)]
    assert session.dropped == 1


def test_a_string_id_settles_nothing_and_is_warned_of_once() -> None:
    session = ready()
    call(session, "t")
    events = session.receive_data(result("2") + result("2.0") + error("2"))
    assert events == [Warned('dropped an answer to "2": ids are integers here; others are only counted')]
    assert session.receive_data(result("2")) == []
    assert (session.in_flight, session.dropped) == (1, 4)


@pytest.mark.parametrize("request_id", [2.0, True, None, [2], {}])
@pytest.mark.parametrize("write", [result, error])
def test_an_unusable_id_ends_the_conversation(request_id: Any, write: Any) -> None:
    session = ready()
    call(session, "t")
    failed, died = session.receive_data(write(request_id))
    assert isinstance(died, Died)
    assert isinstance(died.fault, BadMessage)
    assert isinstance(failed, Failed)


def test_notifications_and_blank_lines_are_dropped_and_counted() -> None:
    session = ready()
    assert session.receive_data(NOTIFICATION + b"\n \t\r\n" + NOTIFICATION) == []
    assert session.dropped == 4
    assert session.take_output() == []


# --- requests of the server ------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_id", [7, "7", -1, 2**70, "é"])
def test_a_request_of_the_server_is_refused_with_its_own_id(request_id: Any) -> None:
    session = ready()
    assert session.receive_data(request(request_id, "sampling/createMessage")) == []
    assert sent(session) == [
        {"jsonrpc": "2.0", "id": request_id, "error": {"code": -32601, "message": "method not found"}}
    ]


@pytest.mark.parametrize("request_id", [7, "7"])
def test_a_ping_of_the_server_is_answered(request_id: Any) -> None:
    session = ready()
    session.receive_data(request(request_id, "ping"))
    assert sent(session) == [{"jsonrpc": "2.0", "id": request_id, "result": {}}]


def test_an_answer_to_the_server_is_no_request() -> None:
    session = ready()
    session.receive_data(request(7))
    assert [number for number, _ in session.take_output()] == [NO_REQUEST]


def test_the_answers_that_wait_are_bounded_in_number() -> None:
    session = ready()
    session.receive_data(request(1, "ping") * (MAX_UNSENT_REPLIES + 50))
    assert session.dropped == 50
    assert len(session.take_output()) == MAX_UNSENT_REPLIES
    session.receive_data(request(1, "ping"))
    assert len(session.take_output()) == 1


def test_the_answers_that_wait_are_bounded_in_bytes() -> None:
    session = ready()
    session.receive_data(request("x" * 300_000) * 5)
    waiting = session.take_output()
    assert sum(len(text) for _, text in waiting) <= MAX_UNSENT_REPLY_BYTES
    assert (len(waiting), session.dropped) == (3, 2)


def test_a_flood_of_requests_does_not_keep_calls_from_being_sent() -> None:
    session = ready()
    session.receive_data(request(1) * (MAX_UNSENT_REPLIES + 1))
    number = call(session, "t")
    assert session.take_output()[-1][0] == number


# --- deadlines -------------------------------------------------------------------------------------------------


def test_a_call_past_its_deadline_fails_and_its_late_answer_is_dropped() -> None:
    session = ready()
    call(session, "t", 60.0)
    session.take_output()
    assert session.expire(59.9) == []
    assert session.expire(60.0) == [Failed("t", CallTimedOut(60_000, "unknown"))]
    assert session.in_flight == 0
    assert session.receive_data(result(2)) == []
    assert session.dropped == 1
    call(session, "u", 90.0)
    assert session.receive_data(result(3)) == [Answered("u", HELLO_RESULT)]


def test_a_call_that_never_left_is_not_sent_after_its_deadline() -> None:
    session = ready()
    call(session, "t", 60.0)
    assert session.expire(60.0) == [Failed("t", CallTimedOut(60_000, "not_sent"))]
    assert session.take_output() == []


def test_the_shell_may_correct_the_outcome() -> None:
    session = ready()
    call(session, "t", 60.0)
    session.take_output()
    fault = only(session.expire(60.0)).fault
    fault.outcome = "not_sent"
    assert fault == CallTimedOut(60_000, "not_sent")


def test_deadlines_expire_in_their_own_order() -> None:
    session = ready()
    for deadline in (30.0, 10.0, 20.0):
        call(session, deadline, deadline)
    assert session.next_deadline == 10.0
    assert [event.token for event in session.expire(25.0) if isinstance(event, Failed)] == [10.0, 20.0]
    assert session.next_deadline == 30.0


def test_the_next_deadline_is_that_of_a_live_request() -> None:
    session = ready()
    call(session, "a", 10.0)
    call(session, "b", 20.0)
    session.receive_data(result(2))
    assert session.next_deadline == 20.0


def test_memory_stays_in_proportion_to_what_is_in_flight() -> None:
    session = ready()
    call(session, "long", 1e9)
    session.take_output()
    for _ in range(20_000):
        number = call(session, "t", 1e6)
        session.take_output()
        session.receive_data(result(number))
    kept = len(session._in_flight) + len(session._in_flight._heap)
    assert kept < 200


# --- cancelling ------------------------------------------------------------------------------------------------


def test_a_cancelled_call_is_forgotten() -> None:
    session = ready()
    number = call(session, "t")
    session.take_output()
    assert session.cancel(number) is True
    assert session.cancel(number) is False
    assert (session.in_flight, session.next_deadline) == (0, None)
    assert session.receive_data(result(number)) == []
    assert session.dropped == 1


def test_a_call_cancelled_before_it_left_is_never_sent() -> None:
    session = ready()
    first, second = call(session, "a"), call(session, "b")
    session.cancel(first)
    assert [number for number, _ in session.take_output()] == [second]


def test_cancelling_what_is_not_in_flight_does_nothing() -> None:
    session = ready()
    assert session.cancel(99) is False


# --- listings --------------------------------------------------------------------------------------------------


def page(*names: str, cursor: str | None = None) -> dict[str, Any]:
    tools = [{"name": name, "inputSchema": {}} for name in names]
    return {"tools": tools} | ({} if cursor is None else {"nextCursor": cursor})


def test_a_listing_follows_its_pages() -> None:
    session = ready()
    session.list_tools(30.0, "l", timeout_ms=30_000)
    session.take_output()
    assert session.receive_data(result(2, page("a", cursor="more"))) == []
    assert sent(session) == [{"jsonrpc": "2.0", "id": 3, "method": "tools/list", "params": {"cursor": "more"}}]
    event = only(session.receive_data(result(3, page("b"))))
    assert isinstance(event, Listed)
    assert [tool.name for tool in event.tools] == ["a", "b"]
    assert session.in_flight == 0


def test_a_whole_listing_has_one_deadline() -> None:
    session = ready()
    session.list_tools(30.0, "l", timeout_ms=30_000)
    for number in range(2, 8):
        session.take_output()
        session.receive_data(result(number, page(f"t{number}", cursor=str(number))))
        assert session.next_deadline == 30.0
        assert session.in_flight == 1
    assert session.expire(30.0) == [Failed("l", CallTimedOut(30_000, "unknown"))]
    assert session.take_output() == []


def test_a_listing_that_never_left_was_not_sent() -> None:
    session = ready()
    session.list_tools(30.0, "l", timeout_ms=30_000)
    assert session.expire(30.0) == [Failed("l", CallTimedOut(30_000, "not_sent"))]


def test_a_bad_page_fails_the_whole_listing_and_asks_for_no_more() -> None:
    session = ready()
    session.list_tools(30.0, "l", timeout_ms=30_000)
    session.receive_data(result(2, page("a", cursor="1")))
    session.take_output()
    event = only(session.receive_data(result(3, {"tools": [{"name": "b"}], "nextCursor": "2"})))
    fault = FieldFault("tools/list result", "tools[1].inputSchema", "a JSON schema", "nothing")
    assert event == Failed("l", fault)
    assert session.take_output() == []
    assert session.state is State.READY


def test_faults_of_a_listing_keep_their_type() -> None:
    session = ready()
    session.list_tools(30.0, "twice", timeout_ms=30_000)
    assert session.receive_data(result(2, page("a", "a"))) == [Failed("twice", DuplicateTool("a", 0, 1))]
    session.list_tools(30.0, "loop", timeout_ms=30_000)
    session.receive_data(result(3, page(cursor="1")))
    assert session.receive_data(result(4, page(cursor="1"))) == [Failed("loop", CursorRepeated("1", 2))]
    session.list_tools(30.0, "refused", timeout_ms=30_000)
    assert session.receive_data(error(5)) == [Failed("refused", ServerError(-32000, "no"))]


def test_a_listing_stops_after_64_requests() -> None:
    session = ready()
    session.list_tools(30.0, "l", timeout_ms=30_000)
    asked = 0
    events: list[Event] = []
    while not events:
        (request_line,) = sent(session)
        asked += 1
        events = session.receive_data(result(request_line["id"], page(cursor=f"c{asked}")))
    assert asked == 64
    assert events == [Failed("l", TooManyPages(64))]


def test_a_page_that_cannot_be_carried_is_malformed() -> None:
    session = ready()
    session.list_tools(30.0, "l", timeout_ms=30_000)
    event = only(session.receive_data(b'{"jsonrpc":"2.0","id":2,"result":"\\ud800"}\n'))
    assert isinstance(event.fault, ResultMalformed)


def test_two_listings_do_not_mix() -> None:
    session = ready()
    session.list_tools(30.0, "x", timeout_ms=30_000)
    session.list_tools(30.0, "y", timeout_ms=30_000)
    events = session.receive_data(
        result(3, page("y1")) + result(2, page("x1", cursor="c")) + result(4, page("x2"))
    )
    assert [
        (event.token, [tool.name for tool in event.tools]) for event in events if isinstance(event, Listed)
    ] == [
        ("y", ["y1"]),
        ("x", ["x1", "x2"]),
    ]


# --- the end ---------------------------------------------------------------------------------------------------


def test_an_end_settles_everything_first_and_in_order() -> None:
    session = ready()
    call(session, "a")
    session.list_tools(30.0, "l", timeout_ms=30_000)
    session.ping(5.0, "p", timeout_ms=5_000)
    session.take_output()
    call(session, "unsent")
    assert session.die(ChannelClosed("exited with status 3; stderr: boom")) == [
        Failed("a", Unavailable("exited with status 3; stderr: boom", "unknown")),
        Failed("l", Unavailable("exited with status 3; stderr: boom", "unknown")),
        Failed("p", Unavailable("exited with status 3; stderr: boom", "unknown")),
        Failed("unsent", Unavailable("exited with status 3; stderr: boom", "not_sent")),
        Died(ChannelClosed("exited with status 3; stderr: boom")),
    ]
    assert (session.in_flight, session.next_deadline, session.take_output()) == (0, None, [])


def test_a_listing_that_had_begun_may_have_been_seen() -> None:
    session = ready()
    session.list_tools(30.0, "l", timeout_ms=30_000)
    session.take_output()
    session.receive_data(result(2, page("a", cursor="1")))
    failed, _ = session.die(Stopped())
    assert isinstance(failed, Failed)
    assert failed.fault == Unavailable("stopped by an explicit stop", "unknown")


def test_the_first_reason_is_latched() -> None:
    session = ready()
    session.die(ChannelClosed("first"))
    assert session.die(ChannelClosed("second")) == []
    assert session.fault == ChannelClosed("first")
    with pytest.raises(Unavailable, match="first"):
        call(session, "late")


@pytest.mark.parametrize(
    ("octets", "fault"),
    [
        (b"log line\n", Malformed),
        (b'{"jsonrpc":"2.0","id":2,"result":{}} trailing\n', Malformed),
        (b"Content-Length: 5\r\n\r\n", Malformed),
        (b'{"status":200}\n', BadMessage),
        (b"[]\n", BadMessage),
        (b"\xef\xbb\xbf" + result(2), Malformed),
        (b"caf\xe9\n", NotUtf8),
        (b'{"unfinished \xff', NotUtf8),
        (b"x" * (16 * 1024 * 1024 + 1), LineTooLong),
        (b'{"a":\n', Malformed),
    ],
)
def test_a_broken_line_ends_the_conversation(octets: bytes, fault: type) -> None:
    session = ready()
    call(session, "t")
    failed, died = session.receive_data(octets)
    assert isinstance(died, Died)
    assert type(died.fault) is fault
    assert isinstance(failed, Failed)
    assert isinstance(failed.fault, Unavailable)
    assert failed.fault.reason == str(died.fault)
    assert session.state is State.DEAD


def test_good_lines_before_a_bad_one_are_delivered_and_nothing_after_it() -> None:
    session = ready()
    call(session, "a")
    call(session, "b")
    events = session.receive_data(result(2) + b"noise\n" + result(3))
    assert events[0] == Answered("a", HELLO_RESULT)
    assert [type(event) for event in events[1:]] == [Failed, Died]


def test_the_reason_quotes_the_line() -> None:
    session = ready()
    (event,) = session.receive_data(b"INFO \x1b[2mready\n")
    assert "INFO  [2mready" in str(event)


# --- bad_lines = "drop" ----------------------------------------------------------------------------------------


def test_complete_bad_lines_can_be_dropped_and_counted() -> None:
    session = ready(bad_lines="drop")
    call(session, "t")
    noise = b'log\n{"status":200}\n[]\n{"jsonrpc":"2.0","id":null,"result":1}\nlog\n'
    events = session.receive_data(noise + result(2))
    assert [type(event) for event in events] == [Warned, Warned, Warned, Answered]
    assert session.bad_lines == 5
    assert session.state is State.READY


def test_the_first_three_dropped_lines_are_told() -> None:
    session = ready(bad_lines="drop")
    texts = [event.text for event in session.receive_data(b"one\ntwo\nthree\nfour\n") if isinstance(event, Warned)]
    assert [text.split(": ", 1)[0] for text in texts] == ["dropped"] * 3
    assert [word in text for word, text in zip(["one", "two", "three"], texts, strict=True)] == [True] * 3
    assert ["only counted" in text for text in texts] == [False, False, True]


@pytest.mark.parametrize(("octets", "fault"), [(b"\xff\n", NotUtf8), (b"x" * (16 * 1024 * 1024 + 1), LineTooLong)])
def test_broken_framing_is_fatal_even_then(octets: bytes, fault: type) -> None:
    session = ready(bad_lines="drop")
    assert type(only(session.receive_data(octets)).fault) is fault


# --- secrets ---------------------------------------------------------------------------------------------------


def hide(text: str) -> str:
    return text.replace("s3cret", "[redacted]")


def test_text_of_the_server_in_a_fault_is_redacted() -> None:
    session = ready(redact=hide)
    for token in "abcd":
        call(session, token)
    session.list_tools(30.0, "twice", timeout_ms=30_000)
    session.list_tools(30.0, "loop", timeout_ms=30_000)
    events = [
        *session.receive_data(error(2, 1, "key s3cret refused", data={"key": "s3cret", "n": [1.0]})),
        *session.receive_data(
            b'{"jsonrpc":"2.0","id":3,"result":{"content":[],"structuredContent":{"s3cret":1e400}}}\n'
        ),
        *session.receive_data(result(6, page("s3cret", "s3cret"))),
        *session.receive_data(result(7, page(cursor="s3cret"))),
        *session.receive_data(result(8, page(cursor="s3cret"))),
        *session.receive_data(result("s3cret")),
        *session.receive_data(b"x" * 195 + b"s3cret\n"),
    ]
    assert "s3cret" not in repr(events) + str(events)
    assert "s3" not in str(events[-1]), "a secret must not be cut before it is looked for"
    first = events[0]
    assert isinstance(first, Failed)
    assert isinstance(first.fault, ServerError)
    assert json.loads(first.fault.data or b"") == {"key": "[redacted]", "n": [1.0]}


def test_a_key_that_was_cut_is_not_shown_when_there_are_secrets() -> None:
    session = ready(redact=hide)
    call(session, "t")
    value = {"content": [], "structuredContent": {"x" * 78 + "s3cret": 2**64}}
    reason = only(session.receive_data(result(2, value))).fault.reason
    assert reason == "an integer outside [-2^63, 2^64-1] at $ cannot be carried"


def test_a_version_and_bytes_that_are_not_utf_8_are_redacted() -> None:
    session = Session("odd", client_version="1", redact=hide)
    session.initialize(10.0, timeout_ms=10_000)
    event = only(session.receive_data(result(1, {"protocolVersion": "s3cret"})))
    assert isinstance(event.fault, VersionUnsupported)
    assert event.fault.server == "[redacted]"
    broken = only(ready(redact=hide).receive_data(b"s3cret \xff\n"))
    assert broken.fault.quoted == r"[redacted] \xff"


# --- what is kept ----------------------------------------------------------------------------------------------


def test_a_latched_fault_keeps_no_frame_alive() -> None:
    session = ready()
    call(session, "t")
    failed, died = session.receive_data(result(2, {}) + b"noise\n")
    assert isinstance(failed, Failed)
    assert isinstance(died, Died)
    for fault in (failed.fault, died.fault):
        assert fault.__traceback__ is None
        assert fault.__context__ is None


def test_a_dead_session_does_not_hold_its_last_line() -> None:
    session = ready()
    session.receive_data(b'{"half')
    session.die(Stopped())
    assert session._lines.pending == 0


def test_a_settled_call_lets_go_of_its_token() -> None:
    class Token:
        pass

    session = ready()
    token = Token()
    alive = weakref.ref(token)
    call(session, token)
    session.receive_data(result(2))
    del token
    gc.collect()
    assert alive() is None


class _Watched:
    """A redactor that says how much text it was given."""

    reach = 40

    def __init__(self) -> None:
        self.longest = 0

    def __call__(self, text: str) -> str:
        self.longest = max(self.longest, len(text))
        return text.replace("s3cret-s3cret-s3cret-s3cret", "[redacted]")


def test_an_error_text_of_any_length_costs_what_is_shown_of_it() -> None:
    watched = _Watched()
    session = Session("demo", client_version="1", redact=watched)
    session.initialize(10.0, timeout_ms=10_000)
    message = "s3cret-s3cret-s3cret-s3cret" * 100_000
    line = b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"%b","data":["%b"]}}\n'
    (died,) = session.receive_data(line % (message.encode(), message.encode()))
    assert isinstance(died, Died)
    assert isinstance(died.fault, HandshakeFailed)
    assert isinstance(died.fault.error, ServerError)
    assert "s3cret" not in died.fault.error.message
    assert died.fault.error.data is None
    assert watched.longest < 200_000
