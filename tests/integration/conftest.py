"""What integration tests share."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvloop

from support.daemon import Daemon, toml
from treadle.cli import _run

Serve = Callable[..., Daemon]
LoopFactory = Callable[[], asyncio.AbstractEventLoop]

LOOP_FACTORIES: Mapping[str, LoopFactory] = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    """Run a module's tests under the event loops that it names in ``LOOPS``; asyncio's own without."""
    module = item.getparent(pytest.Module)
    names = ("asyncio",) if module is None else getattr(module.obj, "LOOPS", ("asyncio",))
    return {name: LOOP_FACTORIES[name] for name in names}


@contextmanager
def _serving(parent: Path) -> Iterator[Serve]:
    """Real daemons in folders below ``parent``. None may leave a process behind."""
    running: list[Daemon] = []

    def start(
        servers: Mapping[str, Mapping[str, Any]],
        broker: Mapping[str, Any] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> Daemon:
        folder = parent / f"daemon{len(running)}"
        folder.mkdir()
        daemon = Daemon(folder, toml(servers, broker), environ=environ, options=options)
        running.append(daemon)
        daemon.start()
        return daemon

    yield start
    for daemon in running:
        if daemon.process is not None:
            daemon.stop()
            assert daemon.leftovers() == []
            assert "Traceback" not in daemon.log(), daemon.log()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start real daemons: ``serve({"demo": {"command": [...]}}, broker={...})``. All end with the test, and none
    may leave a process behind."""
    with _serving(tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def serve_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """As ``serve``, for a daemon that all tests of a module leave as it is: it ends with the module."""
    with _serving(tmp_path_factory.mktemp("daemons")) as start:
        yield start


class Done(NamedTuple):
    """How a verb ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Verb = Callable[..., Done]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Verb:
    """``typed(daemon, "list", "demo")``: run one line in this process, which is what the console script does after
    its start."""

    def run(daemon: Daemon, *words: str) -> Done:
        monkeypatch.setenv("TREADLE_SOCKET", daemon.socket)
        capfd.readouterr()
        try:
            code: int | str | None = _run(list(words))
        except SystemExit as ended:
            code = ended.code
        sys.stdout.flush()
        out, err = capfd.readouterr()
        assert isinstance(code, int)
        return Done(code, out, err)

    return run
