"""Secrets and the environment of a server's process (floor 0, pure). Specification: configuration page.

Secret is what ``api_key_env``, ``env_from`` and ``env_files`` name; the values of ``env`` are not. A value travels
as :class:`Secret`, which never shows itself; :class:`Redactor` takes it out of text that a server wrote. Redact
first, then cut or sanitise: a secret is recognised when it is whole, or cut by :func:`treadle.text.cap`.
"""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NoReturn

from msgspec import Struct

from treadle.config.model import ServerConfig
from treadle.errors import EnvironmentRefused
from treadle.text import ELLIPSIS, sanitise

MARK: Final = "[redacted]"
VALUE_LIMIT: Final = 128 * 1024
"""Linux takes no longer string ``NAME=value`` (its final NUL counted) in an environment."""

SHORT: Final = 4
"""A shorter secret is replaced only where it stands alone: any word may hold its letters by chance."""
LINE: Final = 8
"""A line of a secret of several lines is replaced by itself from this length on."""

_INHERITED: Final = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "TERM"})
_INHERITED_PREFIXES: Final = ("LC_", "XDG_")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Secret:
    """A value that shows itself to nobody: ``repr``, ``str`` and formatting give ``[redacted]``, pickling fails.

    >>> f"token: {Secret('hunter2')}"
    'token: [redacted]'
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself, for the one place that hands it over."""
        return self._value

    def __repr__(self) -> str:
        return MARK

    def __format__(self, spec: str) -> str:
        return MARK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be pickled or copied")


class Redactor:
    """Replaces secrets in text by ``[redacted]``, in every form in which a program is likely to print them.

    These are the value itself, escaped in a JSON string (once or twice) or a Python literal, percent-encoded, in
    base64 (from 8 bytes on, at any alignment, so within ``user:token`` too), and with its control characters
    made spaces. Of a value of several lines each line of at least 8 characters counts by itself, because logs are
    kept by line. A value of fewer than 4 characters is replaced only where no letter, digit or underscore adjoins.
    The beginning of a secret, at least 4 characters, right before the ellipsis of a cut text is replaced as well.

    >>> Redactor([Secret("hunter2")])("login with hunter2 failed")
    'login with [redacted] failed'
    """

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        values = {secret.reveal().strip() for secret in secrets} - {""}
        short = sorted((value for value in values if len(value) < SHORT), key=len, reverse=True)
        forms = {form for value in values if len(value) >= SHORT for form in _forms(value) if len(form) >= SHORT}
        self._forms = tuple(sorted(forms, key=lambda form: (-len(form), form)))
        self._short = re.compile(rf"(?<!\w)(?:{_either(short)})(?!\w)") if short else None
        self.reach = len(self._forms[0]) if self._forms else 0
        """Length of the longest form: as much at the end of a cut text may be a secret's beginning."""
        self._heads = re.compile(rf"(?={_either(sorted({form[:SHORT] for form in forms}))})") if forms else None

    def __call__(self, text: str) -> str:
        """``text`` with every secret in it replaced; overlapping secrets become one mark."""
        spans = sorted(self._spans(text))
        if not spans:
            return text
        marks = [match.start() for match in re.finditer(re.escape(MARK), text)]
        parts: list[str] = []
        end = 0
        for first, last in spans:
            # What stands inside of a mark that is there already is no secret. Marks cannot overlap.
            before = bisect_right(marks, first) - 1
            if before >= 0 and last <= marks[before] + len(MARK):
                continue
            if first > end or not parts:
                parts += [text[end:first], MARK]
            end = max(end, last)
        return "".join((*parts, text[end:]))

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        for form in self._forms:
            at = text.find(form)
            while at >= 0:
                yield at, at + len(form)
                at = text.find(form, at + 1)
        if self._short is not None:
            yield from (match.span() for match in self._short.finditer(text))
        if self._heads is not None and ELLIPSIS in text:
            for match in self._heads.finditer(text):
                start = match.start()
                end = text.find(ELLIPSIS, start, start + len(self._forms[0]))
                if end - start >= SHORT and any(form.startswith(text[start:end]) for form in self._forms):
                    yield start, end


def _either(literals: Iterable[str]) -> str:
    return "|".join(re.escape(literal) for literal in literals)


def _forms(value: str) -> Iterator[str]:
    yield from _in_text(value)
    yield from _in_urls(_bytes(value))
    yield from _in_base64(_bytes(value))
    lines = value.splitlines()
    if len(lines) > 1:
        for line in lines:
            if len(line.strip()) >= LINE:
                yield from _in_text(line.strip())


def _in_text(value: str) -> Iterator[str]:
    yield value
    yield sanitise(value)
    yield repr(value)[1:-1]
    # What a byte that is no UTF-8 becomes when a log line is decoded.
    yield _bytes(value).decode("utf-8", "backslashreplace")
    for ascii_only in (True, False):
        escaped = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        yield escaped
        yield re.sub(r"\\u[0-9a-f]{4}", lambda match: "\\u" + match.group()[2:].upper(), escaped)
        yield escaped.replace("/", "\\/")
        # Some encoders escape what could be HTML.
        yield escaped.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
        yield json.dumps(escaped, ensure_ascii=ascii_only)[1:-1]


def _in_urls(raw: bytes) -> Iterator[str]:
    # Imported for a daemon that has a secret at all: it is not cheap.
    from urllib.parse import quote, quote_plus

    for percent in (quote(raw), quote(raw, safe=""), quote_plus(raw)):
        yield percent
        yield re.sub(r"%[0-9A-F]{2}", lambda match: match.group().lower(), percent)


def _in_base64(raw: bytes) -> Iterator[str]:
    """Base64 of ``raw`` standing alone, and the characters that it alone decides inside of something longer."""
    if len(raw) < 8:
        return
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        alone = encode(raw).decode()
        yield alone
        yield alone.rstrip("=")
        for before in range(3):
            padded = bytes(before) + raw
            whole = len(padded) * 8 // 6
            yield encode(padded).decode()[(before * 8 + 5) // 6 : whole]


def _bytes(value: str) -> bytes:
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return value.encode("utf-8", "replace")


class ChildEnvironment(Struct, frozen=True):
    """The whole environment of a child, and which of its values are secret. Its ``repr`` shows neither."""

    env: dict[str, str]
    secrets: tuple[Secret, ...] = ()

    def __repr__(self) -> str:
        return f"ChildEnvironment(secrets={self.secrets!r})"


def build_environment(
    config: ServerConfig, daemon_env: Mapping[str, str], read_file: Callable[[str], bytes]
) -> ChildEnvironment:
    """The environment of ``config``'s server: a minimal one, and what its table names. Nothing else leaks in.

    Minimal is PATH, HOME, USER, LOGNAME, SHELL, LANG, LC_*, TZ, TMPDIR, TERM and XDG_*, as far as ``daemon_env``
    has them. ``read_file`` returns the bytes of a file and raises OSError; it need not read past
    :data:`VALUE_LIMIT` bytes. One line end at the end of a file is not part of the value.

    :raises EnvironmentRefused: when a named variable is unset or empty, or a file cannot be read, is empty, too
        large, not UTF-8 or holds a NUL. It names the variable, never a value.
    """
    env = {name: value for name, value in daemon_env.items() if inherited(name)} | config.env
    values: list[str] = []
    named = [("api_key_env", config.api_key_env)] if config.api_key_env is not None else []
    for key, name in [*named, *(("env_from", name) for name in config.env_from)]:
        value = daemon_env.get(name)
        if not value:
            state = "is not set" if value is None else "is empty"
            raise EnvironmentRefused(config.name, name, f"{state} in the daemon's environment", key)
        env[name] = value
        values.append(value)
    for name, path in config.env_files.items():
        env[name] = _from_file(config.name, name, path, daemon_env, read_file)
        values.append(env[name])
    return ChildEnvironment(env, tuple(Secret(value) for value in dict.fromkeys(values)))


def inherited(name: str) -> bool:
    """Whether every server is handed the variable ``name``, as far as the daemon has it."""
    return name in _INHERITED or name.startswith(_INHERITED_PREFIXES)


def _from_file(
    server: str, name: str, path: str, daemon_env: Mapping[str, str], read_file: Callable[[str], bytes]
) -> str:
    def refused(reason: str) -> EnvironmentRefused:
        return EnvironmentRefused(server, name, sanitise(reason), "env_files")

    for variable in _REFERENCE.findall(path):
        if not daemon_env.get(variable):
            raise refused(f"has no file: {path} needs {variable}, which the daemon's environment does not set")
    place = _REFERENCE.sub(lambda match: daemon_env[match[1]], path)
    try:
        data = read_file(place)
    except OSError as error:
        raise refused(f"cannot be read from {place}: {error.strerror or error}") from None
    if data.endswith(b"\n"):
        data = data[:-2] if data.endswith(b"\r\n") else data[:-1]
    if not data:
        raise refused(f"has an empty file: {place}")
    if b"\0" in data:
        raise refused(f"has a file with a NUL character, which no variable can hold: {place}")
    if len(name) + len(data) + 2 > VALUE_LIMIT:
        raise refused(f"has a file of more than 128 KiB, the most that a variable can hold: {place}")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise refused(f"has a file that is not UTF-8 at byte {error.start}: {place}") from None
