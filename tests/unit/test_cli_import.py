"""Configuration made of other programs' files: the tables, the secrets that stay out of them, what is skipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.cli import app
from treadle.cli.foreign import NotUnderstood, entries
from treadle.cli.importing import Skipped, Table, convert, looks_secret
from treadle.config import ServerConfig, parse

TOKEN = "ghp_0123456789abcdefghij0123456789abcdef"
KEY = "sk-ant-REDACTED"

CLAUDE_DESKTOP = {
    "mcpServers": {
        "filesystem": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/srv/files"]},
        "github": {
            "command": "docker",
            "args": [
                "run",
                "-i",
                "--rm",
                "-e",
                "GITHUB_PERSONAL_ACCESS_TOKEN",
                "ghcr.io/github/github-mcp-server",
            ],
            "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": TOKEN},
        },
    }
}
CLAUDE_CODE_USER = {
    "numStartups": 12,
    "mcpServers": {"time": {"type": "stdio", "command": "uvx", "args": ["mcp-server-time==1.0"], "env": {}}},
    "projects": {
        "/home/me/app": {
            "allowedTools": [],
            "mcpServers": {
                "sentry": {"type": "http", "url": "https://mcp.sentry.dev/mcp"},
                "db": {"command": "db-mcp", "args": ["--dsn", "postgres://me:hunter2@localhost/app"]},
            },
        },
        "/home/me/other": {},
    },
}
CLAUDE_CODE_PROJECT = {
    "mcpServers": {
        "api": {
            "command": "node",
            "args": ["server.js", "--root", "${PROJECT_ROOT}"],
            "env": {"API_KEY": "${API_KEY}", "REGION": "${REGION:-eu-west-1}", "SECRET": f"${{S:-{KEY}}}"},
        }
    }
}
CURSOR = {
    "mcpServers": {
        "My Server (beta)": {
            "command": "python",
            "args": ["-m", "thing", f"--api-key={KEY}"],
            "env": {"LOG_LEVEL": "debug", "PORT": 8080, "OPENAI_API_KEY": KEY},
            "envFile": "${workspaceFolder}/.env",
            "disabled": True,
        }
    }
}
VS_CODE = """{
  // asked for once, and kept
  "inputs": [
    {"type": "promptString", "id": "perplexity-key", "description": "Perplexity API Key", "password": true},
  ],
  "servers": {
    /* local */
    "perplexity": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "server-perplexity-ask"],
      "env": {"PERPLEXITY_API_KEY": "${input:perplexity-key}", "URL": "https://a//b"},
    },
    "fetch": {"type": "sse", "url": "http://localhost:1/sse"}
  }
}"""
CODEX = f"""
model = "o5"
[mcp_servers.docs]
command = "docs-server"
args = ["--stdio"]
env_vars = ["DOCS_TOKEN", "DOCS_ORG"]
startup_timeout_sec = 20
tool_timeout_sec = 1.5
enabled_tools = ["search", "read*"]
[mcp_servers.docs.env]
MODE = "fast"
AUTH_TOKEN = "{TOKEN}"
[mcp_servers.remote]
url = "https://example.com/mcp"
bearer_token_env_var = "REMOTE_TOKEN"
"""


def _convert(text: Any, file: str = "mcp.json") -> dict[str, Table | Skipped]:
    results: dict[str, Table | Skipped] = {}
    for entry in entries(text if isinstance(text, str) else json.dumps(text), file):
        names = [one.name for one in results.values() if isinstance(one, Table)]
        results[entry.name] = convert(entry, names)
    return results


def _server(result: Table | Skipped) -> ServerConfig:
    assert isinstance(result, Table)
    server = parse(result.text, "import").servers[0]
    assert isinstance(server, ServerConfig)
    return server


def test_a_command_and_its_args_become_one_command() -> None:
    server = _server(_convert(CLAUDE_DESKTOP)["filesystem"])
    assert server.command == ("npx", "-y", "@modelcontextprotocol/server-filesystem", "/srv/files")
    assert server.enabled


def test_a_secret_becomes_the_name_of_its_variable() -> None:
    result = _convert(CLAUDE_DESKTOP)["github"]
    assert _server(result).api_key_env == "GITHUB_PERSONAL_ACCESS_TOKEN"
    assert isinstance(result, Table)
    assert "GITHUB_PERSONAL_ACCESS_TOKEN in the environment of `treadle serve`" in result.text


def test_projects_of_a_user_file_are_read_and_told_where_they_stood() -> None:
    results = _convert(CLAUDE_CODE_USER, ".claude.json")
    assert set(results) == {"time", "sentry", "db"}
    assert results["db"].source == "projects./home/me/app.mcpServers.db"
    assert _server(results["time"]).command == ("uvx", "mcp-server-time==1.0")


def test_a_server_that_is_reached_over_http_is_skipped_with_the_reason() -> None:
    assert _convert(CLAUDE_CODE_USER)["sentry"] == Skipped(
        "sentry", "projects./home/me/app.mcpServers.sentry", "it is reached over http, Treadle runs stdio servers"
    )
    assert _convert(CODEX, "config.toml")["remote"] == Skipped(
        "remote", "mcp_servers.remote", "it is reached over http, Treadle runs stdio servers"
    )


def test_a_secret_in_a_command_is_withheld_and_the_server_waits_for_it() -> None:
    server = _server(_convert(CLAUDE_CODE_USER)["db"])
    assert server.command == ("db-mcp", "--dsn", "REPLACE-ME")
    assert not server.enabled


def test_references_to_variables_are_resolved_or_told() -> None:
    result = _convert(CLAUDE_CODE_PROJECT)["api"]
    server = _server(result)
    assert server.env == {"REGION": "eu-west-1"}
    assert server.env_from == ("API_KEY", "SECRET")
    assert not server.enabled
    assert isinstance(result, Table)
    assert "'${PROJECT_ROOT}' in its command refers to a variable" in result.text


def test_a_name_is_made_legal_and_a_taken_one_is_numbered() -> None:
    assert _server(_convert(CURSOR)["My Server (beta)"]).name == "my_server_beta"
    results = _convert(
        {"mcpServers": {"a-b": {"command": "x"}, "a b": {"command": "y"}, "class": {"command": "z"}}}
    )
    assert [_server(result).name for result in results.values()] == ["a_b", "a_b_2", "class_server"]


def _one(table: dict[str, Any], name: str = "one") -> Table:
    (entry,) = entries(json.dumps({"mcpServers": {name: table}}), "mcp.json")
    result = convert(entry, ["taken"], {"HOME": "/home/me", "PATH": "/bin"})
    assert isinstance(result, Table)
    return result


_LETTERS = "may hold only lower-case letters, digits and underscores"
_AS_IT_STANDS = "in its command is run as it stands, and"


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("class", "it was called 'class'; the name is a keyword of Python, for which modules are generated"),
        ("A b", "it was called 'A b'; the name " + _LETTERS),
        ("taken", "it was called 'taken'; another server is called taken"),
        ("Taken", f"it was called 'Taken'; the name {_LETTERS}; another server is called taken"),
    ],
)
def test_a_note_says_why_a_server_has_another_name(name: str, note: str) -> None:
    assert _one({"command": "x"}, name).notes == [note]
    assert _one({"command": "x"}).notes == []


@pytest.mark.parametrize(
    ("table", "note"),
    [
        ({"command": "~/bin/s"}, f"'~/bin/s' {_AS_IT_STANDS} ~ is only expanded by a shell"),
        ({"command": "s", "args": ["-r", "$A/x"]}, f"'$A/x' {_AS_IT_STANDS} $A is only expanded by a shell"),
        ({"command": "npx -y foo"}, "its command is one word with blanks in it: split it"),
    ],
)
def test_a_command_that_was_written_for_a_shell_is_told_and_waits(table: dict[str, Any], note: str) -> None:
    result = _one(table)
    assert result.notes == [f"{note}; until then the server is disabled"]
    assert not _server(result).enabled


@pytest.mark.parametrize("command", [["sh", "-c", "exec s $HOME"], ["/opt/My Programs/s"], ["s", "a$", "x~"]])
def test_a_command_that_needs_no_shell_or_has_one_is_copied(command: list[str]) -> None:
    result = _one({"command": command[0], "args": command[1:]})
    assert (_server(result).command, _server(result).enabled, result.notes) == (tuple(command), True, [])


def test_an_ordinary_variable_is_no_secret_and_has_the_value_of_this_shell() -> None:
    env = {"HOME": "${env:HOME}", "PATH": "/opt/bin:${PATH}", "DATA": "${env:HOME}/data", "X": "${env:X}"}
    result = _one({"command": "x", "env": env})
    server = _server(result)
    assert server.env == {"PATH": "/opt/bin:/bin", "DATA": "/home/me/data"}
    assert (result.secrets, server.api_key_env) == (["X"], "X")
    told = "was made of variables, which have the values of this shell here"
    assert result.notes == ["HOME was left out: every server is handed it", f"PATH {told}", f"DATA {told}"]


def test_a_key_that_has_no_like_here_is_named() -> None:
    table = {"command": "x", "autoApprove": ["a"], "timeout": 60, "alwaysAllow": [], "type": "stdio", "cwd": 3}
    result = _one({**table, "startup_timeout_sec": "soon", "enabled_tools": "all"})
    assert result.notes == [
        "left out, as there is nothing like it here: autoApprove, cwd, enabled_tools, startup_timeout_sec, timeout"
    ]
    many = _one({"command": "x", **{f"k{n:02}": 1 for n in range(20)}})
    assert many.notes[0].endswith("k11 and 8 more")


def test_a_disabled_server_stays_disabled_and_plain_values_are_copied() -> None:
    server = _server(_convert(CURSOR)["My Server (beta)"])
    assert not server.enabled
    assert server.env == {"LOG_LEVEL": "debug", "PORT": "8080"}
    assert server.command[-1] == "--api-key=REPLACE-ME"


def test_comments_and_trailing_commas_are_read_and_an_input_is_a_secret() -> None:
    results = _convert(VS_CODE)
    server = _server(results["perplexity"])
    assert server.api_key_env == "PERPLEXITY_API_KEY"
    assert server.env == {"URL": "https://a//b"}
    assert isinstance(results["perplexity"], Table)
    assert (
        "PERPLEXITY_API_KEY was asked for when the server started: Perplexity API Key"
        in results["perplexity"].text
    )
    assert isinstance(results["fetch"], Skipped)


def test_tables_of_codex_keep_their_times_and_tools() -> None:
    server = _server(_convert(CODEX, "config.toml")["docs"])
    assert server.env_from == ("DOCS_TOKEN", "DOCS_ORG", "AUTH_TOKEN")
    assert (server.handshake_timeout_ms, server.call_timeout_ms) == (20_000, 1500)
    assert server.tools_allow == ("search", "read*")


@pytest.mark.parametrize(
    ("source", "file"),
    [
        (CLAUDE_DESKTOP, "c.json"), (CLAUDE_CODE_USER, "c.json"), (CLAUDE_CODE_PROJECT, "c.json"),
        (CURSOR, "c.json"), (VS_CODE, "c.json"), (CODEX, "c.toml"),
    ],
)  # fmt: skip
def test_no_secret_is_copied(source: Any, file: str) -> None:
    for result in _convert(source, file).values():
        told = f"{result}"
        assert not any(secret in told for secret in (TOKEN, KEY, "hunter2"))


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("GITHUB_TOKEN", "x", True), ("API_KEY", "x", True), ("MY_SECRET", "x", True), ("DB_PASSWORD", "x", True),
        ("X", TOKEN, True), ("X", KEY, True), ("DATABASE_URL", "postgres://u:p@h/d", True),
        ("X", "0a1b2c3d4e5f60718293a4b5c6d7e8f9", True),
        ("KEYBOARD", "us", False), ("MONKEY", "x", False), ("LOG_LEVEL", "debug", False),
        ("URL", "https://example.com/a/b?c=d", False), ("ROOT", "/home/me/some/long/path/to/a/folder1", False),
        ("X", "a-long-word-without-any-digit-in-it-at-all", False),
    ],
)  # fmt: skip
def test_what_looks_like_a_secret(name: str, value: str, secret: bool) -> None:
    assert looks_secret(name, value) is secret


@pytest.mark.parametrize(
    ("text", "file", "message"),
    [
        ("{", "a.json", "it is not JSON"),
        ("[1]", "a.json", "it holds no JSON object"),
        ("{}", "a.json", "it has none of mcpServers"),
        ("a = ", "a.toml", "it is not TOML"),
        ("[" * 100_000, "a.json", "it is not JSON"),
    ],
)
def test_a_file_of_another_kind_is_refused_with_the_reason(text: str, file: str, message: str) -> None:
    with pytest.raises(NotUnderstood, match=message):
        entries(text, file)


_PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
_JSON = _PLAIN | st.lists(_PLAIN, max_size=3) | st.dictionaries(st.text(max_size=6), _PLAIN, max_size=3)
_KEYS = st.sampled_from(["command", "args", "env", "url", "type", "cwd", "envFile", "enabled_tools", "env_vars"])


@given(st.dictionaries(st.text(max_size=12), st.dictionaries(_KEYS, _JSON), max_size=2))
def test_whatever_an_entry_holds_its_table_is_one_that_treadle_reads(servers: dict[str, Any]) -> None:
    for result in _convert({"mcpServers": servers}).values():
        if isinstance(result, Table):
            assert _server(result).name == result.name


# --- the verb ----------------------------------------------------------------------------------------


def test_the_tables_are_printed_and_notes_go_to_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(VS_CODE)
    assert app.run(["import", str(file)]) == 0
    out, err = capsys.readouterr()
    assert [server.name for server in parse(out, "out").servers] == ["perplexity"]
    assert "skipped fetch: it is reached over sse, Treadle runs stdio servers" in err


@pytest.mark.parametrize("text", ['{"mcpServers": {}}', '{"projects": {"/a": {}}}', '{"servers": "elsewhere"}'])
def test_a_file_without_servers_is_told_and_nothing_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(text)
    assert app.run(["import", str(file)]) == 0
    assert capsys.readouterr() == ("", f"no MCP servers in {file}\n")


def test_an_error_leaves_standard_output_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["import", str(tmp_path / "none")]) == 2
    assert capsys.readouterr() == ("", f"treadle: {tmp_path}/none: No such file or directory\n")


def test_a_directory_that_is_made_for_the_file_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "mcp.json", tmp_path / "a" / "b" / "treadle.toml"
    file.write_text(json.dumps(CLAUDE_DESKTOP))
    assert app.run(["import", str(file), "--out", str(out)]) == 0
    assert f"made the directory {tmp_path}/a/b\n" in capsys.readouterr().err
    assert app.run(["import", str(file), "--out", str(out)]) == 0
    assert "made the directory" not in capsys.readouterr().err


def test_out_appends_and_a_second_import_finds_nothing_new(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "mcp.json", tmp_path / "sub" / "treadle.toml"
    file.write_text(json.dumps(CLAUDE_DESKTOP))
    for _ in range(2):
        assert app.run(["import", str(file), "--out", str(out)]) == 0
    assert [server.name for server in parse(out.read_text(), "t").servers] == ["filesystem", "github"]
    assert out.stat().st_mode & 0o777 == 0o600
    assert "[mcp.github] runs the same command already" in capsys.readouterr().err
    assert [path.name for path in out.parent.iterdir()] == ["treadle.toml"]


def test_out_keeps_what_was_there_and_numbers_a_taken_name(tmp_path: Path) -> None:
    file, out = tmp_path / "mcp.json", tmp_path / "treadle.toml"
    file.write_text(json.dumps(CLAUDE_DESKTOP))
    before = "# mine\n[mcp.github]\ncommand = ['other']"
    out.write_text(before)
    assert app.run(["import", str(file), "--out", str(out), "-q"]) == 0
    assert out.read_text().startswith(before + "\n\n")
    assert [server.name for server in parse(out.read_text(), "t").servers] == ["github", "filesystem", "github_2"]


def test_a_dry_run_and_a_file_with_errors_leave_the_file_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "mcp.json", tmp_path / "treadle.toml"
    file.write_text(json.dumps(CLAUDE_DESKTOP))
    assert app.run(["import", str(file), "--out", str(out), "--dry-run"]) == 0
    assert not out.exists()
    assert "[mcp.filesystem]" in capsys.readouterr().out
    out.write_text("[broker\n")
    assert app.run(["import", str(file), "--out", str(out)]) == 2
    assert out.read_text() == "[broker\n"
    assert "nothing was written" in capsys.readouterr().err


def test_a_file_that_cannot_be_read_is_told_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, out = tmp_path / "mcp.json", tmp_path / "treadle.toml"
    good.write_text(json.dumps(CLAUDE_DESKTOP))
    assert app.run(["import", str(tmp_path / "none.json"), str(good), "--out", str(out)]) == 2
    assert not out.exists()
    assert f"{tmp_path}/none.json: No such file or directory" in capsys.readouterr().err
