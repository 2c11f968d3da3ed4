# amaranth: UnusedElaboratable=no
"""Frames out of carriers: which are good, what is wrong with the others, whatever the gaps."""

import random

import pytest
from amaranth.sim import Simulator

from fanin.hdl.net.ethernet.gmii import Cause
from fanin.hdl.net.ethernet.mac_receiver import MacReceiver
from tests.hdl.net.ethernet.line import carrier, each_cause, enables, gap, odd_carrier, read, with_fcs
from tests.support import new_seed, slow


def receive(symbols, steps=None, *, max_frame=2000):
    """The frames that come out, as ``read`` has them, and the cycle of each one's last byte."""
    dut = MacReceiver(max_frame=max_frame)
    found, ends = [], []

    async def feed(ctx):
        for symbol in symbols:
            ctx.set(dut.gmii, symbol.fields)
            if steps:
                ctx.set(dut.enable, 0)
                while not next(steps):
                    await ctx.tick()
            ctx.set(dut.enable, 1)
            await ctx.tick()
        await ctx.tick().repeat(8)

    async def take(ctx):
        frame = b""
        async for cycle, (_, _, valid, p) in count(ctx.tick().sample(dut.o.valid, dut.o.p)):
            if not valid:
                continue
            frame += bytes([p.data])
            if p.last:
                found.append((frame, p.cause))
                ends.append(cycle)
                frame = b""

    sim = Simulator(dut)
    sim.add_clock(8e-9)
    sim.add_testbench(feed)
    sim.add_testbench(take, background=True)
    sim.run()
    return found, ends


async def count(ticks):
    cycle = 0
    async for tick in ticks:
        yield cycle, tick
        cycle += 1


def agree(found, expected):
    """Same carriers, same causes; the bytes of one with less than five do not count."""
    assert [cause for _, cause in found] == [cause for _, cause in expected]
    for (frame, _), (content, _) in zip(found, expected, strict=True):
        assert len(frame) == 1 if content is None else frame == content


@pytest.mark.parametrize("every_cycle", [True, False])
@pytest.mark.parametrize("carriers", [60, *slow(3000)])
def test_every_carrier_ends_with_what_became_of_it(every_cycle, carriers):
    rng = random.Random(new_seed())
    several = each_cause(rng, max_frame=200) + [odd_carrier(rng, max_frame=200) for _ in range(carriers)]
    rng.shuffle(several)
    symbols = gap(3, rng)
    for each in several:
        symbols += each + gap(rng.choice([1, 2, 3, 4, 12, 40]), rng)
    expected = read(symbols, max_frame=200)
    assert {cause for _, cause in expected} == set(Cause) - {Cause.LOST}
    agree(receive(symbols, None if every_cycle else enables(rng), max_frame=200)[0], expected)


@pytest.mark.parametrize("preamble", [0, 1, 3, 5, 6, 7, 8, 15])
@pytest.mark.parametrize("space", [1, 4])
def test_preambles_and_gaps_of_any_length(preamble, space):
    rng = random.Random(new_seed())
    frames = [rng.randbytes(rng.randrange(60, 70)) for _ in range(4)]
    symbols = gap(2, rng)
    for frame in frames:
        symbols += carrier(with_fcs(frame), preamble=preamble) + gap(space, rng)
    assert receive(symbols)[0] == [(frame, Cause.GOOD) for frame in frames]


def lengths_agree(lengths):
    rng = random.Random(new_seed())
    symbols = gap(2, rng)
    for length in lengths:
        content = rng.randbytes(length)
        symbols += carrier(with_fcs(content[:-4]) if length >= 4 else content) + gap(1, rng)
    agree(receive(symbols)[0], read(symbols))


def test_lengths_about_every_limit():
    lengths_agree([*range(70), 1024, 1087, *range(1998, 2003), 2112])


@pytest.mark.slow
def test_other_lengths():
    lengths_agree(random.Random(new_seed()).sample(range(2100), 100))


def test_a_shorter_limit():
    rng = random.Random(new_seed())
    symbols = [
        symbol
        for size in (299, 300, 301)
        for symbol in carrier(with_fcs(rng.randbytes(size - 4))) + gap(9, rng)
    ]
    causes = [cause for _, cause in receive(symbols, max_frame=300)[0]]
    assert causes == [Cause.GOOD, Cause.GOOD, Cause.LONG]


@pytest.mark.parametrize("bit", range(32))
def test_every_bit_of_the_fcs_counts(bit):
    good = with_fcs(bytes(range(64)))
    wrong = (int.from_bytes(good, "little") ^ 1 << 8 * 64 + bit).to_bytes(68, "little")
    symbols = carrier(wrong) + gap(5, random.Random(bit))
    assert [cause for _, cause in receive(symbols)[0]] == [Cause.BAD_FCS]


def test_the_last_byte_comes_out_four_cycles_later():
    symbols = carrier(with_fcs(bytes(60))) + gap(5, random.Random(0))
    assert receive(symbols)[1] == [len(carrier(bytes(64))) - 1 + 4]


@pytest.mark.parametrize("max_frame", [63, 2001])
def test_the_limit_is_checked(max_frame):
    with pytest.raises(ValueError, match=f"max_frame must be 64 to 2000 bytes, not {max_frame}"):
        MacReceiver(max_frame=max_frame)
