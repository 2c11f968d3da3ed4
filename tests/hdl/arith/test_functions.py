# amaranth: UnusedElaboratable=no
"""reciprocal, rsqrt and exp in gates, against the golden functions, bit for bit."""

import numpy as np
import pytest
from amaranth import Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.golden import functions
from fanin.hdl.arith.datapath import Constant, Datapath
from fanin.hdl.arith.exp import exp
from fanin.hdl.arith.reciprocal import reciprocal
from fanin.hdl.arith.rsqrt import rsqrt
from tests.fp32_values import SPECIAL
from tests.support import new_seed, simulate, slow

# (golden, in gates, products, sums): each operation on an operator of its own
FUNCTIONS = {
    "reciprocal": (functions.reciprocal, reciprocal, 6, 6),
    "rsqrt": (functions.rsqrt, rsqrt, 6, 6),
    "exp": (functions.exp, exp, 7, 7),
}
every_function = pytest.mark.parametrize("name", FUNCTIONS)


class Evaluated(wiring.Component):
    """A formula of ``x``; ``latency`` is known once it is elaborated."""

    def __init__(self, formula, *, interval, multipliers, adders):
        self.formula = formula
        self.settings = {"interval": interval, "multipliers": multipliers, "adders": adders}
        super().__init__({"x": In(32), "o": Out(32)})

    def elaborate(self, platform):
        m = Module()
        interval = self.settings["interval"]
        phase = Signal(range(max(2, interval)))
        m.d.sync += phase.eq(0 if interval == 1 else (phase + 1) % interval)
        path = Datapath(m, name="f", phase=phase, busy=Const(1), **self.settings)
        result = self.formula(path, path.operand(self.x))
        path.connect()
        self.latency = result.step
        m.d.comb += self.o.eq(result.at(result.step))
        return m


def evaluate(formula, inputs, *, interval=1, multipliers=7, adders=7):
    """Bits of results by bits of inputs."""
    dut = Evaluated(formula, interval=interval, multipliers=multipliers, adders=adders)
    results = []

    async def process(ctx):
        for bits in [*inputs, *[0] * (1000 // interval)]:
            ctx.set(dut.x, bits)
            for _ in range(interval):
                results.append(ctx.get(dut.o))
                await ctx.tick()
                ctx.set(dut.x, 0xDEADBEEF)  # operands stand in phase 0 only
        finished.append(True)

    finished = []
    cycles = interval * len(inputs) + 1010
    simulate(dut, processes=[process], idle=cycles, limit=2 * cycles)
    assert finished
    return results[dut.latency :: interval][: len(inputs)]


def check(name, inputs, **settings):
    golden, formula, *_ = FUNCTIONS[name]
    expected = golden(np.array(inputs, dtype=np.uint32).view(np.float32)).view(np.uint32).tolist()
    got = evaluate(formula, inputs, **settings)
    wrong = [f"{x:08x}: {a:08x}, not {b:08x}" for x, a, b in zip(inputs, got, expected, strict=True) if a != b]
    assert wrong == []


@every_function
def test_special_values(name):
    check(name, SPECIAL)


def edges_of_exp():
    """Around every whole number of log2 of the result, and where it leaves the range."""
    at = np.arange(-130, 131) / np.log2(np.e)
    bits = at.astype(np.float32).view(np.uint32).astype(np.int64)
    return sorted({int(b) & 0xFFFFFFFF for near in (-1, 0, 1) for b in bits + near})


def test_exp_at_every_power_of_two():
    check("exp", edges_of_exp())


@pytest.mark.parametrize("name", ["reciprocal", "rsqrt"])
def test_every_seed_and_exponent(name):
    seeds = [exponent << 23 | index << 16 for exponent in (126, 127) for index in range(128)]
    check(
        name, [bits ^ flip for bits in seeds for flip in (0, 0xFFFF)] + [e << 23 | 0x2AAAAA for e in range(256)]
    )


@pytest.mark.parametrize(
    ("name", "count"), [*((name, 1500) for name in FUNCTIONS), *slow(*((n, 40_000) for n in FUNCTIONS))]
)
def test_random_bits(name, count):
    rng = np.random.default_rng(new_seed())
    inputs = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    if name == "exp":  # most in range
        inputs[: 3 * count // 4] = rng.normal(0, 30, 3 * count // 4).astype(np.float32).view(np.uint32)
    check(name, inputs.tolist())


@every_function
@pytest.mark.parametrize("interval", [3, 8])
def test_fewer_operators_in_turn_give_the_same_bits(name, interval):
    _, _, products, sums = FUNCTIONS[name]
    rng = np.random.default_rng(new_seed())
    inputs = rng.normal(0, 30, 100).astype(np.float32).view(np.uint32).tolist()
    check(name, inputs, interval=interval, multipliers=-(-products // interval), adders=-(-sums // interval))


def test_one_operator_fewer_does_not_suffice():
    with pytest.raises(ValueError, match="f: 1 operators have no phase left"):
        evaluate(exp, [0], interval=6, multipliers=2, adders=1)


def test_a_constant_is_exact():
    with pytest.raises(ValueError, match=r"0\.1 is no binary32"):
        Constant(0.1)
