"""Reading the configuration file, at start and again (floor 6). All of it is checked before anything changes."""

from __future__ import annotations

import os
from collections.abc import Mapping

from treadle.config import Config, default_config_paths, parse
from treadle.errors import ConfigError, Problem


def find(given: str | None, environ: Mapping[str, str]) -> str:
    """The configuration file to use: ``given``, or the first default path that exists.

    Raises :class:`ConfigError` that lists where it looked when there is none.
    """
    if given is not None:
        return given
    paths = default_config_paths(environ)
    for path in paths:
        if os.path.exists(path):
            return path
    what = f"no configuration file; looked for {', '.join(paths)}"
    raise ConfigError((Problem(paths[0], 0, 0, "", what, "write one, or name one with --config FILE"),))


def load(path: str, *, strict: bool = False) -> Config:
    """The configuration in the file ``path``.

    Raises :class:`ConfigError` when the file cannot be read or used; with ``strict`` for any problem in it, also
    for one that would only refuse a single server.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        fix = "name another with --config FILE" if isinstance(error, FileNotFoundError) else "make it readable"
        raise ConfigError((Problem(path, 0, 0, "", f"cannot be read: {error.strerror}", fix),)) from None
    config = parse(data, path)
    if strict and config.problems:
        raise ConfigError(config.problems)
    return config
