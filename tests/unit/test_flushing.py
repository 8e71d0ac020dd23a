"""Writes at the end of the callback that made them: one a peer, none lost to another's fault."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from treadle.flushing import Flusher


def _noting(seen: list[str], name: str) -> Callable[[], None]:
    return lambda: seen.append(name)


async def test_what_is_added_in_an_open_turn_is_written_at_its_end_in_order() -> None:
    flusher, seen = Flusher(asyncio.get_running_loop()), list[str]()
    flusher.is_open = True
    flusher.add(_noting(seen, "a"))
    flusher.add(_noting(seen, "b"))
    assert seen == []
    flusher.flush()
    assert seen == ["a", "b"]
    await asyncio.sleep(0)
    flusher.flush()
    assert seen == ["a", "b"]


async def test_what_is_added_at_any_other_time_is_written_soon() -> None:
    flusher, seen = Flusher(asyncio.get_running_loop()), list[str]()
    flusher.add(_noting(seen, "a"))
    flusher.add(_noting(seen, "b"))
    assert seen == []
    await asyncio.sleep(0)
    assert seen == ["a", "b"]


async def test_what_a_write_adds_is_written_in_the_same_turn() -> None:
    flusher, seen = Flusher(asyncio.get_running_loop()), list[str]()
    flusher.is_open = True
    flusher.add(lambda: flusher.add(_noting(seen, "of a write")))
    flusher.flush()
    assert seen == ["of a write"]


async def test_a_write_that_fails_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise OSError("no room")

    flusher, seen = Flusher(asyncio.get_running_loop()), list[str]()
    flusher.is_open = True
    flusher.add(fails)
    flusher.add(_noting(seen, "after it"))
    flusher.flush()
    assert seen == ["after it"]
    assert "writing failed" in caplog.text
