"""What ``treadle call`` does, apart from reading its command line."""

from __future__ import annotations

import sys
import time

from treadle.cli import arguments, output
from treadle.cli.codes import OK, TIMED_OUT, TOOL_SAID_NO, USAGE
from treadle.cli.connection import Connected
from treadle.cli.progress import Elapsed
from treadle_client import Denied, ServerUnavailable
from treadle_client._requests import GRACE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Final, Literal

    from treadle.cli.options import Options
    from treadle_client import Client, ToolResult

OUTPUTS: Final = ("text", "json", "raw")
_POLL_S: Final = 0.02
_STARTS_WITHIN_S: Final = 60.0


def run(
    words: Sequence[str],
    options: Options,
    *,
    json_args: str | None = None,
    timeout: float | None = None,
    form: str = "text",
) -> int:
    """Call the tool that ``words`` name (``SERVER TOOL`` or ``SERVER.TOOL``, then arguments); print its answer.

    ``timeout`` is in seconds, ``form`` one of :data:`OUTPUTS`. Returns the exit code; a failed request exits by
    itself.
    """
    options.as_json = options.as_json or form == "json"
    try:
        given = None if json_args is None else arguments.whole(_text(json_args))
        with Connected(options) as broker:
            if timeout is not None:
                # What is asked before the call must not take longer than the call itself.
                broker.timeout = timeout + GRACE
            server, tool, spelled = named(broker, words)
            if spelled and given is not None:
                raise arguments.BadWord("give KEY=VALUE words or --json-args, not both")
            with Elapsed(f"{server} {tool}", shown=not options.quiet):
                if spelled:
                    given = arguments.arguments_of(spelled, _schema(broker, server, tool, timeout), _read)
                content: Literal["all"] | None = "all" if form == "raw" and not options.as_json else None
                result = broker.call(server, tool, given or {}, timeout=timeout, content=content)
    except arguments.BadWord as error:
        output.problem(str(error))
        return USAGE
    except TimeoutError as error:
        output.problem(str(error))
        return TIMED_OUT
    show(result, "json" if options.as_json else form)
    return TOOL_SAID_NO if result.is_error else OK


def named(broker: Client, words: Sequence[str]) -> tuple[str, str, Sequence[str]]:
    """The server, the tool, and the words that follow. Raises :class:`treadle.cli.arguments.BadWord`.

    ``SERVER.TOOL`` is split at the first dot that follows a known server's name: tool names may hold dots.
    """
    first = words[0]
    if "." in first:
        known = {row["name"] for row in broker.list()}
        if first not in known:
            dots = [at for at, character in enumerate(first) if character == "."]
            at = next((at for at in dots if first[:at] in known), dots[0])
            return first[:at], first[at + 1 :], words[1:]
    if len(words) < 2:
        raise arguments.BadWord(f"which tool of {first}? Write treadle call {first} TOOL")
    return first, words[1], words[2:]


def _schema(broker: Client, server: str, tool: str, timeout: float | None) -> Any:
    """The input schema of a tool, None when the listing has no such tool. A server that starts is waited for."""
    deadline = time.monotonic() + (_STARTS_WITHIN_S if timeout is None else timeout)
    while True:
        try:
            tools = broker.list(server)
        except ServerUnavailable:
            state = broker.status(server)["servers"][0]["state"]
            if state == "prepared":
                try:
                    broker.start(server)
                except Denied:
                    # The call itself starts a lazy server; only the types of its arguments must be guessed then.
                    return None
            elif state not in ("starting", "ready"):  # it may have become ready since
                raise
            if time.monotonic() > deadline:
                raise TimeoutError(f"server {server} is still starting") from None
            time.sleep(_POLL_S)
            continue
        return next((one["input_schema"] for one in tools if one["name"] == tool), None)


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _text(source: str) -> str:
    try:
        if source == "-":
            return sys.stdin.read()
        return _read(source[1:]) if source.startswith("@") else source
    except OSError as error:
        raise arguments.BadWord(f"--json-args {source}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise arguments.BadWord(f"--json-args {source}: it is not UTF-8 text") from None


def show(result: ToolResult, form: str) -> None:
    """Print a result in one of :data:`OUTPUTS`; as text, that of an error goes to standard error."""
    if form == "json":
        output.print_json(result.to_value())
    elif form == "raw":
        _show_raw(result)
    else:
        stream = sys.stderr if result.is_error else sys.stdout
        for block in result.content:
            text = block["text"] if block["type"] == "text" else f"[{block['type']}]"
            stream.write(f"{output.printable(text, stream)}\n")
        if not result.content and result.has_structured:
            output.print_json(result.structured)


def _show_raw(result: ToolResult) -> None:
    """The bytes of the blocks and nothing else: text as it is, images and audio decoded."""
    sys.stdout.flush()
    for block in result.content:
        if block["type"] == "text":
            sys.stdout.buffer.write(block["text"].encode("utf-8", "replace"))
        elif isinstance(block.get("data"), str):
            import base64

            sys.stdout.buffer.write(base64.b64decode(block["data"]))
    sys.stdout.buffer.flush()
