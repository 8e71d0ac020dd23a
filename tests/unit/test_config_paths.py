"""Where the daemon looks for its file, its socket and its state by default (configuration page)."""

from __future__ import annotations

from treadle.config import default_config_paths, default_socket_path, default_state_dir


def test_the_configuration_is_looked_for_in_the_order_of_the_page() -> None:
    environ = {"XDG_CONFIG_HOME": "/xdg", "HOME": "/home/a"}
    assert default_config_paths(environ) == ["/xdg/treadle/treadle.toml", "/etc/treadle/treadle.toml"]
    assert default_config_paths({**environ, "TREADLE_CONFIG": "/t.toml"}) == ["/t.toml"]


def test_without_an_absolute_config_home_it_is_below_the_home_directory() -> None:
    expected = ["/home/a/.config/treadle/treadle.toml", "/etc/treadle/treadle.toml"]
    assert default_config_paths({"HOME": "/home/a"}) == expected
    assert default_config_paths({"HOME": "/home/a", "XDG_CONFIG_HOME": "x", "TREADLE_CONFIG": ""}) == expected


def test_without_any_home_only_the_system_file_is_left() -> None:
    assert default_config_paths({}) == ["/etc/treadle/treadle.toml"]


def test_the_socket_is_in_the_users_runtime_directory() -> None:
    assert default_socket_path({"XDG_RUNTIME_DIR": "/run/user/7"}, 7) == "/run/user/7/treadle/treadle.sock"
    assert default_socket_path({}, 7) == "/run/user/7/treadle/treadle.sock"


def test_the_socket_of_root_is_the_systems() -> None:
    assert default_socket_path({"XDG_RUNTIME_DIR": "/run/user/0"}, 0) == "/run/treadle/treadle.sock"


def test_the_state_directory_is_systemds_then_the_users() -> None:
    environ = {"STATE_DIRECTORY": "/var/lib/treadle:/var/lib/b", "XDG_STATE_HOME": "/xdg", "HOME": "/home/a"}
    assert default_state_dir(environ, 7) == "/var/lib/treadle"
    del environ["STATE_DIRECTORY"]
    assert default_state_dir(environ, 7) == "/xdg/treadle"
    del environ["XDG_STATE_HOME"]
    assert default_state_dir(environ, 7) == "/home/a/.local/state/treadle"


def test_without_any_home_the_state_is_where_nobody_else_can_write() -> None:
    assert default_state_dir({}, 0) == "/var/lib/treadle"
    assert default_state_dir({}, 7) == "/run/user/7/treadle/state"
