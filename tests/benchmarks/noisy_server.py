"""A server that abuses its neighbours: 16 MiB answers, and in between a flood of notifications."""

import os
import sys
import threading
import time

import fast_server

NOTE = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"%b"}}\n' % (b"n" * 200)


def flood() -> None:
    """Write notifications as fast as they are taken, with short rests."""
    block = NOTE * 200
    while True:
        view = memoryview(block)
        while view:
            view = view[os.write(1, view) :]
        time.sleep(0.002)


def main() -> None:
    """Flood beside serving, on the processors that the first argument lists. Both write whole lines from one lock,
    so that the protocol holds."""
    os.sched_setaffinity(0, set(map(int, sys.argv[1].split(","))))
    lock = threading.Lock()
    write = os.write

    def whole(fd: int, data: memoryview) -> int:
        with lock:
            view = memoryview(data)
            while view:
                view = view[write(fd, view) :]
        return len(data)

    os.write = whole  # type: ignore[assignment]
    threading.Thread(target=flood, daemon=True).start()
    fast_server.main()


if __name__ == "__main__":
    main()
