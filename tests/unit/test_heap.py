"""The daemon's own memory: kept for the next large message, and given back when none comes."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
from treadle.heap import WORTH_IT, Heap

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

heap = Heap()
heap.keep()
before = resident()
blocks = [b"x" * WORTH_IT for _ in range(4)]
del blocks
kept = resident() - before
heap.give_back()
print(kept > 3 * WORTH_IT, resident() - before < WORTH_IT)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the allocator of Linux")
def test_what_a_large_message_took_is_kept_and_given_back_when_asked() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"], done.stderr
