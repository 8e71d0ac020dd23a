"""What bad input is told, letter for letter: the messages are part of what a user gets."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from treadle.cli import app
from treadle.cli.codes import MEANINGS

VECTORS = Path(__file__).parents[1] / "vectors" / "check"


@pytest.mark.parametrize("name", sorted(path.stem for path in VECTORS.glob("*.toml")))
def test_check_tells_everything_that_is_wrong_with_a_file(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(VECTORS)
    assert app.run(["check", f"{name}.toml"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ((VECTORS / f"{name}.txt").read_text(), "")


def test_check_is_content_with_a_good_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "treadle.toml"
    file.write_text('[mcp.demo]\ncommand = ["x"]\n')
    assert app.run(["check", str(file)]) == 0
    assert capsys.readouterr() == (f"{file}: 1 server, nothing is wrong\n", "")


def test_check_warns_of_what_is_probably_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "treadle.toml"
    file.write_text('[mpc.demo]\ncommand = ["x"]\n')
    assert app.run(["check", str(file)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.endswith(f"\n{file}: 0 servers, see the warnings\n")
    assert f"warning: {file}: no server is configured" in out
    assert f"warning: {file}:1:2: [mpc]: another program's table, it is ignored" in out
    assert app.run(["check", "--json", str(file)]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["ok"], [warning["line"] for warning in body["warnings"]]) == (True, [0, 1])


def test_check_gives_the_problems_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "treadle.toml"
    file.write_text('[mcp.demo]\ncommand = ["x"]\nlazzy = true\n')
    assert app.run(["check", "--config", str(file), "--json"]) == 2
    body = json.loads(capsys.readouterr().out)
    assert (body["ok"], body["servers"]) == (False, ["demo"])
    assert body["problems"] == [
        {
            "file": str(file),
            "line": 3,
            "column": 1,
            "where": "[mcp.demo] lazzy",
            "what": "unknown key",
            "fix": "write lazy",
        }
    ]


def test_check_says_where_it_looked_when_there_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("TREADLE_CONFIG", raising=False)
    if os.path.exists("/etc/treadle/treadle.toml"):
        pytest.skip("this machine has a configuration")
    assert app.run(["check"]) == 2
    assert capsys.readouterr().out == (
        f"no configuration file; looked for {tmp_path}/treadle/treadle.toml, /etc/treadle/treadle.toml\n"
        "  fix: write one, or name one with --config FILE\n1 problem\n"
    )


def test_a_variable_that_names_no_file_is_an_error_and_no_other_file_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "treadle").mkdir()
    (tmp_path / "treadle" / "treadle.toml").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("TREADLE_CONFIG", "/no/such.toml")
    assert app.run(["check"]) == 2
    assert capsys.readouterr().out.startswith(
        "/no/such.toml: $TREADLE_CONFIG: there is no such file\n  fix: correct"
    )


def test_check_of_a_directory_asks_for_the_file_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["check", str(tmp_path)]) == 2
    assert capsys.readouterr().out == (
        f"{tmp_path}: cannot be read: Is a directory\n  fix: name the file in it\n{tmp_path}: 1 problem\n"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "Usage: treadle [OPTIONS] COMMAND"),
        ("lst", "No such command 'lst'. Did you mean 'list'?"),
        ("frobnicate", "No such command 'frobnicate'."),
        ("call", "Missing arguments 'SERVER TOOL'."),
        ("call demo", "Missing argument 'TOOL': which tool of demo?"),
        ("call demo add --timeot 5", "No such option '--timeot'."),
        ("call demo add --timeout soon", "'soon' is not a valid float range."),
        ("call demo add --output xml", "'xml' is not one of 'text', 'json', 'raw'."),
        ("list --schema", "--schema needs a SERVER"),
        ("restart", "name the servers, or give --all"),
        ("stop demo --all", "give names of servers or --all, not both"),
        ("list --socket=", "Invalid value for '--socket': it is empty"),
        ("--socket= list", "Invalid value for '--socket': it is empty"),
        ("serve --config=", "Invalid value for '--config': it is empty"),
        ("help nope", "No such command 'nope'."),
        ("check a --config b", "give FILE or --config FILE, not both"),
        ("completion tcsh", "'tcsh' is not one of 'bash', 'zsh', 'fish'."),
        ("tools", "Missing argument 'SERVER'."),
        ("import", "Missing argument 'FILE...'."),
    ],
)
def test_a_wrong_command_line_is_told_what_is_wrong_with_it(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


@pytest.mark.parametrize("verb", list(app.VERBS))
def test_every_verb_has_a_short_help_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"\n  treadle {verb}" in text.replace('eval "$(', "")
    assert len(text.splitlines()) <= 45


@pytest.mark.parametrize(("line", "same"), [("help", "--help"), ("help call", "call --help")])
def test_help_is_a_verb_too(line: str, same: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(line.split()) == 0
    told = capsys.readouterr().out
    assert app.run(same.split()) == 0
    assert capsys.readouterr().out == told


def test_the_help_names_every_verb_and_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {verb} " in text for verb in app.VERBS)
    told = " ".join(text.split())
    assert all(f" {code} {meaning} " in f"{told} " for code, meaning in MEANINGS.items())
