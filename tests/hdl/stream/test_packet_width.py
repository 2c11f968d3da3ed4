# amaranth: UnusedElaboratable=no
"""Packets of bytes to packets of words, and back."""

import random

import pytest
from amaranth.sim import Simulator

from fanin.hdl.stream.packet_width import BytesToWords, WordsToBytes
from tests.hdl.stream.frames import beats, frames
from tests.support import new_seed, simulate

WIDTHS = pytest.mark.parametrize("width", [16, 32, 64, 256])


def some_frames(rng, width, count):
    step = width // 8
    edges = [1, step - 1, step, step + 1, 2 * step, 3 * step - 1]
    return [rng.randbytes(rng.choice([*edges, rng.randrange(1, 100)])) for _ in range(count)]


def gather(width, offered):
    """The frames that come out of ``offered``, beats or None, their tails, and the cycle of each word."""
    dut = BytesToWords(width=width, tail=4)
    out, tails, cycles = [], [], []

    async def bench(ctx):
        for cycle, beat in enumerate([*offered, None, None]):
            ctx.set(dut.i.valid, beat is not None)
            if beat is not None:
                ctx.set(dut.i.p, beat)
            _, _, valid, p = await ctx.tick().sample(dut.o.valid, dut.o.p)
            if valid:
                out.append(p)
                cycles.append(cycle)
                if p.last:
                    tails.append(p.tail)

    sim = Simulator(dut)
    sim.add_clock(8e-9)
    sim.add_testbench(bench)
    sim.run()
    return frames(map(Masked, out)), tails, cycles


class Masked:
    """A word without what is not kept."""

    def __init__(self, word):
        self.shape, self.keep, self.last = word.shape, word.keep, word.last
        self.data = word.data & (1 << 8 * word.keep.bit_count()) - 1


@WIDTHS
def test_bytes_are_gathered_in_words_with_what_their_packet_ends_with(width):
    rng = random.Random(new_seed())
    sent = some_frames(rng, width, 40)
    offered, tails = [], []
    for frame in sent:
        tails.append(rng.randrange(16))
        for beat in beats([frame], 8, errors=None):
            offered += [None] * rng.choice([0, 0, 0, 1, 5])
            offered.append(beat | {"tail": tails[-1] if beat["last"] else rng.randrange(16)})
    assert gather(width, offered)[:2] == (sent, tails)


@WIDTHS
def test_a_word_follows_its_last_byte_by_a_cycle(width):
    offered = [beat | {"tail": 0} for beat in beats([bytes(width // 4)], 8, errors=None)]
    assert gather(width, offered)[2] == [width // 8, width // 4]


@WIDTHS
def test_words_are_taken_apart(width):
    rng = random.Random(seed := new_seed())
    sent = some_frames(rng, width, 40)
    offered = list(beats(sent, width, errors=None))
    dut = WordsToBytes(width=width)
    log = simulate(dut, drive={"i": offered}, collect={"o": sum(map(len, sent))}, seed=seed)
    assert frames(payload for _, payload in log["o"]) == sent


@WIDTHS
def test_bytes_of_a_packet_do_not_pause_and_follow_their_word_by_two_cycles(width):
    sent = [bytes(width // 2), bytes(1), bytes(1), bytes(3 * width // 8)]
    offered = list(beats(sent, width, errors=None))
    dut = WordsToBytes(width=width)
    log = simulate(dut, drive={"i": offered}, collect={"o": sum(map(len, sent))}, stall=0)
    taken, given = ([cycle for cycle, _ in log[name]] for name in ("i", "o"))
    assert given[0] - taken[0] == 2
    assert given[: len(sent[0])] == list(range(given[0], given[0] + len(sent[0])))


@pytest.mark.parametrize("kind", [WordsToBytes, lambda width: BytesToWords(width=width, tail=1)])
@pytest.mark.parametrize("width", [8, 24])
def test_the_width_is_checked(kind, width):
    with pytest.raises(ValueError, match=f"width must be a power of two from 16, not {width}"):
        kind(width=width)
