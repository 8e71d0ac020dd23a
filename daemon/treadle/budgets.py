"""How long a start and an end of the whole daemon may take, for whoever watches over it (floor 6).

Both follow from the configuration; every part of them is bounded by the code that they are taken from.
"""

from __future__ import annotations

from typing import Final

from treadle.config import Config, ServerConfig
from treadle.custody import RECOVERY_S, RELEASE_S
from treadle.supervisor import PROOF_MARGIN_S
from treadle.tree import DRAIN_S

SPARE_S: Final = 8.0
"""For the interpreter, a loaded machine, a last wait after a kill, and the last answers to the clients."""


def start_s(config: Config) -> float:
    """Seconds until the daemon has settled at the latest: servers start all at once, so the slowest one counts."""
    starts = [one.open_timeout_ms + one.handshake_timeout_ms + one.list_timeout_ms for one in _eager(config)]
    # A start that failed counts as settled once its process is proven gone.
    stops = [one.stop_timeout_ms for one in _eager(config)]
    return RECOVERY_S + max(starts, default=0) / 1000 + max(stops, default=0) / 1000 + PROOF_MARGIN_S + SPARE_S


def stop_s(config: Config) -> float:
    """Seconds from the first word of a stop until the daemon has ended: the drain of the calls, the longest stop
    of a server with its proof, and the search for what belonged to nobody."""
    stops = [one.stop_timeout_ms for one in config.servers if isinstance(one, ServerConfig) and one.enabled]
    servers = max(stops, default=0) / 1000 + PROOF_MARGIN_S
    return config.broker.drain_timeout_ms / 1000 + servers + DRAIN_S + RELEASE_S + SPARE_S


def _eager(config: Config) -> list[ServerConfig]:
    return [one for one in config.servers if isinstance(one, ServerConfig) and one.enabled and not one.lazy]
