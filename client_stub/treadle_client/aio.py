"""The asyncio client."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any

from treadle_client import _requests
from treadle_client._link import Link, connect
from treadle_client.errors import CallTimedOut
from treadle_client.paths import default_socket_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from treadle_client.results import ToolResult

    _Maps = list[dict[str, Any]]


class AsyncClient:
    """An asyncio client of the broker: many requests in flight on one connection.

    ``socket``, ``timeout`` and ``peer`` are those of :class:`treadle_client.Client`, and so are the methods, as
    coroutines. Requests made in one turn of the event loop leave in one write; answers come in any order.
    Cancelling the task that awaits a call cancels the call. When the connection is lost everything in flight fails
    with its outcome, and the next request connects again; a request that may have been sent is never repeated.
    For one event loop at a time; not thread-safe.

        >>> async with AsyncClient() as broker:
        ...     calls = [broker.call("demo", "add", {"a": n, "b": n}) for n in range(3)]
        ...     print([result.text for result in await asyncio.gather(*calls)])
        ['0', '2', '4']
    """

    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        *,
        timeout: float | None = None,
        peer: str = "treadle-client",
    ) -> None:
        self.path = default_socket_path(os.environ, os.getuid()) if socket is None else os.fspath(socket)
        if timeout is not None:
            _requests.require_number(timeout, "timeout")
        self.timeout = timeout
        self.peer = peer
        self._link: Link | None = None
        self._connecting: asyncio.Task[Link] | None = None

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; what is in flight fails. A later request connects again.

        >>> await broker.close()
        """
        connecting, self._connecting = self._connecting, None
        link, self._link = self._link, None
        if connecting is not None:
            connecting.cancel()
            await asyncio.wait([connecting])
        if link is not None and link.loop is asyncio.get_running_loop():
            link.close()
            # The transport lets go of its socket in the next turn.
            await asyncio.sleep(0)

    async def call(
        self,
        server: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 (it is the daemon that keeps it)
        content: Literal["text", "all"] | None = None,
        check: bool = False,
    ) -> ToolResult:
        """Call one tool of an MCP server; see :meth:`treadle_client.Client.call`.

        >>> (await broker.call("demo", "echo", {"text": "hello"}, timeout=10)).text
        'hello'
        """
        request = _requests.call(server, tool, arguments, timeout, content, check)
        result: ToolResult = await self._request(request)
        return result

    async def list(self, server: str | None = None, schemas: bool = True) -> _Maps:
        """The servers, or the tools of one; see :meth:`treadle_client.Client.list`.

        >>> [tool["name"] for tool in await broker.list("demo")]
        ['add', 'echo']
        """
        rows: _Maps = await self._request(_requests.listing(server, schemas))
        return rows

    async def status(self, server: str | None = None, processes: bool = False) -> dict[str, Any]:
        """The state of the daemon and its servers, or of one; see :meth:`treadle_client.Client.status`.

        >>> (await broker.status())["daemon"]["state"]
        'ready'
        """
        status: dict[str, Any] = await self._request(_requests.status(server, processes))
        return status

    async def logs(self, server: str, max_bytes: int | None = None) -> str:
        """What a server wrote to its standard error last; see :meth:`treadle_client.Client.logs`.

        >>> await broker.logs("demo")
        'demo: ready'
        """
        tail: str = await self._request(_requests.logs(server, max_bytes))
        return tail

    async def generate(self, server: str, target: Literal["gleam", "python", "typescript"]) -> dict[str, Any]:
        """A typed module for the tools of a server; see :meth:`treadle_client.Client.generate`.

        >>> (await broker.generate("demo", "gleam"))["module_name"]
        'demo'
        """
        module: dict[str, Any] = await self._request(_requests.generate(server, target))
        return module

    async def restart(self, server: str, within: float | None = None) -> dict[str, Any]:
        """Retire a server and start it anew; see :meth:`treadle_client.Client.restart`.

        >>> (await broker.restart("demo"))["state"]
        'ready'
        """
        done: dict[str, Any] = await self._request(_requests.manage("restart", server, within))
        return done

    async def stop(self, server: str, within: float | None = None) -> dict[str, Any]:
        """Retire a server and leave it so; see :meth:`treadle_client.Client.stop`.

        >>> (await broker.stop("demo"))["state"]
        'retired'
        """
        done: dict[str, Any] = await self._request(_requests.manage("stop", server, within))
        return done

    async def start(self, server: str) -> dict[str, Any]:
        """Start a server that is stopped or parked; see :meth:`treadle_client.Client.start`.

        >>> (await broker.start("demo"))["state"]
        'ready'
        """
        done: dict[str, Any] = await self._request(_requests.manage("start", server))
        return done

    async def reload(self) -> dict[str, Any]:
        """Read the configuration again; see :meth:`treadle_client.Client.reload`.

        >>> (await broker.reload())["added"]
        []
        """
        done: dict[str, Any] = await self._request(_requests.manage("reload"))
        return done

    async def shutdown(self, within: float | None = None) -> dict[str, Any]:
        """Retire all servers and end the daemon; see :meth:`treadle_client.Client.shutdown`.

        >>> (await broker.shutdown())["confirmed"]
        True
        """
        done: dict[str, Any] = await self._request(_requests.manage("shutdown", within=within))
        return done

    async def ping(self) -> float:
        """Ask the daemon for a sign of life: the seconds that it took.

        >>> await broker.ping() < 5
        True
        """
        start = time.perf_counter()
        await self._request(_requests.heartbeat())
        return time.perf_counter() - start

    async def _request(self, request: _requests.Request) -> Any:
        patience = request.patience
        if self.timeout is not None:
            patience = self.timeout if patience is None else min(patience, self.timeout)
        if patience is None:
            return await self._exchange(request)
        exchange = None
        try:
            async with asyncio.timeout(patience) as exchange:
                return await self._exchange(request)
        except TimeoutError:
            if exchange is None or not exchange.expired():
                raise
            message = "gave up waiting for the daemon's answer"
            raise CallTimedOut("client_timeout", message, "unknown") from None

    async def _exchange(self, request: _requests.Request) -> Any:
        link = self._link
        if link is None or not link.is_usable():
            link = await self._connected()
        await link.room()
        id_, future = link.send(request)
        try:
            frame = await future
        finally:
            if not future.done() or future.cancelled():
                link.abandon(id_, request.kind)
            else:
                future.exception()  # seen, even if this task is cancelled at the same moment
        return _requests.value_of(frame, request)

    async def _connected(self) -> Link:
        """A new link, made once for all who wait for it. Raises :class:`BrokerUnreachable`."""
        connecting = self._connecting
        if connecting is None or connecting.done() or connecting.get_loop() is not asyncio.get_running_loop():
            if self._link is not None:
                self._drop(self._link)
            connecting = self._connecting = asyncio.ensure_future(self._connect())
            # Its waiters may all be gone by the time it fails.
            connecting.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(connecting)

    async def _connect(self) -> Link:
        self._link = link = await connect(self.path, self.peer)
        return link

    def _drop(self, link: Link) -> None:
        self._link = None
        if link.loop is asyncio.get_running_loop() and link.pid == os.getpid():
            link.close()
