"""The watchdog of a node: cycles in which no stream moves, after which its job fails with TIMEOUT."""

from __future__ import annotations

from collections.abc import Iterable

from fanin.cnn.facts import Network

LEAST = 1 << 20  #: cycles; far more than any memory takes to answer
MOST = (1 << 32) - 1  #: what the register holds: 17 s at 250 MHz
MARGIN = 4  #: by which the watchdog exceeds the prediction
PIPELINE = 256  #: cycles of a layer's operators and queues, at most


def silence(networks: Iterable[Network]) -> int:
    """Bound the cycles in which no stream of a stage moves, memory apart; ``networks``: one of each device.

    A stage that works moves a word at least once a frame, and updates a parameter a cycle. While one device
    stands still, all of the others may have to work, one after the other.
    """
    return sum(
        stage.layer.cycles(stage.parallelism, stage.storage) + stage.layer.parameters + PIPELINE
        for network in networks
        for stage in network.stages
    )


def watchdog(networks: Iterable[Network]) -> int:
    """Return the cycles for the register ``timeout`` of each device's node: ``LEAST`` to ``MOST``."""
    return min(max(LEAST, MARGIN * silence(networks)), MOST)
