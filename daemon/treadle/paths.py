"""Where the daemon looks for its file, its socket and its state when nobody says (floor 0, pure)."""

from __future__ import annotations

from collections.abc import Mapping


def default_config_paths(environ: Mapping[str, str]) -> list[str]:
    """Where a configuration is looked for without ``--config``, first match wins (configuration page).

    ``$TREADLE_CONFIG`` alone where it is set: that was done on purpose. Else
    ``$XDG_CONFIG_HOME/treadle/treadle.toml`` (``~/.config`` when the variable is unset, empty or not absolute, as
    the XDG base directory specification asks), ``/etc/treadle/treadle.toml``.
    """
    if environ.get("TREADLE_CONFIG"):
        return [environ["TREADLE_CONFIG"]]
    home = _xdg(environ, "XDG_CONFIG_HOME", ".config")
    own = [f"{home}/treadle/treadle.toml"] if home is not None else []
    return [*own, "/etc/treadle/treadle.toml"]


def default_socket_path(environ: Mapping[str, str], uid: int) -> str:
    """The socket's path for the user ``uid``: ``$XDG_RUNTIME_DIR/treadle/treadle.sock``, for root below ``/run``.

    Without a usable ``$XDG_RUNTIME_DIR`` it is where systemd puts that directory, ``/run/user/<uid>``.
    """
    if uid == 0:
        return "/run/treadle/treadle.sock"
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if not runtime.startswith("/"):
        runtime = f"/run/user/{uid}"
    return f"{runtime.rstrip('/')}/treadle/treadle.sock"


def default_state_dir(environ: Mapping[str, str], uid: int) -> str:
    """The state directory: ``$STATE_DIRECTORY`` (systemd; the first of several), ``$XDG_STATE_HOME/treadle``,
    ``~/.local/state/treadle``. Where there is no home directory either: ``/var/lib/treadle`` for root, for any
    other ``uid`` a place that nobody else can write to.
    """
    given = environ.get("STATE_DIRECTORY", "").split(":")[0]
    if given:
        return given
    home = _xdg(environ, "XDG_STATE_HOME", ".local/state")
    if home is not None:
        return f"{home}/treadle"
    return "/var/lib/treadle" if uid == 0 else f"/run/user/{uid}/treadle/state"


def _xdg(environ: Mapping[str, str], variable: str, fallback: str) -> str | None:
    value = environ.get(variable, "")
    if value.startswith("/"):
        return value.rstrip("/")
    home = environ.get("HOME", "")
    return f"{home.rstrip('/')}/{fallback}" if home.startswith("/") else None
