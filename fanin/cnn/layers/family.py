"""Families of FPGAs: DSP blocks, RAM blocks and LUTs of operations and memories, from `costs.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import groupby
from typing import Any

WORD_BITS = 32  # features, gradients and parameters are FP32

Operations = Mapping[str, int]  #: FP32 operations by kind: mac, mul, add


@cache
def costs() -> Mapping[str, Any]:
    """Return the table of constants: ``family`` by name, and ``logic`` of shared parts."""
    return tomllib.loads(resources.files("fanin.cnn.layers").joinpath("costs.toml").read_text("utf-8"))


@dataclass(frozen=True)
class Memory:
    """Memory of ``depth`` rows of ``width`` bits, with one write port and one read port per copy."""

    width: int
    depth: int
    copies: int = 1  #: number of read ports; a block has one, so each further port needs a copy
    dual: bool = False  #: true if the write port also reads, at its own address
    clocked: bool = True  #: true if read data passes a register, which blocks need; false for LUTs

    @property
    def bits(self) -> int:
        """Bits of all copies."""
        return self.width * self.depth * self.copies


@dataclass(frozen=True)
class RamKind:
    """Kind of RAM block.

    ``from_bits``: least size in bits of a memory that uses this kind.
    ``shapes``: every possible (depth, width).
    """

    name: str
    from_bits: int
    shapes: tuple[tuple[int, int], ...]

    def blocks(self, memory: Memory, *, true_dual: bool = False) -> int:
        """Return the blocks of a memory: both dimensions rounded up, in the best configuration.

        ``true_dual``: true if blocks can be true dual-port RAM, except in the widest of several configurations.
        """
        if not memory.dual:
            return memory.copies * _fit(memory, self.shapes)
        duplicated = 2 * _fit(memory, self.shapes)
        widest = max(width for _, width in self.shapes) if len(self.shapes) > 1 else 0
        narrow_shapes = [shape for shape in self.shapes if shape[1] != widest]
        return min(duplicated, _fit(memory, narrow_shapes)) if true_dual and narrow_shapes else duplicated


def _fit(memory: Memory, shapes: Iterable[tuple[int, int]]) -> int:
    return min(-(-memory.width // width) * -(-memory.depth // depth) for depth, width in shapes)


@dataclass(frozen=True)
class Family:
    """Costs of operations and memories on a family of devices."""

    name: str
    dsp: tuple[tuple[str, int], ...]  #: DSP blocks per kind of operation
    lut: tuple[tuple[str, int], ...]  #: LUTs per kind of operation
    ram: tuple[RamKind, ...]  #: by growing ``from_bits``
    true_dual_port: bool  #: true if blocks are used as true dual-port RAM
    registers_below: int  #: least depth of a clocked memory in blocks; smaller memories are registers or LUTs
    lut_ram: tuple[int, int, int]  #: depth, width and LUTs of a memory in LUTs; 0 LUTs if not counted

    def dsp_blocks(self, operations: Operations) -> int:
        """Return the DSP blocks of operations."""
        return _total(self.dsp, operations)

    def luts(self, operations: Operations) -> int:
        """Return the LUTs of operations."""
        return _total(self.lut, operations)

    def ram_luts(self, memories: tuple[Memory, ...]) -> int:
        """Return the LUTs of the memories that use no blocks."""
        depth, width, luts = self.lut_ram
        return sum(
            memory.copies * luts * -(-memory.depth // depth) * -(-memory.width // width)
            for memory in memories
            if not self._takes_blocks(memory)
        )

    def ram_blocks(self, memories: tuple[Memory, ...]) -> tuple[int, ...]:
        """Return the blocks of each kind in ``ram``."""
        blocks = [0] * len(self.ram)
        for memory, equal in groupby(memories):
            if self._takes_blocks(memory):
                kind = max(i for i, ram in enumerate(self.ram) if memory.width * memory.depth >= ram.from_bits)
                blocks[kind] += len(list(equal)) * self.ram[kind].blocks(memory, true_dual=self.true_dual_port)
        return tuple(blocks)

    def _takes_blocks(self, memory: Memory) -> bool:
        return memory.clocked and memory.depth >= self.registers_below


def _total(prices: tuple[tuple[str, int], ...], operations: Operations) -> int:
    price = dict(prices)
    return sum(price[kind] * count for kind, count in operations.items())


def family(name: str) -> Family:
    """Return a family by name. Raises KeyError."""
    return _families()[name]


def family_names() -> tuple[str, ...]:
    """Return the names of all families in `costs.toml`."""
    return tuple(costs()["family"])


@cache
def _families() -> Mapping[str, Family]:
    return {
        name: Family(
            name=name,
            dsp=tuple((kind, table["dsp"][kind]) for kind in ("mac", "mul", "add")),
            lut=tuple((kind, table["lut"][kind]) for kind in ("mac", "mul", "add")),
            ram=tuple(
                RamKind(kind, ram["from_bits"], tuple((depth, width) for depth, width in ram["shapes"]))
                for kind, ram in table["ram"].items()
            ),
            true_dual_port=table["true_dual_port"],
            registers_below=table["registers_below"],
            lut_ram=(table["lut_ram"][0], table["lut_ram"][1], table["lut_ram"][2]),
        )
        for name, table in costs()["family"].items()
    }
