"""What the values of single keys may be, and how a refusal is worded (configuration page)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.config import Refused, ServerConfig, parse
from treadle.config.kinds import Integer
from treadle.config.model import BROKER_KEYS, SERVER_KEYS
from treadle.config.wording import quoted, spelled
from treadle.errors import ConfigError, Problem


def server_problem(line: str) -> Problem:
    head = "[mcp.x]\n" if line.startswith("command") else '[mcp.x]\ncommand = ["a"]\n'
    (entry,) = parse(head + line + "\n", "t.toml").servers
    assert isinstance(entry, Refused), line
    (problem,) = entry.problems
    return problem


def broker_problem(line: str) -> Problem:
    with pytest.raises(ConfigError) as caught:
        parse(f"[broker]\n{line}\n", "t.toml")
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("line", "what", "fix"),
    [
        (
            'call_timeout_ms = "5s"',
            'must be an integer from 1 to 86400000, found string "5s"',
            "write call_timeout_ms = 5000 (milliseconds)",
        ),
        (
            "call_timeout_ms = 0",
            "must be an integer from 1 to 86400000, found integer 0",
            "write call_timeout_ms = 1 (milliseconds)",
        ),
        (
            "call_timeout_ms = 1500.0",
            "must be an integer from 1 to 86400000, found float 1500.0",
            "write call_timeout_ms = 1500 (milliseconds)",
        ),
        (
            'restart_reset_s = "2m"',
            'must be an integer from 1 to 86400, found string "2m"',
            "write restart_reset_s = 120 (seconds)",
        ),
        (
            "queue = true",
            "must be an integer from 0 to 65536, found boolean true",
            "write an integer from 0 to 65536",
        ),
        (
            "limits.pids = -3",
            "must be an integer from 1 to 4194304, found integer -3",
            "write limits.pids = 1",
        ),
        (
            f"queue = 0x{'f' * 5000}",
            "must be an integer from 0 to 65536, found an integer of 20000 bits",
            "write queue = 65536",
        ),
        (
            "queue = 1979-05-27",
            "must be an integer from 0 to 65536, found a date or time",
            "write an integer from 0 to 65536",
        ),
        ('lazy = "yes"', 'must be true or false, found string "yes"', "write lazy = true, without quotes"),
        ("lazy = 0", "must be true or false, found integer 0", "write lazy = false, without quotes"),
        (
            'restart = "onfailure"',
            'must be "never", "on-failure" or "always", found string "onfailure"',
            'write restart = "on-failure"',
        ),
        (
            'accept_versions = ["2024-10-07"]',
            'must be "2025-11-25", found string "2024-10-07"',
            'write "2025-11-25"',
        ),
        ('tools.allow = "a*"', 'must be an array of globs, found string "a*"', 'write tools.allow = ["a*"]'),
        ('tools.deny = [""]', "must not be empty", "write a string with a glob or remove it"),
        ("env = { A = 1 }", "must be a string, found integer 1", 'write env.A = "1"'),
        ("env = { A = true }", "must be a string, found boolean true", 'write env.A = "true"'),
        ('env = { A = "\\u0000" }', "holds a NUL character, which the system cannot carry", "remove the \\u0000"),
        (
            'env = ["A=1"]',
            "must be a table from names of variables to strings, found an array",
            'write env = { NAME = "value" }',
        ),
        (
            'env = { "A-B" = "1" }',
            "is no legal name of an environment variable",
            "write a name of letters, digits and _ that does not begin with a digit",
        ),
        ('cwd = ""', "must not be empty", "write a string with a path or remove it"),
        ('cwd = "~/w"', "begins with ~, which only a shell expands", "write the home directory out"),
        ('cwd = "${HOME}/w"', "holds ${, but variables are expanded in env_files alone", "write the path out"),
        (
            'env_files = { A = "${DIR/a" }',
            "holds a ${ that names no variable",
            "write ${NAME}, closed and with a legal name",
        ),
        (
            'env_from = ["A B"]',
            "must be the name of an environment variable, found a string that is no such name",
            'write the NAME of the variable, not its value: letters, digits and _, for example "GITHUB_TOKEN"',
        ),
        (
            'env_from = "A"',
            'must be an array of names of environment variables, found string "A"',
            'write env_from = ["A"]',
        ),
        (
            'command = "npx -y pkg"',
            "must be an array of strings, not a shell string",
            'write command = ["npx", "-y", "pkg"]',
        ),
        (
            "command = []",
            "must be an array of strings: the executable, then its arguments, found an empty array",
            'write command = ["executable", "argument"]',
        ),
        ('command = [" ", ""]', "must not be empty", "write a string or remove it"),
        ('command = ["a", 8080]', "must be a string, found integer 8080", 'write "8080"'),
        ('command = ["a\\u0000"]', "holds a NUL character, which the system cannot carry", "remove the \\u0000"),
    ],
)
def test_a_servers_value_is_refused_with_what_to_write(line: str, what: str, fix: str) -> None:
    problem = server_problem(line)
    assert (problem.what, problem.fix) == (what, fix)


@pytest.mark.parametrize(
    ("line", "what", "fix"),
    [
        (
            'allow_users = ["1000"]',
            'must be a user name or a numeric id, found string "1000"',
            "write 1000 without quotes",
        ),
        (
            "admin_users = [true]",
            "must be a user name or a numeric id, found boolean true",
            'write a name such as "www-data" or an id such as 33',
        ),
        (
            "allow_groups = [-1]",
            "must be a group name or a numeric id, found integer -1",
            'write a name such as "www-data" or an id such as 33',
        ),
        (
            'log_level = "warn"',
            'must be "debug", "info", "warning" or "error", found string "warn"',
            'write log_level = "warning"',
        ),
        ("socket = 3", "must be a string with a path, found integer 3", 'write socket = "3"'),
    ],
)
def test_a_brokers_value_is_refused_with_what_to_write(line: str, what: str, fix: str) -> None:
    problem = broker_problem(line)
    assert (problem.what, problem.fix) == (what, fix)


@pytest.mark.parametrize(
    "key", [key for key in SERVER_KEYS if isinstance(key.kind, Integer)], ids=lambda key: key.name
)
def test_an_integer_of_a_server_is_accepted_up_to_its_bounds_and_no_further(key) -> None:  # type: ignore[no-untyped-def]
    kind = key.kind
    for value in (kind.minimum, kind.maximum):
        (server,) = parse(f'[mcp.x]\ncommand = ["a"]\n{key.name} = {value}\n', "t").servers
        assert isinstance(server, ServerConfig)
    for value in (kind.minimum - 1, kind.maximum + 1):
        assert kind.expected in server_problem(f"{key.name} = {value}").what


@pytest.mark.parametrize(
    "key", [key for key in BROKER_KEYS if isinstance(key.kind, Integer)], ids=lambda key: key.name
)
def test_an_integer_of_the_broker_is_accepted_up_to_its_bounds_and_no_further(key) -> None:  # type: ignore[no-untyped-def]
    kind = key.kind
    for value in (kind.minimum, kind.maximum):
        assert getattr(parse(f"[broker]\n{key.name} = {value}\n", "t").broker, key.name) == value
    for value in (kind.minimum - 1, kind.maximum + 1):
        assert kind.expected in broker_problem(f"{key.name} = {value}").what


@pytest.mark.parametrize(
    ("command", "fix"),
    [
        ("uvx 'my server' --db \"a b\"", 'command = ["uvx", "my server", "--db", "a b"]'),
        ("it's", 'command = ["it\'s"]'),
        ("a | b", 'command = ["a", "|", "b"] or, if a shell must read it, command = ["sh", "-c", "a | b"]'),
    ],
)
def test_a_shell_string_is_spelled_out_as_a_list(command: str, fix: str) -> None:
    assert spelled(command) == fix


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_a_quoted_text_is_toml_that_means_the_text(text: str) -> None:
    import tomllib

    assert tomllib.loads(f"x = {quoted(text)}") == {"x": text}


# --- which tools are offered ------------------------------------------------------------------------------------


def server(allow: tuple[str, ...] = ("*",), deny: tuple[str, ...] = ()) -> ServerConfig:
    return ServerConfig("x", ("a",), tools_allow=allow, tools_deny=deny)


def test_without_globs_every_tool_is_offered() -> None:
    assert server().tool_allowed("Any Tool/名")


def test_only_what_an_allow_glob_matches_is_offered() -> None:
    config = server(("get_*", "list"))
    assert [config.tool_allowed(name) for name in ("get_x", "list", "list_x", "xget_")] == [
        True,
        True,
        False,
        False,
    ]


def test_a_denied_tool_is_not_offered_even_when_it_is_allowed() -> None:
    assert not server(("get_*",), ("*_secret",)).tool_allowed("get_secret")


def test_globs_tell_upper_case_from_lower_case() -> None:
    assert not server(("get*",)).tool_allowed("Get")


def test_an_empty_allow_list_offers_nothing() -> None:
    assert not server(()).tool_allowed("x")
