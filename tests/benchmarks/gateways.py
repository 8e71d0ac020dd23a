"""The brokers that are compared: how each is installed, configured, started, talked to, and ended.

Every start has a scratch folder of its own for HOME, TMPDIR and state. What a gateway started is ended with it,
by process id: its descendants, and whatever detached itself but still carries the scratch HOME.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgpack
import psutil
from bench import ROOT
from contestants import ARGUMENTS, HERE, SERVER, Frames, async_in_flight, now
from lean_clients import Caller, Documents, Http, Lines, call_line, encode, field, text_in
from peers_report import Failed

from treadle_client import BrokerUnreachable, Client

BENCH = ROOT / "build" / "bench"
NODE = BENCH / "node" / "node_modules" / ".bin" / "node"
START_SECONDS = 60
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}},
}


class Gateway(ABC):
    """A broker over some copies of the fast server, from its start to its end."""

    label: ClassVar[str]
    needs: ClassVar[Sequence[Path]] = ()
    """The files without which it is not installed."""

    def __init__(self, folder: Path, servers: Sequence[str]) -> None:
        self.folder, self.servers = folder, servers
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        (folder / "tmp").mkdir()
        self.environ = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.home),
            "TMPDIR": str(folder / "tmp"),
        }
        self.child: subprocess.Popen[bytes] | None = None

    @classmethod
    def installed(cls) -> bool:
        """Whether its files are there."""
        return all(path.exists() for path in cls.needs)

    @classmethod
    def version(cls) -> str:
        """What is installed, empty for our own."""
        return ""

    @classmethod
    def name(cls) -> str:
        """How the table calls it."""
        return " ".join(filter(None, (cls.label, cls.version())))

    @abstractmethod
    def command(self) -> list[str]:
        """Write the configuration; what starts it in the foreground."""

    @abstractmethod
    def connect(self) -> Caller:
        """A new client; an `OSError` as long as it does not listen."""

    def text(self, answer: Any) -> str:
        """The text in what `Caller.call` returned, or `Failed`."""
        return text_in(answer)

    def one_shot(self) -> list[str]:
        """The command line that calls `echo` once through the running gateway, empty when there is none."""
        return []

    def config(self, name: str, content: Mapping[str, Any]) -> str:
        """Write a JSON configuration; its path."""
        path = self.folder / name
        path.write_text(json.dumps(content))
        return str(path)

    def mcp_servers(self, **more: str) -> dict[str, Any]:
        """The servers in the form that most read."""
        one = {"command": SERVER[0], "args": SERVER[1:], **more}
        return {"mcpServers": dict.fromkeys(self.servers, one)}

    def start(self) -> float:
        """The seconds until each of the servers answered its first call; raises `Failed` when one does not."""
        words = self.command()
        log = self.folder / "log"
        begin = now()
        with log.open("wb") as out:
            self.child = self.spawn(words, out)
        waiting = list(self.servers)
        while True:
            try:
                client = self.connect()
                while waiting:
                    self.text(client.call(waiting[0]))
                    del waiting[0]
                client.close()
                return now() - begin
            except (OSError, Failed, BrokerUnreachable) as error:
                if self.child.poll() is not None:
                    lines = filter(str.strip, log.read_text(errors="replace").splitlines())
                    said = list(lines)[-1:] or ["without a word"]
                    raise Failed(f"it ended with {self.child.returncode}: {said[0].strip()[:200]}") from error
                if now() - begin > START_SECONDS:
                    raise Failed(f"no answer in {START_SECONDS} s: {str(error)[:200]}") from error
                time.sleep(0.002)

    def spawn(self, words: list[str], log: Any) -> subprocess.Popen[bytes]:
        """The process of its own."""
        return subprocess.Popen(
            words, env=self.environ, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )

    def own_processes(self) -> list[psutil.Process]:
        """What it started and itself, and whatever carries the scratch HOME."""
        found: dict[int, psutil.Process] = {}
        if self.child is not None and self.child.poll() is None:
            itself = psutil.Process(self.child.pid)
            found = {one.pid: one for one in [itself, *itself.children(recursive=True)]}
        for one in psutil.process_iter():
            try:
                if one.environ().get("HOME") == str(self.home):
                    found[one.pid] = one
            except psutil.Error:
                continue
        return list(found.values())

    def pss(self) -> float:
        """The proportional set size of the gateway in MiB: all its processes, less the servers."""
        total = 0
        for process in self.own_processes():
            try:
                if SERVER[1] not in process.cmdline():
                    total += process.memory_full_info().pss
            except psutil.NoSuchProcess:
                continue  # a helper that has ended since
        return total / 1024**2

    def stop(self) -> None:
        """End it and everything it started."""
        left = self.own_processes()
        if self.child is not None:
            self.child.terminate()
            try:
                self.child.wait(10)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
            for pipe in (self.child.stdin, self.child.stdout):
                if pipe is not None:
                    pipe.close()
        for process in {*left, *self.own_processes()}:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, 10)


# --- Treadle ---------------------------------------------------------------------------------------


class Hanging(Frames):
    """Bare frames that can hang up."""

    def close(self) -> None:
        self.sock.close()


class Treadle(Gateway):
    """This project's daemon, by bare frames."""

    label = "Treadle, bare frames"
    treadle = str(Path(sys.executable).with_name("treadle"))

    @property
    def path(self) -> str:
        return str(self.folder / "t.sock")

    def command(self) -> list[str]:
        lines = ["[broker]", f"audit_log = {json.dumps(str(self.folder / 'audit.log'))}"]
        for server in self.servers:
            lines += [f"[mcp.{server}]", f"command = {json.dumps(SERVER)}"]
        config = self.folder / "treadle.toml"
        config.write_text("\n".join(lines))
        return [self.treadle, "serve", "--config", str(config), "--socket", self.path]

    def connect(self) -> Caller:
        return Hanging(self.path, hello=True)

    def text(self, answer: Any) -> str:
        return str(msgpack.unpackb(answer)["body"]["value"]["content"][0]["text"])

    def one_shot(self) -> list[str]:
        return [self.treadle, "--socket", self.path, "call", "fast", "echo", "text=hello"]


class OurClient:
    """The published client: `Client` one call after the other, `AsyncClient` with many in flight."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.client = Client(path)

    def call(self, server: str = "fast", tool: str = "echo") -> Any:
        return self.client.call(server, tool, ARGUMENTS)

    def in_flight(self, width: int, count: int) -> float:
        return asyncio.run(async_in_flight(self.path, width, count))

    def close(self) -> None:
        self.client.close()


class TreadleClient(Treadle):
    """The same daemon, by its published client."""

    label = "Treadle, Client"

    def connect(self) -> Caller:
        return OurClient(self.path)

    def text(self, answer: Any) -> str:
        return str(answer.text)

    def one_shot(self) -> list[str]:
        return []


# --- from npm --------------------------------------------------------------------------------------


class NodeGateway(Gateway):
    """One from npm, under the Node that was installed beside it."""

    package: ClassVar[str]

    @classmethod
    def root(cls) -> Path:
        return BENCH / cls.package / "node_modules" / cls.package

    @classmethod
    def version(cls) -> str:
        return str(json.loads((cls.root() / "package.json").read_text())["version"])

    def cli(self, *words: str) -> list[str]:
        return [str(NODE), str(self.root() / "dist" / "cli.js"), *words]


class Mcporter(NodeGateway):
    """Its daemon's Unix socket: one JSON document each way a connection (dist/daemon/protocol.d.ts, client.js)."""

    label = package = "mcporter"
    needs = (NODE, BENCH / "mcporter" / "node_modules" / "mcporter" / "dist" / "cli.js")

    def command(self) -> list[str]:
        self.environ["MCPORTER_DAEMON_DIR"] = str(self.folder)
        self.path = self.config("mcporter.json", self.mcp_servers(lifecycle="keep-alive"))
        return self.cli("--config", self.path, "daemon", "start", "--foreground")

    def connect(self) -> Caller:
        sockets = list((self.folder / "daemon").glob("*.sock"))
        if not sockets:
            raise FileNotFoundError("no socket yet")
        return Documents(str(sockets[0]), self.request, b"}")

    @staticmethod
    @functools.cache
    def request(server: str, tool: str) -> bytes:
        params = {"server": server, "tool": tool, "args": ARGUMENTS}
        return encode({"id": "1", "method": "callTool", "params": params})

    def one_shot(self) -> list[str]:
        return self.cli("--config", self.path, "call", "fast.echo", "text=hello")


class McpHub(NodeGateway):
    """Its REST interface, `POST /api/servers/tools` (README)."""

    label = package = "mcp-hub"
    needs = (NODE, BENCH / "mcp-hub" / "node_modules" / "mcp-hub" / "dist" / "cli.js")

    def command(self) -> list[str]:
        self.port = free_port()
        config = self.config("hub.json", self.mcp_servers())
        return self.cli("--port", str(self.port), "--config", config)

    def connect(self) -> Caller:
        return Http(self.port, "/api/servers/tools", self.request)

    @staticmethod
    @functools.cache
    def request(server: str, tool: str) -> bytes:
        return encode({"server_name": server, "tool": tool, "arguments": ARGUMENTS})


# --- from PyPI -------------------------------------------------------------------------------------


class PythonGateway(Gateway):
    """One from PyPI, in an environment of its own."""

    package: ClassVar[str]

    @classmethod
    def version(cls) -> str:
        found = next(
            (BENCH / cls.package / "lib").glob(f"*/site-packages/{cls.package.replace('-', '_')}-*.dist-info")
        )
        return found.name.removesuffix(".dist-info").rpartition("-")[2]

    def bin(self, name: str) -> str:
        return str(BENCH / self.package / "bin" / name)


class FastMcpStdio(PythonGateway):
    """A FastMCP proxy on its own stdin: the quickest way in, for one client alone."""

    label, package = "FastMCP proxy, stdio", "fastmcp"
    needs = (BENCH / "fastmcp" / "bin" / "fastmcp",)

    @classmethod
    def name(cls) -> str:
        return f"FastMCP {cls.version()} proxy, stdio"

    def command(self) -> list[str]:
        self.environ["FASTMCP_CHECK_FOR_UPDATES"] = "off"
        self.lines: Lines | None = None
        return [self.bin("python"), str(HERE / "fastmcp_proxy.py"), self.config("fast.json", self.mcp_servers())]

    def request(self, server: str, tool: str) -> bytes:
        return call_line(tool if len(self.servers) == 1 else f"{server}_{tool}")

    def spawn(self, words: list[str], log: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            words, env=self.environ, cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )

    def connect(self) -> Caller:
        assert self.child
        if self.lines is None:
            self.lines = Lines(self.child, self.request)
            self.lines.exchange(encode(INITIALIZE) + b"\n")
            self.lines.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        return self.lines


class FastMcpHttp(FastMcpStdio):
    """A FastMCP proxy on streamable HTTP, where many clients can share it."""

    label = "FastMCP proxy, HTTP"

    @classmethod
    def name(cls) -> str:
        return f"FastMCP {cls.version()} proxy, HTTP"

    def command(self) -> list[str]:
        self.port = free_port()
        return [*super().command(), str(self.port)]

    def spawn(self, words: list[str], log: Any) -> subprocess.Popen[bytes]:
        return Gateway.spawn(self, words, log)

    def connect(self) -> Caller:
        make = functools.partial(Http, self.port, "/mcp", self.request)
        first = make()
        session = field(first.exchange(encode(INITIALIZE))[0], b"mcp-session-id")
        first.close()
        client = make(headers=b"Mcp-Session-Id: %b\r\n" % session)
        client.exchange(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return client

    def one_shot(self) -> list[str]:
        url = f"http://127.0.0.1:{self.port}/mcp"
        return [self.bin("fastmcp"), "call", url, "echo", "text=hello"]


class McpBroker(PythonGateway):
    """Its daemon's Unix socket: one JSON-RPC line each way a connection, as its own shim has it (client.py)."""

    label = package = "mcp-broker"
    needs = (BENCH / "mcp-broker" / "bin" / "mcp-broker-daemon",)

    def command(self) -> list[str]:
        root = self.folder / "root"
        self.path = str(root / "b.sock")
        upstream = {
            "enabled": True, "mode": "shared", "transport": "stdio", "purpose": "bench", "tags": ["bench"],
            "command": SERVER[0], "args": SERVER[1:], "profiles": ["bench"],
        }  # fmt: skip
        names = {f"{part}_dir": str(root / part) for part in ("log", "state", "secrets")}
        content = {
            "schema_version": 1,
            "runtime": {"root": str(root), "socket_path": self.path, **names},
            "broker": {"tool_namespace_separator": ".", "idle_timeout_seconds": 900},
            "profiles": {"bench": {"max_tools": 500, "compact_tools_enabled": False}},
            "clients": {},
            "upstreams": {
                server: {**upstream, "tool_prefix": server, "state_dir": f"upstreams/{server}"}
                for server in self.servers
            },
        }
        # YAML reads JSON.
        words = [
            "--runtime-root",
            str(root),
            "--socket-path",
            self.path,
            "--config",
            self.config("b.yaml", content),
        ]
        return [self.bin("mcp-broker-daemon"), "serve", *words]

    def connect(self) -> Caller:
        client = Documents(self.path, self.request, b"\n")
        client.ask(encode(INITIALIZE) + b"\n")
        return client

    @staticmethod
    def request(server: str, tool: str) -> bytes:
        return call_line(f"{server}.{tool}", profile="bench")


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


GATEWAYS: Sequence[type[Gateway]] = (
    Treadle, TreadleClient, Mcporter, McpHub, FastMcpStdio, FastMcpHttp, McpBroker,
)  # fmt: skip
