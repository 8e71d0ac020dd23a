"""Processes that hide in motion: each forks and ends, and its child does the same."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import time
from pathlib import Path

SOURCE = Path(__file__).with_name("hopper.c")
COMPILER = shutil.which("cc")
SECONDS = 30
"""After which they end by themselves, whatever a test left."""


class Hoppers:
    """Compiled in ``folder``; needs a C compiler."""

    def __init__(self, folder: Path) -> None:
        assert COMPILER is not None
        self._program = folder / "hopper"
        self._beat = folder / "beat"
        self._stop = folder / "stop-hopping"
        subprocess.run([COMPILER, "-O1", "-o", self._program, SOURCE], check=True)

    def command(self, lines: int, pause_us: int = 0, *, marked: bool = True) -> str:
        """A line of shell that starts them, with the server's mark in their environment or without."""
        words = [self._program, lines, pause_us, SECONDS, self._beat, self._stop]
        return ("" if marked else "env -i ") + shlex.join(map(str, words))

    def beats(self) -> int:
        """How often they have hopped."""
        return self._beat.stat().st_size if self._beat.exists() else 0

    def still(self, seconds: float = 0.3) -> bool:
        """Whether none hops any more."""
        before = self.beats()
        time.sleep(seconds)
        return self.beats() == before

    def end(self) -> None:
        """Have what is left end by itself."""
        self._stop.touch()
        while not self.still():
            pass
