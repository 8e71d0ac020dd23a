"""The golden outputs for three real servers; run as a program, it writes them anew."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from treadle.codegen import TARGETS, generate
from unit.codegen.loading import VECTORS, real

SERVERS = ("everything", "filesystem", "time")
FOLDER = VECTORS / "codegen"


def outputs() -> dict[str, str]:
    """Each file of the golden folder by name. The ending keeps linters and formatters away from the bytes."""
    files = {}
    for server in SERVERS:
        for target in TARGETS:
            made = generate(server, real(server), target)
            files[f"{made.file_name}.txt"] = made.source
            files[f"{made.file_name}.surface.txt"] = made.surface
    return files


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in outputs().items():
        (FOLDER / name).write_text(text)
