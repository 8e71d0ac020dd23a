"""The completion scripts, sourced in the shells that are here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemon import DEMO, Daemon, toml

SHELLS = [shell for shell in ("bash", "zsh", "fish") if shutil.which(shell)]

_BASH = """
eval "$(treadle completion bash)"
complete -p treadle
COMP_WORDS=({words}) COMP_CWORD={at} COMP_LINE= COMP_POINT=0
_treadle_completion treadle
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
_FISH = """
treadle completion fish | source
complete -C 'treadle {line}'
"""
_ZSH = """
autoload -Uz compinit; compinit -u -d $HOME/.zcompdump
eval "$(treadle completion zsh)"
echo $_comps[treadle]
words=({words}) CURRENT={at}
_describe() {{ for one in ${{(P)@[-1]}} ${{(P)@[-2]}}; do print -r -- ${{one%%:*}}; done }}
compadd() {{ shift $(( $# - 1 )); print -r -- ${{(P)1}} $1; }}
_treadle_completion
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("completion")
    with Daemon(folder, toml({"demo": {"command": list(DEMO)}, "other": {"command": list(DEMO)}})) as running:
        running.wait_ready()
        program = folder / "bin"
        program.mkdir()
        (program / "treadle").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m treadle "$@"\n')
        (program / "treadle").chmod(0o755)
        running.environ["PATH"] = f"{program}:{running.environ['PATH']}"
        yield running


def _completed(daemon: Daemon, shell: str, line: str) -> str:
    """What ``shell`` offers at the end of ``treadle LINE``."""
    words = ["treadle", *line.split(" ")]
    quoted = " ".join(f"'{word}'" for word in words)
    text = {
        "bash": _BASH.format(words=quoted, at=len(words) - 1),
        "zsh": _ZSH.format(words=quoted, at=len(words)),
        "fish": _FISH.format(line=line),
    }[shell]
    quiet = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run(
        [shell, *quiet], input=text, env=daemon.environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("line", "offered", "not_offered"),
    [
        ("sta", ["status", "start"], ["call"]),
        ("call ", ["demo", "other"], []),
        ("call demo e", ["echo"], ["add"]),
        ("status d", ["demo"], ["other"]),
        ("call demo add --ti", ["--timeout"], ["--json"]),
    ],
)
def test_a_shell_offers_verbs_servers_tools_and_options(
    daemon: Daemon, shell: str, line: str, offered: list[str], not_offered: list[str]
) -> None:
    shown = _completed(daemon, shell, line).split()
    assert [word for word in offered if word not in shown] == []
    assert [word for word in not_offered if word in shown] == []


def test_the_arguments_of_a_tool_are_offered(daemon: Daemon) -> None:
    assert {"plain,a=", "plain,b="} <= set(_asked(daemon, "treadle call demo add ").split())


def test_without_a_daemon_nothing_is_offered_and_nothing_complained(daemon: Daemon, tmp_path: Path) -> None:
    assert _asked(daemon, "treadle call ", TREADLE_SOCKET=str(tmp_path / "none")).strip() == ""


def _asked(daemon: Daemon, line: str, **environ: str) -> str:
    """What the program itself answers to the question of a completion script."""
    words = line.split(" ")
    asked = {"_TREADLE_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        ["treadle"], env={**daemon.environ, **asked, **environ}, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_names_the_program_and_its_variable(daemon: Daemon, shell: str) -> None:
    script = daemon.cli("completion", shell).stdout
    assert "_TREADLE_COMPLETE" in script
    assert "treadle" in script
