"""What is known to go wrong with a server's command (pure). `treadle doctor` shows it, each with its fix."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from treadle.config.wording import unexpanded

Level = Literal["ok", "warning", "error"]

_NODE: Final = {"npx": (), "bunx": (), "npm": ("exec", "x"), "pnpm": ("dlx", "exec"), "yarn": ("dlx",)}
_PYTHON: Final = {"uvx": (), "uv": ("tool",), "pipx": ("run",)}
SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ash", "ksh"})
"""Programs that expand the words of a command themselves."""
_CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl"})

# Options of the launchers that take the next word as their value.
_TAKES_VALUE: Final = frozenset(
    {
        "-c",
        "--call",
        "-w",
        "--workspace",
        "--with",
        "--python",
        "-p",
        "--index-url",
        "--index",
        "--extra-index-url",
    }
)


_NODE_PIN: Final = re.compile(r".@(?!latest$|next$|\*$)\S+$")
_PYTHON_PIN: Final = re.compile(r"==|.@(?!latest$)\S+$")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: ``where`` in the configuration or machine, ``what`` it is, and the ``fix``."""

    level: Level
    where: str
    what: str
    fix: str = ""


def fine(where: str, what: str) -> Finding:
    """Nothing is to be done."""
    return Finding("ok", where, what)


def warn(where: str, what: str, fix: str) -> Finding:
    """It works, but not as well as it could."""
    return Finding("warning", where, what, fix)


def bad(where: str, what: str, fix: str) -> Finding:
    """It does not work, or is not safe."""
    return Finding("error", where, what, fix)


def launcher(where: str, command: Sequence[str]) -> Iterator[Finding]:
    """What is to be said of the program that starts the server, when it is not the server itself."""
    name = os.path.basename(command[0])
    rest = list(command[1:])
    if name in _NODE and (not _NODE[name] or (rest[:1] and rest[0] in _NODE[name])):
        yield from _fetched(where, name, rest[1:] if _NODE[name] else rest, "npm install -g", "@1.2.3", _NODE_PIN)
    elif name in _PYTHON and (not _PYTHON[name] or (rest[:1] and rest[0] in _PYTHON[name])):
        words = [word for word in rest if word not in ("tool", "run")] if _PYTHON[name] else rest
        yield from _fetched(where, name, words, "uv tool install", "==1.2.3", _PYTHON_PIN)
    elif name in SHELLS and (script := _script(rest)) is not None:
        if not script.lstrip().startswith("exec "):
            yield warn(
                where,
                f"{name} -c stays between Treadle and the server: signals reach the shell, not the server",
                f'begin the script with exec, as in ["{name}", "-c", "exec ..."], or name the server itself',
            )
    elif name in _CONTAINERS and "run" in rest:
        yield from _container(where, name, rest[rest.index("run") + 1 :])


def for_a_shell(where: str, command: Sequence[str]) -> Iterator[Finding]:
    """The words after the program that only a shell would have expanded; a shell's own are its business."""
    if os.path.basename(command[0]) in SHELLS:
        return
    for word in command[1:]:
        if (part := unexpanded(word)) is not None:
            what = f"{part} in its command is handed over as it stands: only a shell would expand it"
            yield warn(where, what, "write the value itself, unless the server expands it")


def _fetched(
    where: str, name: str, words: list[str], install: str, example: str, pinned: re.Pattern[str]
) -> Iterator[Finding]:
    """A package runner: it stays as the server's parent, is slow to start, and takes whatever version there is."""
    package = _package(words)
    bare = re.sub(r"(?<=.)(?:@|==).*$", "", package) if package else "PACKAGE"
    yield warn(
        where,
        f"{name} stays between Treadle and the server and costs seconds at every start",
        f"{install} {bare}, and name the installed executable in command",
    )
    if package is not None and not pinned.search(package) and not package.startswith((".", "/", "git+", "http")):
        yield warn(
            where,
            f"{package} is not pinned: a new release changes the server without your doing",
            f"write {bare}{example}, with the version that you have tested",
        )


def _package(words: Sequence[str]) -> str | None:
    """The package that a runner is told to run: the value of --package or --from, else the first plain word."""
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option in ("--package", "--from", "--spec"):
            return value if equals else next(rest, None)
        if word in _TAKES_VALUE:
            next(rest, None)
        elif not word.startswith("-"):
            return word
    return None


def _script(words: Sequence[str]) -> str | None:
    for at, word in enumerate(words):
        if re.fullmatch(r"-[a-z]*c", word):
            return words[at + 1] if at + 1 < len(words) else None
    return None


def _container(where: str, name: str, words: list[str]) -> Iterator[Finding]:
    options = [word for word in words if word.startswith("-")]
    short = "".join(word[1:] for word in options if re.fullmatch(r"-[a-z]+", word))
    if "i" not in short and "--interactive" not in options:
        yield bad(where, "without -i the server has no standard input", 'add "-i" after "run"')
    if "--rm" not in options:
        yield warn(where, "without --rm a container is left behind", 'add "--rm" after "run"')
    if "--init" not in options:
        yield warn(
            where,
            f"{name} is only the client: when it is killed, the container may go on",
            'add "--init" after "run", so that the server sees signals; see `treadle stop` for the evidence',
        )
    if "t" in short or "--tty" in options:
        yield bad(where, f"{name} run -t makes a terminal of the pipe", 'remove "-t"')
