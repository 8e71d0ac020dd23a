"""Which names a server may have, and what a refusal suggests (configuration page)."""

from __future__ import annotations

import keyword
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.codegen.names import GLEAM, PYTHON, mangle
from treadle.config import Refused, parse
from treadle.config.names import KEYWORDS, NAME_PATTERN, PYTHON_KEYWORDS, RESERVED, name_fault, suggest_name


@pytest.mark.parametrize("name", ["a", "github", "a1", "a_b_2c", "x" * 32, "id", "list"])
def test_a_legal_name_has_no_fault(name: str) -> None:
    assert name_fault(name) is None


@pytest.mark.parametrize(
    ("name", "fault", "instead"),
    [
        ("GitHub-Server", "may hold only lower-case letters, digits and underscores", "github_server"),
        ("a.b", "may hold only lower-case letters, digits and underscores", "a_b"),
        ("名前", "may hold only lower-case letters, digits and underscores", "server"),
        ("", "is empty", "server"),
        ("9lives", "must begin with a lower-case letter", "t_9lives"),
        ("_x", "must begin with a lower-case letter", "x"),
        ("a__b", "holds a doubled underscore", "a_b"),
        ("a_", "ends in an underscore", "a"),
        ("x" * 33, "is 33 characters long, at most 32 are allowed", "x" * 32),
        ("internal", "is reserved", "internal_server"),
        ("opaque", "is a keyword of Gleam, for which modules are generated", "opaque_server"),
        ("lambda", "is a keyword of Python, for which modules are generated", "lambda_server"),
        ("interface", "is a keyword of TypeScript, for which modules are generated", "interface_server"),
    ],
)
def test_an_illegal_name_is_explained_and_another_suggested(name: str, fault: str, instead: str) -> None:
    assert (name_fault(name), suggest_name(name)) == (fault, instead)


def test_the_keywords_of_this_python_are_among_those_refused() -> None:
    assert set(keyword.kwlist) | set(keyword.softkwlist) <= PYTHON_KEYWORDS


def test_a_suggestion_is_free_in_the_file() -> None:
    (first, _) = parse('[mcp."Git-Hub"]\n[mcp.git_hub]\ncommand = ["a"]\n', "t").servers
    assert isinstance(first, Refused)
    assert first.problems[0].fix == "write [mcp.git_hub_2]"


@given(st.text(), st.sets(st.sampled_from(["server", "a", "t_1"])))
def test_every_suggestion_is_legal_and_not_taken(name: str, taken: set[str]) -> None:
    suggestion = suggest_name(name, taken)
    assert name_fault(suggestion) is None
    assert suggestion not in taken


@given(st.from_regex(r"[a-z0-9_]{1,34}", fullmatch=True) | st.sampled_from(sorted(KEYWORDS | RESERVED)))
def test_the_pattern_of_the_schema_agrees_with_the_rule(name: str) -> None:
    by_schema = re.search(NAME_PATTERN, name) and len(name) <= 32 and name not in KEYWORDS | RESERVED
    assert bool(by_schema) == (name_fault(name) is None)


@given(st.from_regex(r"[a-z0-9_]{1,34}", fullmatch=True) | st.sampled_from(sorted(KEYWORDS)))
def test_legal_are_exactly_the_names_that_the_generators_leave_alone(name: str) -> None:
    legal = name_fault(name) is None
    assert legal == (mangle(name, KEYWORDS | RESERVED) == name)
    if legal:
        assert GLEAM.module(name) == PYTHON.module(name) == name
