"""The plain forms of ``treadle call``, ``list`` and ``serve``, read without click.

Importing click takes longer than a whole call. What is read here runs the very functions that the click commands
run; whatever is not plainly right (help, an unknown option, a missing word, a bad number) is left to click, which
has the words for it.
"""

from __future__ import annotations

from treadle.cli.options import Options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Final

_FLAGS: Final = {
    "--json": "as_json",
    "-q": "quiet",
    "--quiet": "quiet",
    "-v": "verbose",
    "--verbose": "verbose",
}
_VALUED: Final = {
    "call": {"--socket": "socket", "--timeout": "timeout", "--json-args": "json_args", "--output": "form"},
    "list": {"--socket": "socket"},
    "serve": {"--socket": "socket", "--config": "config_path"},
}
_SWITCHES: Final = {"serve": {"--strict": "strict"}}


def parse(line: Sequence[str]) -> Callable[[], int] | None:
    """The work that a command line asks for, which returns the exit code; None when click shall read the line."""
    read = read_line(line)
    if read is None:
        return None
    verb, words, options, keys = read
    if verb == "call":
        from treadle.cli import calling

        return lambda: calling.run(words, options, **keys)
    if verb == "serve":
        from treadle.cli import serving

        return lambda: serving.run(options, **keys)
    from treadle.cli import listing

    return lambda: listing.run(words[0] if words else None, options)


def read_line(line: Sequence[str]) -> tuple[str, list[str], Options, dict[str, Any]] | None:
    """The verb, its words, its options and what else it was told; None when click shall read the line."""
    rest = iter(line)
    verb = next(rest, "")
    socket = None
    while verb.partition("=")[0] == "--socket":
        socket = verb.partition("=")[2] if "=" in verb else next(rest, None)
        if not socket:
            return None
        verb = next(rest, "")
    if verb not in _VALUED:
        return None
    options, words = Options(), []
    values: dict[str, Any] = {}
    for word in rest:
        if not word.startswith("-"):
            words.append(word)
        elif word in _SWITCHES.get(verb, ()):
            values[_SWITCHES[verb][word]] = True
        elif word in _FLAGS:
            setattr(options, _FLAGS[word], True)
        else:
            name, equals, value = word.partition("=")
            key = _VALUED[verb].get(name)
            given = value if equals else next(rest, None)
            if key is None or not given:
                return None
            values[key] = given
    options.socket = values.pop("socket", socket)
    if verb == "serve":
        return (verb, words, options, values) if not (words or options.as_json) else None
    if verb == "list":
        return (verb, words, options, {}) if len(words) < 2 else None
    if not words or (len(words) < 2 and "." not in words[0]):
        return None
    keys = _typed(values)
    return None if keys is None else (verb, words, options, keys)


def _typed(values: dict[str, Any]) -> dict[str, Any] | None:
    keys: dict[str, Any] = dict(values)
    if "timeout" in values:
        try:
            keys["timeout"] = float(values["timeout"])
        except ValueError:
            return None
        if not 0.001 <= keys["timeout"] < float("inf"):
            return None
    return keys if values.get("form", "text") in ("text", "json", "raw") else None
