"""Watchdog of a node: cycles without a transfer after which its job fails with TIMEOUT."""

from __future__ import annotations

from collections.abc import Iterable

from fanin.cnn.facts import Network

LEAST = 1 << 20  #: cycles; far more than any memory takes to answer
MOST = (1 << 32) - 1  #: largest value of the register: 17 s at 250 MHz
MARGIN = 4  #: ratio of the watchdog to the predicted bound
PIPELINE = 256  #: cycles of a layer's operators and queues, at most


def silence(networks: Iterable[Network]) -> int:
    """Bound the cycles without a transfer, except waits for memory. ``networks``: one of each device.

    A busy stage moves at least one word a frame, and updates one parameter a cycle. While one device is idle,
    all others may have to work one after the other.
    """
    return sum(
        stage.layer.cycles(stage.parallelism, stage.storage) + stage.layer.parameters + PIPELINE
        for network in networks
        for stage in network.stages
    )


def watchdog(networks: Iterable[Network]) -> int:
    """Return the cycles for the register ``timeout`` of each device's node: ``LEAST`` to ``MOST``."""
    return min(max(LEAST, MARGIN * silence(networks)), MOST)
