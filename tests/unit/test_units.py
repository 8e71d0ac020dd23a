"""The systemd units: their texts, what systemd says of them, and the verb that writes them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from treadle import cgroup, units
from treadle.cli import install_service

SYSTEMD = Path(__file__).resolve().parents[2] / "systemd"
MOST_EXPOSED = 25
"""Tenths, as ``systemd-analyze security --threshold`` counts."""

needs_systemd_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def test_the_files_of_the_source_are_the_texts_of_the_verb() -> None:
    there = {str(path.relative_to(SYSTEMD)): path.read_text() for path in SYSTEMD.rglob("*") if path.is_file()}
    assert there == units.sources()


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, timeout=60, check=False)


def written(folder: Path, files: tuple[units.Unit, ...]) -> list[str]:
    """The units of ``files`` in ``folder``, ready to be looked at by systemd-analyze."""
    paths = [folder / Path(unit.path).name for unit in files if Path(unit.path).parent.name in ("system", "user")]
    for path, unit in zip(paths, files, strict=False):
        path.write_text(unit.text)
    return [str(path) for path in paths]


@needs_systemd_analyze
def test_systemd_has_nothing_to_say_about_the_system_units(tmp_path: Path) -> None:
    verified = analyze("verify", "--man=no", *written(tmp_path, units.system_units("/bin/true")))
    assert (verified.returncode, verified.stderr) == (0, "")


@needs_systemd_analyze
def test_systemd_has_nothing_to_say_about_the_user_units(tmp_path: Path) -> None:
    verified = analyze("verify", "--man=no", *written(tmp_path, units.user_units("/bin/true")))
    assert (verified.returncode, verified.stderr) == (0, "")


@needs_systemd_analyze
def test_a_unit_that_systemd_would_complain_about_is_seen(tmp_path: Path) -> None:
    service, socket, *_ = units.system_units("/bin/true")
    spoilt = units.Unit(service.path, service.text.replace("KillMode=mixed", "KillMood=mixed"))
    assert "KillMood" in analyze("verify", "--man=no", *written(tmp_path, (spoilt, socket))).stderr


@needs_systemd_analyze
def test_the_system_service_is_hardened(tmp_path: Path) -> None:
    service, *_ = written(tmp_path, units.system_units("/bin/true"))
    judged = analyze("security", "--offline=yes", "--no-pager", f"--threshold={MOST_EXPOSED}", service)
    assert judged.returncode == 0, judged.stdout


def test_every_setting_that_is_left_open_says_why() -> None:
    _, _, left_open = units.system_units()[0].text.partition("# --- What is left open")
    lines = left_open.partition("[Install]")[0].strip().splitlines()[1:]
    settings = [index for index, line in enumerate(lines) if line and not line.startswith("#")]
    assert len(settings) >= 5
    assert all(lines[index - 1].startswith("# ") for index in settings)


def test_a_stop_has_more_time_than_the_default_budgets_need() -> None:
    from treadle import budgets
    from treadle.config import parse

    config = parse(b'[mcp.demo]\ncommand = ["true"]\n', "treadle.toml")
    for service in (units.system_units()[0], units.user_units()[0]):
        keys = dict(line.split("=", 1) for line in service.text.splitlines() if "=" in line and line[0] != "#")
        assert int(keys["TimeoutStopSec"]) > budgets.stop_s(config)
        assert int(keys["TimeoutStartSec"]) > budgets.start_s(config)


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/opt/treadle/bin/treadle", "/opt/treadle/bin/treadle"),
        ("/opt/my tools/treadle", '"/opt/my tools/treadle"'),
        ("/opt/100%/treadle", "/opt/100%%/treadle"),
        ("/opt/$HOME/treadle", '"/opt/$$HOME/treadle"'),
        ('/opt/"x"\\/treadle', '"/opt/\\"x\\"\\\\/treadle"'),
    ],
)
def test_a_path_is_one_word_of_the_command_line(path: str, word: str) -> None:
    assert f"ExecStart={word} serve" in units.system_units(path)[0].text


def test_a_path_that_no_unit_can_name_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot name"):
        units.system_units("/opt/line\nend/treadle")


# --- the verb ----------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's configuration directory, and no service manager to be asked."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(install_service, "executable", lambda: "/opt/treadle/bin/treadle")
    return tmp_path


def install(*words: str) -> Result:
    return CliRunner().invoke(install_service.command, ["--user", *words])


def test_print_shows_every_file_and_writes_none(home: Path) -> None:
    shown = install("--print")
    assert shown.exit_code == 0
    assert str(home / "systemd/user/treadle.service") in shown.output
    assert "ExecStart=/opt/treadle/bin/treadle serve" in shown.output
    assert list(home.iterdir()) == []


def test_the_files_are_written_and_nothing_is_enabled(home: Path) -> None:
    done = install()
    assert done.exit_code == 0
    assert sorted(path.name for path in (home / "systemd/user").iterdir()) == ["treadle.service", "treadle.socket"]
    assert "nothing was enabled" in done.output
    assert "systemctl --user enable --now treadle.socket" in done.output


def test_again_it_changes_nothing(home: Path) -> None:
    install()
    before = (home / "systemd/user/treadle.service").stat().st_mtime_ns
    assert install().output.count("unchanged") == 2
    assert (home / "systemd/user/treadle.service").stat().st_mtime_ns == before


def test_a_text_of_an_earlier_version_is_updated(home: Path) -> None:
    install()
    unit = home / "systemd/user/treadle.service"
    unit.write_text(f"{units.MARK}, an earlier one\n")
    assert f"update     {unit}" in install().output
    assert "ExecStart=" in unit.read_text()


@pytest.mark.parametrize("words", [(), ("--remove",)])
def test_a_file_of_somebody_else_is_never_touched(home: Path, words: tuple[str, ...]) -> None:
    unit = home / "systemd/user/treadle.socket"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Socket]\n")
    done = install(*words)
    assert done.exit_code == 6
    assert str(unit) in done.output
    assert [path.name for path in unit.parent.iterdir()] == ["treadle.socket"]
    assert unit.read_text() == "[Socket]\n"


def test_remove_takes_away_what_was_written(home: Path) -> None:
    install()
    done = install("--remove")
    assert done.exit_code == 0
    assert list((home / "systemd/user").iterdir()) == []


def test_remove_where_nothing_is_says_so(home: Path) -> None:
    assert install("--remove").output.count("absent") == 2


def test_a_failing_step_of_enable_is_told_in_one_line(home: Path) -> None:
    done = install("--enable")
    assert done.exit_code == 6
    assert "Traceback" not in done.output
    assert "systemctl" in done.output


def test_options_that_contradict_each_other_are_a_usage_error(home: Path) -> None:
    assert install("--remove", "--enable").exit_code == 2


def test_an_installation_that_the_service_could_not_see_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install_service, "executable", lambda: "/home/me/venv/bin/treadle")
    install_service.warn_of_hidden_places()
    assert "/home/me/venv/bin/treadle is hidden from the service" in capsys.readouterr().err


# --- what the user's unit says of its cgroup ---------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({"TREADLE_DELEGATED": "yes", "SYSTEMD_EXEC_PID": "own"}, True),
        ({"TREADLE_DELEGATED": "yes", "SYSTEMD_EXEC_PID": "1"}, False),
        ({"TREADLE_DELEGATED": "yes"}, False),
        ({"SYSTEMD_EXEC_PID": "own"}, False),
    ],
)
def test_the_units_word_on_its_cgroup_counts_for_its_main_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], found: bool
) -> None:
    (tmp_path / "cgroup.procs").touch()
    monkeypatch.setattr(cgroup, "own_cgroup", lambda *_: tmp_path)
    for name in ("TREADLE_DELEGATED", "SYSTEMD_EXEC_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, str(os.getpid()) if value == "own" else value)
    assert cgroup.delegated() == (tmp_path if found else None)


def test_the_user_unit_says_it() -> None:
    service, _ = units.user_units()
    assert "Delegate=yes" in service.text
    assert "TREADLE_DELEGATED=" in service.text
