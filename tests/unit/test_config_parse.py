"""From a file's text to a configuration: what is refused, what is kept, where a problem is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.config import BrokerConfig, Config, Limits, Refused, ServerConfig, parse
from treadle.errors import ConfigError, Problem

EXAMPLE = (Path(__file__).parents[2] / "config" / "treadle.example.toml").read_text()
GOOD = '[mcp.good]\ncommand = ["a"]\n'


def refused(text: str, name: str = "x") -> tuple[Problem, ...]:
    (entry,) = (server for server in parse(text, "t.toml").servers if server.name == name)
    assert isinstance(entry, Refused)
    return entry.problems


def fatal(text: str | bytes) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as caught:
        parse(text, "t.toml")
    return caught.value.problems


# --- what is accepted -----------------------------------------------------------------------------------------


def test_an_empty_file_is_a_configuration_without_servers() -> None:
    assert parse("", "t.toml") == Config("t.toml", BrokerConfig(), ())


def test_a_server_needs_no_more_than_a_command() -> None:
    assert parse(GOOD, "t.toml").servers == (ServerConfig("good", ("a",)),)


def test_every_key_of_a_server_is_read() -> None:
    text = """
        [mcp.full]
        command = ["run", "-v"]
        api_key_env = "KEY"
        env = { A = "1", B = "" }
        env_from = ["C"]
        env_files = { D = "/d", E = "${CREDENTIALS_DIRECTORY}/e" }
        cwd = "/w"
        enabled = false
        lazy = true
        restart = "on-failure"
        restart_backoff_ms = 1
        restart_backoff_max_ms = 2
        restart_reset_s = 3
        restart_limit = 4
        open_timeout_ms = 5
        handshake_timeout_ms = 6
        list_timeout_ms = 7
        call_timeout_ms = 8
        stop_timeout_ms = 9
        max_in_flight = 10
        queue = 11
        queue_timeout_ms = 12
        content = "all"
        bad_lines = "drop"
        accept_versions = ["2025-11-25"]
        tools.allow = ["a*"]
        tools.deny = ["ab"]
        limits = { memory_mb = 13, pids = 14, open_files = 15, cpu_seconds = 16 }
    """
    expected = ServerConfig(
        name="full",
        command=("run", "-v"),
        api_key_env="KEY",
        env={"A": "1", "B": ""},
        env_from=("C",),
        env_files={"D": "/d", "E": "${CREDENTIALS_DIRECTORY}/e"},
        cwd="/w",
        enabled=False,
        lazy=True,
        restart="on-failure",
        restart_backoff_ms=1,
        restart_backoff_max_ms=2,
        restart_reset_s=3,
        restart_limit=4,
        open_timeout_ms=5,
        handshake_timeout_ms=6,
        list_timeout_ms=7,
        call_timeout_ms=8,
        stop_timeout_ms=9,
        max_in_flight=10,
        queue=11,
        queue_timeout_ms=12,
        content="all",
        bad_lines="drop",
        accept_versions=("2025-11-25",),
        tools_allow=("a*",),
        tools_deny=("ab",),
        limits=Limits(13, 14, 15, 16),
    )
    assert parse(text, "t.toml").servers == (expected,)


def test_every_key_of_the_broker_is_read() -> None:
    text = """
        [broker]
        socket = "/s"
        allow_users = ["alice", 1000]
        allow_groups = [100, "staff"]
        admin_users = [0]
        max_connections = 1
        max_in_flight_per_connection = 2
        max_in_flight = 3
        drain_timeout_ms = 0
        max_call_timeout_ms = 4
        state_dir = "/st"
        log_level = "debug"
        log_format = "json"
        audit_log = "/a"
        audit_arguments = true
        ready = "listening"
    """
    expected = BrokerConfig(
        socket="/s",
        allow_users=("alice", 1000),
        allow_groups=(100, "staff"),
        admin_users=(0,),
        max_connections=1,
        max_in_flight_per_connection=2,
        max_in_flight=3,
        drain_timeout_ms=0,
        max_call_timeout_ms=4,
        state_dir="/st",
        log_level="debug",
        log_format="json",
        audit_log="/a",
        audit_arguments=True,
        ready="listening",
    )
    assert parse(text, "t.toml").broker == expected


def test_the_defaults_are_those_of_the_page() -> None:
    server, broker = ServerConfig("x", ("a",)), BrokerConfig()
    assert (server.restart, server.restart_backoff_ms, server.restart_backoff_max_ms) == ("never", 500, 60000)
    assert (server.restart_reset_s, server.restart_limit) == (60, 5)
    assert (server.open_timeout_ms, server.handshake_timeout_ms, server.list_timeout_ms) == (5000, 10000, 30000)
    assert (server.call_timeout_ms, server.stop_timeout_ms) == (60000, 5000)
    assert (server.max_in_flight, server.queue, server.queue_timeout_ms) == (64, 0, 1000)
    assert (server.content, server.bad_lines, server.accept_versions) == ("text", "fatal", ())
    assert (server.enabled, server.lazy, server.cwd, server.limits) == (True, False, None, Limits())
    assert (broker.max_connections, broker.max_in_flight_per_connection, broker.max_in_flight) == (256, 1024, 4096)
    assert (broker.drain_timeout_ms, broker.max_call_timeout_ms, broker.audit_arguments) == (5000, 3600000, False)


@pytest.mark.parametrize(
    "text",
    [
        '[mcp.x]\ncommand = ["a"]\ntools.deny = ["d"]\nlimits.pids = 2\n',
        '[mcp.x]\ncommand = ["a"]\ntools = { deny = ["d"] }\nlimits = { pids = 2 }\n',
        '[mcp.x.tools]\ndeny = ["d"]\n[mcp.x.limits]\npids = 2\n[mcp.x]\ncommand = ["a"]\n',
        'mcp.x = { command = ["a"], tools.deny = ["d"], limits.pids = 2 }\n',
    ],
)
def test_a_sub_table_may_be_written_in_any_way_that_toml_has(text: str) -> None:
    assert parse(text, "t").servers == (ServerConfig("x", ("a",), tools_deny=("d",), limits=Limits(pids=2)),)


def test_other_programs_tables_are_ignored() -> None:
    text = "title = 3\n[loom]\ncomand = 1\n[[harness.x]]\n[server]\n" + GOOD
    assert parse(text, "t.toml") == parse(GOOD, "t.toml")


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "[broker]\n", "mcp = {}\n", "[loom]\nx = 1\n"])
def test_a_file_without_servers_is_a_warning(text: str) -> None:
    (warning,) = parse(text, "t.toml").warnings
    assert "no server is configured: there is no [mcp.<name>] table" in str(warning)


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ('[mpc.b]\ncommand = ["x"]\n', "write [mcp.b]"),
        ('[mpc.b]\ncomand = ["x"]\n', "write mcp instead of mpc"),
        ('[MCP.b]\ncommand = ["x"]\n', "write [mcp.b]"),
        ('[mcpServers.x]\ncommand = "x"\n', "write [mcp.x]"),
        ('[server.a]\ncommand = ["x"]\n', "write [mcp.a]"),
        ('[[servers]]\nname = "a"\ncommand = ["x"]\n', "write [mcp.<name>]"),
        ("[brokr]\nmax_in_flight = 1\n", "write broker instead of brokr"),
    ],
)
@pytest.mark.parametrize("more", ["", GOOD])
def test_a_table_that_looks_like_one_of_ours_is_a_warning(text: str, fix: str, more: str) -> None:
    warning = parse(text + more, "t.toml").warnings[-1]
    assert (warning.line, warning.fix) == (1, f"{fix}, if it is meant for Treadle")


def test_the_reason_of_a_refused_server_does_not_repeat_its_name() -> None:
    bad = parse('[mcp.str]\ncommand = 3\nlimits.pids = "x"\n[mcp."odd name"]\ncommand = ["x"]\n', "t.toml").servers
    reasons = [server.reason for server in bad if isinstance(server, Refused)]
    assert reasons[0].startswith("command: must be")
    assert "; limits.pids: must be" in reasons[0]
    assert reasons[1].startswith('the name "odd name"')


def test_another_programs_table_of_commands_is_one_of_ours_only_where_we_have_none() -> None:
    text = '[tasks.build]\ncommand = ["make"]\n'
    assert parse(text + GOOD, "t.toml").warnings == ()
    assert parse(text, "t.toml").warnings[-1].fix.startswith("write [mcp.build]")


def test_relative_paths_are_meant_from_the_directory_of_the_file() -> None:
    text = (
        '[broker]\nsocket = "s"\n[mcp.x]\ncommand = ["./a"]\ncwd = "w"\n'
        'env_files = { A = "f", B = "/abs", C = "${D}/c", E = "e/${D}" }\n'
    )
    config = parse(text, "/etc/treadle/t.toml")
    (server,) = config.servers
    assert isinstance(server, ServerConfig)
    assert config.broker.socket == "/etc/treadle/s"
    assert server.cwd == "/etc/treadle/w"
    assert server.env_files == {"A": "/etc/treadle/f", "B": "/abs", "C": "${D}/c", "E": "/etc/treadle/e/${D}"}
    assert server.command == ("./a",)


def test_the_same_meaning_compares_equal_however_it_is_written() -> None:
    assert parse(GOOD, "t.toml") == parse("# new\n\n" + GOOD + "enabled = true\n", "t.toml")
    assert parse(GOOD, "t.toml") != parse(GOOD + "lazy = true\n", "t.toml")


# --- an error inside one server's table refuses that server -----------------------------------------------------


def test_a_bad_server_is_refused_in_its_place_and_the_others_are_kept() -> None:
    config = parse('[mcp.a]\ncommand = ["a"]\n[mcp.b]\ncommand = 3\n[mcp.c]\ncommand = ["c"]\n', "t.toml")
    assert [(type(server), server.name) for server in config.servers] == [
        (ServerConfig, "a"),
        (Refused, "b"),
        (ServerConfig, "c"),
    ]
    assert [problem.line for problem in config.problems] == [4]


def test_a_problem_says_where_it_is_what_is_wrong_and_what_to_write() -> None:
    (problem,) = refused('[mcp.x]\ncommand = ["a"]\n  comand = ["b"]\n')
    assert problem == Problem(
        file="t.toml",
        line=3,
        column=3,
        where="[mcp.x] comand",
        what="unknown key",
        fix="write command",
        source="  comand = …",
    )


def test_all_problems_of_a_table_are_told_in_the_order_of_the_file() -> None:
    problems = refused("[mcp.x]\nqueue = -1\nlazy = 1\n[mcp.x.limits]\npids = 0\nram = 1\n")
    assert [(p.line, p.where) for p in problems] == [
        (1, "[mcp.x] command"),
        (2, "[mcp.x] queue"),
        (3, "[mcp.x] lazy"),
        (5, "[mcp.x] limits.pids"),
        (6, "[mcp.x] limits.ram"),
    ]


def test_a_key_is_reported_once_however_much_is_wrong_with_it() -> None:
    problems = refused('[mcp.x]\ncommand = ["", 3, "\\u0000"]\nenv = { "1" = 3 }\n')
    assert [(p.line, p.column, p.where) for p in problems] == [
        (2, 12, "[mcp.x] command[0]"),
        (3, 9, "[mcp.x] env.1"),
    ]


def test_a_missing_command_is_reported_at_the_table() -> None:
    (problem,) = refused("\n[mcp.x]\nlazy = true\n")
    assert (problem.line, problem.column, problem.what) == (2, 6, "is missing")
    assert problem.fix == 'write command = ["executable", "argument"]'


@pytest.mark.parametrize(
    ("key", "fix"),
    [
        ("comand", "write command"),
        ("call_timeout", "write call_timeout_ms"),
        ("max_inflight", "write max_in_flight"),
        ("tools_allow", "write tools.allow"),
        ("environment", 'write env = { NAME = "value" }, or env_from for variables of the daemon'),
        ("zzz", "remove it; the nearest known key is lazy"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest_known_one(key: str, fix: str) -> None:
    (problem,) = refused(f'[mcp.x]\ncommand = ["a"]\n{key} = 1\n')
    assert (problem.what, problem.fix) == ("unknown key", fix)


def test_a_dotted_key_in_quotes_is_no_sub_table() -> None:
    (problem,) = refused('[mcp.x]\ncommand = ["a"]\n"tools.allow" = ["a"]\n')
    assert (problem.where, problem.fix) == ('[mcp.x] "tools.allow"', "write tools.allow")


def test_a_sub_table_of_another_type_is_refused() -> None:
    problems = refused('[mcp.x]\ncommand = ["a"]\ntools = ["a"]\n[[mcp.x.limits]]\npids = 1\n')
    assert [p.what for p in problems] == [
        "must be a table, found an array",
        "must be a table, found an array of tables",
    ]
    assert [p.fix for p in problems] == ["write tools.allow = ...", "write limits.memory_mb = ..."]


@pytest.mark.parametrize(
    ("text", "what", "fix"),
    [
        (
            "[[mcp.x]]\n",
            "must be one table, found an array of tables",
            "write [mcp.x], in single brackets and once",
        ),
        ("[mcp]\nx = []\n", "must be one table, found an array", "write [mcp.x], in single brackets and once"),
        ("mcp.x = 3\n", "must be a server's table, found integer 3", "write a table [mcp.x] with a command"),
        (
            '[mcp]\nx = "s3cret"\n',
            "must be a server's table, found a string",
            "write a table [mcp.x] with a command",
        ),
    ],
)
def test_a_server_that_is_no_table_is_refused(text: str, what: str, fix: str) -> None:
    (problem,) = refused(text)
    assert (problem.what, problem.fix) == (what, fix)


def test_a_servers_key_in_the_table_above_is_explained() -> None:
    (problem,) = refused("[mcp]\nlazy = true\n", "lazy")
    assert problem.fix == "write lazy below the [mcp.<name>] of the server that it is meant for"


@pytest.mark.parametrize(
    ("table", "where", "both"),
    [
        ('api_key_env = "A"\nenv = { A = "1" }', "env.A", "in api_key_env and in env"),
        ('env = { A = "1" }\nenv_from = ["B", "A"]', "env_from[1]", "in env and in env_from"),
        ('env_from = ["A"]\nenv_files = { A = "/a" }', "env_files.A", "in env_from and in env_files"),
        ('env_from = ["A", "A"]', "env_from[1]", "twice in env_from"),
    ],
)
def test_a_variable_has_one_source(table: str, where: str, both: str) -> None:
    (problem,) = refused(f'[mcp.x]\ncommand = ["a"]\n{table}\n')
    assert (problem.where, problem.what) == (f"[mcp.x] {where}", f"the variable A is named {both}")


@pytest.mark.parametrize(
    "line",
    ['api_key_env = "s3cret-s3cret"', 'env_from = "s3cret.s3cret"', 'api_key = "s3cret"', 'token = "s3cret"'],
)
def test_a_secret_in_the_wrong_place_is_not_shown(line: str) -> None:
    (problem,) = refused(f'[mcp.x]\ncommand = ["a"]\n{line}\n')
    assert "s3cret" not in str(problem)


def test_the_command_and_args_of_other_programs_become_one_list() -> None:
    problems = refused('[mcp.x]\ncommand = "npx -y"\nargs = ["some server", "--all"]\n')
    assert problems[0].fix == 'write command = ["npx", "-y"]'
    assert problems[1].fix == 'write command = ["npx", "-y", "some server", "--all"]'
    assert (
        refused('[mcp.x]\ncommand = ["a"]\nargs = "-v"\n')[0].fix
        == 'write command = ["executable", "argument", "..."]'
    )


# --- an error of the whole file ---------------------------------------------------------------------------------


def test_a_bad_broker_table_raises_with_all_problems_of_the_file() -> None:
    problems = fatal('[mcp.x]\ncommand = 1\n[broker]\nsockets = "a"\nlog_level = "warn"\n[mcp.y]\n')
    assert [p.where for p in problems] == [
        "[mcp.x] command",
        "[broker] sockets",
        "[broker] log_level",
        "[mcp.y] command",
    ]


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("mcp = 3", "[mcp]", "must be a table of servers, found integer 3"),
        ("[[mcp]]", "[mcp]", "must be a table of servers, found an array of tables"),
        ('broker = "x"', "[broker]", 'must be a table, found string "x"'),
        ("[[broker]]", "[broker]", "must be a table, found an array of tables"),
    ],
)
def test_a_table_of_another_type_is_an_error_of_the_file(text: str, where: str, what: str) -> None:
    (problem,) = fatal(text)
    assert (problem.line, problem.where, problem.what) == (1, where, what)


@pytest.mark.parametrize(
    ("text", "line", "column", "where", "what", "fix"),
    [
        ("[mcp.a]\nx = yes\n", 2, 5, "[mcp.a] x", "Invalid value", "write a string in quotes"),
        ('[mcp.a]\nx = "y\n', 2, 7, "[mcp.a] x", "Illegal character", "close the string"),
        ('command = ["a"\n\n', 3, 1, "[command]", "Unclosed array", "close the array with ]"),
        ("x = 1\n\nx = 2\n", 3, 6, "[x]", "x is defined a second time, first on line 1", "keep one of the two"),
        ("[mcp.a]\n[mcp.a]\n", 2, 7, "[mcp.a]", "mcp.a is defined a second time, first on line 1", "keep one"),
        ('x = "C:\\dir"\n', 1, 10, "[x]", "Unescaped '\\' in a string", "write \\\\ for a backslash"),
        ("{}\n", 1, 1, "", "Invalid statement", "begin the line with a key"),
    ],
)
def test_what_is_not_toml_is_placed_and_explained(
    text: str, line: int, column: int, where: str, what: str, fix: str
) -> None:
    (problem,) = fatal(text)
    assert (problem.line, problem.column, problem.where) == (line, column, where)
    assert problem.what.startswith(f"not TOML: {what}")
    assert problem.fix.startswith(fix)


def test_a_byte_order_mark_is_named_and_the_rest_is_checked_all_the_same() -> None:
    problems = fatal(b"\xef\xbb\xbf[mcp.x]\n")
    assert [p.where for p in problems] == ["", "[mcp.x] command"]
    assert "byte-order mark" in problems[0].what
    assert problems[0].fix == "save the file as UTF-8 without a BOM"


def test_bytes_that_are_not_utf8_are_placed() -> None:
    (problem,) = fatal(b"# caf\xe9\n" + GOOD.encode())
    assert (problem.line, problem.column, problem.what) == (1, 6, "byte 0xE9 is not UTF-8")


def test_a_place_that_is_neither_utf8_nor_toml_is_reported_once() -> None:
    assert [p.what for p in fatal(b"x = \xff\n")] == ["byte 0xFF is not UTF-8"]
    assert [p.line for p in fatal(b"# \xff\nx = yes\n")] == [1, 2]


def test_crlf_line_ends_are_fine_and_lines_are_counted_right() -> None:
    assert parse(GOOD.replace("\n", "\r\n"), "t.toml") == parse(GOOD, "t.toml")
    (problem,) = refused('[mcp.x]\r\ncommand = ["a"]\r\nlazi = true\r\n')
    assert (problem.line, problem.column, problem.source) == (3, 1, "lazi = …")


def test_nesting_too_deep_for_the_reader_is_a_problem_like_any_other() -> None:
    (problem,) = fatal("x = " + "[" * 50_000)
    assert (problem.line, problem.what) == (0, "values are nested too deeply to be read")


def test_a_number_too_long_for_the_reader_is_placed() -> None:
    (problem,) = fatal("a = 1\nx = " + "9" * 5000 + "\n")
    assert (problem.line, problem.column, problem.what) == (2, 5, "a number is too long to be read")


def test_a_source_line_is_cut_and_safe_to_print() -> None:
    (problem,) = refused(f'[mcp.x]\ncommand = ["a"]\nqueue = "\u202e{"y" * 500}"\n')
    assert len(problem.source) == 200
    assert "\u202e" not in str(problem)


# --- totality ---------------------------------------------------------------------------------------------------


def outcome(text: str) -> None:
    try:
        problems = parse(text, "t.toml").problems
    except ConfigError as error:
        problems = error.problems
        assert problems
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    for problem in problems:
        assert problem.what
        assert problem.fix
        assert 0 <= problem.line <= len(lines)
        assert problem.line == 0 or 1 <= problem.column <= len(lines[problem.line - 1]) + 1
        assert str(problem)


@given(st.text() | st.text(alphabet="[]mcpbroke.xy=\"'{}#\n\r \\1\ufeff\ud800"))
def test_any_text_is_a_configuration_or_a_configuration_error(text: str) -> None:
    outcome(text)


@settings(deadline=None)
@given(st.integers(0, len(EXAMPLE)), st.integers(0, 40), st.text(max_size=6) | st.sampled_from("[]{}\"'=#.\n"))
def test_any_edit_of_the_example_is_a_configuration_or_a_configuration_error(at: int, cut: int, new: str) -> None:
    outcome(EXAMPLE[:at] + new + EXAMPLE[at + cut :])


VALUES = r"""1 -1 nan -inf 1e400 true "" "\u0000" "a" ["\u202e"] [] [1,[2]] {} {a={}} [{}] [[[]]] 1979-05-27
    07:32:00 {"9"=1} "${" "~" """


@given(
    st.sampled_from(
        ["command", "env", "env_from", "env_files", "api_key_env", "queue", "tools", "limits", "lazy"]
    ),
    st.sampled_from([*VALUES.split(), "0x" + "f" * 9000, "{ a" + ".a" * 300 + " = 1 }"]),
)
def test_any_value_of_any_key_is_read_or_refused(key: str, value: str) -> None:
    outcome(f"[mcp.x]\n{key} = {value}\n[broker]\nsocket = {value}\nadmin_users = {value}\n")
