"""The table of the brokers beside each other: what it says of ratios, of spread and of what failed."""

import subprocess

import pytest

from benchmarks.peers_report import MEASURES, Failed, Figures, cell, markdown, reason, table, values

P50, _, RATE, *_, PSS = MEASURES


def rounds(*figures: Figures) -> list[dict[str, Figures]]:
    return [{"broker": one} for one in figures]


def test_a_ratio_is_to_the_raw_pipe_of_the_same_round() -> None:
    found = rounds({"p50": 0.3, "raw_p50": 0.1}, {"p50": 0.8, "raw_p50": 0.2})
    assert values(found, "broker", P50, ratio=True) == pytest.approx([3, 4])


def test_fewer_calls_a_second_are_that_many_times_worse() -> None:
    found = rounds({"rate": 250.0, "raw_rate": 1000.0})
    assert values(found, "broker", RATE, ratio=True) == [4]


def test_memory_has_no_baseline_and_is_shown_as_it_is() -> None:
    assert values(rounds({"pss_20": 12.5}), "broker", PSS, ratio=True) == [12.5]


def test_the_figures_themselves_are_in_their_unit() -> None:
    found = rounds({"p50": 0.000123, "raw_p50": 0.1})
    assert values(found, "broker", P50, ratio=False) == pytest.approx([123])


def test_a_round_without_a_figure_says_nothing() -> None:
    assert values([{"broker": {}}, {}], "broker", P50, ratio=True) == []


def test_a_failure_takes_the_place_of_the_figure() -> None:
    found = rounds({"p50": "timeout"}, {"p50": 0.2, "raw_p50": 0.1})
    assert values(found, "broker", P50, ratio=True) == ["timeout", 2]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([3.0, 1.0, 2.0], "2 (1 .. 3)"),
        ([0.12345], "0.123"),
        ([2.001, 2.002], "2"),
        ([98765.4], "98,800"),
        ([999.9], "1,000"),
        ([], "-"),
        (["closed", "closed"], "fails: closed"),
        ([2.0, "closed", 3.0], "fails in 1 of 3: closed"),
    ],
)
def test_a_cell_is_the_median_with_its_spread_or_why_there_is_none(found: list[float | str], text: str) -> None:
    assert cell(found) == text


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (TimeoutError(), "timeout"),
        (subprocess.TimeoutExpired("x", 1), "timeout"),
        (ConnectionResetError("hung up"), "closed"),
        (Failed("MCP error -32000: Connection closed"), "connection closed"),
        (Failed("too\nlarge."), "too large"),
        (Failed(""), "Failed"),
        (KeyError("id"), "'id'"),
    ],
)
def test_the_reason_of_a_failure_is_a_word_or_a_few(error: Exception, word: str) -> None:
    assert reason(error) == word


def test_a_contestant_that_failed_stays_in_the_table_without_a_number() -> None:
    text = table(
        [{"raw pipe": {"p50": 0.1, "raw_p50": 0.1}, "broker": {"p50": "closed", "mib_10": "too large"}}],
        ratio=True,
    )
    row = text.splitlines()[-1]
    assert [part.strip() for part in row.strip("|").split("|")] == [
        "broker", "fails: closed", "-", "-", "-", "fails: too large", "-", "-", "-",
    ]  # fmt: skip


def test_rows_are_in_the_order_of_their_first_round() -> None:
    text = table([{"b": {}}, {"c": {}, "b": {}, "a": {}}], ratio=False)
    assert [line.split("|")[1].strip() for line in text.splitlines()[2:]] == ["b", "c", "a"]


def test_a_table_is_markdown_with_aligned_columns() -> None:
    assert markdown(["", "p50"], [["raw pipe", "1"]]) == (
        "|          | p50 |\n"
        "|----------|-----|\n"
        "| raw pipe | 1   |"
    )  # fmt: skip
