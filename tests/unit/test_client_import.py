"""What `import treadle_client` brings in: a one-shot call must not pay for what it does not use."""

import json
import subprocess
import sys

PROGRAM = """
import sys
import msgpack
before = set(sys.modules)
import treadle_client
{more}
brought = set(sys.modules) - before
import json
print(json.dumps(sorted(brought)))
"""

CORE = {
    "_socket",
    "treadle_client",
    "treadle_client._requests",
    "treadle_client.client",
    "treadle_client.errors",
    "treadle_client.frames",
    "treadle_client.paths",
    "treadle_client.results",
}


def imported(more: str = "") -> set[str]:
    program = PROGRAM.format(more=more)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_the_import_brings_in_the_client_and_a_c_module_and_nothing_else() -> None:
    assert imported() - {"__future__", "itertools"} == CORE


def test_using_the_blocking_client_brings_in_nothing_more() -> None:
    assert imported("treadle_client.Client('/nonexistent').close()") - {"__future__", "itertools"} == CORE


def test_the_asyncio_client_is_loaded_when_it_is_named() -> None:
    assert "asyncio" in imported("treadle_client.AsyncClient")
    assert "asyncio" not in imported("dir(treadle_client)")


def test_a_name_that_is_none_is_an_attribute_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import treadle_client; treadle_client.AsyncKlient"], capture_output=True, text=True
    )
    assert "AttributeError: module 'treadle_client' has no attribute 'AsyncKlient'" in done.stderr
