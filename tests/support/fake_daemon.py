"""A small daemon for the tests of its clients: threads, canned answers, and a record of every read."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from treadle_client.frames import Frame, FrameReader, encode

Answer = Callable[["FakeConnection", Frame], None]

PEER = "treadle/0.0.0"
TOOLS = [{"name": name, "input_schema": {"type": "object"}} for name in ("add", "echo")]


class FakeConnection:
    """One accepted connection."""

    def __init__(self, daemon: FakeDaemon, sock: socket.socket, number: int) -> None:
        self.daemon = daemon
        self.sock = sock
        self.number = number
        self.reads: list[bytes] = []
        self.frames: list[Frame] = []

    def send(self, *frames: bytes) -> None:
        """Send frames (or any bytes) in one write."""
        with contextlib.suppress(OSError):
            self.sock.sendall(b"".join(frames))

    def result(self, frame: Frame, value: Any) -> None:
        """Answer a request with a value."""
        self.send(encode(frame.id, "result", {"ok": True, "value": value}))

    def failure(self, frame: Frame, code: str, msg: str, **more: Any) -> None:
        """Answer a request with an error."""
        self.send(encode(frame.id, "result", {"ok": False, "error": {"code": code, "msg": msg, **more}}))

    def close(self) -> None:
        """End the connection at once, as a daemon that dies does."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def serve(self) -> None:
        """Read until the client goes."""
        reader = FrameReader()
        with contextlib.suppress(OSError):
            while data := self.sock.recv(1024 * 1024):
                self.reads.append(data)
                for frame in reader.feed(data):
                    self.frames.append(frame)
                    self.daemon.note(frame)
                    self.daemon.answer(self, frame)
                if reader.fault is not None:
                    fault = reader.fault
                    self.send(encode(fault.id, "error", {"code": fault.code, "msg": fault.msg}))
                    break
        self.sock.close()


class FakeDaemon:
    """Listens on ``path`` while it is entered; ``answer`` (by default :func:`answer`) decides what is said."""

    def __init__(self, path: str, answer: Answer | None = None) -> None:
        self.path = path
        self.answer: Answer = answer or globals()["answer"]
        self.connections: list[FakeConnection] = []
        self._seen: list[Frame] = []
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> FakeDaemon:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self.path)
        self._listening.listen(64)
        self._start(self._accept)
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        for connection in self.connections:
            connection.close()
        for thread in self._threads:
            thread.join(5)
            assert not thread.is_alive()
        self._listening.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def note(self, frame: Frame) -> None:
        """Record a frame."""
        with self._changed:
            self._seen.append(frame)
            self._changed.notify_all()

    def wait_for(self, kind: str, times: int = 1) -> list[Frame]:
        """The frames of a kind, once there are so many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.seen(kind)) >= times, 5), f"no {kind} frame came"
            return self.seen(kind)

    def seen(self, kind: str) -> list[Frame]:
        """The frames of a kind so far."""
        return [frame for frame in self._seen if frame.kind == kind]

    def wait_until_left(self) -> None:
        """Wait until every client so far has closed its end."""
        for thread in self._threads[1:]:
            thread.join(5)
            assert not thread.is_alive(), "a client keeps its connection"

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listening.accept()
                connection = FakeConnection(self, sock, len(self.connections))
                self.connections.append(connection)
                self._start(connection.serve)


def answer(connection: FakeConnection, frame: Frame) -> None:
    """What a small healthy daemon with the servers ``demo`` and ``broken`` says."""
    if frame.kind == "hello":
        limits = {"max_frame_bytes": 16 * 1024 * 1024, "max_in_flight": 1024}
        connection.send(encode(frame.id, "hello", {"proto": 1, "peer": PEER, "features": [], "limits": limits}))
    elif frame.kind == "heartbeat":
        connection.send(encode(frame.id, "heartbeat", frame.body))
    elif frame.kind == "call":
        _answer_call(connection, frame)
    elif frame.kind == "list" and frame.body.get("server") == "demo":
        connection.result(frame, {"server": "demo", "tools": TOOLS})
    elif frame.kind == "list":
        rows = [{"name": "demo", "state": "ready", "tools": 2}, {"name": "broken", "state": "retired", "tools": 0}]
        connection.result(frame, rows)
    elif frame.kind in _VALUES:
        connection.result(frame, _VALUES[frame.kind])
    elif frame.kind != "cancel":
        connection.send(encode(frame.id, "error", {"code": "unknown_kind", "msg": f"unknown kind {frame.kind!r}"}))


_EVIDENCE = {"kind": "exited", "status": 0, "rung": "eof", "elapsed_ms": 12, "drained": True, "stragglers": 0}
_VALUES: dict[str, Any] = {
    "status": {"daemon": {"state": "ready", "version": "0.0.0"}, "servers": []},
    "logs": "demo: ready",
    "generate": {"module_name": "demo", "source": "", "surface": ""},
    "restart": {"name": "demo", "evidence": _EVIDENCE, "state": "ready"},
    "stop": {"name": "demo", "evidence": _EVIDENCE, "state": "retired"},
    "start": {"name": "demo", "state": "ready"},
    "reload": {"added": [], "removed": [], "changed": [], "unchanged": ["demo"]},
    "shutdown": {"confirmed": True, "servers": [{"name": "demo", "evidence": _EVIDENCE}]},
}


def _answer_call(connection: FakeConnection, frame: Frame) -> None:
    if frame.invalid is not None:
        path, found = frame.invalid
        connection.failure(frame, "invalid_argument", f"{path}: {found}", outcome="not_sent")
        return
    server, tool, arguments = frame.body["server"], frame.body["tool"], frame.body["arguments"]
    if server == "broken":
        connection.failure(frame, "mcp_unavailable", "the server exited with status 3", outcome="not_sent")
    elif server != "demo":
        msg = f"no server named {server!r}; configured: demo, broken"
        connection.failure(frame, "unknown_server", msg, outcome="not_sent")
    elif tool == "add":
        total = arguments["a"] + arguments["b"]
        text = {"type": "text", "text": str(total)}
        connection.result(frame, {"content": [text], "is_error": False, "structured": {"sum": total}})
    elif tool == "echo":
        text = {"type": "text", "text": arguments["text"]}
        connection.result(frame, {"content": [text], "is_error": False})
    elif tool == "fail":
        text = {"type": "text", "text": "the tool said no"}
        connection.result(frame, {"content": [text], "is_error": True})
    elif tool == "sleep":
        after = frame.body.get("timeout_ms")
        if after is not None:
            connection.failure(frame, "mcp_timeout", f"no answer within {after} ms", outcome="unknown")
    elif tool == "malformed":
        connection.failure(frame, "mcp_malformed", "content must be an array, found null", outcome="answered")
    else:
        msg, data = f"the server answered error -32602: no tool {tool!r}", {"tool": tool}
        connection.failure(frame, "jsonrpc_-32602", msg, outcome="answered", data=data)
