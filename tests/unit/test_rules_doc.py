"""The page of rules names proofs that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from support.catalogue import BY_ID

TESTS = Path(__file__).resolve().parent.parent
PAGE = TESTS.parent / "docs" / "rules.md"
ROWS = [
    (cells[1].strip(), re.findall(r"`([^`]+)`", cells[2]))
    for cells in (line.split("|") for line in PAGE.read_text().splitlines())
    if len(cells) == 4 and cells[1].strip() not in ("rule", "---")
]


@cache
def names_in(path: str) -> frozenset[str]:
    tree = ast.parse((TESTS / path).read_text())
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


def exists(proof: str) -> bool:
    path, _, name = proof.partition("::")
    if name:
        return (TESTS / path).is_file() and name in names_in(path)
    return proof in BY_ID or any(identifier.startswith(f"{proof}/") for identifier in BY_ID)


@pytest.mark.parametrize(("rule", "proofs"), ROWS, ids=[rule for rule, _ in ROWS])
def test_every_rule_has_proofs_that_exist(rule: str, proofs: list[str]) -> None:
    assert proofs, rule
    assert [proof for proof in proofs if not exists(proof)] == []


def test_the_page_covers_every_section() -> None:
    assert re.findall(r"^## (\d)\.", PAGE.read_text(), re.MULTILINE) == list("12345678")
    assert len(ROWS) > 100


def test_every_row_of_the_catalogue_that_a_client_can_meet_proves_a_rule() -> None:
    named = {proof.partition("/")[0] for _, proofs in ROWS for proof in proofs if "::" not in proof}
    assert {identifier.partition("/")[0] for identifier in BY_ID} - named == set()
