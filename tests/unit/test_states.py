"""The table of a supervised server's states."""

import itertools

import pytest

from treadle.states import TRANSITIONS, Input, State, follow


@pytest.mark.parametrize(("state", "happening"), list(itertools.product(State, Input)))
def test_every_pair_either_leads_on_or_is_refused_loudly(state: State, happening: Input) -> None:
    if (state, happening) in TRANSITIONS:
        assert follow(state, happening) is TRANSITIONS[state, happening]
    else:
        with pytest.raises(AssertionError, match=state.value):
            follow(state, happening)


def test_a_start_is_possible_only_where_nothing_runs() -> None:
    starts = {state for (state, happening) in TRANSITIONS if happening is Input.START}
    assert starts == {State.PREPARED, State.RETIRED, State.BACKOFF, State.PARKED}


def test_what_ran_is_left_through_proof_alone() -> None:
    """A replacement needs evidence: every way from a running state to a startable one passes through PROVEN."""
    startable = {State.PREPARED, State.RETIRED, State.BACKOFF, State.PARKED}
    running = {State.STARTING, State.READY, State.CLOSING, State.UNCONFIRMED}
    ways = {h for (s, h), after in TRANSITIONS.items() if s in running and after in startable}
    assert ways == {Input.PROVEN}


def test_disabled_and_refused_have_no_way_out() -> None:
    assert not [s for (s, _) in TRANSITIONS if s in (State.DISABLED, State.REFUSED)]


def test_every_other_state_can_be_reached() -> None:
    reached = {State.PREPARED, *TRANSITIONS.values()}
    assert reached == set(State) - {State.DISABLED, State.REFUSED}
