"""A FastMCP proxy over stdio servers; runs in FastMCP's own environment.

    python fastmcp_proxy.py CONFIG [PORT]

With a port it serves streamable HTTP there, without one its own stdin. One session to each server serves all
clients, as a broker has it ("session reuse" in its documentation); else every call opens one anew.
"""

import asyncio
import json
import sys
from pathlib import Path

from fastmcp import Client
from fastmcp.server import create_proxy


async def main(config: str, port: str | None) -> None:
    """Serve until killed."""
    async with Client(json.loads(Path(config).read_text())) as client:
        proxy = create_proxy(client)
        if port is None:
            await proxy.run_async(transport="stdio", show_banner=False)
            return
        await proxy.run_async(
            transport="http",
            show_banner=False,
            host="127.0.0.1",
            port=int(port),
            log_level="error",
            json_response=True,  # else every answer is a stream of server-sent events
        )


asyncio.run(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None))
