"""The session under any interleaving: each request settles exactly once, and nothing else moves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule
from session_kit import HELLO, NOTIFICATION, error, line, ready, request, result
from strategies import chunkings, damaged_lines, values

from treadle.errors import CallTimedOut, ChannelClosed, Stopped, Unavailable
from treadle.session import Answered, Died, Event, Failed, Listed, Ponged, State, Warned

ANSWERS: st.SearchStrategy[Any] = st.sampled_from(
    [
        HELLO,
        {},
        None,
        {"tools": []},
        {"tools": [{"name": "a", "inputSchema": {}}]},
        {"tools": [{"name": "b", "inputSchema": {}}], "nextCursor": "next"},
        {"tools": [], "nextCursor": "other"},
        {"content": [], "structuredContent": 2**64},
    ]
)


NOISE = [NOTIFICATION, b"\n", b"log\n", b"[1]\n", request("r"), request(3, "ping"), result("2"), result(10**6)]


@dataclass
class Asked:
    """What the model knows of a request."""

    kind: str
    deadline: float
    settled: int = 0


class Conversation(RuleBasedStateMachine):
    """Drives a session and keeps books beside it."""

    calls: Bundle[int] = Bundle("calls")

    def __init__(self) -> None:
        super().__init__()
        self.session = ready(bad_lines="drop")
        self.now = 0.0
        self.asked: dict[str, Asked] = {}
        self.withdrawn: set[str] = set()
        self.by_id: dict[int, str] = {}
        self.on_the_wire: list[int] = []
        self.taken_ids: list[int] = []
        self.deaths = 0

    def take(self, events: list[Event]) -> None:
        for event in events:
            assert self.deaths == 0, "nothing comes after the end"
            match event:
                case Answered(token) | Listed(token) | Ponged(token) | Failed(token):
                    asked = self.asked[token]
                    asked.settled += 1
                    assert asked.settled == 1
                    assert token not in self.withdrawn
                    kind = {"call": Answered, "list": Listed, "ping": Ponged}[asked.kind]
                    assert isinstance(event, Failed | kind)
                    if isinstance(event, Failed) and isinstance(event.fault, CallTimedOut):
                        assert asked.deadline <= self.now
                case Died():
                    self.deaths += 1
                    assert all(asked.settled for token, asked in self.asked.items() if token not in self.withdrawn)
                case _:
                    assert isinstance(event, Warned)

    def open_tokens(self) -> list[str]:
        return [token for token, asked in self.asked.items() if not asked.settled and token not in self.withdrawn]

    def new(self, kind: str, patience: float) -> tuple[str, float]:
        token = f"{kind}-{len(self.asked)}"
        deadline = self.now + patience
        self.asked[token] = Asked(kind, deadline)
        return token, deadline

    alive = precondition(lambda self: self.session.state is State.READY)
    patience = st.sampled_from([1.0, 2.0, 5.0])

    @alive
    @rule(target=calls, patience=patience, content=st.sampled_from(["text", "all"]))
    def call(self, patience: float, content: Any) -> int:
        token, deadline = self.new("call", patience)
        number = self.session.call("x", b"{}", deadline, token, timeout_ms=1, content=content)
        self.by_id[number] = token
        return number

    @alive
    @rule(patience=patience)
    def list(self, patience: float) -> None:
        token, deadline = self.new("list", patience)
        self.session.list_tools(deadline, token, timeout_ms=1)

    @alive
    @rule(target=calls, patience=patience)
    def ping(self, patience: float) -> int:
        token, deadline = self.new("ping", patience)
        number = self.session.ping(deadline, token, timeout_ms=1)
        self.by_id[number] = token
        return number

    @rule(number=consumes(calls))
    def cancel(self, number: int) -> None:
        token = self.by_id[number]
        was_open = token in self.open_tokens()
        assert self.session.cancel(number) is was_open
        if was_open:
            self.withdrawn.add(token)

    @rule()
    def send(self) -> None:
        for number, text in self.session.take_output():
            message = json.loads(text)
            assert text.count(b"\n") == 1
            if number:
                assert message["id"] == number
                self.taken_ids.append(number)
                self.on_the_wire.append(number)
        assert len(self.taken_ids) == len(set(self.taken_ids)), "a request is sent at most once"

    @precondition(lambda self: self.on_the_wire)
    @rule(data=st.data(), value=ANSWERS, good=st.booleans(), again=st.booleans())
    def answer(self, data: st.DataObject, value: Any, good: bool, again: bool) -> None:
        number = data.draw(st.sampled_from(self.on_the_wire))
        if not again:
            self.on_the_wire.remove(number)
        text = result(number, value) if good else error(number, data=value)
        for chunk in data.draw(chunkings(text)):
            self.take(self.session.receive_data(chunk))

    @rule(noise=st.sampled_from(NOISE) | damaged_lines().filter(bytes.isascii).map(lambda text: text + b"\n"))
    def noise(self, noise: bytes) -> None:
        self.take(self.session.receive_data(noise))

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.take(self.session.expire(self.now))
        assert all(self.asked[token].deadline > self.now for token in self.open_tokens())

    @precondition(lambda self: len(self.asked) > 3)
    @rule(fault=st.sampled_from([Stopped(), ChannelClosed("gone")]))
    def die(self, fault: Any) -> None:
        first = self.session.state is not State.DEAD
        events = self.session.die(fault)
        self.take(events)
        assert bool(events) is first

    @precondition(lambda self: self.session.state is State.DEAD)
    @rule(value=values)
    def say_something_to_the_dead(self, value: Any) -> None:
        assert self.session.receive_data(line(value)) == []
        with pytest.raises(Unavailable) as refused:
            self.session.ping(1.0, "late", timeout_ms=1)
        assert refused.value.reason == str(self.session.fault)

    @invariant()
    def the_books_agree(self) -> None:
        tokens = self.open_tokens()
        assert self.session.in_flight == len(tokens)
        assert self.session.next_deadline == min((self.asked[token].deadline for token in tokens), default=None)
        assert (self.deaths == 1) is (self.session.state is State.DEAD)


TestConversation = Conversation.TestCase
TestConversation.settings = settings(max_examples=40, stateful_step_count=30)
