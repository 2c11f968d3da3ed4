# amaranth: UnusedElaboratable=no
"""Multiplexers, tables and leading zeros, for every input of small ones."""

import random

import pytest
from amaranth import Module, Signal
from amaranth.sim import Simulator

from fanin.hdl.arith.select import leading_zeros, lookup, select
from tests.support import new_seed


def results(function, width):
    """What a function of ``width`` bits gives for each of their values."""
    m = Module()
    value, result = Signal(width), Signal(16)
    m.d.comb += result.eq(function(value))
    got = []

    async def bench(ctx):
        for number in range(1 << width):
            ctx.set(value, number)
            got.append(ctx.get(result))

    sim = Simulator(m)
    sim.add_testbench(bench)
    sim.run()
    return got


@pytest.mark.parametrize("width", [1, 2, 7, 8, 11])
def test_leading_zeros_are_those_above_the_first_one(width):
    assert results(leading_zeros, width)[1:] == [width - n.bit_length() for n in range(1, 1 << width)]


def test_a_table_has_its_entries():
    table = random.Random(new_seed()).sample(range(1 << 10), 1 << 6)
    assert results(lambda index: lookup(table, index), 6) == table


def test_one_of_many_is_selected():
    choices = random.Random(new_seed()).sample(range(1 << 10), 1 << 5)
    assert results(lambda index: select([Signal(10, init=choice) for choice in choices], index), 5) == choices


def test_tables_and_choices_have_an_entry_for_every_index():
    index = Signal(2)
    assert len(lookup([0, 0, 0, 0], index)) == 0
    with pytest.raises(ValueError, match="table must have no entry below 0, not -2"):
        lookup([0, 1, -2, 3], index)
    with pytest.raises(ValueError, match="choices must be 4, for 2 bits of index, not 3"):
        select([index] * 3, index)
