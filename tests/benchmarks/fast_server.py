"""The MCP server that every contestant calls: as fast as Python gets, so that what is measured is the way to it.

`tools/call` is answered by cutting bytes, not by parsing: `echo` returns 300 bytes, `big_<n>` a text of n MiB,
`swallow` a short text whatever its arguments hold. Everything else goes through `json`.
"""

import functools
import json
import os

SMALL = b'"result":{"content":[{"type":"text","text":"%b"}],"isError":false}}\n' % (b"x" * 220)
SHORT = b'"result":{"content":[{"type":"text","text":"ok"}],"isError":false}}\n'
MIB = 1024 * 1024
SIZES = (1, 10, 15)
NAMES = ["echo", "swallow", *(f"big_{size}" for size in SIZES)]
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]


@functools.cache
def big(size: int) -> bytes:
    """A text of ``size`` MiB. Made when it is first asked for: a server that only starts writes no 26 MiB."""
    return b'"result":{"content":[{"type":"text","text":"%b"}],"isError":false}}\n' % (b"y" * (size * MIB))


def answer(line: bytes) -> bytes:
    """The answer to one line, empty for a notification."""
    if b'"tools/call"' in line[:200]:
        start = line.index(b'"id":') + 5
        end = start
        while line[end] in b" 0123456789":
            end += 1
        head = b'{"jsonrpc":"2.0","id":' + line[start:end] + b","
        if b'"echo"' in line[:300]:
            return head + SMALL
        for size in SIZES:
            if b'"big_%d"' % size in line[:300]:
                return head + big(size)
        return head + SHORT
    message = json.loads(line)
    if "id" not in message:
        return b""
    method = message["method"]
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        known = ("2025-06-18", "2025-03-26", "2024-11-05")
        result = {
            "protocolVersion": version if version in known else known[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "fast", "version": "1"},
        }
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "ping":
        result = {}
    else:
        error = {"code": -32601, "message": "method not found"}
        return json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode() + b"\n"
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode() + b"\n"


def main() -> None:
    """Serve stdin until it ends; answers to one read leave in one write."""
    pending: list[bytes] = []
    buffer = bytearray(MIB)  # reused: a fresh one of this size costs more than a call
    while size := os.readv(0, [buffer]):
        chunk = bytes(memoryview(buffer)[:size])
        if b"\n" not in chunk:
            pending.append(chunk)
            continue
        lines = b"".join([*pending, chunk]).split(b"\n")
        pending = [lines.pop()]
        out = memoryview(b"".join(map(answer, filter(None, lines))))
        while out:
            out = out[os.write(1, out) :]


if __name__ == "__main__":
    main()
