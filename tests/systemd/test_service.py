"""The system service in a private systemd (``make test-systemd``): life, readiness, containment, credentials."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from support.daemon import toml
from systemd.conftest import (
    CONFIG,
    DEMO,
    HOME,
    PYTHON,
    SOCKET,
    TREADLE,
    Service,
    alive,
    environ_of,
    journal,
    prop,
    run,
    systemctl,
    until,
)
from systemd.sandbox import CHECKOUT

SLOW_START = ["sh", "-c", f"sleep 1.5; exec {PYTHON} -m treadle.demo_server"]
STUBBORN = ["sh", "-c", f"trap '' TERM; {PYTHON} -m treadle.demo_server; while :; do sleep 1; done"]
"""Survives the end of its input and SIGTERM."""
ESCAPING = [
    "sh",
    "-c",
    f"setsid env --ignore-signal=TERM sleep 1000 <&- >&- 2>&- & exec {PYTHON} -m treadle.demo_server",
]
"""Leaves a process in a session of its own."""
MANAGER_VARIABLES = {
    "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES",
    "CREDENTIALS_DIRECTORY", "JOURNAL_STREAM", "INVOCATION_ID", "STATE_DIRECTORY", "PYTHONFAULTHANDLER",
}  # fmt: skip


def add(service: Service, server: str = "demo") -> str:
    with service.client() as client:
        return client.call(server, "add", {"a": 1, "b": 2}).text


def processes() -> list[int]:
    return [int(word) for word in run("pgrep", "-u", "treadle", check=False).stdout.split()]


def cgroup_of(pid: int) -> str:
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return next(line.removeprefix("0::") for line in lines if line.startswith("0::"))


# --- activation and readiness ------------------------------------------------------------------------


def test_the_first_client_starts_the_daemon_and_is_served(service: Service) -> None:
    service.configure({"demo": {"command": DEMO}})
    assert prop("ActiveState") == "inactive"
    assert add(service) == "3"
    assert prop("ActiveState") == "active"


def test_a_start_returns_when_every_eager_server_has_settled(service: Service) -> None:
    service.configure(
        {"slow": {"command": SLOW_START}, "broken": {"command": ["false"]}, "demo": {"command": DEMO}}
    )
    service.start()
    assert {name: row["state"] for name, row in service.rows().items()} == {
        "slow": "ready", "broken": "retired", "demo": "ready",
    }  # fmt: skip
    assert until(lambda: prop("StatusText") == "ready; servers: 2 ready, 1 retired", what=prop("StatusText"))


def test_ready_may_mean_that_the_socket_is_served(service: Service) -> None:
    service.configure({"slow": {"command": SLOW_START}}, {"ready": "listening"})
    service.start()
    assert service.rows()["slow"]["state"] == "starting"
    assert add(service, "slow") == "3"


def test_a_start_longer_than_the_managers_time_out_is_waited_for(service: Service) -> None:
    service.configure({"slow": {"command": SLOW_START}}, drop_in="TimeoutStartSec=1")
    service.start()
    assert prop("NRestarts") == "0"
    assert service.rows()["slow"]["state"] == "ready"


def test_a_configuration_that_cannot_be_used_is_not_tried_again(service: Service) -> None:
    service.configure({"demo": {"command": DEMO}}, {"max_connections": 0})
    assert run("systemctl", "start", "treadle.service", check=False).returncode != 0
    assert (prop("Result"), prop("ExecMainStatus"), prop("NRestarts")) == ("exit-code", "2", "0")
    assert "max_connections" in journal()


def test_a_shutdown_by_a_client_is_an_orderly_end(service: Service) -> None:
    service.configure({"demo": {"command": DEMO}})
    service.start()
    with service.client() as client:
        assert client.shutdown()["confirmed"]
    until(lambda: prop("ActiveState") == "inactive", what="the end")
    assert (prop("Result"), prop("NRestarts")) == ("success", "0")
    assert add(service) == "3"  # the socket is still there, and starts it anew


# --- reload ------------------------------------------------------------------------------------------


def test_a_reload_changes_what_differs_and_keeps_the_rest(service: Service) -> None:
    service.configure({"demo": {"command": DEMO}})
    service.start()
    before = service.rows()["demo"]["pid"]
    service.configure({"demo": {"command": DEMO}, "second": {"command": DEMO}})
    systemctl("reload", "treadle.service")
    rows = service.rows()
    assert rows["demo"]["pid"] == before
    until(lambda: service.rows()["second"]["state"] == "ready", what="the second server")
    assert prop("ActiveState") == "active"


def test_a_refused_reload_fails_and_changes_nothing(service: Service) -> None:
    service.configure({"demo": {"command": DEMO}})
    service.start()
    before = service.rows()
    CONFIG.write_text("[mcp.demo]\ncommand = 'not a list'\n")
    assert run("systemctl", "reload", "treadle.service", check=False).returncode != 0
    assert prop("ActiveState") == "active"
    assert service.rows()["demo"]["pid"] == before["demo"]["pid"]


def test_a_hangup_reloads_as_well_and_the_service_is_ready_again(service: Service) -> None:
    service.configure({"demo": {"command": DEMO}})
    service.start()
    service.configure({"demo": {"command": DEMO}, "second": {"command": DEMO}})
    systemctl("kill", "--kill-whom=main", "--signal=HUP", "treadle.service")
    until(lambda: "second" in service.rows(), what="the reload")
    until(lambda: prop("ActiveState") == "active", what="ready after the reload")


# --- failures ----------------------------------------------------------------------------------------


def test_a_blocked_loop_is_killed_and_the_service_comes_back(service: Service) -> None:
    trap = Path("/opt/blocker")
    trap.mkdir(exist_ok=True)
    (trap / "sitecustomize.py").write_text(
        "import signal, time\n"
        "def block_the_loop(*_): time.sleep(1000)\n"
        "signal.signal(signal.SIGUSR1, block_the_loop)\n"
    )
    drop_in = f"WatchdogSec=1\nEnvironment=PYTHONPATH={trap}"
    service.configure({"demo": {"command": DEMO}}, drop_in=drop_in)
    service.start()
    time.sleep(2.5)  # well past the watchdog's time: as long as the loop turns, nothing happens
    assert prop("NRestarts") == "0"
    before, server = service.pid, service.rows()["demo"]["pid"]
    systemctl("kill", "--kill-whom=main", "--signal=USR1", "treadle.service")
    until(lambda: prop("NRestarts") == "1" and prop("ActiveState") == "active", what="the restart")
    assert not alive(before)
    assert not alive(server)
    assert "block_the_loop" in journal()  # the place where it hung
    assert add(service) == "3"


def test_a_killed_daemon_leaves_nothing_and_comes_back(service: Service) -> None:
    service.configure(
        {"demo": {"command": DEMO}, "escaping": {"command": ESCAPING}, "stubborn": {"command": STUBBORN}}
    )
    service.start()
    before = processes()
    assert len(before) >= 6
    systemctl("kill", "--kill-whom=main", "--signal=KILL", "treadle.service")
    until(lambda: prop("NRestarts") == "1" and prop("ActiveState") == "active", what="the restart")
    assert [pid for pid in before if alive(pid)] == []
    assert {row["state"] for row in service.rows().values()} == {"ready"}
    assert prop("Result") == "success"


def test_what_the_manager_leaves_of_a_killed_daemon_is_ended_by_the_custody_record(service: Service) -> None:
    service.configure({"escaping": {"command": ESCAPING}}, drop_in="KillMode=process\nSendSIGKILL=no")
    service.start()
    before = processes()
    systemctl("kill", "--kill-whom=main", "--signal=KILL", "treadle.service")
    until(lambda: prop("NRestarts") == "1" and prop("ActiveState") == "active", what="the restart")
    until(lambda: not any(alive(pid) for pid in before), within=10, what="the end of what was left")
    assert add(service, "escaping") == "3"


def test_a_client_that_connects_while_the_daemon_is_dead_is_served_by_the_next(service: Service) -> None:
    service.configure({"demo": {"command": DEMO}}, drop_in="RestartSec=1")
    service.start()
    before = service.pid
    systemctl("kill", "--kill-whom=main", "--signal=KILL", "treadle.service")
    until(lambda: not alive(before), what="the kill")
    assert add(service) == "3"


# --- stop --------------------------------------------------------------------------------------------


def test_a_stop_ends_within_its_time_with_servers_that_ignore_sigterm(service: Service) -> None:
    stubborn = {"command": STUBBORN, "stop_timeout_ms": 1000}
    service.configure({"one": stubborn, "two": stubborn, "demo": {"command": DEMO}})
    service.start()
    before = processes()
    systemctl("stop", "treadle.socket", "treadle.service")
    assert (prop("Result"), prop("ExecMainStatus")) == ("success", "0")
    assert [pid for pid in before if alive(pid)] == []
    assert len(re.findall(r"retired: .*SIGKILL", journal())) >= 2, journal()


def test_a_stop_longer_than_the_managers_time_out_is_waited_for(service: Service) -> None:
    service.configure({"one": {"command": STUBBORN, "stop_timeout_ms": 3000}}, drop_in="TimeoutStopSec=1")
    service.start()
    systemctl("stop", "treadle.socket", "treadle.service")
    assert prop("Result") == "success"


# --- containment -------------------------------------------------------------------------------------


def test_each_server_has_a_cgroup_and_its_end_is_proven_by_it(service: Service) -> None:
    service.configure({"demo": {"command": DEMO}, "escaping": {"command": ESCAPING}})
    service.start()
    rows = service.rows()
    groups = {name: cgroup_of(row["pid"]) for name, row in rows.items()}
    assert len(set(groups.values())) == 2
    assert all("/treadle.service/treadle-" in group for group in groups.values())
    assert cgroup_of(service.pid).endswith("/treadle.service/treadle"), "the daemon itself must sit in a leaf"
    folder = Path("/sys/fs/cgroup") / groups["escaping"].lstrip("/")
    escaped = [
        pid for pid in map(int, (folder / "cgroup.procs").read_text().split()) if pid != rows["escaping"]["pid"]
    ]
    assert escaped
    with service.client() as client:
        assert client.status()["daemon"]["containment"] == "cgroup"
        evidence = client.stop("escaping")["evidence"]
    assert (evidence["kind"], evidence["drained"], evidence["by"]) == ("exited", True, "cgroup")
    assert evidence["stragglers"] == len(escaped)
    assert not any(alive(pid) for pid in escaped)
    assert not folder.exists()
    assert alive(rows["demo"]["pid"])


# --- what reaches a server ---------------------------------------------------------------------------


def test_a_credential_reaches_the_server_that_names_it_and_nobody_else(service: Service) -> None:
    secret = "s3cr3t-of-the-credential"
    place = Path("/etc/treadle/credentials/token")
    place.write_text(f"{secret}\n")
    place.chmod(0o600)
    sealed = Path("/etc/treadle/credentials/sealed.cred")
    run("systemd-creds", "encrypt", "--name=sealed", str(place), str(sealed))
    drop_in = f"LoadCredential=token:{place}\nLoadCredentialEncrypted=sealed:{sealed}"
    files = {"TOKEN": "${CREDENTIALS_DIRECTORY}/token", "SEALED": "${CREDENTIALS_DIRECTORY}/sealed"}
    service.configure(
        {"named": {"command": DEMO, "env_files": files}, "other": {"command": DEMO}}, drop_in=drop_in
    )
    service.start()
    rows = service.rows()
    environ = environ_of(rows["named"]["pid"])
    assert (environ["TOKEN"], environ["SEALED"]) == (secret, secret)
    assert secret not in str(environ_of(rows["other"]["pid"]))
    assert secret not in str(environ_of(service.pid))
    assert secret not in journal()
    assert secret not in run("systemctl", "show", "treadle.service").stdout
    assert run("runuser", "-u", "nobody", "--", "cat", str(place), check=False).returncode != 0


def test_nothing_of_the_service_manager_reaches_a_server(service: Service) -> None:
    service.configure({"demo": {"command": DEMO}})
    service.start()
    daemon, server = environ_of(service.pid), environ_of(service.rows()["demo"]["pid"])
    assert daemon.keys() & MANAGER_VARIABLES, "the daemon got none: this test would prove nothing"
    assert not server.keys() & MANAGER_VARIABLES
    assert (server["HOME"], server["SHELL"]) == ("/var/lib/treadle", "/bin/sh")
    descriptors = {os.readlink(link) for link in Path(f"/proc/{service.rows()['demo']['pid']}/fd").iterdir()}
    assert not [one for one in descriptors if one.startswith("socket:")]


NODE_SERVER = """\
const lines = require("readline").createInterface({input: process.stdin});
const hot = n => { let s = 0; for (let i = 0; i < n; i++) s += i % 7; return s; };
hot(5e6); // long enough for the machine code of the optimising compiler
lines.on("line", line => {
  const {id, method, params} = JSON.parse(line);
  if (id === undefined) return;
  const result = method === "initialize"
    ? {protocolVersion: params.protocolVersion, capabilities: {tools: {}}, serverInfo: {name: "n", version: "1"}}
    : method === "tools/list" ? {tools: [{name: "add", inputSchema: {type: "object"}}]}
    : {content: [{type: "text", text: String(params.arguments.a + params.arguments.b)}]};
  process.stdout.write(JSON.stringify({jsonrpc: "2.0", id, result}) + "\\n");
});
"""
BWRAP = [
    "bwrap", "--ro-bind", "/", "/", "--tmpfs", "/run", "--dev", "/dev", "--unshare-all", "--die-with-parent",
    "--new-session",
]  # fmt: skip


def test_servers_in_node_run_in_the_hardened_service(service: Service) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    program = HOME / "server.cjs"
    program.write_text(NODE_SERVER)
    service.configure({"node": {"command": ["node", str(program)]}})
    service.start()
    assert add(service, "node") == "3"


def test_a_server_below_bubblewrap_runs_and_sees_neither_credentials_nor_the_socket(service: Service) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bwrap is not installed")
    place = Path("/etc/treadle/credentials/hidden")
    place.write_text("a secret")
    service.configure({"inside": {"command": [*BWRAP, *DEMO]}}, drop_in=f"LoadCredential=hidden:{place}")
    service.start()
    assert add(service, "inside") == "3"
    group = Path("/sys/fs/cgroup") / cgroup_of(service.rows()["inside"]["pid"]).lstrip("/")
    pids = [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
    server = next(pid for pid in pids if Path(f"/proc/{pid}/comm").read_text().startswith("python"))
    assert Path(f"/proc/{service.pid}/root/run/credentials/treadle.service/hidden").exists()
    assert list(Path(f"/proc/{server}/root/run").iterdir()) == []


def test_limits_of_a_server_hold_in_the_hardened_service(service: Service) -> None:
    service.configure({"demo": {"command": DEMO, "limits": {"open_files": 123}}})
    service.start()
    limits = Path(f"/proc/{service.rows()['demo']['pid']}/limits").read_text()
    assert re.search(r"Max open files\s+123\s+123", limits)


# --- who may connect ---------------------------------------------------------------------------------


def listed_as(*credentials: str) -> Any:
    return run("setpriv", *credentials, "--", str(TREADLE), "--socket", SOCKET, "list", check=False, cwd="/")


def test_the_socket_is_for_the_group_and_for_whom_the_configuration_names(service: Service) -> None:
    stranger = ("--reuid", "nobody", "--regid", "nogroup", "--clear-groups")
    member = ("--reuid", "nobody", "--regid", "nogroup", "--groups", "treadle")
    service.configure({"demo": {"command": DEMO}})
    service.start()
    assert listed_as(*stranger).returncode == 3  # the file's permissions
    assert listed_as(*member).returncode == 6  # the daemon: nobody named the group
    service.configure({"demo": {"command": DEMO}}, {"allow_groups": ["treadle"]})
    systemctl("reload", "treadle.service")
    assert listed_as(*stranger).returncode == 3
    assert listed_as(*member).returncode == 0


# --- the journal -------------------------------------------------------------------------------------


def entries(*matches: str) -> list[dict[str, Any]]:
    """What this run of the service wrote to the journal."""
    invocation = f"_SYSTEMD_INVOCATION_ID={prop('InvocationID')}"
    lines = run("journalctl", "--no-pager", "--all", "-o", "json", invocation, *matches).stdout.splitlines()
    return [json.loads(line) for line in lines]


def entry_of(text: str, *matches: str) -> dict[str, Any]:
    """The one entry whose message has ``text`` in it."""
    found = until(lambda: [one for one in entries(*matches) if text in one["MESSAGE"]], what=f"the entry: {text}")
    assert len(found) == 1, found
    return found[0]


def test_entries_are_matched_by_the_name_of_their_server(service: Service) -> None:
    service.configure({"one": {"command": DEMO}, "two": {"command": DEMO}, "broken": {"command": ["/absent"]}})
    service.start()
    systemctl("stop", "treadle.service")
    entry_of("two: retired")
    for server in ("one", "two", "broken"):
        found = entries(f"TREADLE_SERVER={server}")
        assert found
        assert found == [one for one in entries() if re.search(rf"\b{server}\b", one["MESSAGE"])]
    of_one = run("journalctl", "--no-pager", "-u", "treadle", "TREADLE_SERVER=one", "-o", "cat").stdout
    assert "one: ready" in of_one
    assert "two" not in of_one


def test_an_entry_has_the_fields_that_a_line_of_standard_error_would_have(service: Service) -> None:
    service.configure({"broken": {"command": ["/absent"]}, "demo": {"command": DEMO}})
    service.start()
    ready = entry_of("demo: ready")
    assert ready["_SYSTEMD_UNIT"] == "treadle.service"
    assert (ready["SYSLOG_IDENTIFIER"], ready["SYSLOG_FACILITY"], ready["PRIORITY"]) == ("treadle", "3", "6")
    assert (ready["_TRANSPORT"], ready["LOGGER"]) == ("journal", "treadle.supervisor")
    urgent = run("journalctl", "--no-pager", "-u", "treadle", "-p", "warning", "-o", "cat").stdout
    assert "/absent" in urgent
    assert "demo: ready" not in urgent
    assert entry_of("/absent")["PRIORITY"] in ("3", "4")


def test_an_event_of_several_lines_is_one_entry(service: Service) -> None:
    service.configure({"odd": {"command": DEMO, "comand": "x"}, "demo": {"command": DEMO}})
    service.start()
    problem = entry_of("comand", "TREADLE_SERVER=odd", "LOGGER=treadle")
    assert problem["PRIORITY"] == "3"
    assert len(problem["MESSAGE"].splitlines()) == 3


def test_why_the_daemon_cannot_start_is_one_entry_with_the_priority_of_an_error(service: Service) -> None:
    service.configure({"demo": {"command": DEMO}}, {"max_connections": 0, "drain_timeout_ms": "x"})
    run("systemctl", "start", "treadle.service", check=False)
    reason = entry_of("the configuration cannot be used")
    assert reason["PRIORITY"] == "3"
    assert "max_connections" in reason["MESSAGE"]
    assert "drain_timeout_ms" in reason["MESSAGE"]


def test_json_entries_have_the_object_as_message_and_the_fields_beside_it(service: Service) -> None:
    service.configure({"demo": {"command": DEMO}, "other": {"command": DEMO}}, {"log_format": "json"})
    service.start()
    ready = entry_of("demo: ready", "TREADLE_SERVER=demo")
    assert json.loads(ready["MESSAGE"])["server"] == "demo"
    page = (CHECKOUT / "docs/service.md").read_text()
    command = next(line for line in page.splitlines() if " jq " in line)
    if shutil.which("jq") is None:
        command = command.partition(" | ")[0]
    told = run("sh", "-c", command.replace("github", "demo")).stdout
    assert "demo: ready" in told
    assert "other: ready" not in told


def test_an_entry_too_large_for_a_datagram_is_taken_from_the_services_user(service: Service) -> None:
    code = (
        "from treadle.journal import Journal, encode\n"
        "Journal().send(encode([('MESSAGE', 'x' * 3_000_000 + '\\nend'), ('TREADLE_SERVER', 'large')]))\n"
    )
    run("setpriv", "--reuid=treadle", "--regid=treadle", "--clear-groups", "--", str(PYTHON), "-c", code, cwd="/")
    told = ["journalctl", "--no-pager", "-o", "cat", "TREADLE_SERVER=large"]
    text = until(lambda: run(*told).stdout, what="the entry")
    assert text == "x" * 3_000_000 + "\nend\n"


def test_a_restart_of_the_journal_loses_no_entry(service: Service) -> None:
    service.configure({"demo": {"command": DEMO}})
    service.start()
    with service.client() as client:
        for generation in range(2, 6):
            systemctl("kill", "--signal=KILL", "systemd-journald.service")
            client.restart("demo")
            until(lambda: service.rows()["demo"]["state"] == "ready", what="the restart")
            entry_of(f"generation {generation}", "TREADLE_SERVER=demo")


def test_where_the_journals_socket_cannot_be_had_its_entries_are_lines_and_say_why(service: Service) -> None:
    service.configure({"demo": {"command": DEMO}}, drop_in="InaccessiblePaths=/run/systemd/journal/socket")
    service.start()
    assert entry_of("demo: ready")["PRIORITY"] == "6"
    assert entry_of("no entry can be sent to /run/systemd/journal/socket")["PRIORITY"] == "4"
    assert entries("TREADLE_SERVER=demo") == []


# --- the verb ----------------------------------------------------------------------------------------


def test_the_first_commands_of_the_page_work_as_written(service: Service, tmp_path: Path) -> None:
    page = (CHECKOUT / "docs/service.md").read_text()
    commands = page.partition("```sh\n")[2].partition("```")[0]
    assert len(commands.splitlines()) == 3
    (tmp_path / "treadle.toml").write_text(toml({"demo": {"command": DEMO}}))
    path = f"{HOME}/bin:{os.environ['PATH']}"
    done = run("sh", "-ec", commands, cwd=tmp_path, env={"PATH": path, "HOME": "/root"})
    assert re.search(r"demo +ready", done.stdout), done.stdout


def test_install_service_is_idempotent_and_removes_only_a_stopped_service(service: Service) -> None:
    service.configure({"demo": {"command": DEMO}})
    again = run(str(TREADLE), "install-service", cwd="/").stdout
    assert again.count("unchanged") == 4
    refused = run(str(TREADLE), "install-service", "--remove", check=False, cwd="/")
    assert refused.returncode == 6
    assert "disable --now" in refused.stderr
    systemctl("stop", "treadle.socket", "treadle.service")
    try:
        assert run(str(TREADLE), "install-service", "--remove", cwd="/").stdout.count("removed") == 4
        assert not Path("/etc/systemd/system/treadle.service").exists()
    finally:
        run(str(TREADLE), "install-service", "--enable", cwd="/")


def test_systemd_finds_the_installed_unit_hardened(service: Service) -> None:
    verified = run("systemd-analyze", "verify", "--man=no", "treadle.service", "treadle.socket")
    assert verified.stderr == ""
    run("systemd-analyze", "security", "--no-pager", "--threshold=25", "treadle.service")
