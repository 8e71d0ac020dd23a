"""The command line (floor 7): one verb a file, imported only when it is used."""

from __future__ import annotations


def main() -> None:
    """The entry point ``treadle``."""
    from treadle.cli.app import treadle

    treadle(prog_name="treadle")
