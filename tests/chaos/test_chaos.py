"""``make chaos``: what must hold after a storm of ``$CHAOS_SECONDS`` (120) from ``$CHAOS_SEED`` (a fresh one)."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from chaos.storm import Storm

SECONDS = float(os.environ.get("CHAOS_SECONDS", "120"))


async def test_nothing_is_lost_left_or_leaked_in_a_storm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or secrets.randbelow(2**32))
    storm = Storm(tmp_path, seed)
    with capsys.disabled():
        print(f"\nchaos: {SECONDS:g} s, CHAOS_SEED={seed}", flush=True)
        try:
            await storm.rage(SECONDS)
        finally:
            storm.clear()
            for title, counts in (("calls", storm.seen.calls), ("deeds", storm.seen.deeds)):
                print(f"{title}: {', '.join(f'{name} {count}' for name, count in sorted(counts.items()))}")
    assert not storm.seen.late, "\n".join(storm.seen.late)
    assert not storm.seen.wrong, "\n".join(storm.seen.wrong)
    assert storm.seen.calls["ok"] > SECONDS  # the storm did not keep the daemon from its work
