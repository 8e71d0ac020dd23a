"""The verbs of server scripts, as typed functions that build JSON-able data.

``script(expect("tools/call"), raw(b"noise\\n"))`` is a server that behaves until its first call and then writes a
line of noise. What is not said is done well: see :mod:`support.engine` for how a script runs and
:mod:`support.payload` for values, data and placeholders.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

from support import wellbehaved

Step = dict[str, Any]
Steps = Sequence["Step | Steps"]
Script = list["Step | Steps"]
Json = Any
"""A JSON value; may hold placeholders."""
Data = Any
"""What goes on a descriptor byte for byte: text, a list of data, or a piece that a function below builds."""

SERVER: Final = Path(__file__).with_name("scripted_server.py")
INLINE_LIMIT: Final = 100_000
"""A longer script does not fit one command-line argument (the kernel's limit is 128 KiB)."""

ID: Final[Json] = {"$id": True}
PARAMS: Final[Json] = {"$params": True}
ARGUMENTS: Final[Json] = {"$arguments": True}
FILL: Final[Json] = {"$fill": True}

tool = wellbehaved.tool
text_result = wellbehaved.text_result


def script(*steps: Step | Steps) -> Script:
    """A whole script; steps may be nested."""
    return list(steps)


def command(steps: Steps, path: Path | None = None) -> tuple[str, ...]:
    """The command line of a process that plays ``steps``.

    The script travels inline, or in the file ``path`` when one is given; a long script needs one (ValueError).
    """
    text = json.dumps(steps)
    if path is not None:
        path.write_text(text, encoding="utf-8")
        text = str(path)
    elif len(text) > INLINE_LIMIT:
        raise ValueError(f"a script of {len(text)} bytes does not fit a command line: give a path")
    return (sys.executable, "-I", "-S", str(SERVER), text)


# --- data and values -----------------------------------------------------------------------------------------


def data(value: Data | bytes) -> Data:
    """``value`` as JSON-able data: bytes, also inside lists, become a base64 piece."""
    if isinstance(value, bytes):
        return {"$b64": base64.b64encode(value).decode()}
    return [data(part) for part in value] if isinstance(value, list) else value


def as_json(value: Json, size: int | None = None) -> Data:
    """``value`` as compact JSON; with ``size``, the string at :data:`FILL` grows until it has so many bytes."""
    return {"$json": value} if size is None else {"$json": value, "size": size}


def times(value: Data | bytes, number: int) -> Data:
    """``value``, repeated; in a JSON value ``value`` must be a string."""
    return {"$repeat": data(value), "times": number}


def encoded(value: Data, codec: str) -> Data:
    """``value`` in another character encoding than UTF-8."""
    return {"$encode": value, "as": codec}


def id_of(name: str) -> Json:
    """The id of the message that ``expect(..., save=name)`` saved."""
    return {"$id_of": name}


def fact(name: Literal["environ", "argv", "cwd", "fds", "pid"]) -> Json:
    """What the server knows of itself."""
    return {"$fact": name}


def envelope(result: Json, to: str | None = None) -> Json:
    """The response message that carries ``result`` to the message in hand, or to the saved one."""
    return {"jsonrpc": "2.0", "id": ID if to is None else id_of(to), "result": result}


def error_envelope(code: Json, message: Json, to: str | None = None, **more: Json) -> Json:
    """The error response with ``code`` and ``message``; ``more`` are further keys of the error (``data``)."""
    error = {"code": code, "message": message, **more}
    return {"jsonrpc": "2.0", "id": ID if to is None else id_of(to), "error": error}


# --- talking -------------------------------------------------------------------------------------------------


def expect(
    method: str | None = None, *, where: Json = None, save: str | None = None, response: int | str | None = None
) -> Step:
    """Wait for a message of ``method`` (None: any with a method), or for the response to the id ``response``.

    It becomes the message in hand. ``where`` is a pattern that it must match, else the server exits with
    :data:`support.engine.VIOLATION`; other messages are served meanwhile. ``save`` keeps it by name.
    """
    return {"do": "expect", "method": method, "where": where, "save": save, "response": response}


def reply(message: Json) -> Step:
    """Send a whole message, in one write."""
    return {"do": "reply", "message": message}


def result(value: Json, to: str | None = None) -> Step:
    """Answer the message in hand (or the saved one) with ``value``."""
    return reply(envelope(value, to))


def text(value: Json, to: str | None = None, **more: Json) -> Step:
    """Answer a call with one text block."""
    return result(text_result(value, **more), to)


def error(code: Json, message: Json, to: str | None = None, **more: Json) -> Step:
    """Answer with a JSON-RPC error."""
    return reply(error_envelope(code, message, to, **more))


def notify(method: str, params: Json = None) -> Step:
    """Send a notification."""
    message = {"jsonrpc": "2.0", "method": method}
    return reply(message if params is None else {**message, "params": params})


def request(identifier: Json, method: str, params: Json = None) -> Step:
    """Send a request of the server's own; ``expect(response=identifier)`` waits for the answer."""
    message = {"jsonrpc": "2.0", "id": identifier, "method": method}
    return reply(message if params is None else {**message, "params": params})


def default(of: str | None = None) -> Step:
    """Answer the message in hand (or the saved one) as the well-behaved server does."""
    return {"do": "default", "of": of}


def raw(value: Data | bytes) -> Step:
    """Write exactly these bytes on stdout, in one write."""
    return {"do": "raw", "fd": 1, "data": data(value)}


def line(value: Data | bytes) -> Step:
    """Write these bytes and an LF on stdout, in one write."""
    return raw([value, "\n"])


def chunks(value: Data | bytes, sizes: Sequence[int], gap: float = 0.0) -> Step:
    """Write these bytes in pieces of ``sizes`` (the last size repeats), ``gap`` seconds apart."""
    return {"do": "chunks", "data": data(value), "sizes": list(sizes), "gap": gap}


def flood(value: Data | bytes, total: int | None, fd: Literal[1, 2] = 1) -> Step:
    """Write ``value`` over and over, ``total`` bytes in all; for ever when None."""
    return {"do": "flood", "fd": fd, "data": data(value), "total": total}


def stderr(value: Data | bytes) -> Step:
    """Write exactly these bytes on stderr."""
    return {"do": "raw", "fd": 2, "data": data(value)}


# --- who answers what ----------------------------------------------------------------------------------------


def tools(*entries: Json) -> Step:
    """List these tools, on one page. A listed tool without a handler answers its arguments."""
    return pages(list(entries))


def pages(*listing: Sequence[Json]) -> Step:
    """List the tools over several pages, with the cursors ``page-2``, ``page-3`` ..."""
    return {"do": "tools", "pages": [list(page) for page in listing]}


def at(nth: int, *steps: Step | Steps, method: str = "tools/call") -> Step:
    """Handle the ``nth`` message (from 1) of ``method`` by ``steps``; no steps: never answer."""
    return {"do": "at", "nth": nth, "method": method, "steps": list(steps)}


def per_tool(name: str, *steps: Step | Steps) -> Step:
    """Handle every call of the tool ``name`` by ``steps``; no steps: never answer."""
    return {"do": "per_tool", "name": name, "steps": list(steps)}


def on(method: str, *steps: Step | Steps) -> Step:
    """Handle every message of ``method`` by ``steps``; no steps: never answer."""
    return {"do": "on", "method": method, "steps": list(steps)}


def on_eof(*steps: Step | Steps) -> Step:
    """What to do when stdin ends, instead of exiting with 0 at once; no steps: ignore it."""
    return {"do": "on_eof", "steps": list(steps)}


def answer_fact(name: Literal["environ", "argv", "cwd", "fds", "pid"]) -> Step:
    """Answer a call with a fact of the server, as JSON text (echo_env, echo_argv, echo_cwd, echo_fds)."""
    return text({"$text_of": fact(name)})


def record(path: Path | str) -> Step:
    """From now on append every byte received to the file ``path``: lines as they come, the rest at EOF."""
    return {"do": "record", "path": str(path)}


def write_file(path: Path | str, value: Data | bytes) -> Step:
    """Append to the file ``path``."""
    return {"do": "write_file", "path": str(path), "data": data(value)}


def write_pid(path: Path | str) -> Step:
    """Append the process id and an LF to the file ``path``."""
    return write_file(path, [fact("pid"), "\n"])


def by_start(path: Path | str, cases: dict[int, Steps], *otherwise: Step | Steps) -> Step:
    """Play ``cases[n]`` in the nth process (from 1) that comes here, counted in the file ``path``."""
    by_number = {str(number): steps for number, steps in cases.items()}
    return {"do": "by_start", "path": str(path), "cases": by_number, "otherwise": list(otherwise)}


def repeat(number: int | None, *steps: Step | Steps) -> Step:
    """Play ``steps`` so many times; for ever when None."""
    return {"do": "repeat", "times": number, "steps": list(steps)}


# --- time, descriptors, the end ------------------------------------------------------------------------------


def sleep(seconds: float) -> Step:
    """Do nothing in this handler, or, in the main program, nothing at all."""
    return {"do": "sleep", "seconds": seconds}


def hang() -> Step:
    """Never go on."""
    return {"do": "sleep", "seconds": None}


def spin(seconds: float | None = None) -> Step:
    """Burn the processor; for ever when None."""
    return {"do": "spin", "seconds": seconds}


def close(fd: Literal[0, 1, 2]) -> Step:
    """Close a descriptor."""
    return {"do": "close", "fd": fd}


def stop_reading() -> Step:
    """Read nothing from stdin any more, so that the pipe fills up; EOF goes unnoticed, too."""
    return {"do": "stop_reading"}


def exit(code: int = 0) -> Step:  # noqa: A001 - the verb's name
    """End with this status."""
    return {"do": "exit", "code": code}


def kill_self(signal: str = "SIGKILL") -> Step:
    """Send a signal to itself."""
    return {"do": "kill_self", "signal": signal}


def stop_self() -> Step:
    """Stop (SIGSTOP), without ending."""
    return kill_self("SIGSTOP")


def ignore(signal: str = "SIGTERM") -> Step:
    """Ignore a signal from now on."""
    return {"do": "trap", "signal": signal, "steps": None}


def trap(signal: str, *steps: Step | Steps) -> Step:
    """Play ``steps`` whenever the signal comes."""
    return {"do": "trap", "signal": signal, "steps": list(steps)}


def fork(
    *steps: Step | Steps, setsid: bool = False, keep_fds: Sequence[Literal[0, 1, 2]] = (), double: bool = False
) -> Step:
    """Start a child that plays ``steps`` and exits with 0 after them; it never reads stdin.

    ``setsid``: in a session of its own. ``keep_fds``: which of 0, 1 and 2 it keeps (the others are the null
    device); holding 1 keeps the pipe open after its parent. ``double``: orphaned at once.
    """
    return {"do": "fork", "script": list(steps), "setsid": setsid, "keep_fds": list(keep_fds), "double": double}
