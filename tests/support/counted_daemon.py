"""``treadle`` that writes how many tasks its loop has to the file ``$TREADLE_TEST_TASKS`` at each SIGUSR1."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from pathlib import Path

from treadle.cli import main


def count(*_: object) -> None:
    """Collect first: what only a cycle keeps alive is no leak."""
    gc.collect()
    path = Path(os.environ["TREADLE_TEST_TASKS"])
    path.with_suffix(".tmp").write_text(str(len(asyncio.all_tasks())))
    path.with_suffix(".tmp").replace(path)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, count)
    main()
