"""The goals of the daemon, as ratios within one run: what must hold and what we aim at."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Round = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Goal:
    """One row of the table. ``at_least`` marks the rows where more is better; ``steady`` those to gate on."""

    name: str
    must: float
    aim: float
    ratio: Callable[[Round], float]
    at_least: bool = False
    steady: bool = False

    def measured(self, rounds: Sequence[Round]) -> list[float]:
        """The ratio of each round that measured what it needs."""
        found = []
        for one in rounds:
            try:
                found.append(self.ratio(one))
            except KeyError:
                continue
        return found

    def met(self, value: float, bound: float, slack: float = 1.0) -> bool:
        """Whether ``value`` is within ``bound``, give or take ``slack`` (1.1: ten percent)."""
        return value >= bound / slack if self.at_least else value <= bound * slack


def median(values: Sequence[float]) -> float:
    """The middle of ``values``."""
    return statistics.median(values)


GOALS: Sequence[Goal] = (
    Goal("sequential p50 / (raw pipe + socket hop)", 2.0, 1.5, lambda m: m["p50"] / (m["raw_p50"] + m["hop_p50"]),
         steady=True),
    Goal("sequential p50 / raw pipe p50", 6, 4.5, lambda m: m["p50"] / m["raw_p50"]),
    Goal("p99 / own p50", 3, 2.2, lambda m: m["p99"] / m["p50"]),
    Goal("sequential p50 / official SDK direct", 1 / 3, 1 / 4, lambda m: m["p50"] / m["sdk_p50"], steady=True),
    Goal("raw rate / rate with 64 in flight", 5, 3.2, lambda m: m["raw_rate"] / m["rate"], steady=True),
    Goal("rate with 64 in flight / SDK direct", 15, 25, lambda m: m["rate"] / m["sdk_rate"], at_least=True),
    Goal("rate of 16 clients x 8 / rate of 1 x 64", 0.75, 0.9, lambda m: m["rate_16x8"] / m["rate"],
         at_least=True),
    Goal("1 MiB result / raw", 6, 4, lambda m: m["result_1"] / m["raw_1"]),
    Goal("10 MiB result / raw", 1.8, 1.4, lambda m: m["result_10"] / m["raw_10"]),
    Goal("time of 10 MiB / time of 1 MiB", 16, 12, lambda m: m["result_10"] / m["result_1"]),
    Goal("PSS growth per further server, MiB", 0.3, 0.1, lambda m: m["pss_per_server"]),
    Goal("start to first call / python -c pass", 14, 8, lambda m: m["first_call"] / m["python"]),
    Goal("20 servers started and called once / 1 server", 6, 4.5, lambda m: m["first_call_20"] / m["first_call"]),
    Goal("one-shot treadle call / python -c pass", 4, 2.5, lambda m: m["one_shot"] / m["python"]),
    Goal("p99 beside a noisy server / p99 alone", 3, 1.5, lambda m: m["p99_noisy"] / m["p99"]),
)  # fmt: skip
