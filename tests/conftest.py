"""What all tests share."""

import signal

from hypothesis import settings

# A deadline for each example measures the machine, not the code. `--hypothesis-profile thorough` searches longer.
settings.register_profile("treadle", deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile("treadle")


def pytest_sessionstart() -> None:
    """What is started in the background, by ``nohup`` or by some CI, ignores signals, and so do its children.

    Caught and dropped instead, they are ignored here all the same, and have their default in every child.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)
