"""The one seam of generated Python modules: every function of such a module returns one call of this file.

    import git  # a module written by `treadle generate`

    print(git.git_status("/srv/repo").text)

The client is found at the first call: the one given to :func:`configure`, else one for the daemon's usual socket.
Coroutines then use one client for each event loop; a program that runs many loops, or that wants its connection
closed, gives a client of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

__all__ = ["UNSET", "AsyncCaller", "Caller", "Result", "Unset", "configure", "invoke", "invoke_async"]

StructuredT_co = TypeVar("StructuredT_co", covariant=True)


class _Missing(Enum):
    UNSET = "UNSET"

    def __repr__(self) -> str:
        return "UNSET"


Unset: TypeAlias = Literal[_Missing.UNSET]
"""The type of :data:`UNSET`."""

UNSET: Final = _Missing.UNSET
"""The default of an optional parameter: it is left out and never reaches the wire. None does, as null."""


class Result(Protocol[StructuredT_co]):
    """What a tool answered, with its structured result typed by the tool's output schema (not validated)."""

    @property
    def content(self) -> Sequence[Mapping[str, Any]]:
        """The blocks of the answer."""

    @property
    def is_error(self) -> bool:
        """Whether the tool ran and failed."""

    @property
    def text(self) -> str:
        """The text of all text blocks."""

    @property
    def structured(self) -> StructuredT_co | None:
        """The structured result; None where the server sent none."""


class Caller(Protocol):
    """A synchronous client, such as :class:`treadle_client.client.Client`."""

    def call(self, server: str, tool: str, arguments: dict[str, Any], /) -> Result[Any]:
        """Call ``tool`` of ``server``."""


class AsyncCaller(Protocol):
    """An asynchronous client, such as :class:`treadle_client.client.AsyncClient`."""

    async def call(self, server: str, tool: str, arguments: dict[str, Any], /) -> Result[Any]:
        """Call ``tool`` of ``server``."""


class _Clients:
    """The clients in use: one synchronous, one for each event loop, and what :func:`configure` gave."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sync: Caller | None = None
        self.asynchronous: AsyncCaller | None = None
        self.by_loop: dict[AbstractEventLoop, AsyncCaller] = {}


_clients = _Clients()


def configure(client: Caller | AsyncCaller | None) -> None:
    """Let generated functions call through ``client`` from now on; None goes back to clients of their own.

    A client whose ``call`` is a coroutine function serves the asynchronous modules, any other the synchronous
    ones. Whoever gave a client closes it.
    """
    from inspect import iscoroutinefunction

    if client is None:
        _clients.sync = _clients.asynchronous = None
        _clients.by_loop.clear()
    elif iscoroutinefunction(client.call):
        _clients.asynchronous = client  # type: ignore[assignment]  # told apart by the line above
    else:
        _clients.sync = client  # type: ignore[assignment]


def invoke(server: str, tool: str, arguments: Mapping[str, object]) -> Result[Any]:
    """Call ``tool`` of ``server`` (both original names); arguments that are :data:`UNSET` are left out.

    Raises what the client raises: see :mod:`treadle_client.errors`.
    """
    return _sync_client().call(server, tool, _given(arguments))


async def invoke_async(server: str, tool: str, arguments: Mapping[str, object]) -> Result[Any]:
    """Like :func:`invoke`, through the client of the running event loop."""
    return await _async_client().call(server, tool, _given(arguments))


def _given(arguments: Mapping[str, object]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not UNSET}


def _sync_client() -> Caller:
    with _clients.lock:
        if _clients.sync is None:
            from treadle_client import Client

            _clients.sync = Client()
        return _clients.sync


def _async_client() -> AsyncCaller:
    if _clients.asynchronous is not None:
        return _clients.asynchronous
    # A synchronous program does not pay for asyncio: it takes longer to import than a whole call takes.
    from asyncio import get_running_loop

    loop = get_running_loop()
    with _clients.lock:
        client = _clients.by_loop.get(loop)
        if client is None:
            from treadle_client import AsyncClient

            _clients.by_loop = {old: kept for old, kept in _clients.by_loop.items() if not old.is_closed()}
            client = _clients.by_loop[loop] = AsyncClient()
        return client
