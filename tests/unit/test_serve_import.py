"""What `treadle serve` imports before it starts a server: nine tenths of its start are imports."""

import subprocess
import sys

PROGRAM = """
import sys
import uvloop, msgspec.structs, msgpack
before = set(sys.modules)
from treadle.cli import plain
plain.parse(["serve"])
import treadle.daemon
print(*set(sys.modules) - before)
"""

SPARED = {
    "click", "dataclasses", "email", "http", "importlib.metadata", "pathlib", "prometheus_client", "psutil",
    "random", "rich", "secrets", "shutil", "tempfile", "treadle.codegen", "treadle.metrics", "urllib.parse",
}  # fmt: skip
"""Not needed, or not by every daemon, and dear."""


def test_serve_imports_nothing_dear_that_its_loop_and_its_codecs_have_not_brought() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    brought = set(done.stdout.split())
    assert "treadle.broker" in brought
    assert brought & SPARED == set()
