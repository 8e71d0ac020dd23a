"""The command line (floor 7): one verb a file, imported only when it is used."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """The entry point ``treadle``. Always exits."""
    for stream in (sys.stdout, sys.stderr):
        # A character that the locale cannot spell is no reason to lose an answer.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough. What is still buffered must not complain at the interpreter's end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 0
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _run(line: list[str]) -> int:
    from treadle.cli import plain

    work = plain.parse(line)
    if work is not None:
        return work()
    from treadle.cli.app import run

    return run(line)
