#!/usr/bin/env python3
"""A stdio MCP server that gives secrets away and uses resources, as it is asked to (standard library alone).

Its secrets are the variables named ``SECRET_...`` of its environment; no argument and no script holds them.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

Message = dict[str, Any]


def forms(secret: str) -> Iterator[tuple[str, str]]:
    """How programs show a secret when they give it away."""
    raw = secret.encode()
    yield "plain", secret
    yield "json", json.dumps(secret)
    yield "json-text", json.dumps(secret, ensure_ascii=False)
    yield "json-twice", json.dumps(json.dumps(secret))
    yield "repr", repr(secret)
    yield "percent", quote(secret, safe="")
    yield "base64", base64.b64encode(raw).decode()
    yield "urlsafe", base64.urlsafe_b64encode(raw).decode()
    yield "basic-auth", base64.b64encode(b"user:" + raw).decode()


def leak() -> str:
    """Every form of every secret, each on a line that begins with its name."""
    secrets = [value for name, value in sorted(os.environ.items()) if name.startswith("SECRET_")]
    return "\n".join(f"leak-{name}: {text}" for secret in secrets for name, text in forms(secret))


def say(message: Message) -> None:
    """One line on stdout."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def to_stderr() -> str:
    sys.stderr.write(leak() + "\n")
    sys.stderr.flush()
    return "written"


def die() -> str:
    to_stderr()
    os._exit(3)


def bad_line() -> str:
    # Of several lines the first is what the daemon looks at.
    sys.stdout.write(leak().replace("\n", " ") + "\n")
    sys.stdout.flush()
    return ""


def allocate(mib: int) -> str:
    return f"{len(bytearray(mib << 20)) >> 20} MiB"


def open_files(number: int) -> str:
    files = []
    try:
        for _ in range(number):
            files.append(os.open("/dev/null", os.O_RDONLY))
    finally:
        for file in files:
            os.close(file)
    return f"{number} files"


def spin() -> str:
    while True:
        pass


TOOLS: dict[str, Callable[..., str]] = {
    "stderr": to_stderr,
    "die": die,
    "bad_line": bad_line,
    "environ": lambda: json.dumps(dict(os.environ)),
    "allocate": allocate,
    "open_files": open_files,
    "spin": spin,
}


def answer(message: Message) -> None:
    """Answer one request."""
    method, identifier = message["method"], message["id"]
    if method == "initialize":
        result: Any = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "probe"},
        }
    elif method == "tools/list":
        names = [*TOOLS, "error"]
        result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
    elif message["params"]["name"] == "error":
        error = {"code": -32000, "message": f"refused: {leak()}", "data": {"request": [leak()], leak(): 1}}
        say({"jsonrpc": "2.0", "id": identifier, "error": error})
        return
    else:
        params = message["params"]
        try:
            text = TOOLS[params["name"]](**params.get("arguments", {}))
        except (MemoryError, OSError) as failure:
            result = {
                "content": [{"type": "text", "text": f"{type(failure).__name__}: {failure}"}],
                "isError": True,
            }
        else:
            result = {"content": [{"type": "text", "text": text}]}
    say({"jsonrpc": "2.0", "id": identifier, "result": result})


def main() -> None:
    if "LEAK_AT_START" in os.environ:
        die()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            answer(message)


if __name__ == "__main__":
    main()
