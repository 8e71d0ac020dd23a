"""Secrets and the environment through the real daemon: what a server gets, and that nothing of it comes out."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from support import script, unruly
from support.daemon import Daemon, toml
from support.unruly import command_line, scripted, until
from treadle.record import MARK
from treadle_client import ServerErrored, ServerUnavailable

from .conftest import Serve, Verb

PROBE = [sys.executable, "-I", "-S", str(Path(unruly.__file__).with_name("probe_server.py"))]
SECRETS = {
    "SECRET_REGEX": r"a.*+?[x](y)|$^\d{2}-regex",
    "SECRET_JSON": 'quo"te\\back/slash\té-json',
    "SECRET_KEY": "sk-0123456789abcdef",
}
LINES = "first-line-of-the-secret\nsecond-line-of-the-secret"


def traces(secret: str) -> Iterator[str]:
    """Texts whose presence means that ``secret`` came out."""
    raw = secret.encode()
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(json.dumps(secret))[3:-3]
    yield repr(secret)[1:-1]
    yield quote(secret, safe="")
    yield base64.b64encode(raw).decode().rstrip("=")
    # The middle of what `user:` and the secret give, without the characters that share bits with the user's.
    yield base64.b64encode(b"user:" + raw).decode()[8:-4]


PIECE = 10
"""Not even so many characters of a secret in a row may come out."""


def pieces() -> set[str]:
    whole = {trace for secret in (*SECRETS.values(), *LINES.split("\n")) for trace in traces(secret)}
    return {trace[at : at + PIECE] for trace in whole for at in range(max(1, len(trace) - PIECE + 1))}


PIECES = sorted(pieces())


def assert_clean(text: str, where: str) -> None:
    for piece in PIECES:
        assert piece not in text, f"{piece!r} is in {where}: {text[max(0, text.index(piece) - 200) :][:400]}"


@pytest.fixture(scope="module")
def leaky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon at log level debug whose servers know all secrets."""
    folder = tmp_path_factory.mktemp("secrets")
    file = folder / "lines"
    file.write_text(LINES + "\n")
    known = {
        "command": PROBE,
        "api_key_env": "SECRET_KEY",
        "env_from": ["SECRET_REGEX", "SECRET_JSON"],
        "env_files": {"SECRET_LINES": str(file)},
    }
    tables = {
        "talks": known,
        "dies": known,
        "writes": known,
        "lenient": {**known, "bad_lines": "drop"},
        "fails": {**known, "env": {"LEAK_AT_START": "1"}},
    }
    with Daemon(folder, toml(tables, {"log_level": "debug"}), environ=SECRETS) as daemon:
        unruly.settle(daemon)
        yield daemon


def test_an_error_that_a_server_answers_is_redacted_in_message_and_data(leaky: Daemon) -> None:
    with leaky.client() as client, pytest.raises(ServerErrored) as caught:
        client.call("talks", "error")
    assert caught.value.message.count("[redacted]") >= 9
    assert_clean(str(caught.value), "the message")
    assert "leak-basic-auth" in json.dumps(caught.value.data)
    assert_clean(json.dumps(caught.value.data, ensure_ascii=False), "the data")
    assert_clean(json.dumps(caught.value.data), "the data, escaped")


def test_the_stderr_tail_is_redacted(leaky: Daemon) -> None:
    with leaky.client() as client:
        client.call("talks", "stderr")
        until(lambda: "leak-basic-auth" in client.logs("talks"), "the tail")
        tail = client.logs("talks")
        clipped = [client.logs("talks", most) for most in range(1, len(tail.encode()), 97)]
    assert tail.count("[redacted]") >= 9 * 4
    for text in (tail, *clipped):
        assert_clean(text, "the tail")


def test_the_reason_of_a_death_that_quotes_stderr_is_redacted(leaky: Daemon) -> None:
    with leaky.client() as client:
        with pytest.raises(ServerUnavailable, match="status 3") as caught:
            client.call("dies", "die")
        assert "[redacted]" in str(caught.value)
        assert_clean(str(caught.value), "the failure")
        with pytest.raises(ServerUnavailable, match=r"\[redacted\]") as later:
            client.call("dies", "environ")
        assert_clean(str(later.value), "the later failure")


def test_the_reason_of_a_failed_start_is_redacted(leaky: Daemon) -> None:
    row = leaky.server("fails")
    assert "[redacted]" in row["reason"]
    assert_clean(json.dumps(row, ensure_ascii=False), "the status")


def test_an_offending_line_is_redacted_where_it_is_quoted(leaky: Daemon) -> None:
    with leaky.client() as client, pytest.raises(ServerUnavailable, match="leak-plain") as caught:
        client.call("writes", "bad_line")
    assert "[redacted]" in str(caught.value)
    assert_clean(str(caught.value), "the failure")


def test_a_dropped_line_is_redacted_in_the_log(leaky: Daemon) -> None:
    with leaky.client() as client:
        client.call("lenient", "bad_line")

    def logged() -> list[str]:
        return [line for line in leaky.log().splitlines() if "lenient" in line and "leak-" in line]

    until(lambda: bool(logged()), "the dropped line in the log")
    assert_clean("\n".join(logged()), "the log")


def test_no_secret_is_in_the_log_the_status_the_command_line_or_any_file(leaky: Daemon, typed: Verb) -> None:
    with leaky.client() as client:
        client.call("talks", "stderr")
        status = client.status(processes=True)
        listing = client.list()
    until(lambda: "leak-plain" in leaky.log(), "what the server wrote in the log")
    assert_clean(leaky.log(), "the daemon's log at level debug")
    for value in (status, listing):
        assert_clean(json.dumps(value, ensure_ascii=False), "an answer")
    for words in (["status"], ["status", "--json"], ["list"], ["call", "talks", "error"]):
        done = typed(leaky, *words)
        assert_clean(done.out + done.err, f"the output of {words}")
    for path in leaky.state.rglob("*"):
        if path.is_file():
            assert_clean(path.read_text("utf-8", "replace"), str(path))


def test_no_secret_is_in_the_command_line_or_title_of_any_process(leaky: Daemon) -> None:
    pids = [leaky.pid, *(process.pid for process in unruly.family(leaky))]
    assert len(pids) > 3
    for pid in pids:
        assert_clean(command_line(pid).decode("utf-8", "replace"), f"the command line of {pid}")
        assert_clean(Path(f"/proc/{pid}/comm").read_text(), f"the title of {pid}")


# --- the environment -------------------------------------------------------------------------------

INHERITED = {
    "USER": "u",
    "LOGNAME": "l",
    "SHELL": "/bin/sh",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "TERM": "dumb",
    "XDG_DATA_HOME": "/nowhere",
}
KEPT_BACK = {
    "SSH_AUTH_SOCK": "x",
    "PYTHONPATH": "",
    "AWS_SECRET_ACCESS_KEY": "x",
    "LISTEN_FDS_OTHER": "x",
    "LD_LIBRARY_PATH": "/x",
    "GIVEN": "from outside",
}


@pytest.fixture(scope="module")
def probed(serve_module: Serve) -> Daemon:
    """A daemon whose servers tell what they were started with; limits are set by a start of another kind."""
    tables = {
        "asks": {"command": PROBE, "env": {"MODE": "test", "LANG": "C"}, "env_from": ["GIVEN"]},
        "tells": {"command": scripted()},
    }
    tables |= {f"{name}_limited": {**table, "limits": {"open_files": 100}} for name, table in tables.items()}
    daemon = serve_module(tables, environ={**INHERITED, **KEPT_BACK})
    unruly.settle(daemon)
    return daemon


@pytest.mark.parametrize("name", ["asks", "asks_limited"])
def test_a_server_gets_the_minimal_environment_and_what_its_table_names(probed: Daemon, name: str) -> None:
    with probed.client() as client:
        environ = json.loads(client.call(name, "environ").text)
    assert len(environ.pop(MARK)) == 32
    own = {key: probed.environ[key] for key in ("PATH", "HOME", "TMPDIR", "XDG_STATE_HOME")}
    assert environ == {**INHERITED, **own, "LANG": "C", "MODE": "test", "GIVEN": "from outside"}


@pytest.mark.parametrize("name", ["tells", "tells_limited"])
def test_a_server_inherits_no_descriptor_but_0_to_2_and_runs_in_its_own_directory(
    probed: Daemon, name: str
) -> None:
    with probed.client() as client:
        client.restart(name)  # the daemon has pipes, connections and pidfds open by now
        assert list(json.loads(client.call(name, "fds").text)) == ["0", "1", "2"]
        assert json.loads(client.call(name, "cwd").text) == str(probed.state / "treadle" / "servers" / name)


LACKING: dict[str, tuple[dict[str, object], str]] = {
    # server: what its table asks for, and what the refusal says
    "api_key_env": ({"api_key_env": "NOT_THERE"}, "NOT_THERE"),
    "env_from": ({"env_from": ["HOME", "NOT_THERE"]}, "NOT_THERE"),
    "empty": ({"env_from": ["EMPTY"]}, "EMPTY"),
    "env_files": ({"env_files": {"TOKEN": "/nonexistent/token"}}, "No such file or directory"),
    "no_credentials": ({"env_files": {"TOKEN": "${CREDENTIALS_DIRECTORY}/token"}}, "CREDENTIALS_DIRECTORY"),
    "endless_file": ({"env_files": {"TOKEN": "/dev/zero"}}, "NUL character"),
    "long_file": ({"env_files": {"TOKEN": "/proc/kallsyms"}}, "more than 128 KiB"),
}


@pytest.fixture(scope="module")
def refusing(serve_module: Serve) -> Daemon:
    """A daemon with all of LACKING, each of which would leave a file in its home."""
    tables = {name: {"command": unruly.shell("touch $HOME/ran"), **table} for name, (table, _) in LACKING.items()}
    daemon = serve_module(tables, environ={"EMPTY": ""})
    unruly.settle(daemon)
    return daemon


@pytest.mark.parametrize("name", LACKING)
def test_what_is_unset_or_unreadable_refuses_the_server_before_anything_is_spawned(
    refusing: Daemon, name: str
) -> None:
    said = LACKING[name][1]
    row = refusing.server(name)
    assert (row["state"], row["generation"]) == ("refused", 0)
    assert said in row["reason"]
    with refusing.client() as client, pytest.raises(ServerUnavailable, match=said) as caught:
        client.call(name, "echo")
    assert caught.value.outcome == "not_sent"
    assert not (Path(refusing.environ["HOME"]) / "ran").exists()


def test_a_systemd_credential_is_read_at_each_start_and_a_rotated_one_reaches_the_next_incarnation(
    serve: Serve, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("old-token-value\n")
    table = {"command": PROBE, "env_files": {"SECRET_TOKEN": "${CREDENTIALS_DIRECTORY}/token"}}
    daemon = serve({"one": table}, environ={"CREDENTIALS_DIRECTORY": str(tmp_path)})
    with daemon.client() as client:

        def seen() -> str:
            value: str = json.loads(client.call("one", "environ").text)["SECRET_TOKEN"]
            return value

        assert seen() == "old-token-value"
        token.write_text("new-token-value\n")
        assert seen() == "old-token-value"
        client.restart("one")
        assert seen() == "new-token-value"
        client.call("one", "stderr")
        until(lambda: "leak-plain: [redacted]" in client.logs("one"), "the new value redacted")
        token.unlink()
        again = client.restart("one")
        assert again["evidence"]["kind"] == "exited"
        assert again["state"] == "retired"
        assert "No such file or directory" in again["reason"]
    assert "new-token-value" not in daemon.log()


def test_a_pipe_that_nobody_writes_to_refuses_its_server_and_holds_nobody_up(serve: Serve, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    daemon = serve({"one": {"command": PROBE, "env_files": {"TOKEN": str(pipe)}}, "two": {"command": PROBE}})
    rows = unruly.settle(daemon)
    assert (rows["one"]["state"], rows["two"]["state"]) == ("refused", "ready")
    assert "empty file" in rows["one"]["reason"]


def test_plain_env_values_are_no_secrets(serve: Serve) -> None:
    table = {"command": scripted(script.stderr("mode is development\n")), "env": {"MODE": "development"}}
    daemon = serve({"one": table})
    unruly.settle(daemon)
    with daemon.client() as client:
        until(lambda: "mode is development" in client.logs("one"), "the line")


def test_the_guard_has_no_environment(serve: Serve) -> None:
    daemon = serve({"one": {"command": PROBE, "api_key_env": "SECRET_KEY"}}, environ=SECRETS)
    guard = unruly.guard_of(daemon)
    until(lambda: Path(f"/proc/{guard}/environ").read_bytes() == b"", "the empty environment")
    assert os.getsid(guard) == guard
