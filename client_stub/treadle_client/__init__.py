"""The thin client of Treadle, the broker daemon for MCP servers.

:class:`Client` blocks, :class:`AsyncClient` is for asyncio; both have the same methods::

    from treadle_client import Client

    with Client() as broker:
        print(broker.call("demo", "add", {"a": 1, "b": 2}).text)
"""

from __future__ import annotations

from treadle_client.client import Client
from treadle_client.errors import (
    BrokerError,
    BrokerUnreachable,
    CallTimedOut,
    Denied,
    ResultMalformed,
    ServerErrored,
    ServerUnavailable,
    ToolFailed,
)
from treadle_client.paths import default_socket_path
from treadle_client.results import ToolResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    from treadle_client.aio import AsyncClient

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "BrokerError",
    "BrokerUnreachable",
    "CallTimedOut",
    "Client",
    "Denied",
    "ResultMalformed",
    "ServerErrored",
    "ServerUnavailable",
    "ToolFailed",
    "ToolResult",
    "default_socket_path",
]


def __getattr__(name: str) -> object:
    # asyncio takes longer to import than a whole call takes; who never uses it does not pay for it.
    if name == "AsyncClient":
        from treadle_client.aio import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
