"""What `treadle doctor` says of commands, files and machines, each with its fix."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from treadle.audit import open_audit
from treadle.cli import app, doctor
from treadle.cli.diagnosis import Finding, for_a_shell, launcher
from treadle.errors import ConfigError
from treadle.keeping import secure_state_dir
from treadle.reload import load
from treadle.socketfile import SocketRefused, claim


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


def test_a_word_that_only_a_shell_would_expand_is_a_warning() -> None:
    def told(*command: str) -> list[str]:
        return [finding.what for finding in for_a_shell("[mcp.x]", command)]

    said = "in its command is handed over as it stands: only a shell would expand it"
    assert told("server", "--root", "~/data", "$HOME/a") == [f"~ {said}", f"$HOME {said}"]
    assert told("server", "a$", "x~", "^b$") == []
    assert told("sh", "-c", 'exec server "$HOME"') == []


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


@pytest.mark.parametrize(
    ("table", "what", "fix"),
    [
        ('command = ["~/bin/x"]', "command ~/bin/x does not exist", "~ is only expanded by a shell"),
        ('command = ["npx -y foo"]', "command npx -y foo was not found on PATH", 'command = ["npx", "-y", "foo"]'),
        ('command = ["treadle-none"]', "command treadle-none was not found on PATH", "install it, give its full"),
        ('command = ["sh"]\ncwd = "/no/x"', "working directory /no/x does not exist", "make it, or correct cwd"),
        ('command = ["sh"]\ncwd = "/dev/null"', "working directory /dev/null is not a directory", "correct cwd"),
        ('command = ["/etc/passwd"]', "command /etc/passwd is not executable", "chmod +x it"),
        ('command = ["/etc"]', "command /etc is a directory", "name the program in it"),
    ],
)
def test_what_keeps_a_program_from_running_is_told_with_its_fix(
    folder: Path, capsys: pytest.CaptureFixture[str], table: str, what: str, fix: str
) -> None:
    code, findings = _levels(folder, f"[mcp.demo]\n{table}\n", capsys)
    (told,) = [finding for finding in findings if finding.where == "[mcp.demo]"]
    assert (code, told.level, told.what) == (2, "error", what)
    assert fix in told.fix


def test_every_problem_of_the_file_is_an_error_with_its_fix(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, findings = _levels(folder, '[mcp.demo]\ncommand = ["sh"]\nlazzy = true\n', capsys)
    assert code == 2
    assert [finding.fix for finding in findings if ":3" in finding.where] == ["write lazy"]


@pytest.mark.parametrize(
    ("kind", "what", "fix"),
    [
        ("open", "other accounts can write to it", "chmod go-w {path}"),
        ("file", "it, or a directory above it, is a file", "name a directory"),
        ("below a file", "it, or a directory above it, is a file", "name a directory"),
        ("link to nothing", "it is a symbolic link to nothing", "name a directory"),
    ],
)
def test_a_state_directory_that_serve_refuses_is_an_error_with_the_same_words(
    folder: Path, capsys: pytest.CaptureFixture[str], kind: str, what: str, fix: str
) -> None:
    path = folder / "kept"
    if kind == "open":
        path.mkdir()
        path.chmod(0o777)
    elif kind == "link to nothing":
        path.symlink_to(folder / "nothing")
    else:
        path.touch()
        path = path / "below" if kind == "below a file" else path
    code, findings = _levels(folder, f'[broker]\nstate_dir = "{path}"\n', capsys)
    told = [(one.level, one.what, one.fix) for one in findings if one.where == "[broker] state_dir"]
    assert told == [("error", f"the state directory {path} cannot be used: {what}", fix.format(path=path))]
    assert code == 2
    with pytest.raises(ConfigError, match="cannot be used"):
        secure_state_dir(path, "f")


def test_a_state_directory_that_is_to_be_made_is_fine_and_is_not_made(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "a" / "b"
    _, findings = _levels(folder, f'[broker]\nstate_dir = "{path}"\n', capsys)
    assert _at(findings, "[broker] state_dir") == [("ok", f"{path} can be written")]
    assert not path.parent.exists()


@pytest.mark.parametrize(
    ("flags", "what", "fix"),
    [
        (os.ST_RDONLY, "{path}/state cannot be written: its file system is read-only", "name another directory"),
        (0, "{path} cannot be written", "chmod u+rwx {path}"),
    ],
)
def test_a_state_directory_that_cannot_be_written_is_told_why(
    folder: Path, monkeypatch: pytest.MonkeyPatch, flags: int, what: str, fix: str
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=flags))
    (told,) = doctor.state_directory(str(folder / "state"), "t.toml")
    assert (told.level, told.what, told.fix) == ("error", what.format(path=folder), fix.format(path=folder))


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("none/a.log", "cannot be written: No such file or directory"),
        ("treadle.toml/a.log", "cannot be written: Not a directory"),
        ("state", "cannot be written: Is a directory"),
        ("link", "cannot be written: Too many levels of symbolic links"),
    ],
)
def test_an_audit_log_that_serve_cannot_open_is_an_error_with_the_same_words(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, what: str
) -> None:
    (folder / "state").mkdir()
    (folder / "link").symlink_to(folder / "elsewhere")
    path = folder / name
    _, findings = _levels(folder, f'[broker]\naudit_log = "{path}"\n', capsys)
    assert _at(findings, "[broker] audit_log") == [("error", f"{path} {what}")]
    with pytest.raises(ConfigError, match=what):
        open_audit(load(str(folder / "treadle.toml")))


def test_an_audit_log_that_can_be_opened_is_fine_and_is_not_made(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "a.log"
    _, findings = _levels(folder, f'[broker]\naudit_log = "{path}"\n', capsys)
    assert _at(findings, "[broker] audit_log") == [("ok", f"{path} can be written")]
    assert not path.exists()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("treadle.toml", "a file is there, not a socket"),
        ("open/t.sock", "others may write to the directory"),
        ("treadle.toml/t.sock", "is not a directory"),
        (f"{'x' * 120}.sock", "a Unix socket takes 107"),
    ],
)
def test_a_socket_that_serve_cannot_have_is_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, reason: str
) -> None:
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    config = folder / "treadle.toml"
    config.touch()
    assert app.run(["doctor", "--config", str(config), "--socket", str(folder / name), "--json"]) == 2
    findings = json.loads(capsys.readouterr().out)
    (told,) = [one for one in findings if one["where"] == f"socket {folder / name}"]
    assert told["level"] == "error"
    assert reason in told["what"]
    with pytest.raises(SocketRefused, match=reason):
        claim(str(folder / name))


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
