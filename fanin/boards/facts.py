"""Resources of the open boards' devices, of the parts around a node, and sizes of block memories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fanin.boards.sdram import Sdram

BLOCK_RAM_BITS = 16 * 1024  # usable bits of an 18 Kbit block RAM with words of 8, 16 or 32 bits
KIB = 1024


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources of a device, or of a design on it."""

    luts: int  #: four-input LUTs; a bit of a carry chain takes one, 16 words of 4 bits of memory take six
    flip_flops: int
    block_rams: int  #: of 18 Kbit
    multipliers: int  #: 18 × 18 bits

    def __add__(self, other: Resources) -> Resources:
        """Return the sum of both."""
        return Resources(**{name: n + getattr(other, name) for name, n in vars(self).items()})


def _devices(**devices: tuple[int, int, int]) -> Mapping[str, Resources]:
    """Return devices by name. Arguments: LUTs (equal to the flip-flops), block RAMs, multipliers."""
    return MappingProxyType(
        {
            name: Resources(luts=luts, flip_flops=luts, block_rams=rams, multipliers=multipliers)
            for name, (luts, rams, multipliers) in devices.items()
        }
    )


#: Lattice ECP5 and ECP5-5G, by the size in their names.
DEVICES = _devices(
    **{
        "ecp5-25": (24_288, 56, 28),
        "ecp5-45": (43_848, 108, 72),
        "ecp5-85": (83_640, 208, 156),
    }
)

#: Resources of the parts around a node on a board: MAC, stores, control over the network.
BOARD_PARTS = Resources(luts=4_400, flip_flops=3_750, block_rams=9, multipliers=0)


@dataclass(frozen=True, kw_only=True)
class BoardMemory:
    """Memory of a node's samples, labels and lists on a board: block RAM, or SDRAM. Sizes are in bytes."""

    sample_bytes: int  #: per sample port of the node
    label_bytes: int
    list_bytes: int = 0  #: per engine of a sparse node; 0: a dense node, without lists
    sdram: Sdram | None = None

    @property
    def address_bits(self) -> int:
        """Width of a byte address, in bits."""
        return (max(self.sample_bytes, self.label_bytes, self.list_bytes) - 1).bit_length()

    def block_rams(self, engines: int) -> int:
        """Return the number of block RAMs of all memories of a node with so many engines; 0 for SDRAM."""
        if self.sdram:
            return 0
        sizes = engines * [self.sample_bytes, self.sample_bytes, self.list_bytes] + [self.label_bytes]
        return sum(-(-8 * size // BLOCK_RAM_BITS) for size in sizes)


#: Block memory of a dense node by preset of :mod:`fanin.glm.facts`.
MEMORIES: Mapping[str, BoardMemory] = MappingProxyType(
    {
        "ecp5-25": BoardMemory(sample_bytes=16 * KIB, label_bytes=8 * KIB),
        "ecp5-45": BoardMemory(sample_bytes=48 * KIB, label_bytes=16 * KIB),
        "ecp5-85": BoardMemory(sample_bytes=64 * KIB, label_bytes=32 * KIB),
    }
)

#: Block memory of a sparse node by preset, as much as that of the dense node. An entry has 4 bytes; its words
#: have lanes / 2 bytes a plane on each port. Up to as many further entries have no words.
SPARSE_MEMORIES: Mapping[str, BoardMemory] = MappingProxyType(
    {
        "ecp5-25": BoardMemory(sample_bytes=8 * KIB, label_bytes=8 * KIB, list_bytes=16 * KIB),
        "ecp5-45": BoardMemory(sample_bytes=40 * KIB, label_bytes=16 * KIB, list_bytes=16 * KIB),
        "ecp5-85": BoardMemory(sample_bytes=52 * KIB, label_bytes=32 * KIB, list_bytes=24 * KIB),
    }
)
