# amaranth: UnusedElaboratable=no
"""The bytes of a word, turned, counted and chosen: every case of small words, against Python's integers."""

import pytest
from amaranth import Module, Signal
from amaranth.sim import Simulator

from fanin.hdl.stream.lanes import ones_from, rotated, select_lanes
from fanin.hdl.stream.packet import kept_bytes


def evaluate(value, inputs, cases):
    """``value`` for each case, the values of ``inputs``."""
    m, result = Module(), Signal(len(value))
    m.d.comb += result.eq(value)
    results = []

    async def bench(ctx):
        for case in cases:
            for signal, at in zip(inputs, case, strict=True):
                ctx.set(signal, at)
            results.append(ctx.get(result))

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
    return results


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_a_word_is_rotated_by_any_number_of_lanes(bits):
    lanes = 1 << bits
    word, places = Signal(8 * lanes), Signal(bits)
    plain = bytes(range(1, lanes + 1))
    cases = [(int.from_bytes(plain, "little"), n) for n in range(lanes)]
    turned = [int.from_bytes(plain[lanes - n :] + plain[: lanes - n], "little") for n in range(lanes)]
    assert evaluate(rotated(word, places), [word, places], cases) == turned


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5])
def test_ones_begin_where_they_are_told(bits):
    first, size = Signal(bits), 1 << bits
    expected = [(1 << size) - (1 << n) for n in range(size)]
    assert evaluate(ones_from(first, size), [first], [(n,) for n in range(size)]) == expected


def test_bytes_are_chosen_by_their_bits():
    mask, a, b = Signal(2), Signal(16), Signal(16)
    cases = [(n, 0x1122, 0x3344) for n in range(4)]
    assert evaluate(select_lanes(mask, a, b), [mask, a, b], cases) == [0x3344, 0x3322, 0x1144, 0x1122]


@pytest.mark.parametrize("size", [1, 2, 4, 8, 32])
def test_kept_bytes_are_counted(size):
    keep = Signal(size)
    counts = range(1, size + 1)
    assert evaluate(kept_bytes(keep), [keep], [((1 << n) - 1,) for n in counts]) == [*counts]
