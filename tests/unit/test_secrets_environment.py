"""The environment of a server's process: minimal, explicit, refused before anything is spawned."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

import pytest

from treadle.config import ServerConfig
from treadle.errors import EnvironmentRefused, StartFault, failure_code
from treadle.secrets import VALUE_LIMIT, ChildEnvironment, Secret, build_environment


def no_file(path: str) -> bytes:
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def build(
    environ: Mapping[str, str], files: Mapping[str, bytes] | None = None, **keys: object
) -> ChildEnvironment:
    config = ServerConfig("github", ("a",), **keys)  # type: ignore[arg-type]
    return build_environment(
        config, environ, lambda path: (files or {})[path] if path in (files or {}) else no_file(path)
    )


def refusal(
    environ: Mapping[str, str], files: Mapping[str, bytes] | None = None, **keys: object
) -> EnvironmentRefused:
    with pytest.raises(EnvironmentRefused) as caught:
        build(environ, files, **keys)
    return caught.value


MINIMAL = """PATH HOME USER LOGNAME SHELL LANG LC_ALL LC_TIME TZ TMPDIR TERM XDG_RUNTIME_DIR XDG_DATA_HOME"""
OTHERS = """AWS_SECRET LANGUAGE PATHS NOTIFY_SOCKET HTTPS_PROXY LISTEN_FDS LC CREDENTIALS_DIRECTORY path"""


def test_a_child_inherits_the_minimal_environment_and_nothing_else() -> None:
    minimal = dict.fromkeys(MINIMAL.split(), "x")
    assert build(minimal | dict.fromkeys(OTHERS.split(), "y")) == ChildEnvironment(minimal, ())


def test_explicit_pairs_win_over_what_is_inherited_and_are_not_secret() -> None:
    assert build({"PATH": "/bin"}, env={"PATH": "/x", "EMPTY": ""}) == ChildEnvironment(
        {"PATH": "/x", "EMPTY": ""}, ()
    )


def test_named_variables_are_handed_over_under_the_same_name_and_are_secret() -> None:
    child = build({"KEY": "k1", "A": "a1", "B": "k1"}, api_key_env="KEY", env_from=("A", "B"))
    assert child.env == {"KEY": "k1", "A": "a1", "B": "k1"}
    assert child.secrets == (Secret("k1"), Secret("a1"))


def test_the_environment_of_a_child_is_not_shown() -> None:
    assert repr(build({"KEY": "hunter2"}, api_key_env="KEY")) == "ChildEnvironment(secrets=([redacted],))"


@pytest.mark.parametrize(("environ", "state"), [({}, "is not set"), ({"KEY": ""}, "is empty")])
def test_an_unset_or_empty_variable_is_refused(environ: dict[str, str], state: str) -> None:
    reason = f"{state} in the daemon's environment"
    assert refusal(environ, api_key_env="KEY") == EnvironmentRefused("github", "KEY", reason, "api_key_env")
    assert refusal(environ, env_from=("KEY",)) == EnvironmentRefused("github", "KEY", reason, "env_from")


def test_a_refusal_says_which_key_named_the_variable_and_how_to_set_it() -> None:
    assert str(refusal({}, api_key_env="KEY")) == (
        "server github: KEY (api_key_env) is not set in the daemon's environment; export KEY where the daemon is "
        "started; under systemd, EnvironmentFile= in its unit, or LoadCredential= and env_files"
    )


def test_a_refusal_is_a_failed_start_and_callers_see_the_server_unavailable() -> None:
    fault = refusal({}, api_key_env="KEY")
    assert isinstance(fault, StartFault)
    assert failure_code(fault) == "mcp_unavailable"


# --- env_files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "value"),
    [(b"v", "v"), (b"v\n", "v"), (b"v\r\n", "v"), (b"v\n\n", "v\n"), (b" v\r", " v\r"), ("ä\n".encode(), "ä")],
)
def test_a_files_content_without_one_line_end_is_the_value(content: bytes, value: str) -> None:
    child = build({}, {"/t": content}, env_files={"TOKEN": "/t"})
    assert child == ChildEnvironment({"TOKEN": value}, (Secret(value),))


def test_a_path_may_name_variables_of_the_daemon() -> None:
    child = build(
        {"CREDENTIALS_DIRECTORY": "/run/c", "N": "n"},
        {"/run/c/n.txt": b"v"},
        env_files={"T": "${CREDENTIALS_DIRECTORY}/${N}.txt"},
    )
    assert child.env == {"T": "v"}


@pytest.mark.parametrize("environ", [{}, {"CREDENTIALS_DIRECTORY": ""}])
def test_a_path_with_a_variable_that_is_not_set_is_refused(environ: dict[str, str]) -> None:
    fault = refusal(environ, env_files={"T": "${CREDENTIALS_DIRECTORY}/t"})
    assert str(fault) == (
        "server github: T (env_files) has no file: ${CREDENTIALS_DIRECTORY}/t needs CREDENTIALS_DIRECTORY, which "
        "the daemon's environment does not set; write the value into a file that the daemon's user can read; "
        "under systemd, LoadCredential=T:FILE in the unit and ${CREDENTIALS_DIRECTORY}/T as the path"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "has an empty file: /t"),
        (b"\r\n", "has an empty file: /t"),
        (b"a\0b", "has a file with a NUL character, which no variable can hold: /t"),
        (b"ab\xff", "has a file that is not UTF-8 at byte 2: /t"),
        (b"x" * VALUE_LIMIT, "has a file of more than 128 KiB, the most that a variable can hold: /t"),
    ],
)
def test_a_file_that_holds_no_usable_value_is_refused(content: bytes, reason: str) -> None:
    fault = refusal({}, {"/t": content}, env_files={"T": "/t"})
    assert fault == EnvironmentRefused("github", "T", reason, "env_files")


def test_a_file_that_cannot_be_read_is_refused_with_its_path_and_the_systems_words() -> None:
    fault = refusal({}, env_files={"T": "/none"})
    assert fault.reason == "cannot be read from /none: No such file or directory"


def test_the_longest_value_that_the_system_takes_is_taken() -> None:
    longest = b"x" * (VALUE_LIMIT - len("T=\0"))
    child = build({}, {"/t": longest}, env_files={"T": "/t"})
    assert os.spawnve(os.P_WAIT, "/bin/true", ["true"], child.env) == 0
