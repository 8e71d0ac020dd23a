"""The command line (floor 7): one verb a file, imported only when it is used."""

from __future__ import annotations

import errno
import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

_INTERRUPTED: Final = 130  # also in codes, which is not imported for every line


class OutputLost(Exception):
    """Standard output takes nothing more. No ``OSError``: what a verb or click makes of one is not for this."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror)
        self.reader_gone = error.errno == errno.EPIPE


class _Output(io.FileIO):
    """Standard output. A reader that is slow is waited for, even where the descriptor would not."""

    def write(self, data: Any, /) -> int:
        try:
            while (written := super().write(data)) is None:
                import select

                select.select([], [self], [])
        except OSError as error:
            raise OutputLost(error) from None
        return written


class _Complaints(io.FileIO):
    """Standard error: where it cannot be written, nobody is left who could be told."""

    def write(self, data: Any, /) -> int:
        try:
            written = super().write(data)
        except OSError:
            written = None
        return len(data) if written is None else written


def main() -> None:
    """The entry point ``treadle``. Always exits."""
    _open_streams()
    code: Any = 0
    try:
        try:
            code = _run(sys.argv[1:])
        except SystemExit as ended:
            code = ended.code
        except KeyboardInterrupt:
            code = _INTERRUPTED
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except OutputLost as lost:
        # What is still buffered must not complain at the interpreter's end.
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), 1)
        if not lost.reader_gone:
            from treadle.cli import codes, output

            output.problem(f"cannot write to standard output: {lost}")
            code = codes.OUTPUT_LOST
    sys.exit(code)


def _open_streams() -> None:
    """Make both outputs ones that fail in words: full, closed, or read by nobody any more."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # Closed from the start. Nothing else may be given its number, and only a write to it is an error.
            os.open(os.devnull, os.O_WRONLY if descriptor == 2 else os.O_RDONLY)
    for name, raw in (("stdout", _Output(1, "w", closefd=False)), ("stderr", _Complaints(2, "w", closefd=False))):
        old = getattr(sys, name)
        text = io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding=old.encoding if old is not None else None,
            # A character that the locale cannot spell is no reason to lose an answer.
            errors="backslashreplace",
            line_buffering=name == "stderr" or raw.isatty(),
        )
        setattr(sys, name, text)


def _run(line: list[str]) -> int:
    from treadle.cli import plain

    work = plain.parse(line)
    if work is not None:
        return work()
    from treadle.cli.app import run

    return run(line)
