"""The counters as OpenMetrics text, and an HTTP listener for them on the loopback interface (floor 5).

Format: OpenMetrics 1.0 (https://github.com/prometheus/OpenMetrics). The text is made of the shape ``status`` of
the socket page, as it is with ``processes``. The label ``tool`` takes only names of a server's listing, 256 of
each server at the most, and ``(other)``: what callers make up can never be a label.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import TimeoutError as NoAnswer
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from treadle.errors import ListenerRefused
from treadle.states import State

if TYPE_CHECKING:
    from prometheus_client import Metric

log = logging.getLogger(__name__)

Status = Mapping[str, Any]

CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_PATIENCE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with its samples: suffix of the name, labels, value."""

    name: str
    kind: Literal["counter", "gauge", "histogram", "info", "stateset"]
    about: str
    unit: str = ""
    samples: list[tuple[str, dict[str, str], float]] = field(default_factory=list)

    def add(self, value: float, suffix: str = "", **labels: str) -> None:
        """One sample more."""
        self.samples.append((suffix, labels, value))


def families(status: Status) -> list[Family]:
    """All metrics of a daemon. ``status`` is the shape of that name, asked for with ``processes``."""
    daemon, servers = status["daemon"], status["servers"]
    return [*_of_daemon(daemon), *_of_calls(servers), *_of_servers(servers), *_of_trees(servers)]


def _of_daemon(daemon: Mapping[str, Any]) -> Iterator[Family]:
    build = Family("treadle_build", "info", "The running daemon.")
    build.add(1, "_info", version=daemon["version"], containment=daemon["containment"])
    yield build
    for key, unit, about in (
        ("uptime_s", "seconds", "Time since the daemon's start."),
        ("connections", "", "Clients connected now."),
        ("in_flight", "", "Calls at servers now."),
    ):
        name = f"treadle_{key.removesuffix('_s')}" + (f"_{unit}" if unit else "")
        family = Family(name, "gauge", about, unit)
        family.add(daemon[key])
        yield family
    refused = Family("treadle_refusals", "counter", "Requests that were refused before they reached a server.")
    for code, count in sorted(daemon.get("refusals", {}).items()):
        refused.add(count, "_total", code=code)
    yield refused


def _of_calls(servers: Iterable[Mapping[str, Any]]) -> Iterator[Family]:
    calls = Family("treadle_calls", "counter", "Calls that ended, by server, tool and outcome.")
    latency = Family(
        "treadle_call_duration_seconds", "histogram", "Time of the calls that were answered.", "seconds"
    )
    refusals = Family("treadle_server_refusals", "counter", "Calls that never reached their server, by code.")
    queue = Family("treadle_queue", "gauge", "Calls that wait for their server to start or to have room.")
    for server in servers:
        name, own = server["name"], server["metrics"]
        for tool, outcomes in own["tools"].items():
            for outcome, count in outcomes.items():
                calls.add(count, "_total", server=name, tool=tool, outcome=outcome)
        seen = 0
        for bound, count in zip([*own["bounds_s"], None], own["buckets"], strict=True):
            seen += count
            latency.add(seen, "_bucket", server=name, le="+Inf" if bound is None else repr(float(bound)))
        latency.add(seen, "_count", server=name)
        latency.add(own["sum_s"], "_sum", server=name)
        for code, count in sorted(own["refusals"].items()):
            refusals.add(count, "_total", server=name, code=code)
        queue.add(own["queue"], server=name)
    yield from (calls, latency, refusals, queue)


def _of_servers(servers: Iterable[Mapping[str, Any]]) -> Iterator[Family]:
    state = Family("treadle_server_state", "stateset", "The state of each server.")
    in_flight = Family("treadle_server_in_flight", "gauge", "Calls at each server now.")
    tools = Family("treadle_server_tools", "gauge", "Tools that each server offers.")
    restarts = Family("treadle_server_restarts", "counter", "Restarts by policy.")
    stragglers = Family(
        "treadle_server_stragglers", "counter", "Descendants that had to be killed at a server's end."
    )
    generation = Family("treadle_server_generation", "gauge", "Which incarnation of the server this is.")
    bad_lines = Family("treadle_server_bad_lines", "gauge", "Lines of this incarnation that were no messages.")
    for server in servers:
        name, own = server["name"], server["metrics"]
        for one in State:
            state.add(float(server["state"] == one.value), server=name, treadle_server_state=one.value)
        in_flight.add(server["in_flight"], server=name)
        tools.add(server["tools"], server=name)
        restarts.add(own["restarts"], "_total", server=name)
        stragglers.add(own["stragglers"], "_total", server=name)
        generation.add(server["generation"], server=name)
        bad_lines.add(server["bad_lines"], server=name)
    yield from (state, in_flight, tools, restarts, stragglers, generation, bad_lines)


def _of_trees(servers: Iterable[Mapping[str, Any]]) -> Iterator[Family]:
    processes = Family("treadle_server_processes", "gauge", "Processes of each server's tree.")
    memory = Family("treadle_server_resident_bytes", "gauge", "Resident memory of each server's tree.", "bytes")
    # The CPU time of processes that ended is no longer in it, so it may fall: no counter.
    cpu = Family("treadle_server_cpu_seconds", "gauge", "CPU time of the live processes of the tree.", "seconds")
    for server in servers:
        if "tree" in server:
            processes.add(server["tree"]["processes"], server=server["name"])
            memory.add(server["tree"]["rss_bytes"], server=server["name"])
            cpu.add(server["tree"]["cpu_s"], server=server["name"])
    yield from (processes, memory, cpu)


def render(status: Status) -> str:
    """The OpenMetrics text of a daemon, ended by ``# EOF``."""
    lines: list[str] = []
    for family in families(status):
        lines.append(f"# TYPE {family.name} {family.kind}")
        if family.unit:
            lines.append(f"# UNIT {family.name} {family.unit}")
        lines.append(f"# HELP {family.name} {family.about}")
        for suffix, labels, value in family.samples:
            inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines.append(f"{family.name}{suffix}{f'{{{inside}}}' if inside else ''} {_number(value)}")
    return "\n".join([*lines, "# EOF\n"])


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(text: str) -> str:
    # A lone surrogate of a tool's name has no UTF-8.
    whole = re.sub("[\ud800-\udfff]", "\ufffd", text)
    return whole.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class Exporter:
    """Serves the metrics over HTTP on 127.0.0.1. Everybody on this machine may read them; they hold no secrets.

    Needs the package ``prometheus-client`` (``treadle[metrics]``), which negotiates the format with the reader.
    """

    def __init__(self, port: int) -> None:
        """Raises :class:`ListenerRefused` when the package is missing."""
        try:
            import prometheus_client
        except ImportError:
            need = "--metrics-port needs the package prometheus-client: pip install 'treadle[metrics]'"
            raise ListenerRefused(need) from None
        self._library = prometheus_client
        self._port = port
        self._close: Callable[[], None] = lambda: None

    def start(self, status: Callable[[], Awaitable[Status]]) -> None:
        """Listen; ``status`` is called on the loop that runs now. Raises :class:`ListenerRefused`."""
        registry = self._library.CollectorRegistry(auto_describe=False)
        registry.register(_Collector(asyncio.get_running_loop(), status))
        try:
            server, thread = self._library.start_http_server(self._port, addr="127.0.0.1", registry=registry)
        except OSError as error:
            raise ListenerRefused(f"cannot listen on 127.0.0.1:{self._port}: {error.strerror}") from None
        except RuntimeError as error:
            fix = "allow the daemon's user more processes, or leave --metrics-port out"
            raise ListenerRefused(f"cannot serve the metrics: {error}; {fix}") from None
        server.handle_error = _note_failure  # type: ignore[method-assign]

        def close() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        self._close = close

    def close(self) -> None:
        """Stop listening."""
        self._close()


def _note_failure(request: object, client_address: object) -> None:
    """Instead of the library's traceback: a reader that went away, or no thread for it, is no fault in here."""
    log.warning("a reader of the metrics was not served: %s", sys.exception())


class _Collector:
    """Asks the daemon's loop from the threads of the HTTP server."""

    def __init__(self, loop: asyncio.AbstractEventLoop, status: Callable[[], Awaitable[Status]]) -> None:
        self._loop = loop
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """The families as the library has them; none while the loop does not answer."""
        from prometheus_client import Metric

        async def ask() -> Status:
            return await self._status()

        asked = asyncio.run_coroutine_threadsafe(ask(), self._loop)
        try:
            status = asked.result(_PATIENCE_S)
        except NoAnswer:
            asked.cancel()
            return
        for family in families(status):
            metric = Metric(family.name, family.about, family.kind, family.unit)
            for suffix, labels, value in family.samples:
                metric.add_sample(f"{family.name}{suffix}", labels, value)
            yield metric
