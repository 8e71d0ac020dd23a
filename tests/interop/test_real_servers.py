"""Third-party servers through the real daemon, with one call each whose content is checked.

`make interop` installs them; nothing here needs a network.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from integration.conftest import Serve

INTEROP = Path(__file__).parents[2] / "build" / "interop"
PACKAGES = INTEROP / "npm" / "node_modules" / "@modelcontextprotocol"


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    if not (INTEROP / ".ready").exists():
        pytest.fail("the servers are not installed: run `make interop`")


def python_server(name: str, *words: str) -> dict[str, Any]:
    return {"command": [str(INTEROP / name / "bin" / name), *words], "handshake_timeout_ms": 60000}


def node_server(name: str, *words: str) -> dict[str, Any]:
    return {"command": ["node", str(PACKAGES / name / "dist" / "index.js"), *words], "handshake_timeout_ms": 60000}


def call(serve: Serve, server: Mapping[str, Any], tool: str, arguments: Mapping[str, Any]) -> Any:
    """One call through a daemon of its own; the server must end with evidence afterwards."""
    daemon = serve({"subject": server})
    daemon.wait_ready("subject")
    with daemon.client() as broker:
        result = broker.call("subject", tool, dict(arguments), check=True)
        done = broker.shutdown()
    assert done["confirmed"], done
    assert done["servers"][0]["evidence"]["kind"] == "exited"
    return result


def test_mcp_server_time_tells_the_time(serve: Serve) -> None:
    result = call(serve, python_server("mcp-server-time"), "get_current_time", {"timezone": "UTC"})
    told = datetime.fromisoformat(json.loads(result.text)["datetime"])
    assert abs(told - datetime.now(UTC)) < timedelta(minutes=1)


def test_mcp_server_git_tells_the_status_of_a_repository(serve: Serve, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "--quiet", "-b", "trunk", str(repository)], check=True)
    (repository / "new.txt").write_text("new")
    result = call(serve, python_server("mcp-server-git"), "git_status", {"repo_path": str(repository)})
    assert "new.txt" in result.text
    assert "trunk" in result.text


def test_server_everything_echoes(serve: Serve) -> None:
    result = call(serve, node_server("server-everything"), "echo", {"message": "grüße \u2028 🌲"})
    assert result.text == "Echo: grüße \u2028 🌲"


def test_server_filesystem_reads_a_file(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "note.txt").write_text("a note\nof two lines")
    path = str(folder / "note.txt")
    result = call(serve, node_server("server-filesystem", str(folder)), "read_text_file", {"path": path})
    assert result.text == "a note\nof two lines"


def test_four_servers_at_once_list_their_tools_and_end_with_evidence(serve: Serve, tmp_path: Path) -> None:
    daemon = serve(
        {
            "time": python_server("mcp-server-time"),
            "git": python_server("mcp-server-git"),
            "everything": node_server("server-everything"),
            "files": node_server("server-filesystem", str(tmp_path)),
        }
    )
    daemon.wait_ready("time", "git", "everything", "files")
    with daemon.client() as broker:
        tools = {
            name: {tool["name"] for tool in broker.list(name)} for name in ("time", "git", "everything", "files")
        }
        done = broker.shutdown()
    assert {"get_current_time", "convert_time"} == tools["time"]
    assert "git_log" in tools["git"]
    assert "echo" in tools["everything"]
    assert "list_directory" in tools["files"]
    assert [row["evidence"]["drained"] for row in done["servers"]] == [True] * 4
