"""``treadle status``."""

from __future__ import annotations

from typing import Any

import click

from treadle.cli import common


@click.command()
@click.argument("server", required=False)
@common.json_option
@common.socket_option
@click.pass_context
def command(ctx: click.Context, server: str | None, as_json: bool, socket: str | None) -> None:
    """Show how each server is, and why.

    \b
    treadle status
    treadle status demo
    """
    with common.broker(ctx, socket) as broker:
        status = broker.status(server)
    if as_json:
        common.print_json(status)
        return
    daemon = status["daemon"]
    click.echo(
        f"treadle {daemon['version']} (pid {daemon['pid']}) is {daemon['state']}, up {_span(daemon['uptime_s'])}, "
        f"{daemon['in_flight']} in flight, containment: {daemon['containment']}"
    )
    rows: list[tuple[str, ...]] = [("SERVER", "STATE", "PID", "TOOLS", "OK", "FAILED", "P50 MS", "WHY")]
    rows += [_row(one) for one in status["servers"]]
    common.table(rows)


def _row(server: dict[str, Any]) -> tuple[str, ...]:
    calls = server["calls"]
    failed = sum(calls[key] for key in ("tool_error", "failed", "timed_out", "cancelled", "refused"))
    return (
        server["name"],
        server["state"],
        str(server.get("pid", "-")),
        str(server["tools"]),
        str(calls["ok"]),
        str(failed),
        str(server["latency_ms"].get("p50", "-")),
        server.get("reason", ""),
    )


def _span(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")]
    shown = [f"{count}{unit}" for count, unit in parts if count]
    return " ".join(shown[:2]) or "0s"
