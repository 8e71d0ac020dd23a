"""What abuse by one client costs another: the p99 of a good client alone, and beside each kind of abuse.

    python tests/benchmarks/rude.py [--rounds N]

Both clients and the daemon share the machine. The table gives the ratio of each round, medians first.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import Bench, p
from contestants import SERVER, Frames, sequential

CALLS = 2000
ABUSES = {
    "half frames on 200 connections": """
socks = [connect() for _ in range(200)]
for sock in socks: sock.sendall(struct.pack('>I', 1000) + b'x' * 10)
time.sleep(600)
""",
    "one byte at a time": """
sock = connect()
data = frame('call', CALL)
while True:
    for byte in data: sock.sendall(bytes([byte])); time.sleep(0.001)
    sock.recv(65536)
""",
    "10,000 calls, answers never read": """
sock = connect()
sock.setblocking(False)
block = b''.join(frame('call', CALL) for _ in range(10000))
while True:
    try: block = block[sock.send(block):] or block
    except BlockingIOError: time.sleep(0.01)
""",
    "calls that are cancelled at once": """
sock = connect()
while True:
    number = next(ids)
    sock.sendall(frame('call', CALL, number) + frame('cancel', {}, number))
    sock.recv(65536)
""",
    "connections that come and go": """
while True:
    sock = connect()
    sock.sendall(frame('call', CALL))
    sock.close()
""",
    "garbage": """
while True:
    sock = connect()
    sock.sendall(b'GET / HTTP/1.1')
    sock.recv(65536)
    sock.close()
""",
}
PRELUDE = """
import itertools, socket, struct, sys, time, msgpack
ids = itertools.count(2)
CALL = {'server': 'fast', 'tool': 'echo', 'arguments': {'text': 'x'}}
def frame(kind, body, number=None):
    data = msgpack.packb({'v': 1, 'id': next(ids) if number is None else number, 'kind': kind, 'body': body})
    return struct.pack('>I', len(data)) + data
def connect():
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(sys.argv[1])
    sock.sendall(frame('hello', {'proto': 1, 'peer': 'rude', 'features': []}, 1))
    sock.recv(65536)
    return sock
"""


def measure(path: str, abuse: str | None) -> float:
    """The p99 of a good client in seconds, beside ``abuse``."""
    process = None
    if abuse is not None:
        words = [sys.executable, "-c", PRELUDE + abuse, path]
        process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        time.sleep(0.5)
    try:
        return p(sequential(Frames(path, hello=True).call, CALLS), 99)
    finally:
        if process is not None:
            process.kill()
            process.wait()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    ratios: dict[str, list[float]] = {name: [] for name in ABUSES}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), full=False)
        with bench.daemon({"fast": SERVER}) as path:
            for _ in range(rounds):
                for name, abuse in ABUSES.items():
                    alone = measure(path, None)
                    ratios[name].append(measure(path, abuse) / alone)
    print(f"{'p99 of a good client beside':40} / alone   spread (must: 3)")
    for name, values in ratios.items():
        print(f"{name:40} {statistics.median(values):7.2f}   {min(values):.2f} .. {max(values):.2f}")


if __name__ == "__main__":
    main()
