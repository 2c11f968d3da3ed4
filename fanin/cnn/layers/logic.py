"""LUTs of logic other than operators and memories: loops, multiplexers, short queues, shift registers.

A part's LUTs are a sum over its units (lanes, ways, …), each at a *price* in LUTs. The file of a kind of layer
has the kind's prices (``LUTS``, by family and unit); `costs.toml`, table ``logic``, has those of shared parts.
A unit without a price costs 0.

Prices are a least-squares fit to the LUTs that yosys needs for components of several sizes, without their
operators. The file tests/hdl/layers/test_luts.py compares UltraScale's prices with yosys again, for layers
that the fit did not use: a layer must be within 15 %, a node within 5 %. ECP5's prices have no such test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fanin.cnn.layers.family import Family, costs
from fanin.cnn.layers.port import BEAT_WORDS


def logic_luts(family: Family, part: str, units: Mapping[str, int]) -> int:
    """Return the LUTs of a shared part's units; 0 on a family without prices."""
    return units_luts(family, {name: parts.get(part, {}) for name, parts in costs()["logic"].items()}, units)


def units_luts(family: Family, prices: Mapping[str, Mapping[str, int]], units: Mapping[str, int]) -> int:
    """Return the LUTs of units at the family's ``prices``; 0 on a family without prices."""
    return round(sum(price * units[unit] for unit, price in prices.get(family.name, {}).items()))


def device_luts(family: Family, connections: int) -> int:
    """Return a device's LUTs in addition to its layers': registers, control, memory port, connections."""
    return logic_luts(family, "device", {"node": 1, "connection": connections})


def node_luts(family: Family, stream_words: Sequence[int]) -> int:
    """Return a node's LUTs for streams that leave a layer: counters, and changes of width.

    ``stream_words``: words of a transfer of each stream. The consumer decides the width after the edge, so the
    price of a change of width is an average.
    """
    return logic_luts(family, "node", {"stream": len(stream_words), "word": sum(stream_words)})


def channel_units(lanes: int) -> Mapping[str, int]:
    """Return the units of a DRAM channel for a stream of ``lanes`` words a transfer.

    - ``part``: 1 if transfers are packed to beats.
    - ``uneven``: 1 if neither width divides the other.
    - ``beyond``: words of a transfer in addition to a beat.
    """
    return {
        "channel": 1,
        "part": 1 < lanes < BEAT_WORDS,
        "uneven": bool(lanes % BEAT_WORDS and BEAT_WORDS % lanes),
        "beyond": max(lanes - BEAT_WORDS, 0),
    }
