"""What integration tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import uvloop

from support.daemon import Daemon, toml

Serve = Callable[..., Daemon]
LoopFactory = Callable[[], asyncio.AbstractEventLoop]

LOOP_FACTORIES: Mapping[str, LoopFactory] = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    """Run a module's tests under the event loops that it names in ``LOOPS``; asyncio's own without."""
    module = item.getparent(pytest.Module)
    names = ("asyncio",) if module is None else getattr(module.obj, "LOOPS", ("asyncio",))
    return {name: LOOP_FACTORIES[name] for name in names}


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start real daemons: ``serve({"demo": {"command": [...]}}, broker={...})``. All end with the test, and none
    may leave a process behind."""
    running: list[Daemon] = []

    def start(
        servers: Mapping[str, Mapping[str, Any]],
        broker: Mapping[str, Any] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> Daemon:
        folder = tmp_path / f"daemon{len(running)}"
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
