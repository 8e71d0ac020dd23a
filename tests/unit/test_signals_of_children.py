"""The tests themselves: what they start has default signals, wherever they are started."""

import signal
import subprocess
import sys

import pytest

from conftest import pytest_sessionstart


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM])
def test_a_child_of_tests_that_run_in_the_background_ends_by_a_signal(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        pytest_sessionstart()
        code = f"import signal; print(signal.getsignal({number.value}) is signal.SIG_IGN)"
        done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
        signal.raise_signal(number)  # is still ignored here
    finally:
        signal.signal(number, before)
    assert done.stdout.strip() == "False"
