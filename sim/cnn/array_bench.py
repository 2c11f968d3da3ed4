"""Bench of arrays of binary32 operators: a multiplier and an adder per lane, applied to pairs of numbers."""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import FLOAT_BITS
from fanin.hdl.arith.array import AdderArray, LaneArray
from fanin.hdl.emit import emit_verilog, shared
from fanin.sim.cosim.arrays import OPERATORS, Arith, arrays_source, with_arrays
from fanin.sim.cosim.blocks import split_blocks
from fanin.sim.cosim.program_build import VerilogModel, build_program

UInt32 = npt.NDArray[np.uint32]


class Pairs(wiring.Component):
    """Component that computes product and sum of a pair of numbers per lane, as the arrays do."""

    def __init__(self, *, lanes: int):
        self.lanes = lanes
        numbers = data.ArrayLayout(FLOAT_BITS, lanes)
        members = {
            "a": In(numbers),
            "b": In(numbers),
            "valid": In(1),
            "product": Out(numbers),
            "sum": Out(numbers),
        }
        super().__init__(members)

    def elaborate(self, platform: Any) -> Module:
        """Connect both arrays to the same operands."""
        m = Module()
        products = shared(LaneArray(trees=tuple(((lane, lane),) for lane in range(self.lanes))))
        sums = shared(AdderArray(lanes=self.lanes))
        m.submodules.products, m.submodules.sums = products, sums
        for array, result in ((products, self.product), (sums, self.sum)):
            m.d.comb += [array.a.eq(self.a), array.b.eq(self.b), array.valid.eq(self.valid), result.eq(array.o)]
        return m


@dataclass(frozen=True)
class PairsRun:
    """Result of a run of :class:`ArrayBench`."""

    products: UInt32  #: product of each pair
    sums: UInt32  #: sum of each pair
    cycles: int  #: cycles of all repetitions
    seconds: float  #: processor time of all repetitions


class ArrayBench:
    """Built simulator of :class:`Pairs`; each ``run`` is a new process. RTL operators are separate models."""

    def __init__(self, *, lanes: int, arith: Arith):
        self.lanes = lanes
        verilog, arrays = with_arrays(emit_verilog(Pairs(lanes=lanes)), arith)
        *blocks, top = split_blocks(verilog, "pairs", OPERATORS if arith is Arith.RTL else ())
        models = [VerilogModel(f"V{block.module}", block.module, block.verilog) for block in blocks]
        text = "".join([top.verilog, *(block.stub() for block in blocks)])
        sources = {"main.cpp": (files("fanin.sim.cnn") / "array_bench.cpp").read_text()}
        sources |= {f"{block.module}.cpp": block.source() for block in blocks}
        if arrays:
            sources["arrays.cpp"] = arrays_source(arrays)
        self._program = build_program([VerilogModel("Vpairs", "pairs", text), *models], sources, quiet=True)

    def run(self, a: UInt32, b: UInt32, *, repetitions: int = 1) -> PairsRun:
        """Compute products and sums of ``a`` and ``b``, ``lanes`` pairs a cycle.

        ``repetitions``: number of times that all pairs are computed.
        Raises ValueError unless the number of pairs is a multiple of ``lanes``.
        """
        if len(a) != len(b) or len(a) % self.lanes:
            raise ValueError(f"a and b must have equally many numbers, a multiple of {self.lanes}")
        with tempfile.TemporaryDirectory(prefix="fanin-") as folder:
            pairs, results = Path(folder) / "pairs", Path(folder) / "results"
            np.concatenate([a, b]).astype(np.uint32).tofile(pairs)
            command = [str(self._program), str(pairs), str(repetitions), str(results)]
            process = subprocess.run(command, capture_output=True, text=True, check=True)
            products, sums = np.fromfile(results, dtype=np.uint32).reshape(2, -1)
        return PairsRun(products, sums, len(a) // self.lanes * repetitions, float(process.stdout))
