"""Reading the configuration file, and what a reload can change (configuration page)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from support.household import Household
from support.virtual import virtual
from treadle.broker import Broker
from treadle.config import BrokerConfig, Config, ServerConfig
from treadle.errors import ConfigError, EnvironmentRefused
from treadle.peers import Access
from treadle.reload import FIXED, Reloader, access_of, changes, find, load

GOOD = '[mcp.odd]\ncommand = ["twin"]\n'
MORE = GOOD + '[mcp.more]\ncommand = ["twin"]\n'


# --- the file --------------------------------------------------------------------------------------


def test_the_file_that_is_named_is_taken_whether_it_exists_or_not() -> None:
    assert find("/no/such/file", {}) == "/no/such/file"


def test_without_a_name_the_first_default_that_exists_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "treadle" / "treadle.toml"
    path.parent.mkdir()
    path.touch()
    assert find(None, {"XDG_CONFIG_HOME": str(tmp_path)}) == str(path)


def test_without_any_the_places_are_listed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no configuration file; looked for") as caught:
        find(None, {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)})
    assert str(tmp_path / "treadle" / "treadle.toml") in str(caught.value)


@pytest.mark.parametrize("kind", ["missing", "directory"])
def test_a_file_that_cannot_be_read_is_a_problem_and_no_traceback(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.toml"
    if kind == "directory":
        path.mkdir()
    with pytest.raises(ConfigError, match=r"x\.toml: cannot be read: .*directory"):
        load(str(path))


def test_a_refused_server_is_an_error_only_where_it_is_strict(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("[mcp.odd]\n")
    assert load(str(path)).problems
    with pytest.raises(ConfigError, match="command"):
        load(str(path), strict=True)


def test_an_unknown_account_is_a_problem_of_the_file() -> None:
    config = Config(file="x.toml", broker=BrokerConfig(admin_users=("no-such-user",)))
    with pytest.raises(ConfigError, match=r"x\.toml: \[broker\]: no user 'no-such-user'"):
        access_of(config)


# --- the reload ------------------------------------------------------------------------------------


class Reloading:
    """A broker of twins, a file, and what the reloader told."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path / "x.toml"
        self.path.write_text(GOOD)
        self.house = Household()
        self.config = load(str(self.path))
        self.broker = Broker(self.config, self.house.make)
        self.broker.prepare()
        self.broker.begin()
        self.applied: list[tuple[Config, Access]] = []
        self.refused: set[str] = set()
        apply = lambda config, access: self.applied.append((config, access))  # noqa: E731
        self.reloader = Reloader(self.config, self.broker, check=self._check, apply=apply)

    def _check(self, server: ServerConfig) -> None:
        if server.name in self.refused:
            raise EnvironmentRefused(server.name, "KEY", "is not set", "api_key_env")

    async def reload(self, text: str) -> dict[str, Any]:
        self.path.write_text(text)
        return await self.reloader.reload()

    @property
    def names(self) -> list[str]:
        return [supervisor.name for supervisor in self.broker.servers]


@virtual
async def test_a_reload_applies_what_changed_once(tmp_path: Path) -> None:
    here = Reloading(tmp_path)
    await here.broker.settled()
    done = await here.reload(MORE)
    assert (done["added"], done["unchanged"], done["needs_restart"]) == (["more"], ["odd"], [])
    assert [config.servers for config, _ in here.applied] == [here.broker.config.servers]
    assert len(here.house.made["odd"]) == 1
    await here.broker.shutdown()


@virtual
async def test_a_server_that_would_be_refused_refuses_the_reload(tmp_path: Path) -> None:
    here = Reloading(tmp_path)
    await here.broker.settled()
    here.refused = {"odd", "more"}
    with pytest.raises(ConfigError) as caught:
        await here.reload(MORE)
    # The one that runs already is not asked again.
    (problem,) = caught.value.problems
    assert str(problem).startswith(f"{here.path}: [mcp.more]: KEY (api_key_env) is not set; ")
    assert (here.names, here.applied) == (["odd"], [])
    await here.broker.shutdown()


@virtual
@pytest.mark.parametrize("text", ["", "[server.odd]\ncommand = ['twin']\n"])
async def test_a_file_without_servers_does_not_stop_those_that_run(tmp_path: Path, text: str) -> None:
    here = Reloading(tmp_path)
    await here.broker.settled()
    with pytest.raises(
        ConfigError, match=r"there is no \[mcp.<name>\] table, while the daemon serves 1"
    ) as caught:
        await here.reload(text)
    assert "treadle shutdown" in str(caught.value)
    assert ("write [mcp.odd]" in str(caught.value)) == bool(text)
    assert (here.names, here.applied) == (["odd"], [])
    await here.broker.shutdown()


@virtual
async def test_a_file_without_servers_is_taken_where_none_runs(tmp_path: Path) -> None:
    here = Reloading(tmp_path)
    await here.broker.settled()
    await here.reload(GOOD + "enabled = false\n")
    assert [row["name"] for row in (await here.reload(""))["removed"]] == ["odd"]
    await here.broker.shutdown()


@virtual
async def test_two_reloads_at_once_come_one_after_the_other(tmp_path: Path) -> None:
    here = Reloading(tmp_path)
    await here.broker.settled()
    here.path.write_text(MORE)
    first, second = await asyncio.gather(here.reloader.reload(), here.reloader.reload())
    assert (first["added"], second["added"], second["unchanged"]) == (["more"], [], ["odd", "more"])
    await here.broker.shutdown()


@pytest.mark.parametrize("key", FIXED)
def test_a_key_that_holds_until_the_next_start_is_told_when_it_changes(key: str) -> None:
    before = BrokerConfig()
    value: Any = True if key == "audit_arguments" else "/elsewhere"
    assert changes(before, before) == []
    assert changes(before, replace(before, **{key: value})) == [f"broker.{key}"]


def test_other_keys_take_effect_at_once() -> None:
    before = BrokerConfig()
    assert changes(before, replace(before, max_in_flight=1, allow_users=(1,), log_level="debug")) == []
