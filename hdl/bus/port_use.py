"""Use of a node's AXI4 ports: the limits that an interconnect or a memory controller can be built for.

All masters of fanin also have these properties:

- Bursts are of whole words, with addresses aligned to the word, and cross no 4 KiB boundary; the memory models
  of tests assert it.
- Some signals are constants, ``CONSTANTS``. So all bursts have one ID, and a slave answers them in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from fanin.hdl.bus.axi4 import BOUNDARY, CACHE_BUFFERABLE_MODIFIABLE, MAX_BURST, Burst

#: Values of signals that no master changes; of AR and AW by the name after ``ar`` and ``aw``.
CONSTANTS = {
    "id": 0,
    "burst": Burst.INCR.value,  # type: ignore[attr-defined]
    "lock": 0,
    "cache": CACHE_BUFFERABLE_MODIFIABLE,
    "prot": 0,
    "qos": 0,
    "rready": 1,
    "bready": 1,
}


@dataclass(frozen=True, kw_only=True)
class PortUse:
    """Use of an AXI4 port by its master.

    - ``burst``: words of the longest burst.
    - ``reads``: read bursts in flight, at most: from AR to the last word. 0: the port does not read.
    - ``writes``: write bursts in flight, at most: from AW to B. 0: the port does not write.
    - ``partial``: some words are written in part, with zeros in ``wstrb``.
    """

    burst: int
    reads: int = 0
    writes: int = 0
    partial: bool = False


def page_burst(width: int) -> int:
    """Return the words of ``width`` bits of the longest burst that fits between two 4 KiB boundaries."""
    return min(MAX_BURST, BOUNDARY * 8 // width)
