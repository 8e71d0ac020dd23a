"""The official Python SDK calling the server directly; runs in the SDK's own environment and prints JSON."""

import asyncio
import json
import sys
import time
from pathlib import Path

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

now = time.perf_counter


async def main(python: str, calls: int, flood: int) -> None:
    """Measure sequential calls, 64 in flight, and large results."""
    server = str(Path(__file__).with_name("fast_server.py"))
    arguments = {"text": "x" * 40}
    async with (
        stdio_client(StdioServerParameters(command=python, args=[server])) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        for _ in range(100):
            await session.call_tool("echo", arguments)
        times = []
        for _ in range(calls):
            start = now()
            await session.call_tool("echo", arguments)
            times.append(now() - start)
        left = flood

        async def worker() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await session.call_tool("echo", arguments)

        start = now()
        await asyncio.gather(*(worker() for _ in range(64)))
        rate = flood / (now() - start)
        big = {}
        for size in (1, 10):
            costs = []
            for _ in range(3):
                start = now()
                await session.call_tool(f"big_{size}", {})
                costs.append(now() - start)
            big[size] = sorted(costs)[1]
    print(json.dumps({"times": times, "rate": rate, "big": big}))


asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
