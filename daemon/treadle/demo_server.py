"""A small, well-behaved MCP server on the standard library alone, to try the broker on.

Run as ``python -m treadle.demo_server``. Its tools: ``echo``, ``add``, ``slow``, ``fail``, ``image``, ``big``.
It speaks MCP 2025-06-18 over stdio, ends on stdin EOF, and answers ``slow`` calls while others go on.
"""

from __future__ import annotations

import base64
import json
import struct
import sys
import threading
import zlib
from typing import Any, Final

PROTOCOL_VERSION: Final = "2025-06-18"
MOST_BYTES: Final = 32 * 1024 * 1024
MOST_SECONDS: Final = 3600.0

_NUMBER = {"type": "number"}
TOOLS: Final[list[dict[str, Any]]] = [
    {
        "name": "echo",
        "description": "Return the text that was given.",
        "inputSchema": {
            "type": "object",
            "properties": {"text": {"type": "string", "description": "What to return"}},
            "required": ["text"],
        },
    },
    {
        "name": "add",
        "description": "Add two numbers.",
        "inputSchema": {
            "type": "object",
            "properties": {"a": _NUMBER, "b": _NUMBER},
            "required": ["a", "b"],
        },
        "outputSchema": {"type": "object", "properties": {"sum": _NUMBER}, "required": ["sum"]},
    },
    {
        "name": "slow",
        "description": "Answer after some seconds, while other calls go on.",
        "inputSchema": {
            "type": "object",
            "properties": {"seconds": {"type": "number", "minimum": 0, "maximum": MOST_SECONDS}},
            "required": ["seconds"],
        },
    },
    {
        "name": "fail",
        "description": "Say no: the tool runs and answers with an error result.",
        "inputSchema": {"type": "object", "properties": {"message": {"type": "string"}}},
    },
    {
        "name": "image",
        "description": "Return a small PNG of one colour.",
        "inputSchema": {
            "type": "object",
            "properties": {"colour": {"type": "string", "enum": ["red", "green", "blue"]}},
        },
    },
    {
        "name": "big",
        "description": "Return a text of so many bytes.",
        "inputSchema": {
            "type": "object",
            "properties": {"bytes": {"type": "integer", "minimum": 0, "maximum": MOST_BYTES}},
            "required": ["bytes"],
        },
    },
]


class BadArguments(Exception):
    """The arguments of a call do not fit its tool; the text says which and how."""


_writing = threading.Lock()


def send(message: dict[str, Any]) -> None:
    """Write one message as one line."""
    line = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"), ensure_ascii=False)
    with _writing:
        sys.stdout.buffer.write(line.encode("utf-8", "backslashreplace") + b"\n")
        sys.stdout.buffer.flush()


def text_result(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """A tool result of one text block."""
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _argument(arguments: dict[str, Any], name: str, kind: type | tuple[type, ...], word: str) -> Any:
    value = arguments.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise BadArguments(f"argument {name!r} must be {word}")
    return value


def _number(arguments: dict[str, Any], name: str) -> float:
    number: float = _argument(arguments, name, (int, float), "a number")
    return number


def png(red: int, green: int, blue: int, side: int = 8) -> bytes:
    """A PNG of ``side`` by ``side`` pixels of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    rows = (b"\0" + bytes((red, green, blue)) * side) * side
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def run(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The result of one call (all tools but ``slow``). Raises :class:`BadArguments`, ``KeyError`` for no tool."""
    if tool == "echo":
        return text_result(_argument(arguments, "text", str, "a string"))
    if tool == "add":
        total = _number(arguments, "a") + _number(arguments, "b")
        return text_result(json.dumps(total)) | {"structuredContent": {"sum": total}}
    if tool == "fail":
        return text_result(str(arguments.get("message", "this tool always fails")), is_error=True)
    if tool == "image":
        colours = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}
        colour = colours.get(arguments.get("colour", "red"))
        if colour is None:
            raise BadArguments("argument 'colour' must be red, green or blue")
        data = base64.b64encode(png(*colour)).decode()
        return {"content": [{"type": "image", "data": data, "mimeType": "image/png"}], "isError": False}
    if tool == "big":
        size = _argument(arguments, "bytes", int, "an integer")
        if not 0 <= size <= MOST_BYTES:
            raise BadArguments(f"argument 'bytes' must be from 0 to {MOST_BYTES}")
        return text_result("x" * size)
    raise KeyError(tool)


def call(request_id: Any, params: dict[str, Any]) -> None:
    """Answer one ``tools/call``."""
    tool, arguments = params.get("name"), params.get("arguments") or {}
    try:
        if tool == "slow":
            seconds = min(max(_number(arguments, "seconds"), 0.0), MOST_SECONDS)
            answer = {"id": request_id, "result": text_result(f"waited {seconds:g} s")}
            timer = threading.Timer(seconds, send, [answer])
            timer.daemon = True
            timer.start()
            return
        result = run(str(tool), arguments)
    except BadArguments as error:
        send({"id": request_id, "error": {"code": -32602, "message": str(error)}})
    except KeyError:
        send({"id": request_id, "error": {"code": -32602, "message": f"unknown tool: {tool}"}})
    else:
        send({"id": request_id, "result": result})


def answer(message: dict[str, Any]) -> None:
    """Answer one request; notifications need none."""
    request_id = message.get("id")
    if request_id is None:
        return
    method, params = message.get("method"), message.get("params") or {}
    if method == "initialize":
        result: dict[str, Any] = {
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "treadle-demo", "version": "1"},
        }
        send({"id": request_id, "result": result})
    elif method == "ping":
        send({"id": request_id, "result": {}})
    elif method == "tools/list":
        send({"id": request_id, "result": {"tools": TOOLS}})
    elif method == "tools/call":
        call(request_id, params)
    else:
        send({"id": request_id, "error": {"code": -32601, "message": f"method not found: {method}"}})


def main() -> None:
    """Serve stdin until it ends."""
    try:
        for line in sys.stdin.buffer:
            try:
                message = json.loads(line)
            except ValueError:
                send({"id": None, "error": {"code": -32700, "message": "parse error"}})
                continue
            if isinstance(message, dict):
                answer(message)
    except (KeyboardInterrupt, BrokenPipeError):
        pass


if __name__ == "__main__":
    main()
