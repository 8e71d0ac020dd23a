"""A restart of the service under load: no connect fails, and every call ends in a clear outcome."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter
from pathlib import Path

from systemd.conftest import DEMO, SOCKET, Service, prop, systemctl
from treadle_client import BrokerError, Client
from treadle_client.aio import AsyncClient

RESTARTS = 3
BLOCKING = 6
ONE_SHOT = 4
TASKS = 8


def outcome_of(error: BrokerError) -> str:
    return f"{error.code}/{error.outcome}"


def keep_calling(tally: Counter[str], stop: threading.Event, *, one_shot: bool) -> None:
    """Call without a pause; with ``one_shot`` each call connects anew, as the command line does."""
    client = Client(SOCKET, timeout=60)
    try:
        while not stop.is_set():
            if one_shot:
                client.close()
                client = Client(SOCKET, timeout=60)
            try:
                assert client.call("demo", "add", {"a": 20, "b": 22}).text == "42"
                tally["ok"] += 1
            except BrokerError as error:
                tally[outcome_of(error)] += 1
    finally:
        client.close()


def keep_connecting(tally: Counter[str], stop: threading.Event) -> None:
    """Connect and say nothing: the kernel's own word on whether somebody listens."""
    while not stop.is_set():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
            try:
                one.connect(SOCKET)
                tally["ok"] += 1
            except OSError as error:
                tally[str(error)] += 1
        time.sleep(0.005)


async def keep_calling_many(tally: Counter[str], stop: threading.Event) -> None:
    """Many calls in flight on one connection, some of them long enough to be met by the restart."""

    async def one(client: AsyncClient, number: int) -> None:
        while not stop.is_set():
            try:
                if number % 2:
                    await client.call("demo", "slow", {"seconds": 0.2})
                else:
                    await client.call("demo", "add", {"a": 1, "b": 2})
                tally["ok"] += 1
            except BrokerError as error:
                tally[outcome_of(error)] += 1

    async with AsyncClient(SOCKET, timeout=60) as client:
        await asyncio.gather(*(one(client, number) for number in range(TASKS)))


def test_a_restart_under_load_loses_no_connect_and_settles_every_call(service: Service) -> None:
    service.configure({"demo": {"command": DEMO}}, {"max_connections": 1000})
    service.start()
    socket_file = Path(SOCKET).stat().st_ino
    stop = threading.Event()
    tallies = {"blocking": Counter[str](), "one-shot": Counter[str](), "asyncio": Counter[str]()}
    connects = Counter[str]()
    threads = [
        threading.Thread(target=keep_connecting, args=(connects, stop)),
        *(threading.Thread(target=keep_calling, args=(tallies["blocking"], stop), kwargs={"one_shot": False})
          for _ in range(BLOCKING)),
        *(threading.Thread(target=keep_calling, args=(tallies["one-shot"], stop), kwargs={"one_shot": True})
          for _ in range(ONE_SHOT)),
        threading.Thread(target=lambda: asyncio.run(keep_calling_many(tallies["asyncio"], stop))),
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    daemons = {service.pid}
    for _ in range(RESTARTS):
        time.sleep(1)  # load, not a wait for anything
        systemctl("restart", "treadle.service")
        daemons.add(service.pid)
    time.sleep(1)
    stop.set()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a call never ended"
    print({name: dict(tally) for name, tally in {**tallies, "connects": connects}.items()})
    assert len(daemons) == RESTARTS + 1
    assert prop("NRestarts") == "0"
    assert Path(SOCKET).stat().st_ino == socket_file
    for tally in tallies.values():
        assert tally["ok"] > 100
        # What did not succeed is known to have reached no server, or was in flight and is said to be unknown.
        assert all(key == "ok" or key.endswith(("/not_sent", "/unknown")) for key in tally), tallies
    assert set(connects) == {"ok"}, connects
    # A client with one call at a time always learns that a call did not run.
    for kind in ("blocking", "one-shot"):
        assert not any(key.endswith("/unknown") for key in tallies[kind]), tallies
