"""The server that a script starts from: correct answers to everything, and a few tools worth calling.

Answers are steps of a script themselves (see :mod:`support.engine`). Standard library alone.
"""

from __future__ import annotations

from typing import Any

from support.payload import Message

Steps = list[Any]

VERSION = "2025-06-18"


def tool(name: str, description: str = "", **properties: str) -> dict[str, Any]:
    """The listing entry of a tool whose arguments are ``properties`` (name to JSON type), all required."""
    return {
        "name": name,
        "description": description or f"The tool {name}.",
        "inputSchema": {
            "type": "object",
            "properties": {key: {"type": kind} for key, kind in properties.items()},
            "required": list(properties),
        },
    }


TOOLS: list[dict[str, Any]] = [
    tool("echo", "Answers its text.", text="string"),
    tool("reflect", "Answers its arguments, as text and as structured content."),
    tool("wait", "Answers its text after ms milliseconds.", ms="integer", text="string"),
    tool("fail", "Answers its text as a failure of the tool.", text="string"),
    tool("environ", "Answers the environment as a JSON object."),
    tool("argv", "Answers the command line as a JSON array."),
    tool("cwd", "Answers the working directory as a JSON string."),
    tool("fds", "Answers the open descriptors as a JSON object: number to target."),
    tool("pid", "Answers the process id."),
    tool("exit", "Exits with code, without an answer.", code="integer"),
]

INITIALIZE: dict[str, Any] = {
    "protocolVersion": VERSION,
    "capabilities": {"tools": {"listChanged": True}},
    "serverInfo": {"name": "scripted", "version": "1.0"},
}


def response(result: Any) -> Steps:
    """The steps that answer the message in hand with ``result``."""
    return [{"do": "reply", "message": {"jsonrpc": "2.0", "id": {"$id": True}, "result": result}}]


def failure(code: int, message: str) -> Steps:
    """The steps that answer the message in hand with a JSON-RPC error."""
    error = {"code": code, "message": message}
    return [{"do": "reply", "message": {"jsonrpc": "2.0", "id": {"$id": True}, "error": error}}]


def text_result(text: Any, **more: Any) -> dict[str, Any]:
    """A tool result of one text block; ``text`` may be a placeholder."""
    return {"content": [{"type": "text", "text": text}], **more}


def answer(message: Message, pages: list[list[Any]]) -> Steps:
    """The steps that answer ``message`` as a correct server with these ``pages`` of tools would."""
    if "id" not in message or "method" not in message:
        return []
    params = message.get("params", {})
    match message["method"]:
        case "initialize":
            return response(INITIALIZE)
        case "ping":
            return response({})
        case "tools/list":
            return _page(params.get("cursor"), pages)
        case "tools/call":
            return _call(params.get("name"), params.get("arguments", {}), pages)
        case other:
            return failure(-32601, f"Method not found: {other}")


def _page(cursor: str | None, pages: list[list[Any]]) -> Steps:
    names = {None: 0} | {f"page-{index + 1}": index for index in range(1, len(pages))}
    if cursor not in names:
        return failure(-32602, "unknown cursor")
    index = names[cursor]
    more = {"nextCursor": f"page-{index + 2}"} if index + 1 < len(pages) else {}
    return response({"tools": pages[index], **more})


def _call(name: Any, arguments: dict[str, Any], pages: list[list[Any]]) -> Steps:
    match name:
        case "echo":
            return response(text_result(arguments.get("text", "")))
        case "wait":
            pause = {"do": "sleep", "seconds": arguments.get("ms", 0) / 1000}
            return [pause, *response(text_result(arguments.get("text", "")))]
        case "fail":
            return response(text_result(arguments.get("text", ""), isError=True))
        case "environ" | "argv" | "cwd" | "fds" | "pid":
            return response(text_result({"$text_of": {"$fact": name}}))
        case "exit":
            return [{"do": "exit", "code": arguments.get("code", 0)}]
    listed = any(isinstance(entry, dict) and entry.get("name") == name for page in pages for entry in page)
    if name == "reflect" or listed:
        mirrored = {"$arguments": True}
        return response(text_result({"$text_of": mirrored}, structuredContent=mirrored))
    return failure(-32602, f"Unknown tool: {name}")
