"""The files that come with the project agree with the definitions."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from treadle.config import ServerConfig, parse
from treadle.config.model import BROKER_KEYS, SERVER_KEYS, Key
from treadle.config.reference import BEGIN, insert, reference
from treadle.config.schema import render, schema

ROOT = Path(__file__).parents[2]
EXAMPLE = (ROOT / "config" / "treadle.example.toml").read_text()
SETTING = re.compile(r"^#(?=[a-z_.]+ = )", re.MULTILINE)


def value_of(key: Key, config: Any) -> Any:
    for attribute in key.attribute:
        config = getattr(config, attribute)
    return config


def test_the_example_is_valid_as_it_is_and_with_every_setting_switched_on() -> None:
    assert parse(EXAMPLE, "example").problems == ()
    assert parse(SETTING.sub("", EXAMPLE), "example").problems == ()


def test_the_example_shows_every_key_once() -> None:
    server, _, broker = SETTING.sub("", EXAMPLE).partition("[broker]")
    for part, keys in ((server, SERVER_KEYS), (broker, BROKER_KEYS)):
        for key in keys:
            name = re.escape(key.name.removeprefix("limits."))
            assert len(re.findall(rf"^(?:limits = .*)?\b{name} = ", part, re.MULTILINE)) == 1, key.name


def test_a_setting_that_is_switched_off_shows_its_default() -> None:
    config = parse(SETTING.sub("", EXAMPLE), "example")
    (server,) = config.servers
    off, _, off_broker = EXAMPLE.partition("[broker]")
    for text, keys, values in ((off, SERVER_KEYS, server), (off_broker, BROKER_KEYS, config.broker)):
        shown = [key for key in keys if f"\n#{key.name} = " in text and key.default is not None]
        assert len(shown) >= 10
        assert [value_of(key, values) for key in shown] == [key.default for key in shown]


def test_the_default_configuration_is_the_demo_server_alone() -> None:
    config = parse((ROOT / "config" / "treadle.toml").read_text(), "treadle.toml")
    assert config.servers == (ServerConfig("demo", ("python", "-m", "treadle.demo_server")),)


def test_the_schema_file_is_up_to_date() -> None:
    assert (ROOT / "config" / "treadle.schema.json").read_text() == render()


def test_the_reference_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert page.count(BEGIN) == 1
    assert page == insert(page)


def test_the_module_writes_both_generated_files_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, schema_file = tmp_path / "page.md", tmp_path / "s.json"
    page.write_text(f"# Mine\n{BEGIN}\nold\n")
    monkeypatch.setattr("sys.argv", ["treadle.config", str(page), str(schema_file)])
    runpy.run_module("treadle.config", run_name="__main__")
    assert page.read_text() == f"# Mine\n{reference()}"
    assert schema_file.read_text() == render()


def test_the_examples_of_the_reference_page_are_valid() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    examples = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert examples
    for example in examples:
        assert parse(example, "page").problems == ()


def test_the_reference_names_every_key() -> None:
    for key in (*SERVER_KEYS, *BROKER_KEYS):
        assert f"\n| `{key.name}` | " in reference()


@pytest.mark.parametrize(("table", "keys"), [("broker", BROKER_KEYS), ("mcp", SERVER_KEYS)])
def test_the_schema_knows_exactly_the_keys_of_the_definitions(table: str, keys: tuple[Key, ...]) -> None:
    described = schema()["properties"][table]
    described = described.get("additionalProperties") or described

    def names(level: dict[str, Any], prefix: str = "") -> list[str]:
        assert level["additionalProperties"] is False
        result = []
        for name, value in level["properties"].items():
            inner = "properties" in value
            result += names(value, f"{prefix}{name}.") if inner else [f"{prefix}{name}"]
        return result

    assert names(described) == [key.name for key in keys]
