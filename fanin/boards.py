"""Devices of the open boards: what each has, and what of it is left to a GLM node and its memories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fanin.errors import DoesNotFit
from fanin.glm import LABEL_BITS, MICRO_BATCH, GlmConfig, TrainShape
from fanin.sdram import Sdram

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
AROUND = Resources(luts=3_500, flip_flops=3_500, block_rams=10, multipliers=0)


@dataclass(frozen=True, kw_only=True)
class BoardMemory:
    """The block RAM, or SDRAM, in which a node on a board has its samples and labels; sizes in bytes."""

    sample_bytes: int  #: of each of the node's sample ports
    label_bytes: int
    sdram: Sdram | None = None

    def block_rams(self, sample_ports: int) -> int:
        """Block RAMs of all of it."""
        if self.sdram:
            return 0
        return sum(
            -(-8 * size // BLOCK_RAM_BITS) for size in [self.sample_bytes] * sample_ports + [self.label_bytes]
        )


#: The block RAM that goes with a preset of :mod:`fanin.glm`.
MEMORIES: Mapping[str, BoardMemory] = MappingProxyType(
    {
        "ecp5-25": BoardMemory(sample_bytes=16 * KIB, label_bytes=8 * KIB),
        "ecp5-45": BoardMemory(sample_bytes=64 * KIB, label_bytes=16 * KIB),
        "ecp5-85": BoardMemory(sample_bytes=128 * KIB, label_bytes=32 * KIB),
    }
)


def memory_of(config: GlmConfig, sdram: Sdram | None) -> BoardMemory:
    """The memory of a node: a board's SDRAM, or else the block RAM of its preset."""
    if sdram is None:
        return MEMORIES[config.name]
    samples, labels = sdram.split(config.sample_ports)
    return BoardMemory(sample_bytes=samples, label_bytes=labels, sdram=sdram)


def check_set_fits(shape: TrainShape, memory: BoardMemory) -> None:
    """Raise DoesNotFit where a worker's samples or labels are larger than its node's memory for them."""
    micro_batches = shape.micro_batches_per_epoch
    a_micro_batch = {
        "samples": (shape.words_per_micro_batch * shape.node.port_bits // 8, memory.sample_bytes),
        "labels": (MICRO_BATCH * LABEL_BITS // 8, memory.label_bytes),
    }
    fitting = min(there // each for each, there in a_micro_batch.values())
    if micro_batches <= fitting:
        return
    name, (each, there) = max(a_micro_batch.items(), key=lambda item: item[1][0] / item[1][1])
    hint = "" if memory.sdram else ", or more with fanin board build --memory sdram"
    raise DoesNotFit(
        f"the {name} of {shape.samples_per_worker:,} samples take {micro_batches * each:,} bytes, their "
        f"memory has {there:,}: at most {fitting * MICRO_BATCH:,} samples fit{hint}"
    )
