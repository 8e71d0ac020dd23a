"""When a server that ended is started again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.config import ServerConfig
from treadle.restart import JITTER, Again, Park, Rest, RestartPolicy


def policy(jitter: float = 0.5, **keys: Any) -> RestartPolicy:
    return RestartPolicy(ServerConfig(name="x", command=("x",), **keys), lambda: jitter)


@pytest.mark.parametrize("clean", [True, False])
def test_never_leaves_a_dead_server_dead(clean: bool) -> None:
    assert policy().ended(clean=clean, uptime=1000.0, reason="") == Rest()


def test_on_failure_leaves_a_clean_exit_alone() -> None:
    assert policy(restart="on-failure").ended(clean=True, uptime=5.0, reason="") == Rest()


def test_on_failure_restarts_a_failure() -> None:
    assert isinstance(policy(restart="on-failure").ended(clean=False, uptime=5.0, reason=""), Again)


def test_always_restarts_a_clean_exit_too() -> None:
    assert isinstance(policy(restart="always").ended(clean=True, uptime=5.0, reason=""), Again)


def test_delays_double_up_to_their_maximum() -> None:
    one = policy(restart="always", restart_backoff_ms=100, restart_backoff_max_ms=500, restart_limit=10)
    verdicts = [one.ended(clean=False, uptime=None, reason="") for _ in range(5)]
    assert verdicts == [Again(0.1), Again(0.2), Again(0.4), Again(0.5), Again(0.5)]


@given(st.floats(0, 1), st.integers(0, 8))
def test_jitter_spreads_a_delay_by_its_share_and_never_past_the_maximum(jitter: float, earlier: int) -> None:
    one = policy(jitter, restart="always", restart_backoff_ms=100, restart_backoff_max_ms=5000, restart_limit=20)
    for _ in range(earlier):
        one.ended(clean=False, uptime=None, reason="")
    verdict = one.ended(clean=False, uptime=None, reason="")
    assert isinstance(verdict, Again)
    middle = min(5.0, 0.1 * 2**earlier)
    assert middle * (1 - JITTER) * 0.999 <= verdict.delay <= min(5.0, middle * (1 + JITTER) * 1.001)


def test_past_the_limit_a_server_is_parked_with_its_last_reason() -> None:
    one = policy(restart="on-failure", restart_limit=3)
    verdicts = [one.ended(clean=False, uptime=1.0, reason="exited with status 3") for _ in range(4)]
    assert [type(verdict) for verdict in verdicts] == [Again, Again, Again, Park]
    assert isinstance(verdicts[3], Park)
    assert "restart_limit" in verdicts[3].reason
    assert "exited with status 3" in verdicts[3].reason


def test_a_spawn_alone_does_not_reset_the_row() -> None:
    one = policy(restart="always", restart_limit=2, restart_reset_s=60)
    assert isinstance(one.ended(clean=False, uptime=59.9, reason=""), Again)
    assert isinstance(one.ended(clean=False, uptime=59.9, reason=""), Again)
    assert isinstance(one.ended(clean=False, uptime=59.9, reason=""), Park)


def test_sustained_uptime_resets_the_row() -> None:
    one = policy(restart="always", restart_backoff_ms=100, restart_limit=2, restart_reset_s=60)
    for _ in range(2):
        one.ended(clean=False, uptime=1.0, reason="")
    assert one.ended(clean=False, uptime=60.0, reason="") == Again(0.1)


def test_an_explicit_start_forgives_the_row() -> None:
    one = policy(restart="always", restart_backoff_ms=100, restart_limit=1)
    one.ended(clean=False, uptime=None, reason="")
    one.forgive()
    assert one.ended(clean=False, uptime=None, reason="") == Again(0.1)


def test_restarts_are_counted_for_status() -> None:
    one = policy(restart="always", restart_limit=2)
    for _ in range(5):
        one.ended(clean=False, uptime=None, reason="")
    assert one.restarts == 2
