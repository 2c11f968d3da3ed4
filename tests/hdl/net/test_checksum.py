# amaranth: UnusedElaboratable=no
"""The ones' complement sum, beside one by numbers."""

import random

import pytest

from fanin.hdl.net.checksum import LATENCY, OnesComplementSum
from tests.support import new_seed, simulate


def summed(words):
    """The sum, its carries added back."""
    total = sum(words)
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@pytest.mark.parametrize("words", range(2, 13))
def test_every_number_of_words(words):
    """Among them those that sum up to 0 and 0xFFFF, and a header a cycle."""
    rng = random.Random(new_seed())
    headers = [[0] * words, [0xFFFF] * words, [*[0] * (words - 1), 0xFFFF], [0x8000] * words]
    headers += [[rng.choice([0, 1, 0xFFFF, rng.getrandbits(16)]) for _ in range(words)] for _ in range(60)]
    headers += [[*header[1:], 0xFFFF - summed(header[1:])] for header in headers]
    dut = OnesComplementSum(words=words)
    sums = []

    async def drive(ctx):
        for header in [*headers, *[[0] * words] * LATENCY]:
            ctx.set(dut.i, header)
            _, _, out = await ctx.tick().sample(dut.o)
            sums.append(out)

    simulate(dut, processes=[drive], idle=len(headers) + LATENCY)
    assert sums[LATENCY:] == [summed(header) for header in headers]


@pytest.mark.parametrize("words", [1, 13])
def test_other_numbers_are_refused(words):
    with pytest.raises(ValueError, match="words must be 2 to 12"):
        OnesComplementSum(words=words)
