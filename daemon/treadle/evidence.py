"""The evidence of a server's end, in words for people (floor 0, pure). Its typed form is in the transport seam."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_AFTER: Final = {
    "itself": "by itself",
    "eof": "after its stdin was closed",
    "term": "after SIGTERM",
    "kill": "after SIGKILL",
}
_TREE: Final = {True: "no descendant left", False: "descendants still alive", None: "descendants unknown"}
_ERRORS: Final = {
    "retirement_timed_out": "NOT CONFIRMED: no evidence of its end in time; it may still run",
    "retirement_unconfirmed": "NOT CONFIRMED: its end cannot be proven",
}


def sentence(body: Mapping[str, Any]) -> str:
    """One line on a body of the shape ``evidence`` (socket page): how the server ended, what is left of it."""
    if body["kind"] == "no_resource":
        return "no process was running"
    if body["kind"] == "unknown":
        return "its end was not observed"
    how = f"killed by {body['signal']}" if "signal" in body else f"exited with status {body.get('status')}"
    words = [how, _AFTER.get(body.get("rung", ""), ""), f"in {body['elapsed_ms']} ms"]
    tree = _TREE[body["drained"]]
    if "by" in body:
        tree += f" ({body['by']})"
    if count := body["stragglers"]:
        tree += f", {count} straggler{'s' if count > 1 else ''} killed"
    return f"{' '.join(word for word in words if word)}; {tree}"


def of_row(row: Mapping[str, Any]) -> str:
    """One line on a row of the shape ``shutdown``: its evidence, or loudly the lack of it."""
    error = row.get("error")
    told = sentence(row["evidence"]) if "evidence" in row else ""
    if error is None:
        return told
    loud = _ERRORS.get(error, f"NOT CONFIRMED: {error}")
    return f"{loud} ({told})" if told else loud
