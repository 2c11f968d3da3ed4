"""Watchdog of a node: cycles without a transfer after which its job fails with TIMEOUT."""

from __future__ import annotations

from collections.abc import Iterable

from fanin.cnn.facts import Network

MIN_TIMEOUT = 1 << 20  #: cycles; far longer than any memory takes to answer
MAX_TIMEOUT = (1 << 32) - 1  #: cycles; largest value of the register, 17 s at 250 MHz
MARGIN = 4  #: ratio of the watchdog to the predicted bound
PIPELINE = 256  #: cycles of a layer's operators and queues, at most


def longest_silence(networks: Iterable[Network]) -> int:
    """Return an upper bound of the cycles without a transfer, except waits for memory.

    ``networks``: part of the network on each device.

    A busy stage moves at least one word per frame, and updates one parameter per cycle. While one device is
    idle, all others may have to work one after the other.
    """
    return sum(
        stage.layer.cycles(stage.parallelism, stage.storage) + stage.layer.parameters + PIPELINE
        for network in networks
        for stage in network.stages
    )


def watchdog(networks: Iterable[Network]) -> int:
    """Return the value of register ``timeout`` for all devices: ``MIN_TIMEOUT`` to ``MAX_TIMEOUT`` cycles."""
    return min(max(MIN_TIMEOUT, MARGIN * longest_silence(networks)), MAX_TIMEOUT)
