"""What `treadle doctor` says of commands, files and machines, each with its fix."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from treadle.cli import app, doctor
from treadle.cli.diagnosis import Finding, launcher


def _told(*command: str) -> list[str]:
    return [f"{finding.what} | {finding.fix}" for finding in launcher("[mcp.x]", command)]


@pytest.mark.parametrize(
    ("command", "stays", "package"),
    [
        (["npx", "-y", "@scope/server", "/srv"], "npx", "@scope/server"),
        (["/usr/bin/npx", "server@latest"], "npx", "server@latest"),
        (["npm", "exec", "server"], "npm", "server"),
        (["pnpm", "dlx", "server"], "pnpm", "server"),
        (["bunx", "server"], "bunx", "server"),
        (["uvx", "server"], "uvx", "server"),
        (["uvx", "--python", "3.12", "--from", "package", "server"], "uvx", "package"),
        (["uv", "tool", "run", "server"], "uv", "server"),
        (["pipx", "run", "server"], "pipx", "server"),
    ],
)
def test_a_package_runner_hides_the_server_and_its_package_wants_a_version(
    command: list[str], stays: str, package: str
) -> None:
    first, second = _told(*command)
    assert first.startswith(f"{stays} stays between Treadle and the server")
    assert second.startswith(f"{package} is not pinned")


@pytest.mark.parametrize(
    "command",
    [
        ["npx", "-y", "@scope/server@1.2.3"],
        ["npx", "--package=server@1.2.3", "server"],
        ["uvx", "server==1.0"],
        ["uvx", "server@1.0"],
        ["uvx", "--from", "git+https://example.com/x@abc", "server"],
        ["npx", "./local"],
    ],
)
def test_a_pinned_package_is_told_only_that_its_runner_stays(command: list[str]) -> None:
    assert len(_told(*command)) == 1


def test_the_fix_names_the_package_to_install() -> None:
    assert _told("npx", "-y", "@scope/server@2")[0].endswith(
        "| npm install -g @scope/server, and name the installed executable in command"
    )
    assert _told("uvx", "server")[1].endswith("| write server==1.2.3, with the version that you have tested")


def test_a_shell_is_told_to_exec_unless_it_does() -> None:
    (told,) = _told("bash", "-lc", "FOO=1 server")
    assert 'begin the script with exec, as in ["bash", "-c", "exec ..."]' in told
    assert _told("sh", "-c", "exec server") == []
    assert _told("sh", "script.sh") == []


def test_a_container_is_told_what_it_lacks() -> None:
    told = "\n".join(_told("docker", "run", "-t", "image"))
    assert all(word in told for word in ("without -i", "without --rm", "--init", 'remove "-t"'))
    assert _told("docker", "run", "-i", "--rm", "--init", "image") == []
    assert _told("podman", "run", "--interactive", "--rm", "--init", "image") == []


def test_an_ordinary_command_is_told_nothing() -> None:
    assert _told("python", "-m", "server") == _told("uv", "run", "server") == _told("npm", "start") == []


# --- the machine --------------------------------------------------------------------------------------


def _levels(folder: Path, text: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[Finding]]:
    config = folder / "treadle.toml"
    config.write_text(text)
    code = app.run(["doctor", "--config", str(config), "--socket", str(folder / "none.sock"), "--json"])
    return code, [Finding(**{"fix": "", **body}) for body in json.loads(capsys.readouterr().out)]


def _at(findings: list[Finding], where: str) -> list[tuple[str, str]]:
    return [(finding.level, finding.what) for finding in findings if where in finding.where]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def test_a_sound_configuration_has_no_error_and_a_missing_daemon_is_a_warning(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, findings = _levels(folder, '[mcp.demo]\ncommand = ["sh", "server"]\n', capsys)
    assert code == 0
    assert _at(findings, "none.sock") == [("warning", "there is no such socket")]
    assert [level for level, _ in _at(findings, "[mcp.demo]")] == ["ok"]
    assert all(finding.fix for finding in findings if finding.level != "ok")


def test_a_program_that_is_missing_and_a_variable_that_is_unset_are_errors(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TREADLE_TEST_UNSET", raising=False)
    text = '[mcp.demo]\ncommand = ["treadle-no-such-program"]\napi_key_env = "TREADLE_TEST_UNSET"\n'
    code, findings = _levels(folder, text, capsys)
    assert code == 2
    told = _at(findings, "[mcp.demo]")
    assert [level for level, _ in told] == ["error", "error"]
    assert "TREADLE_TEST_UNSET (api_key_env) is not set" in told[0][1]
    assert "treadle-no-such-program was not found on PATH" in told[1][1]


def test_every_problem_of_the_file_is_an_error_with_its_fix(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, findings = _levels(folder, '[mcp.demo]\ncommand = ["sh"]\nlazzy = true\n', capsys)
    assert code == 2
    assert [finding.fix for finding in findings if ":3" in finding.where] == ["write lazy"]


def test_a_file_that_others_may_write_is_an_error_and_a_secret_in_env_a_warning(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "treadle.toml").touch()
    (folder / "treadle.toml").chmod(0o666)
    code, findings = _levels(folder, '[mcp.demo]\ncommand = ["sh"]\nenv = { API_KEY = "x" }\n', capsys)
    assert code == 2
    assert ("error", "others may write it (mode 0666): they could run commands as you") in _at(findings, "toml")
    assert ("warning", "env.API_KEY looks like a secret, and env is not treated as one") in _at(findings, "demo")


def test_a_secret_file_that_others_may_read_is_a_warning(folder: Path) -> None:
    file = folder / "token"
    file.write_text("x")
    file.chmod(0o644)
    assert [finding.fix for finding in doctor.secret_file("w", str(file))] == [f"chmod 600 {file}"]
    file.chmod(0o600)
    assert list(doctor.secret_file("w", str(file))) == []


def test_systemd_is_asked_for_the_service_and_for_lingering(folder: Path) -> None:
    def told() -> list[str]:
        return [finding.what for finding in doctor.systemd(os.getuid(), str(folder))]

    assert told() == ["not here; the daemon runs as you start it"]
    (folder / "run/systemd/system").mkdir(parents=True)
    assert told() == ["no service is installed"]
    unit = folder / ".config/systemd/user/treadle.service"
    unit.parent.mkdir(parents=True)
    unit.touch()
    assert told() == ["the user service is installed", "the user service ends with your last session"]
    unit = folder / "etc/systemd/system/treadle.service"
    unit.parent.mkdir(parents=True)
    unit.touch()
    assert told() == ["the system service is installed"]
