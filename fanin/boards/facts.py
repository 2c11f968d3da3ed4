"""Devices of the open boards: what each has, and what of it is left to a GLM node and its memories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fanin.boards.sdram import Sdram

BLOCK_RAM_BITS = 16 * 1024  # that a memory of 8, 16 or 32 bits uses of 18 Kbit
KIB = 1024


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Of a device, or what a design takes of it."""

    luts: int  #: four-input LUTs; a bit of a carry chain takes one, 16 words of 4 bits of memory take six
    flip_flops: int
    block_rams: int  #: of 18 Kbit
    multipliers: int  #: 18 × 18 bits

    def __add__(self, other: Resources) -> Resources:
        """Both together."""
        return Resources(**{name: n + getattr(other, name) for name, n in vars(self).items()})


def _devices(**devices: tuple[int, int, int]) -> Mapping[str, Resources]:
    """By name: LUTs, and as many flip-flops, block RAMs, multipliers."""
    return MappingProxyType(
        {
            name: Resources(luts=luts, flip_flops=luts, block_rams=rams, multipliers=multipliers)
            for name, (luts, rams, multipliers) in devices.items()
        }
    )


#: Lattice ECP5 and ECP5-5G by the size that their names give.
DEVICES = _devices(
    **{
        "ecp5-25": (24_288, 56, 28),
        "ecp5-45": (43_848, 108, 72),
        "ecp5-85": (83_640, 208, 156),
    }
)

#: What stands around a node on a board: MAC, stores, control over the network.
AROUND = Resources(luts=4_400, flip_flops=3_750, block_rams=9, multipliers=0)


@dataclass(frozen=True, kw_only=True)
class BoardMemory:
    """The block RAM, or SDRAM, in which a node on a board has its samples and labels; sizes in bytes."""

    sample_bytes: int  #: of each of the node's sample ports
    label_bytes: int
    sdram: Sdram | None = None

    @property
    def address_bits(self) -> int:
        """Bits of an address in bytes."""
        return (max(self.sample_bytes, self.label_bytes) - 1).bit_length()

    def block_rams(self, sample_ports: int) -> int:
        """Block RAMs of all of it."""
        if self.sdram:
            return 0
        return sum(
            -(-8 * size // BLOCK_RAM_BITS) for size in [self.sample_bytes] * sample_ports + [self.label_bytes]
        )


#: The block RAM that goes with a preset of :mod:`fanin.glm.facts`.
MEMORIES: Mapping[str, BoardMemory] = MappingProxyType(
    {
        "ecp5-25": BoardMemory(sample_bytes=16 * KIB, label_bytes=8 * KIB),
        "ecp5-45": BoardMemory(sample_bytes=48 * KIB, label_bytes=16 * KIB),
        "ecp5-85": BoardMemory(sample_bytes=64 * KIB, label_bytes=32 * KIB),
    }
)
