"""A short, fixed run of the fuzzer, which ``make fuzz`` runs for as long as one likes."""

from __future__ import annotations

import pytest

from support.fuzz import CHECKS, main, run_case


@pytest.mark.parametrize("check", range(len(CHECKS)), ids=[check.__name__ for check in CHECKS])
def test_the_first_cases_of_a_seed_hold(check: int) -> None:
    for number in range(check, 200 * len(CHECKS), len(CHECKS)):
        run_case(2025, number)


def test_a_failing_case_is_reported_so_that_it_can_be_played_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> None:
        raise AssertionError("found")

    monkeypatch.setattr("support.fuzz.CHECKS", [fail])
    assert main(["5", "7"]) == 1
    assert "python -m support.fuzz 0 7 0" in capsys.readouterr().out


def test_a_run_ends_by_time_and_names_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["0.05", "7"]) == 0
    assert "of seed 7 held" in capsys.readouterr().out
