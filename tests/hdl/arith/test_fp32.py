# amaranth: UnusedElaboratable=no
"""FP32Adder and FP32Multiplier against NumPy's arithmetic, bit for bit, as late as they say."""

import random

import numpy as np
import pytest
from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.golden import fp32
from fanin.hdl.arith.fp32 import FP32Adder, FP32Multiplier
from fanin.hdl.stream.packet import packet_stream
from fanin.sim.cosim.stream_file import StreamFile
from tests.fp32_values import SPECIAL, close_pairs
from tests.support import new_seed, simulate

OPERATIONS = pytest.mark.parametrize(
    ("component", "golden"), [(FP32Adder, fp32.add), (FP32Multiplier, fp32.multiply)], ids=["add", "multiply"]
)


def run(dut, pairs, *, stall=0.0, seed=0):
    """What leaves ``LATENCY`` enabled cycles after each pair entered; pairs enter in all enabled cycles."""
    rng, results = random.Random(seed), []

    async def process(ctx):
        for a, b in [*pairs, *[(0, 0)] * dut.LATENCY]:
            ctx.set(dut.a, a)
            ctx.set(dut.b, b)
            while (
                rng.random() < stall
            ):  # what is on the inputs meanwhile must not matter, nor what is inside move
                ctx.set(dut.enable, 0)
                ctx.set(dut.a, rng.getrandbits(32))
                before = ctx.get(dut.o)
                await ctx.tick()
                assert ctx.get(dut.o) == before
            ctx.set(dut.a, a)
            ctx.set(dut.enable, 1)
            await ctx.tick()
            results.append(ctx.get(dut.o))
        finished.append(True)

    finished: list[bool] = []
    idle = round((len(pairs) + dut.LATENCY) / (1 - stall) * 1.3) + 100
    simulate(dut, processes=[process], idle=idle, seed=seed, limit=2 * idle)
    assert finished
    return results[dut.LATENCY - 1 :][: len(pairs)]


def check(dut, golden, pairs, **options):
    a, b = (np.array(column, dtype=np.uint32).view(np.float32) for column in zip(*pairs, strict=True))
    expected = golden(a, b).view(np.uint32).tolist()
    got = run(dut, pairs, **options)
    wrong = [
        f"{x:08x} {y:08x}: {z:08x}, not {e:08x}"
        for (x, y), z, e in zip(pairs, got, expected, strict=True)
        if z != e
    ]
    assert wrong == []


@OPERATIONS
def test_special_values_in_all_pairs(component, golden):
    check(component(), golden, [(a, b) for a in SPECIAL for b in SPECIAL])


@OPERATIONS
def test_random_values_near_and_far_one_a_cycle(component, golden):
    seed = new_seed()
    check(component(), golden, close_pairs(random.Random(seed), 2000))


def test_every_bit_that_a_smaller_operand_loses_counts_as_sticky():
    """Each distance of the exponents, each single bit of the fraction; the larger operand about to round."""
    cases = [
        (sign << 31 | 150 << 23 | fraction, 150 - distance << 23 | 1 << bit)
        for sign in (0, 1)
        for fraction in (0, 1, 2**23 - 1)
        for distance in range(36)
        for bit in range(23)
    ]
    check(FP32Adder(), fp32.add, cases)


@OPERATIONS
def test_nothing_moves_while_enable_is_low(component, golden):
    seed = new_seed()
    check(component(), golden, close_pairs(random.Random(seed), 300), stall=0.5, seed=seed)


@pytest.mark.parametrize(("component", "cycles"), [(FP32Adder, 7), (FP32Multiplier, 6)])
def test_a_result_comes_exactly_latency_cycles_later(component, cycles):
    """A pulse of 1.0 in zeros: 1 + 0, or 1 · 1 among zeros."""
    one = 0x3F800000
    dut = component()
    seen = run(dut, [(0, 0), (one, one), *[(0, 0)] * 10])
    assert [cycle for cycle, bits in enumerate(seen) if bits] == [1]
    assert cycles == component.LATENCY


class Piped(wiring.Component):
    """Pairs of operands into a stream, results out of one."""

    def __init__(self, operation):
        self.operation = operation
        super().__init__({"i": In(packet_stream(64)), "o": Out(packet_stream(32))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.operation = operation = self.operation()
        enable = self.o.ready | ~self.o.valid
        m.d.comb += [
            Cat(operation.a, operation.b).eq(self.i.p.data),
            operation.enable.eq(enable),
            self.i.ready.eq(enable),
            self.o.p.data.eq(operation.o),
            self.o.p.keep.eq(-1),
        ]
        marks = Cat(self.i.valid, self.i.p.last)
        for _ in range(operation.LATENCY):
            behind = Signal(2)
            with m.If(enable):
                m.d.sync += behind.eq(marks)
            marks = behind
        m.d.comb += Cat(self.o.valid, self.o.p.last).eq(marks)
        return m


@pytest.mark.slow
@pytest.mark.verilator
@OPERATIONS
def test_millions_of_results_in_the_emitted_verilog(component, golden):
    rng = np.random.default_rng(new_seed())
    count = 1 << 21
    pairs = rng.integers(0, 1 << 32, (count, 2), dtype=np.uint32)
    near = pairs[: count // 2]  # exponents within 32 of each other, or for products of a sum near the limits
    distance = rng.integers(-32, 33, len(near))
    first = near[:, 0].astype(np.int64) >> 23 & 0xFF
    exponent = (first if golden is fp32.add else 127 * rng.integers(1, 4, len(near)) - first) + distance
    near[:, 1] = near[:, 1] & 0x807F_FFFF | (np.clip(exponent, 0, 255) << 23).astype(np.uint32)
    run = StreamFile(Piped(component), quiet=True).run([pairs.tobytes()])
    expected = golden(*pairs.view(np.float32).T).view(np.uint32)
    assert np.array_equal(np.frombuffer(run.frames[0], dtype=np.uint32), expected)
    assert run.cycles == count + component.LATENCY
