"""The state table, exhaustively: every state with every input."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from session_kit import INITIALIZE, ready, result, started

from treadle.errors import Stopped, Unavailable
from treadle.session import TABLE, TRANSITIONS, Rule, Rules, Session, State


def dead() -> Session:
    session = ready()
    session.die(Stopped("a test"))
    return session


STATES: dict[State, Callable[[], Session]] = {
    State.PREPARED: lambda: Session("odd", client_version="1"),
    State.INITIALIZING: started,
    State.READY: ready,
    State.DEAD: dead,
}

INPUTS: dict[str, list[Callable[[Session], Any]]] = {
    "initialize": [lambda session: session.initialize(10.0, timeout_ms=10_000)],
    "request": [
        lambda session: session.list_tools(30.0, "token", timeout_ms=30_000),
        lambda session: session.call("x", b"{}", 30.0, "token", timeout_ms=30_000),
        lambda session: session.ping(30.0, "token", timeout_ms=30_000),
    ],
    "data": [
        lambda session: session.receive_data(b"no json\n"),
        lambda session: session.receive_data(b'{"jsonrpc":"2.0","id":5,"method":"ping"}\n'),
        lambda session: session.receive_data(result(1, INITIALIZE)),
    ],
    "expire": [lambda session: session.expire(1e9)],
    "die": [lambda session: session.die(Stopped("another test"))],
}


def snapshot(session: Session) -> tuple[object, ...]:
    return (
        session.state,
        session.fault,
        session.in_flight,
        session.next_deadline,
        session.dropped,
        session.bad_lines,
    )


def test_the_table_knows_every_state_and_input() -> None:
    assert set(TABLE) == set(TRANSITIONS) == set(STATES) == set(State)
    assert set(Rules._fields) == set(INPUTS)


@pytest.mark.parametrize("state", State)
def test_a_session_is_in_the_state_that_it_was_brought_to(state: State) -> None:
    assert STATES[state]().state is state


CASES = [
    pytest.param(state, name, act, id=f"{state.value}-{name}-{number}")
    for state, name in itertools.product(State, INPUTS)
    for number, act in enumerate(INPUTS[name])
]


@pytest.mark.parametrize(("state", "name", "act"), CASES)
def test_every_input_does_in_every_state_what_the_table_says(
    state: State, name: str, act: Callable[[Session], Any]
) -> None:
    session = STATES[state]()
    before = snapshot(session)
    match getattr(TABLE[state], name):
        case Rule.REFUSE:
            with pytest.raises(Unavailable) as refused:
                act(session)
            assert refused.value.outcome == "not_sent"
        case Rule.MISUSE:
            with pytest.raises(RuntimeError):
                act(session)
        case Rule.IGNORE:
            assert act(session) == []
        case Rule.ACT:
            act(session)
            assert session.state is state or session.state in TRANSITIONS[state]
            return
    assert snapshot(session) == before
    assert session.take_output() == []


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (State.PREPARED, "server odd is not started"),
        (State.INITIALIZING, "server odd is starting: its handshake is not finished"),
        (State.DEAD, "stopped by a test"),
    ],
)
def test_a_refusal_gives_the_reason(state: State, reason: str) -> None:
    with pytest.raises(Unavailable) as refused:
        STATES[state]().ping(1.0, "token", timeout_ms=1)
    assert refused.value.reason == reason


def test_a_transition_happens_as_the_table_says() -> None:
    session = STATES[State.PREPARED]()
    seen = [session.state]
    session.initialize(10.0, timeout_ms=10_000)
    seen.append(session.state)
    session.receive_data(result(1, INITIALIZE))
    seen.append(session.state)
    session.die(Stopped())
    seen.append(session.state)
    assert seen == [State.PREPARED, State.INITIALIZING, State.READY, State.DEAD]
    assert all(after in TRANSITIONS[before] for before, after in itertools.pairwise(seen))
