"""LUTs beside operators and memories: loops, places, multiplexers, queues of a few words, registers that shift.

A part's LUTs are a sum over its units (lanes, ways, …), each at a price that was fitted to what yosys maps the
components to. The file of a kind of layer has the kind's prices; those of shared parts are `costs.toml`, table
``logic``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fanin.cnn.layers.family import Family, costs
from fanin.cnn.layers.port import BEAT_WORDS


def logic_luts(family: Family, part: str, units: Mapping[str, int]) -> int:
    """LUTs of so many units of a shared part; 0 on a family that has no prices."""
    return units_luts(family, {name: parts.get(part, {}) for name, parts in costs()["logic"].items()}, units)


def units_luts(family: Family, prices: Mapping[str, Mapping[str, int]], units: Mapping[str, int]) -> int:
    """LUTs of so many units at the family's ``prices``; 0 on a family that has none."""
    return round(sum(price * units[unit] for unit, price in prices.get(family.name, {}).items()))


def device_luts(family: Family, connections: int) -> int:
    """LUTs of a device that has layers, beside theirs: registers, control, the memory's port, connections."""
    return logic_luts(family, "device", {"node": 1, "connection": connections})


def node_luts(family: Family, leaving: Sequence[int]) -> int:
    """What a node has for streams of so many words that leave a layer: counters, and changes of width.

    How wide a stream is behind its edge says another layer, so that a change has a price that is usual.
    """
    return logic_luts(family, "node", {"stream": len(leaving), "word": sum(leaving)})


def channel_units(lanes: int) -> Mapping[str, int]:
    """Units of a channel of the store, whose gearbox joins words to beats: a stream of ``lanes`` words."""
    return {
        "channel": 1,
        "part": 1 < lanes < BEAT_WORDS,
        "uneven": bool(lanes % BEAT_WORDS and BEAT_WORDS % lanes),
        "beyond": max(lanes - BEAT_WORDS, 0),
    }
