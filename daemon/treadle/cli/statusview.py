"""The rows of ``treadle status``, made of the shape ``status`` of the socket page (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from treadle import evidence
from treadle.cli import output

HEADER: Final = ("SERVER", "STATE", "PID", "TOOLS", "OK", "FAILED", "P50 MS", "RESTARTS", "WHY")
NOT_OK: Final = ("tool_error", "failed", "timed_out", "cancelled", "refused")


def headline(daemon: Mapping[str, Any]) -> str:
    """One line on the daemon itself."""
    return (
        f"treadle {daemon['version']} (pid {daemon['pid']}) is {daemon['state']}, up "
        f"{output.span(daemon['uptime_s'])}, {daemon['in_flight']} in flight, "
        f"containment: {daemon['containment']}"
    )


def answered(calls: Mapping[str, int]) -> int:
    """How many calls were answered with a result: without any, the latencies of ``status`` mean nothing."""
    return calls["ok"] + calls["tool_error"]


def row(server: Mapping[str, Any]) -> tuple[str, ...]:
    """One server under :data:`HEADER`."""
    calls = server["calls"]
    return (
        server["name"],
        server["state"],
        str(server.get("pid", "-")),
        str(server["tools"]),
        str(calls["ok"]),
        str(sum(calls[key] for key in NOT_OK)),
        str(server["latency_ms"]["p50"]) if answered(calls) else "-",
        str(server["restarts"]),
        server.get("reason", ""),
    )


def facts(server: Mapping[str, Any], now: float) -> list[tuple[str, str]]:
    """Everything about one server as pairs of a heading and a text. ``now`` is in Unix seconds."""
    calls = server["calls"]
    percentiles = server["latency_ms"].items() if answered(calls) else ()
    latency = ", ".join(f"{key} {value} ms" for key, value in percentiles)
    about = server.get("server", {})
    pairs = [
        ("state", server["state"]),
        ("reason", server.get("reason", "")),
        ("process", f"pid {server['pid']}, generation {server['generation']}" if "pid" in server else ""),
        ("tree", _tree(server["tree"]) if "tree" in server else ""),
        ("up", output.span(server["uptime_s"]) if "uptime_s" in server else ""),
        ("speaks", f"MCP {server['protocol_version']}" if "protocol_version" in server else ""),
        ("calls itself", " ".join(str(about[key]) for key in ("name", "version") if key in about)),
        ("tools", str(server["tools"])),
        ("in flight", str(server["in_flight"])),
        ("calls", ", ".join(f"{key.replace('_', ' ')} {count}" for key, count in calls.items())),
        ("latency", latency),
        ("restart policy", f"{server['restart']}, {output.count(server['restarts'], 'restart')} so far"),
        (
            "stderr",
            f"{server['stderr_bytes']} bytes; bad lines {server['bad_lines']}, dropped {server['dropped']}",
        ),
    ]
    if "last_failure" in server:
        last = server["last_failure"]
        pairs.append(("last failure", f"{output.span(now - last['at'])} ago: {last['reason']}"))
    if "evidence" in server:
        pairs.append(("last end", evidence.sentence(server["evidence"])))
    return [(heading, text) for heading, text in pairs if text]


def _tree(tree: Mapping[str, Any]) -> str:
    count = output.count(tree["processes"], "process")
    return f"{count}, {mebibytes(tree['rss_bytes'])}, {tree['cpu_s']:.1f} s of CPU"


def mebibytes(count: int) -> str:
    """Bytes as people read memory: ``12 MiB``, ``1.4 GiB``."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
