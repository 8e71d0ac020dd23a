"""What tests of clients, supervisors and the broker share: configurations, twins, callers that keep count."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import field

from support import script as s
from support.twin import TwinPeer, World, transport
from treadle.broker import Broker
from treadle.call import Call
from treadle.channel import ChannelTransport, Peer
from treadle.client import Client
from treadle.config import BrokerConfig, Config, Refused, ServerConfig
from treadle.errors import Fault
from treadle.waiter import Waiter
from treadle.wire.messages import CallResult

HELLO = b'{"text":"hello"}'
NEVER = s.script(s.on("tools/call"))
"""A server that answers no call."""
DOES_NOT_READ = s.script(
    s.expect("notifications/initialized"), s.expect("tools/list"), s.default(), s.stop_reading()
)
"""A server that reads nothing after its first listing."""


def config(name: str = "odd", **keys: Any) -> ServerConfig:
    """A server's table."""
    return ServerConfig(name=name, command=("twin",), **keys)


def client(script: Sequence[Any] = (), window: int = 65536, **keys: Any) -> Client:
    """A parked client of a twin that plays ``script``."""
    return Client(config(**keys), transport(script, window=window))


async def serving(script: Sequence[Any] = (), window: int = 65536, **keys: Any) -> Client:
    """A client of a twin that plays ``script``, started."""
    made = client(script, window, **keys)
    await made.start()
    return made


def client_of(peer: Peer, opening: Callable[[], Awaitable[None]] | None = None, **keys: Any) -> Client:
    """A parked client of ``peer``."""
    return Client(config(**keys), ChannelTransport(peer, opening=opening))


class Deaf(Peer):
    """Answers nothing and ends by nothing, until the test says so; keeps what was asked of it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float]] = []

    def _note(self, what: str) -> None:
        self.asked.append((what, asyncio.get_running_loop().time()))

    def eof_received(self) -> None:
        self._note("eof")

    def terminated(self) -> None:
        self._note("term")

    def killed(self) -> None:
        self._note("kill")


class Heard(Waiter, eq=False, kw_only=True):
    """A waiter that keeps every outcome: more or fewer than one is a bug."""

    outcomes: list[CallResult | Fault] = field(default_factory=list)
    at: float | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    def settle(self, outcome: CallResult | Fault) -> None:
        self.outcomes.append(outcome)
        self.at = asyncio.get_running_loop().time()
        self.settled.set()

    @property
    def outcome(self) -> CallResult | Fault:
        (only,) = self.outcomes
        return only

    @property
    def fault(self) -> Fault:
        assert isinstance(self.outcome, Fault)
        return self.outcome


class Asked(Call, eq=False, kw_only=True):
    """A call through a supervisor that keeps every delivery."""

    tool: str = "echo"
    arguments: bytes = HELLO
    timeout_ms: int = 1000
    outcomes: list[CallResult | Fault] = field(default_factory=list)
    at: float | None = None
    done: asyncio.Future[CallResult | Fault] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def deliver(self, outcome: CallResult | Fault) -> None:
        self.outcomes.append(outcome)
        self.at = asyncio.get_running_loop().time()
        if not self.done.done():
            self.done.set_result(outcome)

    @property
    def outcome(self) -> CallResult | Fault:
        (only,) = self.outcomes
        return only

    @property
    def fault(self) -> Fault:
        assert isinstance(self.outcome, Fault)
        return self.outcome


class Household:
    """A broker whose servers are twins. ``scripts`` maps a server to the script of each of its incarnations (the
    last one repeats); a peer or a fault to raise may stand for a script."""

    def __init__(self) -> None:
        self.scripts: dict[str, Sequence[Any]] = {}
        self.made: dict[str, list[Client]] = {}
        self.opened: list[str] = []
        self.worlds: dict[str, World] = {}

    def broker(self, *servers: ServerConfig | Refused, **keys: Any) -> Broker:
        """A broker of ``servers``, prepared and begun."""
        broker = Broker(self.config(*servers, **keys), self.make)
        broker.prepare()
        broker.begin()
        return broker

    @staticmethod
    def config(*servers: ServerConfig | Refused, **keys: Any) -> Config:
        """The configuration of ``servers``; ``keys`` are those of ``[broker]``."""
        return Config(file="test.toml", broker=BrokerConfig(**keys), servers=servers)

    def plays(self, server: str, *incarnations: Any) -> None:
        """What each incarnation of ``server`` is."""
        self.scripts[server] = incarnations

    def make(self, config: ServerConfig) -> Client:
        """A parked client of the next incarnation."""
        name = config.name
        made = self.made.setdefault(name, [])
        parts = self.scripts.get(name, ((),))
        part = parts[min(len(made), len(parts) - 1)]
        if isinstance(part, Exception):
            raise part

        async def opening() -> None:
            self.opened.append(name)

        if not isinstance(part, Peer):
            part = TwinPeer(part, self.worlds.setdefault(name, World()))
        client = Client(config, ChannelTransport(part, opening=opening))
        made.append(client)
        return client


def sent(one: Client, timeout_ms: int = 1000, arguments: bytes = HELLO, tool: str = "echo") -> Heard:
    """A call that was just handed to the client."""
    waiter = Heard()
    one.call(waiter, tool, arguments, timeout_ms=timeout_ms)
    return waiter


def text_of(result: object) -> Any:
    """The text of a result's first block; fails for anything else."""
    assert isinstance(result, CallResult)
    return result.to_value()["content"][0]["text"]
