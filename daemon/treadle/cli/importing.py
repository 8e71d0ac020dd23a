"""From another program's entry of an MCP server to a ``[mcp.<name>]`` table (pure).

A secret is never copied: what holds one becomes the name of a variable, and a note says how to provide its
value. What cannot be expressed is told, and where the server would not work without it the table says
``enabled = false``.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from treadle.cli.diagnosis import SHELLS
from treadle.cli.foreign import Entry
from treadle.config import Refused, parse
from treadle.config.names import name_fault, suggest_name
from treadle.config.wording import key_text, quoted, unexpanded
from treadle.errors import ConfigError
from treadle.secrets import inherited

REPLACE: Final = "REPLACE-ME"

_SECRET_NAME = re.compile(
    r"(?:^|[_-])(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PWD|PAT|CREDENTIALS?|AUTH|BEARER|DSN)(?:$|[_-])|"
    r"(?:TOKEN|SECRET|PASSWORD|APIKEY)$",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"(?:sk|pk|rk)[-_][A-Za-z0-9_-]{12,}"  # OpenAI, Anthropic, Stripe
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{12,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|AKIA[0-9A-Z]{12,}|AIza[0-9A-Za-z_-]{30,}|hf_[A-Za-z0-9]{20,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"  # JSON web tokens
    r"|Bearer\s+\S{8,}|://[^/\s:@]+:[^/\s@]+@"  # a header, a URL with a password
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
)
_LONG_TOKEN = re.compile(r"[A-Za-z0-9+/=_-]{32,}")
_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_READ: Final = frozenset(
    {"command", "args", "env", "env_vars", "type", "transport", "url", "serverUrl", "httpUrl", "cwd", "envFile"}
    | {
        "env_file",
        "startup_timeout_sec",
        "tool_timeout_sec",
        "enabled_tools",
        "disabled_tools",
        "disabled",
        "enabled",
    }
)
_MOST_LEFT: Final = 12


@dataclass(slots=True)
class Table:
    """One server of the new configuration: its legal ``name``, its TOML ``text``, and what a person must know."""

    name: str
    source: str
    text: str = ""
    notes: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A server that was left out, and why."""

    name: str
    source: str
    reason: str


def looks_secret(name: str, value: str) -> bool:
    """Whether a variable, or an option of a command, holds a secret: by its name or by its value."""
    return bool(_SECRET_NAME.search(name) or _SECRET_VALUE.search(value) or _random(value))


def _random(value: str) -> bool:
    """Whether ``value`` is one long word of letters and digits mixed, as tokens are (paths and URLs are not)."""
    mixed = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return mixed and "/" not in value and _LONG_TOKEN.fullmatch(value) is not None


def convert(entry: Entry, taken: Collection[str], environ: Mapping[str, str] | None = None) -> Table | Skipped:
    """The table of ``entry`` under a legal name that is not in ``taken``, or why there is none.

    ``environ`` has the values of ordinary variables such as HOME, to which an entry may refer.
    """
    own = entry.table
    kind = own.get("type", own.get("transport", "stdio"))
    url = own.get("url", own.get("serverUrl", own.get("httpUrl")))
    words = _argv(own)
    if not words:
        if url or kind != "stdio":
            over = kind if isinstance(kind, str) and kind != "stdio" else "http"
            return Skipped(entry.name, entry.spot, f"it is reached over {over}, Treadle runs stdio servers")
        return Skipped(entry.name, entry.spot, "it has no command, or its args are no list of words")
    table = Table(suggest_name(entry.name, taken), entry.spot)
    if table.name != entry.name:
        table.notes.append(_renamed(entry.name, table.name))
    keys = _Keys(table, entry.inputs, environ or {})
    keys.command(words)
    keys.environment(own.get("env"), own.get("env_vars"))
    keys.rest(own)
    table.text = keys.toml()
    return _proven(table)


def _renamed(name: str, ours: str) -> str:
    """Why a server that was called ``name`` is called ``ours``."""
    told = f"it was called {name!r}"
    if (fault := name_fault(name)) is not None:
        told += f"; the name {fault}"
    return told if suggest_name(name) == ours else f"{told}; another server is called {suggest_name(name)}"


def _argv(own: dict[str, Any]) -> list[str]:
    """The command with its arguments; empty when there is none that could be run."""
    command, arguments = own.get("command"), own.get("args")
    words = command if isinstance(command, list) else [command]
    if isinstance(arguments, list):
        words = [*words, *arguments]
    elif arguments is not None:
        return []
    usable = (
        words and isinstance(words[0], str) and words[0] and all(isinstance(w, str | int | float) for w in words)
    )
    return [str(word) for word in words] if usable else []


def _proven(table: Table) -> Table | Skipped:
    """``table``, when this very program reads it without a complaint."""
    try:
        server = parse(table.text, "import").servers[0]
    except ConfigError as error:
        return Skipped(table.name, table.source, error.problems[0].what)
    if isinstance(server, Refused):
        return Skipped(table.name, table.source, f"{server.problems[0].where}: {server.problems[0].what}")
    return table


class _Keys:
    """The keys of one table as they are found."""

    def __init__(self, table: Table, inputs: dict[str, str], environ: Mapping[str, str]) -> None:
        self._table = table
        self._inputs = inputs
        self._environ = environ
        self._lines: list[str] = []
        self._enabled = True

    def command(self, words: list[str]) -> None:
        if len(first := words[0].split()) > 1 and "/" not in first[0]:
            self._disable("its command is one word with blanks in it: split it")
        shown = []
        option = ""
        for number, word in enumerate(words):
            name, equals, value = word.partition("=")
            if equals and name.startswith("-") and looks_secret(name.lstrip("-"), value):
                word = f"{name}={self._withheld(name)}"
            elif option and not word.startswith("-") and looks_secret(option.lstrip("-"), word):
                word = self._withheld(option)
            elif _SECRET_VALUE.search(word) or _random(word):
                word = self._withheld("")
            elif _REFERENCE.search(word):
                self._disable(f"{word!r} in its command refers to a variable; commands are run as they stand")
            elif (part := unexpanded(word)) and (number == 0 or os.path.basename(words[0]) not in SHELLS):
                self._disable(
                    f"{word!r} in its command is run as it stands, and {part} is only expanded by a shell"
                )
            option = word if word.startswith("-") and not equals else ""
            shown.append(quoted(word, len(word)))
        self._lines.append(f"command = [{', '.join(shown)}]")

    def _withheld(self, option: str) -> str:
        what = f"the value of {option}" if option else "a word of its command"
        self._disable(
            f"{what} looks like a secret and was not copied: let the server read it from a variable "
            f"(env_from) if it can, or write it in place of {REPLACE}"
        )
        return REPLACE

    def _disable(self, why: str) -> None:
        self._enabled = False
        self._table.notes.append(f"{why}; until then the server is disabled")

    def environment(self, pairs: Any, names: Any) -> None:
        plain: dict[str, str] = {}
        secret = [name for name in _list(names) if isinstance(name, str) and not inherited(name)]
        self._table.secrets += secret
        for name, given in pairs.items() if isinstance(pairs, dict) else ():
            value = (
                given if isinstance(given, str) else str(given).lower() if isinstance(given, bool) else str(given)
            )
            if not _VARIABLE.fullmatch(name):
                self._table.notes.append(f"the variable {name!r} was left out: it has no usable name")
            elif inherited(name) and (found := _REFERENCE.fullmatch(value)) and _variable(found) == name:
                self._table.notes.append(f"{name} was left out: every server is handed it")
            elif (known := self._resolved(name, value)) is not None and not looks_secret(name, known):
                plain[name] = known
            elif name not in secret:
                secret.append(name)
                self._table.secrets.append(name)
        if len(secret) == 1:
            self._lines.append(f"api_key_env = {quoted(secret[0])}")
        elif secret:
            self._lines.append(f"env_from = [{', '.join(quoted(name) for name in secret)}]")
        if plain:
            inside = ", ".join(f"{key_text(name)} = {quoted(value, len(value))}" for name, value in plain.items())
            self._lines.append(f"env = {{ {inside} }}")

    def _resolved(self, name: str, value: str) -> str | None:
        """``value`` with nothing left to fill in, None when only the user's environment or input knows it."""
        filled = _REFERENCE.sub(self._filled, value)
        reference = _REFERENCE.search(filled)
        if reference is None:
            if filled != value and not looks_secret(name, filled):
                self._table.notes.append(f"{name} was made of variables, which have the values of this shell here")
            return filled
        inner = reference[1]
        if inner.startswith("input:"):
            about = self._inputs.get(inner.removeprefix("input:"), "")
            self._table.notes.append(
                f"{name} was asked for when the server started" + (f": {about}" if about else "")
            )
            return None
        variable, separator, default = inner.removeprefix("env:").partition(":-")
        if separator and reference[0] == filled:
            if not looks_secret(name, default):
                self._table.notes.append(
                    f"{name} came from ${variable}, by default {default!r}, as it stands here"
                )
            return default
        if variable != name:
            self._table.notes.append(f"{name} was made of ${{{inner}}}")
        return None

    def _filled(self, reference: re.Match[str]) -> str:
        """A reference to an ordinary variable as its value; any other as it is."""
        variable = _variable(reference)
        return self._environ[variable] if inherited(variable) and variable in self._environ else reference[0]

    def rest(self, own: dict[str, Any]) -> None:
        """The keys besides the command and its environment. A note names those that have no like here."""
        left = {key for key, value in own.items() if key not in _READ and value not in (None, "", [], {})}
        cwd = own.get("cwd")
        if isinstance(cwd, str) and _REFERENCE.search(cwd):
            self._table.notes.append(f"its cwd {cwd!r} refers to a variable and was left out")
        elif isinstance(cwd, str) and cwd:
            self._lines.append(f"cwd = {quoted(cwd, len(cwd))}")
        elif cwd:
            left.add("cwd")
        for key in ("envFile", "env_file"):
            if isinstance(own.get(key), str):
                self._disable(f"it reads variables from {own[key]!r}: name them in env_from or env_files")
        for key, ours in (
            ("startup_timeout_sec", "handshake_timeout_ms"),
            ("tool_timeout_sec", "call_timeout_ms"),
        ):
            seconds = own.get(key)
            if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0.001 <= seconds <= 86_400:
                self._lines.append(f"{ours} = {round(seconds * 1000)}")
            elif key in own:
                left.add(key)
        for key, ours in (("enabled_tools", "tools.allow"), ("disabled_tools", "tools.deny")):
            globs = own.get(key)
            if isinstance(globs, list) and globs and all(isinstance(one, str) for one in globs):
                self._lines.append(f"{ours} = [{', '.join(quoted(one, len(one)) for one in globs)}]")
            elif globs:
                left.add(key)
        if own.get("disabled") is True or own.get("enabled") is False:
            self._enabled = False
            self._table.notes.append("it was disabled")
        if left:
            names = ", ".join(key_text(key) for key in sorted(left)[:_MOST_LEFT])
            more = f" and {len(left) - _MOST_LEFT} more" if len(left) > _MOST_LEFT else ""
            self._table.notes.append(f"left out, as there is nothing like it here: {names}{more}")

    def toml(self) -> str:
        """The table, after a comment on where it came from and what is to be known of it."""
        comments = [f"# from {self._table.source}", *(f"# {note}" for note in self._table.notes)]
        if self._table.secrets:
            comments.append(f"# secret: {provide(self._table.secrets)}")
        head = [re.sub(r"[\x00-\x08\x0a-\x1f\x7f]", " ", comment) for comment in comments]
        lines = self._lines if self._enabled else [*self._lines, "enabled = false"]
        return "\n".join([*head, f"[mcp.{self._table.name}]", *lines]) + "\n"


def _variable(reference: re.Match[str]) -> str:
    """The variable that ``${NAME}``, ``${env:NAME}`` or ``${NAME:-default}`` means."""
    return reference[1].removeprefix("env:").partition(":-")[0]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def provide(names: list[str]) -> str:
    """How the values of variables reach a server."""
    one = names[0]
    return (
        f"set {', '.join(names)} in the environment of `treadle serve`, or read it from a file: "
        f'env_files = {{ {one} = "${{CREDENTIALS_DIRECTORY}}/{one}" }}'
    )
